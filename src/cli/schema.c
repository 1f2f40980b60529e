// SPDX-License-Identifier: MIT
// schema.c: see schema.h. Every schema within the file becomes a rule; one that is named by $ref is one rule however often it is
// named, so that it may hold itself. Properties come in the order of the file. What cannot be told by a grammar is refused by its
// name, never left out: an answer that is only nearly valid helps nobody.

#include "cli/schema.h"

#include "cli/cli.h"
#include "plan/io/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct slice {
    const char *at;
    size_t size;
};

struct known {
    const char *at; // where a schema stands
    int rule;
};

struct converter {
    const char *name;
    struct slice all;
    struct berth_stream rules;
    int n_rules;
    struct known *known;
    size_t n_known, room;
    char why[256]; // "": all is well
};

static const char common[] = "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n"
                             "char ::= [^\"\\\\\\x7f\\x00-\\x1f] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4})\n"
                             "string ::= \"\\\"\" char* \"\\\"\"\n"
                             "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
                             "number ::= integer (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?\n"
                             "boolean ::= \"true\" | \"false\"\n"
                             "null ::= \"null\"\n"
                             "value ::= object | array | string | number | boolean | null\n"
                             "member ::= string \":\" ws value\n"
                             "object ::= \"{\" ws (member (\",\" ws member)* ws)? \"}\"\n"
                             "array ::= \"[\" ws (value (\",\" ws value)* ws)? \"]\"\n";

