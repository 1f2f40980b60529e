// SPDX-License-Identifier: MIT
// type.c: the table of tensor types and the questions it answers. A number that is no type answers 0, false or NULL.

#include "core/type.h"

#include "quant/half.h"

// clang-format off
const struct berth_type_row berth_types[GGML_TYPE_COUNT] = {
    [GGML_TYPE_F32] = {.traits = {.type_name = "f32", .blck_size = 1, .type_size = 4, .is_quantized = false}},
    [GGML_TYPE_F16] = {.traits = {.type_name = "f16", .blck_size = 1, .type_size = 2, .is_quantized = false}},
    [GGML_TYPE_Q4_0] = {.traits = {.type_name = "q4_0", .blck_size = 32, .type_size = 18, .is_quantized = true}},
    [GGML_TYPE_Q4_1] = {.traits = {.type_name = "q4_1", .blck_size = 32, .type_size = 20, .is_quantized = true}},
    [GGML_TYPE_Q5_0] = {.traits = {.type_name = "q5_0", .blck_size = 32, .type_size = 22, .is_quantized = true}},
    [GGML_TYPE_Q5_1] = {.traits = {.type_name = "q5_1", .blck_size = 32, .type_size = 24, .is_quantized = true}},
    [GGML_TYPE_Q8_0] = {.traits = {.type_name = "q8_0", .blck_size = 32, .type_size = 34, .is_quantized = true}},
    [GGML_TYPE_Q8_1] = {.traits = {.type_name = "q8_1", .blck_size = 32, .type_size = 36, .is_quantized = true}},
    [GGML_TYPE_Q2_K] = {.traits = {.type_name = "q2_K", .blck_size = 256, .type_size = 84, .is_quantized = true}},
    [GGML_TYPE_Q3_K] = {.traits = {.type_name = "q3_K", .blck_size = 256, .type_size = 110, .is_quantized = true}},
    [GGML_TYPE_Q4_K] = {.traits = {.type_name = "q4_K", .blck_size = 256, .type_size = 144, .is_quantized = true}},
    [GGML_TYPE_Q5_K] = {.traits = {.type_name = "q5_K", .blck_size = 256, .type_size = 176, .is_quantized = true}},
    [GGML_TYPE_Q6_K] = {.traits = {.type_name = "q6_K", .blck_size = 256, .type_size = 210, .is_quantized = true}},
    [GGML_TYPE_Q8_K] = {.traits = {.type_name = "q8_K", .blck_size = 256, .type_size = 292, .is_quantized = true}},
    [GGML_TYPE_IQ2_XXS] = {.traits = {.type_name = "iq2_xxs", .blck_size = 256, .type_size = 66, .is_quantized = true}},
    [GGML_TYPE_IQ2_XS] = {.traits = {.type_name = "iq2_xs", .blck_size = 256, .type_size = 74, .is_quantized = true}},
    [GGML_TYPE_IQ3_XXS] = {.traits = {.type_name = "iq3_xxs", .blck_size = 256, .type_size = 98, .is_quantized = true}},
    [GGML_TYPE_IQ1_S] = {.traits = {.type_name = "iq1_s", .blck_size = 256, .type_size = 50, .is_quantized = true}},
    [GGML_TYPE_IQ4_NL] = {.traits = {.type_name = "iq4_nl", .blck_size = 32, .type_size = 18, .is_quantized = true}},
    [GGML_TYPE_IQ3_S] = {.traits = {.type_name = "iq3_s", .blck_size = 256, .type_size = 110, .is_quantized = true}},
    [GGML_TYPE_IQ2_S] = {.traits = {.type_name = "iq2_s", .blck_size = 256, .type_size = 82, .is_quantized = true}},
    [GGML_TYPE_IQ4_XS] = {.traits = {.type_name = "iq4_xs", .blck_size = 256, .type_size = 136, .is_quantized = true}},
    [GGML_TYPE_I8] = {.traits = {.type_name = "i8", .blck_size = 1, .type_size = 1, .is_quantized = false}},
    [GGML_TYPE_I16] = {.traits = {.type_name = "i16", .blck_size = 1, .type_size = 2, .is_quantized = false}},
    [GGML_TYPE_I32] = {.traits = {.type_name = "i32", .blck_size = 1, .type_size = 4, .is_quantized = false}},
    [GGML_TYPE_I64] = {.traits = {.type_name = "i64", .blck_size = 1, .type_size = 8, .is_quantized = false}},
    [GGML_TYPE_F64] = {.traits = {.type_name = "f64", .blck_size = 1, .type_size = 8, .is_quantized = false}},
    [GGML_TYPE_IQ1_M] = {.traits = {.type_name = "iq1_m", .blck_size = 256, .type_size = 56, .is_quantized = true}},
    [GGML_TYPE_BF16] = {.traits = {.type_name = "bf16", .blck_size = 1, .type_size = 2, .is_quantized = false}},
    [GGML_TYPE_TQ1_0] = {.traits = {.type_name = "tq1_0", .blck_size = 256, .type_size = 54, .is_quantized = true}},
    [GGML_TYPE_TQ2_0] = {.traits = {.type_name = "tq2_0", .blck_size = 256, .type_size = 66, .is_quantized = true}},
    [GGML_TYPE_MXFP4] = {.traits = {.type_name = "mxfp4", .blck_size = 32, .type_size = 17, .is_quantized = true}},
    [GGML_TYPE_NVFP4] = {.traits = {.type_name = "nvfp4", .blck_size = 64, .type_size = 36, .is_quantized = true}},
    [GGML_TYPE_Q1_0] = {.traits = {.type_name = "q1_0", .blck_size = 128, .type_size = 18, .is_quantized = true}},
    [GGML_TYPE_Q2_0] = {.traits = {.type_name = "q2_0", .blck_size = 64, .type_size = 18, .is_quantized = true}},
};
// clang-format on

