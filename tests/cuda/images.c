// SPDX-License-Identifier: MIT
// images.c: replaces the kernel images of a build with nvcc. There are no kernels; the simulated driver (standin.h) accepts any
// bytes.

#include "cuda/backend.h"
#include "cuda/device.h"

static const char bytes_of_no_kernel[16];
const struct cuda_image cuda_images[] = {{"none", bytes_of_no_kernel}, {NULL, NULL}};
const char cuda_archs[] = "900";
