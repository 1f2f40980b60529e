// SPDX-License-Identifier: MIT
// tensor_map.h: the description of a tensor for the copy engine.
#pragma once

#include <stdint.h>

// Describes a tensor for copies of boxes by the copy engine (TMA, sm_90). The driver encodes it.
struct cuda_tensor_map {
    uint64_t opaque[16];
}
#if defined(__cplusplus) || defined(__GNUC__)
__attribute__((aligned(64)))
#endif
;
