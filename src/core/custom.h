// SPDX-License-Identifier: MIT
// custom.h: the op_params of custom ops. Backends read these structs, so their layout is part of the ABI.
#pragma once

#include "ggml.h"

struct ggml_map_custom1_op_params {
    ggml_custom1_op_t fun;
    int n_tasks;
    void *userdata;
};

struct ggml_map_custom2_op_params {
    ggml_custom2_op_t fun;
    int n_tasks;
    void *userdata;
};

struct ggml_map_custom3_op_params {
    ggml_custom3_op_t fun;
    int n_tasks;
    void *userdata;
};

struct ggml_custom_op_params {
    ggml_custom_op_t fun;
    int n_tasks;
    void *userdata;
};