static bool fail(struct converter *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool fail(struct converter *c, const char *fmt, ...) {
    if (c->why[0] == '\0') {
        va_list args;
        va_start(args, fmt);
        vsnprintf(c->why, sizeof c->why, fmt, args);
        va_end(args);
    }
    return false;
}

// ---- looking into the file, which is known to be JSON ----

static char first_of(struct slice s) {
    return s.size > 0 ? s.at[0] : '\0';
}

// One value from here on, without blanks around it.
static struct slice value_here(struct berth_json *r) {
    struct slice s = {NULL, 0};
    if (berth_json_peek(r) != '\0') { // blanks are behind us
        s.at = r->p;
        berth_json_skip(r);
        s.size = (size_t) (r->p - s.at);
    }
    return s;
}

// Calls tell for each member of an object, until it says false.
static bool members(struct converter *c, struct slice object,
    bool (*tell)(struct converter *c, struct berth_json_text key, struct slice value, void *user), void *user) {
    struct berth_json r;
    struct berth_json_text key;
    berth_json_init(&r, object.at, object.size, c->name);
    bool ok =
        berth_json_object(&r) || fail(c, "an object is wanted: %.*s", (int) (object.size < 40 ? object.size : 40), object.at);
    while (ok && berth_json_key(&r, &key)) {
        char *copy = malloc(key.len + 1); // the reader's own is gone with the next text
        ok         = copy != NULL || fail(c, "out of memory");
        if (ok) {
            memcpy(copy, key.text, key.len);
            ok = tell(c, (struct berth_json_text){copy, key.len}, value_here(&r), user);
        }
        free(copy);
    }
    berth_json_fini(&r);
    return ok;
}

struct lookup {
    const char *key;
    size_t size;
    struct slice value; // at NULL: not there
};

static bool lookup_tell(struct converter *c, struct berth_json_text key, struct slice value, void *user) {
    struct lookup *l = user;
    (void) c;
    if (key.len == l->size && memcmp(key.text, l->key, l->size) == 0) {
        l->value = value;
    }
    return true;
}

static struct slice field_sized(struct converter *c, struct slice object, const char *key, size_t size) {
    struct lookup l = {.key = key, .size = size};
    if (first_of(object) == '{') {
        members(c, object, lookup_tell, &l);
    }
    return l.value;
}

static struct slice field(struct converter *c, struct slice object, const char *key) {
    return field_sized(c, object, key, strlen(key));
}

// Calls tell for each element of an array.
static bool elements(
    struct converter *c, struct slice array, bool (*tell)(struct converter *c, struct slice value, void *user), void *user) {
    struct berth_json r;
    berth_json_init(&r, array.at, array.size, c->name);
    bool ok = berth_json_array(&r) || fail(c, "a list is wanted: %.*s", (int) (array.size < 40 ? array.size : 40), array.at);
    while (ok && berth_json_next(&r)) {
        ok = tell(c, value_here(&r), user);
    }
    berth_json_fini(&r);
    return ok;
}

static bool is_text(struct slice s, const char *text) {
    return s.size == strlen(text) + 2 && s.at[0] == '"' && memcmp(s.at + 1, text, s.size - 2) == 0;
}

// A whole number from 0, or `otherwise` where there is none.
static bool count(struct converter *c, struct slice object, const char *key, int64_t otherwise, int64_t *out) {
    const struct slice s = field(c, object, key);
    struct berth_json r;
    *out = otherwise;
    if (s.at == NULL) {
        return true;
    }
    berth_json_init(&r, s.at, s.size, c->name);
    const bool ok = berth_json_int(&r, 0, 100000, out);
    berth_json_fini(&r);
    return ok || fail(c, "%s is not a whole number from 0 to 100000", key);
}

// ---- writing ----

// A literal that is these bytes.
static void literal(FILE *to, const char *bytes, size_t n) {
    fputc('"', to);
    for (size_t i = 0; i < n; i++) {
        const char *escape = bytes[i] == '"'    ? "\\\""
                             : bytes[i] == '\\' ? "\\\\"
                             : bytes[i] == '\n' ? "\\n"
                             : bytes[i] == '\r' ? "\\r"
                                                : NULL;
        if (escape != NULL) {
            fputs(escape, to);
        } else {
            fputc(bytes[i], to);
        }
    }
    fputc('"', to);
}

// A literal that is this text as JSON writes it.
static bool text_literal(struct converter *c, FILE *to, struct berth_json_text text) {
    struct berth_stream s;
    bool ok = berth_stream_open(&s);
    if (ok) {
        berth_json_write_text(text.text, text.len, s.file);
        ok = berth_stream_close(&s);
    }
    if (ok) {
        literal(to, s.text, s.size);
    }
    berth_stream_fini(&s);
    return ok || fail(c, "out of memory");
}

// A value of enum or const: texts are written anew, all else stands as it does in the file.
static bool value_literal(struct converter *c, FILE *to, struct slice value) {
    struct berth_json_text text;
    struct berth_json r;
    if (first_of(value) != '"') {
        literal(to, value.at, value.size);
        return true;
    }
    berth_json_init(&r, value.at, value.size, c->name);
    const bool ok = berth_json_string(&r, &text) && text_literal(c, to, text);
    berth_json_fini(&r);
    return ok;
}

// ---- schemas ----

static bool schema(struct converter *c, struct slice s, int *rule);

// Writes alternatives.
struct choice {
    FILE *to;
    int n;
};

static bool literal_tell(struct converter *c, struct slice value, void *user) {
    struct choice *choice = user;
    fputs(choice->n++ > 0 ? " | " : "", choice->to);
    return value_literal(c, choice->to, value);
}

static bool schema_tell(struct converter *c, struct slice value, void *user) {
    struct choice *choice = user;
    int rule;
    fputs(choice->n++ > 0 ? " | " : "", choice->to);
    return schema(c, value, &rule) && fprintf(choice->to, "r%d", rule) > 0;
}

static bool string_body(struct converter *c, struct slice s, FILE *to) {
    int64_t least, most;
    if (!count(c, s, "minLength", 0, &least) || !count(c, s, "maxLength", -1, &most)) {
        return false;
    }
    if (most >= 0 && most < least) {
        return fail(c, "minLength is %" PRId64 ", maxLength %" PRId64, least, most);
    }
    fprintf(
        to, most < 0 ? "\"\\\"\" char{%" PRId64 ",} \"\\\"\"" : "\"\\\"\" char{%" PRId64 ",%" PRId64 "} \"\\\"\"", least, most);
    return true;
}

static bool array_body(struct converter *c, struct slice s, FILE *to) {
    const struct slice items = field(c, s, "items");
    int64_t least, most;
    int rule = -1;
    if (!count(c, s, "minItems", 0, &least) || !count(c, s, "maxItems", -1, &most) ||
        (items.at != NULL && !schema(c, items, &rule))) {
        return false;
    }
    if (most >= 0 && most < least) {
        return fail(c, "minItems is %" PRId64 ", maxItems %" PRId64, least, most);
    }
    char item[32];
    snprintf(item, sizeof item, rule >= 0 ? "r%d" : "value", rule);
    fputs("\"[\" ws ", to);
    if (most != 0) {
        fprintf(to, "(%s (\",\" ws %s){%" PRId64 ",", item, item, least > 0 ? least - 1 : 0);
        if (most > 0) {
            fprintf(to, "%" PRId64, most - 1);
        }
        fprintf(to, "} ws)%s ", least > 0 ? "" : "?");
    }
    fputs("\"]\"", to);
    return true;
}

// Properties of an object: rule rN-I-0 is the I-th and those behind it where none came before, rN-I-1 where some did.
struct properties {
    FILE *to; // the rules
    struct slice required;
    int id, n;
};

struct wanted {
    struct berth_json_text name;
    bool is_there;
};

static bool wanted_tell(struct converter *c, struct slice value, void *user) {
    struct wanted *w = user;
    struct berth_json_text text;
    struct berth_json r;
    berth_json_init(&r, value.at, value.size, c->name);
    const bool ok = berth_json_string(&r, &text);
    w->is_there |= ok && text.len == w->name.len && memcmp(text.text, w->name.text, text.len) == 0;
    berth_json_fini(&r);
    return ok || fail(c, "required is a list of names");
}

static bool property_tell(struct converter *c, struct berth_json_text key, struct slice value, void *user) {
    struct properties *p = user;
    struct wanted w      = {.name = key};
    struct berth_stream name;
    int rule;
    if (p->required.at != NULL && !elements(c, p->required, wanted_tell, &w)) {
        return false;
    }
    bool ok = berth_stream_open(&name) && text_literal(c, name.file, key);
    ok      = berth_stream_close(&name) && ok && schema(c, value, &rule);
    for (int some = 0; ok && some < 2; some++) {
        fprintf(p->to, "r%d-%d-%d ::= %s%.*s \":\" ws r%d r%d-%d-1", p->id, p->n, some, some ? "\",\" ws " : "", (int) name.size,
            name.text, rule, p->id, p->n + 1);
        fprintf(p->to, w.is_there ? "\n" : " | r%d-%d-%d\n", p->id, p->n + 1, some);
    }
    berth_stream_fini(&name);
    p->n++;
    return ok || fail(c, "out of memory");
}

// What may come behind the properties that are named.
static bool others(struct converter *c, struct slice s, const struct properties *p) {
    const struct slice more = field(c, s, "additionalProperties");
    const bool is_all       = p->n == 0 && more.at == NULL;
    int rule                = -1;
    if (!is_all && (more.at == NULL || first_of(more) == 'f')) {
        fprintf(p->to, "r%d-%d-0 ::=\nr%d-%d-1 ::=\n", p->id, p->n, p->id, p->n);
        return true;
    }
    if (first_of(more) == '{' && !schema(c, more, &rule)) {
        return false;
    }
    char value[32];
    snprintf(value, sizeof value, rule >= 0 ? "r%d" : "value", rule);
    fprintf(p->to, "r%d-%d-1 ::= (\",\" ws string \":\" ws %s)*\n", p->id, p->n, value);
    fprintf(p->to, "r%d-%d-0 ::= (string \":\" ws %s r%d-%d-1)?\n", p->id, p->n, value, p->id, p->n);
    return true;
}

static bool required_tell(struct converter *c, struct slice value, void *user) {
    const struct slice *all = user;
    struct berth_json_text text;
    struct berth_json r;
    berth_json_init(&r, value.at, value.size, c->name);
    const bool ok = berth_json_string(&r, &text) &&
                    (field_sized(c, *all, text.text, text.len).at != NULL ||
                        fail(c, "'%.*s' is required, but no property", (int) (text.len < 64 ? text.len : 64), text.text));
    berth_json_fini(&r);
    return ok;
}

static bool object_body(struct converter *c, struct slice s, int id, FILE *to) {
    struct slice all    = field(c, s, "properties");
    struct properties p = {.to = c->rules.file, .id = id, .required = field(c, s, "required")};
    if ((p.required.at != NULL && !elements(c, p.required, required_tell, &all)) ||
        (all.at != NULL && !members(c, all, property_tell, &p)) || !others(c, s, &p)) {
        return false;
    }
    fprintf(to, "\"{\" ws r%d-0-0 ws \"}\"", id);
    return true;
}

// Of one type.
static bool type_body(struct converter *c, struct slice s, struct slice type, int id, FILE *to) {
    static const char *const plain[] = {"integer", "number", "boolean", "null"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (is_text(type, plain[i])) {
            return fputs(plain[i], to) >= 0;
        }
    }
    return is_text(type, "string")   ? string_body(c, s, to)
           : is_text(type, "array")  ? array_body(c, s, to)
           : is_text(type, "object") ? object_body(c, s, id, to)
                                     : fail(c, "there is no type %.*s", (int) (type.size < 64 ? type.size : 64), type.at);
}

struct types {
    struct slice s;
    struct choice choice;
    int id;
};

static bool type_tell(struct converter *c, struct slice value, void *user) {
    struct types *t = user;
    fputs(t->choice.n++ > 0 ? " | " : "", t->choice.to);
    return type_body(c, t->s, value, t->id, t->choice.to);
}

// "#/$defs/name": a path from the top of the file.
static bool reference(struct converter *c, struct slice ref, FILE *to) {
    struct slice s = c->all;
    int rule;
    const char *at = ref.at + 1, *end = ref.at + ref.size - 1;
    if (ref.size < 3 || *at++ != '#') {
        return fail(c, "$ref %.*s: only what is in the file itself can be named, as #/...", (int) (ref.size < 64 ? ref.size : 64),
            ref.at);
    }
    while (s.at != NULL && at < end) {
        at++; // '/'
        const char *slash = memchr(at, '/', (size_t) (end - at));
        const size_t n    = (size_t) ((slash != NULL ? slash : end) - at);
        s                 = field_sized(c, s, at, n);
        at += n;
    }
    if (s.at == NULL) {
        return fail(c, "$ref %.*s: there is no such place", (int) (ref.size < 64 ? ref.size : 64), ref.at);
    }
    return schema(c, s, &rule) && fprintf(to, "r%d", rule) > 0;
}

// Keys that change nothing of what is valid are passed over, others must be known here.
static bool key_tell(struct converter *c, struct berth_json_text key, struct slice value, void *user) {
    static const char *const keys[] = {"type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems",
        "minLength", "maxLength", "enum", "const", "anyOf", "oneOf", "$ref", "$defs", "definitions", "title", "description",
        "default", "examples", "$schema", "$id", "$comment", "format", "readOnly", "writeOnly", "deprecated"};
    (void) value;
    (void) user;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (berth_json_is(key, keys[i])) {
            return true;
        }
    }
    return fail(c, "'%.*s' cannot be told by a grammar", (int) (key.len < 64 ? key.len : 64), key.text);
}

