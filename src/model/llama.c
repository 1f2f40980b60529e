// SPDX-License-Identifier: MIT
// llama.c: implements the models, sessions and tokenizers of model.h with libllama. A libllama context reserves its graphs when it
// is created. Hooks in Berth's scheduler record the scheduler, graph and memory of the session.

#include "model/llama.h"
#include "base/min.h"
#include "model/vocab.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// ---- hooks ----

// Returns the index of the device to which the buffer type belongs. Host memory belongs to the CPU, the last device.
static int buft_device(const struct model_devices *devices, ggml_backend_buffer_type_t buft) {
    ggml_backend_dev_t dev = ggml_backend_buft_get_device(buft);
    for (int d = 0; d < devices->n - 1 && !ggml_backend_buft_is_host(buft); d++) {
        if (devices->dev[d] == dev) {
            return d;
        }
    }
    return devices->n - 1;
}

// Data of the hook on_weights. Weights in the file's mapped pages are not reported to the hook.
struct place_watch {
    struct model *model;
    const struct model_devices *devices;
};

static void on_weights(ggml_backend_buffer_type_t buft, size_t size, void *user) {
    struct place_watch *w = user;
    w->model->parts[buft_device(w->devices, buft)].size += size;
}

static void on_cache(ggml_backend_buffer_type_t buft, size_t size, void *user) {
    struct session *s = user;
    s->memory[buft_device(s->devices, buft)].cache += size;
}

// A context may create several schedulers. The last one runs its graphs.
static void on_plan(ggml_backend_sched_t sched, struct ggml_cgraph *graph, const size_t *sizes, void *user) {
    struct session *s = user;
    for (int d = 0; d < s->devices->n && s->sched != sched; d++) {
        s->memory[d].compute = 0;
    }
    s->sched = sched;
    s->graph = graph;
    for (int b = 0; b < ggml_backend_sched_get_n_backends(sched); b++) {
        ggml_backend_t backend = ggml_backend_sched_get_backend(sched, b);
        const int d = buft_device(s->devices, ggml_backend_sched_get_buffer_type(sched, backend));
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

// With plan_only, most tensors of the cache have empty buffers, so the hook sees no sizes. The tensors are then found in the graph
// that writes the cache.
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
    if (!berth_grow((void **) &list->items, &list->cap, list->n + 1, sizeof(struct ggml_tensor *))) {
        return false;
    }
    list->items[list->n++] = t;
    ggml_backend_buffer_type_t buft = ggml_backend_buffer_get_type(t->buffer);
    const size_t align = ggml_backend_buft_get_alignment(buft), size = ggml_backend_buft_get_alloc_size(buft, t);
    s->memory[buft_device(s->devices, buft)].cache += (size + align - 1) / align * align;
    return true;
}

// Counts the cache with plan_only. If no graph writes a cache (an encoder), takes the size that libllama logged. False: out of
// memory.
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
    size_t total = 0;
    for (int d = 0; d < s->devices->n; d++) {
        total += s->memory[d].cache;
    }
    s->memory[s->devices->n - 1].cache += total == 0 ? llama_logged_cache_size() : 0;
    berth_free(list.items);
    return ok;
}

// ---- a model ----

struct model *model_open_llama(const char *path, bool no_mmap, struct model_error *error) {
    const struct llama_library *lib = llama_library_get(error);
    struct model *m = lib != NULL ? berth_calloc(1, sizeof *m) : NULL;
    struct model_llama *data = m != NULL ? berth_calloc(1, sizeof *data) : NULL;
    if (data == NULL) {
        berth_free(m);
        model_fail(error, "out of memory");
        return NULL;
    }
    m->engine = &engine_llama;
    m->engine_data = data;
    data->lib = lib;
    data->no_mmap = no_mmap;
    snprintf(data->path, sizeof data->path, "%s", path);
    if (!model_files_open(m, path, false, error) || !model_files_check(m, path, error) ||
        !keys_text(berth_gguf_map_meta(m->file), "general.architecture", &m->params.arch, error)) {
        model_free(m);
        return NULL;
    }
    if (m->params.arch == NULL) {
        m->params.arch = "no architecture";
    }
    return m;
}

