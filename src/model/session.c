// SPDX-License-Identifier: MIT
// session.c: a model at work: the cache of keys and values, the scheduler, and a graph for each shape of batch.
// Positions 0 .. n_past - 1 of the cache are filled; a token sees those that are not behind it, as far as the
// model's window goes.

#include "model/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KV_STEP 256 // the view on the cache grows in steps, so that graphs repeat

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

// ---- the cache ----

// Tensors of one device's layers.
static bool cache_tensors(struct session *s, int d, struct model_error *error) {
    const struct model_params *p = &s->model->params;
    size_t n                     = 0;
    for (int64_t i = 0; i < p->n_layer; i++) {
        n += s->model->layer_device[i] == d ? 2 : 0;
    }
    s->caches[d].ctx = ggml_init((struct ggml_init_params){.mem_size = (n + 1) * ggml_tensor_overhead(), .no_alloc = true});
    if (s->caches[d].ctx == NULL) {
        return model_fail(error, "out of memory for %zu tensors of the cache", n);
    }
    for (int64_t i = 0; i < p->n_layer; i++) {
        if (s->model->layer_device[i] == d) {
            const enum ggml_type type = s->params.cache_type;
            s->k[i]                   = ggml_new_tensor_2d(s->caches[d].ctx, type, p->head_size * p->n_head_kv, s->params.n_ctx);
            s->v[i] = ggml_new_tensor_2d(s->caches[d].ctx, type, p->head_size_v * p->n_head_kv, s->params.n_ctx);
            ggml_format_name(s->k[i], "cache_k-%d", (int) i);
            ggml_format_name(s->v[i], "cache_v-%d", (int) i);
        }
    }
    const char *why = berth_context_error(s->caches[d].ctx);
    return *why == '\0' || model_fail(error, "no cache for %" PRId64 " positions: %s", s->params.n_ctx, why);
}

static bool cache_place(struct session *s, int d, struct model_error *error) {
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(s->devices->dev[d]);
    if (!cache_tensors(s, d, error)) {
        return false;
    }
    if (ggml_get_first_tensor(s->caches[d].ctx) == NULL) {
        return true;
    }
    s->caches[d].size = ggml_backend_alloc_ctx_tensors_from_buft_size(s->caches[d].ctx, buft);
    if (!s->params.plan_only) {
        s->caches[d].buffer = ggml_backend_alloc_ctx_tensors_from_buft(s->caches[d].ctx, buft);
        ggml_backend_buffer_clear(s->caches[d].buffer, 0); // what was never written is masked, and must be numbers
    } else {
        s->caches[d].buffer = ggml_backend_buft_alloc_buffer(buft, 0);
        for (struct ggml_tensor *t = ggml_get_first_tensor(s->caches[d].ctx); t != NULL;
             t                     = ggml_get_next_tensor(s->caches[d].ctx, t)) {
            t->buffer = s->caches[d].buffer;
            t->data   = (void *) (uintptr_t) 4096; // nobody follows it
        }
    }
    return s->caches[d].buffer != NULL ||
           model_fail(error, "no memory for a cache of %zu bytes (%" PRId64 " positions) on %s: %s", s->caches[d].size,
               s->params.n_ctx, ggml_backend_dev_name(s->devices->dev[d]), berth_last_error());
}

// ---- life ----

static void defaults(struct session_params *p, const struct model_params *m) {
    p->n_ctx   = p->n_ctx > 0 ? p->n_ctx : most(512, least(m->n_ctx_train, 4096));
    p->n_batch = p->n_batch > 0 ? p->n_batch : 512;
    p->n_batch = least(p->n_batch, p->n_ctx);
}

// Flash attention if every device that has layers can do it.
static bool flash_choose(struct session *s, struct model_error *error) {
    s->has_flash = !s->params.no_flash;
    if (!s->has_flash || !session_graph(s, 1, least(s->params.n_ctx, KV_STEP), error)) {
        return !s->has_flash;
    }
    int64_t i = 0;
    for (int n = 0; n < ggml_graph_n_nodes(s->graph); n++) {
        const struct ggml_tensor *node = ggml_graph_node(s->graph, n);
        if (node->op == GGML_OP_FLASH_ATTN_EXT) {
            s->has_flash &= ggml_backend_dev_supports_op(s->devices->dev[s->model->layer_device[i++]], node);
        }
    }
    s->graph_tokens = 0;
    return true;
}

