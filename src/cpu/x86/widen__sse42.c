// SPDX-License-Identifier: MIT
// widen__sse42.c: widen__avx2.c with vectors of 16 bytes.

#include "cpu/x86/sse.h"

#include "cpu/x86/widen__avx2.c"
