// SPDX-License-Identifier: MIT
// attn.c: cases of op/attn.c: attention. Berth adds in f32. The reference adds in f16 in two cases, so these have larger
// tolerances:
//   values V are f16: all its CPU libraries differ by up to 5.3e-6 (normalised mean squared error) from each other and by 2.7e-5
//   from double precision. Tolerance: OP_F16_SUMS.
//   only keys K are f16: some of its libraries add in f16. Tolerance: OP_F16_DOTS.
// In both cases Berth must also be within OP_F32 of double precision. For all other types the tolerance is OP_F32.

#include "op.h"
#include "plain.h"

#include <stddef.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))
#define OP_F16_SUMS 4e-5
#define OP_F16_DOTS 1e-5

// Kinds of masks. OPEN hides nothing, SPARSE hides random keys, ROW_CLOSED hides all keys from the first token. The last three
// are masks of several sequences in one cache: the keys of a sequence are adjacent, the keys of one position are adjacent, or a
// third of the keys is common to all sequences.
enum { NO_MASK, OPEN, CAUSAL, SPARSE, ROW_CLOSED, ADJACENT, INTERLEAVED, COMMON };

struct attn {
    int64_t d_k, d_v, n_kv, n_head, n_head_kv, n_token, n_seq;
    enum ggml_type k, v;
    int mask;
    int64_t mask_heads, mask_seqs;
    float max_bias, softcap;
    bool sinks, cache, specials;
    enum ggml_prec prec;
    int n_kv_max;
};

static struct ggml_tensor *mask_of(struct op_build *b, int kind, const int64_t *ne) {
    struct ggml_tensor *mask = op_input(b, GGML_TYPE_F16, ne);
    for (int64_t i = 0; i < ggml_nelements(mask); i++) {
        const int64_t key = i % ne[0], token = i / ne[0] % ne[1];
        const bool closed = kind == CAUSAL        ? key > token + ne[0] / 2
                            : kind == SPARSE      ? op_random(b) % 5 < 2
                            : kind == ROW_CLOSED  ? token == 0 || key < ne[0] / 3
                            : kind == ADJACENT    ? key * ne[1] / ne[0] != token
                            : kind == INTERLEAVED ? key % ne[1] != token
                            : kind == COMMON      ? key > ne[0] / 3 && key % ne[1] != token
                                                  : false;
        if (closed) {
            *(uint16_t *) op_at(mask, i) = 0xfc00;
        }
    }
    return mask;
}

// c->cache: the heads of one position are adjacent in memory, as in the cache of a model.
static struct ggml_tensor *keys(struct op_build *b, const struct attn *c, enum ggml_type type, int64_t d) {
    return c->cache ? ggml_permute(b->ctx, op_input(b, type, NE(d, c->n_head_kv, c->n_kv, c->n_seq)), 0, 2, 1, 3)
                    : op_input(b, type, NE(d, c->n_kv, c->n_head_kv, c->n_seq));
}

static struct ggml_tensor *build_attn(struct op_build *b, const void *arg) {
    const struct attn *c = arg;
    struct ggml_tensor *q =
        c->cache ? ggml_permute(b->ctx, op_input(b, GGML_TYPE_F32, NE(c->d_k, c->n_head, c->n_token, c->n_seq)), 0, 2, 1, 3)
                 : op_input(b, GGML_TYPE_F32, NE(c->d_k, c->n_token, c->n_head, c->n_seq));
    struct ggml_tensor *k = keys(b, c, c->k, c->d_k), *v = keys(b, c, c->v, c->d_v);
    struct ggml_tensor *mask =
        c->mask == NO_MASK ? NULL : mask_of(b, c->mask, NE(c->n_kv, c->n_token, c->mask_heads, c->mask_seqs));
    if (c->specials) {
        op_with_specials(v);
    }
    if (c->k == GGML_TYPE_F16 || (c->v == GGML_TYPE_F16 && !ggml_is_quantized(c->k))) {
        b->plain = op_plain_attn;
        b->plain_nmse = OP_F32;
    }
    struct ggml_tensor *t = ggml_flash_attn_ext(b->ctx, q, k, v, mask, 0.125f, mask != NULL ? c->max_bias : 0.0f, c->softcap);
    if (c->sinks) {
        ggml_flash_attn_ext_add_sinks(t, op_input_range(b, GGML_TYPE_F32, NE(c->n_head, 1, 1, 1), -1.0f, 3.0f));
    }
    ggml_prec_set_acc(t, c->prec);
    ggml_flash_attn_ext_set_n_kv_max(t, c->n_kv_max);
    return t;
}

static double tolerance(const struct attn *c) {
    return c->v == GGML_TYPE_F16 ? OP_F16_SUMS : c->k == GGML_TYPE_F16 ? OP_F16_DOTS : OP_F32;
}

