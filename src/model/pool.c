// SPDX-License-Identifier: MIT
// pool.c: several sequences in one cache (pool.h): what all pools share, and the pool of Berth's own graphs.
//
// The session of a native pool owns the cache, the scheduler and the graph. Its cache has n_rows rows in every layer, also in layers with a
// window: the mask of a token hides the rows outside its window. The graph is built again when the number of tokens or of results
// changes, or when the step attends to more rows (in multiples of KV_STEP). It always has the nodes and edges of a graph that
// pool_new reserved, and no larger extent. So neither building nor computing it allocates (berth-sched.h).

#include "model/pool.h"

#include "base/min.h"

#include <inttypes.h>

const struct pool_ops *pool_ops_of(const struct model *model) {
    return model->engine == &engine_llama ? &pool_llama : &pool_native;
}

// ---- creation ----

static bool params_check(const struct model_devices *devices, const struct pool_params *p, struct model_error *error) {
    if (devices->shares != NULL) {
        return model_fail(error, "several sequences are not supported on a composite device, which divides every page");
    }
    if (p->n_page < 1 || p->n_rows < p->n_page || p->n_rows % p->n_page != 0 || p->n_rows / p->n_page > INT32_MAX) {
        return model_fail(
            error, "a cache of %" PRId64 " positions cannot be divided into pages of %" PRId64, p->n_rows, p->n_page);
    }
    if (p->n_ctx < 1 || p->n_ctx > p->n_rows) {
        return model_fail(error, "a context of %" PRId64 " positions does not fit into a cache of %" PRId64, p->n_ctx, p->n_rows);
    }
    if (p->n_seq < 1 || p->n_batch < p->n_seq) {
        return model_fail(error, "a batch of %" PRId64 " tokens is too small for %d sequences", p->n_batch, p->n_seq);
    }
    return true;
}

// True: every layer of the cache is in host memory.
static bool cache_is_host(const struct session *s) {
    for (int64_t i = 0; i < s->model->params.n_layer; i++) {
        const struct ggml_tensor *k = s->k[i];
        if (k != NULL && k->buffer != NULL && !ggml_backend_buffer_is_host(k->buffer)) {
            return false;
        }
    }
    return true;
}

static bool arrays_make(struct pool *p, struct model_error *error) {
    const struct pages_params pages = {.n_page = p->params.n_page,
        .n_pages = p->params.n_rows / p->params.n_page,
        .n_ctx = p->params.n_ctx,
        .n_seq = p->params.n_seq,
        .no_keep = !p->ops->keeps_pages,
        .is_ordered = p->ops->page_move != NULL && (p->params.is_deterministic || cache_is_host(p->session))};
    const size_t n = (size_t) p->params.n_batch;
    p->pages = pages_new(&pages);
    p->tokens = berth_malloc(n * sizeof *p->tokens);
    p->pos = berth_malloc(n * sizeof *p->pos);
    p->seq = berth_malloc(n * sizeof *p->seq);
    p->rows = berth_malloc(n * sizeof *p->rows);
    p->out = berth_malloc((size_t) p->params.n_seq * sizeof *p->out);
    if (p->pages == NULL || p->tokens == NULL || p->pos == NULL || p->seq == NULL || p->rows == NULL || p->out == NULL) {
        return model_fail(error, "out of memory for batches of %zu tokens and %" PRId64 " pages", n, pages.n_pages);
    }
    p->session->memory[p->session->devices->n - 1].work +=
        pages_size(&pages) + n * (3 * sizeof *p->tokens + sizeof *p->rows) + (size_t) p->params.n_seq * sizeof *p->out;
    return true;
}

struct pool *pool_new(
    const struct model *model, const struct model_devices *devices, const struct pool_params *params, struct model_error *error) {
    if (!params_check(devices, params, error)) {
        return NULL;
    }
    struct pool *p = berth_calloc(1, sizeof *p);
    if (p == NULL) {
        model_fail(error, "out of memory");
        return NULL;
    }
    const struct session_params session = {.n_ctx = params->n_ctx,
        .n_rows = params->n_rows,
        .n_seq = params->n_seq,
        .n_batch = params->n_batch,
        .cache_k = params->cache_k,
        .cache_v = params->cache_v,
        .plan_only = params->plan_only,
        .no_resident = true}; // all memory is planned
    p->params = *params;
    p->ops = pool_ops_of(model);
    p->session = session_new(model, devices, &session, error);
    if (p->session == NULL || !p->ops->reserve(p, error) || !arrays_make(p, error)) {
        pool_free(p);
        return NULL;
    }
    p->params.n_batch = p->session->params.n_batch;
    return p;
}

