// SPDX-License-Identifier: MIT
// abi.c: the layouts of model files that others compiled against, checked when Berth is built. No code.

#include "core/abi.h"
#include "gguf.h"

// clang-format off

ABI_SIZE(gguf_init_params, 16);
ABI_FIELD(gguf_init_params, no_alloc, 0, 1);
ABI_FIELD(gguf_init_params, ctx, 8, 8);

_Static_assert(GGUF_TYPE_UINT8 == 0, "GGUF_TYPE_UINT8");
_Static_assert(GGUF_TYPE_INT8 == 1, "GGUF_TYPE_INT8");
_Static_assert(GGUF_TYPE_UINT16 == 2, "GGUF_TYPE_UINT16");
_Static_assert(GGUF_TYPE_INT16 == 3, "GGUF_TYPE_INT16");
_Static_assert(GGUF_TYPE_UINT32 == 4, "GGUF_TYPE_UINT32");
_Static_assert(GGUF_TYPE_INT32 == 5, "GGUF_TYPE_INT32");
_Static_assert(GGUF_TYPE_FLOAT32 == 6, "GGUF_TYPE_FLOAT32");
_Static_assert(GGUF_TYPE_BOOL == 7, "GGUF_TYPE_BOOL");
_Static_assert(GGUF_TYPE_STRING == 8, "GGUF_TYPE_STRING");
_Static_assert(GGUF_TYPE_ARRAY == 9, "GGUF_TYPE_ARRAY");
_Static_assert(GGUF_TYPE_UINT64 == 10, "GGUF_TYPE_UINT64");
_Static_assert(GGUF_TYPE_INT64 == 11, "GGUF_TYPE_INT64");
_Static_assert(GGUF_TYPE_FLOAT64 == 12, "GGUF_TYPE_FLOAT64");
_Static_assert(GGUF_TYPE_COUNT == 13, "GGUF_TYPE_COUNT");

// clang-format on
