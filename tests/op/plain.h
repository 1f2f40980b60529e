// SPDX-License-Identifier: MIT
// plain.h: results of some ops by loops in double precision, for cases where the reference has no result, or one that is rougher
// than what is asked of Berth. Sources are taken as the tensors hold them.
#pragma once

#include "op.h"

// A copy, by the type's own meaning of its bytes.
void op_plain_copy(const struct ggml_tensor *t, double *out);
// Where one source is f16, the other is rounded to f16 first, as both backends do.
void op_plain_mul_mat(const struct ggml_tensor *t, double *out);
void op_plain_attn(const struct ggml_tensor *t, double *out);
// SCALE, and of UNARY what goes by a formula of its own: GELU, GELU_ERF, GELU_QUICK, SILU.
void op_plain_map(const struct ggml_tensor *t, double *out);
// SWIGLU_OAI
void op_plain_glu(const struct ggml_tensor *t, double *out);
void op_plain_ssm_conv(const struct ggml_tensor *t, double *out);
