// SPDX-License-Identifier: MIT
// api_messages.c: reads the parameters with nested values: messages, prompts and texts to embed, response_format.

#include "base/min.h"
#include "serve/api.h"

#include <inttypes.h>
#include <string.h>

// ---- messages ----

static bool role_find(struct berth_json_text name, enum chat_role *role) {
    static const struct {
        const char *name;
        enum chat_role role;
    } roles[] = {{"system", CHAT_SYSTEM}, {"developer", CHAT_SYSTEM}, {"user", CHAT_USER}, {"assistant", CHAT_ASSISTANT},
        {"tool", CHAT_USER}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (berth_json_is(name, roles[i].name)) {
            *role = roles[i].role;
            return true;
        }
    }
    return false;
}

// Appends to the temporary text. *n: bytes of it in use.
static bool text_append(struct api_parser *p, size_t *n, struct berth_json_text text) {
    if (!BERTH_GROW(&p->text, &p->text_room, *n + text.len + 1)) {
        return api_out_of_memory(p->error);
    }
    memcpy(p->text + *n, text.text, text.len);
    *n += text.len;
    return true;
}

// One part of a content, such as {"type": "text", "text": "..."}.
struct part {
    size_t *n; // bytes of the temporary text in use
    bool is_text, has_text;
};

static bool part_member_read(struct api_parser *p, struct berth_json_text key, void *user) {
    struct part *part = user;
    struct berth_json_text text;
    if (berth_json_is(key, "type")) {
        return api_parse_is(p, "text", &part->is_text);
    }
    if (berth_json_is(key, "text")) {
        part->has_text = true;
        return api_parse_string(p, &text) && text_append(p, part->n, text);
    }
    return api_parse_skip(p);
}

// Appends the text of a part to the temporary text.
static bool part_read(struct api_parser *p, void *user) {
    struct part part = {.n = user};
    if (!api_parse_object(p, part_member_read, &part)) {
        return false;
    }
    return (part.is_text && part.has_text) || api_fail(p->error, 400, "unsupported_content", "messages",
                                                  "messages: a part of a content is not of type text; only text is supported");
}

// A text, or an array of parts. Copies the text to *out.
static bool content_read(struct api_parser *p, const char **out) {
    size_t n = 0;
    if (berth_json_peek(p->json) == '"') {
        return api_parse_copy(p, out);
    }
    if (!api_parse_array(p, part_read, &n)) {
        return false;
    }
    *out = api_text_copy(p, n > 0 ? p->text : "", n);
    return *out != NULL;
}

struct message {
    struct chat_turn turn;
    bool has_role;
};

// The members of a message other than role, content and calls are ignored. The results of tools are in the order of the calls.
static bool message_member_read(struct api_parser *p, struct berth_json_text key, void *user) {
    struct message *m = user;
    struct berth_json_text text;
    if (berth_json_is(key, "role")) {
        if (!api_parse_string(p, &text)) {
            return false;
        }
        m->turn.is_result = berth_json_is(text, "tool");
        m->has_role = role_find(text, &m->turn.role);
        return m->has_role || api_refuse(p, "messages: the role of message %zu is not system, developer, user, assistant or tool",
                                  p->r->n_messages);
    }
    if (berth_json_is(key, "content")) {
        return berth_json_null(p->json) || content_read(p, &m->turn.text);
    }
    if (berth_json_is(key, "tool_calls")) {
        return berth_json_null(p->json) || api_read_calls(p, &m->turn);
    }
    if (berth_json_is(key, "function_call") && !berth_json_null(p->json)) {
        return api_fail(p->error, 400, "unsupported_parameter", "messages",
            "messages: message %zu has a function_call, which is not supported; tool_calls are", p->r->n_messages);
    }
    return api_parse_skip(p);
}

static bool message_read(struct api_parser *p, void *unused) {
    (void) unused;
    struct api_request *r = p->r;
    struct message m = {.turn = {.role = CHAT_USER}};
    struct chat_turn *turn = &m.turn;
    if (r->n_messages == API_MAX_MESSAGES) {
        return api_refuse(p, "messages: at most %d messages are allowed", API_MAX_MESSAGES);
    }
    if (!api_parse_object(p, message_member_read, &m)) {
        return false;
    }
    if (turn->n_calls > 0 && turn->role != CHAT_ASSISTANT) {
        return api_refuse(p, "messages: message %zu has calls, but its role is not assistant", r->n_messages);
    }
    if (turn->n_calls > 0 && turn->text == NULL) {
        turn->text = "";
    }
    if (!m.has_role || turn->text == NULL) {
        return api_fail(p->error, 400, "missing_required_parameter", "messages", "messages: message %zu has no %s", r->n_messages,
            m.has_role ? "content" : "role");
    }
    if (!BERTH_GROW(&r->messages, &r->messages_room, r->n_messages + 1)) {
        return api_out_of_memory(p->error);
    }
    r->messages[r->n_messages++] = *turn;
    return true;
}

