// SPDX-License-Identifier: MIT
// custom_functions.h: the functions of the custom ops' cases. They are in both programs, at different addresses.
#pragma once

#include "ggml.h"

extern const float op_custom_factor; // their user data

void op_custom_map1(struct ggml_tensor *dst, const struct ggml_tensor *a, int ith, int nth, void *userdata);
void op_custom_map2(
    struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b, int ith, int nth, void *userdata);
void op_custom_map3(struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b,
    const struct ggml_tensor *c, int ith, int nth, void *userdata);
void op_custom_any(struct ggml_tensor *dst, int ith, int nth, void *userdata);

// A custom op made in the other program gets this program's function. Nothing happens to any other op.
void op_custom_bind(struct ggml_tensor *t);
