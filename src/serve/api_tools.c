// SPDX-License-Identifier: MIT
// api_tools.c: tools, the functions that a model may call (api.h): the parameters `tools` and `tool_choice`, the calls in messages, and the
// calls in an answer. JSON is passed to a template as Jinja's filter tojson writes it: with a blank after each comma and colon.

#include "serve/api.h"

#include <string.h>

// ---- JSON ----

static bool value_copy(struct berth_json *json, FILE *file);

static bool members_copy(struct berth_json *json, FILE *file) {
    struct berth_json_text key;
    const char *between = "";
    fputc('{', file);
    while (berth_json_key(json, &key)) {
        fputs(between, file);
        berth_json_write_text(key.text, key.len, file);
        fputs(": ", file);
        if (!value_copy(json, file)) {
            return false;
        }
        between = ", ";
    }
    fputc('}', file);
    return json->status == GGML_STATUS_SUCCESS;
}

static bool elements_copy(struct berth_json *json, FILE *file) {
    const char *between = "";
    fputc('[', file);
    while (berth_json_next(json)) {
        fputs(between, file);
        if (!value_copy(json, file)) {
            return false;
        }
        between = ", ";
    }
    fputc(']', file);
    return json->status == GGML_STATUS_SUCCESS;
}

// Reads one value and writes it. The reader limits the depth.
static bool value_copy(struct berth_json *json, FILE *file) {
    const char c = berth_json_peek(json);
    struct berth_json_text text;
    bool flag = false;
    if (c == '{') {
        return berth_json_object(json) && members_copy(json, file);
    }
    if (c == '[') {
        return berth_json_array(json) && elements_copy(json, file);
    }
    if (c == '"') {
        const bool ok = berth_json_string(json, &text);
        if (ok) {
            berth_json_write_text(text.text, text.len, file);
        }
        return ok;
    }
    if (berth_json_null(json)) {
        return fputs("null", file) >= 0;
    }
    if (c == 't' || c == 'f') {
        return berth_json_bool(json, &flag) && fputs(flag ? "true" : "false", file) >= 0;
    }
    return berth_json_number_text(json, &text) && fwrite(text.text, 1, text.len, file) == text.len;
}

// Keeps the text of a stream as long as the request. NULL: out of memory, and *error is set.
static const char *stream_keep(struct api_parser *p, struct berth_stream *s) {
    const char *copy = NULL;
    if (berth_stream_close(s)) {
        copy = api_text_copy(p, s->text, s->size);
        p->r->tools_size += s->size;
    } else {
        api_out_of_memory(p->error);
    }
    berth_stream_fini(s);
    return copy;
}

// Reads one value and keeps it as text.
static bool value_keep(struct api_parser *p, const char **out) {
    struct berth_stream s;
    if (!berth_stream_open(&s)) {
        return api_out_of_memory(p->error);
    }
    const bool ok = value_copy(p->json, s.file) || api_refuse_json(p);
    *out = stream_keep(p, &s);
    return ok && *out != NULL;
}

// ---- the functions that a model may call ----

static bool name_is_valid(struct berth_json_text name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    for (size_t i = 0; i < name.len; i++) {
        if (memchr(letters, name.text[i], sizeof letters - 1) == NULL) {
            return false;
        }
    }
    return name.len >= 1 && name.len <= 64;
}

static bool name_read(struct api_parser *p, const char **out) {
    struct berth_json_text name;
    if (!api_parse_string(p, &name)) {
        return false;
    }
    if (!name_is_valid(name)) {
        return api_refuse(p, "%s: the name of a function must have 1 to 64 of the characters a-z, A-Z, 0-9, _ and -", p->name);
    }
    *out = api_text_copy(p, name.text, name.len);
    return *out != NULL;
}

static bool function_member_read(struct api_parser *p, struct berth_json_text key, void *user) {
    struct api_tool *tool = user;
    if (berth_json_is(key, "name")) {
        return name_read(p, &tool->name);
    }
    if (berth_json_is(key, "parameters") && berth_json_peek(p->json) == '{') {
        return value_keep(p, &tool->parameters);
    }
    if (berth_json_is(key, "strict") && berth_json_peek(p->json) != 'n') {
        return api_parse_bool(p, &tool->is_strict);
    }
    return api_parse_skip(p);
}

struct typed_tool {
    struct api_tool *tool;
    bool is_function; // the type of the tool
};