void pool_free(struct pool *p) {
    if (p == NULL) {
        return;
    }
    session_free(p->session);
    ggml_backend_buffer_free(p->results);
    pages_free(p->pages);
    berth_free(p->tokens);
    berth_free(p->pos);
    berth_free(p->seq);
    berth_free(p->rows);
    berth_free(p->out);
    berth_free(p);
}

// ---- sequences ----

struct pages_prefix pool_find(const struct pool *p, const int32_t *tokens, int64_t n) {
    const struct pages_prefix none = {.sharer = -1};
    if (!p->can_share) {
        return none;
    }
    const struct pages_prefix found = pages_find(p->pages, tokens, n);
    const bool is_usable = found.n_shared == 0 || p->ops->prefix_check == NULL || p->ops->prefix_check(p, found.sharer);
    return is_usable ? found : none;
}

void pool_start(struct pool *p, int seq, const int32_t *tokens, const struct pages_prefix *prefix) {
    pages_start(p->pages, seq, tokens, prefix->n_cached);
    if (p->ops->start != NULL) {
        p->ops->start(p, seq, prefix);
    }
}

void pool_learn(struct pool *p, int seq, const int32_t *tokens, int64_t n) {
    if (p->can_share) {
        pages_learn(p->pages, seq, tokens, n);
    }
}

void pool_end(struct pool *p, int seq) {
    pages_end(p->pages, seq);
    if (p->ops->end != NULL) {
        p->ops->end(p, seq);
    }
}

// ---- batches ----

void pool_batch(struct pool *p, bool is_embedding) {
    p->n_tokens = 0;
    p->n_out = 0;
    p->is_embedding = is_embedding;
}

static bool run_check(const struct pool *p, const struct pool_run *r, struct model_error *error) {
    const int64_t n_vocab = p->session->model->params.n_vocab;
    if (r->n < 1 || r->n > p->params.n_batch - p->n_tokens || (r->has_logits && p->n_out == p->params.n_seq)) {
        return model_fail(error, "%" PRId64 " tokens do not fit into the batch: %" PRId64 " of %" PRId64 " are in use", r->n,
            p->n_tokens, p->params.n_batch);
    }
    if (r->pos < 0 || r->n > p->params.n_ctx - r->pos) {
        return model_fail(error,
            "%" PRId64 " tokens do not fit into the context: %" PRId64 " of %" PRId64 " positions are in use", r->n, r->pos,
            p->params.n_ctx);
    }
    for (int64_t i = 0; i < r->n; i++) {
        if (r->tokens[i] < 0 || r->tokens[i] >= n_vocab) {
            return model_fail(error, "token %d is outside the vocabulary of %" PRId64 " tokens", r->tokens[i], n_vocab);
        }
    }
    return true;
}

// Gives a sequence the pages for n positions.
static bool positions_add(struct pool *p, int seq, int64_t n, struct model_error *error) {
    while (pages_n_positions(p->pages, seq) < n) {
        int64_t n_moves = 0;
        if (!pages_add(p->pages, seq, &n_moves)) {
            return model_fail(error, "no page is free: %" PRId64 " of %" PRId64 " are in use", pages_n_used(p->pages),
                p->params.n_rows / p->params.n_page);
        }
        for (int64_t i = 0; p->ops->page_move != NULL && i < n_moves; i++) {
            p->ops->page_move(p, &pages_moves(p->pages)[i]);
        }
    }
    return true;
}

int64_t pool_add(struct pool *p, const struct pool_run *r, struct model_error *error) {
    if (!run_check(p, r, error) || !positions_add(p, r->seq, r->pos + r->n, error)) {
        return -1;
    }
    const int64_t first = p->n_tokens;
    for (int64_t i = 0; i < r->n; i++) {
        p->tokens[first + i] = r->tokens[i];
        p->pos[first + i] = (int32_t) (r->pos + i);
        p->seq[first + i] = r->seq;
    }
    p->n_tokens += r->n;
    if (!r->has_logits) {
        return first;
    }
    p->out[p->n_out] = (int32_t) (p->n_tokens - 1);
    return p->n_out++;
}

