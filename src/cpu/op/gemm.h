// SPDX-License-Identifier: MIT
// gemm.h: MUL_MAT of many columns through panels (kernels.h:cpu_gemm).
#pragma once

#include "cpu/cpu.h"

// Whether the product goes through panels: the type has a slot, src[1] is dense floats, and its columns are many enough to pay
// for packing. Depends on shapes only, never on tasks.
bool cpu_gemm_takes(const struct cpu_kernels *k, const struct ggml_tensor *op);
size_t cpu_gemm_work_size(const struct ggml_tensor *op, int n_tasks);
void cpu_gemm_run(const struct cpu_params *p, struct ggml_tensor *op);
