// SPDX-License-Identifier: MIT
// native.c: the engine that runs Berth's own graphs. A session has one scheduler, the cache of cache.c, and the graph of the last
// batch. The graph is reused while the number of tokens and of cache positions stays the same. Positions 0 ... n_past - 1 are in
// the cache. The cache of a layer with a window holds the last n_ring positions.

#include "base/min.h"
#include "model/model.h"
#include "model/vocab.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// ---- creation and destruction ----

static int64_t result_width(const struct session *s) {
    return s->params.is_embedding ? s->model->params.n_embd : s->model->params.n_vocab;
}

static bool scratch_make(struct session *s, struct model_error *error) {
    const size_t n_batch = (size_t) s->params.n_batch, n_rows = (size_t) s->n_rows;
    if (s->params.plan_only) {
        return true;
    }
    s->mask_row = berth_malloc(n_rows * sizeof *s->mask_row);
    s->logits = berth_malloc((size_t) result_width(s) * sizeof *s->logits);
    s->sums = berth_calloc((size_t) s->model->params.n_embd, sizeof *s->sums);
    s->rows = berth_malloc(n_batch * sizeof *s->rows);
    s->pos = berth_malloc(n_batch * sizeof *s->pos);
    return (s->mask_row != NULL && s->logits != NULL && s->sums != NULL && s->rows != NULL && s->pos != NULL) ||
           model_fail(error, "out of memory for batches of %zu tokens over %zu positions", n_batch, n_rows);
}

static bool native_session_init(struct session *s, struct model_error *error) {
    const struct model *model = s->model;
    const size_t n_layer = (size_t) model->params.n_layer, n_devices = (size_t) s->devices->n, compute = s->params.compute_limit;
    s->max_nodes = graph_max_nodes(model);
    s->k = berth_calloc(n_layer, sizeof *s->k);
    s->v = berth_calloc(n_layer, sizeof *s->v);
    s->caches = berth_calloc(n_devices, sizeof *s->caches);
    s->sizes = berth_calloc(n_devices, sizeof *s->sizes);
    if (s->k == NULL || s->v == NULL || s->caches == NULL || s->sizes == NULL) {
        return model_fail(error, "out of memory for %zu layers on %zu devices", n_layer, n_devices);
    }
    if (model->position_embd != NULL && s->params.n_ctx > model->position_embd->ne[1]) {
        return model_fail(error,
            "a context of %" PRId64 " is too long: the model has position embeddings for %" PRId64 " positions", s->params.n_ctx,
            model->position_embd->ne[1]);
    }
    s->n_rows = s->params.n_rows > 0 ? s->params.n_rows : s->params.n_ctx;
    s->n_ring = cache_ring(s);
    if (!cache_make(s, error)) {
        return false;
    }
    s->sched = ggml_backend_sched_new(s->devices->backend, NULL, s->devices->n, s->max_nodes, false, true);
    if (s->sched == NULL) {
        return model_fail(error, "%s", berth_last_error());
    }
    for (int d = 0; s->params.no_resident && d < s->devices->n - 1; d++) {
        berth_sched_set_resident_limit(s->sched, s->devices->backend[d], 0);
    }
    s->params.compute_limit = 0; // the graph of cache_choose only checks ops
    if (!cache_choose(s, min_i64(s->params.n_ctx, KV_STEP), error) || !scratch_make(s, error)) {
        return false;
    }
    s->params.compute_limit = compute;
    if (compute > 0) {
        s->graph = NULL; // it was built without the limit
    }
    return true;
}

static void native_session_fini(struct session *s) {
    ggml_backend_sched_free(s->sched);
    ggml_free(s->recompute_ctx);
    ggml_free(s->graph_ctx);
    model_parts_free(s->caches, s->devices->n);
    berth_free(s->steps);
    berth_free(s->sizes);
    berth_free(s->k);
    berth_free(s->v);
    berth_free(s->mask_row);
    berth_free(s->rows);
    berth_free(s->pos);
}

// ---- graphs within session_params.compute_limit. A value may be recomputed instead of kept in memory (berth-budget-graph.h). A
// recomputed value has the same bits. A node that writes the cache is never recomputed, nor is a node that reads the cache after
// this write.
//
// session_reserve searches a schedule once, for the largest batch. Smaller graphs use the same schedule, so they fit. The graph of
// a single token is not changed. Only one device is supported: several devices would need one limit each. ----

static bool steps_keep(struct session *s, const struct berth_budget_result *r) {
    const size_t size = r->n_steps * sizeof *s->steps;
    s->steps = berth_malloc(size > 0 ? size : 1);
    if (s->steps != NULL) {
        memcpy(s->steps, r->steps, size);
        s->n_steps = r->n_steps;
    }
    return s->steps != NULL;
}