static void plain_cases(struct op_suite *s) {
    static const int64_t sizes[][7] = {{64, 64, 33, 4, 4, 7, 1}, {64, 64, 256, 8, 2, 1, 1}, {128, 128, 513, 4, 1, 3, 2},
        {96, 64, 100, 6, 3, 20, 1}, {40, 40, 64, 12, 12, 5, 1}, {256, 128, 1030, 2, 1, 1, 1}, {64, 64, 200, 4, 2, 70, 1},
        {72, 72, 9, 3, 3, 4, 3}, {128, 128, 1, 2, 2, 1, 1}};
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16};
    for (size_t i = 0; i < N(sizes); i++) {
        for (size_t t = 0; t < N(types); t++) {
            for (int mask = NO_MASK; mask <= ROW_CLOSED; mask++) {
                for (int variant = 0; variant < 5; variant++) {
                    const int64_t *z = sizes[i];
                    struct attn c = {z[0], z[1], z[2], z[3], z[4], z[5], z[6], types[t], types[t], mask, 1, 1, 0, 0, false, false,
                        false, GGML_PREC_DEFAULT, 0};
                    c.sinks = variant == 1;
                    c.mask_heads = variant == 1 ? c.n_head : 1;
                    c.mask_seqs = variant == 2 ? c.n_seq : 1;
                    c.softcap = variant == 2 ? 10.0f : 0.0f;
                    c.max_bias = variant == 3 ? 8.0f : 0.0f;
                    c.cache = variant == 4;
                    op_case(s, "FLASH_ATTN_EXT",
                        op_text("size %zu %s mask %d variant %d", i, ggml_type_name(types[t]), mask, variant), tolerance(&c),
                        build_attn, &c);
                }
            }
        }
    }
    for (int64_t n_head = 1; n_head < 20; n_head += 3) {
        const struct attn c = {32, 32, 50, n_head, n_head, 3, 1, GGML_TYPE_F32, GGML_TYPE_F32, SPARSE, 1, 1, 6.0f, 0, false,
            false, false, GGML_PREC_DEFAULT, 0};
        op_case(s, "FLASH_ATTN_EXT", op_text("slopes of %d heads", (int) n_head), OP_F32, build_attn, &c);
    }
    static const int64_t tokens[] = {
        3, 40}; // Berth uses dot products for 3 tokens and panels for 40; with both, masked values must not affect the result
    for (size_t i = 0; i < N(tokens); i++) {
        for (int mask = NO_MASK; mask <= ROW_CLOSED; mask++) {
            const struct attn c = {64, 64, 150, 4, 4, tokens[i], 1, GGML_TYPE_F32, GGML_TYPE_F32, mask, 1, 1, 0, 0, false, false,
                true, GGML_PREC_DEFAULT, 0};
            op_case(s, "FLASH_ATTN_EXT", op_text("specials, %d tokens, mask %d", (int) tokens[i], mask), OP_F32, build_attn, &c);
        }
    }
}

// Heads of more than 256 elements, as models with latent attention have.
static void wide_cases(struct op_suite *s) {
    static const int64_t sizes[][7] = {
        {576, 512, 300, 16, 1, 1, 1}, {576, 512, 70, 20, 1, 3, 1}, {320, 256, 100, 8, 2, 9, 1}, {512, 512, 33, 4, 2, 5, 2}};
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0};
    for (size_t i = 0; i < N(sizes); i++) {
        for (size_t t = 0; t < N(types); t++) {
            for (int mask = NO_MASK; mask <= SPARSE; mask += CAUSAL) {
                const int64_t *z = sizes[i];
                struct attn c = {z[0], z[1], z[2], z[3], z[4], z[5], z[6], types[t], types[t], mask, 1, 1, 0, 0, false, false,
                    false, GGML_PREC_DEFAULT, 0};
                c.cache = i % 2 == 1;
                c.sinks = i == 2;
                op_case(s, "FLASH_ATTN_EXT", op_text("wide %zu %s mask %d", i, ggml_type_name(types[t]), mask), tolerance(&c),
                    build_attn, &c);
            }
        }
    }
}

// n_kv_max has no effect on a CPU. The reference aborts for precisions other than f32, so the expected values are in double
// precision.
static void precision_cases(struct op_suite *s) {
    static const enum ggml_prec precs[] = {GGML_PREC_F32, GGML_PREC_BF16, GGML_PREC_F16, GGML_PREC_Q8, GGML_PREC_Q4};
    for (size_t i = 0; i < N(precs); i++) {
        struct attn c = {64, 64, 50, 4, 2, 5, 1, GGML_TYPE_F16, GGML_TYPE_F16, SPARSE, 1, 1, 0, 0, false, false, false, precs[i],
            i % 2 ? 50 : 0};
        op_case(
            s, "FLASH_ATTN_EXT", op_text("precision %d n_kv_max %d", (int) precs[i], c.n_kv_max), tolerance(&c), build_attn, &c);
    }
}

