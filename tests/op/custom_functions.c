// SPDX-License-Identifier: MIT
// custom_functions.c: each function writes its task's share of the result. op-oracle does not link ggml, so the functions do not
// call ggml.

#include "custom_functions.h"

#include "core/custom.h"

#include <stddef.h>
#include <string.h>

const float op_custom_factor = 1.5f;

static int64_t count(const struct ggml_tensor *t) {
    return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
}

// End of the elements that task ith of nth writes.
static int64_t share_end(int64_t n, int ith, int nth) {
    return n * (ith + 1) / nth;
}

static float at(const struct ggml_tensor *t, int64_t i) {
    return t != NULL ? ((const float *) t->data)[i % count(t)] : 1.0f;
}

static void sum(struct ggml_tensor *dst, const struct ggml_tensor *const *src, int n, int ith, int nth, const float *scale) {
    for (int64_t i = share_end(count(dst), ith - 1, nth); i < share_end(count(dst), ith, nth); i++) {
        float v = 0.0f;
        for (int j = 0; j < n; j++) {
            v = v * 2.0f + at(src[j], i);
        }
        ((float *) dst->data)[i] = v * *scale;
    }
}

void op_custom_map1(struct ggml_tensor *dst, const struct ggml_tensor *a, int ith, int nth, void *userdata) {
    sum(dst, (const struct ggml_tensor *const[]){a}, 1, ith, nth, userdata);
}

void op_custom_map2(
    struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b, int ith, int nth, void *userdata) {
    sum(dst, (const struct ggml_tensor *const[]){a, b}, 2, ith, nth, userdata);
}

void op_custom_map3(struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b,
    const struct ggml_tensor *c, int ith, int nth, void *userdata) {
    sum(dst, (const struct ggml_tensor *const[]){a, b, c}, 3, ith, nth, userdata);
}

void op_custom_any(struct ggml_tensor *dst, int ith, int nth, void *userdata) {
    const struct ggml_tensor *src[GGML_MAX_SRC];
    int n = 0;
    for (; n < GGML_MAX_SRC && dst->src[n] != NULL; n++) {
        src[n] = dst->src[n];
    }
    sum(dst, src, n, ith, nth, userdata);
}

#define BIND(n) \
    { \
        struct ggml_map_custom##n##_op_params params; \
        memcpy(&params, t->op_params, sizeof params); \
        params.fun = op_custom_map##n; \
        params.userdata = userdata; \
        memcpy(t->op_params, &params, sizeof params); \
        break; \
    }

void op_custom_bind(struct ggml_tensor *t) {
    void *userdata = (void *) (uintptr_t) &op_custom_factor;
    switch (t->op) {
        case GGML_OP_MAP_CUSTOM1: BIND(1)
        case GGML_OP_MAP_CUSTOM2: BIND(2)
        case GGML_OP_MAP_CUSTOM3: BIND(3)
        case GGML_OP_CUSTOM: {
            struct ggml_custom_op_params params;
            memcpy(&params, t->op_params, sizeof params);
            params.fun = op_custom_any;
            params.userdata = userdata;
            memcpy(t->op_params, &params, sizeof params);
            break;
        }
        default: break;
    }
}