// A schedule lists which nodes are computed in which order, with recomputed nodes several times. The first call searches a
// schedule for the largest batch. Later calls apply the stored schedule. No tensor of a later graph is larger, so the schedule
// fits. GGML_STATUS_SUCCESS with *out NULL: no schedule within the limit was found.
static enum ggml_status schedule_find(struct session *s, struct ggml_cgraph **out, struct model_error *error) {
    const struct berth_graph_budget_params params = {.memory_limit = s->steps == NULL ? s->params.compute_limit : UINT64_MAX,
        .buft = ggml_backend_get_default_buffer_type(s->devices->backend[0]),
        .seed = 1,
        .steps = s->steps,
        .n_steps = s->n_steps};
    const bool is_first = s->steps == NULL;
    const int n_nodes = ggml_graph_n_nodes(s->graph);
    struct berth_budget_result *r = NULL;
    enum ggml_status status = berth_graph_budget(s->graph, &params, &s->recompute_ctx, out, &r);
    if (status != GGML_STATUS_SUCCESS) {
        model_fail(error, "%s", berth_last_error());
    } else if (is_first) {
        s->recompute_plan = (struct session_recompute_plan){.fits = *out != NULL,
            .n_recomputed = *out != NULL ? r->n_recomputed : 0,
            .n_nodes = n_nodes,
            .min_size = r->n_uses > 0 ? r->uses[0].live_bound : 0,
            .cost_ratio = *out != NULL && r->cost_once > 0 ? (double) r->cost / (double) r->cost_once : 1};
        if (*out != NULL && !steps_keep(s, r)) {
            model_fail(error, "out of memory for a schedule of %" PRId64 " steps", r->n_steps);
            status = GGML_STATUS_ALLOC_FAILED;
        }
    }
    berth_budget_free(r);
    return status;
}

static bool session_recompute(struct session *s, int64_t n_tokens, struct model_error *error) {
    struct ggml_cgraph *graph = NULL;
    if (s->devices->n > 1 || (n_tokens == 1 && s->params.n_batch > 1)) {
        return true;
    }
    const bool is_first = s->steps == NULL;
    const enum ggml_status status = schedule_find(s, &graph, error);
    if (status != GGML_STATUS_SUCCESS) {
        // FAILED: the stored schedule does not match this graph. The graph runs as it was built.
        return !is_first && status == GGML_STATUS_FAILED;
    }
    if (graph != NULL) {
        s->graph = graph;
    }
    return true;
}

// ---- graphs ----

static size_t graph_ctx_size(const struct session *s) {
    return s->max_nodes * 2 * ggml_tensor_overhead() + ggml_graph_overhead_custom(s->max_nodes, false);
}

// Applies the limit to s->graph. Fails if no schedule fits. With plan_only, s->recompute_plan.fits is false instead.
static bool limit_apply(struct session *s, int64_t n_tokens, struct model_error *error) {
    if (!session_recompute(s, n_tokens, error)) {
        return false;
    }
    if (s->recompute_plan.fits || s->params.plan_only || n_tokens < s->params.n_batch) {
        return true;
    }
    return s->devices->n > 1
               ? model_fail(error, "a limit of %zu bytes for the compute buffer requires one device, but %d are used",
                     s->params.compute_limit, s->devices->n)
               : model_fail(error, "no schedule fits into %zu bytes: every schedule needs at least %" PRIu64,
                     s->params.compute_limit, s->recompute_plan.min_size);
}

bool native_graph_build(struct session *s, const struct graph_shape *wanted, struct model_error *error) {
    struct graph_shape shape = *wanted;
    shape.n_ctx = s->params.n_ctx;
    shape.k = s->k;
    shape.v = s->v;
    shape.has_flash = s->has_flash;
    ggml_backend_sched_reset(s->sched);
    ggml_free(s->recompute_ctx);
    s->recompute_ctx = NULL;
    s->graph = NULL;
    s->is_allocated = false;
    s->graph_tokens = 0;
    if (s->graph_ctx == NULL) {
        s->graph_ctx = ggml_init((struct ggml_init_params){.mem_size = graph_ctx_size(s), .no_alloc = true});
    } else {
        ggml_reset(s->graph_ctx);
    }
    if (s->graph_ctx == NULL) {
        return model_fail(error, "out of memory for a graph of %zu nodes", s->max_nodes);
    }
    s->graph = ggml_new_graph_custom(s->graph_ctx, s->max_nodes, false);
    graph_build(s->model, &shape, s->graph_ctx, s->graph, &s->in);
    ggml_set_output(s->in.result);
    if (berth_graph_check(s->graph) != GGML_STATUS_SUCCESS) {
        s->graph = NULL;
        return model_fail(error, "cannot build the graph: %s", berth_last_error());
    }
    return true;
}