static bool body(struct converter *c, struct slice s, int id, FILE *to) {
    struct choice choice   = {.to = to};
    struct types types     = {.s = s, .choice = {.to = to}, .id = id};
    const struct slice ref = field(c, s, "$ref"), one = field(c, s, "const"), some = field(c, s, "enum"),
                       type = field(c, s, "type");
    struct slice any        = field(c, s, "anyOf");
    any                     = any.at != NULL ? any : field(c, s, "oneOf");
    if (first_of(s) != '{') {
        return first_of(s) == 't' ? fputs("value", to) >= 0 : fail(c, "a schema is an object or true");
    }
    if (!members(c, s, key_tell, NULL)) {
        return false;
    }
    return ref.at != NULL                         ? reference(c, ref, to)
           : one.at != NULL                       ? value_literal(c, to, one)
           : some.at != NULL                      ? elements(c, some, literal_tell, &choice)
           : any.at != NULL                       ? elements(c, any, schema_tell, &choice)
           : first_of(type) == '['                ? elements(c, type, type_tell, &types)
           : type.at != NULL                      ? type_body(c, s, type, id, to)
           : field(c, s, "properties").at != NULL ? object_body(c, s, id, to)
           : field(c, s, "items").at != NULL      ? array_body(c, s, to)
                                                  : fputs("value", to) >= 0;
}

