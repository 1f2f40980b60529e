// SPDX-License-Identifier: MIT
// cells.h: copies elements of rows without conversion, for any element size and any strides. A cell is an element or a block.
#pragma once

#include "cpu/cpu.h"

#include <string.h>

static inline int64_t cells_of(const struct ggml_tensor *t, int64_t n) {
    return n / ggml_blck_size(t->type);
}
static inline bool cells_dense(const struct ggml_tensor *t) {
    return t->nb[0] == ggml_type_size(t->type);
}
// Rows of a block format must be dense.
static inline bool cells_movable(const struct ggml_tensor *t) {
    return cells_dense(t) || ggml_blck_size(t->type) == 1;
}

#define CELLS_LOOP(bytes) \
    for (int64_t i = 0; i < n; i++) { \
        memcpy(to + (size_t) i * to_step, from + (size_t) i * from_step, bytes); \
    }

// Steps are in bytes. Source and destination do not overlap.
static inline void cells_copy(char *to, size_t to_step, const char *from, size_t from_step, int64_t n, size_t size) {
    if (to_step == size && from_step == size) {
        memcpy(to, from, (size_t) n * size);
        return;
    }
    switch (size) { // constant sizes compile to plain loads and stores
        case 1: CELLS_LOOP(1) break;
        case 2: CELLS_LOOP(2) break;
        case 4: CELLS_LOOP(4) break;
        case 8: CELLS_LOOP(8) break;
        default: CELLS_LOOP(size) break;
    }
}
#undef CELLS_LOOP

static inline void cells_zero(char *to, size_t to_step, int64_t n, size_t size) {
    if (to_step == size) {
        memset(to, 0, (size_t) n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        memset(to + (size_t) i * to_step, 0, size);
    }
}

// Both rows have the same type.
static inline void cells_copy_row(const struct ggml_tensor *t, char *to, const struct ggml_tensor *f, const char *from) {
    cells_copy(to, t->nb[0], from, f->nb[0], cells_of(f, f->ne[0]), ggml_type_size(f->type));
}
