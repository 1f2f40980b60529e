// SPDX-License-Identifier: MIT
// widen__avx.c: widen__avx2.c with integers in vectors of 16 bytes.

#include "cpu/x86/sse.h"

#include "cpu/x86/widen__avx2.c"