bool pool_decode(struct pool *p, struct model_error *error) {
    return p->ops->decode(p, error);
}

float *pool_result(const struct pool *p, int64_t i) {
    return p->ops->result(p, i);
}

// ---- the pool of Berth's own graphs ----

static bool graph_make(struct pool *p, struct graph_shape shape, struct model_error *error) {
    p->shape = (struct graph_shape){0};
    shape.n_seq = 1;
    shape.all_outputs = shape.is_embedding;
    if (!native_graph_build(p->session, &shape, error)) {
        return false;
    }
    p->shape = shape;
    return true;
}

// Allocates the memory for results, unless all devices are the host. The device of the last layer computes the results.
static bool results_make(struct pool *p, struct model_error *error) {
    const struct session *s = p->session;
    const struct model_params *m = &s->model->params;
    const int host = s->devices->n - 1;
    const int64_t n_most = max_i64(p->params.n_seq * m->n_vocab, s->params.n_batch * m->n_embd);
    const size_t size = (size_t) n_most * sizeof(float);
    if (host == 0) {
        return true;
    }
    s->memory[host].work += size;
    if (s->params.plan_only) {
        return true;
    }
    ggml_backend_buffer_type_t buft = ggml_backend_dev_host_buffer_type(s->devices->dev[0]);
    if (buft == NULL) {
        buft = ggml_backend_dev_buffer_type(s->devices->dev[host]);
    }
    p->results = ggml_backend_buft_alloc_buffer(buft, size);
    if (p->results == NULL) {
        return model_fail(error, "out of memory for %zu bytes of results: %s", size, berth_last_error());
    }
    ggml_backend_buffer_clear(p->results, 0); // makes the memory resident
    return true;
}

// Reserves the graphs of one token and of the largest batch, because their nodes may differ, for logits and for embeddings.
static bool native_reserve(struct pool *p, struct model_error *error) {
    struct session *s = p->session;
    if ((s->model->params.desc->has & ARCH_STATE) != 0) {
        return model_fail(error,
            "several sequences are not supported for %s: its state is not a cache of positions; --llama runs it with libllama",
            s->model->params.arch);
    }
    for (int d = 0; d < s->devices->n; d++) {
        s->memory[d] = (struct session_memory){.weights = s->model->parts[d].size, .cache = s->caches[d].size};
    }
    for (int i = 0; i < 4; i++) {
        const bool is_large = i >= 2;
        const struct graph_shape shape = {.n_tokens = is_large ? s->params.n_batch : 1,
            .n_kv = p->params.n_rows,
            .n_out = is_large ? p->params.n_seq : 1,
            .is_embedding = i % 2 == 0};
        if (!graph_make(p, shape, error) || !native_graph_reserve(s, error)) {
            return false;
        }
    }
    for (int d = 0; !s->params.plan_only && d < s->devices->n; d++) {
        s->memory[d].compute = ggml_backend_sched_get_buffer_size(s->sched, s->devices->backend[d]);
    }
    s->memory[s->devices->n - 1].work += ggml_get_mem_size(s->graph_ctx);
    p->can_share = true;
    return results_make(p, error);
}

// Copies the rows of a page to another place of the same cache tensor.
static void rows_move(const struct pool *p, struct ggml_tensor *cache, const struct page_move *move) {
    if (cache == NULL) {
        return;
    }
    const size_t size = (size_t) p->params.n_page * cache->nb[1];
    struct ggml_tensor from = *cache;
    from.ne[1] = p->params.n_page;
    from.nb[2] = size;
    from.nb[3] = size;
    struct ggml_tensor to = from;
    from.data = (char *) cache->data + (size_t) move->from * size;
    to.data = (char *) cache->data + (size_t) move->to * size;
    ggml_backend_tensor_copy(&from, &to);
}

static void native_page_move(const struct pool *p, const struct page_move *move) {
    for (int64_t layer = 0; layer < p->session->model->params.n_layer; layer++) {
        rows_move(p, p->session->k[layer], move);
        rows_move(p, p->session->v[layer], move);
    }
}

// Shows n positions from `pos` on of a sequence in a row of a mask.
static void positions_show(const struct pool *p, int seq, int64_t pos, int64_t n, ggml_fp16_t *row) {
    const ggml_fp16_t visible = ggml_fp32_to_fp16(0);
    while (n > 0) {
        const int64_t in_page = min_i64(n, p->params.n_page - pos % p->params.n_page);
        ggml_fp16_t *at = row + pages_row(p->pages, seq, pos);
        for (int64_t i = 0; i < in_page; i++) {
            at[i] = visible;
        }
        pos += in_page;
        n -= in_page;
    }
}

