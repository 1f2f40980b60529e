// SPDX-License-Identifier: MIT
// cache.c: allocates the cache of a session: per layer, one row of keys and one row of values per position, on the layer's device.
// If the devices cannot write or read rows of a type, session_new fails.
//
// The cache of a layer with a window is a ring: position p is in row p % n_ring. A graph writes all rows of its batch before the
// tokens attend to the cache. These rows must not overwrite rows in the window of the batch's first token, so
// n_ring >= n_window + n_batch - 1.

#include "model/model.h"

#include <inttypes.h>

// ---- types ----

// Heads are views of parts of a row, so each head must start at a block boundary.
static bool type_check(enum ggml_type type, const char *what, int64_t head_size, struct model_error *error) {
    const int64_t block = ggml_blck_size(type);
    if (block <= 0) {
        return model_fail(error, "unknown type %d for the %s of the cache", (int) type, what);
    }
    if (!type_is_real(type)) {
        return model_fail(error, "the %s of the cache cannot be %s: values of this type cannot be converted to f32", what,
            ggml_type_name(type));
    }
    return head_size % block == 0 || model_fail(error,
                                         "the %s of the cache cannot be %s: a head has %" PRId64
                                         " elements, which is not a multiple of its block of %" PRId64,
                                         what, ggml_type_name(type), head_size, block);
}

// With ARCH_MLA, keys and values are one tensor.
static int64_t tensors_per_layer(const struct session *s) {
    return (s->model->params.desc->has & ARCH_MLA) != 0 ? 1 : 2;
}

// Checks that the devices support the SET_ROWS ops of the cache. The graph contains these ops by layer, keys before values.
static bool rows_check(const struct session *s, struct model_error *error) {
    const int64_t n_all = s->model->params.n_layer * tensors_per_layer(s);
    int64_t n_rows = 0;
    for (int i = 0; i < ggml_graph_n_nodes(s->graph) && n_rows < n_all; i++) {
        const struct ggml_tensor *node = ggml_graph_node(s->graph, i);
        const int64_t layer = n_rows / tensors_per_layer(s);
        const bool is_v = n_rows % tensors_per_layer(s) == 1;
        if (node->op == GGML_OP_SET_ROWS && node->view_src == (is_v ? s->v[layer] : s->k[layer])) {
            ggml_backend_dev_t dev = s->devices->dev[s->model->layer_device[layer]];
            if (!ggml_backend_dev_supports_op(dev, node)) {
                return model_fail(error, "the %s of the cache cannot be %s: %s does not support SET_ROWS to this type",
                    is_v ? "values" : "keys", ggml_type_name(is_v ? s->params.cache_v : s->params.cache_k),
                    ggml_backend_dev_name(dev));
            }
            n_rows++;
        }
    }
    return true;
}

// Uses flash attention if every device with layers supports it. Otherwise values are transposed, which is impossible for block
// formats.
static bool flash_choose(struct session *s, struct model_error *error) {
    int64_t layer = 0;
    for (int i = 0; i < ggml_graph_n_nodes(s->graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(s->graph, i);
        if (node->op == GGML_OP_FLASH_ATTN_EXT) {
            s->has_flash &= ggml_backend_dev_supports_op(s->devices->dev[s->model->layer_device[layer++]], node);
        }
    }
    const enum ggml_type type = tensors_per_layer(s) == 1 ? s->params.cache_k : s->params.cache_v;
    return s->has_flash || ggml_blck_size(type) == 1 ||
           model_fail(error, "the values of the cache cannot be %s: without flash attention%s they must be f32, f16 or bf16",
               ggml_type_name(type), s->params.no_flash ? "" : " (a device does not support it for this type)");
}

bool cache_choose(struct session *s, int64_t n_kv, struct model_error *error) {
    s->has_flash = !s->params.no_flash;
    const bool ok = session_graph(s, 1, n_kv, error) && rows_check(s, error) && flash_choose(s, error);
    s->graph_tokens = 0; // this graph must not be reused
    return ok;
}

// ---- memory ----

// Creates the inputs of the convolution and the state of the scan.
static void states_make(struct session *s, int64_t i, struct ggml_context *ctx) {
    const struct model_params *p = &s->model->params;
    s->k[i] = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, p->n_conv - 1, p->n_inner + 2 * p->n_group_state * p->n_state);
    s->v[i] = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, p->n_state, p->n_inner / p->n_state_head, p->n_state_head);
    ggml_format_name(s->k[i], "state_conv-%d", (int) i);
    ggml_format_name(s->v[i], "state-%d", (int) i);
}

