// SPDX-License-Identifier: MIT
// test_library.c: tests libberth (berth-model.h) with the tales model of the tests: opening, tokens, generated texts, chats,
// embeddings, stopping, wrong arguments, inputs of the planner, maps, and failing allocations.

#include "support/check.h"

#include "berth-model.h"
#include "gguf.h"

#include <math.h>
#include <stdlib.h>

#define MODEL "tests/data/tales-3m-q8_0.gguf"
#define PROMPT "Once upon a time"

static struct berth_model *model;
static struct berth_session *session;

static int model_setup(void **state) {
    (void) state;
    const struct berth_model_params params = {.device = "CPU", .n_threads = 1};
    model = berth_model_open(MODEL, &params);
    assert_non_null(model);
    session = berth_session_new(model, &(const struct berth_session_params){.n_ctx = 256, .cache_type = "q8_0,f16"});
    assert_non_null(session);
    return 0;
}

static int model_teardown(void **state) {
    (void) state;
    berth_session_free(session);
    berth_model_free(model);
    return 0;
}

static void assert_error(const char *part) {
    if (strstr(berth_last_error(), part) == NULL) {
        fail_msg("the error is '%s', expected '%s'", berth_last_error(), part);
    }
}

// ---- generated texts ----

struct text {
    char bytes[4096];
    size_t size;
    int n_pieces, max_pieces; // max_pieces 0: no limit
    int *flag;                // set when max_pieces are received; NULL: the callback returns false
};

static bool text_add(const char *text, size_t size, void *user) {
    struct text *t = user;
    assert_true(t->size + size < sizeof t->bytes);
    memcpy(t->bytes + t->size, text, size);
    t->size += size;
    t->bytes[t->size] = '\0';
    t->n_pieces++;
    if (t->max_pieces == 0 || t->n_pieces < t->max_pieces) {
        return true;
    }
    if (t->flag != NULL) {
        *t->flag = 1;
    }
    return t->flag != NULL;
}

static struct berth_generate_params params_make(struct text *t, int64_t max_tokens) {
    struct berth_generate_params p;
    berth_generate_params_init(&p);
    p.max_tokens = max_tokens;
    p.seed = 7;
    p.on_text = text_add;
    p.user_data = t;
    return p;
}

static void test_generate(void **state) {
    (void) state;
    struct text a = {.size = 0}, b = {.size = 0};
    struct berth_generate_result r;
    struct berth_generate_params p = params_make(&a, 20);
    assert_int_equal(berth_session_generate(session, PROMPT, strlen(PROMPT), &p, &r), GGML_STATUS_SUCCESS);
    assert_true(r.end == BERTH_END_TOKENS && r.n_generated == 20 && r.n_decoded == 19 && r.n_prompt == 10 && r.seed == 7);
    assert_int_equal(berth_session_n_past(session), 10 + 19);
    p.user_data = &b;
    assert_int_equal(berth_session_generate(session, PROMPT, strlen(PROMPT), &p, NULL), GGML_STATUS_SUCCESS);
    assert_true(a.size > 20);
    assert_string_equal(a.bytes, b.bytes);
    p.on_text = NULL;
    p.seed = -1;
    assert_int_equal(berth_session_generate(session, PROMPT, strlen(PROMPT), &p, &r), GGML_STATUS_SUCCESS);
    assert_true(r.seed >= 0);
}

