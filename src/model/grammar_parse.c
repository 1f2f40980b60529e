// SPDX-License-Identifier: MIT
// grammar_parse.c: reads GBNF into rules over bytes.

#include "model/grammar.h"

#include <inttypes.h>
#include <string.h>

#define MAX_DEPTH 500      // parentheses within each other
#define MAX_TIMES 100000   // of {n}
#define MAX_CHAR 0x10ffffu // of Unicode

struct parser {
    struct grammar *g;
    const char *text;
    size_t at, size;
    int depth;
    struct model_error *error;
};

// Elements of a sequence while it is read.
struct items {
    struct grammar_elem *elems;
    size_t n, room;
};

static bool fail(struct parser *p, const char *what) {
    size_t line = 1;
    for (size_t i = 0; i < p->at && i < p->size; i++) {
        line += p->text[i] == '\n';
    }
    return model_fail(p->error, "line %zu: %s", line, what);
}

static bool out_of_memory(struct parser *p) {
    return model_fail(p->error, "out of memory for a grammar of %zu elements", p->g->n_elems);
}

// Room for one more of size bytes.
static bool grow(void **list, size_t n, size_t *room, size_t size) {
    if (n < *room) {
        return true;
    }
    void *more = model_alloc_realloc(*list, (2 * *room + 16) * size);
    if (more != NULL) {
        *list = more;
        *room = 2 * *room + 16;
    }
    return more != NULL;
}

static bool push(struct parser *p, struct items *s, struct grammar_elem e) {
    if (!grow((void **) &s->elems, s->n, &s->room, sizeof *s->elems)) {
        return out_of_memory(p);
    }
    s->elems[s->n++] = e;
    return true;
}

// ---- rules ----

static bool rule_new(struct parser *p, uint32_t *out) {
    struct grammar *g = p->g;
    if (!grow((void **) &g->rules, g->n_rules, &g->rules_room, sizeof *g->rules)) {
        return out_of_memory(p);
    }
    *out                   = (uint32_t) g->n_rules;
    g->rules[g->n_rules++] = (struct grammar_rule){NULL, GRAMMAR_NONE};
    return true;
}

// An alternative of n elements.
static bool alt_add(struct parser *p, uint32_t rule, const struct grammar_elem *elems, size_t n) {
    struct grammar *g = p->g;
    if (!grow((void **) &g->alts, g->n_alts, &g->alts_room, sizeof *g->alts)) {
        return out_of_memory(p);
    }
    g->alts[g->n_alts]   = (struct grammar_alt){(uint32_t) g->n_elems, g->rules[rule].first};
    g->rules[rule].first = (uint32_t) g->n_alts++;
    for (size_t i = 0; i <= n; i++) {
        if (!grow((void **) &g->elems, g->n_elems, &g->elems_room, sizeof *g->elems)) {
            return out_of_memory(p);
        }
        g->elems[g->n_elems++] = i < n ? elems[i] : (struct grammar_elem){.kind = GRAMMAR_END};
    }
    return true;
}

static bool rule_find(struct parser *p, const char *name, size_t size, uint32_t *out) {
    struct grammar *g = p->g;
    for (size_t i = 0; i < g->n_rules; i++) {
        if (g->rules[i].name != NULL && strlen(g->rules[i].name) == size && memcmp(g->rules[i].name, name, size) == 0) {
            *out = (uint32_t) i;
            return true;
        }
    }
    char *copy = model_alloc_malloc(size + 1);
    if (copy == NULL || !rule_new(p, out)) {
        model_alloc_free(copy);
        return out_of_memory(p);
    }
    memcpy(copy, name, size);
    copy[size]          = '\0';
    g->rules[*out].name = copy;
    return true;
}

// ---- text ----

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static char peek(const struct parser *p) {
    return p->at < p->size ? p->text[p->at] : '\0';
}

