// SPDX-License-Identifier: MIT
// vec__sse42.c: vec__avx2.c with vectors of 16 bytes.

#include "cpu/x86/sse.h"

#include "cpu/x86/vec__avx2.c"