static void params_read(struct model *m) {
    struct model_llama *data = m->engine_data;
    const struct llama_library *lib = data->lib;
    data->vocab = lib->llama_model_get_vocab(data->model);
    data->has_encoder = lib->llama_model_has_encoder(data->model);
    data->has_decoder = lib->llama_model_has_decoder(data->model);
    m->params.n_layer = lib->llama_model_n_layer(data->model);
    m->params.n_embd = lib->llama_model_n_embd(data->model);
    m->params.n_vocab = lib->llama_vocab_n_tokens(data->vocab);
    m->params.n_ctx_train = lib->llama_model_n_ctx_train(data->model);
}

// Sets the bytes of weights on the CPU: all weights that are on no other device.
static void weights_count(struct model *m, int n_devices) {
    const struct model_llama *data = m->engine_data;
    size_t all = (size_t) data->lib->llama_model_size(data->model);
    for (int d = 0; d + 1 < n_devices; d++) {
        all -= min_size(m->parts[d].size, all);
    }
    m->parts[n_devices - 1].size = all;
    m->parts[n_devices - 1].is_mapped = !data->no_mmap;
}

// The experts of the first n layers stay in memory of the host.
struct host_experts {
    struct llama_tensor_override *overrides; // [n + 1]
    char (*patterns)[48];                    // [n]
};

static void host_experts_fini(struct host_experts *host) {
    berth_free(host->overrides);
    berth_free(host->patterns);
}

static bool host_experts_init(struct host_experts *host, const struct model_devices *devices, struct model_error *error) {
    const size_t n = (size_t) devices->n_host_experts;
    host->overrides = berth_calloc(n + 1, sizeof host->overrides[0]);
    host->patterns = berth_calloc(n + 1, sizeof host->patterns[0]);
    if (host->overrides == NULL || host->patterns == NULL) {
        host_experts_fini(host);
        return model_fail(error, "out of memory for the experts of %zu layers", n);
    }
    for (size_t i = 0; i < n; i++) {
        snprintf(host->patterns[i], sizeof host->patterns[i], "blk\\.%zu\\.ffn_.*_exps", i);
        host->overrides[i].pattern = host->patterns[i];
        host->overrides[i].buft = ggml_backend_dev_buffer_type(devices->dev[devices->n - 1]);
    }
    return true;
}

// NULL: *error holds the cause.
static struct llama_model *weights_load(
    const struct model_llama *data, const struct model_devices *devices, bool plan_only, struct model_error *error) {
    struct llama_model_params params = data->lib->llama_model_default_params();
    void **gpus = berth_calloc((size_t) devices->n, sizeof *gpus); // NULL-terminated; the CPU is not in the list
    if (gpus == NULL) {
        model_fail(error, "out of memory for the weights of %d devices", devices->n);
        return NULL;
    }
    struct host_experts host;
    if (!host_experts_init(&host, devices, error)) {
        berth_free(gpus);
        return NULL;
    }
    for (int d = 0; d + 1 < devices->n; d++) {
        gpus[d] = devices->dev[d];
    }
    params.devices = gpus;
    params.n_gpu_layers = devices->n > 1 ? 999 : 0;
    params.overrides = devices->n_host_experts > 0 ? host.overrides : NULL;
    if (plan_only) {
        llama_no_alloc(&params, data->lib->release);
    }
    if (plan_only || data->no_mmap) {
        params.load_mode = 0;
    }
    llama_error_clear();
    struct llama_model *model = data->lib->llama_model_load_from_file(data->path, params);
    berth_free(gpus);
    host_experts_fini(&host);
    if (model == NULL) {
        model_fail(error, "%s: libllama %s cannot load the model: %s", data->path, data->lib->release, llama_error());
    }
    return model;
}

static bool llama_place(struct model *m, const struct model_devices *devices, bool plan_only, berth_gguf_progress_t progress,
    void *user_data, struct model_error *error) {
    struct model_llama *data = m->engine_data;
    struct place_watch watch = {m, devices};
    (void) progress;
    (void) user_data;
    data->plan_only = plan_only;
    berth_tensors_on_place(on_weights, &watch);
    data->model = weights_load(data, devices, plan_only, error);
    berth_tensors_on_place(NULL, NULL);
    if (data->model == NULL) {
        return false;
    }
    params_read(m);
    m->layer_device = berth_calloc((size_t) m->params.n_layer + 1, sizeof *m->layer_device); // 0: all layers on the first device
    if (m->layer_device == NULL) {
        return model_fail(error, "out of memory for %" PRId64 " layers", m->params.n_layer);
    }
    weights_count(m, devices->n);
    return true;
}

