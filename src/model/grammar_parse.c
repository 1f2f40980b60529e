// SPDX-License-Identifier: MIT
// grammar_parse.c: parses a grammar in GBNF into rules over bytes.

#include "model/grammar.h"

#include "base/siphash.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 500      // nested parentheses
#define MAX_TIMES 100000   // largest count in {n}
#define MAX_CHAR 0x10ffffu // largest character of Unicode

// A hash table (open addressing) of the names of rules.
struct names {
    uint32_t *slots; // rule + 1; 0: free
    size_t n_slots, n;
    struct berth_siphash_key key;
};

struct parser {
    struct grammar *g;
    struct names names;
    const char *text;
    size_t at, size; // offset of the next byte; size of the text
    int depth;       // nested parentheses
    struct model_error *error;
};

struct items {
    struct grammar_elem *elems;
    size_t n, room;
};

static bool parser_fail(struct parser *p, const char *what) {
    size_t line = 1;
    for (size_t i = 0; i < p->at && i < p->size; i++) {
        line += p->text[i] == '\n';
    }
    return model_fail(p->error, "line %zu: %s", line, what);
}

static bool out_of_memory(struct parser *p) {
    return model_fail(p->error, "out of memory for a grammar of %zu elements", p->g->n_elems);
}

static struct grammar_elem rule_call(uint32_t rule) {
    return (struct grammar_elem){.kind = GRAMMAR_RULE, .rule = rule};
}

static bool items_push(struct parser *p, struct items *s, struct grammar_elem e) {
    if (!berth_grow((void **) &s->elems, &s->room, s->n + 1, sizeof *s->elems)) {
        return out_of_memory(p);
    }
    s->elems[s->n++] = e;
    return true;
}

// ---- rules ----

static bool rule_new(struct parser *p, uint32_t *out) {
    struct grammar *g = p->g;
    if (!berth_grow((void **) &g->rules, &g->rules_room, g->n_rules + 1, sizeof *g->rules)) {
        return out_of_memory(p);
    }
    if (g->n_rules >= GRAMMAR_NONE - 1) {
        return parser_fail(p, "too many rules");
    }
    *out = (uint32_t) g->n_rules;
    g->rules[g->n_rules++] = (struct grammar_rule){.first = GRAMMAR_NONE};
    return true;
}

static bool alt_add(struct parser *p, uint32_t rule, const struct grammar_elem *elems, size_t n) {
    struct grammar *g = p->g;
    if (!berth_grow((void **) &g->alts, &g->alts_room, g->n_alts + 1, sizeof *g->alts)) {
        return out_of_memory(p);
    }
    if (g->n_alts >= GRAMMAR_NONE || g->n_elems >= GRAMMAR_NONE - n - 1) {
        return parser_fail(p, "too many elements");
    }
    g->alts[g->n_alts] = (struct grammar_alt){(uint32_t) g->n_elems, g->rules[rule].first};
    g->rules[rule].first = (uint32_t) g->n_alts++;
    for (size_t i = 0; i <= n; i++) {
        if (!berth_grow((void **) &g->elems, &g->elems_room, g->n_elems + 1, sizeof *g->elems)) {
            return out_of_memory(p);
        }
        g->elems[g->n_elems++] = i < n ? elems[i] : (struct grammar_elem){.kind = GRAMMAR_END};
    }
    return true;
}

static size_t name_slot(const struct parser *p, const char *name, size_t size) {
    const struct names *n = &p->names;
    size_t i = (size_t) berth_siphash_of(&n->key, name, size) & (n->n_slots - 1);
    for (; n->slots[i] != 0; i = (i + 1) & (n->n_slots - 1)) {
        const struct grammar_rule *rule = &p->g->rules[n->slots[i] - 1];
        if (rule->name_size == size && memcmp(rule->name, name, size) == 0) {
            break;
        }
    }
    return i;
}

static bool names_grow(struct parser *p) {
    struct names *n = &p->names;
    if (2 * n->n + 2 <= n->n_slots) {
        return true;
    }
    const size_t n_new = n->n_slots > 0 ? 2 * n->n_slots : 64;
    uint32_t *slots = berth_calloc(n_new, sizeof *slots);
    if (slots == NULL) {
        return out_of_memory(p);
    }
    berth_free(n->slots);
    n->slots = slots;
    n->n_slots = n_new;
    for (uint32_t i = 0; i < p->g->n_rules; i++) {
        if (p->g->rules[i].name != NULL) {
            slots[name_slot(p, p->g->rules[i].name, p->g->rules[i].name_size)] = i + 1;
        }
    }
    return true;
}