static void test_ends(void **state) {
    (void) state;
    struct text t = {.size = 0};
    struct berth_generate_result r;
    struct berth_generate_params p = params_make(&t, -1);
    const char *stops[] = {"named"};
    p.stops = stops;
    p.n_stops = 1;
    p.temperature = 0;
    assert_int_equal(berth_session_generate(session, PROMPT, strlen(PROMPT), &p, &r), GGML_STATUS_SUCCESS);
    assert_true(r.end == BERTH_END_STOP && strstr(t.bytes, "named") == NULL);

    t = (struct text){.size = 0};
    p = params_make(&t, -1);
    p.json_schema = "{\"enum\": [\"yes\", \"no\"]}";
    assert_int_equal(berth_session_generate(session, PROMPT, strlen(PROMPT), &p, &r), GGML_STATUS_SUCCESS);
    assert_int_equal(r.end, BERTH_END_MODEL);
    assert_true(strcmp(t.bytes, "\"yes\"") == 0 || strcmp(t.bytes, "\"no\"") == 0);

    struct berth_session *small = berth_session_new(model, &(const struct berth_session_params){.n_ctx = 16});
    assert_non_null(small);
    const struct berth_token_bias bias = {berth_session_n_ctx(small) == 16 ? 2 : 0, -INFINITY};
    t = (struct text){.size = 0};
    p = params_make(&t, -1);
    p.biases = &bias;
    p.n_biases = 1;
    assert_int_equal(berth_session_generate(small, PROMPT, strlen(PROMPT), &p, &r), GGML_STATUS_SUCCESS);
    assert_int_equal(r.end, BERTH_END_CONTEXT);
    berth_session_free(small);
}

static void test_stop(void **state) {
    (void) state;
    int flag = 0;
    struct text t = {.max_pieces = 3};
    struct berth_generate_result r;
    struct berth_generate_params p = params_make(&t, -1);
    assert_int_equal(berth_session_generate(session, PROMPT, strlen(PROMPT), &p, &r), GGML_STATUS_ABORTED);
    assert_true(r.end == BERTH_END_ABORTED && t.n_pieces == 3);
    assert_error("stopped by the caller");

    t = (struct text){.max_pieces = 3, .flag = &flag};
    berth_model_set_stop(model, berth_flag_is_set, &flag);
    assert_int_equal(berth_session_generate(session, PROMPT, strlen(PROMPT), &p, &r), GGML_STATUS_ABORTED);
    assert_true(r.end == BERTH_END_ABORTED && r.n_generated >= 3 && r.n_generated <= 4);
    const int32_t tokens[] = {1, 2, 3};
    berth_session_reset(session);
    assert_int_equal(berth_session_decode(session, tokens, 3), GGML_STATUS_ABORTED);
    berth_model_set_stop(model, NULL, NULL);
    berth_session_reset(session);
    assert_int_equal(berth_session_decode(session, tokens, 3), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_session_n_past(session), 3);
    assert_non_null(berth_session_logits(session));
}

static void test_refused_params(void **state) {
    (void) state;
    struct text t = {.size = 0};
    const char *empty = "";
    struct berth_generate_params p = params_make(&t, 4);
    p.temperature = -1;
    assert_int_equal(berth_session_generate(session, PROMPT, 4, &p, NULL), GGML_STATUS_FAILED);
    assert_error("temperature is -1; it must be 0 to 1e+06");
    p = params_make(&t, 4);
    p.top_p = NAN;
    assert_int_equal(berth_session_generate(session, PROMPT, 4, &p, NULL), GGML_STATUS_FAILED);
    assert_error("top_p");
    p = params_make(&t, 4);
    p.stops = &empty;
    p.n_stops = 1;
    assert_int_equal(berth_session_generate(session, PROMPT, 4, &p, NULL), GGML_STATUS_FAILED);
    assert_error("stop text 1 is empty");
    p = params_make(&t, 4);
    p.grammar = "root ::= missing";
    assert_int_equal(berth_session_generate(session, PROMPT, 4, &p, NULL), GGML_STATUS_FAILED);
    assert_error("grammar");
    p.json_schema = "{}";
    assert_int_equal(berth_session_generate(session, PROMPT, 4, &p, NULL), GGML_STATUS_FAILED);
    assert_error("cannot be combined");
    char long_prompt[2000];
    memset(long_prompt, 'x', sizeof long_prompt);
    assert_int_equal(berth_session_generate(session, long_prompt, sizeof long_prompt, NULL, NULL), GGML_STATUS_FAILED);
    assert_error("but the context has 256 positions");
    const int32_t wrong = 1 << 30;
    assert_int_equal(berth_session_decode(session, &wrong, 1), GGML_STATUS_FAILED);
    assert_error("is not in the vocabulary");
    assert_null(berth_session_new(model, &(const struct berth_session_params){.cache_type = "q9"}));
    assert_error("cache_type 'q9'");
}

