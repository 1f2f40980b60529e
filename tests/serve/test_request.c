// SPDX-License-Identifier: MIT
// test_request.c: tests requests on a fake engine: answers, streams, several answers, limits, each way to fail, failing allocations.

#include "serve/sample.h"

#include "base/json.h"
#include "serve/metrics.h"
#include "serve/plan.h"

#define CHAT "{\"messages\": [{\"role\": \"user\", \"content\": \"ship\"}]"

static struct sample_service sample;

static struct request *begin(enum api_kind kind, const char *body, struct api_error *error) {
    *error = (struct api_error){0};
    struct request *r = request_new(&sample.service, kind, body, strlen(body), error);
    assert_true((r != NULL) == (error->status == 0));
    return r;
}

static struct request *begin_ok(enum api_kind kind, const char *body) {
    struct api_error error;
    struct request *r = begin(kind, body, &error);
    if (r == NULL) {
        fail_msg("%s: refused: %s", body, error.message);
    }
    return r;
}

static void refuse(enum api_kind kind, const char *body, int status, const char *code) {
    struct api_error error;
    if (begin(kind, body, &error) != NULL) {
        fail_msg("%s: accepted", body);
    }
    if (error.status != status || error.code == NULL || strcmp(error.code, code) != 0) {
        fail_msg("%s: status %d, %s: %s", body, error.status, error.code, error.message);
    }
    assert_true(status != 429 || error.retry_s > 0);
}

// Does steps until the request ends.
static enum request_state finish(struct request *r) {
    enum request_state state = request_poll(r);
    for (int i = 0; i < 1000 && (state == REQUEST_WAITING || state == REQUEST_RUNNING); i++) {
        fake_step(sample.engine);
        state = request_poll(r);
    }
    return state;
}

static char *written(const struct request *r) {
    struct berth_stream s;
    struct berth_json json;
    assert_true(berth_stream_open(&s));
    request_write(r, s.file);
    assert_true(berth_stream_close(&s));
    berth_json_init(&json, s.text, s.size, "answer");
    assert_true(berth_json_skip(&json) && berth_json_done(&json));
    berth_json_fini(&json);
    return s.text;
}

static void expect_answer(enum api_kind kind, const char *body, const char *const *parts) {
    struct request *r = begin_ok(kind, body);
    assert_int_equal(finish(r), REQUEST_DONE);
    char *text = written(r);
    for (; *parts != NULL; parts++) {
        if (strstr(text, *parts) == NULL) {
            fail_msg("%s: no %s in: %s", body, *parts, text);
        }
    }
    berth_free(text);
    request_free(r);
}

static int open_sample(void **state) {
    (void) state;
    sample_service_open(&sample, 0, 4);
    return 0;
}

static int close_sample(void **state) {
    (void) state;
    sample_service_close(&sample);
    return 0;
}

static void test_answers(void **state) {
    (void) state;
    expect_answer(API_CHAT, CHAT ", \"max_tokens\": 3}",
        (const char *const[]){"\"content\": \" w0 w1 w2\"", "\"finish_reason\": \"length\"", "\"completion_tokens\": 3", NULL});
    fake.n_stop = 2;
    expect_answer(API_CHAT, CHAT ", \"model\": \"sample\"}",
        (const char *const[]){"\"content\": \" w0 w1\"", "\"finish_reason\": \"stop\"", NULL});
    fake.n_stop = 0;
    // Without max_tokens, completions have 16 tokens.
    expect_answer(API_COMPLETION, "{\"prompt\": \"ship\"}", (const char *const[]){" w15\"", "\"completion_tokens\": 16", NULL});
    expect_answer(API_COMPLETION, "{\"prompt\": [[1, 2], [3]], \"max_tokens\": 1, \"n\": 2, \"logprobs\": 2}",
        (const char *const[]){
            "\"index\": 3", "\"prompt_tokens\": 3", "\"completion_tokens\": 4", "\"token_logprobs\": [-0.5]", NULL});
    expect_answer(API_CHAT, CHAT ", \"max_tokens\": 2, \"logprobs\": true, \"top_logprobs\": 2}",
        (const char *const[]){"\"top_logprobs\": [{\"token\": ", "\"logprob\": -1", NULL});
    expect_answer(API_EMBEDDING, "{\"input\": [\"ship\", [5], \"harbour\"], \"dimensions\": 64}",
        (const char *const[]){"\"index\": 2", "\"embedding\": [", NULL});
    // More texts than the window.
    expect_answer(API_EMBEDDING, "{\"input\": [[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1],[1]]}",
        (const char *const[]){"\"index\": 19", "\"prompt_tokens\": 20", NULL});
}

