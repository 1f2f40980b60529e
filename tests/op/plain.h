// SPDX-License-Identifier: MIT
// plain.h: results of some ops by loops in double precision, for cases that the reference does not compute, or computes less
// precisely than Berth must. Sources are read from the tensors in their types.
#pragma once

#include "op.h"

// A copy, decoded from the bytes of the type.
void op_plain_copy(const struct ggml_tensor *t, double *out);
// If one source is f16, the other is rounded to f16 first, as both backends do.
void op_plain_mul_mat(const struct ggml_tensor *t, double *out);
void op_plain_attn(const struct ggml_tensor *t, double *out);
// SCALE, and the UNARY ops GELU, GELU_ERF, GELU_QUICK and SILU.
void op_plain_map(const struct ggml_tensor *t, double *out);
// SWIGLU_OAI
void op_plain_glu(const struct ggml_tensor *t, double *out);
void op_plain_ssm_conv(const struct ggml_tensor *t, double *out);
