// SPDX-License-Identifier: MIT
// berth-opt.h: what Berth's optimisation offers beyond ggml-opt.h: whether it went well, and what a checkpoint has to hold.
// Part of berth.h.
#pragma once

#include "ggml-opt.h"

#ifndef BERTH_API
#    define BERTH_API GGML_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Of the last ggml_opt_prepare_alloc, ggml_opt_alloc, ggml_opt_eval or ggml_opt_epoch, which cannot tell. berth_last_error() has
// the text. A loss that is not finite is GGML_STATUS_FAILED: its step was not taken, and the text names the step and the tensor
// that went first.
BERTH_API enum ggml_status berth_opt_status(ggml_opt_context_t opt_ctx);

// The running mean of the gradient (i = 0) or of its square (1) that AdamW keeps of a parameter, made if there is none yet. NULL
// with other optimisers.
BERTH_API struct ggml_tensor *berth_opt_moment(ggml_opt_context_t opt_ctx, const struct ggml_tensor *param, int i);
// The number of the next step, from 1.
BERTH_API int64_t berth_opt_iter(ggml_opt_context_t opt_ctx);
BERTH_API void berth_opt_set_iter(ggml_opt_context_t opt_ctx, int64_t iter);

#ifdef __cplusplus
}
#endif