// ---- tokens ----

static void test_tokens(void **state) {
    (void) state;
    int32_t tokens[64];
    char text[64];
    struct berth_model_info info;
    berth_model_info(model, &info);
    assert_string_equal(info.arch, "llama");
    assert_true(info.n_vocab > 0 && info.n_embd > 0 && info.bos >= 0 && berth_model_is_end(model, info.eos));
    assert_true(gguf_find_key(berth_model_keys(model), "general.architecture") >= 0);
    const int64_t n = berth_model_tokenize(model, PROMPT, strlen(PROMPT), 0, tokens, 64);
    assert_int_equal(berth_model_tokenize(model, PROMPT, strlen(PROMPT), BERTH_TOKENIZE_ADD, NULL, 0), n + 1);
    assert_int_equal(berth_model_tokenize(model, PROMPT, strlen(PROMPT), 0, tokens, 1), n);
    const int64_t size = berth_model_detokenize(model, tokens, n, text, sizeof text);
    assert_true(size >= (int64_t) strlen(PROMPT) && size < 64);
    assert_memory_equal(text + size - strlen(PROMPT), PROMPT, strlen(PROMPT));
    assert_int_equal(berth_model_detokenize(model, tokens, n, text, 3), size);
    assert_int_equal(berth_model_detokenize(model, tokens, n, NULL, 0), size);
    tokens[0] = -5;
    assert_int_equal(berth_model_detokenize(model, tokens, n, text, 3), -1);
    assert_error("token -5");
    assert_false(berth_model_is_end(model, -5));
}

// ---- chats ----

static enum ggml_status chat_ask(struct berth_chat *chat, const char *text, struct text *t, struct berth_generate_result *r) {
    const struct berth_generate_params p = params_make(t, 12);
    assert_int_equal(berth_chat_add(chat, "user", text, strlen(text)), GGML_STATUS_SUCCESS);
    return berth_chat_answer(chat, &p, r);
}

// An answer with the conversation in the cache must be the answer to the same messages without the cache.
static void test_chat(void **state) {
    (void) state;
    struct text first = {.size = 0}, second = {.size = 0}, again = {.size = 0};
    struct berth_generate_result cached, fresh;
    const char *role, *text;
    struct berth_chat *chat = berth_chat_new(session, "chatml");
    assert_non_null(chat);
    assert_int_equal(chat_ask(chat, "Tell me a tale.", &first, &cached), GGML_STATUS_SUCCESS);
    assert_int_equal(chat_ask(chat, "And then?", &second, &cached), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_chat_n_messages(chat), 4);
    assert_true(berth_chat_message(chat, 3, &role, &text) && !berth_chat_message(chat, 4, &role, &text));
    assert_string_equal(role, "assistant");
    assert_string_equal(text, second.bytes);
    berth_chat_free(chat);

    chat = berth_chat_new(session, "chatml");
    assert_int_equal(berth_chat_add(chat, "user", "Tell me a tale.", 15), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_chat_add(chat, "assistant", first.bytes, first.size), GGML_STATUS_SUCCESS);
    assert_int_equal(chat_ask(chat, "And then?", &again, &fresh), GGML_STATUS_SUCCESS);
    assert_true(fresh.n_prompt > cached.n_prompt);

    // Another call on the session empties the cache, so the next answer processes all messages.
    assert_int_equal(berth_session_generate(session, PROMPT, 4,
                         &(struct berth_generate_params){.max_tokens = 1, .typical = 1, .top_p = 1, .repeat_penalty = 1}, NULL),
        GGML_STATUS_SUCCESS);
    again = (struct text){.size = 0};
    assert_int_equal(chat_ask(chat, "The end?", &again, &cached), GGML_STATUS_SUCCESS);
    assert_true(cached.n_prompt > fresh.n_prompt);

    assert_int_equal(berth_chat_answer(chat, NULL, NULL), GGML_STATUS_FAILED);
    assert_error("last message is the user's");
    assert_int_equal(berth_chat_add(chat, "pirate", "x", 1), GGML_STATUS_FAILED);
    assert_error("unknown role 'pirate'");
    const int64_t n = berth_chat_n_messages(chat);
    assert_int_equal(berth_chat_add(chat, "user", "x", 1), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_chat_answer(chat, &(struct berth_generate_params){.temperature = -1}, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_chat_n_messages(chat), n); // the user's message is removed
    berth_chat_free(chat);
    assert_null(berth_chat_new(session, "nonsense"));
    assert_error("nonsense");
}

// ---- embeddings and memory ----

static double length_of(const float *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double) x[i] * (double) x[i];
    }
    return sqrt(sum);
}

