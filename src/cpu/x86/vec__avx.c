// SPDX-License-Identifier: MIT
// vec__avx.c: vec__avx2.c with integers in vectors of 16 bytes.

#include "cpu/x86/sse.h"

#include "cpu/x86/vec__avx2.c"