// Creates a missing rule, because a rule may be used before its definition.
static bool rule_find_or_add(struct parser *p, const char *name, size_t size, uint32_t *out) {
    if (!names_grow(p)) {
        return false;
    }
    const size_t slot = name_slot(p, name, size);
    if (p->names.slots[slot] != 0) {
        *out = p->names.slots[slot] - 1;
        return true;
    }
    char *copy = berth_malloc(size + 1);
    if (copy == NULL || !rule_new(p, out)) {
        berth_free(copy);
        return out_of_memory(p);
    }
    memcpy(copy, name, size);
    copy[size] = '\0';
    p->g->rules[*out].name = copy;
    p->g->rules[*out].name_size = size;
    p->names.slots[slot] = *out + 1;
    p->names.n++;
    return true;
}

// ---- text ----

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static char parser_peek(const struct parser *p) {
    return p->at < p->size ? p->text[p->at] : '\0';
}

static void blanks_skip(struct parser *p) {
    for (; p->at < p->size; p->at++) {
        if (p->text[p->at] == '#') {
            const char *end = memchr(p->text + p->at, '\n', p->size - p->at);
            p->at = end != NULL ? (size_t) (end - p->text) : p->size;
        }
        if (p->at >= p->size || strchr(" \t\r\n", p->text[p->at]) == NULL) {
            return;
        }
    }
}

static size_t name_size(const struct parser *p) {
    size_t n = 0;
    while (p->at + n < p->size && is_name_char(p->text[p->at + n])) {
        n++;
    }
    return n;
}

static bool is_rule_here(const struct parser *p) {
    struct parser q = *p;
    const size_t n = name_size(&q);
    q.at += n;
    blanks_skip(&q);
    return n > 0 && q.at + 3 <= q.size && memcmp(q.text + q.at, "::=", 3) == 0;
}

static bool hex_read(struct parser *p, int n, uint32_t *c) {
    static const char digits[] = "0123456789abcdefABCDEF";
    *c = 0;
    for (int i = 0; i < n; i++, p->at++) {
        const char x = parser_peek(p);
        const char *digit = x != '\0' ? strchr(digits, x) : NULL;
        if (digit == NULL) {
            return parser_fail(p, "hexadecimal digits are missing after \\x, \\u or \\U");
        }
        const uint32_t value = (uint32_t) (digit - digits);
        *c = *c * 16 + (value < 16 ? value : value - 6);
    }
    return *c <= MAX_CHAR || parser_fail(p, "the character is above U+10FFFF");
}

static bool char_read(struct parser *p, uint32_t *c) {
    if (p->at >= p->size) {
        return parser_fail(p, "the grammar ends within a literal or a class");
    }
    if (!grammar_poll(p->g, p->error)) {
        return false;
    }
    if (p->text[p->at] != '\\') {
        p->at += utf8_next(p->text + p->at, p->size - p->at, c);
        return true;
    }
    p->at++;
    const char x = parser_peek(p);
    p->at += p->at < p->size;
    switch (x) {
        case 'n': *c = '\n'; return true;
        case 'r': *c = '\r'; return true;
        case 't': *c = '\t'; return true;
        case 'x': return hex_read(p, 2, c);
        case 'u': return hex_read(p, 4, c);
        case 'U': return hex_read(p, 8, c);
        case '\\':
        case '"':
        case '[':
        case ']':
        case '-':
        case '^': *c = (uint32_t) x; return true;
        default:
            return parser_fail(
                p, "unknown escape; supported: \\n \\r \\t \\xHH \\uHHHH \\UHHHHHHHH, and \\ before \\ \" [ ] - ^");
    }
}

// ---- classes ----

struct range {
    uint32_t low, high;
};

