// SPDX-License-Identifier: MIT
// test_api.c: tests OpenAI's API as text: each parameter with valid and invalid values, limits, response bodies, failing allocations.

#include "support/check.h"

#include "base/json.h"
#include "serve/api.h"

#include <math.h>

static struct api_request request;
static struct api_error error;

// Reads a body. ' stands for ". The request is freed by the next call.
static bool read_body(enum api_kind kind, const char *text) {
    static char body[1 << 20];
    snprintf(body, sizeof body, "%s", text);
    for (char *c = body; *c != '\0'; c++) {
        if (*c == '\'') {
            *c = '"';
        }
    }
    api_request_fini(&request);
    error = (struct api_error){0};
    const bool ok = api_request_read(&request, kind, body, strlen(body), &error);
    assert_true(ok == (error.status == 0));
    return ok;
}

static void accept(enum api_kind kind, const char *text) {
    if (!read_body(kind, text)) {
        fail_msg("%s: refused: %s", text, error.message);
    }
}

// param NULL: none.
static void refuse(enum api_kind kind, const char *text, const char *param, const char *message) {
    if (read_body(kind, text)) {
        fail_msg("%s: accepted", text);
    }
    assert_int_equal(error.status, 400);
    assert_string_equal(error.param, param != NULL ? param : "");
    if (strstr(error.message, message) == NULL) {
        fail_msg("%s: no '%s' in: %s", text, message, error.message);
    }
}

#define CHAT_WITH(members) "{'messages': [{'role': 'user', 'content': 'Hi'}]" members "}"
#define TEXT_WITH(members) "{'prompt': 'Hi'" members "}"

static void test_chat(void **state) {
    (void) state;
    accept(API_CHAT,
        "{'model': 'm', 'messages': [{'role': 'system', 'content': 'a'}, {'content': 'b\\n', 'role': 'user', 'name': 'x'},"
        "{'role': 'assistant', 'content': [{'type': 'text', 'text': 'c'}, {'text': 'd', 'type': 'text'}]},"
        "{'role': 'developer', 'content': []}]}");
    assert_string_equal(request.model, "m");
    assert_int_equal(request.n_messages, 4);
    assert_true(request.messages[0].role == CHAT_SYSTEM && request.messages[1].role == CHAT_USER);
    assert_true(request.messages[2].role == CHAT_ASSISTANT && request.messages[3].role == CHAT_SYSTEM);
    assert_string_equal(request.messages[1].text, "b\n");
    assert_string_equal(request.messages[2].text, "cd");
    assert_string_equal(request.messages[3].text, "");
    // Defaults of OpenAI's API.
    assert_true(request.n_max == -1 && request.n_choices == 1 && !request.has_seed && !request.is_stream);
    assert_true(request.sampling.temperature == 1 && request.sampling.top_p == 1 && !request.has_logprobs);
    refuse(API_CHAT, "{}", "messages", "missing parameter");
    refuse(API_CHAT, "{'messages': []}", "messages", "missing parameter");
    refuse(API_CHAT, "{'messages': 'Hi'}", "messages", "an array is expected");
    refuse(API_CHAT, "{'messages': ['Hi']}", "messages", "an object is expected");
    refuse(API_CHAT, "{'messages': [{'role': 'user'}]}", "messages", "message 0 has no content");
    refuse(API_CHAT, "{'messages': [{'content': 'a'}]}", "messages", "message 0 has no role");
    refuse(API_CHAT, "{'messages': [{'role': 'tools', 'content': 'a'}]}", "messages", "role of message 0");
    refuse(API_CHAT, "{'messages': [{'role': 7, 'content': 'a'}]}", "messages", "a string is expected");
    refuse(API_CHAT, "{'messages': [{'role': 'user', 'content': 7}]}", "messages", "an array is expected");
    refuse(API_CHAT, "{'messages': [{'role': 'user', 'content': [7]}]}", "messages", "an object is expected");
    refuse(API_CHAT, "{'messages': [{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {}}]}]}", "messages",
        "only text");
    accept(API_CHAT, "{'messages': [{'role': 'assistant', 'content': 'a', 'tool_calls': []}]}");
    refuse(API_CHAT, "{'messages': [{'role': 'user', 'content': 'a'}", "messages", "is expected");
}

