// SPDX-License-Identifier: MIT
// llama_pool.c: several sequences in one libllama context (pool.h). All sequences share the cells of one cache. libllama chooses the
// cells, and the pages of the pool count them: a sequence has no more cells than its pages have positions. So libllama always finds
// free cells for the tokens of an admitted sequence.
//
// libllama allocates the cache and the compute buffers when the context is created. Its buffer for results grows with the first large
// batch, so llama_reserve begins such batches and aborts them. The buffer has logits and a hidden state for each result, even if only
// hidden states are needed. So embeddings are computed in small batches.

#include "base/min.h"
#include "model/llama.h"
#include "model/pool.h"

#include <inttypes.h>
#include <string.h>

#define MAX_EMBEDDED 32 // tokens per batch of embeddings, unless more sequences run at once

static const struct llama_library *lib_of(const struct pool *p) {
    return ((const struct model_llama *) p->session->model->engine_data)->lib;
}

static struct session_llama *data_of(const struct pool *p) {
    return p->session->engine_data;
}

static struct llama_memory *memory_of(const struct pool *p) {
    return lib_of(p)->llama_get_memory(data_of(p)->ctx);
}

static int64_t embedded_count(const struct pool *p) {
    return min_i64(p->session->params.n_batch, max_i64(p->params.n_seq, MAX_EMBEDDED));
}

// ---- creation ----

static bool abort_always(void *unused) {
    (void) unused;
    return true;
}

// Begins a batch of n tokens with n_out results, so that libllama allocates the memory for them.
static bool batch_begin(struct pool *p, int64_t n, int64_t n_out, struct model_error *error) {
    struct llama_batch *b = &data_of(p)->batch;
    b->n_tokens = (int32_t) n;
    for (int32_t i = 0; i < b->n_tokens; i++) {
        b->token[i] = 0;
        b->pos[i] = i;
        b->n_seq_id[i] = 1;
        b->seq_id[i][0] = 0;
        b->logits[i] = i < n_out;
    }
    llama_error_clear();
    const int32_t status = lib_of(p)->llama_decode(data_of(p)->ctx, *b);
    lib_of(p)->llama_memory_clear(memory_of(p), true);
    return status == 0 || status == 2 ||
           model_fail(error, "libllama cannot compute a batch of %" PRId64 " tokens: %s", n, llama_error());
}

static bool results_reserve(struct pool *p, struct model_error *error) {
    const struct model_devices *devices = p->session->devices;
    const int64_t n_batch = p->session->params.n_batch, n_embedded = embedded_count(p);
    struct session_llama *data = data_of(p);
    data->hidden = berth_calloc((size_t) (n_batch * p->session->model->params.n_embd), sizeof *data->hidden);
    if (data->hidden == NULL) {
        return model_fail(error, "out of memory for the hidden states of %" PRId64 " tokens", n_batch);
    }
    lib_of(p)->llama_set_abort_callback(data->ctx, abort_always, NULL);
    const bool has_logits = batch_begin(p, n_batch, min_i64(n_batch, p->params.n_seq), error);
    lib_of(p)->llama_set_embeddings(data->ctx, true);
    const bool has_hidden = has_logits && batch_begin(p, n_embedded, n_embedded, error);
    lib_of(p)->llama_set_abort_callback(data->ctx, devices->abort, devices->abort_data);
    return has_hidden;
}

// Adds the memory that a session does not have: of the results, and the work memory of the devices.
static bool memory_count(struct pool *p, struct model_error *error) {
    struct session *s = p->session;
    const struct model_params *m = &s->model->params;
    const int n = ggml_backend_sched_get_n_backends(s->sched);
    size_t *sizes = berth_calloc((size_t) n, sizeof *sizes);
    if (sizes == NULL) {
        return model_fail(error, "out of memory for the sizes of %d backends", n);
    }
    struct session_memory *host = &s->memory[s->devices->n - 1];
    host->work += (size_t) (embedded_count(p) * (m->n_vocab + m->n_embd) + s->params.n_batch * m->n_embd) * sizeof(float);
    if (berth_sched_work_sizes(s->sched, s->graph, sizes) == GGML_STATUS_SUCCESS) {
        for (int i = 0; i < n; i++) {
            host->work += sizes[i];
        }
    }
    berth_free(sizes);
    return true;
}

