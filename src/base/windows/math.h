// SPDX-License-Identifier: MIT
// math.h: the roundf of mingw-w64 adds 0.5, so that it rounds the largest float below 0.5 to 1.
#pragma once

#include_next <math.h>

#define roundf posix_roundf

static inline float posix_roundf(float x) {
    const float cut = truncf(x);
    return fabsf(x - cut) >= 0.5f ? cut + copysignf(1, x) : cut;
}