static void test_sampling(void **state) {
    (void) state;
    accept(
        API_CHAT, CHAT_WITH(", 'temperature': 0.25, 'top_p': 0.5, 'seed': -3, 'n': 2, 'max_tokens': 7, 'stop': ['a', 'b'],"
                            "'frequency_penalty': -1.5, 'presence_penalty': 2, 'logit_bias': {'5': -100, '6': 1.5}, 'top_k': 9,"
                            "'min_p': 0.125, 'repeat_penalty': 1.5"));
    const struct engine_sampling *s = &request.sampling;
    assert_true(s->temperature == 0.25f && s->top_p == 0.5f && s->seed == (uint64_t) -3 && request.has_seed);
    assert_true(s->frequency == -1.5f && s->presence == 2 && s->top_k == 9 && s->min_p == 0.125f && s->repeat == 1.5f);
    assert_true(request.n_choices == 2 && request.n_max == 7 && request.n_stops == 2);
    assert_string_equal(request.stops[1], "b");
    assert_true(s->n_biases == 2 && s->biases[0].token == 5 && isinf(s->biases[0].bias) && s->biases[1].bias == 1.5f);
    accept(API_CHAT, CHAT_WITH(", 'temperature': null, 'stop': null, 'seed': null, 'tools': null, 'stream': null"));
    assert_true(request.sampling.temperature == 1 && !request.has_seed);
    accept(API_CHAT, CHAT_WITH(", 'stop': 'x'"));
    assert_true(request.n_stops == 1);
    // max_completion_tokens replaces max_tokens, whatever their order.
    accept(API_CHAT, CHAT_WITH(", 'max_completion_tokens': 5, 'max_tokens': 9"));
    assert_int_equal(request.n_max, 5);
    refuse(API_CHAT, CHAT_WITH(", 'temperature': 2.5"), "temperature", "from 0 to 2");
    refuse(API_CHAT, CHAT_WITH(", 'temperature': '1'"), "temperature", "a number is expected");
    refuse(API_CHAT, CHAT_WITH(", 'temperature': 1.00000000000000000000000000000000000000000000000000000000000000000"),
        "temperature", "characters");
    refuse(API_CHAT, CHAT_WITH(", 'top_p': -1"), "top_p", "from 0 to 1");
    refuse(API_CHAT, CHAT_WITH(", 'n': 0"), "n", "from 1 to 8");
    refuse(API_CHAT, CHAT_WITH(", 'n': 9"), "n", "from 1 to 8");
    refuse(API_CHAT, CHAT_WITH(", 'n': 1.5"), "n", "an integer");
    refuse(API_CHAT, CHAT_WITH(", 'max_tokens': 0"), "max_tokens", "an integer");
    refuse(API_CHAT, CHAT_WITH(", 'seed': 'x'"), "seed", "a number");
    refuse(API_CHAT, CHAT_WITH(", 'stop': 7"), "stop", "an array");
    refuse(API_CHAT, CHAT_WITH(", 'stop': [7]"), "stop", "a string");
    refuse(API_CHAT, CHAT_WITH(", 'stop': ''"), "stop", "0 bytes");
    refuse(API_CHAT, CHAT_WITH(", 'stop': ['a','b','c','d','e','f','g','h','i','j','k','l','m','n','o','p','q']"), "stop",
        "at most 16");
    refuse(API_CHAT, CHAT_WITH(", 'logit_bias': {'x': 1}"), "logit_bias", "not a token number");
    refuse(API_CHAT, CHAT_WITH(", 'logit_bias': {'99999999999': 1}"), "logit_bias", "not a token number");
    refuse(API_CHAT, CHAT_WITH(", 'logit_bias': {'1': 101}"), "logit_bias", "from -100 to 100");
    refuse(API_CHAT, CHAT_WITH(", 'logit_bias': []"), "logit_bias", "an object");
}

