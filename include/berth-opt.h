// SPDX-License-Identifier: MIT
// berth-opt.h: status and state of training. It extends ggml-opt.h. Part of berth.h, whose general rules hold.
#pragma once

#include "ggml-opt.h"

#ifndef BERTH_API
#    define BERTH_API GGML_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- status and checkpoints ----

// Returns the status of the last ggml_opt_prepare_alloc, ggml_opt_alloc, ggml_opt_eval or ggml_opt_epoch; berth_last_error() has
// the text. A loss that is not finite is GGML_STATUS_FAILED: no step was taken, and the text names the step and the first tensor
// that is not finite.
BERTH_API enum ggml_status berth_opt_status(ggml_opt_context_t opt_ctx);

// Returns the running mean of a parameter's gradient (i = 0) or of its square (i = 1), which AdamW keeps. It is created if
// needed; the context owns it. Returns NULL with other optimisers and on failure. A checkpoint stores both.
BERTH_API struct ggml_tensor *berth_opt_moment(ggml_opt_context_t opt_ctx, const struct ggml_tensor *param, int i);

// Returns the number of the next step, from 1. A checkpoint stores it.
BERTH_API int64_t berth_opt_iter(ggml_opt_context_t opt_ctx);

// Sets the number of the next step. Values below 1 are ignored.
BERTH_API void berth_opt_set_iter(ggml_opt_context_t opt_ctx, int64_t iter);

#ifdef __cplusplus
}
#endif