const struct ggml_type_traits *ggml_get_type_traits(enum ggml_type type) {
    return (unsigned) type < GGML_TYPE_COUNT ? &berth_types[type].traits : NULL;
}

int64_t ggml_blck_size(enum ggml_type type) {
    const struct berth_type_row *row = berth_type_row(type);
    return row != NULL ? row->traits.blck_size : 0;
}

size_t ggml_type_size(enum ggml_type type) {
    const struct berth_type_row *row = berth_type_row(type);
    return row != NULL ? row->traits.type_size : 0;
}

size_t ggml_row_size(enum ggml_type type, int64_t ne) {
    const struct berth_type_row *row = berth_type_row(type);
    if (row == NULL || ne < 0) {
        berth_fail(GGML_STATUS_FAILED, "ggml_row_size: no row of %lld elements of %s", (long long) ne, ggml_type_name(type));
        return 0;
    }
    return row->traits.type_size * (size_t) ne / (size_t) row->traits.blck_size;
}

double ggml_type_sizef(enum ggml_type type) {
    const struct berth_type_row *row = berth_type_row(type);
    return row != NULL ? (double) row->traits.type_size / (double) row->traits.blck_size : 0.0;
}

const char *ggml_type_name(enum ggml_type type) {
    const struct berth_type_row *row = berth_type_row(type);
    return row != NULL ? row->traits.type_name : "NONE";
}

bool ggml_is_quantized(enum ggml_type type) {
    const struct berth_type_row *row = berth_type_row(type);
    return row != NULL && row->traits.is_quantized;
}

