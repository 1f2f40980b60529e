// SPDX-License-Identifier: MIT
// meta_layer.h: one layer of a model, with attention and a feed-forward network, and its split on a composite device.
#pragma once

#include "ggml-alloc.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "support/check.h"

#include <math.h>

static inline ggml_backend_dev_t layer_cpu(void) {
    return ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
}

static inline struct ggml_context *layer_ctx(size_t n) {
    return ggml_init((struct ggml_init_params){
        .mem_size = n * ggml_tensor_overhead() + ggml_graph_overhead_custom(256, false), .no_alloc = true});
}

#define LAYER_EMBD 64    // elements of an embedding
#define LAYER_HEAD 16    // elements of a head
#define LAYER_FF_UNIT 32 // rows of the feed-forward matrices that stay together
#define LAYER_TOKENS 5   // tokens of the batch
#define LAYER_CELLS 16   // positions in the cache
#define LAYER_MOST 512   // upper bound of the extents in layer_fill

// kv: number of key/value heads; there are twice as many query heads. ff: number of rows of the feed-forward network.
struct layer_dims {
    int64_t kv, ff;
};
static const struct layer_dims layer_dims_usual = {2, 96};

struct layer {
    struct layer_dims dims;
    struct ggml_context *fixed, *ctx;
    struct ggml_tensor *wq, *wk, *wv, *wo, *up, *gate, *down, *norm, *k, *v, *x, *pos, *rows, *mask, *out;
    struct ggml_cgraph *graph;
};

static inline struct ggml_tensor *layer_named(struct ggml_tensor *t, const char *name) {
    return ggml_set_name(t, name);
}

static inline void layer_graph(struct layer *l) {
    const int64_t kv = l->dims.kv;
    struct ggml_context *c = l->ctx;
    struct ggml_tensor *h = ggml_mul(c, ggml_rms_norm(c, l->x, 1e-5f), l->norm);
    struct ggml_tensor *q = ggml_reshape_3d(c, ggml_mul_mat(c, l->wq, h), LAYER_HEAD, 2 * kv, LAYER_TOKENS);
    struct ggml_tensor *k = ggml_reshape_3d(c, ggml_mul_mat(c, l->wk, h), LAYER_HEAD, kv, LAYER_TOKENS);
    struct ggml_tensor *v = ggml_mul_mat(c, l->wv, h);
    q = ggml_rope(c, q, l->pos, LAYER_HEAD, 0);
    k = ggml_rope(c, k, l->pos, LAYER_HEAD, 0);
    struct ggml_tensor *ks = ggml_set_rows(c, l->k, ggml_reshape_2d(c, k, LAYER_HEAD * kv, LAYER_TOKENS), l->rows);
    struct ggml_tensor *vs = ggml_set_rows(c, l->v, v, l->rows);
    struct ggml_tensor *kk = ggml_permute(c, ggml_reshape_3d(c, ks, LAYER_HEAD, kv, LAYER_CELLS), 0, 2, 1, 3);
    struct ggml_tensor *vv = ggml_permute(c, ggml_reshape_3d(c, vs, LAYER_HEAD, kv, LAYER_CELLS), 0, 2, 1, 3);
    struct ggml_tensor *a = ggml_flash_attn_ext(c, ggml_permute(c, q, 0, 2, 1, 3), kk, vv, l->mask, 0.25f, 0.0f, 0.0f);
    struct ggml_tensor *y = ggml_add(c, l->x, ggml_mul_mat(c, l->wo, ggml_reshape_2d(c, a, LAYER_HEAD * 2 * kv, LAYER_TOKENS)));
    struct ggml_tensor *n = ggml_mul(c, ggml_rms_norm(c, y, 1e-5f), l->norm);
    struct ggml_tensor *f = ggml_swiglu_split(c, ggml_mul_mat(c, l->gate, n), ggml_mul_mat(c, l->up, n));
    l->out = ggml_add(c, y, ggml_mul_mat(c, l->down, f));
    ggml_set_output(l->out);
    l->graph = ggml_new_graph_custom(c, 256, false);
    ggml_build_forward_expand(l->graph, l->out);
}