// Adds the UTF-8 byte sequences of the characters from low to high as alternatives of a rule.
static bool range_add(struct parser *p, uint32_t rule, uint32_t low, uint32_t high) {
    static const uint32_t ends[] = {0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (low <= ends[i] && ends[i] < high) {
            return range_add(p, rule, low, ends[i]) && range_add(p, rule, ends[i] + 1, high);
        }
    }
    if (low >= 0xd800 && high <= 0xdfff) { // surrogates are not characters
        return true;
    }
    const int n = 1 + (low > 0x7f) + (low > 0x7ff) + (low > 0xffff);
    for (int i = 1; i < n; i++) {
        const uint32_t mask = (1u << (6 * i)) - 1;
        if ((low & ~mask) != (high & ~mask)) {
            if ((low & mask) != 0) {
                return range_add(p, rule, low, low | mask) && range_add(p, rule, (low | mask) + 1, high);
            }
            if ((high & mask) != mask) {
                return range_add(p, rule, low, (high & ~mask) - 1) && range_add(p, rule, high & ~mask, high);
            }
        }
    }
    char from[4], to[4];
    struct grammar_elem elems[4];
    utf8_put(low, from);
    utf8_put(high, to);
    for (int i = 0; i < n; i++) {
        elems[i] = (struct grammar_elem){.kind = GRAMMAR_BYTE, .low = (uint8_t) from[i], .high = (uint8_t) to[i]};
    }
    return alt_add(p, rule, elems, (size_t) n);
}

static int by_low(const void *a, const void *b) {
    const struct range *x = a, *y = b;
    return (x->low > y->low) - (x->low < y->low);
}

static void ranges_join(struct range *ranges, size_t *n) {
    size_t n_joined = 0;
    if (*n > 1) {
        qsort(ranges, *n, sizeof *ranges, by_low);
    }
    for (size_t i = 0; i < *n; i++) {
        struct range *last = n_joined > 0 ? &ranges[n_joined - 1] : NULL;
        if (last == NULL || ranges[i].low > last->high + 1) {
            ranges[n_joined++] = ranges[i];
        } else if (ranges[i].high > last->high) {
            last->high = ranges[i].high;
        }
    }
    *n = n_joined;
}

static bool class_push(struct parser *p, struct items *s, struct range *ranges, size_t n, bool is_negated) {
    uint32_t rule, next = 0;
    if (n == 1 && !is_negated && ranges[0].high <= 0x7f) { // the most frequent case needs no rule
        return items_push(
            p, s, (struct grammar_elem){.kind = GRAMMAR_BYTE, .low = (uint8_t) ranges[0].low, .high = (uint8_t) ranges[0].high});
    }
    if (!rule_new(p, &rule)) {
        return false;
    }
    ranges_join(ranges, &n);
    for (size_t i = 0; i < n; i++) {
        const uint32_t low = is_negated ? next : ranges[i].low, end = is_negated ? ranges[i].low : ranges[i].high + 1;
        if (low < end && !range_add(p, rule, low, end - 1)) {
            return false;
        }
        next = ranges[i].high + 1;
    }
    if (is_negated && next <= MAX_CHAR && !range_add(p, rule, next, MAX_CHAR)) {
        return false;
    }
    return items_push(p, s, rule_call(rule));
}

static bool range_read(struct parser *p, struct range *r) {
    if (!char_read(p, &r->low)) {
        return false;
    }
    r->high = r->low;
    if (parser_peek(p) != '-' || p->at + 1 >= p->size || p->text[p->at + 1] == ']') {
        return true;
    }
    p->at++;
    return char_read(p, &r->high) && (r->high >= r->low || parser_fail(p, "the end of a character range is below its start"));
}

// Parses a class after its '['.
static bool class_read(struct parser *p, struct items *s) {
    struct range *ranges = NULL;
    // When there are join_at ranges, overlapping and adjacent ranges are joined. This limits the memory of a very long class:
    // there are at most half as many joined ranges as characters of Unicode.
    size_t n = 0, room = 0, join_at = 4096;
    const bool is_negated = parser_peek(p) == '^';
    bool ok = false;
    p->at += is_negated;
    while (p->at < p->size && parser_peek(p) != ']') {
        struct range r;
        if (!range_read(p, &r)) {
            goto end;
        }
        if (n == join_at) {
            ranges_join(ranges, &n);
            if (2 * n > join_at) {
                join_at = 2 * n;
            }
        }
        if (!berth_grow((void **) &ranges, &room, n + 1, sizeof *ranges)) {
            out_of_memory(p);
            goto end;
        }
        ranges[n++] = r;
    }
    if (parser_peek(p) != ']') {
        parser_fail(p, "']' is missing");
        goto end;
    }
    p->at++;
    ok = (n > 0 || is_negated || parser_fail(p, "the class contains no characters")) && class_push(p, s, ranges, n, is_negated);
end:
    berth_free(ranges);
    return ok;
}

