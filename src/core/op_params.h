// SPDX-License-Identifier: MIT
// op_params.h: readers of op_params, an array of 32-bit values that are integers or floats.
#pragma once

#include "ggml.h"

#include <string.h>

static inline int32_t param_i32(const struct ggml_tensor *t, int i) {
    return t->op_params[i];
}
static inline float param_f32(const struct ggml_tensor *t, int i) {
    float f;
    memcpy(&f, &t->op_params[i], sizeof f);
    return f;
}