static void test_long_lists(void **state) {
    (void) state;
    struct berth_stream s;
    assert_true(berth_stream_open(&s));
    fputs("{'messages': [", s.file);
    for (int i = 0; i <= API_MAX_MESSAGES; i++) {
        fprintf(s.file, "%s{'role': 'user', 'content': 'a'}", i > 0 ? "," : "");
    }
    fputs("]}", s.file);
    assert_true(berth_stream_close(&s));
    refuse(API_CHAT, s.text, "messages", "at most 2048");
    berth_stream_fini(&s);
    assert_true(berth_stream_open(&s));
    fputs("{'input': [", s.file);
    for (int i = 0; i <= API_MAX_INPUTS; i++) {
        fprintf(s.file, "%s'a'", i > 0 ? "," : "");
    }
    fputs("]}", s.file);
    assert_true(berth_stream_close(&s));
    refuse(API_EMBEDDING, s.text, "input", "at most 256");
    berth_stream_fini(&s);
    assert_true(berth_stream_open(&s));
    fprintf(s.file, "{'prompt': 'a', 'logit_bias': {");
    for (int i = 0; i <= ENGINE_MAX_BIASES; i++) {
        fprintf(s.file, "%s'%d': 1", i > 0 ? "," : "", i);
    }
    fputs("}}", s.file);
    assert_true(berth_stream_close(&s));
    refuse(API_COMPLETION, s.text, "logit_bias", "at most 256");
    berth_stream_fini(&s);
    assert_true(berth_stream_open(&s));
    fprintf(s.file, CHAT_WITH(", 'response_format': {'type': 'json_schema', 'json_schema': {'schema': {'title': '%*s'}}}"),
        API_MAX_SCHEMA_SIZE, "");
    assert_true(berth_stream_close(&s));
    refuse(API_CHAT, s.text, "response_format", "at most 32768");
    berth_stream_fini(&s);
    assert_true(berth_stream_open(&s));
    fprintf(s.file, CHAT_WITH(", 'stop': '%*s'"), ENGINE_MAX_STOP_SIZE + 1, "x");
    assert_true(berth_stream_close(&s));
    refuse(API_CHAT, s.text, "stop", "129 bytes");
    berth_stream_fini(&s);
}

#define CALL(function) \
    "{'messages': [{'role': 'assistant', 'tool_calls': [{'id': '1', 'type': 'function', 'function': {" function "}}]}]}"
#define TOOL(more) ", 'tools': [{'type': 'function', 'function': {'name': 'f'" more "}}]"

