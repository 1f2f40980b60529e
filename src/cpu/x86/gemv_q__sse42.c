// SPDX-License-Identifier: MIT
// gemv_q__sse42.c: gemv_q__avx2.c with vectors of 16 bytes.

#include "cpu/x86/sse.h"

#include "cpu/x86/gemv_q__avx2.c"
