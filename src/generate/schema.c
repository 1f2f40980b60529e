// SPDX-License-Identifier: MIT
// schema.c: converts a JSON schema to a grammar (generate.h). Each schema in the file becomes one rule, so a schema may refer to
// itself. Properties keep the order of the file. A key that a grammar cannot express is an error, because ignoring the key would
// allow invalid texts.

#include "base/json.h"
#include "base/min.h"
#include "base/siphash.h"
#include "generate/generate.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

struct slice {
    const char *at;
    size_t size;
};

// A value in the file.
struct node {
    struct slice text;                // as in the file, without surrounding blanks
    size_t key, key_size;             // of a member of an object: offset and size of its key in converter.keys
    struct node *parent;              // object or array that contains this value
    struct node *first, *last, *next; // first and last child; next child of `parent`
    int rule;                         // number of the rule of this schema; -1: none yet
    bool is_required;                 // as a property: listed in "required"
    bool has_properties;              // the rules of its properties have been written
};

struct converter {
    const struct guide_source *source;
    struct model_error *error;
    struct berth_json json;
    struct node **nodes; // [n_nodes] in file order
    size_t n_nodes, nodes_room;
    struct berth_stream keys; // keys of all members, without escapes
    size_t keys_size;
    struct node **slots; // [n_slots] hash table of members by object and key; of several members with the same key, the last one
    size_t n_slots;
    struct berth_siphash_key hash_key;
    struct node **waiting; // [n_rules] schemas by number of their rule; the first n_written rules are written
    size_t n_rules, n_written, waiting_room;
    struct berth_stream rules;
};

static const char common_rules[] = "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n"
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

