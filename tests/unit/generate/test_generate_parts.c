// SPDX-License-Identifier: MIT
// test_generate_parts.c: tests the parts of the token loop without a model: stop words across tokens, log probabilities, schemas as
// grammars, and saved conversations. Parts that allocate memory also run with each allocation failing once.

#include "base/json.h"
#include "support/vocab_sample.h"

#include "base/base.h"
#include "generate/conversation.h"

#include <math.h>

static struct vocab *vocab_make(struct gguf_context **keys) {
    struct sample_vocab v;
    struct model_error error = {""};
    sample_vocab_init(&v);
    *keys = sample_vocab_keys(&v, "gpt-2");
    struct vocab *vocab = vocab_new(*keys, (int64_t) v.n_tokens, &error);
    assert_non_null(vocab);
    sample_vocab_fini(&v);
    return vocab;
}

// Writes `bytes` with one token per byte. Returns false if memory runs out.
static bool bytes_write(const struct vocab *v, const char *bytes, const char *const *stops, int n_stops, bool is_terminal,
    struct berth_stream *out, bool *is_over) {
    struct text_writer w = {0};
    bool ok = berth_stream_open(out) && text_writer_init(&w, v, stops, n_stops, out->file);
    w.is_terminal = is_terminal;
    for (const char *at = bytes; ok && *at != '\0' && !w.filter.is_over; at++) {
        ok = text_writer_put(&w, (uint8_t) *at);
    }
    ok = ok && text_writer_end(&w);
    *is_over = w.filter.is_over;
    text_writer_fini(&w);
    return berth_stream_close(out) && ok;
}

static void text_check(
    const struct vocab *v, const char *bytes, const char *const *stops, int n_stops, bool is_terminal, const char *want) {
    struct berth_stream out;
    bool is_over;
    assert_true(bytes_write(v, bytes, stops, n_stops, is_terminal, &out, &is_over));
    assert_string_equal(out.text, want);
    assert_int_equal(is_over, strlen(want) < strlen(bytes) && n_stops > 0);
    berth_stream_fini(&out);
}

static void test_stops(void **state) {
    (void) state;
    static const char *const stops[] = {"abab", "END"};
    struct gguf_context *keys;
    struct vocab *v = vocab_make(&keys);
    text_check(v, "plain text", NULL, 0, false, "plain text");
    text_check(v, "a tale END of it", stops, 2, false, "a tale ");
    text_check(v, "x abaabab y", stops, 2, false, "x aba"); // the beginning of a stop word, then a complete one
    text_check(v, "ends in ababEN", stops + 1, 1, false, "ends in ababEN");
    text_check(v, "a dab", (const char *const[]){"b", "abc"}, 2, false, "a da"); // a complete one within the beginning of another
    text_check(v, "aba", stops, 2, false, "aba");                                // held until the end of the text
    text_check(v, "\xC3\xA4 END", stops, 2, false, "\xC3\xA4 ");
    text_check(v, "cut \xC3", NULL, 0, false, "cut \xEF\xBF\xBD");
    text_check(v, "bell \a, \x1B[2J, \xC2\x9B", NULL, 0, true, "bell ?, ?[2J, ??");
    text_check(v, "bell \a", NULL, 0, false, "bell \a");
    for (int64_t n = 1, is_complete = 0; !is_complete; n++) {
        struct berth_stream out;
        bool is_over;
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        is_complete = bytes_write(v, "a tale END", stops, 2, false, &out, &is_over);
        berth_alloc_fail_at(0);
        assert_true(is_complete || n < 20);
        berth_stream_fini(&out);
        assert_int_equal(berth_alloc_alive(), 0);
    }
    vocab_free(v);
    gguf_free(keys);
}

