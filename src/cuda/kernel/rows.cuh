// SPDX-License-Identifier: MIT
// rows.cuh: helpers of kernels that write rows by index (SET_ROWS) and that copy elements.
#pragma once

#include "cuda/kernel/dequant.cuh"
#include "gpu/kernel/rows.h"

// Returns a row index. v: a tensor of row indices, i32 or i64.
DEV int64_t number_at(const struct gpu_view &v, int64_t i0, int64_t i1, int64_t i2) {
    const char *p = at(v, i0, i1, i2, 0);
    return v.type == GGML_TYPE_I64 ? *(const int64_t *) p : *(const int32_t *) p;
}

// Splits a flat index into the four indices of an element of v. x: constants for fast division by the extents of v. If v has 2^31
// or more elements, x.d0.d is 0, and the function divides by v.ne instead.
DEV at4 place_of(int64_t i, const struct gpu_view &v, const struct gpu_index &x) {
    return x.d0.d != 0 ? index_split(i, x) : index_split(i, v.ne);
}

// Returns element i of the source of a copy, plus the element of b.
DEV float copy_source(const struct gpu_copy_args &g, int64_t i) {
    const at4 from = place_of(i, g.a, g.a_index);
    const float v = g.block == 1 ? load_number(at(g.a, from), g.a.type)
                                 : row_element(at(g.a, 0, from.i1, from.i2, from.i3), g.a.type, from.i0);
    return g.b.p != nullptr ? v + load_number(at_repeat(g.b, from), g.b.type) : v;
}