// Stores the first error. Always returns false.
static bool schema_fail(struct converter *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool schema_fail(struct converter *c, const char *fmt, ...) {
    char why[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    return model_fail(c->error, "%s: %s", c->source->name, why);
}

// Returns true and sets the error if the caller requests a stop.
static bool is_stopped(struct converter *c) {
    return c->source->stop != NULL && c->source->stop(c->source->stop_data) &&
           !schema_fail(c, "interrupted while the schema was read");
}

// ---- tree of the file ----

static char first_char(const struct node *node) {
    return node->text.at[0];
}

static struct node *node_new(struct converter *c, struct node *parent) {
    if (is_stopped(c)) {
        return NULL;
    }
    struct node *node = berth_calloc(1, sizeof *node);
    if (node == NULL || !berth_grow((void **) &c->nodes, &c->nodes_room, c->n_nodes + 1, sizeof(struct node *))) {
        berth_free(node);
        schema_fail(c, "out of memory");
        return NULL;
    }
    c->nodes[c->n_nodes++] = node;
    node->rule = -1;
    node->parent = parent;
    if (parent != NULL && parent->last != NULL) {
        parent->last->next = node;
    } else if (parent != NULL) {
        parent->first = node;
    }
    if (parent != NULL) {
        parent->last = node;
    }
    return node;
}

// Reads a value and the values in it. BERTH_JSON_DEPTH_MAX limits the recursion. False: the JSON reader or schema_fail has set an
// error.
static bool value_read(struct converter *c, struct node *node) {
    struct berth_json *r = &c->json;
    const char kind = berth_json_peek(r);
    struct berth_json_text key;
    node->text.at = r->p;
    bool ok = true;
    if (kind == '{') {
        ok = berth_json_object(r);
        while (ok && berth_json_key(r, &key)) {
            struct node *value = node_new(c, node);
            ok = value != NULL && fwrite(key.text, 1, key.len, c->keys.file) == key.len;
            if (ok) {
                value->key = c->keys_size;
                value->key_size = key.len;
                c->keys_size += key.len;
                ok = value_read(c, value);
            }
        }
    } else if (kind == '[') {
        ok = berth_json_array(r);
        while (ok && berth_json_next(r)) {
            struct node *value = node_new(c, node);
            ok = value != NULL && value_read(c, value);
        }
    } else {
        ok = berth_json_skip(r);
    }
    node->text.size = (size_t) (r->p - node->text.at);
    return ok && r->status == GGML_STATUS_SUCCESS;
}

static size_t slot_of(const struct converter *c, const struct node *object, const char *key, size_t size) {
    struct berth_siphash hash = berth_siphash_begin(&c->hash_key);
    berth_siphash_add(&hash, &object, sizeof object);
    berth_siphash_add(&hash, key, size);
    size_t i = (size_t) berth_siphash_end(&hash) & (c->n_slots - 1);
    for (; c->slots[i] != NULL; i = (i + 1) & (c->n_slots - 1)) {
        const struct node *node = c->slots[i];
        if (node->parent == object && node->key_size == size && memcmp(c->keys.text + node->key, key, size) == 0) {
            break;
        }
    }
    return i;
}

static bool slots_fill(struct converter *c) {
    c->n_slots = 64;
    while (c->n_slots < 2 * c->n_nodes) {
        c->n_slots *= 2;
    }
    c->hash_key = berth_siphash_key_new(c);
    c->slots = berth_calloc(c->n_slots, sizeof *c->slots);
    if (c->slots == NULL) {
        return schema_fail(c, "out of memory");
    }
    for (size_t i = 0; i < c->n_nodes; i++) {
        struct node *node = c->nodes[i];
        if (is_stopped(c)) {
            return false;
        }
        if (node->parent != NULL && first_char(node->parent) == '{') {
            c->slots[slot_of(c, node->parent, c->keys.text + node->key, node->key_size)] = node;
        }
    }
    return true;
}

static bool values_read(struct converter *c) {
    struct node *all = berth_stream_open(&c->keys) ? node_new(c, NULL) : NULL;
    if (all == NULL) {
        return schema_fail(c, "out of memory");
    }
    if (berth_json_peek(&c->json) == '\0' && c->json.status == GGML_STATUS_SUCCESS) {
        return schema_fail(c, "the schema is empty");
    }
    return value_read(c, all) && berth_json_done(&c->json);
}

static bool tree_read(struct converter *c) {
    berth_json_init(&c->json, c->source->text, c->source->size, c->source->name);
    const bool is_read = values_read(c), is_closed = berth_stream_close(&c->keys);
    if (c->json.status != GGML_STATUS_SUCCESS) {
        return model_fail(c->error, "%s", berth_last_error()); // contains the file name and the line
    }
    return is_read && is_closed ? slots_fill(c) : schema_fail(c, "out of memory");
}

// ---- access to the tree ----

// Returns the value of a key in an object; NULL: the object has no such key, or the node is not an object.
static struct node *field_sized(struct converter *c, const struct node *object, const char *key, size_t size) {
    return first_char(object) == '{' ? c->slots[slot_of(c, object, key, size)] : NULL;
}

static struct node *field_get(struct converter *c, const struct node *object, const char *key) {
    return field_sized(c, object, key, strlen(key));
}

static struct berth_json_text node_key(const struct converter *c, const struct node *node) {
    return (struct berth_json_text){c->keys.text + node->key, node->key_size};
}

static int text_width(struct slice s) {
    return (int) min_size(s.size, 64);
}

static bool has_kind(struct converter *c, const struct node *node, char kind) {
    return first_char(node) == kind || schema_fail(c, "expected %s, found: %.*s", kind == '{' ? "an object" : "a list",
                                           text_width(node->text), node->text.at);
}

// Calls `use` with the unescaped string.
static bool string_use(struct converter *c, const struct node *node,
    bool (*use)(struct converter *c, struct berth_json_text text, void *user), void *user) {
    struct berth_json_text text;
    struct berth_json r;
    berth_json_init(&r, node->text.at, node->text.size, c->source->name);
    const bool ok = (berth_json_string(&r, &text) ||
                        schema_fail(c, "expected a string, found: %.*s", text_width(node->text), node->text.at)) &&
                    use(c, text, user);
    berth_json_fini(&r);
    return ok;
}

static bool is_text(const struct node *node, const char *text) {
    const struct slice s = node->text;
    return s.size == strlen(text) + 2 && s.at[0] == '"' && memcmp(s.at + 1, text, s.size - 2) == 0;
}

// Reads the non-negative integer of a key. If the key is absent, *out is `otherwise`.
static bool count_read(struct converter *c, const struct node *object, const char *key, int64_t otherwise, int64_t *out) {
    const struct node *node = field_get(c, object, key);
    struct berth_json r;
    *out = otherwise;
    if (node == NULL) {
        return true;
    }
    berth_json_init(&r, node->text.at, node->text.size, c->source->name);
    const bool ok = berth_json_int(&r, 0, 100000, out);
    berth_json_fini(&r);
    return ok || schema_fail(c, "%s is not an integer from 0 to 100000", key);
}

// ---- literals ----

static void literal_write(FILE *to, const char *bytes, size_t n) {
    fputc('"', to);
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n' || bytes[i] == '\r') {
            fputs(bytes[i] == '\n' ? "\\n" : "\\r", to);
            continue;
        }
        if (bytes[i] == '"' || bytes[i] == '\\') {
            fputc('\\', to);
        }
        fputc(bytes[i], to);
    }
    fputc('"', to);
}