static bool scratch_make(struct session *s, struct model_error *error) {
    const size_t n_batch = (size_t) s->params.n_batch, n_ctx = (size_t) s->params.n_ctx;
    if (s->params.plan_only) {
        return true;
    }
    s->mask_row = malloc(n_ctx * sizeof *s->mask_row);
    s->logits   = malloc((size_t) s->model->params.n_vocab * sizeof *s->logits);
    s->rows     = malloc(n_batch * sizeof *s->rows);
    s->pos      = malloc(n_batch * sizeof *s->pos);
    return (s->mask_row != NULL && s->logits != NULL && s->rows != NULL && s->pos != NULL) ||
           model_fail(error, "out of memory for batches of %zu tokens over %zu positions", n_batch, n_ctx);
}

struct session *session_new(const struct model *model, const struct model_devices *devices, const struct session_params *params,
    struct model_error *error) {
    struct session *s    = calloc(1, sizeof *s);
    const size_t n_layer = (size_t) model->params.n_layer;
    if (s == NULL) {
        model_fail(error, "out of memory");
        return NULL;
    }
    s->model     = model;
    s->devices   = devices;
    s->params    = *params;
    s->max_nodes = 64 + n_layer * (64 + 4 * (size_t) model->params.n_expert_used);
    s->k         = calloc(n_layer, sizeof *s->k);
    s->v         = calloc(n_layer, sizeof *s->v);
    defaults(&s->params, &model->params);
    s->caches = calloc((size_t) devices->n, sizeof *s->caches);
    s->memory = calloc((size_t) devices->n, sizeof *s->memory);
    s->sizes  = calloc((size_t) devices->n, sizeof *s->sizes);
    bool ok   = s->k != NULL && s->v != NULL && s->caches != NULL && s->memory != NULL && s->sizes != NULL;
    if (!ok) {
        model_fail(error, "out of memory for %zu layers on %d devices", n_layer, devices->n);
    }
    for (int d = 0; ok && d < devices->n; d++) {
        ok = cache_place(s, d, error);
    }
    if (ok) {
        s->sched = ggml_backend_sched_new(devices->backend, NULL, devices->n, s->max_nodes, false, true);
        ok       = s->sched != NULL || model_fail(error, "%s", berth_last_error());
    }
    if (!ok || !flash_choose(s, error) || !scratch_make(s, error)) {
        session_free(s);
        return NULL;
    }
    return s;
}

void session_free(struct session *s) {
    if (s == NULL) {
        return;
    }
    ggml_backend_sched_free(s->sched);
    ggml_free(s->graph_ctx);
    for (int d = 0; s->caches != NULL && d < s->devices->n; d++) {
        ggml_backend_buffer_free(s->caches[d].buffer);
        ggml_free(s->caches[d].ctx);
    }
    free(s->caches);
    free(s->memory);
    free(s->sizes);
    free(s->k);
    free(s->v);
    free(s->mask_row);
    free(s->logits);
    free(s->rows);
    free(s->pos);
    free(s);
}

// ---- graphs ----

bool session_graph(struct session *s, int64_t n_tokens, int64_t n_kv, struct model_error *error) {
    if (s->graph != NULL && s->graph_tokens == n_tokens && s->graph_kv == n_kv) {
        return true;
    }
    ggml_backend_sched_reset(s->sched);
    ggml_free(s->graph_ctx);
    s->graph        = NULL;
    s->is_allocated = false;
    s->graph_tokens = 0;
    s->graph_ctx    = ggml_init((struct ggml_init_params){
           .mem_size = s->max_nodes * 2 * ggml_tensor_overhead() + ggml_graph_overhead_custom(s->max_nodes, false),
           .no_alloc = true});
    if (s->graph_ctx == NULL) {
        return model_fail(error, "out of memory for a graph of %zu nodes", s->max_nodes);
    }
    graph_build(s, s->graph_ctx, n_tokens, n_kv);
    if (berth_graph_check(s->graph) != GGML_STATUS_SUCCESS) {
        s->graph = NULL;
        return model_fail(error, "the graph cannot be built: %s", berth_last_error());
    }
    s->graph_tokens = n_tokens;
    s->graph_kv     = n_kv;
    return true;
}

static bool shape_reserve(struct session *s, int64_t n_tokens, struct model_error *error) {
    if (!session_graph(s, n_tokens, s->params.n_ctx, error)) {
        return false;
    }
    berth_clear_error();
    ggml_backend_sched_reserve_size(s->sched, s->graph, s->sizes);
    if (*berth_last_error() != '\0' || (!s->params.plan_only && !ggml_backend_sched_reserve(s->sched, s->graph))) {
        return model_fail(error, "no plan for %" PRId64 " tokens over %" PRId64 " positions: %s", n_tokens, s->params.n_ctx,
            berth_last_error());
    }
    for (int d = 0; d < s->devices->n; d++) {
        struct session_memory *m = &s->memory[d];
        if (s->sizes[d] >= m->compute) {
            m->compute = s->sizes[d];
            if (berth_sched_report(s->sched, s->devices->backend[d], &m->report) != GGML_STATUS_SUCCESS) {
                return model_fail(error, "%s", berth_last_error());
            }
        }
    }
    return true;
}