static void test_embed(void **state) {
    (void) state;
    struct berth_model_info info;
    struct berth_session_memory memory;
    berth_model_info(model, &info);
    struct berth_session *s = berth_session_new(model, &(const struct berth_session_params){.n_ctx = 32, .is_embedding = true});
    float *mean = calloc((size_t) info.n_embd, sizeof *mean), *last = calloc((size_t) info.n_embd, sizeof *last);
    assert_true(s != NULL && mean != NULL && last != NULL);
    assert_int_equal(berth_session_embed(s, "a ship", 6, false, false, mean), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_session_embed(s, "a ship", 6, true, true, last), GGML_STATUS_SUCCESS);
    assert_true(fabs(length_of(mean, info.n_embd) - 1) < 1e-5 && fabs(length_of(last, info.n_embd) - 1) > 1e-3);
    assert_int_equal(berth_session_generate(s, PROMPT, 4, NULL, NULL), GGML_STATUS_FAILED);
    assert_error("computes embeddings");
    assert_int_equal(berth_session_embed(session, "a ship", 6, false, false, mean), GGML_STATUS_FAILED);
    assert_error("is_embedding");
    assert_true(berth_session_memory(s, 0, &memory) && !berth_session_memory(s, 1, &memory));
    assert_true(memory.weights > 0 && memory.cache > 0 && memory.compute >= memory.bound && memory.bound > 0);
    berth_session_free(s);
    free(mean);
    free(last);
}

// ---- plans ----

static void test_plan(void **state) {
    (void) state;
    struct berth_plan_set *set;
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(
        berth_plan_input_read(MODEL, &(const struct berth_plan_input_params){.n_ctx = 64}, &set), GGML_STATUS_SUCCESS);
    assert_true(set->n_items > 0 && !set->has_offsets);
    uint64_t *offsets = calloc((size_t) set->n_items, sizeof *offsets);
    assert_int_equal(berth_plan_solve(set->items, set->n_items, NULL, offsets, NULL), GGML_STATUS_SUCCESS);
    for (int format = BERTH_MAP_SVG; format <= BERTH_MAP_HTML; format++) {
        FILE *file = open_memstream(&text, &size);
        assert_int_equal(berth_plan_map(set, offsets, "tales", (enum berth_map_format) format, file), GGML_STATUS_SUCCESS);
        fclose(file);
        assert_non_null(strstr(text, format == BERTH_MAP_SVG ? "<svg" : "<!doctype html>"));
        assert_non_null(strstr(text, "tales"));
        free(text);
    }
    offsets[0] = offsets[1] = 0;
    set->items[0] = (struct berth_plan_item){.size = 8};
    set->items[1] = (struct berth_plan_item){.size = 8};
    assert_int_equal(berth_plan_map(set, offsets, NULL, BERTH_MAP_SVG, stdout), GGML_STATUS_FAILED);
    assert_error("not a valid plan");
    free(offsets);
    berth_plan_set_free(set);
    assert_int_equal(berth_plan_input_read("/nowhere.csv", NULL, &set), GGML_STATUS_FAILED);
    assert_null(set);
}

// ---- NULL, missing files, failing allocations ----

