// SPDX-License-Identifier: MIT
// test_cpu_attn.c: attention of a sequence that decodes one token gives the same bits alone and together with other sequences: in
// a cache of its own with more (hidden) keys, and in one cache, with its keys at any places, for any number of threads. Attention
// of a prompt gives the same bits for any number of threads. The work memory of attention has a limit.

#include "support/check.h"

#include "berth-cpu.h"
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
        for (int n_threads = 1; n_threads <= 5; n_threads++) {
            batch_test(types[i], n_threads);
        }
    }
}

// Computes a prompt of n_token tokens. All tokens see all keys.
static void prompt_test(enum ggml_type type, int64_t n_token) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t) 64 << 20});
    const size_t n = (size_t) (D * HEADS * n_token);
    float *q = malloc(n * sizeof *q);
    for (size_t i = 0; i < n; i++) {
        q[i] = (float) (random_bits() % 2000) / 1000 - 1;
    }
    const struct cache c = cache_new(ctx, type, 3 * N_KV, n_token, 1);
    memset(c.mask->data, 0, ggml_nbytes(c.mask));
    const float *first = compute(ctx, queries(ctx, n_token, 1, q), &c, 1);
    for (int n_threads = 2; n_threads <= 5; n_threads++) {
        assert_memory_equal(compute(ctx, queries(ctx, n_token, 1, q), &c, n_threads), first, n * sizeof(float));
    }
    free(q);
    ggml_free(ctx);
}

static void a_prompt_does_not_depend_on_threads(void **state) {
    (void) state;
    const int64_t n_tokens[] = {1, 2, 5, 21, 22, 70}; // from 22 tokens on, units have panels
    for (size_t i = 0; i < sizeof n_tokens / sizeof n_tokens[0]; i++) {
        prompt_test(GGML_TYPE_F16, n_tokens[i]);
        prompt_test(GGML_TYPE_F32, n_tokens[i]);
        prompt_test(GGML_TYPE_Q8_0, n_tokens[i]);
    }
}

// ---- work memory ----

struct shape {
    int64_t d_k, d_v, n_kv, n_head, n_head_kv, n_token, n_seq;
};

struct sizes {
    size_t plan, reserve; // bytes of ggml_graph_plan and berth_cpu_reserve_size
};

static struct sizes sizes_of(ggml_backend_t cpu, const struct shape *z, enum ggml_type type, int n_threads) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_tensor *q = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, z->d_k, z->n_token, z->n_head, z->n_seq),
                       *k = ggml_new_tensor_4d(ctx, type, z->d_k, z->n_kv, z->n_head_kv, z->n_seq),
                       *v = ggml_new_tensor_4d(ctx, type, z->d_v, z->n_kv, z->n_head_kv, z->n_seq),
                       *mask = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, z->n_kv, z->n_token, 1, z->n_seq);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 16, false);
    ggml_build_forward_expand(graph, ggml_flash_attn_ext(ctx, q, k, v, mask, 0.125f, 0.0f, 0.0f));
    ggml_backend_cpu_set_n_threads(cpu, n_threads);
    const struct sizes sizes = {ggml_graph_plan(graph, n_threads, NULL).work_size, berth_cpu_reserve_size(cpu, graph)};
    ggml_free(ctx);
    return sizes;
}

// The limit in bytes: the sums of 16 spans of a full unit, and per thread the sums of one span, the scores of 64 keys, 64 rows of
// k or v and the queries; with panels also those of 64 keys, 64 values and the weights, and a product.
static size_t limit_of(const struct shape *z, int n_threads) {
    const int64_t n_queries = z->n_head / z->n_head_kv * z->n_token, q_rows = n_queries >= 64 ? 64 : 16;
    const int64_t sums = (q_rows * (z->d_v + 2) + 15) / 16 * 16;
    const int64_t panels = 64 * (2 * z->d_k + 2 * z->d_v + 64), queries_f16 = q_rows * z->d_k / 2;
    const int64_t task = sums + q_rows * 64 + 64 * (z->d_k > z->d_v ? z->d_k : z->d_v) + (n_queries >= 64 ? panels : queries_f16);
    const int64_t joined = z->n_kv > 256 ? 16 * sums : 0;
    return (size_t) (joined + task * n_threads) * sizeof(float) + 128;
}

static void work_memory_has_a_limit(void **state) {
    (void) state;
    ggml_backend_t cpu = ggml_backend_cpu_init();
    const int64_t heads[][2] = {{8, 8}, {32, 8}, {12, 4}, {16, 1}, {128, 1}, {40, 40}},
                  dims[][2] = {{32, 32}, {64, 64}, {80, 80}, {96, 64}, {128, 128}, {256, 256}, {576, 512}};
    const int64_t n_kv[] = {1, 256, 257, 1024, 4096, 8192}, n_tokens[] = {512, 100, 17, 5, 4, 2, 1}, n_seqs[] = {8, 3, 1};
    const int n_threads[] = {1, 2, 3, 8, 16, 17, 64};
    for (int i = 0; i < 6 * 7 * 6 * 7; i++) {
        const int64_t *h = heads[i % 6], *d = dims[i / 6 % 7], n = n_kv[i / 42 % 6];
        const int t = n_threads[i / 252];
        struct shape z = {d[0], d[1], n, h[0], h[1], n_tokens[0], n_seqs[0]};
        const size_t most = sizes_of(cpu, &z, GGML_TYPE_F16, t).reserve;
        for (int j = 0; j < 7 * 3; j++) {
            z.n_token = n_tokens[j % 7];
            z.n_seq = n_seqs[j / 7];
            const struct sizes sizes = sizes_of(cpu, &z, GGML_TYPE_F16, t);
            const size_t limit = limit_of(&z, t);
            if (sizes.reserve > limit || sizes.plan > sizes.reserve || sizes.reserve > most) {
                fail_msg("%d heads with %d of k, %d and %d elements, %d keys, %d tokens, %d sequences, %d threads", (int) h[0],
                    (int) h[1], (int) d[0], (int) d[1], (int) n, (int) z.n_token, (int) z.n_seq, t);
            }
        }
    }
    ggml_backend_free(cpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_sequence_does_not_depend_on_the_batch),
        cmocka_unit_test(a_prompt_does_not_depend_on_threads), cmocka_unit_test(work_memory_has_a_limit)};
    return cmocka_run_group_tests_name("cpu_attn", tests, NULL, NULL);
}
