// SPDX-License-Identifier: MIT
// model.h: language models of the llama family over ggml's public API: a file, its weights on devices, a session that computes.
//
//   file --model_open--> parameters, tensors --model_place--> weights on devices --session_new--> cache, scheduler, graphs
//
// Nothing here knows a command line. Every function that can fail takes a model_error and says in it what and why.
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
    char text[512]; // "" while all is well
};

// Keeps the text, the first one wins; always false.
bool model_fail(struct model_error *error, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// ---- keys of a file (params.c): absent keys leave *out as it is; false only for a key of the wrong kind or out of range ----

bool keys_int(
    const struct gguf_context *meta, const char *key, int64_t min, int64_t max, int64_t *out, struct model_error *error);
bool keys_real(const struct gguf_context *meta, const char *key, float *out, struct model_error *error);
bool keys_bool(const struct gguf_context *meta, const char *key, bool *out, struct model_error *error);
// Borrowed from the file; NULL if absent.
bool keys_text(const struct gguf_context *meta, const char *key, const char **out, struct model_error *error);

// ---- hyper-parameters (params.c) ----

struct model_params {
    const char *arch;              // its name
    const struct model_arch *desc; // what it is made of
    int64_t n_layer;               // blocks
    int64_t n_embd;                // width of the residual stream
    int64_t n_head;                // query heads
    int64_t n_head_kv;             // key and value heads; divides n_head
    int64_t head_size;             // of queries and keys
    int64_t head_size_v;           // of values
    int64_t n_ff;                  // width of the feed-forward part
    int64_t n_vocab;               // tokens
    int64_t n_ctx_train;           // positions it was trained for
    int64_t n_rot;                 // elements of a head that are rotated
    int64_t n_expert;              // 0: a dense feed-forward part
    int64_t n_expert_used;         // experts a token goes through
    int64_t n_ff_expert;           // width of an expert's part
    int64_t n_shared;              // experts that every token goes through
    int64_t n_dense;               // layers at the beginning that have none
    int64_t n_group;               // groups that experts are chosen from, 0: none
    int64_t n_group_used;          // of them
    int64_t n_rank;                // ARCH_MLA: elements of the short row that queries are made of, 0: none
    int64_t mla_key;               // of a head before keys are made short, and of its value
    int64_t mla_value;
    int64_t n_inner; // ARCH_STATE: width inside a layer
    int64_t n_state, n_state_head, n_group_state, n_conv;
    int64_t n_ctx_orig; // positions before rope was stretched
    int64_t n_window;   // positions that a token sees in a layer with a window, its own the last of them; 0: all
    int window_every;   // params_has_window
    float eps;          // of norms
    float freq_base, freq_base_window;
    float freq_scale, freq_scale_window;
    float ext_factor; // 1 for yarn, else 0
    float attn_factor;
    float attn_scale, embd_scale, residual_scale, logit_scale; // 1 or what they are multiplied with
    float attn_cap, logit_cap;                                 // 0: none
    float expert_scale;                                        // of what experts count
    bool has_sigmoid, norm_weights;                            // of SHARE_KEYS: not softmax; together 1
};

bool model_params_read(const struct gguf_context *meta, struct model_params *params, struct model_error *error);
// Whether layer i looks at no more than a window.
bool params_has_window(const struct model_params *params, int64_t i);
// Whether its feed-forward part is of experts.
bool params_has_experts(const struct model_params *params, int64_t i);

// ---- devices (devices.c) ----

struct model;
struct model_engine;
struct model_shares;
struct session;
struct vocab;

struct model_devices {
    int n;                       // the last is the host's CPU
    ggml_backend_dev_t *dev;     // [n]
    ggml_backend_t *backend;     // [n]
    struct model_shares *shares; // of a device made of several; NULL: there is none
    size_t *room;                // [n] bytes that layers and their cache may fill, 0: what is free. NULL: likewise of all
    int64_t n_host;              // layers, from the first, that stay on the host
    int n_threads;               // of the CPU
    ggml_abort_callback abort;   // as model_devices_set_abort was told
    void *abort_data;
};

// *function = what the device's library has under this name, or NULL.
void model_device_proc(ggml_backend_dev_t dev, const char *name, void *function);
// Of a backend that has threads.
void model_device_set_threads(ggml_backend_t backend, int n_threads);
// Fails with the names that there are.
bool model_device_unknown(const char *name, struct model_error *error);
// name NULL: all GPUs and the CPU; "CPU" or another device's name: that one, with the CPU for what it cannot do. n_threads 0: as
// many as the machine has cores.
bool model_devices_open(struct model_devices *devices, const char *name, int n_threads, struct model_error *error);
// One device made of those that are named, with commas between, or of all GPUs; and the CPU.
bool model_devices_open_split(
    struct model_devices *devices, const struct model *model, const char *names, int n_threads, struct model_error *error);
// The same of devices at hand: the last one is the host's, or `host` is.
bool model_devices_open_list(struct model_devices *devices, ggml_backend_dev_t *list, int n, struct model_error *error);
bool model_devices_open_parts(struct model_devices *devices, const struct model *model, ggml_backend_dev_t *parts, int n,
    ggml_backend_dev_t host, struct model_error *error);
int model_n_cores(void);
// Layers fill no more of device d than that. False: out of memory.
bool model_devices_set_room(struct model_devices *devices, int d, size_t bytes);
void model_devices_close(struct model_devices *devices);
// While it returns true for user_data, computing stops. For devices that can.
void model_devices_set_abort(struct model_devices *devices, ggml_abort_callback callback, void *user_data);

// ---- weights (load.c finds and checks, place.c brings them to devices) ----

struct model_layer {
    struct ggml_tensor *attn_norm, *q, *k, *v, *o;
    struct ggml_tensor *qkv;                          // in place of q, k and v
    struct ggml_tensor *ffn_norm, *gate, *up, *down;  // dense, NULL with experts
    struct ggml_tensor *router, *gates, *ups, *downs; // experts, NULL if dense
    struct ggml_tensor *kv_a, *kv_a_norm, *k_b, *v_b; // ARCH_MLA
    struct ggml_tensor *state_in, *conv, *conv_bias, *step_bias, *decay, *skip, *state_norm, *state_out; // ARCH_STATE
    // NULL: none
    struct ggml_tensor *q_a, *q_a_norm, *q_b; // ARCH_MLA, in place of q
    struct ggml_tensor *router_add, *gate_shared, *up_shared, *down_shared;
    struct ggml_tensor *q_bias, *k_bias, *v_bias, *qkv_bias, *o_bias;
    struct ggml_tensor *gate_bias, *up_bias, *down_bias, *router_bias, *gates_bias, *ups_bias, *downs_bias;
    struct ggml_tensor *q_norm, *k_norm, *attn_norm_bias, *ffn_norm_bias, *post_attn_norm, *post_ffn_norm;
    struct ggml_tensor *sinks;
    struct ggml_tensor *freq_factors; // of rope, NULL: all 1
};

// One tensor of the file and where the graph finds it.
struct model_weight {
    const struct ggml_tensor *file; // its bytes in the file
    struct ggml_tensor **slot;      // in struct model; the file's tensor until it is placed
    int64_t layer;                  // -1: input, n_layer: output
    bool is_vector;                 // it is added or multiplied element by element
};

// Tensors on one device: weights, an adapter's, a cache, what is trained.
struct model_part {
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer; // NULL: there are none
    size_t size;                  // bytes
    bool is_mapped;               // they lie in the file's own pages
};

// Frees the tensors of [n] parts, and the list. NULL is taken.
void model_parts_free(struct model_part *parts, int n);

struct model {
    struct berth_gguf_map *file;   // the keys
    struct berth_gguf_map **files; // [n_files] the tensors; file is the first
    int64_t n_files;
    struct model_params params;
    struct ggml_tensor *token_embd, *output_norm, *output;
    struct ggml_tensor *position_embd, *output_norm_bias;    // NULL: none
    struct ggml_tensor *rope_freqs, *rope_long, *rope_short; // NULL: none
    struct model_layer *layers;                              // [n_layer]
    struct ggml_tensor **by_id;                              // the tensors of all files, one after another
    struct model_weight *weights;
    size_t n_weights;
    bool is_tied;             // the output is the embedding once more
    struct model_lora *loras; // adapters, a list
    const struct model_engine *engine;
    void *engine_data; // the engine's own

    // after model_place
    int *layer_device;        // [n_layer + 1] the last is the output's
    struct model_part *parts; // [n_parts] one a device
    int n_parts;
};

// Reads the header and finds every tensor; touches no weight. NULL with an error.
struct model *model_open(const char *path, struct model_error *error);
// The same with the file read into memory instead of mapped: another program may do with it what it likes afterwards.
struct model *model_open_read(const char *path, struct model_error *error);
// A model of any architecture that libllama knows, by libllama; no_mmap: its weights are read, not mapped.
struct model *model_open_llama(const char *path, bool no_mmap, struct model_error *error);
// files.c: opens what it consists of; that it is not an adapter, which has the architecture of its model but none of its other
// keys; its end.
bool model_files_open(struct model *model, const char *path, bool read, struct model_error *error);
bool model_files_check(const struct model *model, const char *path, struct model_error *error);
void model_files_close(struct model *model);
// fingerprint.c: differs for models that differ in a key that can change a computed value, and with_weights also in their
// weights. Not for a model that libllama runs.
uint64_t model_fingerprint(const struct model *model, bool with_weights);
// Whether Berth's own graphs run the architecture of a file. True also for what is no model, so that opening it says why.
bool model_is_native(const char *path);
void model_free(struct model *model);

// The tensors of a model with these parameters, one call each, until one says false.
typedef bool (*model_shape_t)(const char *name, const int64_t ne[3], void *user);
bool model_shapes(const struct model_params *params, bool has_output, model_shape_t tell, void *user);

// Brings the weights to the devices: the CPU's stay in the map, others are uploaded. With plan_only nothing is allocated or
// read: tensors only know their device, so that graphs can be planned. Once a model.
bool model_place(struct model *model, const struct model_devices *devices, bool plan_only, berth_gguf_progress_t progress,
    void *user_data, struct model_error *error);

// ---- adapters (lora.c): what a small file adds to the weights of a model, W x + scale B (A x) in place of W x ----

struct lora_pair {
    const struct ggml_tensor *weight; // W, where the model has it
    struct ggml_tensor *a, *b;        // [columns of W, rank], [rank, rows of W]
    int64_t layer;                    // of W
    float scale;
};

struct model_lora {
    struct model_lora *next;
    struct berth_gguf_map *file; // NULL: it is made in training
    struct lora_pair *pairs;     // in the order of the model's weights
    size_t n_pairs;
    struct model_part *parts; // [n_parts] their tensors, one a device
    int n_parts;
};

// Reads an adapter in llama.cpp's format for a model that is placed, brings it to the devices of the weights and lists it with
// the model, which frees it.
bool model_lora_add(
    struct model *model, const struct model_devices *devices, const char *path, float scale, struct model_error *error);
// An adapter of random A and zero B for every matrix of the layers, in f32 and without memory for them: training's beginning. It
// is not listed.
struct model_lora *lora_new(const struct model *model, int64_t rank, float alpha, struct model_error *error);
void lora_free(struct model_lora *lora);
// NULL: the adapter says nothing of this weight.
const struct lora_pair *lora_find(const struct model_lora *lora, const struct ggml_tensor *weight);

// An adapter's file by itself, for a model that need not be placed: the pairs' weights are the file's, a and b are in the map.
struct model_lora *lora_open(const struct model *model, const char *path, float scale, struct model_error *error);

// The model with the adapter in its weights, as a file; for a model that is not placed.
bool lora_merge(const struct model *model, const struct model_lora *lora, FILE *file, struct model_error *error);

// ---- writing (files.c) ----

// A header with these keys, NULL: none; then the header, or NULL with an error if something that was put into it failed.
struct gguf_context *model_header_new(const struct gguf_context *keys);
struct gguf_context *model_header_check(struct gguf_context *header, struct model_error *error);
// The bytes of tensor i of a header, good until the next call; NULL with an error.
typedef const void *(*model_bytes_t)(int64_t i, void *user, struct model_error *error);
bool model_write(FILE *file, const struct gguf_context *meta, model_bytes_t bytes, void *user, struct model_error *error);
// Whether a type holds numbers that can be read, as weights do.
bool type_is_real(enum ggml_type type);
// n numbers of a type as floats, and back.
bool rows_widen(enum ggml_type type, const void *from, float *to, int64_t n, struct model_error *error);
bool rows_narrow(enum ggml_type type, const float *from, void *to, int64_t n_rows, int64_t n_per_row, struct model_error *error);

// ---- a session (engine.c), its cache (cache.c), its graphs (graph.c) ----

struct session_params {
    int64_t n_ctx;                   // positions in the cache; 0: what the model was trained for, but 512 to 4096
    int64_t n_batch;                 // most tokens at once; 0: 512, or n_ctx if that is less
    enum ggml_type cache_k, cache_v; // types of keys and values
    bool no_flash;                   // attention as separate products
    bool plan_only;                  // nothing is allocated
    bool is_embedding;               // what the last norm says of every token is the result: n_embd numbers, not logits
    bool all_outputs;                // every token goes through all of the last layer, not only the one whose logits are wanted
    size_t compute;                  // bytes that a graph's values may take together: ops run again for it; 0: no limit
};

struct session_memory {
    size_t weights, cache, compute;  // bytes on a device
    size_t work;                     // what its backend takes beside them; of the host: the session's own memory too
    struct berth_plan_report report; // of compute
};

// What the limit of session_params.compute did to the graph at hand (native.c).
struct session_recompute_plan {
    bool is_kept;             // else the graph is as it was built
    int64_t n_again, n_nodes; // nodes that run again, and of the graph as it was built
    uint64_t least;           // bytes that no schedule does without
    double slower;            // what the graph costs, over every node once
};

// What a graph is for.
struct graph_shape {
    int64_t n_tokens;            // of one sequence
    int64_t n_seq;               // sequences side by side; 1 with a cache
    int64_t n_kv;                // positions that a token may see: of the cache, or n_tokens
    int64_t n_ctx;               // positions there may ever be
    struct ggml_tensor **k, **v; // [n_layer] the cache; NULL: tokens see those of their own sequence
    bool has_flash, all_outputs, is_embedding;
};

// Inputs of a graph: written before it is computed.
struct graph_inputs {
    struct ggml_tensor *tokens;      // i32 [n_tokens * n_seq]
    struct ggml_tensor *pos;         // i32 [n_tokens]; NULL: nobody asks
    struct ggml_tensor *rows;        // i64 [n_tokens] of the cache that are written; NULL without, or no layer looks at all
    struct ggml_tensor *mask;        // [n_kv, n_tokens] 0 or -inf; NULL: no layer looks at all
    struct ggml_tensor *window_rows; // the same of layers with a window; NULL: there are none
    struct ggml_tensor *window;      // [rows of their cache, at most n_kv, n_tokens]
    struct ggml_tensor *states;      // i32 [1] 0: whose state it is; NULL without
    struct ggml_tensor *out;         // i32 [1] the token whose logits are wanted; NULL with all_outputs
    struct ggml_tensor *logits;      // f32 [n_vocab, 1], or [n_vocab, n_tokens * n_seq] with all_outputs
};

#define KV_STEP 256 // the view on the cache grows in steps, so that graphs repeat

struct session {
    const struct model *model;
    void *engine_data; // the engine's own
    const struct model_devices *devices;
    struct session_params params;
    bool has_flash;
    int64_t n_ring; // rows of the cache of a layer with a window: position p is in row p % n_ring; n_ctx: there is none
    struct ggml_tensor **k, **v; // [n_layer] cache: [row, n_ctx], or [row, n_ring]
    struct model_part *caches;   // [devices->n]
    ggml_backend_sched_t sched;
    size_t max_nodes;
    struct session_memory *memory; // [devices->n] after session_reserve
    size_t *sizes;                 // [devices->n] scratch

    struct ggml_context *graph_ctx;     // of the graph below
    struct ggml_context *recompute_ctx; // of its nodes that run again; NULL: there is no limit
    struct session_recompute_plan again;
    struct berth_budget_step *steps; // [n_steps] of a batch, once it is known how the limit is kept
    size_t n_steps;
    struct ggml_cgraph *graph;
    struct graph_inputs in;
    int64_t graph_tokens, graph_kv; // its shape, 0: none
    bool is_allocated;              // it has its memory
    int64_t n_past;                 // positions filled
    float *logits;                  // [n_vocab] of the last token; [n_embd] with is_embedding
    float *sums;                    // [n_embd] with is_embedding: over all tokens since the beginning
    ggml_fp16_t *mask_row;          // [n_ctx] scratch
    int64_t *rows;                  // [n_batch] scratch
    int32_t *pos;
};

struct session *session_new(const struct model *model, const struct model_devices *devices, const struct session_params *params,
    struct model_error *error);
void session_free(struct session *session);
// Plans the largest graphs, and gets their memory unless plan_only: session->memory says how much.
bool session_reserve(struct session *session, struct model_error *error);
// Tokens at the next positions, in batches; session->logits are then those of the last one.
bool session_decode(struct session *session, const int32_t *tokens, int64_t n, struct model_error *error);
void session_reset(struct session *session); // to position 0
// With all_outputs: the logits of token i of the batch that was read last.
bool session_row(const struct session *session, int64_t i, float *out, struct model_error *error);
// prompt_cache.c: what the session has read, which is these tokens, into a file; and out of one at position 0: the first n_past of the
// tokens are then read. A file that is of another model is an error that says so; of one that another version of Berth wrote, *is_old is
// true.
bool session_save(const struct session *session, const int32_t *tokens, int64_t n, FILE *file, struct model_error *error);
bool session_load(struct session *session, const int32_t *tokens, int64_t n, FILE *file, bool *is_old, struct model_error *error);
// Builds the graph for n_tokens that see n_kv positions, without computing it: session->graph.
bool session_graph(struct session *session, int64_t n_tokens, int64_t n_kv, struct model_error *error);

// ---- engines: what computes a model ----

// The functions do what those of model.h do whose names they have; engine.c checks arguments before it calls them. place finds
// model->parts allocated. session_init finds the parameters complete and session->memory allocated; session_fini frees what it
// made, also after it failed halfway.
struct model_engine {
    const char *name; // as messages have it
    bool can_split;   // a share of every layer to each device
    bool can_lora;    // model_lora_add
    bool can_save;    // session_save, session_load
    bool can_limit;   // session_params.compute
    bool can_replan;  // another session with plan_only costs little: no weight is read for it
    bool has_fused;   // graphs run on the backends of model_devices, which say what they fuse
    bool (*place)(struct model *model, const struct model_devices *devices, bool plan_only, berth_gguf_progress_t progress,
        void *user_data, struct model_error *error);
    void (*model_fini)(struct model *model); // NULL: nothing to do
    struct vocab *(*vocab_new)(const struct model *model, struct model_error *error);
    bool (*session_init)(struct session *session, struct model_error *error);
    void (*session_fini)(struct session *session);
    bool (*session_reserve)(struct session *session, struct model_error *error);
    bool (*session_graph)(struct session *session, int64_t n_tokens, int64_t n_kv, struct model_error *error);
    // Tokens before the loop over batches: true with *is_done where it has read them all. NULL: there are none such.
    bool (*session_begin)(struct session *session, const int32_t *tokens, int64_t n, bool *is_done, struct model_error *error);
    // One batch, of n_batch tokens at most; session->n_past counts them already when it returns.
    bool (*batch_decode)(struct session *session, const int32_t *tokens, int64_t n, struct model_error *error);
    bool (*session_row)(const struct session *session, int64_t i, float *out, struct model_error *error);
    void (*session_reset)(struct session *session);
};

extern const struct model_engine engine_native; // native.c: Berth's own graphs
extern const struct model_engine engine_llama;  // llama.c: libllama; such a model has no weights here

// place.c: engine_native's place.
bool weights_place(struct model *model, const struct model_devices *devices, bool plan_only, berth_gguf_progress_t progress,
    void *user_data, struct model_error *error);

// ---- speed (speed.c) ----

// What a device does: bytes of weights of each type that it multiplies a token with in a second, 0: there are none, or it cannot;
// seconds of a small op.
struct model_speed_of {
    double bytes[GGML_TYPE_COUNT];
    double node;
};
struct model_speed {
    struct model_speed_of *devices; // [n]
    int n;
};
bool model_speed_measure(const struct model *model, struct model_devices *devices, struct model_speed *speed);
void model_speed_fini(struct model_speed *speed);
// Tokens a second that a session will write with half of its context filled, as it was reserved; 0: not known.
double model_speed_write(const struct model_speed *speed, const struct session *session);
// The same by writing, in a session with memory that has read nothing; 0 after an error.
double model_speed_try(struct session *session, struct model_error *error);

// cache.c: rows of a layer with a window; its memory; whether the devices can do with it, and with flash attention.
int64_t cache_ring(const struct session *session);
bool cache_make(struct session *session, struct model_error *error);
bool cache_choose(struct session *session, int64_t n_kv, struct model_error *error);
// graph.c: all of a graph, with its inputs.
void graph_build(const struct model *model, const struct graph_shape *shape, struct ggml_context *ctx, struct ggml_cgraph *graph,
    struct graph_inputs *in);
size_t graph_max_nodes(const struct model *model);

// ---- choosing a token (sample.c) ----

struct sample_bias {
    int32_t token;
    float bias; // added to its logit; -INFINITY: never chosen
};

// The settings may be changed between choices. In this order: biases, penalties, then either mirostat, or top_k, typical, top_p
// and min_p; last the temperature.
struct sampler {
    float temperature;                 // 0: always the likeliest
    int64_t top_k;                     // 0: all
    float typical, top_p, min_p;       // 1, 1, 0: all
    float repeat, frequency, presence; // penalties of what was chosen lately; 1, 0, 0: none
    int64_t last_n;                    // so many tokens are "lately"
    float tau, eta;                    // mirostat 2: the surprise that is kept, and how fast; tau 0: off
    const struct sample_bias *biases;  // the caller's
    int64_t n_biases;

    float mu;                  // of mirostat: the most surprise allowed now
    int32_t *past;             // [last_n] a ring of what was chosen
    int64_t n_past, past_room; // all that were ever chosen; room of the ring
    float *logits;             // [n_vocab] changed ones, and counts behind them
    struct sample_entry *heap; // [n_heap] >= n_vocab
    int64_t n_heap;
    uint64_t state[4];
};

void sampler_init(struct sampler *sampler, float temperature, int64_t top_k, float top_p, uint64_t seed);
// Begins its choices anew by a seed.
void sampler_seed(struct sampler *sampler, uint64_t seed);
void sampler_fini(struct sampler *sampler);
// Tells the sampler what was chosen, or read: penalties look back at it. False: out of memory.
bool sampler_accept(struct sampler *sampler, int32_t token);
// Logits with biases and penalties; those given, if there are none of either. NULL: out of memory.
const float *sampler_logits(struct sampler *sampler, const float *logits, int64_t n);
// The next token by its logits; -1: none is a number, or out of memory.
int32_t sampler_pick(struct sampler *sampler, const float *logits, int64_t n);
