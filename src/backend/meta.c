// SPDX-License-Identifier: MIT
// meta.c: one device made of several, for tensor parallelism. Not built in yet: the functions link, name the split axes, and
// answer that nothing is such a device.

#include "backend/backend.h"

const char *ggml_backend_meta_split_axis_name(enum ggml_backend_meta_split_axis split_axis) {
    switch (split_axis) {
        case GGML_BACKEND_SPLIT_AXIS_0: return "0";
        case GGML_BACKEND_SPLIT_AXIS_1: return "1";
        case GGML_BACKEND_SPLIT_AXIS_2: return "2";
        case GGML_BACKEND_SPLIT_AXIS_3: return "3";
        case GGML_BACKEND_SPLIT_AXIS_MIRRORED: return "MIRRORED";
        case GGML_BACKEND_SPLIT_AXIS_PARTIAL: return "PARTIAL";
        case GGML_BACKEND_SPLIT_AXIS_NONE: return "NONE";
        case GGML_BACKEND_SPLIT_AXIS_UNKNOWN: return "UNKNOWN";
    }
    berth_set_error("ggml_backend_meta_split_axis_name: %d is no split axis", (int) split_axis);
    return "UNKNOWN";
}

static void *not_built_in(const char *func) {
    berth_fail(GGML_STATUS_FAILED, "%s: a device made of several is not built in yet", func);
    return NULL;
}

ggml_backend_dev_t ggml_backend_meta_device(
    ggml_backend_dev_t *devs, size_t n_devs, ggml_backend_meta_get_split_state_t get_split_state, void *get_split_state_ud) {
    (void) devs;
    (void) n_devs;
    (void) get_split_state;
    (void) get_split_state_ud;
    return not_built_in(__func__);
}

void ggml_backend_meta_buffer_set_usage(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage) {
    (void) buffer;
    (void) usage;
    not_built_in(__func__);
}

bool ggml_backend_is_meta(ggml_backend_t backend) {
    (void) backend;
    return false;
}

bool ggml_backend_buffer_is_meta(ggml_backend_buffer_t buf) {
    (void) buf;
    return false;
}

bool ggml_backend_buft_is_meta(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return false;
}

size_t ggml_backend_meta_n_backends(ggml_backend_t meta_backend) {
    (void) meta_backend;
    not_built_in(__func__);
    return 0;
}

ggml_backend_t ggml_backend_meta_simple_backend(ggml_backend_t meta_backend, size_t index) {
    (void) meta_backend;
    (void) index;
    return not_built_in(__func__);
}

struct ggml_backend_buffer *ggml_backend_meta_alloc_ctx_tensors_from_buft(
    struct ggml_context *ctx, ggml_backend_buffer_type_t buft) {
    (void) ctx;
    (void) buft;
    return not_built_in(__func__);
}
