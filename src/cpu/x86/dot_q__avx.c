// SPDX-License-Identifier: MIT
// dot_q__avx.c: dot_q__avx2.c with integers in vectors of 16 bytes.

#include "cpu/x86/sse.h"

#include "cpu/x86/dot_q__avx2.c"
