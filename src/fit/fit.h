// SPDX-License-Identifier: MIT
// fit.h: finds the best setting of a model within memory limits, and settings that need less memory. A setting is a context, a
// batch, a cache type, a placement of layers and a memory limit for graphs. Whether a setting fits is found by planning its
// graphs; no weights are loaded. A workbench is an opened model with its session (model/workbench.h).
#pragma once

#include "model/workbench.h"
#include "view/plan.h"

// ---- limits.c ----

#define FIT_ALL (-1)  // the sum over all devices
#define FIT_NONE (-2) // no limit

// One --memory option, N or NAME=N, or the free memory of a GPU that no option names.
struct fit_limit {
    const char *text;   // as given; NULL: the free memory of a device
    size_t name_length; // length of the device name at the start of text; 0: all devices
    int device;         // FIT_ALL or an index in model_devices
    uint64_t bytes;
};

struct fit_limits {
    struct fit_limit *items; // freed by the caller with berth_free
    size_t n;
};

// Adds a limit. text begins with the device name and must outlive the limits. GGML_STATUS_FAILED: the device already has a limit.
// GGML_STATUS_ALLOC_FAILED: out of memory.
enum ggml_status fit_limits_add(
    struct fit_limits *limits, const char *text, size_t name_length, uint64_t bytes, struct model_error *error);
// Finds the devices that the limits name. A GPU without a limit is limited to its free memory.
bool fit_limits_resolve(struct fit_limits *limits, const struct model_devices *devices, struct model_error *error);
// Returns the device that a limit names, FIT_ALL, or FIT_NONE if no device has this name.
int fit_limit_device(const struct fit_limit *limit, const struct model_devices *devices);
// Returns the limit of a device or FIT_ALL; NULL: it has no limit.
struct fit_limit *fit_limits_get(const struct fit_limits *limits, int device);
// Returns the device of the first limit that the session exceeds, or FIT_ALL. FIT_NONE: no limit is exceeded.
int fit_limits_exceeded(const struct fit_limits *limits, const struct workbench *m);
// Returns the planned bytes of the session on a device. FIT_ALL: on all devices.
uint64_t fit_bytes(const struct workbench *m, int device);

// ---- search.c ----

// The compromises that --allow permits to save memory.
enum { FIT_CACHE_TYPE = 1, FIT_BATCH = 2, FIT_SPILL = 4, FIT_RECOMPUTE = 8 };

struct fit_question {
    struct model_options model; // n_ctx 0, n_batch 0: to be found
    struct fit_limits limits;
    unsigned allow;  // compromises; 0: find the largest context, then the largest batch
    int64_t max_ctx; // 0: the context of the model
    struct work_watch watch;
};

// The reason why a context or a batch is not larger:
// - FIT_GIVEN: an option sets the context or the batch.
// - FIT_MEMORY: a memory limit is reached.
// - FIT_MODEL: the context is the trained context of the model.
// - FIT_POSITIONS: the model has no more learned position embeddings.
// - FIT_MAX_CTX: the context is --max-ctx.
// - FIT_CONTEXT: the batch is as large as the context.
// - FIT_DEFAULT: the batch is the default batch.
enum fit_limit_kind { FIT_GIVEN, FIT_MEMORY, FIT_MODEL, FIT_POSITIONS, FIT_MAX_CTX, FIT_CONTEXT, FIT_DEFAULT };

// The setting found. The session of the workbench is planned for it.
struct fit_answer {
    bool fits;
    int64_t n_ctx, n_batch;           // positions; tokens
    int64_t n_host;                   // number of layers, from the first, that stay on the host although a GPU is used
    int64_t n_host_experts;           // number of layers, from the first, whose experts stay on the host
    int64_t ctx_wanted, batch_wanted; // context and batch that would be used without memory limits; set if allow is not 0
    enum ggml_type cache;             // type of keys in the cache; also the type of values if the search chose the type
    size_t compute;                   // value for model_options.compute_limit; 0: no op is recomputed
    size_t compute_once;              // bytes of compute buffers without recomputing
    uint64_t compute_least;           // bytes of compute buffers that every schedule needs; 0: not computed
    bool is_cut;                      // the time limit ended the search for ops to recompute
    enum fit_limit_kind ctx_limit, batch_limit;
    int full;                 // device of the limit that was exceeded last, FIT_ALL or FIT_NONE
    int ctx_full, batch_full; // the value of `full` when the context was found, and when the batch was found
    int n_plans;              // number of settings that were planned
};

// Parses "cache-type,batch,spill,recompute" into the bits.
bool fit_allow_parse(const char *text, unsigned *allow, struct model_error *error);
// Opens the model of the question for planning. On success the caller closes m.
bool fit_open(struct fit_question *q, struct workbench *m, struct model_error *error);
bool fit_solve(const struct fit_question *q, struct workbench *m, struct fit_answer *a, struct model_error *error);
// Describes the compromises of the answer in words. False: there are none.
bool fit_answer_describe(const struct fit_question *q, const struct fit_answer *a, char text[256]);
// Sets the options so that a command opens the model with the setting of the answer.
void fit_apply(const struct fit_question *q, const struct fit_answer *a, struct model_options *o);

// ---- further.c ----

#define FIT_N_NEXT 4 // the effect of 1 to FIT_N_NEXT more GiB is computed

// The answer for a larger memory limit.
struct fit_next {
    uint64_t bytes; // the exceeded limit plus the additional GiB
    int device;     // device of that limit
    struct fit_answer answer;
    double per_second; // as in fit_found
};

struct fit_found {
    struct fit_answer answer;
    double per_second;        // tokens per second of decode, predicted or measured; 0: unknown
    double prompt_per_second; // predicted tokens per second of a prompt of n_prompt tokens; 0: unknown
    int64_t n_prompt;
    double tried; // measured divided by predicted speed; 0: not measured
    struct fit_next next[FIT_N_NEXT];
    int n_next;
};

// Calls fit_solve. Then predicts or measures the speed of the answer and the effect of up to FIT_N_NEXT more GiB. m must be
// opened by fit_open.
bool fit_find(struct fit_question *q, struct workbench *m, struct fit_found *out, struct model_error *error);

// ---- suggest.c ----

#define FIT_MAX_WAYS 2

// An option that would save memory, or for which planning failed.
struct fit_way {
    char option[64];
    uint64_t less;   // bytes saved on all devices
    char error[256]; // why the setting could not be planned; empty: it could
};

// Plans the model with other options and compares the memory with `plan`. Each option takes as long as making `plan` did. Returns
// the number of ways found.
int fit_ways_find(
    const char *path, const struct model_options *options, const struct view_plan *plan, struct fit_way ways[FIT_MAX_WAYS]);

// The graph of a model, planned as `berth plan` does.
struct fit_peak {
    struct view_plan plan;
    struct berth_plan_report report;
};

bool fit_peak_init(struct fit_peak *p, const char *path, const struct model_options *options, struct model_error *error);
void fit_peak_fini(struct fit_peak *p);