static bool tool_member_read(struct api_parser *p, struct berth_json_text key, void *user) {
    struct typed_tool *t = user;
    if (berth_json_is(key, "type")) {
        return api_parse_is(p, "function", &t->is_function);
    }
    return berth_json_is(key, "function") ? api_parse_object(p, function_member_read, t->tool) : api_parse_skip(p);
}

// Reads {"type": "function", "function": {...}}, apart from tool->text.
static bool tool_read(struct api_parser *p, struct api_tool *tool) {
    struct typed_tool t = {.tool = tool};
    if (!api_parse_object(p, tool_member_read, &t)) {
        return false;
    }
    return (t.is_function && tool->name != NULL) || api_refuse(p, "%s: the type is not function, or it has no name", p->name);
}

// Reads a tool twice: its parts, then all of it as text.
static bool tool_keep(struct api_parser *p, struct api_tool *tool) {
    struct berth_json *json = p->json, parts = *json;
    parts.text = NULL;
    parts.n_text_cap = 0;
    p->json = &parts;
    const bool ok = tool_read(p, tool);
    berth_json_fini(&parts);
    p->json = json;
    return ok && value_keep(p, &tool->text);
}

static bool tool_add(struct api_parser *p, void *unused) {
    (void) unused;
    struct api_request *r = p->r;
    struct api_tool tool = {.parameters = "{\"type\": \"object\"}"};
    if (r->n_tools == API_MAX_TOOLS) {
        return api_refuse(p, "tools: at most %d tools are allowed", API_MAX_TOOLS);
    }
    if (!tool_keep(p, &tool)) {
        return false;
    }
    if (!BERTH_GROW(&r->tools, &r->tools_room, r->n_tools + 1)) {
        return api_out_of_memory(p->error);
    }
    r->tools[r->n_tools++] = tool;
    return true;
}

bool api_read_tools(struct api_parser *p) {
    p->r->n_tools = 0;
    return api_parse_array(p, tool_add, NULL);
}

// ---- which function must be called ----

// {"type": "function", "function": {"name": ...}}
static bool choice_object_read(struct api_parser *p) {
    struct api_tool tool = {.name = NULL};
    if (!tool_read(p, &tool)) {
        return false;
    }
    p->r->choice = API_TOOLS_REQUIRED;
    p->r->choice_name = tool.name;
    return true;
}

bool api_read_tool_choice(struct api_parser *p) {
    static const char *const names[] = {[API_TOOLS_AUTO] = "auto", [API_TOOLS_NONE] = "none", [API_TOOLS_REQUIRED] = "required"};
    struct berth_json_text text;
    p->r->choice_name = NULL;
    if (berth_json_peek(p->json) == '{') {
        return choice_object_read(p);
    }
    if (!api_parse_string(p, &text)) {
        return false;
    }
    for (int i = 0; i <= API_TOOLS_REQUIRED; i++) {
        if (berth_json_is(text, names[i])) {
            p->r->choice = (enum api_tool_choice) i;
            return true;
        }
    }
    return api_refuse(p, "tool_choice is not none, auto, required or a function");
}

// Writes the schema of a call that must be one of the functions, or the function choice_name. Returns the number of functions.
static size_t choice_schema_write(const struct api_request *r, FILE *file) {
    size_t n = 0;
    fputs("{\"anyOf\": [", file);
    for (size_t i = 0; i < r->n_tools; i++) {
        const struct api_tool *t = &r->tools[i];
        if (r->choice_name == NULL || strcmp(r->choice_name, t->name) == 0) {
            fprintf(file,
                "%s{\"type\": \"object\", \"properties\": {\"name\": {\"const\": \"%s\"}, \"arguments\": %s}, "
                "\"required\": [\"name\", \"arguments\"], \"additionalProperties\": false}",
                n > 0 ? ", " : "", t->name, t->parameters);
            n++;
        }
    }
    fputs("]}", file);
    return n;
}

// A call that is required gets the schema of the functions, so the grammar of the answer allows nothing else.
static bool choice_schema_make(struct api_parser *p) {
    struct api_request *r = p->r;
    struct berth_stream s;
    p->name = "tool_choice";
    if (!berth_stream_open(&s)) {
        return api_out_of_memory(p->error);
    }
    const size_t n = choice_schema_write(r, s.file);
    r->schema = stream_keep(p, &s);
    if (r->schema == NULL) {
        return false;
    }
    r->schema_size = strlen(r->schema);
    if (n == 0) {
        return r->choice_name != NULL ? api_refuse(p, "tool_choice: %s is not one of the %zu tools", r->choice_name, r->n_tools)
                                      : api_refuse(p, "tool_choice: required, but there are no tools");
    }
    return r->schema_size <= API_MAX_SCHEMA_SIZE ||
           api_refuse(p, "tool_choice: the schema of the tools has %zu bytes, at most %d are allowed", r->schema_size,
               API_MAX_SCHEMA_SIZE);
}

