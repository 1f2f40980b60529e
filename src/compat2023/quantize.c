// SPDX-License-Identifier: MIT
// quantize.c: the quantising functions of the 2023 API, which also fill a histogram.

#include "compat2023/compat2023.h"
#include "core/op.h"

#include <string.h>

// Where a block of 32 values stores their bits, as byte offsets in the block.
struct block_bits {
    enum ggml_type type;
    size_t low_off;  // the low four bits of each value
    size_t high_off; // the fifth bits of all values; 0: values have four bits
};

static const struct block_bits nibbles[] = {
    {GGML_TYPE_Q4_0, 2, 0},
    {GGML_TYPE_Q4_1, 4, 0},
    {GGML_TYPE_Q5_0, 6, 2},
    {GGML_TYPE_Q5_1, 8, 4},
};

static void count_nibbles(const struct block_bits *bits, const uint8_t *block, int64_t *hist) {
    uint32_t high = 0;
    if (bits->high_off > 0) {
        memcpy(&high, block + bits->high_off, sizeof high);
    }
    for (int i = 0; i < 32; i++) {
        const uint8_t byte = block[bits->low_off + (size_t) i % 16];
        uint32_t value = i < 16 ? byte & 15u : byte >> 4;
        if (bits->high_off > 0) { // each bin counts two 5-bit values
            value = (value | ((high >> i) & 1u) << 4) / 2;
        }
        hist[value]++;
    }
}

// Counts the quantised values in 16 bins, for the formats that have a histogram in the 2023 API: q4_0, q4_1, q5_0, q5_1 and q8_0.
static void count_values(enum ggml_type type, const uint8_t *data, size_t size, int64_t *hist) {
    const size_t block_size = ggml_type_size(type);
    for (size_t k = 0; k < sizeof nibbles / sizeof nibbles[0]; k++) {
        for (size_t at = 0; nibbles[k].type == type && at < size; at += block_size) {
            count_nibbles(&nibbles[k], data + at, hist);
        }
    }
    for (size_t at = 0; type == GGML_TYPE_Q8_0 && at < size; at += block_size) {
        for (size_t i = block_size - 32; i < block_size; i++) {
            hist[(int8_t) data[at + i] / 16 + 8]++;
        }
    }
}

static size_t rows_quantize(
    enum ggml_type type, const float *src, void *dst, int64_t n, int64_t n_per_row, int64_t *hist, const float *imatrix) {
    if (n_per_row <= 0 || n < 0 || n % n_per_row != 0) {
        berth_fail(GGML_STATUS_FAILED, "quantising to %s: %lld elements are not a multiple of the row length %lld",
            ggml_type_name(type), (long long) n, (long long) n_per_row);
        return 0;
    }
    const size_t size = ggml_quantize_chunk(type, src, dst, 0, n / n_per_row, n_per_row, imatrix);
    if (hist != NULL) {
        count_values(type, dst, size, hist);
    }
    return size;
}

#define QUANTIZE(name, type) \
    size_t berth_2023_ggml_quantize_##name(const float *src, void *dst, int n, int k, int64_t *hist) { \
        return rows_quantize(type, src, dst, n, k, hist, NULL); \
    }
QUANTIZE(q4_0, GGML_TYPE_Q4_0)
QUANTIZE(q4_1, GGML_TYPE_Q4_1)
QUANTIZE(q5_0, GGML_TYPE_Q5_0)
QUANTIZE(q5_1, GGML_TYPE_Q5_1)
QUANTIZE(q8_0, GGML_TYPE_Q8_0)
QUANTIZE(q2_K, GGML_TYPE_Q2_K)
QUANTIZE(q3_K, GGML_TYPE_Q3_K)
QUANTIZE(q4_K, GGML_TYPE_Q4_K)
QUANTIZE(q5_K, GGML_TYPE_Q5_K)
QUANTIZE(q6_K, GGML_TYPE_Q6_K)

// Quantises elements start to start + n - 1. `start` must be the start of a block, but need not be the start of a row.
static size_t quantize_from(enum ggml_type type, const float *src, void *dst, int64_t start, int64_t n, int64_t n_per_row,
    int64_t *hist, const float *imatrix) {
    const int64_t block = ggml_blck_size(type);
    if (src == NULL || dst == NULL || block <= 0 || start < 0 || start % block != 0) {
        berth_fail(GGML_STATUS_FAILED,
            "ggml_quantize_chunk: a pointer is NULL, or element %lld is not the start of a block of %lld of type %s",
            (long long) start, (long long) block, ggml_type_name(type));
        return 0;
    }
    return rows_quantize(
        type, src + start, (char *) dst + (size_t) (start / block) * ggml_type_size(type), n, n_per_row, hist, imatrix);
}

size_t berth_2023_ggml_quantize_chunk(enum ggml_type type, const float *src, void *dst, int start, int n, int64_t *hist) {
    return quantize_from(type, src, dst, start, n, n, hist, NULL);
}

size_t berth_2023_ggml_quantize_chunk_rows(
    enum ggml_type type, const float *src, void *dst, int start, int nrows, int n_per_row, int64_t *hist, const float *imatrix) {
    return quantize_from(type, src, dst, start, (int64_t) nrows * n_per_row, n_per_row, hist, imatrix);
}
