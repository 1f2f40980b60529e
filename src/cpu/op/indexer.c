// SPDX-License-Identifier: MIT
// indexer.c: LIGHTNING_INDEXER: the score of a key for a token is the sum over heads of weight * max(0, q k), plus the mask.

#include "base/min.h"
#include "cpu/op/dots.h"
#include "cpu/op/scratch.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#define I_HEADS 16 // heads per call of cpu_dots
#define I_KEYS 32  // keys per tile

static bool index_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *w = op->src[2], *mask = op->src[3];
    if (q == NULL || k == NULL || w == NULL || mask == NULL || q->type != GGML_TYPE_F32 || w->type != GGML_TYPE_F32 ||
        mask->type != GGML_TYPE_F16 || op->type != GGML_TYPE_F32) {
        return false;
    }
    const bool fits = q->ne[0] == k->ne[0] && cpu_dot_is_length(k->ne[0]) && k->ne[3] == q->ne[3] && w->ne[0] == q->ne[1] &&
                      w->ne[1] == q->ne[2] && w->ne[3] == q->ne[3] && mask->ne[0] == k->ne[2] && mask->ne[1] == q->ne[2] &&
                      mask->ne[3] > 0 && op->ne[0] == k->ne[2] && op->ne[1] == q->ne[2] && op->ne[3] == q->ne[3];
    return fits && q->nb[0] == sizeof(float) && op->nb[0] == sizeof(float) && mask->nb[0] == sizeof(uint16_t) &&
           cpu_kernels_portable.to_float[k->type] != NULL && (cpu_is_float(k->type) || k->nb[0] == ggml_type_size(k->type));
}

static int index_n_tasks(const struct ggml_tensor *op, int n_threads) {
    const double n = (double) ggml_nelements(op) * (double) op->src[0]->ne[0] * (double) op->src[0]->ne[1] / 131072;
    return cpu_tasks_for(n, n_threads);
}

static size_t index_work_size(const struct ggml_tensor *op, int n_tasks) {
    return cpu_scratch_size(I_KEYS * op->src[0]->ne[0], n_tasks);
}

// Computes the scores of token t for keys k0 .. k0+n-1. `keys` holds these keys as floats.
static void index_token(
    const struct cpu_params *p, struct ggml_tensor *op, int64_t t, int64_t seq, int64_t k0, int n, const float *keys) {
    const struct ggml_tensor *q = op->src[0], *w = op->src[2], *mask = op->src[3];
    const size_t key_size = (size_t) q->ne[0] * sizeof(float);
    float dots[I_HEADS * I_KEYS], bias[I_KEYS], *y = (float *) (void *) cpu_row_at(op, t, 0, seq) + k0;
    const char *weights = cpu_row_at(w, t, 0, seq), *mask_row = cpu_row_at(mask, t, 0, seq % mask->ne[3]);
    p->k->fill(n, y, 0.0f);
    for (int64_t h0 = 0; h0 < q->ne[1]; h0 += I_HEADS) {
        const int n_heads = q->ne[1] - h0 < I_HEADS ? (int) (q->ne[1] - h0) : I_HEADS;
        cpu_dots(p->k, GGML_TYPE_F32, q->ne[0], dots, I_KEYS, (const char *) keys, key_size, n, cpu_row_at(q, h0, t, seq),
            q->nb[1], n_heads);
        for (int h = 0; h < n_heads; h++) {
            const float weight = *(const float *) (const void *) (weights + (size_t) (h0 + h) * w->nb[0]);
            for (int i = 0; i < n; i++) {
                y[i] += max_f32(dots[h * I_KEYS + i], 0.0f) * weight;
            }
        }
    }
    p->k->to_float[GGML_TYPE_F16](mask_row + (size_t) k0 * sizeof(uint16_t), bias, n);
    p->k->add(n, y, y, bias);
}

// A unit of work is a tile of keys of one sequence for all tokens, so that keys are converted once.
static void index_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *k = op->src[1];
    const int64_t d = k->ne[0], n_tiles = (op->ne[0] + I_KEYS - 1) / I_KEYS;
    float *keys = cpu_scratch(p, I_KEYS * d);
    int64_t i, end;
    for (cpu_share(p, n_tiles * op->ne[3], &i, &end); i < end; i++) {
        const int64_t k0 = i % n_tiles * I_KEYS, seq = i / n_tiles;
        const int n = op->ne[0] - k0 < I_KEYS ? (int) (op->ne[0] - k0) : I_KEYS;
        for (int j = 0; j < n; j++) {
            const float *x = cpu_row_load(p->k, k, cpu_row_at(k, 0, k0 + j, seq), 0, d, keys + j * d);
            if (x != keys + j * d) {
                memcpy(keys + j * d, x, (size_t) d * sizeof *x);
            }
        }
        for (int64_t t = 0; t < op->ne[1]; t++) {
            index_token(p, op, t, seq, k0, n, keys);
        }
    }
}

const struct cpu_op_entry cpu_ops_indexer[] = {
    {GGML_OP_LIGHTNING_INDEXER, {.supports = index_supports,
                                    .n_tasks = index_n_tasks,
                                    .work_size = index_work_size,
                                    .run = index_run,
                                    .uses = CPU_USE_DOT_F32 | CPU_USE_ADD | CPU_USE_CONVERT}},
    CPU_OPS_END,
};
