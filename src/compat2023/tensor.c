// SPDX-License-Identifier: MIT
// tensor.c: functions on tensors, types and graphs that have other parameters in the 2023 API.

#include "compat2023/compat2023.h"
#include "core/graph.h"
#include "core/op.h"

#include <stdatomic.h>

GGML_API void ggml_print_backtrace(void);

// ---- tensors ----

void berth_2023_ggml_fp16_to_fp32_row(const ggml_fp16_t *x, float *y, int n) {
    ggml_fp16_to_fp32_row(x, y, n);
}

void berth_2023_ggml_fp32_to_fp16_row(const float *x, ggml_fp16_t *y, int n) {
    ggml_fp32_to_fp16_row(x, y, n);
}

void berth_2023_ggml_print_backtrace(void) {
    ggml_print_backtrace();
}

size_t berth_2023_ggml_nbytes_split(const struct ggml_tensor *tensor, int nrows_split) {
    return (size_t) nrows_split * ggml_row_size(tensor->type, tensor->ne[0]);
}

int berth_2023_ggml_blck_size(enum ggml_type type) {
    return (int) ggml_blck_size(type);
}

float berth_2023_ggml_type_sizef(enum ggml_type type) {
    return (float) ggml_type_sizef(type);
}

struct ggml_tensor *berth_2023_ggml_get_first_tensor(struct ggml_context *ctx) {
    return ggml_get_first_tensor(ctx);
}

struct ggml_tensor *berth_2023_ggml_get_next_tensor(struct ggml_context *ctx, struct ggml_tensor *tensor) {
    return ggml_get_next_tensor(ctx, tensor);
}

// ---- traits of types ----

// In the 2023 API, the count k is an int; in the current API, an int64_t. So each type has its own wrappers.
// clang-format off
#define TRAIT_TYPES(X) \
    X(F32) X(F16) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(Q8_1) X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K) X(Q8_K) \
    X(IQ2_XXS) X(IQ2_XS) X(IQ3_XXS)
#define TRAIT_ROW(T) \
    [GGML_TYPE_##T] = {.to_float = to_float_##T, .from_float = from_float_##T, .from_float_reference = from_float_ref_##T, \
        .vec_dot = vec_dot_##T},
// clang-format on

// get_type_traits_cpu of the last call of berth_2023_ggml_type_traits. Every call passes the same function.
static const struct ggml_type_traits_cpu *(*_Atomic cpu_traits)(enum ggml_type type);

#define TRAIT_FUNCTIONS(T) \
    static void to_float_##T(const void *GGML_RESTRICT x, float *GGML_RESTRICT y, int k) { \
        ggml_get_type_traits(GGML_TYPE_##T)->to_float(x, y, k); \
    } \
    static void from_float_ref_##T(const float *GGML_RESTRICT x, void *GGML_RESTRICT y, int k) { \
        ggml_get_type_traits(GGML_TYPE_##T)->from_float_ref(x, y, k); \
    } \
    static void from_float_##T(const float *GGML_RESTRICT x, void *GGML_RESTRICT y, int k) { \
        cpu_traits(GGML_TYPE_##T)->from_float(x, y, k); \
    } \
    static void vec_dot_##T(const int n, float *GGML_RESTRICT s, const void *GGML_RESTRICT x, const void *GGML_RESTRICT y) { \
        cpu_traits(GGML_TYPE_##T)->vec_dot(n, s, 0, x, 0, y, 0, 1); \
    }
TRAIT_TYPES(TRAIT_FUNCTIONS)

ggml_type_traits_t berth_2023_ggml_type_traits(
    enum ggml_type type, const struct ggml_type_traits_cpu *(*get_type_traits_cpu)(enum ggml_type type)) {
    static const ggml_type_traits_t rows[GGML_TYPE_COUNT] = {TRAIT_TYPES(TRAIT_ROW)};
    const struct ggml_type_traits *today = ggml_get_type_traits(type);
    const struct ggml_type_traits_cpu *cpu = get_type_traits_cpu(type);
    if (today == NULL || cpu == NULL || type >= GGML_TYPE_COUNT) {
        berth_fail(GGML_STATUS_FAILED, "ggml_internal_get_type_traits: there is no type %d", (int) type);
        return (ggml_type_traits_t){0};
    }
    cpu_traits = get_type_traits_cpu;
    ggml_type_traits_t row = rows[type];
    row.type_name = today->type_name;
    row.blck_size = (int) today->blck_size;
    row.type_size = today->type_size;
    row.is_quantized = today->is_quantized;
    row.vec_dot_type = cpu->vec_dot_type;
    if (today->to_float == NULL) {
        row.to_float = NULL;
    }
    if (today->from_float_ref == NULL) {
        row.from_float_reference = NULL;
    }
    if (cpu->from_float == NULL) {
        row.from_float = NULL;
    }
    if (cpu->vec_dot == NULL) {
        row.vec_dot = NULL;
    }
    return row;
}

// ---- graphs ----

struct ggml_cgraph *berth_2023_ggml_graph_dup(struct ggml_context *ctx, struct ggml_cgraph *cgraph) {
    return ggml_graph_dup(ctx, cgraph, false);
}

struct ggml_cgraph *berth_2023_ggml_build_forward_ctx(struct ggml_context *ctx, struct ggml_tensor *tensor) {
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    if (graph != NULL) {
        ggml_build_forward_expand(graph, tensor);
    }
    return graph;
}

struct ggml_cgraph *berth_2023_ggml_graph_view_in(struct ggml_context *ctx, struct ggml_cgraph *cgraph, int i0, int i1) {
    struct ggml_cgraph *view = ggml_new_buffer(ctx, sizeof *view);
    if (view != NULL) {
        *view = ggml_graph_view(cgraph, i0, i1);
    }
    return view;
}

struct ggml_tensor *berth_2023_ggml_graph_get_tensor(struct ggml_cgraph *cgraph, const char *name) {
    return ggml_graph_get_tensor(cgraph, name);
}