static void test_logprobs(void **state) {
    (void) state;
    const float logits[] = {logf(0.1f) + 7, NAN, logf(0.6f) + 7, logf(0.3f) + 7, -INFINITY};
    struct gguf_context *keys;
    struct vocab *v = vocab_make(&keys);
    struct logprobs l = {.n_top = 2};
    for (int i = 0; i < 200; i++) {
        assert_true(logprobs_compute(&l, logits, 5));
        logprobs_choose(&l, logits, 0);
    }
    assert_true(logprobs_compute(&l, logits, 5));
    logprobs_drop(&l);
    logprobs_drop(NULL);
    assert_int_equal(l.n, 200);
    const struct logprob *last = l.items + 199 * 3;
    assert_int_equal(last[0].token, 0);
    assert_int_equal(last[1].token, 2);
    assert_int_equal(last[2].token, 3);
    assert_true(fabsf(last[0].log - logf(0.1f)) < 1e-5f && fabsf(last[1].log - logf(0.6f)) < 1e-5f);
    l.n = 1;
    struct berth_stream out;
    assert_true(berth_stream_open(&out));
    logprobs_write(&(struct berth_json_writer){.file = out.file}, NULL, &l, v);
    assert_true(berth_stream_close(&out));
    assert_non_null(strstr(out.text, "[{\"token\": 0, \"text\": \"\\u0000\", \"logprob\": -2.30259, \"top\": [{\"token\": 2, "));
    berth_stream_fini(&out);
    logprobs_fini(&l);
    l.n_top = 8; // more than there are tokens
    assert_true(logprobs_compute(&l, logits, 5));
    assert_int_equal(l.items[4].token, 4);
    assert_int_equal(l.items[5].token, -1);
    logprobs_fini(&l);
    berth_alloc_watch(true);
    berth_alloc_fail_at(1);
    assert_false(logprobs_compute(&l, logits, 5));
    berth_alloc_fail_at(0);
    assert_int_equal(l.n, 0);
    assert_int_equal(berth_alloc_alive(), 0);
    vocab_free(v);
    gguf_free(keys);
}

// Returns whether the grammar of a schema allows a text, byte by byte, and its end.
static bool schema_allows(const char *schema, const struct vocab *v, const char *text) {
    static float logits[SAMPLE_MAX_TOKENS];
    struct model_error error = {""};
    struct text_guide g;
    const struct guide_source source = {.text = schema, .size = strlen(schema), .name = "made", .is_schema = true};
    assert_true(text_guide_open(&g, &source, v, &error));
    bool ok = true;
    for (const char *at = text; ok && *at != '\0'; at++) {
        memset(logits, 0, sizeof logits);
        assert_true(guide_mask(g.guide, logits, v->n_tokens, &error) >= 0);
        ok = logits[(uint8_t) *at] == 0 && guide_accept(g.guide, (uint8_t) *at, &error);
    }
    memset(logits, 0, sizeof logits);
    ok = ok && guide_mask(g.guide, logits, v->n_tokens, &error) >= 0 && logits[v->eos] == 0;
    text_guide_close(&g);
    return ok;
}

static bool stop_always(void *user) {
    (void) user;
    return true;
}

static void schema_refuse(const char *schema, ggml_abort_callback stop, const char *want) {
    struct model_error error = {""};
    const struct guide_source source = {.text = schema, .size = strlen(schema), .name = "made", .stop = stop};
    assert_null(schema_to_grammar(&source, &error));
    assert_non_null(strstr(error.text, want));
}