bool api_tools_check(struct api_parser *p) {
    struct api_request *r = p->r;
    p->name = "tools";
    if (r->choice == API_TOOLS_NONE) {
        r->n_tools = 0;
    }
    if (r->schema != NULL && (r->n_tools > 0 || r->choice == API_TOOLS_REQUIRED)) {
        return api_refuse(p, "tools and response_format %s cannot be combined", "json_object or json_schema");
    }
    for (size_t i = 0; i < r->n_tools && r->choice != API_TOOLS_REQUIRED; i++) {
        if (r->tools[i].is_strict) {
            return api_fail(p->error, 400, "unsupported_parameter", p->name,
                "tools: strict arguments of %s are only supported if tool_choice requires a call", r->tools[i].name);
        }
    }
    return r->choice != API_TOOLS_REQUIRED || choice_schema_make(p);
}

// ---- calls in messages ----

// A call of OpenAI's API has its arguments as a text with JSON.
struct call {
    const char *name, *arguments;
};

static bool call_function_member_read(struct api_parser *p, struct berth_json_text key, void *user) {
    struct call *call = user;
    if (berth_json_is(key, "name")) {
        return name_read(p, &call->name);
    }
    return berth_json_is(key, "arguments") ? api_parse_copy(p, &call->arguments) : api_parse_skip(p);
}

static bool call_member_read(struct api_parser *p, struct berth_json_text key, void *user) {
    return berth_json_is(key, "function") ? api_parse_object(p, call_function_member_read, user) : api_parse_skip(p);
}

static bool call_read(struct api_parser *p, struct call *call) {
    if (!api_parse_object(p, call_member_read, call)) {
        return false;
    }
    return (call->name != NULL && call->arguments != NULL) ||
           api_refuse(p, "messages: a call of message %zu has no name or no arguments", p->r->n_messages);
}

// Writes the call as a template has it. Empty arguments are an object without members.
static bool call_write(struct api_parser *p, const struct call *call, FILE *file) {
    struct berth_json *json = p->json, arguments;
    const char *text = call->arguments[0] != '\0' ? call->arguments : "{}";
    berth_json_init(&arguments, text, strlen(text), "arguments");
    p->json = &arguments;
    fprintf(file, "{\"name\": \"%s\", \"arguments\": ", call->name);
    const bool ok = (value_copy(&arguments, file) && berth_json_done(&arguments)) || api_refuse_json(p);
    fputc('}', file);
    berth_json_fini(&arguments);
    p->json = json;
    return ok;
}

static bool call_keep(struct api_parser *p, const char **out) {
    struct call call = {NULL, NULL};
    struct berth_stream s;
    if (!call_read(p, &call)) {
        return false;
    }
    if (!berth_stream_open(&s)) {
        return api_out_of_memory(p->error);
    }
    const bool ok = call_write(p, &call, s.file);
    *out = stream_keep(p, &s);
    return ok && *out != NULL;
}

struct call_list {
    const char *calls[API_MAX_TOOLS];
    size_t n;
};

static bool call_add(struct api_parser *p, void *user) {
    struct call_list *l = user;
    if (l->n == API_MAX_TOOLS) {
        return api_refuse(p, "messages: message %zu has more than %d calls", p->r->n_messages, API_MAX_TOOLS);
    }
    return call_keep(p, &l->calls[l->n++]);
}

bool api_read_calls(struct api_parser *p, struct chat_turn *turn) {
    struct call_list l;
    l.n = 0;
    if (!api_parse_array(p, call_add, &l)) {
        return false;
    }
    turn->n_calls = l.n;
    if (l.n == 0) {
        turn->calls = NULL;
        return true;
    }
    turn->calls = berth_arrays_new(&p->r->memory, l.n, sizeof *l.calls);
    if (turn->calls == NULL) {
        return api_out_of_memory(p->error);
    }
    memcpy(turn->calls, l.calls, l.n * sizeof *l.calls);
    return true;
}

// ---- calls in an answer ----