static void test_tools(void **state) {
    (void) state;
    accept(
        API_CHAT, CHAT_WITH(", 'tools': [{'type':'function','function':{'name':'f-1','parameters':{'type':'object','a':[1,-2.5e3,"
                            "true,null,'\\u00e9\\n']}}}, {'type': 'function', 'function': {'name': 'g'}}]"));
    assert_int_equal(request.n_tools, 2);
    assert_string_equal(request.tools[0].name, "f-1");
    assert_string_equal(request.tools[0].parameters, "{\"type\": \"object\", \"a\": [1, -2.5e3, true, null, \"\xc3\xa9\\n\"]}");
    assert_string_equal(request.tools[0].text,
        "{\"type\": \"function\", \"function\": {\"name\": \"f-1\", \"parameters\": {\"type\": "
        "\"object\", \"a\": [1, -2.5e3, true, null, \"\xc3\xa9\\n\"]}}}");
    assert_true(request.choice == API_TOOLS_AUTO && !request.is_one_call && request.schema == NULL);
    accept(API_CHAT, CHAT_WITH(TOOL("") ", 'tool_choice': 'none', 'parallel_tool_calls': false"));
    assert_true(request.n_tools == 0 && request.is_one_call);
    accept(API_CHAT, CHAT_WITH(TOOL(", 'strict': true, 'parameters': {'type': 'object'}") ", 'tool_choice': 'required'"));
    assert_true(request.choice == API_TOOLS_REQUIRED && strstr(request.schema, "\"const\": \"f\"") != NULL);
    accept(API_CHAT, CHAT_WITH(TOOL("") ", 'tool_choice': {'type': 'function', 'function': {'name': 'f'}}"));
    assert_true(request.choice == API_TOOLS_REQUIRED && strstr(request.schema, "\"const\": \"f\"") != NULL);
    refuse(API_CHAT, CHAT_WITH(TOOL("") ", 'tool_choice': {'type': 'function', 'function': {'name': 'g'}}"), "tool_choice",
        "g is not one of the 1 tools");
    refuse(API_CHAT, CHAT_WITH(", 'tool_choice': 'required'"), "tool_choice", "there are no tools");
    refuse(API_CHAT, CHAT_WITH(", 'tool_choice': 'maybe'"), "tool_choice", "not none, auto, required");
    refuse(API_CHAT, CHAT_WITH(", 'tool_choice': {'type': 'custom'}"), "tool_choice", "the type is not function");
    refuse(API_CHAT, CHAT_WITH(", 'tool_choice': 7"), "tool_choice", "a string");
    refuse(API_CHAT, CHAT_WITH(", 'parallel_tool_calls': 7"), "parallel_tool_calls", "true or false");
    refuse(API_CHAT, CHAT_WITH(", 'tools': 7"), "tools", "an array");
    refuse(API_CHAT, CHAT_WITH(", 'tools': [7]"), "tools", "an object");
    refuse(API_CHAT, CHAT_WITH(", 'tools': [{'type': 'function'}]"), "tools", "no name");
    refuse(API_CHAT, CHAT_WITH(", 'tools': [{'type': 'custom', 'function': {'name': 'f'}}]"), "tools", "not function");
    refuse(API_CHAT, CHAT_WITH(", 'tools': [{'type': 'function', 'function': {'name': 'f g'}}]"), "tools",
        "1 to 64 of the characters");
    refuse(API_CHAT, CHAT_WITH(TOOL(", 'parameters': {'a': ]}")), "tools", "is expected");
    refuse(API_CHAT, CHAT_WITH(TOOL(", 'strict': true")), "tools", "strict arguments of f");
    refuse(API_CHAT, CHAT_WITH(TOOL("") ", 'response_format': {'type': 'json_object'}"), "tools", "cannot be combined");
    accept(API_CHAT, CALL("'name': 'f', 'arguments': '{\\'a\\':1}'"));
    assert_true(request.messages[0].n_calls == 1 && request.messages[0].text[0] == '\0');
    assert_string_equal(request.messages[0].calls[0], "{\"name\": \"f\", \"arguments\": {\"a\": 1}}");
    accept(API_CHAT, CALL("'name': 'f', 'arguments': ''"));
    assert_string_equal(request.messages[0].calls[0], "{\"name\": \"f\", \"arguments\": {}}");
    refuse(API_CHAT, CALL("'name': 'f', 'arguments': '{'"), "messages", "is expected");
    refuse(API_CHAT, CALL("'name': 'f'"), "messages", "no arguments");
    refuse(API_CHAT, CALL("'arguments': ''"), "messages", "has no name");
    refuse(API_CHAT, CALL("'name': 'f', 'arguments': {}"), "messages", "a string");
    refuse(API_CHAT, "{'messages': [{'role': 'assistant', 'tool_calls': [1]}]}", "messages", "an object");
    refuse(API_CHAT, "{'messages': [{'role': 'assistant', 'content': 'a', 'function_call': {}}]}", "messages", "function_call");
    refuse(API_CHAT,
        "{'messages': [{'role': 'user', 'content': 'a', 'tool_calls': [{'function': {'name': 'f', 'arguments': ''}}]}]}",
        "messages", "role is not assistant");
    accept(API_CHAT, "{'messages': [{'role': 'tool', 'tool_call_id': '1', 'content': 'a'}]}");
    assert_true(request.messages[0].is_result && request.messages[0].role == CHAT_USER);
}

// Divides the n bytes of an answer. First n_known bytes are known, then one byte more at a time. Writes the parts to `out`.
static void answer_divide(const char *text, size_t n, size_t n_known, char *out) {
    const struct chat_tools *tools = chat_template_find("chatml-tools")->tools;
    struct api_part part;
    size_t at = 0;
    bool has_calls = false;
    *out = '\0';
    for (; n_known <= n; n_known++) {
        do {
            assert_true(api_answer_divide(tools, text + at, n_known - at, n_known == n, has_calls, &part));
            assert_true(part.n_used <= n_known - at && part.n_text <= part.n_used);
            at += part.n_used;
            if (part.call.name != NULL) {
                has_calls = true;
                out += sprintf(out, "[%s %s]", part.call.name, part.call.arguments);
                api_call_fini(&part.call);
            } else {
                out += sprintf(out, "%.*s", (int) part.n_text, part.text);
            }
        } while (part.n_used > 0);
    }
    assert_true(at == n);
}