bool session_reserve(struct session *s, struct model_error *error) {
    for (int d = 0; d < s->devices->n; d++) {
        s->memory[d] = (struct session_memory){.weights = s->model->parts[d].size, .cache = s->caches[d].size};
    }
    return shape_reserve(s, 1, error) && shape_reserve(s, s->params.n_batch, error);
}

// ---- computing ----

// Token i at position n_past + i sees itself and those before it, as far as the window goes. Row by row: a mask may be as large
// as all else that is computed.
static void mask_set(struct session *s, int64_t n, int64_t n_kv) {
    const ggml_fp16_t yes = ggml_fp32_to_fp16(0), no = ggml_fp32_to_fp16(-INFINITY);
    const size_t size    = (size_t) n_kv * sizeof no;
    const int64_t window = s->model->params.n_window > 0 ? s->model->params.n_window : n_kv;
    for (int64_t j = 0; j < n_kv; j++) { // as the token before these sees them
        s->mask_row[j] = j < s->n_past && j >= s->n_past - window ? yes : no;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t pos = s->n_past + i;
        if (pos >= window) {
            s->mask_row[pos - window] = no;
        }
        s->mask_row[pos] = yes;
        ggml_backend_tensor_set(s->in.mask, s->mask_row, (size_t) i * size, size);
    }
}

static void inputs_set(struct session *s, const int32_t *tokens, int64_t n, int64_t n_kv) {
    const int32_t wanted = (int32_t) (n - 1);
    for (int64_t i = 0; i < n; i++) {
        s->pos[i]  = (int32_t) (s->n_past + i);
        s->rows[i] = s->n_past + i;
    }
    ggml_backend_tensor_set(s->in.tokens, tokens, 0, (size_t) n * sizeof *tokens);
    ggml_backend_tensor_set(s->in.pos, s->pos, 0, (size_t) n * sizeof *s->pos);
    ggml_backend_tensor_set(s->in.rows, s->rows, 0, (size_t) n * sizeof *s->rows);
    mask_set(s, n, n_kv);
    if (s->in.out != NULL) {
        ggml_backend_tensor_set(s->in.out, &wanted, 0, sizeof wanted);
    }
}

static bool batch_decode(struct session *s, const int32_t *tokens, int64_t n, struct model_error *error) {
    const int64_t n_kv  = least(s->params.n_ctx, (s->n_past + n + KV_STEP - 1) / KV_STEP * KV_STEP);
    const bool is_known = s->graph != NULL && s->graph_tokens == n && s->graph_kv == n_kv && s->is_allocated;
    if (!is_known) {
        s->is_allocated = session_graph(s, n, n_kv, error) && ggml_backend_sched_alloc_graph(s->sched, s->graph);
        if (!s->is_allocated) {
            return model_fail(error, "no memory for %" PRId64 " tokens: %s", n, berth_last_error());
        }
    }
    inputs_set(s, tokens, n, n_kv);
    const enum ggml_status status = ggml_backend_sched_graph_compute(s->sched, s->graph);
    if (status != GGML_STATUS_SUCCESS) {
        return model_fail(error, "%s", status == GGML_STATUS_ABORTED ? "computing was stopped" : berth_last_error());
    }
    const size_t size = (size_t) s->model->params.n_vocab * sizeof *s->logits;
    ggml_backend_tensor_get(s->in.logits, s->logits, (size_t) (s->in.logits->ne[1] - 1) * size, size);
    s->n_past += n;
    return true;
}

bool session_decode(struct session *s, const int32_t *tokens, int64_t n, struct model_error *error) {
    if (n > s->params.n_ctx - s->n_past) {
        return model_fail(error, "%" PRId64 " tokens do not fit: %" PRId64 " of %" PRId64 " positions are taken", n, s->n_past,
            s->params.n_ctx);
    }
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= s->model->params.n_vocab) {
            return model_fail(error, "token %d is none of %" PRId64, tokens[i], s->model->params.n_vocab);
        }
    }
    for (int64_t at = 0; at < n; at += s->params.n_batch) {
        if (!batch_decode(s, tokens + at, least(n - at, s->params.n_batch), error)) {
            return false;
        }
    }
    return true;
}

void session_reset(struct session *s) {
    s->n_past = 0;
}