// Writes a GBNF literal that matches this text as a JSON string.
static bool text_literal(struct converter *c, struct berth_json_text text, void *user) {
    FILE *to = user;
    struct berth_stream s;
    bool ok = berth_stream_open(&s);
    if (ok) {
        berth_json_write_text(text.text, text.len, s.file);
        ok = berth_stream_close(&s);
    }
    if (ok) {
        literal_write(to, s.text, s.size);
    }
    berth_stream_fini(&s);
    return ok || schema_fail(c, "out of memory");
}

// Writes a GBNF literal that matches the value. Strings are unescaped and escaped again. Other values are copied from the file.
static bool value_literal(struct converter *c, FILE *to, const struct node *value) {
    if (first_char(value) == '"') {
        return string_use(c, value, text_literal, to);
    }
    literal_write(to, value->text.at, value->text.size);
    return true;
}

// ---- schemas ----

// Returns the number of a schema's rule. The rule is written later, so that a chain of references causes no deep recursion.
static bool rule_get(struct converter *c, struct node *node, int *rule) {
    if (is_stopped(c)) {
        return false;
    }
    if (node->rule < 0) {
        if (c->n_rules >= INT_MAX ||
            !berth_grow((void **) &c->waiting, &c->waiting_room, c->n_rules + 1, sizeof(struct node *))) {
            return schema_fail(c, "out of memory");
        }
        c->waiting[c->n_rules] = node;
        node->rule = (int) c->n_rules++;
    }
    *rule = node->rule;
    return true;
}

static bool string_body(struct converter *c, const struct node *s, FILE *to) {
    int64_t least, most;
    if (!count_read(c, s, "minLength", 0, &least) || !count_read(c, s, "maxLength", -1, &most)) {
        return false;
    }
    if (most >= 0 && most < least) {
        return schema_fail(c, "minLength %" PRId64 " is greater than maxLength %" PRId64, least, most);
    }
    fprintf(
        to, most < 0 ? "\"\\\"\" char{%" PRId64 ",} \"\\\"\"" : "\"\\\"\" char{%" PRId64 ",%" PRId64 "} \"\\\"\"", least, most);
    return true;
}

static bool array_body(struct converter *c, const struct node *s, FILE *to) {
    struct node *items = field_get(c, s, "items");
    int64_t least, most;
    int rule = -1;
    if (!count_read(c, s, "minItems", 0, &least) || !count_read(c, s, "maxItems", -1, &most) ||
        (items != NULL && !rule_get(c, items, &rule))) {
        return false;
    }
    if (most >= 0 && most < least) {
        return schema_fail(c, "minItems %" PRId64 " is greater than maxItems %" PRId64, least, most);
    }
    char item[32];
    snprintf(item, sizeof item, rule >= 0 ? "r%d" : "value", rule);
    fputs("\"[\" ws ", to);
    if (most != 0) {
        fprintf(to, "(%s (\",\" ws %s){%" PRId64 ",", item, item, max_i64(least - 1, 0));
        if (most > 0) {
            fprintf(to, "%" PRId64, most - 1);
        }
        fprintf(to, "} ws)%s ", least > 0 ? "" : "?");
    }
    fputs("\"]\"", to);
    return true;
}

// ---- objects. Rule rN-I-0 matches property I of schema N and all later properties, if no earlier property is present. If an
// earlier property is present, rule rN-I-1 matches the same properties with a comma before each ----

static bool property_write(struct converter *c, struct node *property, int id, int i) {
    FILE *to = c->rules.file;
    int rule;
    if (!rule_get(c, property, &rule)) {
        return false;
    }
    for (int has_previous = 0; has_previous < 2; has_previous++) {
        fprintf(to, "r%d-%d-%d ::= %s", id, i, has_previous, has_previous ? "\",\" ws " : "");
        if (!text_literal(c, node_key(c, property), to)) {
            return false;
        }
        fprintf(to, " \":\" ws r%d r%d-%d-1", rule, id, i + 1);
        fprintf(to, property->is_required ? "\n" : " | r%d-%d-%d\n", id, i + 1, has_previous);
    }
    return true;
}

