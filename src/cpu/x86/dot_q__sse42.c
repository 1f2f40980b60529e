// SPDX-License-Identifier: MIT
// dot_q__sse42.c: dot_q__avx2.c with vectors of 16 bytes.

#include "cpu/x86/sse.h"

#include "cpu/x86/dot_q__avx2.c"
