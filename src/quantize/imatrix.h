// SPDX-License-Identifier: MIT
// imatrix.h: importance matrices: how much each column of a weight matters, by the mean square of what it was multiplied with.
#pragma once

#include "berth.h"

struct imatrix;

// Reads what llama.cpp's llama-imatrix writes: GGUF with in_sum2 and counts, or the older .dat. NULL after a message.
struct imatrix *imatrix_open(const char *path);
void imatrix_free(struct imatrix *m);
// The values of a tensor: ne[0] for each of its matrices. NULL if there are none; *is_wrong if there are, but of another size.
const float *imatrix_find(const struct imatrix *m, const struct ggml_tensor *t, bool *is_wrong);
