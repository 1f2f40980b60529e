// SPDX-License-Identifier: MIT
// model.h: language models on ggml's public API: model files, weights on devices, and sessions that compute tokens.
//
//   file --model_open--> parameters, tensors --model_place--> weights on devices --session_new--> cache, scheduler, graphs
//
#pragma once

#include "model/arch.h"

#include "base/base.h"
#include "ggml-backend.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// ---- errors (engine.c) ----

struct model_error {
    char text[512]; // "": no error
};

// Keeps the first error: does nothing if *error already holds a text. Always returns false.
bool model_fail(struct model_error *error, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// ---- keys of a file (params.c). False: wrong type or out of range. If a key is absent, keys_text sets *out to NULL and the other
// functions leave *out unchanged ----

bool keys_int(
    const struct gguf_context *meta, const char *key, int64_t min, int64_t max, int64_t *out, struct model_error *error);
bool keys_real(const struct gguf_context *meta, const char *key, float *out, struct model_error *error);
bool keys_bool(const struct gguf_context *meta, const char *key, bool *out, struct model_error *error);
// *out is borrowed from the file.
bool keys_text(const struct gguf_context *meta, const char *key, const char **out, struct model_error *error);

// ---- hyper-parameters (params.c) ----

struct model_params {
    const char *arch;              // name of the architecture
    const struct model_arch *desc; // description of the architecture
    int64_t n_layer;               // layers
    int64_t n_embd;                // width of the residual stream
    int64_t n_head;                // query heads
    int64_t n_head_kv;             // key and value heads; divides n_head
    int64_t head_size;             // elements per query head and key head
    int64_t head_size_v;           // elements per value head
    int64_t n_ff;                  // width of the dense feed-forward part
    int64_t n_vocab;               // size of the vocabulary
    int64_t n_ctx_train;           // context that the model was trained for
    int64_t n_rot;                 // elements of a head that RoPE rotates
    int64_t n_expert;              // 0: the feed-forward part is dense
    int64_t n_expert_used;         // experts that the router selects per token
    int64_t n_ff_expert;           // width of one expert
    int64_t n_shared;              // experts that process every token
    int64_t n_dense;               // dense layers before the first layer with experts
    int64_t n_group;               // groups of experts for the selection; 0: no groups
    int64_t n_group_used;          // groups that the router selects per token
    int64_t n_rank;                // ARCH_MLA: rank of the query projection; 0: a single matrix projects queries
    int64_t mla_key;               // ARCH_MLA: elements of one head's key before compression
    int64_t mla_value;             // ARCH_MLA: elements of one head's value before compression
    int64_t n_inner;               // ARCH_STATE: width inside a layer
    // ARCH_STATE: state size, heads, groups of heads, kernel size of the convolution.
    int64_t n_state, n_state_head, n_group_state, n_conv;
    int64_t n_ctx_orig; // context of training before RoPE scaling
    int64_t n_window;   // window in positions, including the token's own; 0: none
    // 0: no layer has a window. 1: all layers have a window. n > 1: all layers except n - 1, 2n - 1, ... have a window.
    int window_every;
    float eps; // epsilon of the norms
    // RoPE base frequency and frequency scale. The fields with _window are for layers with a window.
    float freq_base, freq_base_window;
    float freq_scale, freq_scale_window;
    float ext_factor;                                          // YaRN extrapolation: 1 for yarn, otherwise 0
    float attn_factor;                                         // RoPE magnitude scale
    float attn_scale, embd_scale, residual_scale, logit_scale; // factors; 1: no scaling
    float attn_cap, logit_cap;                                 // soft caps; 0: none
    float expert_scale;                                        // factor of the weights of the selected experts
    bool has_sigmoid, norm_weights; // router: sigmoid instead of softmax; the selected weights are divided by their sum
};

bool model_params_read(const struct gguf_context *meta, struct model_params *params, struct model_error *error);
bool params_has_window(const struct model_params *params, int64_t i);
bool params_has_experts(const struct model_params *params, int64_t i);

// ---- devices (devices.c) ----

struct model;
struct model_engine;
struct model_shares;
struct session;
struct vocab;

struct model_devices {
    int n;                       // the last device is the host's CPU
    ggml_backend_dev_t *dev;     // [n]
    ggml_backend_t *backend;     // [n]
    struct model_shares *shares; // split of a composite device; NULL: there is no composite device
    size_t *limits;              // [n] limit of bytes for layers and cache; 0: the free memory. NULL: all limits are 0
    int64_t n_host;              // the first n_host layers stay on the host
    int64_t n_host_experts;      // the experts of the first n_host_experts layers stay on the host
    int n_threads;               // CPU threads
    ggml_abort_callback abort;   // set by model_devices_set_abort
    void *abort_data;
};

// Sets *function to the function `name` of the device's library; NULL: the library has no such function.
void model_device_proc(ggml_backend_dev_t dev, const char *name, void *function);
void model_device_set_threads(ggml_backend_t backend, int n_threads);
// Always fails. The message lists the names of the existing devices.
bool model_device_unknown(const char *name, struct model_error *error);
// Opens the named device, and the CPU for ops that the device does not support. name NULL: all GPUs and the CPU. n_threads 0: one
// thread per core.
bool model_devices_open(struct model_devices *devices, const char *name, int n_threads, struct model_error *error);
// Opens one composite device of the named devices (a comma-separated list; NULL: all GPUs), and the CPU.
bool model_devices_open_split(
    struct model_devices *devices, const struct model *model, const char *names, int n_threads, struct model_error *error);
// model_devices_open_list opens the n devices of `list`; the last one must be the host's CPU. model_devices_open_parts opens one
// composite device of the n devices in `parts`, and the host's CPU `host`.
bool model_devices_open_list(struct model_devices *devices, ggml_backend_dev_t *list, int n, struct model_error *error);
bool model_devices_open_parts(struct model_devices *devices, const struct model *model, ggml_backend_dev_t *parts, int n,
    ggml_backend_dev_t host, struct model_error *error);
int model_n_cores(void);
// Limits the bytes that layers and their cache may use on device d. False: out of memory.
bool model_devices_set_limit(struct model_devices *devices, int d, size_t bytes);
void model_devices_close(struct model_devices *devices);
// Devices that support it stop computing when callback(user_data) returns true.
void model_devices_set_abort(struct model_devices *devices, ggml_abort_callback callback, void *user_data);

// ---- weights (load.c finds and checks them, place.c copies or maps them to devices) ----

struct model_layer {
    struct ggml_tensor *attn_norm, *q, *k, *v, *o;
    struct ggml_tensor *qkv;                          // instead of q, k and v
    struct ggml_tensor *ffn_norm, *gate, *up, *down;  // dense layers; NULL with experts
    struct ggml_tensor *router, *gates, *ups, *downs; // layers with experts; NULL if dense
    struct ggml_tensor *kv_a, *kv_a_norm, *k_b, *v_b; // ARCH_MLA
    struct ggml_tensor *state_in, *conv, *conv_bias, *step_bias, *decay, *skip, *state_norm, *state_out; // ARCH_STATE
    // NULL if the model does not have the tensor:
    struct ggml_tensor *q_a, *q_a_norm, *q_b; // ARCH_MLA: instead of q
    struct ggml_tensor *router_add, *gate_shared, *up_shared, *down_shared;
    struct ggml_tensor *q_bias, *k_bias, *v_bias, *qkv_bias, *o_bias;
    struct ggml_tensor *gate_bias, *up_bias, *down_bias, *router_bias, *gates_bias, *ups_bias, *downs_bias;
    struct ggml_tensor *q_norm, *k_norm, *attn_norm_bias, *ffn_norm_bias, *post_attn_norm, *post_ffn_norm;
    struct ggml_tensor *sinks;
    struct ggml_tensor *freq_factors; // of RoPE; NULL: all 1
};

struct model_weight {
    const struct ggml_tensor *file; // the tensor in the file's map
    // The field of struct model or struct model_layer that points to this weight. Before model_place, the field points to `file`.
    struct ggml_tensor **slot;
    int64_t layer;  // -1: input, n_layer: output
    bool is_vector; // the graph adds it or multiplies with it element by element
};

// Tensors on one device: weights, an adapter, a cache or trained tensors.
struct model_part {
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer; // NULL: no tensors on this device
    size_t size;                  // bytes
    bool is_mapped;               // the tensors are in the mapped pages of the file
};

// Frees the tensors of the n parts, and the array. parts may be NULL.
void model_parts_free(struct model_part *parts, int n);

struct model {
    struct berth_gguf_map *file;   // the file with the keys, files[0]
    struct berth_gguf_map **files; // [n_files] the files with the tensors
    int64_t n_files;
    struct model_params params;
    struct ggml_tensor *token_embd, *output_norm, *output;
    struct ggml_tensor *position_embd, *output_norm_bias;    // NULL: none
    struct ggml_tensor *rope_freqs, *rope_long, *rope_short; // NULL: none
    struct model_layer *layers;                              // [n_layer]
    struct ggml_tensor **by_id;                              // all tensors of all files, in file order
    struct model_weight *weights;
    size_t n_weights;
    bool is_tied;             // the output uses the matrix of the token embedding
    struct model_lora *loras; // linked list of adapters
    const struct model_engine *engine;
    void *engine_data; // owned by the engine

    // Valid after model_place:
    int *layer_device;        // [n_layer + 1]; the last entry is the output's device
    int *expert_device;       // [n_layer + 1] device of the layer's experts; NULL: as layer_device
    struct model_part *parts; // [n_parts] one per device
    int n_parts;
};

// Reads no weights. NULL: *error holds the cause.
struct model *model_open(const char *path, struct model_error *error);
// Like model_open, but copies the file into memory. Other programs may then change the file.
struct model *model_open_read(const char *path, struct model_error *error);
// Opens a model for libllama. no_mmap: the weights are read, not mapped.
struct model *model_open_llama(const char *path, bool no_mmap, struct model_error *error);
// files.c: model_files_check refuses an adapter, so that the message names the mistake. An adapter has the architecture key of
// its model but none of the model's other keys.
bool model_files_open(struct model *model, const char *path, bool read, struct model_error *error);
bool model_files_check(const struct model *model, const char *path, struct model_error *error);
void model_files_close(struct model *model);
// fingerprint.c: returns a hash of the keys that can change a computed value and, if with_weights, of the weights. Models that
// libllama runs are not supported.
uint64_t model_fingerprint(const struct model *model, bool with_weights);
// Returns whether Berth's own graphs support the architecture of a file; is_pool: with several sequences (pool.h). Also returns true
// for a file that is not a model, because model_open then reports the reason.
bool model_is_native(const char *path, bool is_pool);
void model_free(struct model *model);

// Calls `each` for every tensor of a model with these parameters, until a call returns false.
typedef bool (*model_shape_t)(const char *name, const int64_t ne[3], void *user);
bool model_shapes(const struct model_params *params, bool has_output, model_shape_t each, void *user);

// Places the weights on devices. The CPU uses the file's mapped pages; other devices get copies. With plan_only nothing is
// allocated or read: tensors get a device but no data. May be called once per model.
bool model_place(struct model *model, const struct model_devices *devices, bool plan_only, berth_gguf_progress_t progress,
    void *user_data, struct model_error *error);

// ---- adapters (lora.c): a small file that changes the weights of a model: W x + scale B (A x) instead of W x ----

struct lora_pair {
    const struct ggml_tensor *weight; // W, the model's tensor
    struct ggml_tensor *a, *b;        // [columns of W, rank], [rank, rows of W]
    int64_t layer;                    // layer of W
    float scale;
};

struct model_lora {
    struct model_lora *next;
    struct berth_gguf_map *file; // NULL: an adapter that training creates
    struct lora_pair *pairs;     // in the order of the model's weights
    size_t n_pairs;
    struct model_part *parts; // [n_parts] tensors a and b, one part per device
    int n_parts;
};

// Reads an adapter in llama.cpp's format and appends it to model->loras. The model must be placed, and owns the adapter.
bool model_lora_add(
    struct model *model, const struct model_devices *devices, const char *path, float scale, struct model_error *error);
// Creates the adapter with which training starts: f32, random A and zero B for every matrix of the layers. The tensors have no
// memory. The caller owns the adapter.
struct model_lora *lora_new(const struct model *model, int64_t rank, float alpha, struct model_error *error);
void lora_free(struct model_lora *lora);
// NULL: the adapter does not change this weight.
const struct lora_pair *lora_find(const struct model_lora *lora, const struct ggml_tensor *weight);

// The model need not be placed. The pairs refer to the tensors of the model's file; a and b are tensors of the adapter's file.
struct model_lora *lora_open(const struct model *model, const char *path, float scale, struct model_error *error);

// Writes the model with the adapter added to its weights. The model must not be placed.
bool lora_merge(const struct model *model, const struct model_lora *lora, FILE *file, struct model_error *error);

// ---- writing (files.c) ----

// model_header_new returns a new header with a copy of `keys`; NULL: no keys. The caller then adds keys and tensors.
// model_header_check returns the header, or NULL with an error if one of these additions failed.
struct gguf_context *model_header_new(const struct gguf_context *keys);
struct gguf_context *model_header_check(struct gguf_context *header, struct model_error *error);
// Returns the bytes of tensor i of a header, valid until the next call; NULL: *error holds the cause.
typedef const void *(*model_bytes_t)(int64_t i, void *user, struct model_error *error);
bool model_write(FILE *file, const struct gguf_context *meta, model_bytes_t bytes, void *user, struct model_error *error);
// Returns whether the type converts to f32.
bool type_is_real(enum ggml_type type);
// rows_widen converts n values to f32. rows_narrow converts f32 rows to a type.
bool rows_widen(enum ggml_type type, const void *from, float *to, int64_t n, struct model_error *error);
bool rows_narrow(enum ggml_type type, const float *from, void *to, int64_t n_rows, int64_t n_per_row, struct model_error *error);

// ---- sessions (engine.c), their cache (cache.c) and their graphs (graph.c) ----

struct session_params {
    int64_t n_ctx;                   // positions of a sequence; 0: the context of training, limited to 512 ... 4096
    int64_t n_rows;                  // rows of the cache of a pool (pool.h); 0: n_ctx, for one sequence
    int n_seq;                       // sequences of a pool; 0: one sequence
    int64_t n_batch;                 // largest number of tokens per graph; 0: min(512, n_ctx)
    enum ggml_type cache_k, cache_v; // types of keys and values
    bool no_flash;                   // attention without flash attention, as separate products
    bool plan_only;                  // nothing is allocated
    bool no_resident;                // no copies of weights stay on a device (berth_sched_set_resident_limit)
    bool is_embedding;               // computes n_embd values per token instead of logits
    bool all_outputs;                // logits for every token, not only the last
    size_t compute_limit;            // byte limit of the compute buffer, kept by recomputing; 0: none
};

struct session_memory {
    size_t weights, cache, compute;  // bytes on a device
    size_t work;                     // work memory of the backend; on the host also the session's own memory
    struct berth_plan_report report; // the plan of the compute buffer
};

// How the graph of the largest batch keeps session_params.compute_limit (native.c).
struct session_recompute_plan {
    bool fits;            // false: no schedule keeps the limit; the graph is unchanged
    int64_t n_recomputed; // recomputed nodes
    int64_t n_nodes;      // nodes of the graph as it was built
    uint64_t min_size;    // bytes that every schedule needs
    double cost_ratio;    // cost of the graph with recomputing, divided by its cost without
};

struct graph_shape {
    int64_t n_tokens;            // per sequence
    int64_t n_seq;               // sequences of the batch; 1 with a cache
    int64_t n_kv;                // positions to attend to: positions of the cache or, without a cache, n_tokens
    int64_t n_ctx;               // context of the session
    int64_t n_out;               // tokens whose results are computed; without effect with all_outputs
    struct ggml_tensor **k, **v; // [n_layer] the cache; NULL: no cache, a token attends only to its own sequence
    bool has_flash, all_outputs, is_embedding;
};

struct graph_inputs {
    struct ggml_tensor *tokens;      // i32 [n_tokens * n_seq]
    struct ggml_tensor *pos;         // i32 [n_tokens]; NULL: the architecture uses no positions
    struct ggml_tensor *rows;        // i64 [n_tokens] rows of the cache to write; NULL: no cache, or every layer has a window
    struct ggml_tensor *mask;        // [n_kv, n_tokens] 0 or -inf; NULL: every layer has a window
    struct ggml_tensor *window_rows; // like rows, for layers with a window; NULL: no windows
    struct ggml_tensor *window;      // [min(n_ring, n_kv), n_tokens] the mask of layers with a window
    struct ggml_tensor *states;      // i32 [1] index of the state, always 0; NULL without ARCH_STATE
    struct ggml_tensor *out;         // i32 [n_out] indices of the tokens whose logits are computed; NULL with all_outputs
    struct ggml_tensor *result;      // f32 logits [n_vocab, n_out], with all_outputs [n_vocab, n_tokens * n_seq]; or embeddings
};

#define KV_STEP 256 // n_kv is a multiple of this, so that consecutive graphs are equal

struct session {
    const struct model *model;
    void *engine_data; // owned by the engine
    const struct model_devices *devices;
    struct session_params params;
    bool has_flash;
    int64_t n_rows;              // cache rows of a layer without a window
    int64_t n_ring;              // cache rows of a layer with a window; n_rows: no ring
    struct ggml_tensor **k, **v; // [n_layer] cache: [row, n_rows], or [row, n_ring]
    struct model_part *caches;   // [devices->n]
    ggml_backend_sched_t sched;
    size_t max_nodes;
    struct session_memory *memory; // [devices->n] after session_reserve
    size_t *sizes;                 // [devices->n] temporary array

    struct ggml_context *graph_ctx;     // holds graph
    struct ggml_context *recompute_ctx; // holds the recomputed nodes of graph; NULL: no limit
    struct session_recompute_plan recompute_plan;
    struct berth_budget_step *steps; // [n_steps] the schedule of recompute_plan; NULL: not found yet, or no limit
    size_t n_steps;
    struct ggml_cgraph *graph;
    struct graph_inputs in;
    int64_t graph_tokens, graph_kv; // size of graph; graph_tokens 0: do not reuse graph
    bool is_allocated;              // graph has its memory
    int64_t n_past;                 // number of positions in the cache
    float *logits;                  // [n_vocab] logits of the last token; with is_embedding [n_embd], its embedding
    float *sums;                    // [n_embd] with is_embedding: sum of the embeddings of all tokens since position 0
    ggml_fp16_t *mask_row;          // [n_rows] temporary array
    int64_t *rows;                  // [n_batch] temporary array
    int32_t *pos;                   // [n_batch] temporary array
};

struct session *session_new(const struct model *model, const struct model_devices *devices, const struct session_params *params,
    struct model_error *error);
void session_free(struct session *session);
// Plans the largest graphs. Unless plan_only, allocates their memory. Stores the sizes in session->memory.
bool session_reserve(struct session *session, struct model_error *error);
// Computes n tokens at the next positions, in batches. session->logits then holds the logits of the last token.
bool session_decode(struct session *session, const int32_t *tokens, int64_t n, struct model_error *error);
void session_reset(struct session *session); // to position 0
// Copies the logits of token i of the last batch to out. Requires all_outputs.
bool session_row(const struct session *session, int64_t i, float *out, struct model_error *error);
// prompt_cache.c: session_save writes the cache of a session that has processed these tokens. session_load restores the cache
// into a session at position 0, and sets n_past to the number of leading tokens that the file covers. A file of another model is
// an error. *is_old: another version of Berth wrote the file.
bool session_save(const struct session *session, const int32_t *tokens, int64_t n, FILE *file, struct model_error *error);
bool session_load(struct session *session, const int32_t *tokens, int64_t n, FILE *file, bool *is_old, struct model_error *error);
// Builds session->graph for n_tokens that attend to n_kv positions. Does not compute it.
bool session_graph(struct session *session, int64_t n_tokens, int64_t n_kv, struct model_error *error);

// ---- engines: implementations that compute a model ----

// The functions of an engine. engine.c checks the arguments first. A function without a comment implements the function of
// model.h with the same name.
struct model_engine {
    const char *name; // as printed in messages
    bool can_split;   // composite devices are supported
    bool can_lora;    // model_lora_add is supported
    bool can_save;    // session_save and session_load are supported
    bool can_limit;   // session_params.compute_limit is supported
    bool can_replan;  // another session with plan_only is cheap, because it reads no weights
    bool has_fused;   // graphs run on the backends of model_devices, which report their fused ops
    // Implements model_place. model->parts is allocated.
    bool (*place)(struct model *model, const struct model_devices *devices, bool plan_only, berth_gguf_progress_t progress,
        void *user_data, struct model_error *error);
    void (*model_fini)(struct model *model); // called by model_free; NULL: nothing to do
    // Implements vocab_of_model.
    struct vocab *(*vocab_new)(const struct model *model, struct model_error *error);
    // Called by session_new. The session's parameters are complete, and session->memory is allocated.
    bool (*session_init)(struct session *session, struct model_error *error);
    void (*session_fini)(struct session *session); // called by session_free, even if session_init failed
    bool (*session_reserve)(struct session *session, struct model_error *error);
    bool (*session_graph)(struct session *session, int64_t n_tokens, int64_t n_kv, struct model_error *error);
    // Called by session_decode before the first batch. *is_done: all tokens are processed. NULL: not needed.
    bool (*session_begin)(struct session *session, const int32_t *tokens, int64_t n, bool *is_done, struct model_error *error);
    // Called by session_decode for each batch. Computes n tokens, at most n_batch, and adds n to session->n_past.
    bool (*batch_decode)(struct session *session, const int32_t *tokens, int64_t n, struct model_error *error);
    bool (*session_row)(const struct session *session, int64_t i, float *out, struct model_error *error);
    void (*session_reset)(struct session *session);
};

extern const struct model_engine engine_native; // native.c: Berth's own graphs
extern const struct model_engine engine_llama;  // llama.c: libllama, which loads the weights itself

// Returns true for the weights of all experts of a layer.
bool model_weight_is_experts(const struct model *model, const struct model_weight *w);
// Returns the device of a weight of a placed model.
int model_weight_device(const struct model *model, const struct model_weight *w);
// place of engine_native.
bool weights_place(struct model *model, const struct model_devices *devices, bool plan_only, berth_gguf_progress_t progress,
    void *user_data, struct model_error *error);

// ---- speed (speed.c) ----

struct device_speed {
    double bytes[GGML_TYPE_COUNT]; // [type] weight bytes per second with n_seq columns; 0: unknown
    double node;                   // seconds per small op
};
struct model_speed {
    struct device_speed *devices; // [n]
    int n;
    int64_t n_seq; // sequences that generate a token in each step
};
#define SPEED_TRIAL_SIZE ((uint64_t) 64 << 20) // bytes of the largest model whose speed is measured instead of predicted
bool model_speed_measure(
    const struct model *model, const struct model_devices *devices, int64_t n_seq, struct model_speed *speed);
void model_speed_fini(struct model_speed *speed);
// Predicts the decode speed in tokens per second, of all n_seq sequences together, with half of each context filled. Requires
// session_reserve. 0: unknown.
double model_speed_predict(const struct model_speed *speed, const struct session *session);
// speed_prompt.c: predicts the tokens per second of a prompt of *n_tokens, for a model of engine_native. *n_tokens is one batch,
// or fewer without a GPU. 0: unknown, or ops are recomputed.
double model_speed_prompt(struct session *session, int64_t *n_tokens, struct model_error *error);
// Measures the decode speed by generating tokens. The session must be at position 0 and not plan_only. Returns 0 after an error.
double model_speed_trial(struct session *session, struct model_error *error);

// ---- cache (cache.c) and graphs (graph.c) of engine_native ----

// cache_ring returns the number of cache rows of a layer with a window. cache_choose checks whether the devices support the cache
// and flash attention.
int64_t cache_ring(const struct session *session);
bool cache_make(struct session *session, struct model_error *error);
bool cache_choose(struct session *session, int64_t n_kv, struct model_error *error);
// native.c: builds session->graph in memory that earlier graphs used. The shape's cache, n_ctx and has_flash are set here.
bool native_graph_build(struct session *session, const struct graph_shape *shape, struct model_error *error);
// native.c: plans session->graph and, unless plan_only, allocates its memory. Raises session->memory to what it takes.
bool native_graph_reserve(struct session *session, struct model_error *error);
void graph_build(const struct model *model, const struct graph_shape *shape, struct ggml_context *ctx, struct ggml_cgraph *graph,
    struct graph_inputs *in);
size_t graph_max_nodes(const struct model *model);

// ---- choosing a token (sample.c) ----

struct sample_bias {
    int32_t token;
    float bias; // added to the logit; -INFINITY: the token is never chosen
};

// The settings may change between calls. They are applied in this order: biases, penalties, then mirostat or (top_k, typical,
// top_p, min_p), last the temperature.
struct sampler {
    float temperature;                 // 0: always the most probable token
    int64_t top_k;                     // 0: no limit
    float typical, top_p, min_p;       // 1, 1, 0: no limit
    float repeat, frequency, presence; // penalties for the last tokens; 1, 0, 0: none
    int64_t last_n;                    // number of last tokens to which penalties apply
    float tau, eta;                    // mirostat 2: target surprise in bits and learning rate; tau 0: off
    const struct sample_bias *biases;  // owned by the caller
    int64_t n_biases;

    float mu;                  // mirostat: largest surprise allowed now
    int32_t *past;             // [past_room] ring of the last tokens
    int64_t n_past, past_room; // tokens accepted since the start; capacity of the ring
    float *logits;             // [2 * n_logits] modified logits; occurrences of each token
    int64_t n_logits;
    struct sample_entry *heap; // [2 * n_heap], n_heap >= n_vocab; the second half is temporary memory
    int64_t n_heap;
    uint64_t state[4]; // of the random number generator
};

void sampler_init(struct sampler *sampler, float temperature, int64_t top_k, float top_p, uint64_t seed);
void sampler_seed(struct sampler *sampler, uint64_t seed);
// Returns a seed below 10^9 from the clock, another one for each call.
int64_t sampler_seed_new(void);
void sampler_fini(struct sampler *sampler);
// Allocates the memory for n logits, which sampler_pick otherwise allocates when it is first needed. False: out of memory.
bool sampler_reserve(struct sampler *sampler, int64_t n);
// Adds a chosen or prefilled token to the history that penalties use. False: out of memory.
bool sampler_accept(struct sampler *sampler, int32_t token);
// Returns the logits with biases and penalties applied, or `logits` itself if there are neither. NULL: out of memory.
const float *sampler_logits(struct sampler *sampler, const float *logits, int64_t n);
// Chooses the next token by its logits. -1: no logit is a number, or out of memory.
int32_t sampler_pick(struct sampler *sampler, const float *logits, int64_t n);
