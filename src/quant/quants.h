// SPDX-License-Identifier: MIT
// quants.h: rows of floats to blocks and back, one pair of functions a format.
// quantize_row_X_ref(x, y, k) and dequantize_row_X(x, y, k): k elements, a whole number of blocks; a rest is left alone.
// quantize_row_X_ref writes the reference's bytes (but in iq3_xxs, iq3_s and iq2_s): copies and caches use it.
// quantize_X(src, dst, nrows, n_per_row, imatrix): whole rows, returns the bytes written, 0 with the last error set if n_per_row
// is no whole number of blocks; K and iq formats are searched longer. imatrix: NULL, or n_per_row weights of the squared error,
// the same for every row. Non-finite input: the simple formats follow the reference; a K or iq block that holds any becomes NaN
// throughout, so that ggml_validate_row_data finds it. All of them are pure and safe on any thread; the init and free calls have
// nothing to do, since the tables are constant.
#pragma once

#include "quant/blocks.h"

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

GGML_API void quantize_row_q1_0_ref(const float *GGML_RESTRICT x, block_q1_0 *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_q2_0_ref(const float *GGML_RESTRICT x, block_q2_0 *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_q4_0_ref(const float *GGML_RESTRICT x, block_q4_0 *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_q4_1_ref(const float *GGML_RESTRICT x, block_q4_1 *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_q5_0_ref(const float *GGML_RESTRICT x, block_q5_0 *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_q5_1_ref(const float *GGML_RESTRICT x, block_q5_1 *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_q8_0_ref(const float *GGML_RESTRICT x, block_q8_0 *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_q8_1_ref(const float *GGML_RESTRICT x, block_q8_1 *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_mxfp4_ref(const float *GGML_RESTRICT x, block_mxfp4 *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_nvfp4_ref(const float *GGML_RESTRICT x, block_nvfp4 *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_q2_K_ref(const float *GGML_RESTRICT x, block_q2_K *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_q3_K_ref(const float *GGML_RESTRICT x, block_q3_K *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_q4_K_ref(const float *GGML_RESTRICT x, block_q4_K *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_q5_K_ref(const float *GGML_RESTRICT x, block_q5_K *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_q6_K_ref(const float *GGML_RESTRICT x, block_q6_K *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_q8_K_ref(const float *GGML_RESTRICT x, block_q8_K *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_tq1_0_ref(const float *GGML_RESTRICT x, block_tq1_0 *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_tq2_0_ref(const float *GGML_RESTRICT x, block_tq2_0 *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_iq3_xxs_ref(const float *GGML_RESTRICT x, block_iq3_xxs *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_iq4_nl_ref(const float *GGML_RESTRICT x, block_iq4_nl *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_iq4_xs_ref(const float *GGML_RESTRICT x, block_iq4_xs *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_iq3_s_ref(const float *GGML_RESTRICT x, block_iq3_s *GGML_RESTRICT y, int64_t k);
GGML_API void quantize_row_iq2_s_ref(const float *GGML_RESTRICT x, block_iq2_s *GGML_RESTRICT y, int64_t k);

GGML_API void dequantize_row_q1_0(const block_q1_0 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_q2_0(const block_q2_0 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_q4_0(const block_q4_0 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_q4_1(const block_q4_1 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_q5_0(const block_q5_0 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_q5_1(const block_q5_1 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_q8_0(const block_q8_0 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_mxfp4(const block_mxfp4 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_nvfp4(const block_nvfp4 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_q2_K(const block_q2_K *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_q3_K(const block_q3_K *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_q4_K(const block_q4_K *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_q5_K(const block_q5_K *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_q6_K(const block_q6_K *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_q8_K(const block_q8_K *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_tq1_0(const block_tq1_0 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_tq2_0(const block_tq2_0 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_iq2_xxs(const block_iq2_xxs *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_iq2_xs(const block_iq2_xs *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_iq2_s(const block_iq2_s *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_iq3_xxs(const block_iq3_xxs *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_iq1_s(const block_iq1_s *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_iq1_m(const block_iq1_m *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_iq4_nl(const block_iq4_nl *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_iq4_xs(const block_iq4_xs *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);
GGML_API void dequantize_row_iq3_s(const block_iq3_s *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k);

GGML_API size_t quantize_iq2_xxs(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_iq2_xs(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_iq2_s(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_iq3_xxs(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_iq1_s(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_iq1_m(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_iq4_nl(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_iq4_xs(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_iq3_s(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_tq1_0(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_tq2_0(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_q2_K(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_q3_K(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_q4_K(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_q5_K(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_q6_K(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_q1_0(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_q2_0(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_q4_0(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_q4_1(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_q5_0(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_q5_1(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_q8_0(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_mxfp4(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);
GGML_API size_t quantize_nvfp4(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);

GGML_API void iq2xs_init_impl(enum ggml_type type);
GGML_API void iq2xs_free_impl(enum ggml_type type);
GGML_API void iq3xs_init_impl(int grid_size);
GGML_API void iq3xs_free_impl(int grid_size);

#ifdef __cplusplus
}
#endif
