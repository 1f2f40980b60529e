// SPDX-License-Identifier: MIT
// tensor.glsl: elements of tensors by index.
#include "args.h"

struct at4 {
    int64_t i0, i1, i2, i3;
};

uint div_by(uint n, gpu_div d) {
    uint high, low;
    umulExtended(n, d.mul, high, low);
    return d.shift < 32u ? (high + n) >> d.shift : 0u;
}
at4 index_split_fast(int64_t i, gpu_index x) {
    const uint n = uint(i);
    const uint i3 = div_by(n, x.d012), r3 = n - i3 * x.d012.d;
    const uint i2 = div_by(r3, x.d01), r2 = r3 - i2 * x.d01.d;
    const uint i1 = div_by(r2, x.d0);
    return at4(int64_t(r2 - i1 * x.d0.d), int64_t(i1), int64_t(i2), int64_t(i3));
}
at4 index_split_any(int64_t i, int64_t ne0, int64_t ne1, int64_t ne2) {
    const int64_t i3 = i / (ne0 * ne1 * ne2);
    i -= i3 * ne0 * ne1 * ne2;
    const int64_t i2 = i / (ne0 * ne1);
    i -= i2 * ne0 * ne1;
    return at4(i % ne0, i / ne0, i2, i3);
}
// Splits a flat index into the indices of an element of v. x: constants for fast division by the extents of v; if x.d0.d is 0, v
// has 2^31 or more elements.
#define index_split(i, x, v) \
    ((x).d0.d != 0u ? index_split_fast(i, x) : index_split_any(i, (v).ne[0], (v).ne[1], (v).ne[2]))

#define at_indices(v, i0, i1, i2, i3) \
    ((v).p + uint64_t((i0) * (v).nb[0] + (i1) * (v).nb[1] + (i2) * (v).nb[2] + (i3) * (v).nb[3]))
#define at_element(v, x) at_indices(v, (x).i0, (x).i1, (x).i2, (x).i3)
int64_t index_repeat(int64_t i, int64_t n) {
    return i < n ? i : i % n;
}
// The element that broadcasts to index x: each index is taken modulo the extent.
#define at_repeat(v, x) \
    at_indices(v, index_repeat((x).i0, (v).ne[0]), index_repeat((x).i1, (v).ne[1]), index_repeat((x).i2, (v).ne[2]), \
        index_repeat((x).i3, (v).ne[3]))

// The indices of row ir of v.
at4 row_split(int64_t ir, int64_t ne1, int64_t ne2) {
    const int64_t i1 = ir % ne1, rest = ir / ne1;
    return at4(0, i1, rest % ne2, rest / ne2);
}
#define row_of(v, ir) row_split(ir, (v).ne[1], (v).ne[2])
