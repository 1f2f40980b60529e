// SPDX-License-Identifier: MIT
// test_cpu_attn.c: attention of a sequence that decodes one token gives the same bits alone and together with other sequences: in
// a cache of its own with more (hidden) keys, and in one cache, with its keys at any places, for any number of threads.

#include "support/check.h"

#include "ggml-cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define D 64
#define HEADS 6
#define HEADS_KV 2
#define N_SEQ 5
#define N_KV 700 // most keys of a sequence
#define HIDDEN 0xfc00

static const int64_t n_keys[N_SEQ] = {N_KV, 1, 65, 300, 511};

static uint64_t seed = 88172645463325252u;

static uint64_t random_bits(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed >> 11;
}

static struct ggml_tensor *filled(struct ggml_context *ctx, enum ggml_type type, int64_t n, int64_t n_seq) {
    struct ggml_tensor *t = ggml_new_tensor_4d(ctx, type, D, HEADS_KV, n, n_seq);
    float row[D];
    for (int64_t i = 0; i < ggml_nrows(t); i++) {
        for (int j = 0; j < D; j++) {
            row[j] = (float) (random_bits() % 2000) / 1000 - 1;
        }
        char *to = (char *) t->data + (size_t) i * t->nb[1];
        if (type == GGML_TYPE_F32) {
            memcpy(to, row, sizeof row);
        } else {
            ggml_get_type_traits_cpu(type)->from_float(row, to, D);
        }
    }
    return t;
}

// A cache with room for n keys of each of n_seq sequences, and no keys.
struct cache {
    struct ggml_tensor *k, *v, *mask;
};

static struct cache cache_new(struct ggml_context *ctx, enum ggml_type type, int64_t n, int64_t n_token, int64_t n_seq) {
    struct cache c = {
        filled(ctx, type, n, n_seq), filled(ctx, type, n, n_seq), ggml_new_tensor_4d(ctx, GGML_TYPE_F16, n, n_token, 1, n_seq)};
    for (int64_t i = 0; i < ggml_nelements(c.mask); i++) {
        ((uint16_t *) c.mask->data)[i] = HIDDEN;
    }
    return c;
}

// Copies key i of the cache `from` to place `at` of sequence seq_to, and shows it to a token.
static void key_copy(const struct cache *to, int64_t at, int64_t token, int64_t seq_to, const struct cache *from, int64_t i) {
    memcpy((char *) to->k->data + (size_t) at * to->k->nb[2] + (size_t) seq_to * to->k->nb[3],
        (char *) from->k->data + (size_t) i * from->k->nb[2], from->k->nb[2]);
    memcpy((char *) to->v->data + (size_t) at * to->v->nb[2] + (size_t) seq_to * to->v->nb[3],
        (char *) from->v->data + (size_t) i * from->v->nb[2], from->v->nb[2]);
    ((uint16_t *) to->mask->data)[(seq_to * to->mask->ne[1] + token) * to->mask->ne[0] + at] = 0;
}

static const float *compute(struct ggml_context *ctx, struct ggml_tensor *q, const struct cache *c, int n_threads) {
    struct ggml_tensor *t = ggml_flash_attn_ext(ctx, ggml_permute(ctx, q, 0, 2, 1, 3), ggml_permute(ctx, c->k, 0, 2, 1, 3),
        ggml_permute(ctx, c->v, 0, 2, 1, 3), c->mask, 0.125f, 0.0f, 0.0f);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, t);
    assert_int_equal(ggml_graph_compute_with_ctx(ctx, graph, n_threads), GGML_STATUS_SUCCESS);
    return t->data;
}

static struct ggml_tensor *queries(struct ggml_context *ctx, int64_t n_token, int64_t n_seq, const float *from) {
    struct ggml_tensor *q = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, D, HEADS, n_token, n_seq);
    memcpy(q->data, from, ggml_nbytes(q));
    return q;
}

static void batch_test(enum ggml_type type, int n_threads) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t) 64 << 20});
    const size_t size = D * HEADS;
    float *q = malloc(N_SEQ * size * sizeof *q);
    for (size_t i = 0; i < N_SEQ * size; i++) {
        q[i] = (float) (random_bits() % 2000) / 1000 - 1;
    }
    const struct cache separate = cache_new(ctx, type, N_KV, 1, N_SEQ),
                       interleaved = cache_new(ctx, type, N_KV * N_SEQ, N_SEQ, 1),
                       scattered = cache_new(ctx, type, N_KV * N_SEQ * 2, N_SEQ, 1);
    const float *alone[N_SEQ];
    int64_t n_scattered = 0;
    for (int64_t s = 0; s < N_SEQ; s++) {
        const struct cache own = cache_new(ctx, type, n_keys[s], 1, 1);
        for (int64_t i = 0; i < n_keys[s]; i++) {
            key_copy(&own, i, 0, 0, &own, i);
            key_copy(&separate, i, 0, s, &own, i);
            key_copy(&interleaved, i * N_SEQ + s, s, 0, &own, i);
            n_scattered += 1 + (int64_t) (random_bits() % 2);
            key_copy(&scattered, n_scattered, s, 0, &own, i);
        }
        alone[s] = compute(ctx, queries(ctx, 1, 1, q + (size_t) s * size), &own, 1);
    }
    const float *together[] = {compute(ctx, queries(ctx, 1, N_SEQ, q), &separate, n_threads),
        compute(ctx, queries(ctx, N_SEQ, 1, q), &interleaved, n_threads),
        compute(ctx, queries(ctx, N_SEQ, 1, q), &scattered, n_threads)};
    for (int64_t s = 0; s < N_SEQ; s++) {
        for (int i = 0; i < 3; i++) {
            assert_memory_equal(together[i] + (size_t) s * size, alone[s], size * sizeof(float));
        }
    }
    free(q);
    ggml_free(ctx);
}

static void a_sequence_does_not_depend_on_the_batch(void **state) {
    (void) state;
    ggml_cpu_init();
    const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        for (int n_threads = 1; n_threads <= 3; n_threads++) {
            batch_test(types[i], n_threads);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_sequence_does_not_depend_on_the_batch)};
    return cmocka_run_group_tests_name("cpu_attn", tests, NULL, NULL);
}
