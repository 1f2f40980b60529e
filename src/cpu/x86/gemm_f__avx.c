// SPDX-License-Identifier: MIT
// gemm_f__avx.c: gemm_f__avx2.c with integers in vectors of 16 bytes.

#include "cpu/x86/sse.h"

#include "cpu/x86/gemm_f__avx2.c"