static bool is_quantised_weight(int t) {
    return ggml_is_quantized((enum ggml_type) t) && t != GGML_TYPE_Q8_1 && t != GGML_TYPE_Q8_K;
}

static void quantised_cases(struct op_suite *s) {
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        for (int variant = 0; variant < 6 && is_quantised_weight(t); variant++) {
            const enum ggml_type type = (enum ggml_type) t;
            const int64_t d = ggml_blck_size(type) > 64 ? 256 : 128;
            struct attn c = {d, d, 130, 4, 2,
                variant < 3    ? 1
                : variant == 5 ? 66
                               : 6,
                1, type, type, CAUSAL, 1, 1, 0, 0, false, false, false, GGML_PREC_DEFAULT, 0};
            c.mask = variant == 0 ? NO_MASK : CAUSAL;
            c.k = variant % 3 == 2 ? GGML_TYPE_F16 : type;
            c.v = variant % 3 == 1 ? GGML_TYPE_F16 : type;
            op_case(s, "FLASH_ATTN_EXT", op_text("%s variant %d", ggml_type_name(type), variant), tolerance(&c), build_attn, &c);
        }
    }
}

// Several sequences with one token each: in one cache, and in a cache each.
static void sequence_cases(struct op_suite *s) {
    static const int64_t counts[] = {2, 3, 5, 17, 33}; // with 17 tokens, Berth has units with panels
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0};
    for (size_t i = 0; i < N(counts); i++) {
        for (size_t t = 0; t < N(types); t++) {
            for (int mask = ADJACENT; mask <= COMMON; mask++) {
                struct attn c = {64, 64, 100 * counts[i] + 7, 8, 2, counts[i], 1, types[t], types[t], mask, 1, 1, 0, 0, false,
                    true, false, GGML_PREC_DEFAULT, 0};
                c.sinks = i == 1;
                c.softcap = i == 2 ? 10.0f : 0.0f;
                c.max_bias = i == 0 ? 8.0f : 0.0f;
                op_case(s, "FLASH_ATTN_EXT", op_text("%d sequences %s mask %d", (int) counts[i], ggml_type_name(types[t]), mask),
                    tolerance(&c), build_attn, &c);
            }
            const struct attn c = {64, 64, 700, 8, 2, 1, counts[i], types[t], types[t], SPARSE, 1, counts[i], 0, 0, false, true,
                false, GGML_PREC_DEFAULT, 0};
            op_case(s, "FLASH_ATTN_EXT", op_text("%d caches %s", (int) counts[i], ggml_type_name(types[t])), tolerance(&c),
                build_attn, &c);
        }
    }
}

struct indexer {
    int64_t d, n_head, n_kv, n_token, n_seq, mask_seqs;
    enum ggml_type type;
    int mask;
};

static struct ggml_tensor *build_indexer(struct op_build *b, const void *arg) {
    const struct indexer *c = arg;
    struct ggml_tensor *q = op_input(b, GGML_TYPE_F32, NE(c->d, c->n_head, c->n_token, c->n_seq));
    struct ggml_tensor *k = op_input(b, c->type, NE(c->d, 1, c->n_kv, c->n_seq));
    return ggml_lightning_indexer(b->ctx, q, k, op_input(b, GGML_TYPE_F32, NE(c->n_head, c->n_token, 1, c->n_seq)),
        mask_of(b, c->mask, NE(c->n_kv, c->n_token, 1, c->mask_seqs)));
}

static void indexer_cases(struct op_suite *s) {
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        const bool is_float = t == GGML_TYPE_F32 || t == GGML_TYPE_F16 || t == GGML_TYPE_BF16;
        for (int variant = 0; variant < 4 && (is_float || is_quantised_weight(t)); variant++) {
            const enum ggml_type type = (enum ggml_type) t;
            struct indexer c = {ggml_blck_size(type) > 64 ? 256 : 128,
                variant == 0   ? 1
                : variant == 1 ? 64
                               : 5,
                variant == 0 ? 7 : 130, variant == 2 ? 9 : 1, variant == 3 ? 4 : 1, variant == 3 ? 2 : 1, type, OPEN + variant};
            op_case(s, "LIGHTNING_INDEXER", op_text("%s variant %d", ggml_type_name(type), variant), OP_F32, build_indexer, &c);
        }
    }
}

void op_suite_attn(struct op_suite *s) {
    plain_cases(s);
    wide_cases(s);
    precision_cases(s);
    quantised_cases(s);
    sequence_cases(s);
    indexer_cases(s);
}
