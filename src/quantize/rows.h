// SPDX-License-Identifier: MIT
// rows.h: a tensor in another type, its rows shared out among threads.
#pragma once

#include "ggml.h"

#include <stdbool.h>

// Fills out, ggml_row_size(type) bytes a row, and adds the squared errors to *squares: the same bytes and the same sum with any
// number of threads. weights: NULL, or ne[0] for each matrix of the tensor. False: out of memory, or the type cannot be made.
// Memory: some MiB a thread, whatever the tensor. tell, if not NULL, hears on the caller's thread which part is done.
bool cli_quantize_rows(const struct ggml_tensor *t, enum ggml_type type, const float *weights, int n_threads, void *out,
    double *squares, void (*tell)(double part, void *user), void *user);
