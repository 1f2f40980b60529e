// SPDX-License-Identifier: MIT
// fit.h: the best setting of a model within memory limits, for `berth fit` and `berth run --memory`, and what would lower the
// memory of a plan. Every setting is judged by planning the graphs as a session would; nothing is loaded.
#pragma once

#include "model/workbench.h"
#include "view/plan.h"

// ---- limits.c ----

#define FIT_ALL (-1)  // the sum over all devices
#define FIT_NONE (-2) // no limit

// One --memory: N, or NAME=N; or what a GPU has free, if it is not named.
struct fit_limit {
    const char *text;   // as given, NULL: the device's own
    size_t name_length; // of the device's name at the start of text, 0: all devices
    int device;         // FIT_ALL or an index in model_devices
    uint64_t bytes;
};

struct fit_limits {
    struct fit_limit *items; // to be freed by berth_free
    size_t n;
};

// Adds a limit. text, which begins with the device's name, outlives the limits. GGML_STATUS_FAILED: there is one for the same
// device already; GGML_STATUS_ALLOC_FAILED: out of memory.
enum ggml_status fit_limits_add(
    struct fit_limits *limits, const char *text, size_t name_length, uint64_t bytes, struct model_error *error);
// Finds the named devices, and adds a limit for each GPU that is not named: what it has free.
bool fit_limits_resolve(struct fit_limits *limits, const struct model_devices *devices, struct model_error *error);
// The device that a limit names, FIT_ALL, or FIT_NONE if there is none of the name.
int fit_limit_device(const struct fit_limit *limit, const struct model_devices *devices);
// The limit of a device or of all; NULL: none.
struct fit_limit *fit_limits_get(const struct fit_limits *limits, int device);
// The first limit that the session exceeds: a device, FIT_ALL, or FIT_NONE if it stays within all.
int fit_limits_exceeded(const struct fit_limits *limits, const struct workbench *m);
// Bytes on a device, or with FIT_ALL on all, that the session was planned with.
uint64_t fit_bytes(const struct workbench *m, int device);

// ---- search.c ----

// What may be given up for memory.
enum { FIT_CACHE_TYPE = 1, FIT_BATCH = 2, FIT_SPILL = 4, FIT_RECOMPUTE = 8 };

struct fit_question {
    struct model_options model; // n_ctx, n_batch 0: to be found
    struct fit_limits limits;
    unsigned allow;  // of the above; 0: the largest context, then the largest batch
    int64_t max_ctx; // 0: the model's
    struct work_watch watch;
};

// What limits a context or a batch.
enum fit_limit_kind { FIT_GIVEN, FIT_MEMORY, FIT_MODEL, FIT_LEARNED, FIT_MAX_CTX, FIT_CONTEXT, FIT_WANTED };

// The setting that was found; the session of the workbench is planned for it.
struct fit_answer {
    bool fits;
    int64_t n_ctx, n_batch, n_host;   // positions, tokens, layers that stay on the host although there is a GPU
    int64_t ctx_wanted, batch_wanted; // what there would be in unlimited memory, where allow is not 0
    enum ggml_type cache;             // of keys; also of values if it was chosen here
    size_t compute, compute_once;     // bytes that graphs may take, if ops are recomputed, else 0; bytes with every op once
    uint64_t compute_least;           // of the same: no schedule takes less; 0: not computed
    bool is_cut;                      // the time limit ended the search for what to recompute
    enum fit_limit_kind ctx_limit, batch_limit;
    int full;                 // the limit that was exceeded last: a device, FIT_ALL, or FIT_NONE
    int ctx_full, batch_full; // the same, of what limits each
    int n_plans;
};

// "cache-type,batch,spill,recompute" into the bits.
bool fit_allow_parse(const char *text, unsigned *allow, struct model_error *error);
// Opens the model and resolves the limits; m is the caller's to close on success.
bool fit_open(struct fit_question *q, struct workbench *m, struct model_error *error);
bool fit_solve(const struct fit_question *q, struct workbench *m, struct fit_answer *a, struct model_error *error);
// What the limits take away from what there would be without them, in words; false: nothing.
bool fit_answer_describe(const struct fit_question *q, const struct fit_answer *a, char text[256]);
// The options with which a command opens the model as it was found.
void fit_apply(const struct fit_question *q, const struct fit_answer *a, struct model_options *o);

// ---- further.c ----

#define FIT_N_NEXT 4 // GiB that are tried beyond the limits

// What one more GiB changes.
struct fit_next {
    uint64_t bytes; // of the limit that was exceeded, with the GiB
    int device;     // of that limit
    struct fit_answer answer;
    double per_second;
};

struct fit_found {
    struct fit_answer answer;
    double per_second; // predicted, or measured if it was tried; 0: unknown
    double tried;      // measured tokens a second of the model itself over the predicted ones; 0: it was not tried
    struct fit_next next[FIT_N_NEXT];
    int n_next;
};

// fit_solve, the speed of the answer, and what up to FIT_N_NEXT GiB more would change. m is opened by fit_open.
bool fit_find(struct fit_question *q, struct workbench *m, struct fit_found *out, struct model_error *error);

// ---- suggest.c ----

#define FIT_MAX_WAYS 2

// A setting that takes less memory, or that could not be planned.
struct fit_way {
    char option[64];
    uint64_t less;   // bytes of all devices
    char error[256]; // why it could not be planned; empty: it could
};

// Plans other settings of a model, which takes as long as its plan did; returns how many are worth naming.
int fit_ways_find(
    const char *path, const struct model_options *options, const struct view_plan *plan, struct fit_way ways[FIT_MAX_WAYS]);

// A model's graph, planned as `berth plan` plans it.
struct fit_peak {
    struct view_plan plan;
    struct berth_plan_report report;
};

bool fit_peak_init(struct fit_peak *p, const char *path, const struct model_options *options, struct model_error *error);
void fit_peak_fini(struct fit_peak *p);