// Parses a literal after its '"'.
static bool literal_read(struct parser *p, struct items *s) {
    while (p->at < p->size && parser_peek(p) != '"') {
        uint32_t c;
        char bytes[4];
        if (!char_read(p, &c)) {
            return false;
        }
        const size_t n = utf8_put(c, bytes);
        for (size_t i = 0; i < n; i++) {
            const uint8_t byte = (uint8_t) bytes[i];
            if (!items_push(p, s, (struct grammar_elem){.kind = GRAMMAR_BYTE, .low = byte, .high = byte})) {
                return false;
            }
        }
    }
    if (parser_peek(p) != '"') {
        return parser_fail(p, "'\"' is missing");
    }
    p->at++;
    return true;
}

// ---- repetitions ----

// Replaces the elements from index `from` on by one repetition of them. most < 0: unlimited.
static bool items_repeat(struct parser *p, struct items *s, size_t from, int64_t least, int64_t most) {
    struct grammar *g = p->g;
    uint32_t rule;
    if (s->n == from || (least == 1 && most == 1)) {
        return true; // empty, or exactly once: nothing to do
    }
    if (most == 0) {
        s->n = from;
        return true;
    }
    if (s->n - from == 1 && s->elems[from].kind == GRAMMAR_RULE) {
        rule = s->elems[from].rule;
    } else if (!rule_new(p, &rule) || !alt_add(p, rule, s->elems + from, s->n - from)) {
        return false;
    }
    if (!berth_grow((void **) &g->repeats, &g->repeats_room, g->n_repeats + 1, sizeof *g->repeats)) {
        return out_of_memory(p);
    }
    s->n = from;
    g->repeats[g->n_repeats++] = (struct grammar_repeat){rule, (uint32_t) least, most < 0 ? GRAMMAR_NONE : (uint32_t) most};
    return items_push(p, s, (struct grammar_elem){.kind = GRAMMAR_REPEAT, .rule = (uint32_t) (g->n_repeats - 1)});
}

static bool number_read(struct parser *p, int64_t *out) {
    const size_t start = p->at;
    for (*out = 0; parser_peek(p) >= '0' && parser_peek(p) <= '9' && *out <= MAX_TIMES; p->at++) {
        *out = *out * 10 + (parser_peek(p) - '0');
    }
    return (p->at > start && *out <= MAX_TIMES) || parser_fail(p, "{} requires integers from 0 to 100000");
}

// Parses a repetition count after '{': 3} 3,} 3,5} ,5}
static bool times_read(struct parser *p, int64_t *least, int64_t *most) {
    *least = 0;
    blanks_skip(p);
    if (parser_peek(p) != ',' && !number_read(p, least)) {
        return false;
    }
    *most = *least;
    blanks_skip(p);
    if (parser_peek(p) == ',') {
        p->at++;
        blanks_skip(p);
        *most = -1;
        if (parser_peek(p) != '}' && !number_read(p, most)) {
            return false;
        }
        blanks_skip(p);
    }
    if (parser_peek(p) != '}') {
        return parser_fail(p, "'}' is missing");
    }
    p->at++;
    return *most < 0 || *most >= *least || parser_fail(p, "the maximum count in {} is below the minimum count");
}

static bool suffix_read(struct parser *p, struct items *s, size_t from) {
    int64_t least = 0, most = -1;
    const char c = parser_peek(p);
    if (c != '*' && c != '+' && c != '?' && c != '{') {
        return true;
    }
    p->at++;
    if (c == '{' && !times_read(p, &least, &most)) {
        return false;
    }
    if (c == '+') {
        least = 1;
    }
    if (c == '?') {
        most = 1;
    }
    return items_repeat(p, s, from, least, most);
}

// ---- sequences and alternatives ----

static bool alternatives_read(struct parser *p, uint32_t rule);

static bool group_read(struct parser *p, struct items *s) {
    uint32_t rule;
    if (++p->depth > MAX_DEPTH) {
        return parser_fail(p, "parentheses are nested too deeply (the limit is 500)");
    }
    if (!rule_new(p, &rule) || !alternatives_read(p, rule)) {
        return false;
    }
    p->depth--;
    if (parser_peek(p) != ')') {
        return parser_fail(p, "')' is missing");
    }
    p->at++;
    return items_push(p, s, rule_call(rule));
}