static bool native_session_graph(struct session *s, int64_t n_tokens, int64_t n_kv, struct model_error *error) {
    if (s->graph != NULL && s->graph_tokens == n_tokens && s->graph_kv == n_kv) {
        return true;
    }
    const struct graph_shape shape = {.n_tokens = n_tokens,
        .n_seq = 1,
        .n_kv = n_kv,
        .n_out = 1,
        .all_outputs = s->params.all_outputs || s->params.is_embedding,
        .is_embedding = s->params.is_embedding};
    if (!native_graph_build(s, &shape, error)) {
        return false;
    }
    if (s->params.compute_limit > 0 && !limit_apply(s, n_tokens, error)) {
        s->graph = NULL;
        return false;
    }
    s->graph_tokens = n_tokens;
    s->graph_kv = n_kv;
    return true;
}

bool native_graph_reserve(struct session *s, struct model_error *error) {
    berth_clear_error();
    ggml_backend_sched_reserve_size(s->sched, s->graph, s->sizes);
    if (*berth_last_error() != '\0' || (!s->params.plan_only && !ggml_backend_sched_reserve(s->sched, s->graph))) {
        return model_fail(error, "cannot plan a batch of %" PRId64 " tokens with a cache of %" PRId64 " positions: %s",
            s->in.tokens->ne[0], s->n_rows, berth_last_error());
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
    if (berth_sched_work_sizes(s->sched, s->graph, s->sizes) != GGML_STATUS_SUCCESS) {
        return model_fail(error, "%s", berth_last_error());
    }
    for (int d = 0; d < s->devices->n; d++) {
        s->memory[d].work = max_size(s->memory[d].work, s->sizes[d]);
    }
    return true;
}

static bool shape_reserve(struct session *s, int64_t n_tokens, size_t *recompute_size, struct model_error *error) {
    if (!native_session_graph(s, n_tokens, s->params.n_ctx, error) || !native_graph_reserve(s, error)) {
        return false;
    }
    const size_t size = s->recompute_ctx != NULL ? ggml_get_mem_size(s->recompute_ctx) : 0;
    *recompute_size = max_size(*recompute_size, size);
    return true;
}

// Returns the bytes of host memory for the graph, its inputs and its result.
static size_t host_size(const struct session *s) {
    const size_t n_batch = (size_t) s->params.n_batch, n_rows = (size_t) s->n_rows;
    return graph_ctx_size(s) + n_rows * sizeof *s->mask_row + (size_t) s->model->params.n_vocab * sizeof *s->logits +
           n_batch * (sizeof *s->rows + sizeof *s->pos);
}

static bool native_session_reserve(struct session *s, struct model_error *error) {
    for (int d = 0; d < s->devices->n; d++) {
        s->memory[d] = (struct session_memory){.weights = s->model->parts[d].size, .cache = s->caches[d].size};
    }
    size_t recompute_size = 0;
    const bool ok = shape_reserve(s, 1, &recompute_size, error) && shape_reserve(s, s->params.n_batch, &recompute_size, error);
    s->memory[s->devices->n - 1].work += host_size(s) + recompute_size;
    for (int d = 0; ok && !s->params.plan_only && d < s->devices->n; d++) {
        s->memory[d].compute = ggml_backend_sched_get_buffer_size(s->sched, s->devices->backend[d]);
    }
    return ok;
}

// ---- computation ----

// Sets the mask of a batch of n tokens. A token sees the last `window` positions, including its own. mask may be NULL.
// Row i of the mask is for the token at position n_past + i. Column c is for row c of the cache. Position p is in cache row
// p % n_rows. The mask is written row by row, because a complete copy may need as much memory as all other values.
static void mask_set(struct session *s, struct ggml_tensor *mask, int64_t window, int64_t n) {
    const ggml_fp16_t visible = ggml_fp32_to_fp16(0), hidden = ggml_fp32_to_fp16(-INFINITY);
    const int64_t n_rows = mask != NULL ? mask->ne[0] : 0;
    const size_t size = (size_t) n_rows * sizeof hidden;
    for (int64_t j = 0; j < n_rows; j++) {
        s->mask_row[j] = hidden;
    }
    // Start with the positions that the token before the batch attended to.
    for (int64_t pos = max_i64(0, s->n_past - window); mask != NULL && pos < s->n_past; pos++) {
        s->mask_row[pos % n_rows] = visible;
    }
    for (int64_t i = 0; mask != NULL && i < n; i++) {
        const int64_t pos = s->n_past + i;
        if (pos >= window) {
            s->mask_row[(pos - window) % n_rows] = hidden;
        }
        s->mask_row[pos % n_rows] = visible;
        ggml_backend_tensor_set(mask, s->mask_row, (size_t) i * size, size);
    }
}

// Sets the cache rows to which the batch is written. n_rows: rows of the cache. rows may be NULL.
static void rows_set(struct session *s, struct ggml_tensor *rows, int64_t n_rows, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        s->rows[i] = (s->n_past + i) % n_rows;
    }
    if (rows != NULL) {
        ggml_backend_tensor_set(rows, s->rows, 0, (size_t) n * sizeof *s->rows);
    }
}

