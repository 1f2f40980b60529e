// SPDX-License-Identifier: MIT
// dot_f__avx.c: dot_f__avx2.c with integers in vectors of 16 bytes.

#include "cpu/x86/sse.h"

#include "cpu/x86/dot_f__avx2.c"
