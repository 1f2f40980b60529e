// SPDX-License-Identifier: MIT
// llama.c: a model and a session of libllama as a model and a session of this room. A context of libllama reserves its graphs
// when it is made; what Berth is asked for then is watched and becomes the session's scheduler, graph and memory.

#include "model/llama.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// ---- what is watched ----

// The device of a buffer type; memory of the host is the CPU's, which is the last.
static int device_of(const struct model_devices *devices, ggml_backend_buffer_type_t buft) {
    ggml_backend_dev_t dev = ggml_backend_buft_get_device(buft);
    for (int d = 0; d < devices->n - 1 && !ggml_backend_buft_is_host(buft); d++) {
        if (devices->dev[d] == dev) {
            return d;
        }
    }
    return devices->n - 1;
}

// Weights beside those that stay in the file's pages.
struct place_watch {
    struct model *model;
    const struct model_devices *devices;
};

static void on_weights(ggml_backend_buffer_type_t buft, size_t size, void *user) {
    struct place_watch *w = user;
    w->model->parts[device_of(w->devices, buft)].size += size;
}

static void on_cache(ggml_backend_buffer_type_t buft, size_t size, void *user) {
    struct session *s = user;
    s->memory[device_of(s->devices, buft)].cache += size;
}

// A context may make more than one scheduler; the last is the one it works with.
static void on_plan(ggml_backend_sched_t sched, struct ggml_cgraph *graph, const size_t *sizes, void *user) {
    struct session *s = user;
    for (int d = 0; d < s->devices->n && s->sched != sched; d++) {
        s->memory[d].compute = 0;
    }
    s->sched = sched;
    s->graph = graph;
    for (int b = 0; b < ggml_backend_sched_get_n_backends(sched); b++) {
        ggml_backend_t backend = ggml_backend_sched_get_backend(sched, b);
        const int d = device_of(s->devices, ggml_backend_sched_get_buffer_type(sched, backend));
        const size_t size = sizes != NULL ? sizes[b] : ggml_backend_sched_get_buffer_size(sched, backend);
        struct session_memory *m = &s->memory[d];
        if (size >= m->compute) {
            m->compute = size;
            if (berth_sched_report(sched, backend, &m->report) != GGML_STATUS_SUCCESS) {
                m->report = (struct berth_plan_report){.peak = size};
            }
        }
    }
}

// Planned only, most of the cache has no memory that could be watched, but buffers of no bytes: its tensors are those that graphs
// write into.
struct cache_list {
    const struct ggml_tensor **items;
    size_t n, cap;
};

static bool cache_add(struct session *s, struct cache_list *list, const struct ggml_tensor *t) {
    while (t->view_src != NULL) {
        t = t->view_src;
    }
    if (strncmp(t->name, "cache_", 6) != 0 || t->op != GGML_OP_NONE || t->buffer == NULL ||
        ggml_backend_buffer_get_size(t->buffer) > 0) {
        return true;
    }
    for (size_t i = 0; i < list->n; i++) {
        if (list->items[i] == t) {
            return true;
        }
    }
    if (list->n == list->cap) {
        const size_t cap = list->cap > 0 ? 2 * list->cap : 64;
        const struct ggml_tensor **more = model_alloc_realloc(list->items, cap * sizeof *more);
        if (more == NULL) {
            return false;
        }
        list->items = more;
        list->cap = cap;
    }
    list->items[list->n++] = t;
    ggml_backend_buffer_type_t buft = ggml_backend_buffer_get_type(t->buffer);
    const size_t align = ggml_backend_buft_get_alignment(buft), size = ggml_backend_buft_get_alloc_size(buft, t);
    s->memory[device_of(s->devices, buft)].cache += (size + align - 1) / align * align;
    return true;
}

