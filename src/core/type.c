// SPDX-License-Identifier: MIT
// type.c: the table of tensor types and the functions that read the table. A number that is not a type has size 0 and the name
// "NONE".

#include "core/type.h"

#include "quant/half.h"
#include "quant/quants.h"

#include <string.h>

// clang-format off
// The quantisation functions take a pointer to their own block type, such as block_q4_0. The casts make them take void pointers.
#define WRITE(name) .traits.from_float_ref = (ggml_from_float_t) quantize_row_##name##_ref
#define SCALES(name, field, how, n) .scale = BERTH_SCALE_##how, .n_scales = n, .scale_off = offsetof(block_##name, field)
#define BLOCK(TYPE, name, ...) \
    [GGML_TYPE_##TYPE] = {.traits.type_name = #name, .traits.blck_size = QK_##TYPE, .traits.type_size = sizeof(block_##name), \
        .traits.is_quantized = true, __VA_ARGS__},
// with and is_live are columns of formats.h that this table does not use.
#define FORMAT(TYPE, name, with, is_live, ...) \
    BLOCK(TYPE, name, .traits.to_float = (ggml_to_float_t) dequantize_row_##name, .quantize = quantize_##name, __VA_ARGS__)
#define PLAIN(name, size, ...) {.traits.type_name = name, .traits.blck_size = 1, .traits.type_size = size, __VA_ARGS__}
// Each element of a float type is checked like a scale: it must be finite.
#define FLOATS(how) .scale = BERTH_SCALE_##how, .n_scales = 1
#define GONE(text) {.traits.type_name = text}

const struct berth_type_row berth_types[GGML_TYPE_COUNT] = {
    BERTH_FORMATS(FORMAT)
    BERTH_ACTIVATIONS(BLOCK)
    [GGML_TYPE_F32] = PLAIN("f32", 4, FLOATS(SINGLE), .ftype = GGML_FTYPE_ALL_F32, .file_type = 0),
    [GGML_TYPE_F64] = PLAIN("f64", 8, FLOATS(DOUBLE)),
    [GGML_TYPE_F16] = PLAIN("f16", 2, FLOATS(HALF), .ftype = GGML_FTYPE_MOSTLY_F16, .file_type = 1,
        .traits.to_float = (ggml_to_float_t) ggml_fp16_to_fp32_row, .traits.from_float_ref = (ggml_from_float_t) ggml_fp32_to_fp16_row),
    [GGML_TYPE_BF16] = PLAIN("bf16", 2, FLOATS(BF16), .ftype = GGML_FTYPE_MOSTLY_BF16, .file_type = 32,
        .traits.to_float = (ggml_to_float_t) ggml_bf16_to_fp32_row, .traits.from_float_ref = (ggml_from_float_t) ggml_fp32_to_bf16_row_ref),
    [GGML_TYPE_I8] = PLAIN("i8", 1, .scale = BERTH_SCALE_NONE),
    [GGML_TYPE_I16] = PLAIN("i16", 2, .scale = BERTH_SCALE_NONE),
    [GGML_TYPE_I32] = PLAIN("i32", 4, .scale = BERTH_SCALE_NONE),
    [GGML_TYPE_I64] = PLAIN("i64", 8, .scale = BERTH_SCALE_NONE),
    [4] = GONE("DEPRECATED"),
    [5] = GONE("DEPRECATED"),
    [31] = GONE("TYPE_Q4_0_4_4 REMOVED, use Q4_0 with runtime repacking"),
    [32] = GONE("TYPE_Q4_0_4_8 REMOVED, use Q4_0 with runtime repacking"),
    [33] = GONE("TYPE_Q4_0_8_8 REMOVED, use Q4_0 with runtime repacking"),
    [36] = GONE("TYPE_IQ4_NL_4_4 REMOVED, use IQ4_NL with runtime repacking"),
    [37] = GONE("TYPE_IQ4_NL_4_8 REMOVED, use IQ4_NL with runtime repacking"),
    [38] = GONE("TYPE_IQ4_NL_8_8 REMOVED, use IQ4_NL with runtime repacking"),
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
        berth_fail(GGML_STATUS_FAILED, "ggml_row_size: a row of %lld elements of %s has no valid size", (long long) ne,
            ggml_type_name(type));
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

enum ggml_type ggml_ftype_to_ggml_type(enum ggml_ftype ftype) {
    // ftype 0 stands for F32. Rows without an ftype also have 0 there, but F32 is type 0, so the loop finds F32 before them.
    for (int i = GGML_TYPE_F32; i < GGML_TYPE_COUNT; i++) {
        if (berth_type_row((enum ggml_type) i) != NULL && berth_types[i].ftype == (int) ftype) {
            return (enum ggml_type) i;
        }
    }
    berth_fail(GGML_STATUS_FAILED, "ggml_ftype_to_ggml_type: ftype %d does not name a single type", (int) ftype);
    return GGML_TYPE_COUNT;
}

int berth_type_file_type(enum ggml_type type) {
    const struct berth_type_row *row = berth_type_row(type);
    return row != NULL && (type == GGML_TYPE_F32 || row->file_type > 0) ? row->file_type : -1;
}

// ---- conversion of f16 and bf16 rows ----

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

// ---- quantisation ----

// Nothing to do: all tables are compile-time constants.
void ggml_quantize_init(enum ggml_type type) {
    (void) type;
}

void ggml_quantize_free(void) {
}

bool ggml_quantize_requires_imatrix(enum ggml_type type) {
    const struct berth_type_row *row = berth_type_row(type);
    return row != NULL && row->needs_imatrix;
}

static void plain_rows(const struct berth_type_row *row, const float *src, void *dst, int64_t n) {
    if (row->traits.from_float_ref != NULL) {
        row->traits.from_float_ref(src, dst, n);
    } else {
        memcpy(dst, src, (size_t) n * sizeof(float));
    }
}

// Starts at row start / n_per_row of src and dst. Returns the bytes written, or 0 after an error.
size_t ggml_quantize_chunk(
    enum ggml_type type, const float *src, void *dst, int64_t start, int64_t nrows, int64_t n_per_row, const float *imatrix) {
    const struct berth_type_row *row = berth_type_row(type);
    const bool is_plain = type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
    if (row == NULL || (row->quantize == NULL && !is_plain)) {
        berth_fail(GGML_STATUS_FAILED, "ggml_quantize_chunk: floats cannot be quantised to type %s", ggml_type_name(type));
        return 0;
    }
    if (src == NULL || dst == NULL || start < 0 || nrows < 0 || n_per_row <= 0 || start % n_per_row != 0 ||
        n_per_row % row->traits.blck_size != 0) {
        berth_fail(GGML_STATUS_FAILED,
            "ggml_quantize_chunk: src or dst is NULL, or %lld rows of %lld elements from element %lld on do not fill blocks of "
            "%lld",
            (long long) nrows, (long long) n_per_row, (long long) start, (long long) row->traits.blck_size);
        return 0;
    }
    if (row->needs_imatrix && imatrix == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_quantize_chunk: %s needs an importance matrix", row->traits.type_name);
        return 0;
    }
    const size_t row_size = ggml_row_size(type, n_per_row);
    char *to = (char *) dst + (size_t) (start / n_per_row) * row_size;
    if (is_plain) {
        plain_rows(row, src + start, to, nrows * n_per_row);
        return (size_t) nrows * row_size;
    }
    return row->quantize(src + start, to, nrows, n_per_row, imatrix);
}
