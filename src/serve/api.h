// SPDX-License-Identifier: MIT
// api.h: OpenAI's HTTP API as text. api_request.c and api_fields.c turn a request body into a checked request. api_response.c turns
// results into response bodies. No function here uses a socket or computes a token.
//
// A parameter that Berth does not support is refused if it would change the result, and ignored otherwise (the table of
// api_fields.c). The limits below bound the memory and the time of a request.
#pragma once

#include "base/json.h"
#include "model/chat.h"
#include "serve/engine.h"

#include <stdio.h>

#define API_MAX_MESSAGES 2048     // messages of a conversation
#define API_MAX_INPUTS 256        // prompts or texts to embed of one request
#define API_MAX_CHOICES 8         // answers of one request
#define API_MAX_TOP_LOGPROBS 20   // alternatives per token
#define API_MAX_SCHEMA_SIZE 32768 // bytes of a JSON schema
#define API_MAX_TOOLS 128         // tools of a request, and calls of a message
#define API_MAX_TEMPERATURE 2.0
#define API_RETRY_S 5 // Retry-After if nothing better is known

enum api_kind { API_CHAT, API_COMPLETION, API_EMBEDDING, API_N_KINDS };

// ---- errors ----

struct api_error {
    int status;        // HTTP status; 0: no error
    const char *code;  // OpenAI's error code; NULL: none
    char param[64];    // the parameter concerned; "": none
    char message[640]; // with numbers
    int retry_s;       // Retry-After in seconds; 0: none
};

// Keeps the first error: does nothing if *error already has a status. Always returns false. code and param may be NULL.
bool api_fail(struct api_error *error, int status, const char *code, const char *param, const char *fmt, ...) BERTH_PRINTF(5, 6);
// Status 500.
bool api_out_of_memory(struct api_error *error);

// ---- requests ----

struct api_input {
    const char *text; // [size] NULL: the input is given as tokens
    size_t size;
    const int32_t *tokens; // [n_tokens] not checked against the vocabulary
    size_t n_tokens;
};

// A function that the model may call.
struct api_tool {
    const char *name;       // letters, digits, _ and -
    const char *text;       // all of it as JSON
    const char *parameters; // their JSON schema
    bool is_strict;         // the arguments must match the schema
};

enum api_tool_choice { API_TOOLS_AUTO, API_TOOLS_NONE, API_TOOLS_REQUIRED };

struct api_request {
    enum api_kind kind;
    const char *model;          // NULL: not given
    struct chat_turn *messages; // [n_messages] API_CHAT
    size_t n_messages, messages_room;
    struct api_input *inputs; // [n_inputs] prompts, or texts to embed
    size_t n_inputs, inputs_room;
    int64_t n_max;                   // tokens of the answer; -1: not given
    int64_t n_choices;               // answers per prompt
    int64_t dimensions;              // API_EMBEDDING: expected length of a vector; -1: not given
    struct engine_sampling sampling; // biases: own memory
    bool has_seed;
    const char **stops; // [n_stops]
    size_t n_stops, stops_room;
    bool has_logprobs;
    int64_t n_logprobs; // alternatives per token, if has_logprobs
    const char *schema; // [schema_size] the JSON schema that the answer must match; NULL: any text
    size_t schema_size;
    bool is_stream, has_stream_usage, is_base64;
    struct api_tool *tools; // [n_tools]
    size_t n_tools, tools_room;
    enum api_tool_choice choice; // API_TOOLS_REQUIRED: `schema` is that of the call
    const char *choice_name;     // of the only function that may be called; NULL: any
    bool is_one_call;            // the answer has at most one call
    size_t tools_size;           // bytes of JSON texts of tools and calls

    struct berth_arrays memory; // texts
    int32_t *tokens;            // [n_tokens] tokens of all inputs
    size_t n_tokens, tokens_room;
    struct sample_bias *biases; // [n_biases]
    size_t n_biases, biases_room;
};

// Reads and checks a body. The request does not refer to the body afterwards. False: *error holds status and cause.
// api_request_fini must be called in any case.
bool api_request_read(struct api_request *r, enum api_kind kind, const char *body, size_t size, struct api_error *error);
void api_request_fini(struct api_request *r);

// ---- within the reader of requests ----

struct api_parser {
    struct berth_json *json;
    struct api_request *r;
    struct api_error *error;
    const char *name; // parameter that is being read
    int64_t n_best;   // best_of; -1: not given
    bool is_last_max; // max_completion_tokens was given, which replaces max_tokens
    char *text;       // [text_room] temporary text
    size_t text_room;
};

