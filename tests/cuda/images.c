// SPDX-License-Identifier: MIT
// images.c: what a build with nvcc has for kernels: here none, the stand-in (standin.h) takes any bytes for some.

#include "cuda/backend.h"
#include "cuda/device.h"

static const char bytes_of_no_kernel[16];
const struct cuda_image cuda_images[] = {{"none", bytes_of_no_kernel}, {NULL, NULL}};
const char cuda_archs[] = "900";
