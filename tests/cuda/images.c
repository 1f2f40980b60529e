// SPDX-License-Identifier: MIT
// images.c: defines cuda_images[] for builds without nvcc, which have no compiled kernels. The simulated driver (standin.h)
// accepts any bytes as kernels.

#include "cuda/backend.h"
#include "cuda/device.h"

static const char bytes_of_no_kernel[16];
const struct cuda_image cuda_images[] = {{"none", bytes_of_no_kernel}, {NULL, NULL}};
const char cuda_archs[] = "900";
const int cuda_newest_arch = 90;
const bool cuda_has_90a = true;
