// SPDX-License-Identifier: MIT
// type.c: the table of tensor types and the questions it answers. A number that is no type answers 0, false or NULL.

#include "core/type.h"

#include "quant/half.h"
#include "quant/quants.h"

#include <string.h>

// clang-format off
// Readers and writers of blocks take their own block type; through the table they take bytes.
#define READ(name) .to_float = (ggml_to_float_t) dequantize_row_##name
#define WRITE(name) .from_float_ref = (ggml_from_float_t) quantize_row_##name##_ref

const struct berth_type_row berth_types[GGML_TYPE_COUNT] = {
    [GGML_TYPE_F32] = {.traits = {.type_name = "f32", .blck_size = 1, .type_size = 4}},
    [GGML_TYPE_F16] = {.traits = {.type_name = "f16", .blck_size = 1, .type_size = 2, .to_float = (ggml_to_float_t) ggml_fp16_to_fp32_row, .from_float_ref = (ggml_from_float_t) ggml_fp32_to_fp16_row}},
    [GGML_TYPE_Q4_0] = {.traits = {.type_name = "q4_0", .blck_size = 32, .type_size = 18, .is_quantized = true, READ(q4_0), WRITE(q4_0)}, .quantize = quantize_q4_0},
    [GGML_TYPE_Q4_1] = {.traits = {.type_name = "q4_1", .blck_size = 32, .type_size = 20, .is_quantized = true, READ(q4_1), WRITE(q4_1)}, .quantize = quantize_q4_1},
    [GGML_TYPE_Q5_0] = {.traits = {.type_name = "q5_0", .blck_size = 32, .type_size = 22, .is_quantized = true, READ(q5_0), WRITE(q5_0)}, .quantize = quantize_q5_0},
    [GGML_TYPE_Q5_1] = {.traits = {.type_name = "q5_1", .blck_size = 32, .type_size = 24, .is_quantized = true, READ(q5_1), WRITE(q5_1)}, .quantize = quantize_q5_1},
    [GGML_TYPE_Q8_0] = {.traits = {.type_name = "q8_0", .blck_size = 32, .type_size = 34, .is_quantized = true, READ(q8_0), WRITE(q8_0)}, .quantize = quantize_q8_0},
    [GGML_TYPE_Q8_1] = {.traits = {.type_name = "q8_1", .blck_size = 32, .type_size = 36, .is_quantized = true, WRITE(q8_1)}},
    [GGML_TYPE_Q2_K] = {.traits = {.type_name = "q2_K", .blck_size = 256, .type_size = 84, .is_quantized = true, READ(q2_K), WRITE(q2_K)}, .quantize = quantize_q2_K},
    [GGML_TYPE_Q3_K] = {.traits = {.type_name = "q3_K", .blck_size = 256, .type_size = 110, .is_quantized = true, READ(q3_K), WRITE(q3_K)}, .quantize = quantize_q3_K},
    [GGML_TYPE_Q4_K] = {.traits = {.type_name = "q4_K", .blck_size = 256, .type_size = 144, .is_quantized = true, READ(q4_K), WRITE(q4_K)}, .quantize = quantize_q4_K},
    [GGML_TYPE_Q5_K] = {.traits = {.type_name = "q5_K", .blck_size = 256, .type_size = 176, .is_quantized = true, READ(q5_K), WRITE(q5_K)}, .quantize = quantize_q5_K},
    [GGML_TYPE_Q6_K] = {.traits = {.type_name = "q6_K", .blck_size = 256, .type_size = 210, .is_quantized = true, READ(q6_K), WRITE(q6_K)}, .quantize = quantize_q6_K},
    [GGML_TYPE_Q8_K] = {.traits = {.type_name = "q8_K", .blck_size = 256, .type_size = 292, .is_quantized = true}},
    [GGML_TYPE_IQ2_XXS] = {.traits = {.type_name = "iq2_xxs", .blck_size = 256, .type_size = 66, .is_quantized = true, READ(iq2_xxs)}, .quantize = quantize_iq2_xxs, .needs_imatrix = true},
    [GGML_TYPE_IQ2_XS] = {.traits = {.type_name = "iq2_xs", .blck_size = 256, .type_size = 74, .is_quantized = true, READ(iq2_xs)}, .quantize = quantize_iq2_xs, .needs_imatrix = true},
    [GGML_TYPE_IQ3_XXS] = {.traits = {.type_name = "iq3_xxs", .blck_size = 256, .type_size = 98, .is_quantized = true, READ(iq3_xxs), WRITE(iq3_xxs)}, .quantize = quantize_iq3_xxs},
    [GGML_TYPE_IQ1_S] = {.traits = {.type_name = "iq1_s", .blck_size = 256, .type_size = 50, .is_quantized = true, READ(iq1_s)}, .quantize = quantize_iq1_s, .needs_imatrix = true},
    [GGML_TYPE_IQ4_NL] = {.traits = {.type_name = "iq4_nl", .blck_size = 32, .type_size = 18, .is_quantized = true, READ(iq4_nl), WRITE(iq4_nl)}, .quantize = quantize_iq4_nl},
    [GGML_TYPE_IQ3_S] = {.traits = {.type_name = "iq3_s", .blck_size = 256, .type_size = 110, .is_quantized = true, READ(iq3_s), WRITE(iq3_s)}, .quantize = quantize_iq3_s},
    [GGML_TYPE_IQ2_S] = {.traits = {.type_name = "iq2_s", .blck_size = 256, .type_size = 82, .is_quantized = true, READ(iq2_s), WRITE(iq2_s)}, .quantize = quantize_iq2_s},
    [GGML_TYPE_IQ4_XS] = {.traits = {.type_name = "iq4_xs", .blck_size = 256, .type_size = 136, .is_quantized = true, READ(iq4_xs), WRITE(iq4_xs)}, .quantize = quantize_iq4_xs},
    [GGML_TYPE_I8] = {.traits = {.type_name = "i8", .blck_size = 1, .type_size = 1}},
    [GGML_TYPE_I16] = {.traits = {.type_name = "i16", .blck_size = 1, .type_size = 2}},
    [GGML_TYPE_I32] = {.traits = {.type_name = "i32", .blck_size = 1, .type_size = 4}},
    [GGML_TYPE_I64] = {.traits = {.type_name = "i64", .blck_size = 1, .type_size = 8}},
    [GGML_TYPE_F64] = {.traits = {.type_name = "f64", .blck_size = 1, .type_size = 8}},
    [GGML_TYPE_IQ1_M] = {.traits = {.type_name = "iq1_m", .blck_size = 256, .type_size = 56, .is_quantized = true, READ(iq1_m)}, .quantize = quantize_iq1_m},
    [GGML_TYPE_BF16] = {.traits = {.type_name = "bf16", .blck_size = 1, .type_size = 2, .to_float = (ggml_to_float_t) ggml_bf16_to_fp32_row, .from_float_ref = (ggml_from_float_t) ggml_fp32_to_bf16_row_ref}},
    [GGML_TYPE_TQ1_0] = {.traits = {.type_name = "tq1_0", .blck_size = 256, .type_size = 54, .is_quantized = true, READ(tq1_0), WRITE(tq1_0)}, .quantize = quantize_tq1_0},
    [GGML_TYPE_TQ2_0] = {.traits = {.type_name = "tq2_0", .blck_size = 256, .type_size = 66, .is_quantized = true, READ(tq2_0), WRITE(tq2_0)}, .quantize = quantize_tq2_0},
    [GGML_TYPE_MXFP4] = {.traits = {.type_name = "mxfp4", .blck_size = 32, .type_size = 17, .is_quantized = true, READ(mxfp4), WRITE(mxfp4)}, .quantize = quantize_mxfp4},
    [GGML_TYPE_NVFP4] = {.traits = {.type_name = "nvfp4", .blck_size = 64, .type_size = 36, .is_quantized = true, READ(nvfp4), WRITE(nvfp4)}, .quantize = quantize_nvfp4},
    [GGML_TYPE_Q1_0] = {.traits = {.type_name = "q1_0", .blck_size = 128, .type_size = 18, .is_quantized = true, READ(q1_0), WRITE(q1_0)}, .quantize = quantize_q1_0},
    [GGML_TYPE_Q2_0] = {.traits = {.type_name = "q2_0", .blck_size = 64, .type_size = 18, .is_quantized = true, READ(q2_0), WRITE(q2_0)}, .quantize = quantize_q2_0},
    [4] = {.traits = {.type_name = "DEPRECATED"}},
    [5] = {.traits = {.type_name = "DEPRECATED"}},
    [31] = {.traits = {.type_name = "TYPE_Q4_0_4_4 REMOVED, use Q4_0 with runtime repacking"}},
    [32] = {.traits = {.type_name = "TYPE_Q4_0_4_8 REMOVED, use Q4_0 with runtime repacking"}},
    [33] = {.traits = {.type_name = "TYPE_Q4_0_8_8 REMOVED, use Q4_0 with runtime repacking"}},
    [36] = {.traits = {.type_name = "TYPE_IQ4_NL_4_4 REMOVED, use IQ4_NL with runtime repacking"}},
    [37] = {.traits = {.type_name = "TYPE_IQ4_NL_4_8 REMOVED, use IQ4_NL with runtime repacking"}},
    [38] = {.traits = {.type_name = "TYPE_IQ4_NL_8_8 REMOVED, use IQ4_NL with runtime repacking"}},
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
    size_t size;
    if (row == NULL || ne < 0 || !berth_mul_ok(row->traits.type_size, (size_t) ne, &size)) {
        berth_fail(GGML_STATUS_FAILED, "ggml_row_size: no row of %lld elements of %s", (long long) ne, ggml_type_name(type));
        return 0;
    }
    return size / (size_t) row->traits.blck_size;
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

// ---- quantising ----

// The tables are constant: nothing to build and nothing to free.
void ggml_quantize_init(enum ggml_type type) {
    (void) type;
}

void ggml_quantize_free(void) {
}

bool ggml_quantize_requires_imatrix(enum ggml_type type) {
    const struct berth_type_row *row = berth_type_row(type);
    return row != NULL && row->needs_imatrix;
}

// Types without blocks: a row is converted by its reference writer, or copied if it is float already.
static void plain_rows(const struct berth_type_row *row, const float *src, void *dst, int64_t n) {
    if (row->traits.from_float_ref != NULL) {
        row->traits.from_float_ref(src, dst, n);
    } else {
        memcpy(dst, src, (size_t) n * sizeof(float));
    }
}

// Rows start / n_per_row and following of src go to the same rows of dst. Returns the bytes written, 0 on an error.
size_t ggml_quantize_chunk(
    enum ggml_type type, const float *src, void *dst, int64_t start, int64_t nrows, int64_t n_per_row, const float *imatrix) {
    const struct berth_type_row *row = berth_type_row(type);
    const bool is_plain              = type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
    if (row == NULL || (row->quantize == NULL && !is_plain)) {
        berth_fail(GGML_STATUS_FAILED, "ggml_quantize_chunk: rows of %s are not made from floats", ggml_type_name(type));
        return 0;
    }
    if (src == NULL || dst == NULL || start < 0 || nrows < 0 || n_per_row <= 0 || start % n_per_row != 0 ||
        n_per_row % row->traits.blck_size != 0) {
        berth_fail(GGML_STATUS_FAILED,
            "ggml_quantize_chunk: %lld rows of %lld elements from %lld on do not go into blocks of %lld", (long long) nrows,
            (long long) n_per_row, (long long) start, (long long) row->traits.blck_size);
        return 0;
    }
    if (row->needs_imatrix && imatrix == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_quantize_chunk: %s needs an importance matrix", row->traits.type_name);
        return 0;
    }
    const size_t row_size = ggml_row_size(type, n_per_row);
    char *to              = (char *) dst + (size_t) (start / n_per_row) * row_size;
    if (is_plain) {
        plain_rows(row, src + start, to, nrows * n_per_row);
        return (size_t) nrows * row_size;
    }
    return row->quantize(src + start, to, nrows, n_per_row, imatrix);
}