static void llama_model_fini(struct model *m) {
    struct model_llama *data = m->engine_data;
    if (data->model != NULL) {
        data->lib->llama_model_free(data->model);
    }
    if (data->planned != NULL) {
        data->lib->llama_model_free(data->planned);
    }
    berth_free(data);
}

// ---- tokenizer ----

static bool llama_vocab_encode(
    const struct vocab *v, const char *text, size_t size, unsigned how, struct token_list *out, struct model_error *error) {
    const struct model_llama *m = v->ops_data;
    const bool add = (how & ENCODE_ADD) != 0, parse = (how & ENCODE_PARSE) != 0;
    const int32_t n_text = (int32_t) size;
    int32_t n = abs(m->lib->llama_tokenize(m->vocab, text, n_text, NULL, 0, add, parse)); // number of tokens that the text needs
    int32_t *ids = berth_calloc((size_t) n + 1, sizeof *ids);
    bool ok = ids != NULL || model_fail(error, "out of memory for %d tokens", n);
    n = ok && n > 0 ? m->lib->llama_tokenize(m->vocab, text, n_text, ids, n, add, parse) : 0;
    for (int32_t i = 0; ok && i < n; i++) {
        ok = token_push(out, ids[i], error);
    }
    berth_free(ids);
    return ok;
}

static size_t llama_vocab_piece(const struct vocab *v, int32_t token, char *out, size_t cap) {
    const struct model_llama *m = v->ops_data;
    const int32_t room = (int32_t) min_size(cap, INT32_MAX);
    return (size_t) abs(m->lib->llama_token_to_piece(m->vocab, token, out, room, 0, false));
}

static bool llama_vocab_is_end(const struct vocab *v, int32_t token) {
    const struct model_llama *m = v->ops_data;
    return token < 0 || token >= v->n_tokens || m->lib->llama_vocab_is_eog(m->vocab, token);
}

static const struct vocab_ops llama_vocab_ops = {
    .encode = llama_vocab_encode, .piece = llama_vocab_piece, .is_end = llama_vocab_is_end};

static struct vocab *llama_vocab_new(const struct model *model, struct model_error *error) {
    const struct model_llama *data = model->engine_data;
    struct vocab *v = berth_calloc(1, sizeof *v);
    if (v == NULL) {
        model_fail(error, "out of memory");
        return NULL;
    }
    *v = (struct vocab){.ops = &llama_vocab_ops, .ops_data = model->engine_data, .n_tokens = (int32_t) model->params.n_vocab};
    for (int32_t i = 0; i < v->n_tokens; i++) {
        const size_t size = llama_vocab_piece(v, i, NULL, 0);
        v->max_size = max_size(v->max_size, size);
    }
    v->eos = v->eot = v->eom = v->unknown = -1;
    v->bos = data->lib->llama_vocab_bos(data->vocab);
    v->add_bos = data->lib->llama_vocab_get_add_bos(data->vocab);
    return v;
}

// ---- sessions ----

static void context_free(struct session *s) {
    const struct model_llama *m = s->model->engine_data;
    struct session_llama *data = s->engine_data;
    if (data->ctx != NULL) {
        m->lib->llama_free(data->ctx);
    }
    data->ctx = NULL;
    s->sched = NULL; // owned by the context, which was freed
    s->graph = NULL;
}

// Returns the model of a session. A context of a model with weights always has memory, so a session with plan_only uses a model
// without weights. NULL: *error holds the cause.
static struct llama_model *session_model(const struct session *s, struct model_error *error) {
    struct model_llama *m = s->model->engine_data;
    if (!s->params.plan_only && m->planned != NULL) { // planning is over, and the vocabulary of a model may be large
        m->lib->llama_model_free(m->planned);
        m->planned = NULL;
    }
    if (!s->params.plan_only || m->plan_only) {
        return m->model;
    }
    if (m->planned == NULL) {
        m->planned = weights_load(m, s->devices, true, error);
    }
    return m->planned;
}

