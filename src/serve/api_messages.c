// SPDX-License-Identifier: MIT
// api_messages.c: reads the parameters with nested values: messages, prompts and texts to embed, response_format.

#include "base/json.h"
#include "serve/api.h"

#include <inttypes.h>
#include <string.h>

static bool list_end(struct api_parser *p) {
    return p->json->status == GGML_STATUS_SUCCESS || api_refuse_json(p);
}

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

// One part of a content, such as {"type": "text", "text": "..."}. Its text is appended to the temporary text.
static bool part_read(struct api_parser *p, size_t *n) {
    struct berth_json_text key, text;
    bool is_text = false, has_text = false;
    if (!berth_json_object(p->json)) {
        return api_refuse_json(p);
    }
    while (berth_json_key(p->json, &key)) {
        const bool is_kind = berth_json_is(key, "type"), is_value = berth_json_is(key, "text");
        if (!(is_kind || is_value ? berth_json_string(p->json, &text) : berth_json_skip(p->json))) {
            return api_refuse_json(p);
        }
        if (is_kind) {
            is_text = berth_json_is(text, "text");
        }
        if (is_value) {
            has_text = true;
            if (!text_append(p, n, text)) {
                return false;
            }
        }
    }
    if (!list_end(p)) {
        return false;
    }
    return (is_text && has_text) || api_fail(p->error, 400, "unsupported_content", "messages",
                                        "messages: a part of a content is not of type text; only text is supported");
}

// A text, or an array of parts. Copies the text to *out.
static bool content_read(struct api_parser *p, const char **out) {
    struct berth_json_text text;
    size_t n = 0;
    if (berth_json_peek(p->json) == '"') {
        if (!berth_json_string(p->json, &text)) {
            return api_refuse_json(p);
        }
        *out = api_text_copy(p, text.text, text.len);
        return *out != NULL;
    }
    if (!berth_json_array(p->json)) {
        return api_refuse_json(p);
    }
    while (berth_json_next(p->json)) {
        if (!part_read(p, &n)) {
            return false;
        }
    }
    if (!list_end(p)) {
        return false;
    }
    *out = api_text_copy(p, n > 0 ? p->text : "", n);
    return *out != NULL;
}

// The members of a message other than role, content and calls are ignored. The results of tools are in the order of the calls.
static bool message_member_read(struct api_parser *p, struct berth_json_text key, struct chat_turn *m, bool *has_role) {
    struct berth_json_text text;
    if (berth_json_is(key, "role")) {
        if (!berth_json_string(p->json, &text)) {
            return api_refuse_json(p);
        }
        m->is_result = berth_json_is(text, "tool");
        *has_role = role_find(text, &m->role);
        return *has_role || api_refuse(p, "messages: the role of message %zu is not system, developer, user, assistant or tool",
                                p->r->n_messages);
    }
    if (berth_json_is(key, "content")) {
        return berth_json_null(p->json) || content_read(p, &m->text);
    }
    if (berth_json_is(key, "tool_calls")) {
        return berth_json_null(p->json) || api_read_calls(p, m);
    }
    if (berth_json_is(key, "function_call") && !berth_json_null(p->json)) {
        return api_fail(p->error, 400, "unsupported_parameter", "messages",
            "messages: message %zu has a function_call, which is not supported; tool_calls are", p->r->n_messages);
    }
    return berth_json_skip(p->json) || api_refuse_json(p);
}

static bool message_read(struct api_parser *p) {
    struct api_request *r = p->r;
    struct chat_turn m = {.role = CHAT_USER};
    struct berth_json_text key;
    bool has_role = false;
    if (r->n_messages == API_MAX_MESSAGES) {
        return api_refuse(p, "messages: at most %d messages are allowed", API_MAX_MESSAGES);
    }
    if (!berth_json_object(p->json)) {
        return api_refuse_json(p);
    }
    while (berth_json_key(p->json, &key)) {
        if (!message_member_read(p, key, &m, &has_role)) {
            return false;
        }
    }
    if (!list_end(p)) {
        return false;
    }
    if (m.n_calls > 0 && m.role != CHAT_ASSISTANT) {
        return api_refuse(p, "messages: message %zu has calls, but its role is not assistant", r->n_messages);
    }
    if (m.n_calls > 0 && m.text == NULL) {
        m.text = "";
    }
    if (!has_role || m.text == NULL) {
        return api_fail(p->error, 400, "missing_required_parameter", "messages", "messages: message %zu has no %s", r->n_messages,
            has_role ? "content" : "role");
    }
    if (!BERTH_GROW(&r->messages, &r->messages_room, r->n_messages + 1)) {
        return api_out_of_memory(p->error);
    }
    r->messages[r->n_messages++] = m;
    return true;
}