static void inputs_set(struct session *s, const int32_t *tokens, int64_t n) {
    const int32_t wanted = (int32_t) (n - 1);
    for (int64_t i = 0; i < n; i++) {
        s->pos[i] = (int32_t) (s->n_past + i);
    }
    ggml_backend_tensor_set(s->in.tokens, tokens, 0, (size_t) n * sizeof *tokens);
    if (s->in.states != NULL) {
        ggml_backend_tensor_set(s->in.states, &(int32_t){0}, 0, sizeof(int32_t));
    } else {
        ggml_backend_tensor_set(s->in.pos, s->pos, 0, (size_t) n * sizeof *s->pos);
        rows_set(s, s->in.rows, s->params.n_ctx, n);
        rows_set(s, s->in.window_rows, s->n_ring, n);
    }
    mask_set(s, s->in.mask, s->params.n_ctx, n);
    mask_set(s, s->in.window, s->model->params.n_window, n);
    if (s->in.out != NULL) {
        ggml_backend_tensor_set(s->in.out, &wanted, 0, sizeof wanted);
    }
}

static bool batch_decode(struct session *s, const int32_t *tokens, int64_t n, struct model_error *error) {
    const int64_t n_kv = min_i64(s->params.n_ctx, (s->n_past + n + KV_STEP - 1) / KV_STEP * KV_STEP);
    const bool is_current = s->graph != NULL && s->graph_tokens == n && s->graph_kv == n_kv && s->is_allocated;
    if (!is_current) {
        s->is_allocated = native_session_graph(s, n, n_kv, error) && ggml_backend_sched_alloc_graph(s->sched, s->graph);
        if (!s->is_allocated) {
            return model_fail(error, "cannot allocate memory for a batch of %" PRId64 " tokens: %s", n, berth_last_error());
        }
    }
    inputs_set(s, tokens, n);
    const enum ggml_status status = ggml_backend_sched_graph_compute(s->sched, s->graph);
    if (status != GGML_STATUS_SUCCESS) {
        return model_fail(error, "%s", status == GGML_STATUS_ABORTED ? "computation was interrupted" : berth_last_error());
    }
    const size_t size = (size_t) result_width(s) * sizeof *s->logits;
    for (int64_t i = s->params.is_embedding ? 0 : s->in.result->ne[1] - 1; i < s->in.result->ne[1]; i++) {
        ggml_backend_tensor_get(s->in.result, s->logits, (size_t) i * size, size);
        for (int64_t k = 0; s->params.is_embedding && k < result_width(s); k++) {
            s->sums[k] += s->logits[k];
        }
    }
    s->n_past += n;
    return true;
}

static bool native_session_row(const struct session *s, int64_t i, float *out, struct model_error *error) {
    const size_t size = (size_t) result_width(s) * sizeof *out;
    (void) error;
    ggml_backend_tensor_get(s->in.result, out, (size_t) i * size, size);
    return true;
}

static void native_session_reset(struct session *s) {
    for (int d = 0; (s->model->params.desc->has & ARCH_STATE) != 0 && d < s->devices->n; d++) {
        ggml_backend_buffer_clear(s->caches[d].buffer, 0); // accepts NULL
    }
}

static struct vocab *native_vocab_new(const struct model *model, struct model_error *error) {
    return vocab_new(berth_gguf_map_meta(model->file), model->params.n_vocab, error);
}

const struct model_engine engine_native = {
    .name = "Berth",
    .can_split = true,
    .can_lora = true,
    .can_save = true,
    .can_limit = true,
    .can_replan = true,
    .has_fused = true,
    .place = weights_place,
    .vocab_new = native_vocab_new,
    .session_init = native_session_init,
    .session_fini = native_session_fini,
    .session_reserve = native_session_reserve,
    .session_graph = native_session_graph,
    .batch_decode = batch_decode,
    .session_row = native_session_row,
    .session_reset = native_session_reset,
};