// Writes the rules after the last of n named properties: additional properties, or nothing.
static bool others_write(struct converter *c, const struct node *s, int id, int n) {
    struct node *additional = field_get(c, s, "additionalProperties");
    const bool allows_any = n == 0 && additional == NULL;
    int rule = -1;
    FILE *to = c->rules.file;
    if (!allows_any && (additional == NULL || first_char(additional) == 'f')) {
        fprintf(to, "r%d-%d-0 ::=\nr%d-%d-1 ::=\n", id, n, id, n);
        return true;
    }
    if (additional != NULL && first_char(additional) == '{' && !rule_get(c, additional, &rule)) {
        return false;
    }
    char value[32];
    snprintf(value, sizeof value, rule >= 0 ? "r%d" : "value", rule);
    fprintf(to, "r%d-%d-1 ::= (\",\" ws string \":\" ws %s)*\n", id, n, value);
    fprintf(to, "r%d-%d-0 ::= (string \":\" ws %s r%d-%d-1)?\n", id, n, value, id, n);
    return true;
}

static bool required_mark(struct converter *c, struct berth_json_text name, void *user) {
    const struct node *all = user;
    struct node *property = all != NULL ? field_sized(c, all, name.text, name.len) : NULL;
    if (property == NULL) {
        return schema_fail(c, "'%.*s' is listed in 'required', but not in 'properties'", (int) min_size(name.len, 64), name.text);
    }
    property->is_required = true;
    return true;
}

static bool object_body(struct converter *c, struct node *s, int id, FILE *to) {
    struct node *all = field_get(c, s, "properties");
    const struct node *required = field_get(c, s, "required");
    int n = 0;
    fprintf(to, "\"{\" ws r%d-0-0 ws \"}\"", id);
    if (s->has_properties) { // "object" occurs twice in a list of types
        return true;
    }
    s->has_properties = true;
    if ((required != NULL && !has_kind(c, required, '[')) || (all != NULL && !has_kind(c, all, '{'))) {
        return false;
    }
    for (const struct node *name = required != NULL ? required->first : NULL; name != NULL; name = name->next) {
        if (!string_use(c, name, required_mark, all)) {
            return false;
        }
    }
    for (struct node *property = all != NULL ? all->first : NULL; property != NULL; property = property->next) {
        const struct berth_json_text key = node_key(c, property);
        property->is_required =
            field_sized(c, all, key.text, key.len)->is_required; // of equal keys, required_mark marks the last
        if (!property_write(c, property, id, n++)) {
            return false;
        }
    }
    return others_write(c, s, id, n);
}

static bool type_body(struct converter *c, struct node *s, const struct node *type, int id, FILE *to) {
    static const char *const plain[] = {"integer", "number", "boolean", "null"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (is_text(type, plain[i])) {
            return fputs(plain[i], to) >= 0;
        }
    }
    if (is_text(type, "string")) {
        return string_body(c, s, to);
    }
    if (is_text(type, "array")) {
        return array_body(c, s, to);
    }
    return is_text(type, "object") ? object_body(c, s, id, to)
                                   : schema_fail(c, "unknown type %.*s", text_width(type->text), type->text.at);
}

// Writes the rule to which a reference leads. path: the path from the top of the file, such as "#/$defs/name".
static bool reference_write(struct converter *c, struct berth_json_text path, void *user) {
    struct node *s = c->nodes[0];
    const struct slice ref = {path.text, path.len};
    int rule;
    if (path.len < 1 || path.text[0] != '#') {
        return schema_fail(c, "$ref \"%.*s\": only references within the file (#/...) are supported", text_width(ref), ref.at);
    }
    const char *at = path.text + 1, *end = path.text + path.len;
    while (s != NULL && at < end) {
        at++; // '/'
        const char *slash = memchr(at, '/', (size_t) (end - at));
        const size_t n = (size_t) ((slash != NULL ? slash : end) - at);
        s = field_sized(c, s, at, n);
        at += n;
    }
    if (s == NULL) {
        return schema_fail(c, "$ref \"%.*s\": the path does not exist in the file", text_width(ref), ref.at);
    }
    return rule_get(c, s, &rule) && fprintf(user, "r%d", rule) > 0;
}

// Fails at an unsupported key. The list includes keys that do not change which values are valid.
static bool keys_check(struct converter *c, const struct node *s) {
    static const char *const keys[] = {"type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems",
        "minLength", "maxLength", "enum", "const", "anyOf", "oneOf", "$ref", "$defs", "definitions", "title", "description",
        "default", "examples", "$schema", "$id", "$comment", "format", "readOnly", "writeOnly", "deprecated"};
    for (const struct node *member = s->first; member != NULL; member = member->next) {
        const struct berth_json_text key = node_key(c, member);
        size_t i = 0;
        while (i < sizeof keys / sizeof *keys && !berth_json_is(key, keys[i])) {
            i++;
        }
        if (i == sizeof keys / sizeof *keys) {
            return schema_fail(
                c, "key '%.*s' is not supported: a grammar cannot express it", (int) min_size(key.len, 64), key.text);
        }
    }
    return true;
}

