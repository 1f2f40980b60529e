// SPDX-License-Identifier: MIT
// abi.h: checks of the layouts that programs and other libraries compiled against. Each folder has those of its headers in a file
// abi.c, which holds no code.
#pragma once

#include "ggml.h"

#include <stddef.h>

#define ABI_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type)
#define ABI_FIELD(type, field, off, size) \
    _Static_assert(offsetof(struct type, field) == (off) && sizeof(((struct type *) 0)->field) == (size), #type "." #field)
