/* SPDX-License-Identifier: MIT
 * comm.h: arguments of kernel/comm.cu. */
#pragma once

#include "cuda/kernel/args.h"

#define CUDA_COMM_MAX 16 /* devices */

struct cuda_comm_args {
    char *to;
    const char *from[CUDA_COMM_MAX]; /* one a device; NULL: zeros */
    int64_t n;                       /* elements */
    int32_t n_from;
    int32_t type, size;
    int32_t pad;
};
