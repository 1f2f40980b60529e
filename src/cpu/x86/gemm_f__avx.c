// SPDX-License-Identifier: MIT
// gemm_f__avx.c: gemm_f__avx2.c with integers in vectors of 16 bytes.

#include "cpu/x86/sse.h"

#define MIN_COLS_F16 4 // halves are widened one by one: once for all columns

#include "cpu/x86/gemm_f__avx2.c"
