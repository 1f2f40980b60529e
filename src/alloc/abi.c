// SPDX-License-Identifier: MIT
// abi.c: the layouts of the tensor allocator that others compiled against, checked when Berth is built. No code.

#include "core/abi.h"
#include "ggml-alloc.h"

// clang-format off

ABI_SIZE(ggml_tallocr, 32);
ABI_FIELD(ggml_tallocr, buffer, 0, 8);
ABI_FIELD(ggml_tallocr, base, 8, 8);
ABI_FIELD(ggml_tallocr, alignment, 16, 8);
ABI_FIELD(ggml_tallocr, offset, 24, 8);

// clang-format on