// An answer has the same parts whether it is known at once or byte by byte.
static void test_answer_parts(void **state) {
    (void) state;
    static const char *const words[] = {"<tool_call>", "</tool_call>", "{\"name\": \"f\", \"arguments\": {\"a\": [1]}}",
        "{\"name\": 1}", "\n", " ", "a", "<tool", "_call>", "<", "{"};
    struct check_rng rng = check_rng_new(check_seed(1));
    char text[512], once[1024], slowly[1024];
    int n_calls = 0;
    for (int i = 0; i < check_cases(20000); i++) {
        text[0] = '\0';
        for (uint64_t n = check_rng_below(&rng, 9); n > 0; n--) {
            strcat(text, words[check_rng_below(&rng, sizeof words / sizeof *words)]);
        }
        const size_t n = strlen(text);
        answer_divide(text, n, n, once);
        answer_divide(text, n, 0, slowly);
        if (strcmp(once, slowly) != 0) {
            fail_msg("%s: %s, byte by byte %s", text, once, slowly);
        }
        n_calls += strstr(once, "[f {\"a\": [1]}]") != NULL;
    }
    assert_true(n_calls > 10);
    static const char mixed[] = "a <tool_call>x</tool_call> \n<tool_call> {\"name\": \"g\", \"arguments\": {}} ";
    answer_divide(mixed, sizeof mixed - 1, sizeof mixed - 1, once);
    assert_string_equal(once, "a <tool_call>x</tool_call>[g {}]");
}

static void test_options(void **state) {
    (void) state;
    accept(
        API_CHAT, CHAT_WITH(", 'stream': true, 'stream_options': {'include_usage': true, 'other': 1}, 'logprobs': true,"
                            "'top_logprobs': 3, 'user': 'u', 'metadata': {'a': [1]}, 'store': false, 'tools': [], 'tool_choice': "
                            "'auto', 'modalities': ['text'], 'parallel_tool_calls': true"));
    assert_true(request.is_stream && request.has_stream_usage && request.has_logprobs && request.n_logprobs == 3);
    refuse(API_CHAT, CHAT_WITH(", 'stream': 1"), "stream", "true or false");
    refuse(API_CHAT, CHAT_WITH(", 'stream_options': {'include_usage': true}"), "stream_options", "requires stream");
    refuse(API_CHAT, CHAT_WITH(", 'stream_options': 1"), "stream_options", "an object");
    refuse(API_CHAT, CHAT_WITH(", 'stream_options': {'include_usage': 1}"), "stream_options", "true or false");
    refuse(API_CHAT, CHAT_WITH(", 'top_logprobs': 3"), "top_logprobs", "requires logprobs");
    refuse(API_CHAT, CHAT_WITH(", 'logprobs': true, 'top_logprobs': 21"), "top_logprobs", "from 0 to 20");
    refuse(API_CHAT, CHAT_WITH(", 'logprobs': 3"), "logprobs", "true or false");
    refuse(API_CHAT, CHAT_WITH(", 'functions': [{}]"), "functions", "not supported");
    refuse(API_CHAT, CHAT_WITH(", 'audio': {}"), "audio", "not supported");
    refuse(API_CHAT, CHAT_WITH(", 'modalities': ['text', 'audio']"), "modalities", "only text");
    refuse(API_CHAT, CHAT_WITH(", 'modalities': [1]"), "modalities", "a string");
    refuse(API_CHAT, CHAT_WITH(", 'colour': 1"), "colour", "unknown parameter: 'colour'");
    refuse(API_CHAT, CHAT_WITH(", 'prompt': 'a'"), "prompt", "unknown parameter");
    refuse(API_CHAT, CHAT_WITH(", 'model': 7"), "model", "a string");
    refuse(API_CHAT, "[]", NULL, "an object is expected");
    refuse(API_CHAT, "", NULL, "an object is expected");
    refuse(API_CHAT, CHAT_WITH("") " x", NULL, "text after the end");
    refuse(API_CHAT, CHAT_WITH(", 'user'"), NULL, "':' is expected");
    refuse(API_CHAT, CHAT_WITH(", 'user': tru"), "user", "is expected");
}

