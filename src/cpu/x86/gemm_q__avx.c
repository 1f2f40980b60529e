// SPDX-License-Identifier: MIT
// gemm_q__avx.c: gemm_q__avx2.c with integers in vectors of 16 bytes, and two columns: such a sum takes two registers.

#include "cpu/x86/sse.h"

#define NR 2
#include "cpu/x86/gemm_q__avx2.c"