static bool context_make(struct session *s, int64_t n_batch, struct model_error *error) {
    const struct model_llama *m = s->model->engine_data;
    struct session_llama *data = s->engine_data;
    struct llama_model *model = session_model(s, error);
    if (model == NULL) {
        return false;
    }
    struct llama_context_params params = m->lib->llama_context_default_params();
    params.n_ctx = (uint32_t) max_i64(s->params.n_ctx, s->params.n_rows);
    params.n_batch = params.n_ubatch = (uint32_t) n_batch;
    params.n_seq_max = (uint32_t) max_int(s->params.n_seq, 1);
    params.kv_unified = s->params.n_seq > 0; // the sequences of a pool share the cells
    params.n_threads = params.n_threads_batch = s->devices->n_threads;
    params.type_k = (int32_t) s->params.cache_k;
    params.type_v = (int32_t) s->params.cache_v;
    params.embeddings = s->params.is_embedding;
    if (s->params.no_flash) {
        params.flash_attn = 0;
    }
    if (s->params.is_embedding) {
        params.pooling_type = 0;
    }
    context_free(s);
    llama_logged_cache_size(); // sets the logged size to 0
    llama_error_clear();
    for (int d = 0; d < s->devices->n; d++) {
        s->memory[d] = (struct session_memory){.weights = s->model->parts[d].size};
    }
    berth_tensors_on_place(on_cache, s);
    berth_sched_on_plan(on_plan, s);
    data->ctx = m->lib->llama_init_from_model(model, params);
    berth_tensors_on_place(NULL, NULL);
    berth_sched_on_plan(NULL, NULL);
    s->graph_tokens = n_batch;
    if (data->ctx == NULL || s->sched == NULL) {
        return model_fail(error, "libllama %s cannot create a context of %" PRId64 " positions with batches of %" PRId64 ": %s",
            m->lib->release, s->params.n_ctx, n_batch, llama_error());
    }
    return (!m->plan_only && model != m->planned) || cache_count(s) ||
           model_fail(error, "out of memory for the tensors of the cache");
}

static bool llama_session_init(struct session *s, struct model_error *error) {
    const struct model_llama *m = s->model->engine_data;
    struct session_llama *data = s->engine_data = berth_calloc(1, sizeof *data);
    const int64_t n = max_i64(s->model->params.n_vocab, s->model->params.n_embd);
    s->logits = berth_calloc((size_t) n, sizeof *s->logits);
    s->sums = berth_calloc((size_t) s->model->params.n_embd, sizeof *s->sums);
    if (data == NULL || s->logits == NULL || s->sums == NULL) {
        return model_fail(error, "out of memory for %" PRId64 " values", n);
    }
    if (!context_make(s, s->params.n_batch, error)) {
        return false;
    }
    if (!s->params.plan_only) {
        data->batch = m->lib->llama_batch_init((int32_t) s->params.n_batch, 0, 1);
        m->lib->llama_set_abort_callback(data->ctx, s->devices->abort, s->devices->abort_data);
    }
    return true;
}

static void llama_session_fini(struct session *s) {
    const struct model_llama *m = s->model->engine_data;
    struct session_llama *data = s->engine_data;
    if (data == NULL) {
        return;
    }
    context_free(s);
    if (data->batch.token != NULL) {
        m->lib->llama_batch_free(data->batch);
    }
    berth_free(data->hidden);
    berth_free(data);
}

static bool llama_session_reserve(struct session *s, struct model_error *error) {
    (void) s;
    (void) error;
    return true; // a libllama context reserves its graphs when it is created
}

// A context has the graph of its largest batch. Another batch size requires another context.
static bool llama_session_graph(struct session *s, int64_t n_tokens, int64_t n_kv, struct model_error *error) {
    (void) n_kv;
    return (s->graph != NULL && s->graph_tokens == n_tokens) || context_make(s, n_tokens, error);
}

// ---- computing ----

static void batch_fill(struct session *s, const int32_t *tokens, int64_t n, bool all) {
    struct llama_batch *b = &((struct session_llama *) s->engine_data)->batch;
    b->n_tokens = (int32_t) n;
    for (int64_t i = 0; i < n; i++) {
        b->token[i] = tokens[i];
        b->pos[i] = (int32_t) (s->n_past + i);
        b->n_seq_id[i] = 1;
        b->seq_id[i][0] = 0;
        b->logits[i] = all || i + 1 == n;
    }
}

