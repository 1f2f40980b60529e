// SPDX-License-Identifier: MIT
// formats.h: one row per block format. Other files expand the rows into tables and declarations.
//
// X(TYPE, name, WITH, is_live, ...): GGML_TYPE_TYPE has blocks of QK_TYPE elements in block_name (blocks.h). WITH: the format of
// the activations in products with this format. is_live: a graph may write rows of this format. If not is_live, only
// quantize_name writes rows. The remaining arguments are members of struct berth_type_row:
//     SCALES(name, field, HOW, n)  n adjacent numbers of type HOW, from `field` on; a block is valid if all of them are finite
//     WRITE(name)                  quantize_row_name_ref exists
//     .needs_imatrix               quantize_name requires an importance matrix
//     .ftype, .file_type           the numbers that ggml and llama.cpp give a file of mostly this type
#pragma once

#include "quant/blocks.h"

// clang-format off
#define BERTH_FORMATS(X) \
    X(Q4_0, q4_0, Q8_0, true, SCALES(q4_0, d, HALF, 1), WRITE(q4_0), .ftype = GGML_FTYPE_MOSTLY_Q4_0, .file_type = 2) \
    X(Q4_1, q4_1, Q8_1, true, SCALES(q4_1, d, HALF, 2), WRITE(q4_1), .ftype = GGML_FTYPE_MOSTLY_Q4_1, .file_type = 3) \
    X(Q5_0, q5_0, Q8_0, true, SCALES(q5_0, d, HALF, 1), WRITE(q5_0), .ftype = GGML_FTYPE_MOSTLY_Q5_0, .file_type = 8) \
    X(Q5_1, q5_1, Q8_1, true, SCALES(q5_1, d, HALF, 2), WRITE(q5_1), .ftype = GGML_FTYPE_MOSTLY_Q5_1, .file_type = 9) \
    X(Q8_0, q8_0, Q8_0, true, SCALES(q8_0, d, HALF, 1), WRITE(q8_0), .ftype = GGML_FTYPE_MOSTLY_Q8_0, .file_type = 7) \
    X(Q2_K, q2_K, Q8_K, true, SCALES(q2_K, d, HALF, 2), WRITE(q2_K), .ftype = GGML_FTYPE_MOSTLY_Q2_K, .file_type = 10) \
    X(Q3_K, q3_K, Q8_K, true, SCALES(q3_K, d, HALF, 1), WRITE(q3_K), .ftype = GGML_FTYPE_MOSTLY_Q3_K, .file_type = 12) \
    X(Q4_K, q4_K, Q8_K, true, SCALES(q4_K, d, HALF, 2), WRITE(q4_K), .ftype = GGML_FTYPE_MOSTLY_Q4_K, .file_type = 15) \
    X(Q5_K, q5_K, Q8_K, true, SCALES(q5_K, d, HALF, 2), WRITE(q5_K), .ftype = GGML_FTYPE_MOSTLY_Q5_K, .file_type = 17) \
    X(Q6_K, q6_K, Q8_K, true, SCALES(q6_K, d, HALF, 1), WRITE(q6_K), .ftype = GGML_FTYPE_MOSTLY_Q6_K, .file_type = 18) \
    X(IQ2_XXS, iq2_xxs, Q8_K, false, SCALES(iq2_xxs, d, HALF, 1), .needs_imatrix = true, .ftype = GGML_FTYPE_MOSTLY_IQ2_XXS, .file_type = 19) \
    X(IQ2_XS, iq2_xs, Q8_K, false, SCALES(iq2_xs, d, HALF, 1), .needs_imatrix = true, .ftype = GGML_FTYPE_MOSTLY_IQ2_XS, .file_type = 20) \
    X(IQ3_XXS, iq3_xxs, Q8_K, false, SCALES(iq3_xxs, d, HALF, 1), WRITE(iq3_xxs), .ftype = GGML_FTYPE_MOSTLY_IQ3_XXS, .file_type = 23) \
    X(IQ1_S, iq1_s, Q8_K, false, SCALES(iq1_s, d, HALF, 1), .needs_imatrix = true, .ftype = GGML_FTYPE_MOSTLY_IQ1_S, .file_type = 24) \
    X(IQ4_NL, iq4_nl, Q8_0, true, SCALES(iq4_nl, d, HALF, 1), WRITE(iq4_nl), .ftype = GGML_FTYPE_MOSTLY_IQ4_NL, .file_type = 25) \
    X(IQ3_S, iq3_s, Q8_K, false, SCALES(iq3_s, d, HALF, 1), WRITE(iq3_s), .ftype = GGML_FTYPE_MOSTLY_IQ3_S, .file_type = 26) \
    X(IQ2_S, iq2_s, Q8_K, false, SCALES(iq2_s, d, HALF, 1), WRITE(iq2_s), .ftype = GGML_FTYPE_MOSTLY_IQ2_S, .file_type = 28) \
    X(IQ4_XS, iq4_xs, Q8_K, true, SCALES(iq4_xs, d, HALF, 1), WRITE(iq4_xs), .ftype = GGML_FTYPE_MOSTLY_IQ4_XS, .file_type = 30) \
    X(IQ1_M, iq1_m, Q8_K, false, SCALES(iq1_m, scales, SPLIT_HALF, 1), .ftype = GGML_FTYPE_MOSTLY_IQ1_M, .file_type = 31) \
    X(TQ1_0, tq1_0, Q8_K, true, SCALES(tq1_0, d, HALF, 1), WRITE(tq1_0), .file_type = 36) \
    X(TQ2_0, tq2_0, Q8_K, true, SCALES(tq2_0, d, HALF, 1), WRITE(tq2_0), .file_type = 37) \
    X(MXFP4, mxfp4, Q8_0, true, SCALES(mxfp4, e, E8M0, 1), WRITE(mxfp4), .ftype = GGML_FTYPE_MOSTLY_MXFP4) \
    X(NVFP4, nvfp4, Q8_0, true, WRITE(nvfp4), .ftype = GGML_FTYPE_MOSTLY_NVFP4) \
    X(Q1_0, q1_0, Q8_0, true, SCALES(q1_0, d, HALF, 1), WRITE(q1_0), .ftype = GGML_FTYPE_MOSTLY_Q1_0) \
    X(Q2_0, q2_0, Q8_0, true, SCALES(q2_0, d, HALF, 1), WRITE(q2_0), .ftype = GGML_FTYPE_MOSTLY_Q2_0)

// Formats to which a graph converts activations. X(TYPE, name, members...). q8_1 is not used in files.
#define BERTH_ACTIVATIONS(X) \
    X(Q8_1, q8_1, WRITE(q8_1), .scale = BERTH_SCALE_UNSTORED) \
    X(Q8_K, q8_K, SCALES(q8_K, d, SINGLE, 1))
// clang-format on