static void test_inputs(void **state) {
    (void) state;
    accept(API_COMPLETION, "{'prompt': 'a', 'logprobs': 2, 'best_of': 1, 'echo': false, 'suffix': null}");
    assert_true(request.n_inputs == 1 && request.has_logprobs && request.n_logprobs == 2);
    assert_string_equal(request.inputs[0].text, "a");
    accept(API_COMPLETION, "{'prompt': ['a', 'bc']}");
    assert_true(request.n_inputs == 2 && request.inputs[1].size == 2);
    accept(API_COMPLETION, "{'prompt': [1, 2, 3]}");
    assert_true(request.n_inputs == 1 && request.inputs[0].text == NULL && request.inputs[0].n_tokens == 3);
    assert_int_equal(request.inputs[0].tokens[2], 3);
    accept(API_EMBEDDING, "{'input': [[1, 2], [], [3]], 'encoding_format': 'base64', 'dimensions': 64}");
    assert_true(request.n_inputs == 3 && request.inputs[2].n_tokens == 1 && request.inputs[2].tokens[0] == 3);
    assert_true(request.is_base64 && request.dimensions == 64);
    accept(API_EMBEDDING, "{'input': [[1], 'a'], 'encoding_format': 'float'}");
    assert_true(request.inputs[0].tokens[0] == 1 && request.inputs[1].text != NULL && !request.is_base64);
    refuse(API_COMPLETION, "{}", "prompt", "missing parameter");
    refuse(API_COMPLETION, "{'prompt': []}", "prompt", "missing parameter");
    refuse(API_COMPLETION, "{'prompt': 7}", "prompt", "an array");
    refuse(API_COMPLETION, "{'prompt': [1, 'a']}", "prompt", "a number");
    refuse(API_COMPLETION, "{'prompt': ['a', 1]}", "prompt", "a string");
    refuse(API_COMPLETION, "{'prompt': [-1]}", "prompt", "from 0 to");
    refuse(API_COMPLETION, "{'prompt': [[1, {}]]}", "prompt", "a number");
    refuse(API_COMPLETION, "{'prompt': ['a', 'b', 'c'], 'n': 3}", "prompt", "9 answers, at most 8");
    refuse(API_COMPLETION, TEXT_WITH(", 'best_of': 2"), "best_of", "differs from n");
    refuse(API_COMPLETION, TEXT_WITH(", 'echo': true"), "echo", "not supported");
    refuse(API_COMPLETION, TEXT_WITH(", 'suffix': 'x'"), "suffix", "not supported");
    refuse(API_COMPLETION, TEXT_WITH(", 'logprobs': true"), "logprobs", "a number");
    refuse(API_EMBEDDING, "{'input': 'a', 'encoding_format': 'hex'}", "encoding_format", "float or base64");
    refuse(API_EMBEDDING, "{'input': 'a', 'encoding_format': 1}", "encoding_format", "a string");
    refuse(API_EMBEDDING, "{'input': 'a', 'temperature': 1}", "temperature", "unknown parameter");
}

static void test_format(void **state) {
    (void) state;
    accept(API_CHAT, CHAT_WITH(", 'response_format': {'type': 'text'}"));
    assert_null(request.schema);
    accept(API_CHAT, CHAT_WITH(", 'response_format': {'type': 'json_object'}"));
    assert_string_equal(request.schema, "{\"type\": \"object\"}");
    accept(
        API_CHAT, CHAT_WITH(", 'response_format': {'json_schema': {'name': 'x', 'schema': {'type': 'object'} , 'strict': true},"
                            "'type': 'json_schema'}"));
    assert_string_equal(request.schema, "{\"type\": \"object\"}");
    assert_int_equal(request.schema_size, 18);
    refuse(API_CHAT, CHAT_WITH(", 'response_format': 'json'"), "response_format", "an object");
    refuse(API_CHAT, CHAT_WITH(", 'response_format': {'type': 'xml'}"), "response_format", "not text, json_object");
    refuse(API_CHAT, CHAT_WITH(", 'response_format': {'type': 1}"), "response_format", "a string");
    refuse(API_CHAT, CHAT_WITH(", 'response_format': {'type': 'json_schema'}"), "response_format", "no schema");
    refuse(API_CHAT, CHAT_WITH(", 'response_format': {'type': 'json_schema', 'json_schema': {'name': 'x'}}"), "response_format",
        "no schema");
    refuse(API_CHAT, CHAT_WITH(", 'response_format': {'type': 'json_schema', 'json_schema': 1}"), "response_format", "an object");
    refuse(API_CHAT, CHAT_WITH(", 'response_format': {'type': 'json_schema', 'json_schema': {'schema': tru}}"), "response_format",
        "expected");
}

// ---- responses ----