void api_call_fini(struct api_call *call) {
    berth_free(call->name);
    berth_free(call->arguments);
    *call = (struct api_call){.name = NULL};
}

static bool answer_name_read(struct berth_json *json, struct api_call *call) {
    struct berth_json_text text;
    if (!berth_json_string(json, &text)) {
        return false;
    }
    berth_free(call->name);
    call->name = berth_malloc(text.len + 1);
    if (call->name == NULL) {
        json->status = GGML_STATUS_ALLOC_FAILED;
        return false;
    }
    memcpy(call->name, text.text, text.len);
    call->name[text.len] = '\0';
    return true;
}

static bool answer_arguments_read(struct berth_json *json, struct api_call *call) {
    struct berth_stream s;
    if (berth_json_peek(json) != '{') {
        return berth_json_fail(json, "arguments are not an object");
    }
    if (!berth_stream_open(&s)) {
        json->status = GGML_STATUS_ALLOC_FAILED;
        return false;
    }
    const bool ok = value_copy(json, s.file);
    if (!berth_stream_close(&s)) {
        json->status = GGML_STATUS_ALLOC_FAILED;
        return false;
    }
    berth_free(call->arguments);
    call->arguments = s.text;
    return ok;
}

// Reads {"name": ..., "arguments": {...}}. False: json->status says whether memory ran out.
static bool answer_call_read(struct berth_json *json, struct api_call *call) {
    struct berth_json_text key;
    if (!berth_json_object(json)) {
        return false;
    }
    while (berth_json_key(json, &key)) {
        bool ok = false;
        if (berth_json_is(key, "name")) {
            ok = answer_name_read(json, call);
        } else if (berth_json_is(key, "arguments")) {
            ok = answer_arguments_read(json, call);
        } else {
            ok = berth_json_skip(json);
        }
        if (!ok) {
            return false;
        }
    }
    return berth_json_done(json) && call->name != NULL && call->arguments != NULL;
}

// Fills `part` with the call between the marks, or with the text as it is if it is not a call.
static bool part_call(struct api_part *part, const char *text, const char *inner, size_t n_inner) {
    struct berth_json json;
    berth_json_init(&json, inner, n_inner, "call");
    const bool is_call = answer_call_read(&json, &part->call);
    const bool has_memory = json.status != GGML_STATUS_ALLOC_FAILED;
    berth_json_fini(&json);
    if (!is_call) {
        api_call_fini(&part->call);
        part->text = text;
        part->n_text = part->n_used;
    }
    return has_memory;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// Returns the length of the text without the blanks at its end.
static size_t trimmed_size(const char *text, size_t n) {
    while (n > 0 && is_blank(text[n - 1])) {
        n--;
    }
    return n;
}

// Returns the length of the text without a part of `mark` at its end, and without the blanks before it.
static size_t sure_size(const char *text, size_t n, const char *mark) {
    size_t n_mark = strlen(mark) - 1;
    while (n_mark > 0 && (n_mark > n || memcmp(text + n - n_mark, mark, n_mark) != 0)) {
        n_mark--;
    }
    return trimmed_size(text, n - n_mark);
}

// Sets a part that is text before a call, or before the end.
static void part_text(struct api_part *part, const char *text, size_t n, bool has_calls) {
    part->text = text;
    part->n_used = n;
    part->n_text = has_calls ? trimmed_size(text, n) : n;
}

bool api_answer_divide(
    const struct chat_tools *tools, const char *text, size_t n, bool is_end, bool has_calls, struct api_part *part) {
    const size_t n_begin = strlen(tools->call_begin), n_end = strlen(tools->call_end);
    const char *begin = n > 0 ? memmem(text, n, tools->call_begin, n_begin) : NULL;
    const size_t n_before = begin != NULL ? trimmed_size(text, (size_t) (begin - text)) : 0;
    *part = (struct api_part){.text = text};
    if (begin == NULL && is_end) {
        part_text(part, text, n, has_calls);
        return true;
    }
    if (begin == NULL || n_before > 0) {
        part_text(part, text, begin != NULL ? n_before : sure_size(text, n, tools->call_begin), false);
        return true;
    }
    const char *inner = begin + n_begin, *text_end = text + n;
    const char *end = memmem(inner, (size_t) (text_end - inner), tools->call_end, n_end);
    if (end == NULL && !is_end) {
        return true;
    }
    part->n_used = end != NULL ? (size_t) (end - text) + n_end : n;
    return part_call(part, text, inner, (size_t) ((end != NULL ? end : text_end) - inner));
}
