// SPDX-License-Identifier: MIT
// grad_api.h: a table of the functions that build gradient cases, from Berth or from the reference.
#pragma once

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-opt.h"
#include "ggml.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

// clang-format off
#define GRAD_API(X) \
    X(ggml_init) X(ggml_free) X(ggml_new_tensor) X(ggml_set_param) X(ggml_set_loss) X(ggml_set_name) X(ggml_new_graph_custom) \
    X(ggml_build_forward_expand) X(ggml_build_backward_expand) X(ggml_graph_get_grad) X(ggml_graph_get_grad_acc) \
    X(ggml_graph_reset) X(ggml_graph_n_nodes) X(ggml_graph_node) \
    X(ggml_dup) X(ggml_add) X(ggml_add1) X(ggml_add_id) X(ggml_acc) X(ggml_sub) X(ggml_mul) X(ggml_div) X(ggml_sqr) X(ggml_sqrt) \
    X(ggml_log) X(ggml_sin) X(ggml_cos) X(ggml_scale_bias) X(ggml_clamp) X(ggml_leaky_relu) X(ggml_tri) X(ggml_unary) \
    X(ggml_xielu) X(ggml_glu) X(ggml_glu_split) X(ggml_swiglu_oai) X(ggml_swiglu_clamp) \
    X(ggml_cpy) X(ggml_cast) X(ggml_cont) X(ggml_cont_2d) X(ggml_reshape_2d) X(ggml_reshape_3d) X(ggml_reshape_4d) X(ggml_view_2d) X(ggml_view_3d) \
    X(ggml_permute) X(ggml_transpose) X(ggml_set) \
    X(ggml_sum) X(ggml_sum_rows) X(ggml_mean) X(ggml_cumsum) X(ggml_repeat) X(ggml_repeat_back) X(ggml_concat) \
    X(ggml_mul_mat) X(ggml_mul_mat_id) X(ggml_out_prod) \
    X(ggml_get_rows) X(ggml_get_rows_back) X(ggml_set_rows) X(ggml_diag) X(ggml_diag_mask_inf) X(ggml_diag_mask_zero) \
    X(ggml_soft_max_ext) X(ggml_soft_max_add_sinks) X(ggml_roll) X(ggml_pad_ext) X(ggml_upscale) \
    X(ggml_norm) X(ggml_rms_norm) X(ggml_group_norm) X(ggml_l2_norm) \
    X(ggml_rope_ext) X(ggml_rope_multi) X(ggml_rope_set_offset) X(ggml_rope_ext_back) \
    X(ggml_flash_attn_ext) X(ggml_flash_attn_ext_add_sinks) \
    X(ggml_im2col) X(ggml_conv_2d) X(ggml_conv_2d_direct) X(ggml_conv_2d_dw_direct) X(ggml_conv_transpose_1d) X(ggml_conv_transpose_2d_p0) X(ggml_pool_1d) X(ggml_pool_2d) \
    X(ggml_cross_entropy_loss)

// Additional functions for training.
#define TRAIN_API(X) \
    X(ggml_backend_alloc_ctx_tensors) X(ggml_backend_tensor_set) X(ggml_backend_tensor_get) X(ggml_backend_free) \
    X(ggml_backend_get_default_buffer_type) X(ggml_backend_sched_new) X(ggml_backend_sched_free) X(ggml_backend_sched_get_buffer_size) X(ggml_backend_buffer_free) \
    X(ggml_opt_dataset_init) X(ggml_opt_dataset_free) X(ggml_opt_dataset_data) X(ggml_opt_dataset_labels) \
    X(ggml_opt_dataset_shuffle) X(ggml_opt_dataset_get_batch) X(ggml_opt_dataset_get_batch_host) X(ggml_opt_default_params) \
    X(ggml_opt_init) X(ggml_opt_free) X(ggml_opt_alloc) X(ggml_opt_eval) X(ggml_opt_inputs) X(ggml_opt_labels) X(ggml_opt_loss) \
    X(ggml_opt_ncorrect) X(ggml_opt_result_init) X(ggml_opt_result_free) X(ggml_opt_result_reset) X(ggml_opt_result_loss) \
    X(ggml_opt_result_accuracy) X(ggml_opt_result_ndata)
#define CPU_API(X) X(ggml_backend_cpu_init) X(ggml_backend_cpu_set_n_threads) X(ggml_graph_compute_with_ctx)
// clang-format on

#define GRAD_API_FIELD(name) __typeof__(&name) name;
struct grad_api {
    GRAD_API(GRAD_API_FIELD)
    TRAIN_API(GRAD_API_FIELD)
    CPU_API(GRAD_API_FIELD)
};
#undef GRAD_API_FIELD

static inline struct grad_api grad_api_own(void) {
#define GRAD_API_OWN(name) .name = name,
    return (struct grad_api){GRAD_API(GRAD_API_OWN) TRAIN_API(GRAD_API_OWN) CPU_API(GRAD_API_OWN)};
#undef GRAD_API_OWN
}

// Returns false if a function is missing.
static inline bool grad_api_of(struct grad_api *api, void *base, void *cpu) {
    bool all = true;
    void *found;
#define GRAD_API_BASE(name) \
    found = dlsym(base, #name); \
    memcpy(&api->name, &found, sizeof found); \
    all = all && found != NULL;
#define GRAD_API_CPU(name) \
    found = dlsym(cpu, #name); \
    memcpy(&api->name, &found, sizeof found); \
    all = all && found != NULL;
    GRAD_API(GRAD_API_BASE)
    TRAIN_API(GRAD_API_BASE)
    CPU_API(GRAD_API_CPU)
#undef GRAD_API_BASE
#undef GRAD_API_CPU
    return all;
}