static void test_stream(void **state) {
    (void) state;
    struct request *r = begin_ok(API_CHAT, CHAT
        ", \"max_tokens\": 2, \"n\": 2, \"stream\": true, \"stream_options\": {\"include_usage\": true}, \"logprobs\": true}");
    assert_int_equal(finish(r), REQUEST_DONE);
    assert_true(r->is_closed);
    assert_int_equal(request_poll(r), REQUEST_DONE); // writes nothing more
    r->out[r->n_out - 1] = '\0';
    int n_events = 0;
    for (const char *at = r->out; (at = strstr(at, "data: ")) != NULL; at++) {
        n_events++;
    }
    assert_int_equal(n_events, 2 * 2 + 2);
    assert_non_null(strstr(r->out, "\"index\": 1, \"delta\": {\"content\": \" w1\"}"));
    assert_non_null(strstr(r->out, "\"choices\": [], \"usage\": {\"prompt_tokens\""));
    assert_non_null(strstr(r->out, "data: [DONE]\n"));
    request_free(r);
    // A failure in the middle of a stream is an event.
    r = begin_ok(API_COMPLETION, "{\"prompt\": \"ship\", \"stream\": true}");
    fake_step(sample.engine);
    assert_int_equal(request_poll(r), REQUEST_RUNNING);
    fake.forced_end = ENGINE_ERROR;
    assert_int_equal(finish(r), REQUEST_FAILED);
    fake.forced_end = ENGINE_RUNNING;
    assert_true(r->is_closed && memmem(r->out, r->n_out, "data: {\"error\"", 14) != NULL);
    request_free(r);
}

// ---- tools ----

#define TOOLS \
    ", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", " \
    "\"properties\": " \
    "{\"a\": {\"type\": \"integer\"}}, \"required\": [\"a\"], \"additionalProperties\": false}}}]"
#define WITH_CALLS \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"ship\"}, {\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"1\", " \
    "\"type\": " \
    "\"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}, {\"role\": \"tool\", \"content\": \"r\"}]" TOOLS

// The answer of the fake engine: text, two calls, and blanks.
static const char *const called[] = {"One ", "moment", ".\n\n<too", "l_call>\n{\"name\": \"f\", ", "\"arguments\": {\"a\":1}}\n",
    "</tool", "_call>", "\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 2}}\n</tool_call>", "\n", NULL};

// Gives the service a template with tools, and a context that is long enough for its text. words NULL: back to the usual settings.
static void tools_switch(const char *const *words) {
    fake.words = words;
    sample.service.params.chat = chat_template_find(words != NULL ? "chatml-tools" : "chatml");
    sample.service.params.n_ctx = words != NULL ? 4096 : SAMPLE_CTX;
}