static void test_schema(void **state) {
    (void) state;
    static const char object[] = "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 3}, "
                                 "\"of\": {\"enum\": [\"a\\n\", 2, null]}}, \"required\": [\"name\"]}";
    struct gguf_context *keys;
    struct vocab *v = vocab_make(&keys);
    assert_true(schema_allows(object, v, "{\"name\":\"abc\"}"));
    assert_true(schema_allows(object, v, "{\"name\":\"\",\"of\":2}"));
    assert_true(schema_allows(object, v, "{\"name\":\"\",\"of\":\"a\\n\"}"));
    assert_false(schema_allows(object, v, "{\"name\":\"abcd\"}"));
    assert_false(schema_allows(object, v, "{\"of\":2}"));
    schema_refuse("", NULL, "made: the schema is empty");
    schema_refuse("{", NULL, "made:1");
    schema_refuse(
        "{\"type\": \"number\", \"minimum\": 3}", NULL, "made: key 'minimum' is not supported: a grammar cannot express it");
    schema_refuse(object, stop_always, "made: interrupted while the schema was read");
    for (int64_t n = 1, is_complete = 0; !is_complete; n++) {
        struct model_error error = {""};
        struct text_guide g;
        const struct guide_source source = {.text = object, .size = strlen(object), .name = "made", .is_schema = true};
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        is_complete = text_guide_open(&g, &source, v, &error);
        berth_alloc_fail_at(0);
        assert_int_equal(is_complete, error.text[0] == '\0');
        assert_true(is_complete || strncmp(error.text, "made:", 5) == 0);
        text_guide_close(&g);
        assert_int_equal(berth_alloc_alive(), 0);
    }
    vocab_free(v);
    gguf_free(keys);
}

// ---- saved conversations ----

static const char spoken[] = "a \"b\"\n\tc";

static void history_refuse(struct chat_history *h, const char *text, const char *want) {
    struct model_error error = {""};
    assert_false(chat_history_read(h, text, strlen(text), "made", &error));
    assert_non_null(strstr(error.text, want));
    assert_true(h->n == 2 && strcmp(h->messages[1].text, spoken) == 0); // unchanged
}

static void test_history(void **state) {
    (void) state;
    static const char other[] = "{\"x\": [1], \"messages\": [{\"content\": \"a\", \"y\": null, \"content\": \"b\", \"role\": "
                                "\"assistant\"}]}";
    struct chat_history h = {0}, read = {0};
    struct berth_stream stream;
    struct model_error error = {""};
    assert_true(chat_history_add(&h, CHAT_SYSTEM, "", 0) && chat_history_add(&h, CHAT_USER, spoken, strlen(spoken)));
    assert_true(berth_stream_open(&stream));
    chat_history_write(&h, stream.file);
    assert_true(berth_stream_close(&stream));
    assert_true(chat_history_read(&read, stream.text, stream.size, "made", &error));
    assert_int_equal(read.n, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(read.messages[i].role, h.messages[i].role);
        assert_string_equal(read.messages[i].text, h.messages[i].text);
    }
    assert_true(chat_history_read(&read, other, strlen(other), "made", &error)); // any order; the last of equal keys counts
    assert_true(read.n == 1 && read.messages[0].role == CHAT_ASSISTANT && strcmp(read.messages[0].text, "b") == 0);
    history_refuse(&h, "", "made:1");
    history_refuse(&h, "{}", "made: not a conversation");
    history_refuse(&h, "{\"messages\": [{\"role\": \"user\"}]}", "made: not a conversation");
    history_refuse(&h, "{\"messages\": [{\"role\": \"tool\", \"content\": \"x\"}]}", "made: not a conversation");
    history_refuse(&h, "{\"messages\": [{\"role\": \"user\", \"content\": 3}]}", "made:1:");
    chat_history_fini(&h);
    chat_history_fini(&read);
    for (int64_t n = 1, is_complete = 0; !is_complete; n++) {
        error.text[0] = '\0';
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        is_complete = chat_history_read(&read, stream.text, stream.size, "made", &error);
        berth_alloc_fail_at(0);
        assert_true(is_complete ? read.n == 2 : strstr(error.text, "memory") != NULL && read.n == 0);
        chat_history_fini(&read);
        assert_int_equal(berth_alloc_alive(), 0);
    }
    berth_stream_fini(&stream);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stops), cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_schema), cmocka_unit_test(test_history)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
