// SPDX-License-Identifier: MIT
// optable.c: the op rows and the fusions of the CUDA backend.

#include "cuda/cuda.h"

#include <pthread.h>

// A new op/<name>.c of this folder or of src/gpu needs an entry here.
extern const struct gpu_op_entry cuda_ops_matmul[], cuda_ops_mmid[], cuda_ops_attention[];
static const struct gpu_op_entry *const families[] = {gpu_ops_views, gpu_ops_eltwise, gpu_ops_norm, gpu_ops_rope, gpu_ops_rows,
    gpu_ops_rearrange, gpu_ops_reduce, gpu_ops_conv, gpu_ops_recur, gpu_ops_ssm, gpu_ops_train, cuda_ops_matmul, cuda_ops_mmid,
    cuda_ops_attention, NULL};

static const struct gpu_op_row *rows[GGML_OP_COUNT];

static void rows_fill(void) {
    gpu_rows_gather(rows, families);
}

const struct gpu_op_row *const *cuda_op_rows(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, rows_fill);
    return rows;
}

// ---- fusions ----

// Longer fusions come first. A new struct gpu_fusion needs an entry here.
extern const struct gpu_fusion cuda_fusion_mv, cuda_fusion_experts;
const struct gpu_fusion *const cuda_fusions[] = {&cuda_fusion_mv, &gpu_fusion_rope_qkv, &gpu_fusion_norm, &gpu_fusion_rope_set,
    &gpu_fusion_conv, &gpu_fusion_scan, &gpu_fusion_gate, &gpu_fusion_router, &cuda_fusion_experts, &gpu_fusion_expert_sum, NULL};