// A cache that no graph writes into (an encoder's) is as large as libllama says. False: out of memory.
static bool cache_count(struct session *s) {
    struct cache_list list = {0};
    bool ok = true;
    for (int i = 0; ok && i < ggml_graph_n_nodes(s->graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(s->graph, i);
        ok = cache_add(s, &list, node);
        for (int k = 0; ok && k < GGML_MAX_SRC; k++) {
            ok = node->src[k] == NULL || cache_add(s, &list, node->src[k]);
        }
    }
    size_t all = 0;
    for (int d = 0; d < s->devices->n; d++) {
        all += s->memory[d].cache;
    }
    s->memory[s->devices->n - 1].cache += all == 0 ? llama_said_cache() : 0;
    model_alloc_free(list.items);
    return ok;
}

// ---- a model ----

struct model *model_open_llama(const char *path, bool no_mmap, struct model_error *error) {
    const struct llama_library *lib = llama_library_get(error);
    struct model *m = lib != NULL ? model_alloc_calloc(1, sizeof *m) : NULL;
    if (m == NULL) {
        model_fail(error, "out of memory");
        return NULL;
    }
    m->llama = model_alloc_calloc(1, sizeof *m->llama);
    if (m->llama == NULL || !model_files_open(m, path, false, error)) {
        model_fail(error, "out of memory");
        model_free(m);
        return NULL;
    }
    m->llama->lib = lib;
    m->llama->no_mmap = no_mmap;
    snprintf(m->llama->path, sizeof m->llama->path, "%s", path);
    m->params.arch = "no architecture";
    if (!keys_text(berth_gguf_map_meta(m->file), "general.architecture", &m->params.arch, error)) {
        model_free(m);
        return NULL;
    }
    return m;
}

static void params_take(struct model *m) {
    const struct llama_library *lib = m->llama->lib;
    m->llama->vocab = lib->llama_model_get_vocab(m->llama->model);
    m->llama->has_encoder = lib->llama_model_has_encoder(m->llama->model);
    m->llama->has_decoder = lib->llama_model_has_decoder(m->llama->model);
    m->params.n_layer = lib->llama_model_n_layer(m->llama->model);
    m->params.n_embd = lib->llama_model_n_embd(m->llama->model);
    m->params.n_vocab = lib->llama_vocab_n_tokens(m->llama->vocab);
    m->params.n_ctx_train = lib->llama_model_n_ctx_train(m->llama->model);
}

// What lies on no other device is the CPU's, in the file's own pages or as it was read.
static void weights_count(struct model *m, int n_devices, bool is_mapped) {
    size_t all = (size_t) m->llama->lib->llama_model_size(m->llama->model);
    for (int d = 0; d + 1 < n_devices; d++) {
        all -= m->parts[d].size < all ? m->parts[d].size : all;
    }
    m->parts[n_devices - 1].size = all;
    m->parts[n_devices - 1].is_mapped = is_mapped;
}

bool llama_place(struct model *m, const struct model_devices *devices, bool plan_only, struct model_error *error) {
    const struct llama_library *lib = m->llama->lib;
    struct llama_model_params params = lib->llama_model_default_params();
    struct place_watch watch = {m, devices};
    void **gpus = model_alloc_calloc((size_t) devices->n, sizeof *gpus); // NULL in the place of the CPU
    m->parts = model_alloc_calloc((size_t) devices->n, sizeof *m->parts);
    if (gpus == NULL || m->parts == NULL) {
        model_alloc_free(gpus);
        return model_fail(error, "out of memory for the parts on %d devices", devices->n);
    }
    m->n_parts = devices->n;
    for (int d = 0; d + 1 < devices->n; d++) {
        gpus[d] = devices->dev[d];
    }
    params.devices = gpus;
    params.n_gpu_layers = devices->n > 1 ? 999 : 0;
    if (plan_only) {
        llama_no_alloc(&params, lib->release);
    }
    if (plan_only || m->llama->no_mmap) {
        params.load_mode = 0;
    }
    m->llama->plan_only = plan_only;
    llama_error_clear();
    berth_tensors_on_place(on_weights, &watch);
    m->llama->model = lib->llama_model_load_from_file(m->llama->path, params);
    berth_tensors_on_place(NULL, NULL);
    model_alloc_free(gpus);
    if (m->llama->model == NULL) {
        return model_fail(error, "%s: libllama %s cannot load it: %s", m->llama->path, lib->release, llama_error());
    }
    params_take(m);
    m->layer_device =
        model_alloc_calloc((size_t) m->params.n_layer + 1, sizeof *m->layer_device); // 0: all on a GPU, if there is one
    if (m->layer_device == NULL) {
        return model_fail(error, "out of memory for %" PRId64 " layers", m->params.n_layer);
    }
    weights_count(m, devices->n, !m->llama->no_mmap);
    return true;
}

void llama_model_close(struct model *m) {
    if (m->llama->model != NULL) {
        m->llama->lib->llama_model_free(m->llama->model);
    }
    model_alloc_free(m->llama);
}

// ---- a session ----

static void context_free(struct session *s) {
    if (s->llama->ctx != NULL) {
        s->model->llama->lib->llama_free(s->llama->ctx);
    }
    s->llama->ctx = NULL;
    s->sched = NULL; // was the context's
    s->graph = NULL;
}

static bool context_make(struct session *s, int64_t n_batch, struct model_error *error) {
    const struct model_llama *m = s->model->llama;
    struct llama_context_params params = m->lib->llama_context_default_params();
    params.n_ctx = (uint32_t) s->params.n_ctx;
    params.n_batch = params.n_ubatch = (uint32_t) n_batch;
    params.n_seq_max = 1;
    params.n_threads = params.n_threads_batch = s->devices->n_threads;
    params.type_k = (int32_t) s->params.cache_k;
    params.type_v = (int32_t) s->params.cache_v;
    params.flash_attn = s->params.no_flash ? 0 : params.flash_attn;
    params.embeddings = s->params.is_embedding;
    params.pooling_type = s->params.is_embedding ? 0 : params.pooling_type;
    context_free(s);
    llama_said_cache();
    llama_error_clear();
    for (int d = 0; d < s->devices->n; d++) {
        s->memory[d] = (struct session_memory){.weights = s->model->parts[d].size};
    }
    berth_tensors_on_place(on_cache, s);
    berth_sched_on_plan(on_plan, s);
    s->llama->ctx = m->lib->llama_init_from_model(m->model, params);
    berth_tensors_on_place(NULL, NULL);
    berth_sched_on_plan(NULL, NULL);
    s->graph_tokens = n_batch;
    if (s->llama->ctx == NULL || s->sched == NULL) {
        return model_fail(error, "libllama %s makes no context of %" PRId64 " positions with batches of %" PRId64 ": %s",
            m->lib->release, s->params.n_ctx, n_batch, llama_error());
    }
    return !m->plan_only || cache_count(s) || model_fail(error, "out of memory for the tensors of the cache");
}

struct session *llama_session_new(const struct model *model, const struct model_devices *devices,
    const struct session_params *params, struct model_error *error) {
    const struct llama_library *lib = model->llama->lib;
    struct session *s = model_alloc_calloc(1, sizeof *s);
    struct session_llama *own = model_alloc_calloc(1, sizeof *own);
    if (s == NULL || own == NULL) {
        model_alloc_free(s);
        model_alloc_free(own);
        model_fail(error, "out of memory");
        return NULL;
    }
    s->llama = own;
    s->model = model;
    s->devices = devices;
    s->params = *params;
    session_defaults(&s->params, model);
    s->memory = model_alloc_calloc((size_t) devices->n, sizeof *s->memory);
    const int64_t n = model->params.n_vocab > model->params.n_embd ? model->params.n_vocab : model->params.n_embd;
    s->logits = model_alloc_calloc((size_t) n, sizeof *s->logits);
    s->sums = model_alloc_calloc((size_t) model->params.n_embd, sizeof *s->sums);
    const bool is_in = s->memory != NULL && s->logits != NULL && s->sums != NULL;
    if (!is_in) {
        model_fail(error, "out of memory for %" PRId64 " numbers", n);
    }
    if (!is_in || !context_make(s, s->params.n_batch, error)) {
        llama_session_free(s);
        return NULL;
    }
    if (!params->plan_only) {
        own->batch = lib->llama_batch_init((int32_t) s->params.n_batch, 0, 1);
        lib->llama_set_abort_callback(own->ctx, devices->abort, devices->abort_data);
    }
    return s;
}

void llama_session_free(struct session *s) {
    context_free(s);
    if (s->llama->batch.token != NULL) {
        s->model->llama->lib->llama_batch_free(s->llama->batch);
    }
    model_alloc_free(s->llama);
    model_alloc_free(s->memory);
    model_alloc_free(s->logits);
    model_alloc_free(s->sums);
    model_alloc_free(s);
}

// The graph of a context is that of its largest batch, so that another size takes another context.
bool llama_session_graph(struct session *s, int64_t n_tokens, struct model_error *error) {
    return (s->graph != NULL && s->graph_tokens == n_tokens) || context_make(s, n_tokens, error);
}

// ---- computing ----

static void batch_fill(struct session *s, const int32_t *tokens, int64_t n, bool all) {
    struct llama_batch *b = &s->llama->batch;
    b->n_tokens = (int32_t) n;
    for (int64_t i = 0; i < n; i++) {
        b->token[i] = tokens[i];
        b->pos[i] = (int32_t) (s->n_past + i);
        b->n_seq_id[i] = 1;
        b->seq_id[i][0] = 0;
        b->logits[i] = all || i + 1 == n;
    }
}

static bool check(int32_t status, struct model_error *error) {
    return status == 0 || model_fail(error, "%s", status == 2 ? "computing was stopped" : llama_error());
}

// The vector of each token is added to the sum of all.
static bool vectors_take(struct session *s, int64_t n, struct model_error *error) {
    const int64_t width = s->model->params.n_embd;
    for (int64_t i = 0; i < n; i++) {
        const float *row = s->model->llama->lib->llama_get_embeddings_ith(s->llama->ctx, (int32_t) i);
        if (row == NULL) {
            return model_fail(error, "libllama has no vector of token %" PRId64, i);
        }
        memcpy(s->logits, row, (size_t) width * sizeof *row);
        for (int64_t k = 0; k < width; k++) {
            s->sums[k] += row[k];
        }
    }
    return true;
}

bool llama_session_row(const struct session *s, int64_t i, float *out, struct model_error *error) {
    const float *row = s->model->llama->lib->llama_get_logits_ith(s->llama->ctx, (int32_t) i);
    if (row == NULL) {
        return model_fail(error, "libllama has no logits of token %" PRId64, i);
    }
    memcpy(out, row, (size_t) s->model->params.n_vocab * sizeof *row);
    return true;
}

static bool decode(struct session *s, const int32_t *tokens, int64_t n, struct model_error *error) {
    const struct model_llama *m = s->model->llama;
    const bool is_embedding = s->params.is_embedding;
    batch_fill(s, tokens, n, is_embedding || s->params.all_outputs);
    const int32_t status = m->has_decoder ? m->lib->llama_decode(s->llama->ctx, s->llama->batch)
                                          : m->lib->llama_encode(s->llama->ctx, s->llama->batch);
    if (!check(status, error) || !(is_embedding ? vectors_take(s, n, error) : llama_session_row(s, n - 1, s->logits, error))) {
        return false;
    }
    s->n_past += n;
    return true;
}

// A model of two halves reads the first text with one of them; the other then begins to write.
static bool encode(struct session *s, const int32_t *tokens, int64_t n, struct model_error *error) {
    const struct model_llama *m = s->model->llama;
    const int32_t start = m->lib->llama_model_decoder_start_token(m->model);
    if (n > s->params.n_batch) {
        return model_fail(
            error, "a text of %" PRId64 " tokens is read at once by this model: --batch is %" PRId64, n, s->params.n_batch);
    }
    llama_error_clear();
    batch_fill(s, tokens, n, false);
    return check(m->lib->llama_encode(s->llama->ctx, s->llama->batch), error) &&
           decode(s, start >= 0 ? &start : tokens, 1, error);
}

bool llama_session_decode(struct session *s, const int32_t *tokens, int64_t n, struct model_error *error) {
    const struct model_llama *m = s->model->llama;
    const bool is_writer = m->has_decoder && m->lib->llama_get_memory(s->llama->ctx) != NULL;
    if (!is_writer && !s->params.is_embedding) {
        return model_fail(error, "architecture '%s' makes vectors of texts (berth embed), no text", s->model->params.arch);
    }
    if (m->has_encoder && m->has_decoder && s->n_past == 0) {
        return encode(s, tokens, n, error);
    }
    llama_error_clear();
    for (int64_t at = 0; at < n; at += s->params.n_batch) {
        if (!decode(s, tokens + at, n - at < s->params.n_batch ? n - at : s->params.n_batch, error)) {
            return false;
        }
    }
    return true;
}

void llama_session_reset(struct session *s) {
    struct llama_memory *memory = s->model->llama->lib->llama_get_memory(s->llama->ctx);
    if (memory != NULL) {
        s->model->llama->lib->llama_memory_clear(memory, true);
    }
    s->n_past = 0;
    memset(s->sums, 0, (size_t) s->model->params.n_embd * sizeof *s->sums);
}
