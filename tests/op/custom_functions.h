// SPDX-License-Identifier: MIT
// custom_functions.h: the functions that the cases of custom ops call. op-suite and op-oracle contain them at different
// addresses.
#pragma once

#include "ggml.h"

extern const float op_custom_factor; // the user data of all functions

void op_custom_map1(struct ggml_tensor *dst, const struct ggml_tensor *a, int ith, int nth, void *userdata);
void op_custom_map2(
    struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b, int ith, int nth, void *userdata);
void op_custom_map3(struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b,
    const struct ggml_tensor *c, int ith, int nth, void *userdata);
void op_custom_any(struct ggml_tensor *dst, int ith, int nth, void *userdata);

// If t is a custom op of the other program, sets its function to the address in this program.
void op_custom_bind(struct ggml_tensor *t);
