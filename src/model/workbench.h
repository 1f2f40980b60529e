// SPDX-License-Identifier: MIT
// workbench.h: a model with its devices and a session over it, as every command over models needs them: found, opened, placed.
#pragma once

#include "model/model.h"

// Which model, where and how; zeroed is the default.
struct model_options {
    const char *path;   // NULL: the shipped model
    const char *device; // NULL: all
    int64_t n_threads;
    int64_t n_ctx, n_batch;
    enum ggml_type cache_k, cache_v; // of the cache's keys and values, if has_cache_type
    bool has_cache_type;
    bool plan_only;
    bool no_mmap;                                                   // read the file instead of mapping it
    bool by_tensor;                                                 // a share of every layer to each device
    bool by_best;                                                   // the caller sets by_tensor to what cluster_choose finds
    bool by_llama;                                                  // run by libllama, whatever the architecture
    bool may_llama;                                                 // run by libllama if Berth does not know the architecture
    bool all_outputs, is_embedding;                                 // as in session_params
    size_t compute;                                                 // as in session_params
    int64_t n_host;                                                 // layers, from the first, that stay on the host
    bool (*rooms)(struct model_devices *devices, const void *user); // sets what layers may fill; NULL: what is free
    const void *rooms_user;
    berth_gguf_progress_t progress; // of loading; false ends it; NULL: none
};

// What the caller of long work hears of it, and how it ends it; each may be NULL.
struct work_watch {
    void (*progress)(const char *what, uint64_t done, uint64_t all, const char *text, void *user);
    ggml_abort_callback is_stopped; // true: end now
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

// The model's file: the one given, if it can be read, or the shipped one.
bool workbench_path(const struct model_options *options, char path[4096], struct model_error *error);
// The model of a file, by Berth or by libllama as the options say; NULL on failure.
struct model *workbench_model(const char *path, const struct model_options *options, struct model_error *error);
// Opens and places; on failure nothing is open.
bool workbench_open(struct workbench *w, const struct model_options *options, struct model_error *error);
// Adds the adapter "FILE" or "FILE:SCALE", before there is a session.
bool workbench_lora_add(struct workbench *w, const char *text, struct model_error *error);
// Splits "FILE" or "FILE:SCALE"; the file can be read.
bool lora_parse(const char *text, char path[4096], float *scale, struct model_error *error);
bool workbench_vocab_open(struct workbench *w, struct model_error *error);
// What a session is asked for by these options.
struct session_params workbench_session_params(const struct model_options *options);
// The cache, and memory for the largest graphs.
bool workbench_session_open(struct workbench *w, const struct model_options *options, struct model_error *error);
void workbench_close(struct workbench *w);