enum choice { CHOICE_LITERAL, CHOICE_SCHEMA, CHOICE_TYPE };

static bool choice_write(struct converter *c, struct node *s, struct node *value, enum choice kind, int id, FILE *to) {
    int rule = -1;
    if (kind == CHOICE_LITERAL) {
        return value_literal(c, to, value);
    }
    if (kind == CHOICE_TYPE) {
        return type_body(c, s, value, id, to);
    }
    return rule_get(c, value, &rule) && fprintf(to, "r%d", rule) > 0;
}

static bool choices_write(struct converter *c, struct node *s, const struct node *list, enum choice kind, int id, FILE *to) {
    if (!has_kind(c, list, '[')) {
        return false;
    }
    if (list->first == NULL) { // no value would be valid; a rule without alternatives would match the empty text
        return schema_fail(c, "the list of alternatives is empty, so no value is valid: %.*s", text_width(s->text), s->text.at);
    }
    for (struct node *value = list->first; value != NULL; value = value->next) {
        fputs(value != list->first ? " | " : "", to);
        if (!choice_write(c, s, value, kind, id, to)) {
            return false;
        }
    }
    return true;
}

static bool rule_body(struct converter *c, struct node *s, int id, FILE *to) {
    if (first_char(s) != '{') {
        return first_char(s) == 't' ? fputs("value", to) >= 0 : schema_fail(c, "a schema must be an object or true");
    }
    const struct node *ref = field_get(c, s, "$ref"), *constant = field_get(c, s, "const"), *values = field_get(c, s, "enum"),
                      *type = field_get(c, s, "type"), *alternatives = field_get(c, s, "anyOf");
    if (alternatives == NULL) {
        alternatives = field_get(c, s, "oneOf");
    }
    if (!keys_check(c, s)) {
        return false;
    }
    if (ref != NULL) {
        return string_use(c, ref, reference_write, to);
    }
    if (constant != NULL) {
        return value_literal(c, to, constant);
    }
    if (values != NULL) {
        return choices_write(c, s, values, CHOICE_LITERAL, id, to);
    }
    if (alternatives != NULL) {
        return choices_write(c, s, alternatives, CHOICE_SCHEMA, id, to);
    }
    if (type != NULL) {
        return first_char(type) == '[' ? choices_write(c, s, type, CHOICE_TYPE, id, to) : type_body(c, s, type, id, to);
    }
    if (field_get(c, s, "properties") != NULL) {
        return object_body(c, s, id, to);
    }
    return field_get(c, s, "items") != NULL ? array_body(c, s, to) : fputs("value", to) >= 0;
}

static bool rule_write(struct converter *c, struct node *s, int rule) {
    struct berth_stream text;
    const bool is_written = berth_stream_open(&text) && rule_body(c, s, rule, text.file);
    const bool ok = berth_stream_close(&text) && is_written;
    if (ok) {
        fprintf(c->rules.file, "r%d ::= ", rule);
        fwrite(text.text, 1, text.size, c->rules.file);
        fputc('\n', c->rules.file);
    }
    berth_stream_fini(&text);
    return ok || schema_fail(c, "out of memory");
}

static bool rules_write(struct converter *c) {
    int rule;
    if (!rule_get(c, c->nodes[0], &rule)) {
        return false;
    }
    for (; c->n_written < c->n_rules; c->n_written++) {
        if (is_stopped(c)) {
            return false;
        }
        if (!rule_write(c, c->waiting[c->n_written], (int) c->n_written)) {
            return false;
        }
    }
    return fprintf(c->rules.file, "root ::= r0\n%s", common_rules) > 0;
}

char *schema_to_grammar(const struct guide_source *source, struct model_error *error) {
    struct converter c = {.source = source, .error = error};
    char *copy = NULL;
    if (tree_read(&c)) {
        const bool is_written = berth_stream_open(&c.rules) && rules_write(&c);
        if (berth_stream_close(&c.rules) && is_written) {
            copy = berth_malloc(c.rules.size + 1);
        }
    }
    if (copy != NULL) {
        memcpy(copy, c.rules.text, c.rules.size);
        copy[c.rules.size] = '\0';
    } else {
        schema_fail(&c, "out of memory");
    }
    for (size_t i = 0; i < c.n_nodes; i++) {
        berth_free(c.nodes[i]);
    }
    berth_json_fini(&c.json);
    berth_stream_fini(&c.keys);
    berth_stream_fini(&c.rules);
    berth_free(c.nodes);
    berth_free(c.slots);
    berth_free(c.waiting);
    return copy;
}