static bool schema(struct converter *c, struct slice s, int *rule) {
    for (size_t i = 0; i < c->n_known; i++) {
        if (c->known[i].at == s.at) {
            *rule = c->known[i].rule;
            return true;
        }
    }
    if (c->n_known == c->room) {
        struct known *more = realloc(c->known, (2 * c->room + 16) * sizeof *more);
        if (more == NULL) {
            return fail(c, "out of memory");
        }
        c->known = more;
        c->room  = 2 * c->room + 16;
    }
    *rule                  = c->n_rules++;
    c->known[c->n_known++] = (struct known){s.at, *rule};
    struct berth_stream text;
    bool ok = berth_stream_open(&text);
    ok      = ok && body(c, s, *rule, text.file);
    ok      = berth_stream_close(&text) && ok;
    if (ok) {
        fprintf(c->rules.file, "r%d ::= %.*s\n", *rule, (int) text.size, text.text);
    }
    berth_stream_fini(&text);
    return ok || fail(c, "out of memory");
}

char *cli_schema_grammar(const char *text, size_t size, const char *name) {
    struct converter c = {.name = name};
    struct berth_json r;
    berth_json_init(&r, text, size, name);
    c.all   = value_here(&r);
    bool ok = c.all.at != NULL && berth_json_done(&r);
    if (!ok) {
        cli_fail(CLI_FAILURE, "%s", r.status != GGML_STATUS_SUCCESS ? berth_last_error() : "the schema is empty");
    }
    berth_json_fini(&r);
    int rule = 0;
    if (ok) {
        ok = berth_stream_open(&c.rules) && schema(&c, c.all, &rule) &&
             fprintf(c.rules.file, "root ::= r%d\n%s", rule, common) > 0;
        ok = berth_stream_close(&c.rules) && ok;
        if (!ok) {
            cli_fail(CLI_FAILURE, "%s: %s", name, c.why[0] != '\0' ? c.why : "out of memory");
        }
    }
    char *copy = ok ? malloc(c.rules.size + 1) : NULL;
    if (copy != NULL) {
        memcpy(copy, c.rules.text, c.rules.size);
        copy[c.rules.size] = '\0';
    }
    berth_stream_fini(&c.rules);
    free(c.known);
    return copy;
}
