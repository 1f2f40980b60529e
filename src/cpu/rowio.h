// SPDX-License-Identifier: MIT
// rowio.h: converts rows of any type and stride to floats and back, in pieces.
#pragma once

#include "base/min.h"
#include "cpu/cpu.h"

#include <string.h>

// Elements of a piece: a multiple of every block size. Three pieces as floats fit in the L1 cache.
#define CPU_PIECE 1024

static inline bool cpu_is_float(enum ggml_type t) {
    return t == GGML_TYPE_F32 || t == GGML_TYPE_F16 || t == GGML_TYPE_BF16;
}

static inline bool cpu_is_f32_dense(const struct ggml_tensor *t) {
    return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float);
}

// A row of one element is dense with any stride.
static inline bool cpu_rows_are_dense(const struct ggml_tensor *t) {
    return t->nb[0] == ggml_type_size(t->type) || t->ne[0] == 1;
}

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

// Returns elements i0 .. i0+n-1 of a row as floats. If the row is dense f32, the result points into the row, otherwise to buf. A
// quantised row must be dense, and i0 the start of a block.
const float *cpu_row_widen(
    const struct cpu_kernels *k, const struct ggml_tensor *t, const char *row, int64_t i0, int64_t n, float *buf);
static inline const float *cpu_row_load(
    const struct cpu_kernels *k, const struct ggml_tensor *t, const char *row, int64_t i0, int64_t n, float *buf) {
    return cpu_is_f32_dense(t) ? (const float *) (const void *) row + i0 : cpu_row_widen(k, t, row, i0, n, buf);
}
// As cpu_row_load, but element i is element i % ne[0] of the row.
const float *cpu_row_load_repeat(
    const struct cpu_kernels *k, const struct ggml_tensor *t, const char *row, int64_t i0, int64_t n, float *buf);

// Returns the address for the floats from element i0 on. If the row is dense f32, the address is in the row, otherwise buf. The
// driver passes the address to cpu_row_store.
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

// This task's share of pieces: for (struct cpu_pieces it = cpu_pieces(p, t); cpu_piece_next(&it);) ...
struct cpu_pieces {
    const struct ggml_tensor *t;
    int64_t n_left;        // pieces after the current one
    struct cpu_row_pos at; // row of the current piece
    int64_t i0, n;         // first element and number of elements
};
static inline int64_t cpu_pieces_per_row(const struct ggml_tensor *t) {
    return (t->ne[0] + CPU_PIECE - 1) / CPU_PIECE;
}
static inline struct cpu_pieces cpu_pieces_of(const struct ggml_tensor *t, int64_t first, int64_t end) {
    const int64_t n_per_row = cpu_pieces_per_row(t);
    const int64_t ir = first > 0 ? first / n_per_row : 0;
    // cpu_piece_next advances to piece `first`.
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