static void skip(struct parser *p) {
    for (; p->at < p->size; p->at++) {
        if (p->text[p->at] == '#') {
            p->at += strcspn(p->text + p->at, "\n");
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

// Does "NAME ::=" stand here?
static bool is_rule_here(const struct parser *p) {
    struct parser q = *p;
    const size_t n  = name_size(&q);
    q.at += n;
    skip(&q);
    return n > 0 && q.at + 3 <= q.size && memcmp(q.text + q.at, "::=", 3) == 0;
}

static bool hex(struct parser *p, int n, uint32_t *c) {
    *c = 0;
    for (int i = 0; i < n; i++, p->at++) {
        const char x    = peek(p);
        const int digit = x >= '0' && x <= '9'   ? x - '0'
                          : x >= 'a' && x <= 'f' ? x - 'a' + 10
                          : x >= 'A' && x <= 'F' ? x - 'A' + 10
                                                 : -1;
        if (digit < 0) {
            return fail(p, "hexadecimal digits are missing behind \\x, \\u or \\U");
        }
        *c = *c * 16 + (uint32_t) digit;
    }
    return *c <= MAX_CHAR || fail(p, "there is no such character");
}

// One character of a literal or a class.
static bool character(struct parser *p, uint32_t *c) {
    if (p->at >= p->size) {
        return fail(p, "the text ends within a literal or a class");
    }
    if (p->text[p->at] != '\\') {
        p->at += utf8_next(p->text + p->at, p->size - p->at, c);
        return true;
    }
    p->at++;
    const char x = peek(p);
    p->at += p->at < p->size;
    switch (x) {
        case 'n': *c = '\n'; return true;
        case 'r': *c = '\r'; return true;
        case 't': *c = '\t'; return true;
        case 'x': return hex(p, 2, c);
        case 'u': return hex(p, 4, c);
        case 'U': return hex(p, 8, c);
        case '\\':
        case '"':
        case '[':
        case ']':
        case '-':
        case '^': *c = (uint32_t) x; return true;
        default: return fail(p, "there is no such escape: \\n \\r \\t \\xHH \\uHHHH \\UHHHHHHHH and \\ before \\ \" [ ] - ^ are");
    }
}

// ---- classes ----

struct range {
    uint32_t low, high;
};

// The byte sequences of the characters from low to high: alternatives of a rule.
static bool range_add(struct parser *p, uint32_t rule, uint32_t low, uint32_t high) {
    static const uint32_t ends[] = {0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (low <= ends[i] && ends[i] < high) {
            return range_add(p, rule, low, ends[i]) && range_add(p, rule, ends[i] + 1, high);
        }
    }
    if (low >= 0xd800 && high <= 0xdfff) { // halves of pairs are no characters
        return true;
    }
    const int n = low <= 0x7f ? 1 : low <= 0x7ff ? 2 : low <= 0xffff ? 3 : 4;
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

static bool class_push(struct parser *p, struct items *s, struct range *ranges, size_t n, bool is_not) {
    uint32_t rule, next = 0;
    if (n == 1 && !is_not && ranges[0].high <= 0x7f) { // the usual one needs no rule
        return push(
            p, s, (struct grammar_elem){.kind = GRAMMAR_BYTE, .low = (uint8_t) ranges[0].low, .high = (uint8_t) ranges[0].high});
    }
    if (!rule_new(p, &rule)) {
        return false;
    }
    for (size_t i = 1; i < n; i++) { // by their beginning; there are few
        for (size_t j = i; j > 0 && ranges[j].low < ranges[j - 1].low; j--) {
            const struct range moved = ranges[j];
            ranges[j]                = ranges[j - 1];
            ranges[j - 1]            = moved;
        }
    }
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        if (is_not) {
            ok = ranges[i].low <= next || range_add(p, rule, next, ranges[i].low - 1);
        } else if (ranges[i].high >= next) {
            ok = range_add(p, rule, ranges[i].low > next ? ranges[i].low : next, ranges[i].high);
        }
        next = ranges[i].high + 1 > next ? ranges[i].high + 1 : next;
    }
    if (is_not) {
        ok = ok && (next > MAX_CHAR || range_add(p, rule, next, MAX_CHAR));
    }
    return ok && push(p, s, (struct grammar_elem){.kind = GRAMMAR_RULE, .rule = rule});
}

// Behind '['.
static bool class_read(struct parser *p, struct items *s) {
    struct range *ranges = NULL;
    size_t n = 0, room = 0;
    const bool is_not = peek(p) == '^';
    bool ok           = true;
    p->at += is_not;
    while (ok && p->at < p->size && peek(p) != ']') {
        struct range r;
        ok     = character(p, &r.low);
        r.high = r.low;
        if (ok && peek(p) == '-' && p->at + 1 < p->size && p->text[p->at + 1] != ']') {
            p->at++;
            ok = character(p, &r.high) && (r.high >= r.low || fail(p, "a range of characters ends before it begins"));
        }
        ok = ok && (grow((void **) &ranges, n, &room, sizeof *ranges) || out_of_memory(p));
        if (ok) {
            ranges[n++] = r;
        }
    }
    ok = ok && (peek(p) == ']' || fail(p, "']' is missing"));
    p->at += ok;
    ok = ok && (n > 0 || is_not || fail(p, "a class of no characters")) && class_push(p, s, ranges, n, is_not);
    model_alloc_free(ranges);
    return ok;
}

// Behind '"'.
static bool literal_read(struct parser *p, struct items *s) {
    while (p->at < p->size && peek(p) != '"') {
        uint32_t c;
        char bytes[4];
        if (!character(p, &c)) {
            return false;
        }
        const size_t n = utf8_put(c, bytes);
        for (size_t i = 0; i < n; i++) {
            const uint8_t byte = (uint8_t) bytes[i];
            if (!push(p, s, (struct grammar_elem){.kind = GRAMMAR_BYTE, .low = byte, .high = byte})) {
                return false;
            }
        }
    }
    if (peek(p) != '"') {
        return fail(p, "'\"' is missing");
    }
    p->at++;
    return true;
}

// ---- repetitions ----

static struct grammar_elem call(uint32_t rule) {
    return (struct grammar_elem){.kind = GRAMMAR_RULE, .rule = rule};
}

// R ::= item rest | nothing
static bool optional(struct parser *p, struct grammar_elem item, const struct grammar_elem *rest, uint32_t *out) {
    const struct grammar_elem both[] = {item, rest != NULL ? *rest : (struct grammar_elem){.kind = GRAMMAR_END}};
    return rule_new(p, out) && alt_add(p, *out, NULL, 0) && alt_add(p, *out, both, rest != NULL ? 2 : 1);
}

static bool star(struct parser *p, struct grammar_elem item, uint32_t *out) {
    if (!rule_new(p, out)) {
        return false;
    }
    const struct grammar_elem both[] = {item, call(*out)};
    return alt_add(p, *out, NULL, 0) && alt_add(p, *out, both, 2);
}

// What stands from `from` on, least to most times; most < 0: any.
static bool repeat(struct parser *p, struct items *s, size_t from, int64_t least, int64_t most) {
    struct grammar_elem item = s->n > from ? s->elems[from] : (struct grammar_elem){.kind = GRAMMAR_END};
    uint32_t rule;
    if (s->n == from) {
        return true; // nothing, so many times
    }
    if (s->n - from > 1) {
        if (!rule_new(p, &rule) || !alt_add(p, rule, s->elems + from, s->n - from)) {
            return false;
        }
        item = call(rule);
    }
    s->n = from;
    for (int64_t i = 0; i < least; i++) {
        if (!push(p, s, item)) {
            return false;
        }
    }
    if (most < 0) {
        return star(p, item, &rule) && push(p, s, call(rule));
    }
    struct grammar_elem rest;
    for (int64_t i = least; i < most; i++) {
        if (!optional(p, item, i > least ? &rest : NULL, &rule)) {
            return false;
        }
        rest = call(rule);
    }
    return most == least || push(p, s, rest);
}

static bool number(struct parser *p, int64_t *out) {
    const size_t start = p->at;
    for (*out = 0; peek(p) >= '0' && peek(p) <= '9' && *out <= MAX_TIMES; p->at++) {
        *out = *out * 10 + (peek(p) - '0');
    }
    return (p->at > start && *out <= MAX_TIMES) || fail(p, "{} wants numbers from 0 to 100000");
}

// Behind '{': 3} 3,} 3,5} ,5}
static bool times_read(struct parser *p, int64_t *least, int64_t *most) {
    *least = 0;
    skip(p);
    if (peek(p) != ',' && !number(p, least)) {
        return false;
    }
    *most = *least;
    skip(p);
    if (peek(p) == ',') {
        p->at++;
        skip(p);
        *most = -1;
        if (peek(p) != '}' && !number(p, most)) {
            return false;
        }
        skip(p);
    }
    if (peek(p) != '}') {
        return fail(p, "'}' is missing");
    }
    p->at++;
    return *most < 0 || *most >= *least || fail(p, "{} ends before it begins");
}

static bool suffix_read(struct parser *p, struct items *s, size_t from) {
    int64_t least = 0, most = -1;
    const char c = peek(p);
    if (c != '*' && c != '+' && c != '?' && c != '{') {
        return true;
    }
    p->at++;
    if (c == '{' && !times_read(p, &least, &most)) {
        return false;
    }
    least = c == '+' ? 1 : least;
    most  = c == '?' ? 1 : most;
    return repeat(p, s, from, least, most);
}

// ---- sequences and alternatives ----

static bool alternatives(struct parser *p, uint32_t rule);

static bool group_read(struct parser *p, struct items *s) {
    uint32_t rule;
    if (++p->depth > MAX_DEPTH) {
        return fail(p, "parentheses within each other are too many");
    }
    if (!rule_new(p, &rule) || !alternatives(p, rule)) {
        return false;
    }
    p->depth--;
    if (peek(p) != ')') {
        return fail(p, "')' is missing");
    }
    p->at++;
    return push(p, s, call(rule));
}

static bool item_read(struct parser *p, struct items *s, bool *is_end) {
    static struct range any = {0, MAX_CHAR};
    const char c            = peek(p);
    const size_t n = name_size(p), from = s->n;
    struct range all = any;
    uint32_t rule;
    *is_end = p->at >= p->size || c == '|' || c == ')' || (p->depth == 0 && is_rule_here(p));
    if (*is_end) {
        return true;
    }
    bool ok;
    if (n > 0) {
        ok = rule_find(p, p->text + p->at, n, &rule) && push(p, s, call(rule));
        p->at += n;
    } else {
        p->at++;
        ok = c == '"'   ? literal_read(p, s)
             : c == '[' ? class_read(p, s)
             : c == '(' ? group_read(p, s)
             : c == '.' ? class_push(p, s, &all, 1, false)
                        : fail(p, "a literal, a class, a name or '(' is wanted here");
    }
    return ok && suffix_read(p, s, from);
}

static bool alternatives(struct parser *p, uint32_t rule) {
    struct items s = {0};
    bool ok        = true;
    for (bool more = true; ok && more;) {
        s.n = 0;
        skip(p);
        for (bool is_end = false; ok && !is_end; skip(p)) {
            ok = item_read(p, &s, &is_end);
        }
        ok   = ok && alt_add(p, rule, s.elems, s.n);
        more = ok && peek(p) == '|';
        p->at += more;
    }
    model_alloc_free(s.elems);
    return ok;
}

// ---- the whole ----

static bool rules_check(struct parser *p) {
    for (size_t i = 0; i < p->g->n_rules; i++) {
        if (p->g->rules[i].first == GRAMMAR_NONE && p->g->rules[i].name != NULL) {
            return model_fail(p->error,
                i == p->g->root ? "there is no rule '%.64s', which is where a text begins"
                                : "rule '%.64s' is used, but there is none",
                p->g->rules[i].name);
        }
    }
    return true;
}

static bool rules_read(struct parser *p) {
    for (skip(p); p->at < p->size; skip(p)) {
        const size_t n = name_size(p);
        uint32_t rule;
        if (!is_rule_here(p)) {
            return fail(p, "a rule is wanted here: NAME ::= ...");
        }
        if (!rule_find(p, p->text + p->at, n, &rule)) {
            return false;
        }
        if (p->g->rules[rule].first != GRAMMAR_NONE) {
            return fail(p, "this rule is there already");
        }
        p->at += n;
        skip(p);
        p->at += 3;
        if (!alternatives(p, rule)) {
            return false;
        }
        if (peek(p) == ')') {
            return fail(p, "')' without '('");
        }
    }
    return true;
}

struct grammar *grammar_new(const char *text, size_t size, struct model_error *error) {
    struct grammar *g = model_alloc_calloc(1, sizeof *g);
    struct parser p   = {.g = g, .text = text, .size = size, .error = error};
    if (g == NULL) {
        model_fail(error, "out of memory");
        return NULL;
    }
    if (!rule_find(&p, "root", 4, &g->root) || !rules_read(&p) || !rules_check(&p) || !grammar_check(g, error)) {
        grammar_free(g);
        return NULL;
    }
    return g;
}

void grammar_free(struct grammar *g) {
    for (size_t i = 0; g != NULL && i < g->n_rules; i++) {
        model_alloc_free(g->rules[i].name);
    }
    if (g != NULL) {
        model_alloc_free(g->elems);
        model_alloc_free(g->alts);
        model_alloc_free(g->rules);
    }
    model_alloc_free(g);
}