bool api_read_messages(struct api_parser *p) {
    p->r->n_messages = 0;
    return api_parse_array(p, message_read, NULL);
}

// ---- prompts and texts to embed: a text, an array of texts, an array of tokens, or an array of arrays of tokens ----

static bool input_add(struct api_parser *p, struct api_input input) {
    struct api_request *r = p->r;
    if (r->n_inputs == API_MAX_INPUTS) {
        return api_refuse(p, "%s: at most %d texts are allowed", p->name, API_MAX_INPUTS);
    }
    if (!BERTH_GROW(&r->inputs, &r->inputs_room, r->n_inputs + 1)) {
        return api_out_of_memory(p->error);
    }
    r->inputs[r->n_inputs++] = input;
    return true;
}

static bool input_text_read(struct api_parser *p) {
    struct berth_json_text text;
    if (!api_parse_string(p, &text)) {
        return false;
    }
    char *copy = api_text_copy(p, text.text, text.len);
    return copy != NULL && input_add(p, (struct api_input){.text = copy, .size = text.len});
}

static bool token_read(struct api_parser *p, void *unused) {
    (void) unused;
    struct api_request *r = p->r;
    int64_t token = 0;
    if (!api_parse_int(p, 0, INT32_MAX, &token)) {
        return false;
    }
    if (!BERTH_GROW(&r->tokens, &r->tokens_room, r->n_tokens + 1)) {
        return api_out_of_memory(p->error);
    }
    r->tokens[r->n_tokens++] = (int32_t) token;
    r->inputs[r->n_inputs - 1].n_tokens++;
    return true;
}

// An element of an array. If the first one is a token, the array holds the tokens of one input.
static bool input_read(struct api_parser *p, void *user) {
    bool *is_plain = user;
    const char c = berth_json_peek(p->json);
    if (p->r->n_inputs == 0 && c != '"' && c != '[') {
        *is_plain = true;
        if (!input_add(p, (struct api_input){0})) {
            return false;
        }
    }
    if (*is_plain) {
        return token_read(p, NULL);
    }
    if (c == '[') {
        return input_add(p, (struct api_input){0}) && api_parse_array(p, token_read, NULL);
    }
    return input_text_read(p);
}

bool api_read_inputs(struct api_parser *p) {
    bool is_plain = false;
    p->r->n_inputs = 0;
    p->r->n_tokens = 0;
    return berth_json_peek(p->json) == '"' ? input_text_read(p) : api_parse_array(p, input_read, &is_plain);
}

// ---- response_format ----

static const char any_object[] = "{\"type\": \"object\"}";

// The value of json_schema: {"name": ..., "strict": ..., "schema": {...}}. The answer always matches the schema, as with strict.
static bool schema_member_read(struct api_parser *p, struct berth_json_text key, void *user) {
    bool *has_schema = user;
    struct api_request *r = p->r;
    const bool is_schema = berth_json_is(key, "schema");
    berth_json_peek(p->json);
    const char *start = p->json->p;
    if (!api_parse_skip(p)) {
        return false;
    }
    if (!is_schema) {
        return true;
    }
    const size_t size = (size_t) (p->json->p - start);
    if (size > API_MAX_SCHEMA_SIZE) {
        return api_refuse(p, "response_format: the schema has %zu bytes, at most %d are allowed", size, API_MAX_SCHEMA_SIZE);
    }
    r->schema = api_text_copy(p, start, size);
    r->schema_size = size;
    *has_schema = r->schema != NULL;
    return *has_schema;
}

struct response_format {
    char kind[16];
    bool has_schema;
};

static bool format_member_read(struct api_parser *p, struct berth_json_text key, void *user) {
    struct response_format *f = user;
    struct berth_json_text text;
    if (berth_json_is(key, "type")) {
        if (!api_parse_string(p, &text)) {
            return false;
        }
        snprintf(f->kind, sizeof f->kind, "%.*s", (int) min_size(text.len, sizeof f->kind - 1), text.text);
        return true;
    }
    return berth_json_is(key, "json_schema") ? api_parse_object(p, schema_member_read, &f->has_schema) : api_parse_skip(p);
}

bool api_read_response_format(struct api_parser *p) {
    struct api_request *r = p->r;
    struct response_format f = {.kind = ""};
    r->schema = NULL;
    if (!api_parse_object(p, format_member_read, &f)) {
        return false;
    }
    if (strcmp(f.kind, "json_schema") == 0) {
        return f.has_schema || api_refuse(p, "response_format: json_schema has no schema");
    }
    r->schema = NULL;
    if (strcmp(f.kind, "json_object") == 0) {
        r->schema = any_object;
        r->schema_size = sizeof any_object - 1;
    }
    return r->schema != NULL || strcmp(f.kind, "text") == 0 ||
           api_refuse(p, "response_format: the type is not text, json_object or json_schema");
}
