// SPDX-License-Identifier: MIT
// type.h: one row a tensor type.
#pragma once

#include "base/base.h"

// Quantises nrows rows of n_per_row floats; returns the bytes written.
typedef size_t (*berth_quantize_t)(
    const float *GGML_RESTRICT src, void *GGML_RESTRICT dst, int64_t nrows, int64_t n_per_row, const float *imatrix);

struct berth_type_row {
    struct ggml_type_traits traits;
    berth_quantize_t quantize; // NULL: this type is not made from floats
    bool needs_imatrix;        // quantize cannot do without an importance matrix
};

extern const struct berth_type_row berth_types[GGML_TYPE_COUNT];

// NULL for a number that is no type, removed ones included.
static inline const struct berth_type_row *berth_type_row(enum ggml_type type) {
    const unsigned i = (unsigned) type;
    return i < GGML_TYPE_COUNT && berth_types[i].traits.blck_size > 0 ? &berth_types[i] : NULL;
}
