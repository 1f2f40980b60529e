// SPDX-License-Identifier: MIT
// gemm.h: the ways of MUL_MAT other than plain tiles (matmul.c): many columns through panels (kernels.h:cpu_gemm), and few
// columns each in a form of its own (kernels.h:cpu_gemv). Which way a product goes depends on types and shapes only, never on
// tasks.
#pragma once

#include "cpu/cpu.h"

bool cpu_gemm_takes(const struct cpu_kernels *k, const struct ggml_tensor *op);
size_t cpu_gemm_work_size(const struct ggml_tensor *op, int n_tasks);
void cpu_gemm_run(const struct cpu_params *p, struct ggml_tensor *op);

bool cpu_gemv_takes(const struct cpu_kernels *k, const struct ggml_tensor *op); // asked after the former
size_t cpu_gemv_work_size(const struct ggml_tensor *op);
void cpu_gemv_run(const struct cpu_params *p, struct ggml_tensor *op);