// Reads the value of the parameter `name`; an api_member_t. False: *error holds the cause.
bool api_field_read(struct api_parser *p, struct berth_json_text name, void *unused);
// api_messages.c: the functions of parameters with nested values.
bool api_read_messages(struct api_parser *p);
bool api_read_inputs(struct api_parser *p);
bool api_read_response_format(struct api_parser *p);
// api_tools.c: the same for tools. api_read_calls reads the calls of a message. api_tools_check follows when all parameters are read.
bool api_read_tools(struct api_parser *p);
bool api_read_tool_choice(struct api_parser *p);
bool api_read_calls(struct api_parser *p, struct chat_turn *turn);
bool api_tools_check(struct api_parser *p);
// api_parse.c: read one value. False: *error is set.
// Reads an object. member reads exactly one value, that of `key`, which is valid until it reads a string.
typedef bool (*api_member_t)(struct api_parser *p, struct berth_json_text key, void *user);
bool api_parse_object(struct api_parser *p, api_member_t member, void *user);
// Reads an array. element reads exactly one value.
typedef bool (*api_element_t)(struct api_parser *p, void *user);
bool api_parse_array(struct api_parser *p, api_element_t element, void *user);
bool api_parse_string(struct api_parser *p, struct berth_json_text *out);
// Reads a string. *is: whether it is `want`.
bool api_parse_is(struct api_parser *p, const char *want, bool *is);
// Copies a string. The copy is valid as long as the request.
bool api_parse_copy(struct api_parser *p, const char **out);
bool api_parse_bool(struct api_parser *p, bool *out);
bool api_parse_int(struct api_parser *p, int64_t min, int64_t max, int64_t *out);
bool api_parse_skip(struct api_parser *p);

// Fails with status 400, and with p->name as the parameter.
bool api_refuse(struct api_parser *p, const char *fmt, ...) BERTH_PRINTF(2, 3);
// Fails with the message of the JSON reader.
bool api_refuse_json(struct api_parser *p);
// Copies a text and appends a NUL. NULL: out of memory, and *error is set.
char *api_text_copy(struct api_parser *p, const char *text, size_t size);

// ---- responses ----

// What all responses of a request have in common.
struct api_reply {
    enum api_kind kind;
    const char *id;    // of the request
    const char *model; // name of the served model
    int64_t created;   // seconds since 1970
    const struct vocab *vocab;
    bool has_stream_usage;
    bool is_base64;
};

struct api_usage {
    int64_t n_prompt, n_cached, n_made;
};

// A call of a tool in an answer.
struct api_call {
    char id[64];
    char *name, *arguments; // own memory; the arguments are JSON
};
void api_call_fini(struct api_call *call);

// The next part of an answer with tools: a call, or text.
struct api_part {
    size_t n_used;    // bytes of the answer; 0: the next part is not complete yet, or the answer has ended
    const char *text; // [n_text] if call.name is NULL; may be empty
    size_t n_text;
    struct api_call call; // the caller frees it; it has no id
};
// Finds the first part of the n bytes. is_end: no more bytes follow. has_calls: a call was before them. Blanks around calls are dropped. A
// call that is not valid is text. False: out of memory.
bool api_answer_divide(
    const struct chat_tools *tools, const char *text, size_t n, bool is_end, bool has_calls, struct api_part *part);

// One answer, or a part of it.
struct api_choice {
    int index;
    const char *text; // [n_text]
    size_t n_text;
    const struct logprobs *logprobs; // NULL: not requested
    size_t first_logprob;            // the part begins with this entry
    int64_t text_off;                // characters of the answer before the entry
    bool is_first;                   // first part of a stream
    const struct api_call *calls;    // [n_calls]
    int n_calls, first_call;         // first_call: calls in earlier parts
    enum engine_end end;             // ENGINE_RUNNING: more parts follow
};

// Returns the number of characters that begin in these bytes.
int64_t api_chars_count(const char *bytes, size_t n);
const char *api_error_type(int status);
void api_write_error(FILE *file, const struct api_error *error);
void api_write_answers(
    FILE *file, const struct api_reply *reply, const struct api_choice *choices, int n, const struct api_usage *usage);
// One event of a stream, as "data: {...}\n\n". choice NULL: the event with the usage.
void api_write_event(FILE *file, const struct api_reply *reply, const struct api_choice *choice, const struct api_usage *usage);
// The error event of a stream whose status has been sent.
void api_write_error_event(FILE *file, const struct api_error *error);
void api_write_done(FILE *file); // the last event
// vectors: [n] pointers to n_embd floats. They are scaled to length 1.
void api_write_embeddings(
    FILE *file, const struct api_reply *reply, const float *const *vectors, int n, int64_t n_embd, const struct api_usage *usage);
void api_write_model(struct berth_json_writer *w, const char *key, const char *name, int64_t created, int64_t n_ctx);
void api_write_models(FILE *file, const char *name, int64_t created, int64_t n_ctx);