static bool status_check(int32_t status, struct model_error *error) {
    return status == 0 || model_fail(error, "%s", status == 2 ? "computation was interrupted" : llama_error());
}

static bool embeddings_read(struct session *s, int64_t n, struct model_error *error) {
    const struct model_llama *m = s->model->engine_data;
    const struct session_llama *data = s->engine_data;
    const int64_t width = s->model->params.n_embd;
    for (int64_t i = 0; i < n; i++) {
        const float *row = m->lib->llama_get_embeddings_ith(data->ctx, (int32_t) i);
        if (row == NULL) {
            return model_fail(error, "libllama returned no embedding for token %" PRId64, i);
        }
        memcpy(s->logits, row, (size_t) width * sizeof *row);
        for (int64_t k = 0; k < width; k++) {
            s->sums[k] += row[k];
        }
    }
    return true;
}

static bool llama_session_row(const struct session *s, int64_t i, float *out, struct model_error *error) {
    const struct model_llama *m = s->model->engine_data;
    const struct session_llama *data = s->engine_data;
    const float *row = m->lib->llama_get_logits_ith(data->ctx, (int32_t) i);
    if (row == NULL) {
        return model_fail(error, "libllama returned no logits for token %" PRId64, i);
    }
    memcpy(out, row, (size_t) s->model->params.n_vocab * sizeof *row);
    return true;
}

static bool batch_decode(struct session *s, const int32_t *tokens, int64_t n, struct model_error *error) {
    const struct model_llama *m = s->model->engine_data;
    const struct session_llama *data = s->engine_data;
    const bool is_embedding = s->params.is_embedding;
    batch_fill(s, tokens, n, is_embedding || s->params.all_outputs);
    const int32_t status =
        m->has_decoder ? m->lib->llama_decode(data->ctx, data->batch) : m->lib->llama_encode(data->ctx, data->batch);
    if (!status_check(status, error) ||
        !(is_embedding ? embeddings_read(s, n, error) : llama_session_row(s, n - 1, s->logits, error))) {
        return false;
    }
    s->n_past += n;
    return true;
}

// An encoder-decoder model processes the prompt with its encoder. The decoder then starts with its start token.
static bool text_encode(struct session *s, const int32_t *tokens, int64_t n, struct model_error *error) {
    const struct model_llama *m = s->model->engine_data;
    const struct session_llama *data = s->engine_data;
    const int32_t start = m->lib->llama_model_decoder_start_token(m->model);
    if (n > s->params.n_batch) {
        return model_fail(error,
            "this model encodes the whole prompt in one batch: --batch must be at least %" PRId64 ", but is %" PRId64, n,
            s->params.n_batch);
    }
    batch_fill(s, tokens, n, false);
    return status_check(m->lib->llama_encode(data->ctx, data->batch), error) &&
           batch_decode(s, start >= 0 ? &start : tokens, 1, error);
}

static bool llama_session_begin(struct session *s, const int32_t *tokens, int64_t n, bool *is_done, struct model_error *error) {
    const struct model_llama *m = s->model->engine_data;
    const struct session_llama *data = s->engine_data;
    const bool can_generate = m->has_decoder && m->lib->llama_get_memory(data->ctx) != NULL;
    if (!can_generate && !s->params.is_embedding) {
        return model_fail(
            error, "architecture '%s' cannot generate text; 'berth embed' computes its embeddings", s->model->params.arch);
    }
    llama_error_clear();
    *is_done = m->has_encoder && m->has_decoder && s->n_past == 0;
    return !*is_done || text_encode(s, tokens, n, error);
}

static void llama_session_reset(struct session *s) {
    const struct model_llama *m = s->model->engine_data;
    const struct session_llama *data = s->engine_data;
    struct llama_memory *memory = m->lib->llama_get_memory(data->ctx);
    if (memory != NULL) {
        m->lib->llama_memory_clear(memory, true);
    }
}

const struct model_engine engine_llama = {
    .name = "libllama",
    .place = llama_place,
    .model_fini = llama_model_fini,
    .vocab_new = llama_vocab_new,
    .session_init = llama_session_init,
    .session_fini = llama_session_fini,
    .session_reserve = llama_session_reserve,
    .session_graph = llama_session_graph,
    .session_begin = llama_session_begin,
    .batch_decode = batch_decode,
    .session_row = llama_session_row,
    .session_reset = llama_session_reset,
};