// Returns the text that `write` writes; freed by the caller.
#define WRITTEN(call) \
    __extension__({ \
        struct berth_stream s_; \
        assert_true(berth_stream_open(&s_)); \
        FILE *file = s_.file; \
        call; \
        assert_true(berth_stream_close(&s_)); \
        struct berth_json json_; \
        const char *start_ = strncmp(s_.text, "data: {", 7) == 0 ? s_.text + 6 : s_.text; \
        berth_json_init(&json_, start_, strlen(start_), "written"); \
        assert_true(s_.text[6] == '[' || (berth_json_skip(&json_) && berth_json_done(&json_))); \
        berth_json_fini(&json_); \
        s_.text; \
    })

static void expect_text(char *text, const char *part) {
    char wanted[512];
    snprintf(wanted, sizeof wanted, "%s", part);
    for (char *c = wanted; *c != '\0'; c++) {
        if (*c == '\'') {
            *c = '"';
        }
    }
    if (strstr(text, wanted) == NULL) {
        fail_msg("no %s in: %s", wanted, text);
    }
}

static const struct api_reply reply = {.kind = API_CHAT, .id = "chatcmpl-1", .model = "m", .created = 5};
static const struct api_usage usage = {.n_prompt = 3, .n_cached = 1, .n_made = 2};