static const enum ggml_type ftype_types[] = {
    [GGML_FTYPE_ALL_F32]              = GGML_TYPE_F32,
    [GGML_FTYPE_MOSTLY_F16]           = GGML_TYPE_F16,
    [GGML_FTYPE_MOSTLY_Q4_0]          = GGML_TYPE_Q4_0,
    [GGML_FTYPE_MOSTLY_Q4_1]          = GGML_TYPE_Q4_1,
    [GGML_FTYPE_MOSTLY_Q4_1_SOME_F16] = GGML_TYPE_COUNT,
    [5]                               = GGML_TYPE_COUNT,
    [6]                               = GGML_TYPE_COUNT,
    [GGML_FTYPE_MOSTLY_Q8_0]          = GGML_TYPE_Q8_0,
    [GGML_FTYPE_MOSTLY_Q5_0]          = GGML_TYPE_Q5_0,
    [GGML_FTYPE_MOSTLY_Q5_1]          = GGML_TYPE_Q5_1,
    [GGML_FTYPE_MOSTLY_Q2_K]          = GGML_TYPE_Q2_K,
    [GGML_FTYPE_MOSTLY_Q3_K]          = GGML_TYPE_Q3_K,
    [GGML_FTYPE_MOSTLY_Q4_K]          = GGML_TYPE_Q4_K,
    [GGML_FTYPE_MOSTLY_Q5_K]          = GGML_TYPE_Q5_K,
    [GGML_FTYPE_MOSTLY_Q6_K]          = GGML_TYPE_Q6_K,
    [GGML_FTYPE_MOSTLY_IQ2_XXS]       = GGML_TYPE_IQ2_XXS,
    [GGML_FTYPE_MOSTLY_IQ2_XS]        = GGML_TYPE_IQ2_XS,
    [GGML_FTYPE_MOSTLY_IQ3_XXS]       = GGML_TYPE_IQ3_XXS,
    [GGML_FTYPE_MOSTLY_IQ1_S]         = GGML_TYPE_IQ1_S,
    [GGML_FTYPE_MOSTLY_IQ4_NL]        = GGML_TYPE_IQ4_NL,
    [GGML_FTYPE_MOSTLY_IQ3_S]         = GGML_TYPE_IQ3_S,
    [GGML_FTYPE_MOSTLY_IQ2_S]         = GGML_TYPE_IQ2_S,
    [GGML_FTYPE_MOSTLY_IQ4_XS]        = GGML_TYPE_IQ4_XS,
    [GGML_FTYPE_MOSTLY_IQ1_M]         = GGML_TYPE_IQ1_M,
    [GGML_FTYPE_MOSTLY_BF16]          = GGML_TYPE_BF16,
    [GGML_FTYPE_MOSTLY_MXFP4]         = GGML_TYPE_MXFP4,
    [GGML_FTYPE_MOSTLY_NVFP4]         = GGML_TYPE_NVFP4,
    [GGML_FTYPE_MOSTLY_Q1_0]          = GGML_TYPE_Q1_0,
    [GGML_FTYPE_MOSTLY_Q2_0]          = GGML_TYPE_Q2_0,
};

enum ggml_type ggml_ftype_to_ggml_type(enum ggml_ftype ftype) {
    const int i = (int) ftype;
    if (i < 0 || i >= (int) (sizeof ftype_types / sizeof ftype_types[0]) || ftype_types[i] == GGML_TYPE_COUNT) {
        berth_fail(GGML_STATUS_FAILED, "ggml_ftype_to_ggml_type: %d names no single type", i);
        return GGML_TYPE_COUNT;
    }
    return ftype_types[i];
}

// ---- rows of half and bfloat16 ----

float ggml_fp16_to_fp32(ggml_fp16_t x) {
    return berth_half_to_float(x);
}

ggml_fp16_t ggml_fp32_to_fp16(float x) {
    return berth_float_to_half(x);
}

void ggml_fp16_to_fp32_row(const ggml_fp16_t *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = berth_half_to_float(x[i]);
    }
}

void ggml_fp32_to_fp16_row(const float *x, ggml_fp16_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = berth_float_to_half(x[i]);
    }
}

float ggml_bf16_to_fp32(ggml_bf16_t x) {
    return berth_bf16_to_float(x.bits);
}

ggml_bf16_t ggml_fp32_to_bf16(float x) {
    return (ggml_bf16_t){berth_float_to_bf16(x)};
}

void ggml_bf16_to_fp32_row(const ggml_bf16_t *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = berth_bf16_to_float(x[i].bits);
    }
}

void ggml_fp32_to_bf16_row_ref(const float *x, ggml_bf16_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i].bits = berth_float_to_bf16(x[i]);
    }
}

void ggml_fp32_to_bf16_row(const float *x, ggml_bf16_t *y, int64_t n) {
    ggml_fp32_to_bf16_row_ref(x, y, n);
}
