// SPDX-License-Identifier: MIT
// search.h: the best setting of a model within limits, for `berth fit` and `berth run --memory`.
#pragma once

#include "fit/limits.h"

// What may be given up for memory.
enum { FIT_CACHE_TYPE = 1, FIT_BATCH = 2, FIT_SPILL = 4, FIT_RECOMPUTE = 8 };

// What is asked.
struct fit_question {
    struct model_options model; // n_ctx, n_batch 0: to be found
    struct fit_limits limits;
    unsigned allow;  // of the above; 0: the largest context, then the largest batch
    int64_t max_ctx; // 0: the model's
};

// What stands in the way of more.
enum fit_limit_kind { FIT_GIVEN, FIT_MEMORY, FIT_MODEL, FIT_LEARNED, FIT_MAX_CTX, FIT_CONTEXT, FIT_WANTED };

// What was found; the session of m is planned for it.
struct fit_answer {
    bool fits;
    int64_t n_ctx, n_batch, n_host;   // positions, tokens, layers that stay on the host though a GPU is there
    int64_t ctx_wanted, batch_wanted; // what there would be in unlimited memory, where allow is not 0
    enum ggml_type cache;             // of keys; values too if it was chosen here
    size_t compute, compute_once;     // bytes that graphs may take, if ops run again for it, else 0; what they take without
    uint64_t compute_least;           // of the same: no schedule takes less; 0: nobody asked
    bool is_cut;                      // time was up before all of that was looked at
    enum fit_limit_kind ctx_limit, batch_limit;
    int full;                 // which limit was passed last: a device, FIT_ALL, or FIT_NONE
    int ctx_full, batch_full; // the same, of what stands in the way of each
    int n_plans;
};

// "cache-type,batch,spill,recompute" into the bits; CLI_OK, or the exit code after a message.
int fit_allow_parse(const char *command, const char *text, unsigned *allow);
// Opens the model and resolves the limits, then finds the answer. m is the caller's to close if CLI_OK.
int fit_open(struct fit_question *q, struct workbench *m);
int fit_solve(const struct fit_question *q, struct workbench *m, struct fit_answer *a);
// The options with which a command opens the model as it was found.
void fit_apply(const struct fit_question *q, const struct fit_answer *a, struct model_options *o);