int64_t cache_ring(const struct session *s) {
    const int64_t n = s->model->params.n_window + s->params.n_batch, rounded = (n + KV_STEP - 1) / KV_STEP * KV_STEP;
    const bool is_ring = s->model->params.n_window > 0 && s->params.n_rows == 0 && rounded < s->n_rows;
    return is_ring ? rounded : s->n_rows;
}

static bool tensors_make(struct session *s, int d, struct model_error *error) {
    const struct model_params *p = &s->model->params;
    size_t n = 0;
    for (int64_t i = 0; i < p->n_layer; i++) {
        n += s->model->layer_device[i] == d ? 2 : 0;
    }
    s->caches[d].ctx = ggml_init((struct ggml_init_params){.mem_size = (n + 1) * ggml_tensor_overhead(), .no_alloc = true});
    if (s->caches[d].ctx == NULL) {
        return model_fail(error, "out of memory for %zu tensors of the cache", n);
    }
    for (int64_t i = 0; i < p->n_layer; i++) {
        if (s->model->layer_device[i] == d && (p->desc->has & ARCH_STATE) != 0) {
            states_make(s, i, s->caches[d].ctx);
        } else if (s->model->layer_device[i] == d) {
            struct ggml_context *ctx = s->caches[d].ctx;
            const int64_t n_rows = params_has_window(p, i) ? s->n_ring : s->n_rows;
            s->k[i] = ggml_new_tensor_2d(ctx, s->params.cache_k, p->head_size * p->n_head_kv, n_rows);
            ggml_format_name(s->k[i], "cache_k-%d", (int) i);
            if (tensors_per_layer(s) == 2) {
                s->v[i] = ggml_new_tensor_2d(ctx, s->params.cache_v, p->head_size_v * p->n_head_kv, n_rows);
                ggml_format_name(s->v[i], "cache_v-%d", (int) i);
            }
        }
    }
    const char *why = berth_context_error(s->caches[d].ctx);
    return *why == '\0' || model_fail(error, "cannot create a cache of %" PRId64 " positions: %s", s->n_rows, why);
}

static bool device_cache_make(struct session *s, int d, struct model_error *error) {
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(s->devices->dev[d]);
    if (!tensors_make(s, d, error)) {
        return false;
    }
    if (ggml_get_first_tensor(s->caches[d].ctx) == NULL) {
        return true;
    }
    s->caches[d].size = ggml_backend_alloc_ctx_tensors_from_buft_size(s->caches[d].ctx, buft);
    if (!s->params.plan_only) {
        s->caches[d].buffer = ggml_backend_alloc_ctx_tensors_from_buft(s->caches[d].ctx, buft);
        ggml_backend_buffer_clear(s->caches[d].buffer, 0); // masked positions are read: must be finite
    } else {
        s->caches[d].buffer = ggml_backend_buft_alloc_buffer(buft, 0);
        for (struct ggml_tensor *t = ggml_get_first_tensor(s->caches[d].ctx); t != NULL;
             t = ggml_get_next_tensor(s->caches[d].ctx, t)) {
            t->buffer = s->caches[d].buffer;
            t->data = (void *) (uintptr_t) 4096; // placeholder that is never dereferenced
        }
    }
    return s->caches[d].buffer != NULL ||
           model_fail(error, "cannot allocate the cache of %zu bytes (%" PRId64 " positions) on %s: %s", s->caches[d].size,
               s->n_rows, ggml_backend_dev_name(s->devices->dev[d]), berth_last_error());
}

bool cache_make(struct session *s, struct model_error *error) {
    const struct model_params *p = &s->model->params;
    bool ok = (p->desc->has & ARCH_STATE) != 0 || (type_check(s->params.cache_k, "keys", p->head_size, error) &&
                                                      type_check(s->params.cache_v, "values", p->head_size_v, error));
    for (int d = 0; ok && d < s->devices->n; d++) {
        ok = device_cache_make(s, d, error);
    }
    return ok;
}