static bool item_read(struct parser *p, struct items *s, bool *is_end) {
    const char c = parser_peek(p);
    const size_t n = name_size(p), from = s->n;
    uint32_t rule;
    *is_end = p->at >= p->size || c == '|' || c == ')' || (p->depth == 0 && is_rule_here(p));
    if (*is_end) {
        return true;
    }
    if (!grammar_poll(p->g, p->error)) {
        return false;
    }
    bool ok;
    if (n > 0) {
        ok = rule_find_or_add(p, p->text + p->at, n, &rule) && items_push(p, s, rule_call(rule));
        p->at += n;
    } else {
        p->at++;
        switch (c) {
            case '"': ok = literal_read(p, s); break;
            case '[': ok = class_read(p, s); break;
            case '(': ok = group_read(p, s); break;
            case '.': ok = class_push(p, s, &(struct range){0, MAX_CHAR}, 1, false); break;
            default: ok = parser_fail(p, "expected a literal, a class, a name or '('");
        }
    }
    return ok && suffix_read(p, s, from);
}

static bool alternatives_read(struct parser *p, uint32_t rule) {
    struct items s = {0};
    bool ok = true;
    for (bool has_more = true; ok && has_more; p->at += has_more) {
        s.n = 0;
        blanks_skip(p);
        for (bool is_end = false; ok && !is_end; blanks_skip(p)) {
            ok = item_read(p, &s, &is_end);
        }
        if (ok) {
            ok = alt_add(p, rule, s.elems, s.n);
        }
        has_more = ok && parser_peek(p) == '|';
    }
    berth_free(s.elems);
    return ok;
}

// ---- complete grammars ----

static bool rules_check(struct parser *p) {
    for (size_t i = 0; i < p->g->n_rules; i++) {
        if (p->g->rules[i].first == GRAMMAR_NONE && p->g->rules[i].name != NULL) {
            return model_fail(p->error,
                i == p->g->root ? "the start rule '%.64s' is missing" : "rule '%.64s' is used, but not defined",
                p->g->rules[i].name);
        }
    }
    return true;
}

static bool rules_read(struct parser *p) {
    for (blanks_skip(p); p->at < p->size; blanks_skip(p)) {
        const size_t n = name_size(p);
        uint32_t rule;
        if (!is_rule_here(p)) {
            return parser_fail(p, "expected a rule: NAME ::= ...");
        }
        if (!rule_find_or_add(p, p->text + p->at, n, &rule)) {
            return false;
        }
        if (p->g->rules[rule].first != GRAMMAR_NONE) {
            return parser_fail(p, "this rule is already defined");
        }
        p->at += n;
        blanks_skip(p);
        p->at += 3;
        if (!alternatives_read(p, rule)) {
            return false;
        }
        if (parser_peek(p) == ')') {
            return parser_fail(p, "')' without '('");
        }
    }
    return true;
}

struct grammar *grammar_new(const char *text, size_t size, ggml_abort_callback stop, void *stop_data, struct model_error *error) {
    struct grammar *g = berth_calloc(1, sizeof *g);
    struct parser p = {.g = g, .text = text, .size = size, .error = error, .names.key = berth_siphash_key_new(&p)};
    if (g == NULL) {
        model_fail(error, "out of memory");
        return NULL;
    }
    g->stop = stop;
    g->stop_data = stop_data;
    g->max_stack_size = GRAMMAR_STACK_SIZE;
    g->max_steps = GRAMMAR_STEPS;
    const bool ok = rule_find_or_add(&p, "root", 4, &g->root) && rules_read(&p) && rules_check(&p) && grammar_check(g, error);
    berth_free(p.names.slots);
    if (!ok) {
        grammar_free(g);
        return NULL;
    }
    return g;
}

size_t grammar_size(const struct grammar *g) {
    size_t size = sizeof *g + g->elems_room * sizeof *g->elems + g->repeats_room * sizeof *g->repeats +
                  g->alts_room * sizeof *g->alts + g->rules_room * sizeof *g->rules + g->n_rules * sizeof *g->members +
                  ((size_t) g->n_components + 1) * sizeof *g->first_member;
    for (size_t i = 0; i < g->n_rules; i++) {
        size += g->rules[i].name_size;
    }
    return size;
}

void grammar_free(struct grammar *g) {
    for (size_t i = 0; g != NULL && i < g->n_rules; i++) {
        berth_free(g->rules[i].name);
    }
    if (g != NULL) {
        berth_free(g->elems);
        berth_free(g->repeats);
        berth_free(g->alts);
        berth_free(g->rules);
        berth_free(g->members);
        berth_free(g->first_member);
    }
    berth_free(g);
}
