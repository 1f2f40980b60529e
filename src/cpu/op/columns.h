// SPDX-License-Identifier: MIT
// columns.h: gathers the windows of a convolution as columns. Missing dimensions have extent 1. A window is the data that one
// element of the result reads, in all channels.
#pragma once

#include "base/base.h"
#include "cpu/cpu.h"

// Index 0: x, 1: y, 2: z.
struct columns {
    int64_t k[3];   // extents of the window
    int64_t n[3];   // extents of the data
    int64_t out[3]; // number of windows per dimension
    int64_t stride[3], pad[3], dil[3];
    int64_t n_channels, n_batch;
    size_t nb[3], nb_channel, nb_batch; // byte strides of the data
    size_t size;                        // bytes of an element
};

// False if columns_length or columns_count overflows.
static inline bool columns_fit(const struct columns *c) {
    int64_t length, count;
    return berth_mul_i64_ok(c->k[0], c->k[1], &length) && berth_mul_i64_ok(length, c->k[2], &length) &&
           berth_mul_i64_ok(length, c->n_channels, &length) && berth_mul_i64_ok(c->out[0], c->out[1], &count) &&
           berth_mul_i64_ok(count, c->out[2], &count);
}
static inline int64_t columns_length(const struct columns *c) {
    return c->k[0] * c->k[1] * c->k[2] * c->n_channels;
}
// Columns (windows) per batch element.
static inline int64_t columns_count(const struct columns *c) {
    return c->out[0] * c->out[1] * c->out[2];
}

// Copies window `at` of the batch element at `data`: elements in order [kx, ky, kz, channel], zeros outside the data.
void cpu_column_gather(const struct columns *c, const char *data, const int64_t at[3], char *to);
