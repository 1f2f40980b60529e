// SPDX-License-Identifier: MIT
// abi.c: the layouts of training that others compiled against, checked when Berth is built. No code.

#include "core/abi.h"
#include "ggml-opt.h"

// clang-format off

ABI_SIZE(ggml_opt_optimizer_params, 28);
ABI_FIELD(ggml_opt_optimizer_params, adamw, 0, 20);
ABI_FIELD(ggml_opt_optimizer_params, adamw.alpha, 0, 4);
ABI_FIELD(ggml_opt_optimizer_params, adamw.beta1, 4, 4);
ABI_FIELD(ggml_opt_optimizer_params, adamw.beta2, 8, 4);
ABI_FIELD(ggml_opt_optimizer_params, adamw.eps, 12, 4);
ABI_FIELD(ggml_opt_optimizer_params, adamw.wd, 16, 4);
ABI_FIELD(ggml_opt_optimizer_params, sgd, 20, 8);
ABI_FIELD(ggml_opt_optimizer_params, sgd.alpha, 20, 4);
ABI_FIELD(ggml_opt_optimizer_params, sgd.wd, 24, 4);

ABI_SIZE(ggml_opt_params, 72);
ABI_FIELD(ggml_opt_params, backend_sched, 0, 8);
ABI_FIELD(ggml_opt_params, ctx_compute, 8, 8);
ABI_FIELD(ggml_opt_params, inputs, 16, 8);
ABI_FIELD(ggml_opt_params, outputs, 24, 8);
ABI_FIELD(ggml_opt_params, loss_type, 32, 4);
ABI_FIELD(ggml_opt_params, build_type, 36, 4);
ABI_FIELD(ggml_opt_params, opt_period, 40, 4);
ABI_FIELD(ggml_opt_params, get_opt_pars, 48, 8);
ABI_FIELD(ggml_opt_params, get_opt_pars_ud, 56, 8);
ABI_FIELD(ggml_opt_params, optimizer, 64, 4);

_Static_assert(GGML_OPT_LOSS_TYPE_MEAN == 0, "GGML_OPT_LOSS_TYPE_MEAN");
_Static_assert(GGML_OPT_LOSS_TYPE_SUM == 1, "GGML_OPT_LOSS_TYPE_SUM");
_Static_assert(GGML_OPT_LOSS_TYPE_CROSS_ENTROPY == 2, "GGML_OPT_LOSS_TYPE_CROSS_ENTROPY");
_Static_assert(GGML_OPT_LOSS_TYPE_MEAN_SQUARED_ERROR == 3, "GGML_OPT_LOSS_TYPE_MEAN_SQUARED_ERROR");
_Static_assert(GGML_OPT_BUILD_TYPE_FORWARD == 10, "GGML_OPT_BUILD_TYPE_FORWARD");
_Static_assert(GGML_OPT_BUILD_TYPE_GRAD == 20, "GGML_OPT_BUILD_TYPE_GRAD");
_Static_assert(GGML_OPT_BUILD_TYPE_OPT == 30, "GGML_OPT_BUILD_TYPE_OPT");
_Static_assert(GGML_OPT_OPTIMIZER_TYPE_ADAMW == 0, "GGML_OPT_OPTIMIZER_TYPE_ADAMW");
_Static_assert(GGML_OPT_OPTIMIZER_TYPE_SGD == 1, "GGML_OPT_OPTIMIZER_TYPE_SGD");
_Static_assert(GGML_OPT_OPTIMIZER_TYPE_COUNT == 2, "GGML_OPT_OPTIMIZER_TYPE_COUNT");

// clang-format on
