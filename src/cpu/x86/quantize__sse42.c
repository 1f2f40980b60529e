// SPDX-License-Identifier: MIT
// quantize__sse42.c: quantize__avx2.c with vectors of 16 bytes.

#include "cpu/x86/sse.h"

#include "cpu/x86/quantize__avx2.c"
