/* SPDX-License-Identifier: MIT
 * conv.h: arguments of kernel/conv.cu. */
#pragma once

#include "cuda/kernel/args.h"

/* How windows walk over data, in up to three directions; index 0: x. */
struct cuda_columns {
    int64_t k[3], n[3], out[3]; /* extents of a window, of the data, windows in each direction */
    int64_t stride[3], pad[3], dil[3];
    int64_t n_channels, n_batch;
    int64_t nb[3], nb_channel, nb_batch; /* bytes of the data */
};

struct cuda_conv_args {
    struct cuda_columns c;
    const char *data, *kernel;
    char *dst;
    int64_t n_out;                   /* channels of the result */
    int32_t data_type, type, k_type; /* types of data, result and kernel */
    int32_t pad;
};