static inline struct layer layer_new(struct layer_dims dims) {
    const int64_t kv = dims.kv, ff = dims.ff;
    struct layer l = {.dims = dims, .fixed = layer_ctx(32), .ctx = layer_ctx(80)};
    l.wq = layer_named(ggml_new_tensor_2d(l.fixed, GGML_TYPE_Q8_0, LAYER_EMBD, LAYER_HEAD * 2 * kv), "wq");
    l.wk = layer_named(ggml_new_tensor_2d(l.fixed, GGML_TYPE_F32, LAYER_EMBD, LAYER_HEAD * kv), "wk");
    l.wv = layer_named(ggml_new_tensor_2d(l.fixed, GGML_TYPE_F32, LAYER_EMBD, LAYER_HEAD * kv), "wv");
    l.wo = layer_named(ggml_new_tensor_2d(l.fixed, GGML_TYPE_Q8_0, LAYER_HEAD * 2 * kv, LAYER_EMBD), "wo");
    l.up = layer_named(ggml_new_tensor_2d(l.fixed, GGML_TYPE_F32, LAYER_EMBD, ff), "up");
    l.gate = layer_named(ggml_new_tensor_2d(l.fixed, GGML_TYPE_F32, LAYER_EMBD, ff), "gate");
    l.down = layer_named(ggml_new_tensor_2d(l.fixed, GGML_TYPE_F32, ff, LAYER_EMBD), "down");
    l.norm = layer_named(ggml_new_tensor_1d(l.fixed, GGML_TYPE_F32, LAYER_EMBD), "norm");
    l.k = layer_named(ggml_new_tensor_2d(l.fixed, GGML_TYPE_F16, LAYER_HEAD * kv, LAYER_CELLS), "k");
    l.v = layer_named(ggml_new_tensor_2d(l.fixed, GGML_TYPE_F16, LAYER_HEAD * kv, LAYER_CELLS), "v");
    l.x = layer_named(ggml_new_tensor_2d(l.fixed, GGML_TYPE_F32, LAYER_EMBD, LAYER_TOKENS), "x");
    l.pos = layer_named(ggml_new_tensor_1d(l.fixed, GGML_TYPE_I32, LAYER_TOKENS), "pos");
    l.rows = layer_named(ggml_new_tensor_1d(l.fixed, GGML_TYPE_I64, LAYER_TOKENS), "rows");
    l.mask = layer_named(ggml_new_tensor_2d(l.fixed, GGML_TYPE_F16, LAYER_CELLS, LAYER_TOKENS), "mask");
    layer_graph(&l);
    return l;
}

// Splits as libllama does: by heads, and by rows of the feed-forward network. user: the number of devices.
static inline struct ggml_backend_meta_split_state layer_state(const struct ggml_tensor *t, void *user) {
    static const struct {
        const char *name;
        int axis;
        int64_t unit;
    } splits[] = {{"wq", 1, 2 * LAYER_HEAD}, {"wk", 1, LAYER_HEAD}, {"wv", 1, LAYER_HEAD}, {"wo", 0, 2 * LAYER_HEAD},
        {"up", 1, LAYER_FF_UNIT}, {"gate", 1, LAYER_FF_UNIT}, {"down", 0, LAYER_FF_UNIT}, {"k", 0, LAYER_HEAD},
        {"v", 0, LAYER_HEAD}};
    const int n = *(int *) user;
    struct ggml_backend_meta_split_state s = {.axis = GGML_BACKEND_SPLIT_AXIS_MIRRORED, .n_segments = 1, .nr = {1}};
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
        if (strcmp(t->name, splits[i].name) == 0) {
            const int64_t units = t->ne[splits[i].axis] / splits[i].unit;
            s.axis = (enum ggml_backend_meta_split_axis) splits[i].axis;
            for (int j = 0; j < n; j++) {
                s.ne[j] = (units * (j + 1) / n - units * j / n) * splits[i].unit;
            }
        }
    }
    return s;
}

static inline void layer_fill(struct layer *l) {
    struct check_rng rng = check_rng_new(5);
    static float values[LAYER_EMBD * LAYER_MOST];
    static uint8_t bytes[sizeof values];
    for (struct ggml_tensor *t = ggml_get_first_tensor(l->fixed); t != NULL; t = ggml_get_next_tensor(l->fixed, t)) {
        for (int64_t i = 0; i < ggml_nelements(t); i++) {
            values[i] = t == l->mask ? (i % LAYER_CELLS > i / LAYER_CELLS ? -INFINITY : 0.0f)
                                     : (float) check_rng_below(&rng, 2001) / 4000.0f - 0.25f;
            if (t->type == GGML_TYPE_I32) {
                ((int32_t *) (void *) bytes)[i] = (int32_t) i;
            } else if (t->type == GGML_TYPE_I64) {
                ((int64_t *) (void *) bytes)[i] = i;
            }
        }
        if (t->type != GGML_TYPE_I32 && t->type != GGML_TYPE_I64) {
            ggml_quantize_chunk(t->type, values, bytes, 0, ggml_nrows(t), t->ne[0], NULL);
        }
        ggml_backend_tensor_set(t, bytes, 0, ggml_nbytes(t));
    }
}

static inline void layer_free(struct layer *l) {
    ggml_free(l->ctx);
    ggml_free(l->fixed);
}
