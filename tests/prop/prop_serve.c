// SPDX-License-Identifier: MIT
// prop_serve.c: several clients send random requests to one engine with a small cache. They read slowly, cancel, or go away. No admitted
// request fails, and at the end all pages are free. Requests that complete have the text of the same request alone.

#include "support/engine_sample.h"

#include <stdatomic.h>

#define N_CLIENTS 4
#define N_KINDS 6

struct client {
    struct engine *engine;
    struct check_rng rng;
    pthread_t thread;
    int n_requests;
    int n_done, n_cancelled, n_full;
    atomic_int *n_different;
};

// Requests are of few kinds, so that prefixes are shared and the text of each is known.
static struct answer kinds[N_KINDS];

static void kinds_make(struct check_rng *rng) {
    for (size_t i = 0; i < N_KINDS; i++) {
        kinds[i] = answer_of(i, 8 + (int64_t) check_rng_below(rng, 60), i % 2 == 0 ? 0 : 0.9f);
        struct model_error error = {""};
        for (uint64_t n = check_rng_below(rng, 3); n > 0; n--) { // longer prompts, in several chunks
            const char *more = prompts[check_rng_below(rng, N_PROMPTS)];
            assert_true(vocab_encode(bench.vocab, more, strlen(more), ENCODE_PLAIN, &kinds[i].tokens, &error));
        }
        kinds[i].r.tokens = kinds[i].tokens.ids;
        kinds[i].r.n_tokens = (int64_t) kinds[i].tokens.n;
    }
}

static void request_run(struct client *c) {
    const size_t kind = check_rng_below(&c->rng, N_KINDS);
    const uint64_t what = check_rng_below(&c->rng, 4); // 0: goes away, 1: cancels, otherwise reads to the end
    struct answer a = kinds[kind];
    struct model_error error = {""};
    a.n_text = 0;
    a.r.is_embedding = check_rng_below(&c->rng, 10) == 0;
    const enum engine_status status = engine_submit(c->engine, &a.r, &a.ticket, NULL, &error);
    if (status == ENGINE_FULL) {
        c->n_full++;
        usleep(1000);
        return;
    }
    assert_int_equal(status, ENGINE_OK);
    for (uint64_t n = check_rng_below(&c->rng, 12); what < 2 && n > 0; n--) {
        answer_read(&a, 1000);
    }
    if (what == 0) {
        engine_release(a.ticket);
        c->n_cancelled++;
        return;
    }
    if (what == 1) {
        engine_cancel(a.ticket);
    }
    if (check_rng_below(&c->rng, 8) == 0) {
        usleep(20000); // a slow reader
    }
    answer_finish(&a);
    assert_int_not_equal(a.last.end, ENGINE_ERROR);
    if (a.last.end == ENGINE_CANCELLED) {
        c->n_cancelled++;
        return;
    }
    c->n_done++;
    if (!a.r.is_embedding && strcmp(a.text, kinds[kind].text) != 0) {
        atomic_fetch_add(c->n_different, 1);
    }
}

static void *client_run(void *user) {
    struct client *c = user;
    for (int i = 0; i < c->n_requests; i++) {
        request_run(c);
    }
    return NULL;
}

static void test_clients(void **state) {
    (void) state;
    struct check_rng rng = check_rng_new(check_seed(1));
    static struct client clients[N_CLIENTS];
    atomic_int n_different = 0;
    int n_done = 0, n_cancelled = 0;
    kinds_make(&rng);
    struct engine *e = engine_open(1, N_CTX, true);
    for (size_t i = 0; i < N_KINDS; i++) {
        answer_submit(e, &kinds[i]);
        answer_finish(&kinds[i]);
    }
    engine_free(e);
    e = engine_open(3, 320, true);
    for (size_t i = 0; i < N_CLIENTS; i++) {
        clients[i] = (struct client){
            .engine = e, .rng = check_rng_new(check_rng_next(&rng)), .n_requests = check_cases(100), .n_different = &n_different};
        assert_int_equal(pthread_create(&clients[i].thread, NULL, client_run, &clients[i]), 0);
    }
    for (size_t i = 0; i < N_CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        n_done += clients[i].n_done;
        n_cancelled += clients[i].n_cancelled;
    }
    const struct engine_stats stats = stats_when_idle(e);
    assert_int_equal(n_different, 0);
    assert_int_equal(stats.n_failed, 0);
    assert_int_equal(stats.n_done + stats.n_cancelled, stats.n_requests);
    assert_true(n_done > 0 && n_done + n_cancelled == stats.n_requests);
    assert_int_equal(stats.n_used, 0);
    engine_close(e, 0);
    assert_true(pages_check(e->pool->pages));
    engine_free(e);
    for (size_t i = 0; i < N_KINDS; i++) {
        answer_fini(&kinds[i]);
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clients)};
    return cmocka_run_group_tests_name("serve", tests, bench_open, bench_close);
}
