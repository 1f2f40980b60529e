// SPDX-License-Identifier: MIT
// comm.h: arguments of the kernel comm_sum (kernel/eltwise.cu).
#pragma once

#include <stdint.h>

#define CUDA_COMM_MAX 16 // largest number of devices

// Adds the tensors of all devices, element by element (comm.c).
struct cuda_comm_args {
    char *to;                        // receives the sum
    const char *from[CUDA_COMM_MAX]; // one tensor per device; NULL: the tensor counts as zeros
    int64_t n;                       // elements of each tensor
    int32_t n_from;                  // number of devices
    int32_t type, size;              // enum ggml_type; bytes per element
    int32_t pad;
};