static void test_errors(void **state) {
    (void) state;
    struct api_error e = {0};
    assert_false(api_fail(&e, 400, "code", "p", "bad \"%d\"", 7));
    assert_false(api_fail(&e, 500, NULL, NULL, "second"));
    char *text = WRITTEN(api_write_error(file, &e));
    assert_string_equal(text, "{\"error\": {\"message\": \"bad \\\"7\\\"\", \"type\": \"invalid_request_error\", \"param\": "
                              "\"p\", \"code\": \"code\"}}");
    berth_free(text);
    e = (struct api_error){0};
    assert_false(api_out_of_memory(&e));
    text = WRITTEN(api_write_error_event(file, &e));
    expect_text(text, "'type': 'server_error', 'param': null");
    berth_free(text);
    static const struct {
        int status;
        const char *type;
    } types[] = {{400, "invalid_request_error"}, {401, "authentication_error"}, {403, "permission_error"},
        {404, "invalid_request_error"}, {429, "rate_limit_error"}, {503, "server_error"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        assert_string_equal(api_error_type(types[i].status), types[i].type);
    }
}

static void test_answers(void **state) {
    (void) state;
    struct logprob items[] = {{1, -0.5f}, {1, -0.5f}, {-1, 0}, {2, -INFINITY}, {3, -1}, {4, -2}};
    const struct logprobs logs = {.n_top = 2, .items = items, .n = 2};
    const struct api_choice choices[2] = {
        {.index = 0, .text = "a\"b", .n_text = 3, .end = ENGINE_STOP},
        {.index = 1, .text = NULL, .n_text = 0, .end = ENGINE_LENGTH, .logprobs = &logs},
    };
    char *text = WRITTEN(api_write_answers(file, &reply, choices, 2, &usage));
    expect_text(text, "'object': 'chat.completion', 'created': 5, 'model': 'm'");
    expect_text(text, "{'index': 0, 'message': {'role': 'assistant', 'content': 'a\\'b', 'refusal': null}, 'logprobs': null, "
                      "'finish_reason': 'stop'}");
    expect_text(text, "'finish_reason': 'length'");
    expect_text(
        text, "{'token': '', 'logprob': -9999, 'bytes': [], 'top_logprobs': [{'token': '', 'logprob': -1, 'bytes': []}, ");
    expect_text(text, "'usage': {'prompt_tokens': 3, 'completion_tokens': 2, 'total_tokens': 5, 'prompt_tokens_details': "
                      "{'cached_tokens': 1}}");
    berth_free(text);
    struct api_reply plain = reply;
    plain.kind = API_COMPLETION;
    text = WRITTEN(api_write_answers(file, &plain, choices, 2, &usage));
    expect_text(text, "'object': 'text_completion'");
    expect_text(text, "{'index': 0, 'text': 'a\\'b', 'logprobs': null, 'finish_reason': 'stop'}");
    expect_text(text, "'tokens': ['', ''], 'token_logprobs': [-0.5, -9999], 'top_logprobs': [{'': -0.5}, {'': -1, '': -2}], "
                      "'text_offset': [0, 0]");
    berth_free(text);
}

static void test_events(void **state) {
    (void) state;
    struct api_choice c = {.index = 1, .text = "a", .n_text = 1, .is_first = true};
    struct api_reply r = reply;
    char *text = WRITTEN(api_write_event(file, &r, &c, NULL));
    expect_text(text, "data: {'id': 'chatcmpl-1', 'object': 'chat.completion.chunk'");
    expect_text(text, "'choices': [{'index': 1, 'delta': {'role': 'assistant', 'content': 'a'}, 'logprobs': null, "
                      "'finish_reason': null}]}\n\n");
    berth_free(text);
    c = (struct api_choice){.index = 0, .end = ENGINE_STOP};
    r.has_stream_usage = true;
    text = WRITTEN(api_write_event(file, &r, &c, NULL));
    expect_text(text, "{'index': 0, 'delta': {}, 'logprobs': null, 'finish_reason': 'stop'}], 'usage': null}");
    berth_free(text);
    text = WRITTEN(api_write_event(file, &r, NULL, &usage));
    expect_text(text, "'choices': [], 'usage': {'prompt_tokens': 3");
    berth_free(text);
    r.kind = API_COMPLETION;
    text = WRITTEN(api_write_event(file, &r, &c, NULL));
    expect_text(text, "'object': 'text_completion'");
    expect_text(text, "{'index': 0, 'text': '', 'logprobs': null");
    berth_free(text);
    text = WRITTEN(api_write_done(file));
    assert_string_equal(text, "data: [DONE]\n\n");
    berth_free(text);
}

static void test_vectors(void **state) {
    (void) state;
    const float a[2] = {3, 4}, zero[2] = {0, 0};
    const float *vectors[2] = {a, zero};
    struct api_reply r = {.kind = API_EMBEDDING, .model = "m"};
    char *text = WRITTEN(api_write_embeddings(file, &r, vectors, 2, 2, &usage));
    expect_text(text,
        "{'object': 'embedding', 'index': 0, 'embedding': [0.6, 0.8]}, {'object': 'embedding', 'index': 1, 'embedding': [0, 0]}");
    expect_text(text, "'usage': {'prompt_tokens': 3, 'total_tokens': 3}");
    berth_free(text);
    r.is_base64 = true;
    text = WRITTEN(api_write_embeddings(file, &r, vectors, 1, 2, &usage));
    expect_text(text, "'embedding': 'mpkZP83MTD8='"); // 0.6f and 0.8f
    berth_free(text);
    text = WRITTEN(api_write_embeddings(file, &r, (const float *const[]){(const float[]){1, 0, 0}}, 1, 3, &usage));
    expect_text(text, "'embedding': 'AACAPwAAAAAAAAAA'");
    berth_free(text);
    text = WRITTEN(api_write_models(file, "m", 7, 64));
    expect_text(text,
        "{'object': 'list', 'data': [{'id': 'm', 'object': 'model', 'created': 7, 'owned_by': 'berth', 'context_length': 64}]}");
    berth_free(text);
}

// ---- failing allocations ----

static void test_memory(void **state) {
    (void) state;
    static const struct {
        enum api_kind kind;
        const char *body;
    } cases[] = {
        {API_CHAT,
            CHAT_WITH(", 'model': 'm', 'stop': ['a', 'b'], 'logit_bias': {'1': 2}, 'response_format': {'type': 'json_schema', "
                      "'json_schema': {'schema': {'type': 'object'}}}")},
        {API_CHAT, "{'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'abc'}]}]}"},
        {API_COMPLETION, "{'prompt': ['a', 'b', [1, 2]]}"},
        {API_EMBEDDING, "{'input': [1, 2, 3]}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n_failed = 0;
        for (int64_t n = 1; n < 200; n++) {
            berth_alloc_fail_at(n);
            const bool ok = read_body(cases[i].kind, cases[i].body);
            berth_alloc_fail_at(0);
            if (ok) {
                break;
            }
            assert_int_equal(error.status, 500);
            n_failed++;
        }
        assert_true(n_failed > 2 && error.status == 0);
    }
}

static int request_end(void **state) {
    (void) state;
    api_request_fini(&request);
    return 0;
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_sampling),
        cmocka_unit_test(test_long_lists),
        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_answer_parts),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, request_end);
}
