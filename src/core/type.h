// SPDX-License-Identifier: MIT
// type.h: the table of tensor types, with one row per type.
#pragma once

#include "base/base.h"

// Quantises nrows rows of n_per_row floats. Returns the number of bytes written.
typedef size_t (*berth_quantize_t)(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);

// The format of a block's scales. ggml_validate_row_data checks the scales for NaN and infinity. A float type has no scales, so
// its elements are checked instead.
enum berth_scale {
    BERTH_SCALE_NONE, // the type has no scales: every bit pattern is valid
    BERTH_SCALE_HALF,
    BERTH_SCALE_BF16,
    BERTH_SCALE_SINGLE,
    BERTH_SCALE_DOUBLE,
    BERTH_SCALE_E8M0,
    BERTH_SCALE_SPLIT_HALF, // an f16 spread over the upper nibbles of four 16-bit words, lowest nibble in the first word
    BERTH_SCALE_UNSTORED,   // the type does not occur in files: ggml_validate_row_data refuses it
};

// quant/formats.h defines the rows of block formats.
struct berth_type_row {
    struct ggml_type_traits traits;
    berth_quantize_t quantize; // NULL: floats cannot be converted to this type
    bool needs_imatrix;        // quantize requires an importance matrix
    enum berth_scale scale;
    int n_scales;     // number of consecutive scales in a block
    size_t scale_off; // byte offset of the first scale in a block
    // A file in which most tensors have this type has these two numbers. Both are 0 for F32. In the rows of other types, 0 means
    // that no number is defined.
    int ftype;     // enum ggml_ftype
    int file_type; // llama.cpp's enum llama_ftype
};

extern const struct berth_type_row berth_types[GGML_TYPE_COUNT];

// Returns NULL if the number is not a type or the type was removed.
static inline const struct berth_type_row *berth_type_row(enum ggml_type type) {
    const unsigned i = (unsigned) type;
    return i < GGML_TYPE_COUNT && berth_types[i].traits.blck_size > 0 ? &berth_types[i] : NULL;
}
