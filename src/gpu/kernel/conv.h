// SPDX-License-Identifier: MIT
// conv.h: arguments of kernel/conv.cu.
#pragma once

#include "gpu/kernel/args.h"

// How windows move over data in up to three dimensions; index 0 is x.
struct gpu_columns {
    int64_t k[3];       // extents of a window
    int64_t n[3];       // extents of the data
    int64_t windows[3]; // number of windows along each dimension
    int64_t stride[3], pad[3], dil[3];
    int64_t n_channels, n_batch;
    int64_t nb[3], nb_channel, nb_batch; // byte strides of the data
};

struct gpu_conv_args {
    struct gpu_columns c;
    const char *data, *kernel;
    char *dst;
    int64_t n_out;                   // channels of the result
    int32_t data_type, type, k_type; // types of data, result and kernel
    int32_t pad;
};