static void test_tools(void **state) {
    (void) state;
    refuse(API_CHAT, CHAT TOOLS "}", 400, "unsupported_parameter");
    refuse(API_CHAT, "{\"messages\": [{\"role\": \"tool\", \"content\": \"r\"}]}", 400, "unsupported_parameter");
    expect_answer(API_CHAT, CHAT TOOLS ", \"tool_choice\": \"none\", \"max_tokens\": 1}", (const char *const[]){"\" w0\"", NULL});
    tools_switch(called);
    expect_answer(API_CHAT, WITH_CALLS "}",
        (const char *const[]){"\"content\": \"One moment.\", \"tool_calls\": [{\"id\": \"call_",
            "_0_0\", \"type\": \"function\", \"function\": ", "{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}}, {\"id\"",
            "\"{\\\"a\\\": 2}\"}}], \"refusal\"", "\"finish_reason\": \"tool_calls\"", NULL});
    assert_int_equal(fake.n_stops, 0);
    expect_answer(API_CHAT, CHAT TOOLS ", \"parallel_tool_calls\": false}", (const char *const[]){"tool_calls", NULL});
    assert_int_equal(fake.n_stops, 1); // the end of the first call
    // Without tools in the request, the answer is text.
    expect_answer(API_CHAT, CHAT "}", (const char *const[]){"<tool_call>", "\"finish_reason\": \"stop\"", NULL});
    // Cut off in a call: text. Nothing but a call: no content.
    expect_answer(API_CHAT, CHAT TOOLS ", \"max_tokens\": 4}",
        (const char *const[]){"\"content\": \"One moment.\\n\\n<tool_call>\\n{", "\"finish_reason\": \"length\"", NULL});
    fake.words = called + 7;
    expect_answer(API_CHAT, CHAT TOOLS "}", (const char *const[]){"\"content\": null, \"tool_calls\": [{", NULL});
    // Not a call: text as it is.
    static const char *const wrong[][3] = {{"<tool_call>", "[1]</tool_call>", NULL},
        {"<tool_call>{\"name\": 7}", "</tool_call>", NULL},
        {"<tool_call>{\"name\": \"f\", \"arguments\": \"a\"}", "</tool_call>", NULL},
        {"<tool_call>{\"name\": \"f\"}", "</tool_call>", NULL}, {"<tool_call>", "{\"arguments\": {}}</tool_call>", NULL},
        {" <", "tool", NULL}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fake.words = wrong[i];
        expect_answer(API_CHAT, CHAT TOOLS "}", (const char *const[]){"tool", "\"finish_reason\": \"stop\"", NULL});
    }
    // A call that is required begins in the prompt, and a grammar makes it.
    static const char *const required[] = {"{\"name\": \"f\",", "\"arguments\": {\"a\": 3}}", NULL};
    fake.words = required;
    expect_answer(API_CHAT, CHAT TOOLS ", \"tool_choice\": \"required\"}",
        (const char *const[]){"\"content\": null", "{\\\"a\\\": 3}", "\"finish_reason\": \"tool_calls\"", NULL});
    assert_int_equal(fake.n_guides, 1);
    fake.n_guides = 0;
    refuse(API_CHAT,
        CHAT ", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"ship\"}}}], "
             "\"tool_choice\": \"required\"}",
        400, "invalid_schema");
    tools_switch(NULL);
}

static void test_tools_stream(void **state) {
    (void) state;
    tools_switch(called);
    struct request *r = begin_ok(API_CHAT, CHAT TOOLS ", \"stream\": true}");
    assert_int_equal(finish(r), REQUEST_DONE);
    r->out[r->n_out - 1] = '\0';
    static const char *const parts[] = {"{\"role\": \"assistant\", \"content\": \"One\"}", "{\"content\": \" moment\"}",
        "{\"content\": \".\"}", "{\"tool_calls\": [{\"index\": 0, \"id\": \"call_", "\"arguments\": \"{\\\"a\\\": 1}\"}}]}",
        "{\"tool_calls\": [{\"index\": 1, \"id\"", "\"delta\": {}, \"logprobs\": null, \"finish_reason\": \"tool_calls\"",
        "data: [DONE]"};
    const char *at = r->out;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        at = strstr(at, parts[i]);
        if (at == NULL) {
            fail_msg("no %s in: %s", parts[i], r->out);
        }
    }
    request_free(r);
    fake.words = called + 7; // a call is the first part
    r = begin_ok(API_CHAT, CHAT TOOLS ", \"stream\": true}");
    assert_int_equal(finish(r), REQUEST_DONE);
    r->out[r->n_out - 1] = '\0';
    assert_non_null(strstr(r->out, "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"index\": 0"));
    request_free(r);
    tools_switch(NULL);
}

