// SPDX-License-Identifier: MIT
// workbench.h: a workbench is an open model with its devices, its session and its vocabulary. Every command on models opens one.
#pragma once

#include "model/model.h"

// Zero is the default of each option.
struct model_options {
    const char *path;   // NULL: the model that comes with Berth
    const char *device; // NULL: all devices
    int64_t n_threads;
    int64_t n_ctx, n_batch;
    enum ggml_type cache_k, cache_v; // types of keys and values, if has_cache_type
    bool has_cache_type;
    bool plan_only;
    bool no_mmap;                   // read the file instead of mapping it
    bool by_tensor;                 // each device gets a share of every layer
    bool by_best;                   // --split auto: cluster_choose sets by_tensor if that is predicted to be faster
    bool by_llama;                  // libllama runs the model, whatever its architecture
    bool may_llama;                 // if Berth does not support the architecture of the model, libllama runs the model
    bool is_pool;                   // several sequences (pool.h): libllama also runs architectures with a state
    bool all_outputs, is_embedding; // as in session_params
    size_t compute_limit;           // as in session_params
    bool no_resident;               // as in session_params
    int64_t n_host;                 // the first n_host layers stay on the host
    int64_t n_host_experts;         // the experts of the first n_host_experts layers stay on the host
    // Calls model_devices_set_limit for each limited device. False: out of memory. NULL: no limits.
    bool (*set_limits)(struct model_devices *devices, const void *user);
    const void *set_limits_user;
    berth_gguf_progress_t progress; // reports the progress of loading; may return false to stop; NULL: none
    void *progress_user;            // argument of progress
};

// Callbacks for long work. Each may be NULL.
struct work_watch {
    void (*progress)(const char *what, uint64_t done, uint64_t all, const char *text, void *user);
    ggml_abort_callback is_stopped; // true: stop now
    void *user;
};

void work_progress(const struct work_watch *watch, const char *what, uint64_t done, uint64_t all, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
bool work_is_stopped(const struct work_watch *watch);

struct workbench {
    struct model *model;
    struct model_devices devices;
    struct session *session; // NULL until workbench_session_open
    struct vocab *vocab;     // NULL until workbench_vocab_open
    char path[4096];
};

// Sets path to options->path, or to the model that comes with Berth. Fails if the file is not readable.
bool workbench_path(const struct model_options *options, char path[4096], struct model_error *error);
// NULL on failure.
struct model *workbench_model(const char *path, const struct model_options *options, struct model_error *error);
// Opens and places the model. On failure nothing stays open.
bool workbench_open(struct workbench *w, const struct model_options *options, struct model_error *error);
// Adds the adapter "FILE" or "FILE:SCALE". Must be called before the session is opened.
bool workbench_lora_add(struct workbench *w, const char *text, struct model_error *error);
// Splits "FILE" or "FILE:SCALE" and checks that the file is readable.
bool lora_parse(const char *text, char path[4096], float *scale, struct model_error *error);
bool workbench_vocab_open(struct workbench *w, struct model_error *error);
// Sets the cache types from "q8_0", or from "q8_0,f16" for keys and values. False: the text is not this.
bool workbench_cache_type(struct model_options *options, const char *text);
struct session_params workbench_session_params(const struct model_options *options);
bool workbench_session_open(struct workbench *w, const struct model_options *options, struct model_error *error);
void workbench_close(struct workbench *w);
