// SPDX-License-Identifier: MIT
// rowio.h: converts rows of any type and stride to floats and back, for op drivers that compute in f32. Rows are cut into pieces.
#pragma once

#include "base/min.h"
#include "cpu/cpu.h"

#include <string.h>

// Elements of a piece: a multiple of the block size of every format, and so small that three pieces as floats fit in the L1 cache.
#define CPU_PIECE 1024

static inline bool cpu_is_float(enum ggml_type t) {
    return t == GGML_TYPE_F32 || t == GGML_TYPE_F16 || t == GGML_TYPE_BF16;
}

static inline bool cpu_is_f32_dense(const struct ggml_tensor *t) {
    return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float);
}

// True if the elements of a row are contiguous. The stride of a single element does not matter.
static inline bool cpu_rows_are_dense(const struct ggml_tensor *t) {
    return t->nb[0] == ggml_type_size(t->type) || t->ne[0] == 1;
}

// Returns element i of the first row, for any stride.
static inline float cpu_f32_at(const struct ggml_tensor *t, int64_t i) {
    float v;
    memcpy(&v, (const char *) t->data + (size_t) i * t->nb[0], sizeof v);
    return v;
}
static inline int32_t cpu_i32_at(const struct ggml_tensor *t, int64_t i) {
    int32_t v;
    memcpy(&v, (const char *) t->data + (size_t) i * t->nb[0], sizeof v);
    return v;
}

// Returns elements i0 .. i0+n-1 of a row as floats: a pointer into the row if it is dense f32, otherwise buf, which receives the
// converted elements. A quantised row must be dense, and i0 the start of a block.
const float *cpu_row_widen(
    const struct cpu_kernels *k, const struct ggml_tensor *t, const char *row, int64_t i0, int64_t n, float *buf);
static inline const float *cpu_row_load(
    const struct cpu_kernels *k, const struct ggml_tensor *t, const char *row, int64_t i0, int64_t n, float *buf) {
    return cpu_is_f32_dense(t) ? (const float *) (const void *) row + i0 : cpu_row_widen(k, t, row, i0, n, buf);
}
// Same as cpu_row_load for a row that is repeated along dimension 0: element i is element i % ne[0] of the row.
const float *cpu_row_load_repeat(
    const struct cpu_kernels *k, const struct ggml_tensor *t, const char *row, int64_t i0, int64_t n, float *buf);

// Returns the address at which a driver writes the floats of elements i0 and later: in the row if it is dense f32, otherwise buf.
// The driver then calls cpu_row_store with that address, which converts from buf to the row if necessary.
static inline float *cpu_row_target(const struct ggml_tensor *t, char *row, int64_t i0, float *buf) {
    return cpu_is_f32_dense(t) ? (float *) (void *) row + i0 : buf;
}
void cpu_row_narrow(
    const struct cpu_kernels *k, const struct ggml_tensor *t, char *row, int64_t i0, int64_t n, const float *from);
static inline void cpu_row_store(
    const struct cpu_kernels *k, const struct ggml_tensor *t, char *row, int64_t i0, int64_t n, const float *from) {
    if (!cpu_is_f32_dense(t) || from != (const float *) (const void *) row + i0) {
        cpu_row_narrow(k, t, row, i0, n, from);
    }
}

// Iterates over the pieces of a tensor that are this task's share: for (struct cpu_pieces it = cpu_pieces(p, t);
// cpu_piece_next(&it);) ...
struct cpu_pieces {
    const struct ggml_tensor *t;
    int64_t n_left;        // pieces after the current one
    struct cpu_row_pos at; // row of the current piece
    int64_t i0, n;         // first element of the current piece, and number of elements
};
static inline int64_t cpu_pieces_per_row(const struct ggml_tensor *t) {
    return (t->ne[0] + CPU_PIECE - 1) / CPU_PIECE;
}
// Iterates over pieces first .. end-1.
static inline struct cpu_pieces cpu_pieces_of(const struct ggml_tensor *t, int64_t first, int64_t end) {
    const int64_t n_per_row = cpu_pieces_per_row(t);
    const int64_t ir = first > 0 ? first / n_per_row : 0;
    // The iterator starts one piece before piece `first`: cpu_piece_next advances it.
    return (struct cpu_pieces){
        .t = t, .n_left = end - first, .at = cpu_row_pos(t, ir), .i0 = (first - ir * n_per_row - 1) * CPU_PIECE};
}
static inline struct cpu_pieces cpu_pieces(const struct cpu_params *p, const struct ggml_tensor *t) {
    int64_t first, end;
    cpu_share(p, cpu_pieces_per_row(t) * t->ne[1] * t->ne[2] * t->ne[3], &first, &end);
    return cpu_pieces_of(t, first, end);
}
static inline bool cpu_piece_next(struct cpu_pieces *it) {
    if (it->n_left <= 0) {
        return false;
    }
    it->n_left--;
    it->i0 += CPU_PIECE;
    if (it->i0 >= it->t->ne[0]) {
        it->i0 = 0;
        cpu_row_step(it->t, &it->at);
    }
    it->n = min_i64(it->t->ne[0] - it->i0, CPU_PIECE);
    return true;
}