bool api_read_messages(struct api_parser *p) {
    p->r->n_messages = 0;
    if (!berth_json_array(p->json)) {
        return api_refuse_json(p);
    }
    while (berth_json_next(p->json)) {
        if (!message_read(p)) {
            return false;
        }
    }
    return list_end(p);
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
    if (!berth_json_string(p->json, &text)) {
        return api_refuse_json(p);
    }
    char *copy = api_text_copy(p, text.text, text.len);
    return copy != NULL && input_add(p, (struct api_input){.text = copy, .size = text.len});
}

static bool token_read(struct api_parser *p) {
    struct api_request *r = p->r;
    int64_t token = 0;
    if (!berth_json_int(p->json, 0, INT32_MAX, &token)) {
        return api_refuse_json(p);
    }
    if (!BERTH_GROW(&r->tokens, &r->tokens_room, r->n_tokens + 1)) {
        return api_out_of_memory(p->error);
    }
    r->tokens[r->n_tokens++] = (int32_t) token;
    r->inputs[r->n_inputs - 1].n_tokens++;
    return true;
}

static bool input_tokens_read(struct api_parser *p) {
    if (!berth_json_array(p->json)) {
        return api_refuse_json(p);
    }
    if (!input_add(p, (struct api_input){0})) {
        return false;
    }
    while (berth_json_next(p->json)) {
        if (!token_read(p)) {
            return false;
        }
    }
    return list_end(p);
}

bool api_read_inputs(struct api_parser *p) {
    bool is_first = true, is_plain = false; // is_plain: the array holds the tokens of one input
    p->r->n_inputs = 0;
    p->r->n_tokens = 0;
    if (berth_json_peek(p->json) == '"') {
        return input_text_read(p);
    }
    if (!berth_json_array(p->json)) {
        return api_refuse_json(p);
    }
    while (berth_json_next(p->json)) {
        const char c = berth_json_peek(p->json);
        if (is_first && c != '"' && c != '[') {
            is_plain = true;
            if (!input_add(p, (struct api_input){0})) {
                return false;
            }
        }
        is_first = false;
        bool ok = false;
        if (is_plain) {
            ok = token_read(p);
        } else if (c == '[') {
            ok = input_tokens_read(p);
        } else {
            ok = input_text_read(p);
        }
        if (!ok) {
            return false;
        }
    }
    return list_end(p);
}

// ---- response_format ----

static const char any_object[] = "{\"type\": \"object\"}";

// The value of json_schema: {"name": ..., "strict": ..., "schema": {...}}. The answer always matches the schema, as with strict.
static bool json_schema_read(struct api_parser *p, bool *has_schema) {
    struct api_request *r = p->r;
    struct berth_json_text key;
    if (!berth_json_object(p->json)) {
        return api_refuse_json(p);
    }
    while (berth_json_key(p->json, &key)) {
        const bool is_schema = berth_json_is(key, "schema");
        berth_json_peek(p->json);
        const char *start = p->json->p;
        if (!berth_json_skip(p->json)) {
            return api_refuse_json(p);
        }
        const size_t size = (size_t) (p->json->p - start);
        if (!is_schema) {
            continue;
        }
        if (size > API_MAX_SCHEMA_SIZE) {
            return api_refuse(p, "response_format: the schema has %zu bytes, at most %d are allowed", size, API_MAX_SCHEMA_SIZE);
        }
        r->schema = api_text_copy(p, start, size);
        r->schema_size = size;
        if (r->schema == NULL) {
            return false;
        }
        *has_schema = true;
    }
    return list_end(p);
}

bool api_read_response_format(struct api_parser *p) {
    struct api_request *r = p->r;
    struct berth_json_text key, text;
    char kind[16] = "";
    bool has_schema = false;
    r->schema = NULL;
    if (!berth_json_object(p->json)) {
        return api_refuse_json(p);
    }
    while (berth_json_key(p->json, &key)) {
        bool ok = false;
        if (berth_json_is(key, "type")) {
            ok = berth_json_string(p->json, &text) || api_refuse_json(p);
            if (ok) {
                snprintf(kind, sizeof kind, "%.*s", (int) (text.len < sizeof kind ? text.len : sizeof kind - 1), text.text);
            }
        } else if (berth_json_is(key, "json_schema")) {
            ok = json_schema_read(p, &has_schema);
        } else {
            ok = berth_json_skip(p->json) || api_refuse_json(p);
        }
        if (!ok) {
            return false;
        }
    }
    if (!list_end(p)) {
        return false;
    }
    if (strcmp(kind, "json_schema") == 0) {
        return has_schema || api_refuse(p, "response_format: json_schema has no schema");
    }
    r->schema = NULL;
    if (strcmp(kind, "json_object") == 0) {
        r->schema = any_object;
        r->schema_size = sizeof any_object - 1;
    }
    return r->schema != NULL || strcmp(kind, "text") == 0 ||
           api_refuse(p, "response_format: the type is not text, json_object or json_schema");
}