// Sets the mask of the batch: a token sees the last `window` positions of its sequence, including its own. mask may be NULL. Row i is
// for token i, column c for row c of the cache.
static void mask_set(const struct pool *p, struct ggml_tensor *mask, int64_t window) {
    const ggml_fp16_t hidden = 0xfc00; // -infinity
    const int64_t n_kv = mask != NULL ? mask->ne[0] : 0;
    const bool is_host = mask != NULL && ggml_backend_buffer_is_host(mask->buffer);
    const size_t size = (size_t) n_kv * sizeof hidden;
    for (int64_t i = 0; mask != NULL && i < p->n_tokens; i++) {
        ggml_fp16_t *row =
            is_host ? (ggml_fp16_t *) (void *) ((char *) mask->data + (size_t) i * mask->nb[1]) : p->session->mask_row;
        const int64_t first = max_i64(0, p->pos[i] + 1 - window);
        for (int64_t k = 0; k < n_kv; k++) {
            row[k] = hidden;
        }
        positions_show(p, p->seq[i], first, p->pos[i] + 1 - first, row);
        if (!is_host) {
            ggml_backend_tensor_set(mask, row, (size_t) i * size, size);
        }
    }
}

static void array_set(struct ggml_tensor *t, const void *values) {
    if (t != NULL) {
        ggml_backend_tensor_set(t, values, 0, ggml_nbytes(t));
    }
}

static void inputs_set(struct pool *p) {
    const struct graph_inputs *in = &p->session->in;
    for (int64_t i = 0; i < p->n_tokens; i++) {
        p->rows[i] = pages_row(p->pages, p->seq[i], p->pos[i]);
    }
    array_set(in->tokens, p->tokens);
    array_set(in->pos, p->pos);
    array_set(in->rows, p->rows);
    array_set(in->window_rows, p->rows);
    array_set(in->out, p->out);
    mask_set(p, in->mask, p->params.n_ctx);
    mask_set(p, in->window, p->session->model->params.n_window);
}

static bool native_decode(struct pool *p, struct model_error *error) {
    struct session *s = p->session;
    const int64_t n_seen = (pages_top(p->pages) * p->params.n_page + KV_STEP - 1) / KV_STEP * KV_STEP;
    const struct graph_shape shape = {.n_tokens = p->n_tokens,
        .n_kv = min_i64(p->params.n_rows, n_seen),
        .n_out = max_i64(1, p->n_out),
        .is_embedding = p->is_embedding};
    const bool is_current = s->is_allocated && p->shape.n_tokens == shape.n_tokens && p->shape.n_kv == shape.n_kv &&
                            p->shape.n_out == shape.n_out && p->shape.is_embedding == shape.is_embedding;
    if (p->n_out == 0) {
        p->out[0] = 0; // a graph has at least one result
    }
    if (!is_current) {
        s->is_allocated = graph_make(p, shape, error) && ggml_backend_sched_alloc_graph(s->sched, s->graph);
        if (!s->is_allocated) {
            return model_fail(
                error, "cannot allocate memory for a batch of %" PRId64 " tokens: %s", p->n_tokens, berth_last_error());
        }
    }
    inputs_set(p);
    const enum ggml_status status = ggml_backend_sched_graph_compute(s->sched, s->graph);
    if (status != GGML_STATUS_SUCCESS) {
        return model_fail(error, "%s", status == GGML_STATUS_ABORTED ? "computation was interrupted" : berth_last_error());
    }
    if (p->results != NULL && (p->n_out > 0 || p->is_embedding)) {
        ggml_backend_tensor_get(s->in.result, ggml_backend_buffer_get_base(p->results), 0, ggml_nbytes(s->in.result));
    }
    return true;
}

static float *native_result(const struct pool *p, int64_t i) {
    const struct ggml_tensor *result = p->session->in.result;
    float *first = result->data;
    if (p->results != NULL) {
        first = ggml_backend_buffer_get_base(p->results);
    }
    return first + i * result->ne[0];
}

const struct pool_ops pool_native = {
    .keeps_pages = true,
    .is_deterministic = true,
    .reserve = native_reserve,
    .page_move = native_page_move,
    .decode = native_decode,
    .result = native_result,
};
