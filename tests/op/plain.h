// SPDX-License-Identifier: MIT
// plain.h: loops in double precision, for cases that the reference does not compute or computes imprecisely.
#pragma once

#include "op.h"

// Rounds the source to the type of the result.
void op_plain_copy(const struct ggml_tensor *t, double *out);
// If one source is f16, the other is rounded to f16 first, as Berth and the reference do.
void op_plain_mul_mat(const struct ggml_tensor *t, double *out);
void op_plain_attn(const struct ggml_tensor *t, double *out);
// SCALE, and the UNARY ops GELU, GELU_ERF, GELU_QUICK and SILU.
void op_plain_map(const struct ggml_tensor *t, double *out);
// SWIGLU_OAI
void op_plain_glu(const struct ggml_tensor *t, double *out);
void op_plain_ssm_conv(const struct ggml_tensor *t, double *out);
