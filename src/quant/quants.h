// SPDX-License-Identifier: MIT
// quants.h: conversion of rows of floats to blocks and back, with one set of functions per format.
// quantize_row_X_ref(x, y, k) and dequantize_row_X(x, y, k) convert k elements in full blocks; a remainder is ignored.
// quantize_row_X_ref writes the same bytes as the reference (ggml), except for iq3_xxs, iq3_s and iq2_s. Ops that copy rows or
// fill a cache use quantize_row_X_ref.
// quantize_X(src, dst, nrows, n_per_row, imatrix) converts rows and returns the bytes written. If n_per_row is not a multiple of
// the block size, quantize_X returns 0 and sets the last error. For K and iq formats, quantize_X searches longer than
// quantize_row_X_ref for scales with a small error. imatrix: NULL, or n_per_row weights of the squared error, the same for every
// row.
// Non-finite input: in a K or iq format, all elements of a block with a non-finite element become NaN, so that
// ggml_validate_row_data finds the block. The other formats follow the reference.
// All functions are pure and thread-safe. The init and free functions do nothing, because the tables are constant.
#pragma once

#include "quant/formats.h"

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

// Declares all functions for every format. A format that lacks a function (formats.h) does not define it.
#define BERTH_FORMAT_DECLARE(TYPE, name, ...) \
    GGML_API void quantize_row_##name##_ref(const float *GGML_RESTRICT x, block_##name *GGML_RESTRICT y, int64_t k); \
    GGML_API void dequantize_row_##name(const block_##name *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k); \
    GGML_API size_t quantize_##name( \
        const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
BERTH_FORMATS(BERTH_FORMAT_DECLARE)
BERTH_ACTIVATIONS(BERTH_FORMAT_DECLARE)
#undef BERTH_FORMAT_DECLARE

GGML_API void iq2xs_init_impl(enum ggml_type type);
GGML_API void iq2xs_free_impl(enum ggml_type type);
GGML_API void iq3xs_init_impl(int grid_size);
GGML_API void iq3xs_free_impl(int grid_size);

#ifdef __cplusplus
}
#endif
