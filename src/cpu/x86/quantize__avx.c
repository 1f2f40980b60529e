// SPDX-License-Identifier: MIT
// quantize__avx.c: quantize__avx2.c with integers in vectors of 16 bytes.

#include "cpu/x86/sse.h"

#include "cpu/x86/quantize__avx2.c"
