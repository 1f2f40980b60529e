// SPDX-License-Identifier: MIT
// optable.c: the op rows and the fusions of the Vulkan backend.

#include "vulkan/device.h"

#include <pthread.h>

// A new op/<name>.c of this folder, or a family of src/gpu whose kernels exist, needs an entry here.
extern const struct gpu_op_entry vulkan_ops_matmul[], vulkan_ops_attention[];
static const struct gpu_op_entry *const families[] = {gpu_ops_views, gpu_ops_eltwise, gpu_ops_norm, gpu_ops_rope, gpu_ops_rows,
    gpu_ops_rearrange, gpu_ops_reduce, gpu_ops_conv, gpu_ops_train, vulkan_ops_matmul, vulkan_ops_attention, NULL};

static const struct gpu_op_row *rows[GGML_OP_COUNT];

static void rows_fill(void) {
    gpu_rows_gather(rows, families);
}

const struct gpu_op_row *const *vulkan_op_rows(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, rows_fill);
    return rows;
}

// Longer fusions come first. A new struct gpu_fusion needs an entry here.
const struct gpu_fusion *const vulkan_fusions[] = {&gpu_fusion_rope_qkv, &gpu_fusion_norm, &gpu_fusion_rope_set, NULL};
