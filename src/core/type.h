// SPDX-License-Identifier: MIT
// type.h: one row a tensor type.
#pragma once

#include "base/base.h"

// Quantises nrows rows of n_per_row floats; returns the bytes written.
typedef size_t (*berth_quantize_t)(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);

// How the numbers are written that a block is sound by.
enum berth_scale {
    BERTH_SCALE_NONE, // none: every code is a number
    BERTH_SCALE_HALF,
    BERTH_SCALE_BF16,
    BERTH_SCALE_SINGLE,
    BERTH_SCALE_DOUBLE,
    BERTH_SCALE_E8M0,
    BERTH_SCALE_SPLIT_HALF, // upper nibbles of four words, lowest first
    BERTH_SCALE_UNSTORED,   // the type cannot be in a file
};

// The rows of block formats come from quant/formats.h.
struct berth_type_row {
    struct ggml_type_traits traits;
    berth_quantize_t quantize; // NULL: this type is not made from floats
    bool needs_imatrix;        // quantize cannot do without an importance matrix
    enum berth_scale scale;
    int n_scales;     // in a block, side by side ...
    size_t scale_off; // ... from here on
    int ftype;        // enum ggml_ftype of a file of mostly this type; 0: none, but of F32
    int file_type;    // llama.cpp's number for such a file; 0: none, but of F32
};

extern const struct berth_type_row berth_types[GGML_TYPE_COUNT];

// NULL for a number that is no type, removed ones included.
static inline const struct berth_type_row *berth_type_row(enum ggml_type type) {
    const unsigned i = (unsigned) type;
    return i < GGML_TYPE_COUNT && berth_types[i].traits.blck_size > 0 ? &berth_types[i] : NULL;
}