static bool llama_reserve(struct pool *p, struct model_error *error) {
    const struct session *s = p->session;
    const struct model_llama *m = s->model->engine_data;
    if (m->has_encoder || !m->has_decoder || memory_of(p) == NULL) {
        return model_fail(
            error, "architecture '%s' cannot be served: it does not generate text token by token", s->model->params.arch);
    }
    p->can_share = !m->lib->llama_model_is_recurrent(m->model) && !m->lib->llama_model_is_hybrid(m->model);
    return memory_count(p, error) && (s->params.plan_only || results_reserve(p, error));
}

// ---- sequences ----

// Layers with a window may have dropped the first positions.
static bool llama_prefix_check(const struct pool *p, int sharer) {
    return lib_of(p)->llama_memory_seq_pos_min(memory_of(p), sharer) == 0;
}

static void llama_start(struct pool *p, int seq, const struct pages_prefix *prefix) {
    if (prefix->n_cached > 0) {
        lib_of(p)->llama_memory_seq_cp(memory_of(p), prefix->sharer, seq, 0, (int32_t) prefix->n_cached);
    }
}

static void llama_end(struct pool *p, int seq) {
    lib_of(p)->llama_memory_seq_rm(memory_of(p), seq, -1, -1);
}

// ---- batches ----

// Computes n tokens of the batch, from token `first` on.
static bool tokens_decode(struct pool *p, int64_t first, int64_t n, struct model_error *error) {
    struct session_llama *data = data_of(p);
    struct llama_batch *b = &data->batch;
    b->n_tokens = (int32_t) n;
    for (int64_t i = 0; i < n; i++) {
        b->token[i] = p->tokens[first + i];
        b->pos[i] = p->pos[first + i];
        b->n_seq_id[i] = 1;
        b->seq_id[i][0] = p->seq[first + i];
        b->logits[i] = p->is_embedding;
    }
    for (int64_t i = 0; i < p->n_out; i++) {
        b->logits[p->out[i]] = true;
    }
    llama_error_clear();
    const int32_t status = lib_of(p)->llama_decode(data->ctx, *b);
    return status == 0 || model_fail(error, "libllama cannot compute a batch of %d tokens: %s", b->n_tokens,
                              status == 2 ? "computation was interrupted" : llama_error());
}

static bool hidden_read(struct pool *p, int64_t first, int64_t n, struct model_error *error) {
    const size_t n_embd = (size_t) p->session->model->params.n_embd;
    for (int64_t i = 0; i < n; i++) {
        const float *row = lib_of(p)->llama_get_embeddings_ith(data_of(p)->ctx, (int32_t) i);
        if (row == NULL) {
            return model_fail(error, "libllama returned no embedding for token %" PRId64, first + i);
        }
        memcpy(data_of(p)->hidden + (size_t) (first + i) * n_embd, row, n_embd * sizeof *row);
    }
    return true;
}

static bool llama_pool_decode(struct pool *p, struct model_error *error) {
    lib_of(p)->llama_set_embeddings(data_of(p)->ctx, p->is_embedding);
    for (int64_t at = 0; p->is_embedding && at < p->n_tokens; at += embedded_count(p)) {
        const int64_t n = min_i64(embedded_count(p), p->n_tokens - at);
        if (!tokens_decode(p, at, n, error) || !hidden_read(p, at, n, error)) {
            return false;
        }
    }
    if (!p->is_embedding && !tokens_decode(p, 0, p->n_tokens, error)) {
        return false;
    }
    for (int64_t i = 0; i < p->n_out; i++) {
        if (lib_of(p)->llama_get_logits_ith(data_of(p)->ctx, p->out[i]) == NULL) {
            return model_fail(error, "libllama returned no logits for token %d", p->out[i]);
        }
    }
    return true;
}

static float *llama_result(const struct pool *p, int64_t i) {
    if (p->is_embedding) {
        return data_of(p)->hidden + i * p->session->model->params.n_embd;
    }
    return lib_of(p)->llama_get_logits_ith(data_of(p)->ctx, p->out[i]);
}

const struct pool_ops pool_llama = {
    .reserve = llama_reserve,
    .prefix_check = llama_prefix_check,
    .start = llama_start,
    .end = llama_end,
    .decode = llama_pool_decode,
    .result = llama_result,
};