static void test_schema(void **state) {
    (void) state;
    const char *body = CHAT ", \"max_tokens\": 2, \"response_format\": {\"type\": \"json_object\"}}";
    struct request *a = begin_ok(API_CHAT, body), *b = begin_ok(API_CHAT, body);
    assert_int_equal(fake.n_guides, 2);
    refuse(API_CHAT, body, 429, "rate_limit_exceeded"); // two are allowed at a time
    request_free(b);
    assert_int_equal(finish(a), REQUEST_DONE);
    request_free(a);
    refuse(API_CHAT, CHAT ", \"n\": 3, \"response_format\": {\"type\": \"json_object\"}}", 400, "rate_limit_exceeded");
    refuse(API_CHAT,
        CHAT ", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": {\"type\": \"thing\"}}}}", 400,
        "invalid_schema");
    refuse(API_CHAT,
        CHAT ", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": {\"pattern\": \"x\"}}}}", 400,
        "invalid_schema");
}

static void test_refusals(void **state) {
    (void) state;
    refuse(API_CHAT, "{", 400, "invalid_json");
    refuse(API_CHAT, CHAT ", \"model\": \"gpt\"}", 404, "model_not_found");
    refuse(API_CHAT, CHAT ", \"max_tokens\": 128}", 400, "context_length_exceeded");
    refuse(API_CHAT, CHAT ", \"logit_bias\": {\"99999\": 1}}", 400, "invalid_value");
    refuse(API_COMPLETION, "{\"prompt\": [99999]}", 400, "invalid_value");
    refuse(API_COMPLETION, "{\"prompt\": [[]]}", 400, "invalid_value");
    refuse(API_EMBEDDING, "{\"input\": \"ship\", \"dimensions\": 3}", 400, "invalid_value");
    char body[20000];
    snprintf(body, sizeof body, "{\"prompt\": \"%.*d\"}", 3000, 0);
    refuse(API_COMPLETION, body, 400, "context_length_exceeded");
    snprintf(body, sizeof body, "{\"input\": \"%.*d\"}", 19000, 0); // more bytes than any 128 tokens
    refuse(API_EMBEDDING, body, 400, "context_length_exceeded");
    const struct chat_template *chat = sample.service.params.chat;
    sample.service.params.chat = NULL;
    refuse(API_CHAT, CHAT "}", 400, "no_chat_template");
    sample.service.params.chat = chat;
    const size_t answers_size = sample.service.params.answers_size;
    sample.service.params.answers_size = 1600;
    refuse(API_CHAT, CHAT ", \"logprobs\": true, \"max_tokens\": 10}", 400, "answer_too_large");
    struct request *r = begin_ok(API_CHAT, CHAT ", \"max_tokens\": 20}");
    refuse(API_CHAT, CHAT ", \"max_tokens\": 20}", 429, "rate_limit_exceeded");
    request_free(r);
    sample.service.params.answers_size = answers_size;
}

static void test_engine_refusals(void **state) {
    (void) state;
    static const struct {
        enum engine_status status;
        int http;
    } cases[] = {{ENGINE_FULL, 429}, {ENGINE_NEVER, 400}, {ENGINE_CLOSED, 503}, {ENGINE_FAILED, 500}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_error error;
        fake.submit_status = cases[i].status;
        assert_null(begin(API_CHAT, CHAT "}", &error));
        assert_int_equal(error.status, cases[i].http);
        assert_int_equal(error.retry_s, cases[i].http == 429 || cases[i].http == 503 ? 7 : 0);
    }
    fake.submit_status = ENGINE_OK;
    static const struct {
        enum engine_end end;
        int http;
    } ends[] = {{ENGINE_TIMEOUT, 429}, {ENGINE_CANCELLED, 503}, {ENGINE_ERROR, 500}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct request *r = begin_ok(API_CHAT, CHAT "}");
        fake.forced_end = ends[i].end;
        assert_int_equal(finish(r), REQUEST_FAILED);
        assert_int_equal(r->error.status, ends[i].http);
        assert_int_equal(request_poll(r), REQUEST_FAILED);
        fake.forced_end = ENGINE_RUNNING;
        request_free(r);
    }
}

static void test_queue(void **state) {
    (void) state;
    struct request *r[4];
    fake.n_wait_steps = 2;
    for (int i = 0; i < 4; i++) {
        r[i] = begin_ok(API_CHAT, CHAT ", \"max_tokens\": 2}");
        assert_int_equal(request_poll(r[i]), REQUEST_WAITING);
    }
    refuse(API_CHAT, CHAT "}", 429, "rate_limit_exceeded"); // n_requests
    assert_int_equal(finish(r[0]), REQUEST_DONE);
    const int n_cancelled = fake.n_cancelled;
    assert_int_equal(finish(r[1]), REQUEST_DONE);
    for (int i = 0; i < 4; i++) {
        request_free(r[i]);
    }
    assert_int_equal(fake.n_cancelled, n_cancelled); // the others have ended too
    r[0] = begin_ok(API_CHAT, CHAT "}");
    request_free(r[0]);
    assert_int_equal(fake.n_cancelled, n_cancelled + 1);
    fake.n_wait_steps = 0;
    // The engine takes two at a time: the others follow.
    fake.n_queue = 2;
    expect_answer(API_EMBEDDING, "{\"input\": [[1],[1],[1],[1],[1]]}", (const char *const[]){"\"index\": 4", NULL});
    // While the engine is full, the next item is tried only after a time, or when an item has ended.
    struct request *more = begin_ok(API_CHAT, CHAT ", \"max_tokens\": 2, \"n\": 3}");
    assert_true(more->is_stalled && more->n_submitted == 2);
    fake.n_queue = 0;
    assert_int_equal(request_poll(more), REQUEST_RUNNING);
    assert_true(more->is_stalled && more->n_submitted == 2);
    more->retry_us = 1;
    assert_int_equal(request_poll(more), REQUEST_RUNNING);
    assert_true(!more->is_stalled && more->n_submitted == 3);
    request_free(more);
}

// The engine keeps a limited number of log probabilities: the answer is shorter, unless the request gives its length.
static void test_logprobs_limit(void **state) {
    (void) state;
    struct service_params *p = &sample.service.params;
    const struct service_params old = *p;
    p->n_ctx = 8192;
    p->answers_size = (size_t) 64 << 20;
    struct request *r = begin_ok(API_CHAT, CHAT ", \"logprobs\": true, \"top_logprobs\": 20}");
    assert_true(r->reserved > ENGINE_MAX_ITEMS * 192 && r->reserved < (ENGINE_MAX_ITEMS + 21) * 200);
    request_free(r);
    refuse(API_CHAT, CHAT ", \"logprobs\": true, \"top_logprobs\": 20, \"max_tokens\": 4000}", 400, "too_many_logprobs");
    *p = old;
    assert_int_equal(sample.service.answers_reserved, 0);
}

static void test_metrics(void **state) {
    (void) state;
    struct metrics m = {.model = "m", .n_ctx = 64, .n_running = 3, .n_waiting = 5, .http_size = 7};
    struct berth_stream s;
    engine_stats(sample.engine, &m.engine);
    snprintf(m.engine.why_waiting, sizeof m.engine.why_waiting, "needs \"3\" pages");
    m.engine.waiting_kind = "pages";
    m.engine.first = (struct latency){.n = 0};
    static const int64_t times_us[] = {0, 500, 501, 60000000, 60000001};
    for (size_t i = 0; i < sizeof times_us / sizeof *times_us; i++) {
        latency_add(&m.engine.first, times_us[i]);
    }
    assert_true(berth_stream_open(&s));
    metrics_write(s.file, &m);
    assert_true(berth_stream_close(&s));
    assert_non_null(strstr(s.text, "\nberth_pool_tokens 1024\n"));
    assert_non_null(strstr(s.text, "\nberth_first_token_seconds_bucket{le=\"0.0005\"} 2\n"));
    assert_non_null(strstr(s.text, "\nberth_first_token_seconds_bucket{le=\"0.001\"} 3\n"));
    assert_non_null(strstr(s.text, "\nberth_first_token_seconds_bucket{le=\"60\"} 4\n"));
    assert_non_null(strstr(s.text, "\nberth_first_token_seconds_bucket{le=\"+Inf\"} 5\n"));
    assert_non_null(strstr(s.text, "\nberth_first_token_seconds_sum 120.001002\nberth_first_token_seconds_count 5\n"));
    assert_non_null(strstr(s.text, "\nberth_memory_bytes{kind=\"http\"} 7\n"));
    assert_non_null(
        strstr(s.text, "\nberth_waiting_reason{reason=\"pages\"} 1\n# The first sequence of the queue waits: needs "));
    assert_non_null(strstr(s.text, "\nberth_context_tokens 64\n"));
    assert_non_null(strstr(s.text, "\nberth_requests_running_limit 3\n"));
    assert_non_null(strstr(s.text, "\nberth_requests_waiting_limit 5\n"));
    berth_stream_fini(&s);
    for (int details = 0; details < 2; details++) {
        struct berth_json json;
        assert_true(berth_stream_open(&s));
        health_write(s.file, &m, details == 1);
        assert_true(berth_stream_close(&s));
        berth_json_init(&json, s.text, s.size, "health");
        assert_true(berth_json_skip(&json) && berth_json_done(&json));
        berth_json_fini(&json);
        assert_true((strstr(s.text, "needs") != NULL) == (details == 1));
        berth_stream_fini(&s);
    }
}

// The fake engine's cache has 1000 bytes per token, and nothing else.
static void test_plan(void **state) {
    (void) state;
    struct model model = {.params = {.n_ctx_train = 8192, .n_embd = 64}};
    struct http_params http = {.n_connections = 4};
    struct service_params service = {0};
    struct serve_question q = {
        .model = &model, .vocab = sample.vocab, .n_running = 4, .n_waiting = 4, .http = &http, .service = &service};
    struct serve_plan plan;
    struct model_error error = {""};
    assert_true(serve_plan_find(&q, &plan, &error)); // without a limit, each sequence has its context
    assert_int_equal(plan.engine.n_ctx, 4096);
    assert_int_equal(plan.engine.n_pool, 4 * 4096);
    assert_true(service.n_running == 4 && service.n_waiting == 4);
    assert_true(service.n_ctx == 4096 && service.n_requests == 4 && http.max_body > 4096 * 16);
    const size_t all = serve_plan_size(&plan);
    q.memory = all;
    assert_true(serve_plan_find(&q, &plan, &error) && plan.engine.n_pool == 4 * 4096);
    q.memory = all - 1; // one page less
    assert_true(serve_plan_find(&q, &plan, &error) && plan.engine.n_pool == 4 * 4096 - SERVE_PAGE);
    assert_true(serve_plan_size(&plan) <= q.memory);
    q.memory = all - 3 * 4096 * 1000;
    assert_true(serve_plan_find(&q, &plan, &error) && plan.engine.n_pool == 4096);
    q.memory--; // not even one sequence fits
    assert_false(serve_plan_find(&q, &plan, &error));
    assert_non_null(strstr(error.text, "one sequence of 4096 tokens needs"));
    q.memory = 0;
    q.n_running = 1000;
    assert_true(serve_plan_find(&q, &plan, &error) && plan.engine.n_batch == 2000);
    q.n_running = 4;
    error.text[0] = '\0';
    q.n_ctx = INT32_MAX;
    assert_false(serve_plan_find(&q, &plan, &error));
    assert_non_null(strstr(error.text, "more than this server can address"));
}

// Each allocation fails once. A request then fails with a status, and nothing stays reserved.
static void test_memory(void **state) {
    (void) state;
    static const struct {
        enum api_kind kind;
        const char *body;
    } cases[] = {
        {API_CHAT, CHAT ", \"max_tokens\": 3, \"logprobs\": true, \"response_format\": {\"type\": \"json_object\"}}"},
        {API_CHAT, CHAT ", \"max_tokens\": 3, \"stream\": true, \"n\": 2}"},
        {API_CHAT, WITH_CALLS "}"},
        {API_CHAT, WITH_CALLS ", \"stream\": true}"},
        {API_EMBEDDING, "{\"input\": [\"ship\", [1, 2]]}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tools_switch(strncmp(cases[i].body, WITH_CALLS, strlen(WITH_CALLS)) == 0 ? called : NULL);
        bool is_done = false;
        int n_failed = 0;
        for (int64_t n = 1; !is_done && n < 3000; n++) {
            struct api_error error = {0};
            berth_alloc_fail_at(n);
            struct request *r = request_new(&sample.service, cases[i].kind, cases[i].body, strlen(cases[i].body), &error);
            enum request_state end = REQUEST_FAILED;
            if (r != NULL) {
                end = finish(r);
            }
            berth_alloc_fail_at(0);
            is_done = end == REQUEST_DONE;
            n_failed += !is_done;
            assert_true(r == NULL ? error.status >= 400 : is_done || r->error.status == 500);
            request_free(r);
            assert_int_equal(sample.service.n_active, 0);
            assert_int_equal(fake.n_active, 0);
        }
        assert_true(is_done && n_failed > 5);
    }
    tools_switch(NULL);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_tools_stream),
        cmocka_unit_test(test_schema),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_engine_refusals),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_logprobs_limit),
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, open_sample, close_sample);
}