static void test_null(void **state) {
    (void) state;
    struct berth_model_info info;
    assert_null(berth_model_open("/nowhere.gguf", NULL));
    assert_error("/nowhere.gguf: cannot be read");
    assert_null(berth_model_open(MODEL, &(const struct berth_model_params){.n_threads = -1}));
    assert_null(berth_model_open(MODEL, &(const struct berth_model_params){.device = "nothing"}));
    berth_model_free(NULL);
    berth_session_free(NULL);
    berth_chat_free(NULL);
    berth_model_info(NULL, &info);
    assert_true(info.path == NULL && info.bos == -1);
    assert_null(berth_model_keys(NULL));
    assert_null(berth_session_new(NULL, NULL));
    assert_null(berth_chat_new(NULL, NULL));
    assert_null(berth_session_logits(NULL));
    assert_false(berth_session_memory(NULL, 0, NULL) || berth_flag_is_set(NULL) || berth_model_is_end(NULL, 0));
    assert_int_equal(berth_model_tokenize(NULL, "x", 1, 0, NULL, 0), -1);
    assert_int_equal(berth_model_detokenize(NULL, NULL, 0, NULL, 0), -1);
    assert_int_equal(berth_session_generate(NULL, "x", 1, NULL, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_session_decode(NULL, NULL, 0), GGML_STATUS_FAILED);
    assert_int_equal(berth_session_embed(NULL, NULL, 0, false, false, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_chat_add(NULL, NULL, NULL, 0), GGML_STATUS_FAILED);
    assert_int_equal(berth_chat_answer(NULL, NULL, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_plan_input_read(NULL, NULL, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_plan_map(NULL, NULL, NULL, BERTH_MAP_SVG, NULL), GGML_STATUS_FAILED);
    assert_true(berth_session_n_ctx(NULL) == 0 && berth_session_n_past(NULL) == 0 && berth_chat_n_messages(NULL) == 0);
    berth_session_reset(NULL);
    berth_model_set_stop(NULL, NULL, NULL);
    berth_generate_params_init(NULL);
}

// Nothing is left after a model is closed.
static void test_frees_all(void **state) {
    (void) state;
    struct text t = {.size = 0};
    const struct berth_generate_params p = params_make(&t, 2);
    berth_alloc_watch(true);
    struct berth_model *m = berth_model_open(MODEL, &(const struct berth_model_params){.device = "CPU", .n_threads = 1});
    struct berth_session *s = berth_session_new(m, &(const struct berth_session_params){.n_ctx = 64});
    struct berth_chat *chat = berth_chat_new(s, "chatml");
    assert_int_equal(berth_session_generate(s, PROMPT, strlen(PROMPT), &p, NULL), GGML_STATUS_SUCCESS);
    assert_int_equal(chat_ask(chat, "Hello.", &t, NULL), GGML_STATUS_SUCCESS);
    assert_null(berth_session_new(m, &(const struct berth_session_params){.n_ctx = -1}));
    berth_chat_free(chat);
    berth_session_free(s);
    berth_model_free(m);
    assert_true(berth_alloc_made() > 0);
    assert_int_equal(berth_alloc_alive(), 0);
    berth_alloc_watch(false);
}

// Each allocation of a call fails once. The call must fail with a message, and the next one must succeed.
static void test_out_of_memory(void **state) {
    (void) state;
    bool is_done = false;
    int64_t n_failed = 0;
    for (int64_t i = 1; !is_done; i++) {
        struct text t = {.size = 0};
        struct berth_generate_params p = params_make(&t, 3);
        p.grammar = "root ::= [a-z ]*";
        berth_alloc_fail_at(i);
        struct berth_chat *chat = berth_chat_new(session, "chatml");
        enum ggml_status status = chat != NULL ? berth_chat_add(chat, "user", "Hello.", 6) : GGML_STATUS_FAILED;
        if (status == GGML_STATUS_SUCCESS) {
            status = berth_chat_answer(chat, &p, NULL);
        }
        berth_alloc_fail_at(0);
        berth_chat_free(chat);
        is_done = status == GGML_STATUS_SUCCESS;
        n_failed += !is_done;
        assert_true(is_done || berth_last_error()[0] != '\0');
        assert_true(i < 2000);
    }
    assert_true(n_failed > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generate),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_refused_params),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_frees_all),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, model_setup, model_teardown);
}
