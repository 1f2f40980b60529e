// SPDX-License-Identifier: MIT
// ops_custom.c: constructors of ops that call a function of the caller. op_params hold the structs of custom.h.
// NULL functions are refused, because computing the graph would call address 0.

#include "core/custom.h"
#include "core/op.h"
#include "core/sample.h"

// The four structs of custom.h differ only in the type of the function. This struct has their layout.
struct custom {
    void (*fun)(void);
    int n_tasks;
    void *userdata;
};
_Static_assert(sizeof(struct ggml_map_custom1_op_params) == sizeof(struct custom) &&
                   sizeof(struct ggml_map_custom2_op_params) == sizeof(struct custom) &&
                   sizeof(struct ggml_map_custom3_op_params) == sizeof(struct custom) &&
                   sizeof(struct ggml_custom_op_params) == sizeof(struct custom),
    "custom ops share one layout of op_params");

// Padding bytes are 0. Poison is unchanged.
static void custom_put(struct ggml_tensor *result, const struct custom *custom) {
    if (result != NULL && !berth_poisoned(result)) {
        struct custom params;
        memset(&params, 0, sizeof params);
        params.fun = custom->fun;
        params.n_tasks = custom->n_tasks;
        params.userdata = custom->userdata;
        memcpy(result->op_params, &params, sizeof params);
    }
}

// srcs[0] must be set. srcs[1] and srcs[2] may be NULL.
static struct ggml_tensor *map_custom(struct ggml_context *ctx, const char *func, enum ggml_op op,
    struct ggml_tensor *const *srcs, const struct custom *custom, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, srcs[0]);
    BERTH_SOURCE_OPT_AS(ctx, func, srcs[1]);
    BERTH_SOURCE_OPT_AS(ctx, func, srcs[2]);
    BERTH_REQUIRE_AS(ctx, func, custom->fun != NULL, "the function is NULL");
    BERTH_REQUIRE_AS(ctx, func, custom->n_tasks == GGML_N_TASKS_MAX || custom->n_tasks > 0,
        "n_tasks is %d, it must be positive or GGML_N_TASKS_MAX", custom->n_tasks);
    struct ggml_tensor *result = berth_like_or_view(ctx, func, srcs[0], inplace);
    custom_put(result, custom);
    return berth_op_set(result, op, NULL, 0, srcs, 3);
}

#define CUSTOM (&(struct custom){(void (*)(void)) fun, n_tasks, userdata})
#define THREE(...) ((struct ggml_tensor *[3]){__VA_ARGS__})

struct ggml_tensor *ggml_map_custom1(
    struct ggml_context *ctx, struct ggml_tensor *a, ggml_custom1_op_t fun, int n_tasks, void *userdata) {
    return map_custom(ctx, __func__, GGML_OP_MAP_CUSTOM1, THREE(a), CUSTOM, false);
}

struct ggml_tensor *ggml_map_custom1_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, ggml_custom1_op_t fun, int n_tasks, void *userdata) {
    return map_custom(ctx, __func__, GGML_OP_MAP_CUSTOM1, THREE(a), CUSTOM, true);
}

struct ggml_tensor *ggml_map_custom2(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, ggml_custom2_op_t fun, int n_tasks, void *userdata) {
    return map_custom(ctx, __func__, GGML_OP_MAP_CUSTOM2, THREE(a, b), CUSTOM, false);
}

struct ggml_tensor *ggml_map_custom2_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, ggml_custom2_op_t fun, int n_tasks, void *userdata) {
    return map_custom(ctx, __func__, GGML_OP_MAP_CUSTOM2, THREE(a, b), CUSTOM, true);
}

struct ggml_tensor *ggml_map_custom3(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, ggml_custom3_op_t fun, int n_tasks, void *userdata) {
    return map_custom(ctx, __func__, GGML_OP_MAP_CUSTOM3, THREE(a, b, c), CUSTOM, false);
}

struct ggml_tensor *ggml_map_custom3_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, ggml_custom3_op_t fun, int n_tasks, void *userdata) {
    return map_custom(ctx, __func__, GGML_OP_MAP_CUSTOM3, THREE(a, b, c), CUSTOM, true);
}

// ---- any number of sources ----

// a may be NULL.
static struct ggml_tensor *custom_set(
    struct ggml_tensor *result, struct ggml_tensor *a, struct ggml_tensor **args, int n_args, const struct custom *custom) {
    if (result == NULL || berth_poisoned(result)) {
        return result;
    }
    custom_put(result, custom);
    result->op = GGML_OP_CUSTOM;
    result->src[0] = a;
    for (int i = 0; i < n_args; i++) {
        result->src[(a != NULL) + i] = args[i];
    }
    return result;
}

// Returns NULL if the sources and the argument list are valid.
static struct ggml_tensor *custom_refuse(
    struct ggml_context *ctx, const char *func, struct ggml_tensor **args, int n_args, int n_max, ggml_custom_op_t fun) {
    BERTH_REQUIRE_AS(ctx, func, ctx != NULL, "the context is NULL");
    BERTH_REQUIRE_AS(ctx, func, n_args <= n_max, "%d sources, must be at most %d", n_args, n_max);
    BERTH_REQUIRE_AS(ctx, func, n_args <= 0 || args != NULL, "%d sources, but the list of them is NULL", n_args);
    BERTH_REQUIRE_AS(ctx, func, fun != NULL, "the function is NULL");
    for (int i = 0; i < n_args; i++) {
        BERTH_SOURCE_OPT_AS(ctx, func, args[i]);
    }
    return NULL;
}

struct ggml_tensor *ggml_custom_4d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2,
    int64_t ne3, struct ggml_tensor **args, int n_args, ggml_custom_op_t fun, int n_tasks, void *userdata) {
    struct ggml_tensor *bad = custom_refuse(ctx, __func__, args, n_args, GGML_MAX_SRC - 1, fun);
    if (bad != NULL || ctx == NULL) {
        return bad;
    }
    const int64_t ne[] = {ne0, ne1, ne2, ne3};
    struct ggml_tensor *result = berth_tensor_new(ctx, __func__, type, GGML_MAX_DIMS, ne);
    return custom_set(result, NULL, args, n_args, CUSTOM);
}

// The result is a view of a. a is also the first source.
struct ggml_tensor *ggml_custom_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor **args, int n_args,
    ggml_custom_op_t fun, int n_tasks, void *userdata) {
    BERTH_SOURCES(ctx, a);
    struct ggml_tensor *bad = custom_refuse(ctx, __func__, args, n_args, GGML_MAX_SRC - 2, fun);
    if (bad != NULL) {
        return bad;
    }
    return custom_set(ggml_view_tensor(ctx, a), a, args, n_args, CUSTOM);
}

// ---- rows of the op table, and the samples that they name ----

static void custom_skip1(struct ggml_tensor *dst, const struct ggml_tensor *x, int ith, int nth, void *data) {
    (void) dst, (void) x, (void) ith, (void) nth, (void) data;
}
static void custom_skip2(
    struct ggml_tensor *dst, const struct ggml_tensor *x, const struct ggml_tensor *y, int ith, int nth, void *data) {
    (void) y;
    custom_skip1(dst, x, ith, nth, data);
}
static void custom_skip3(struct ggml_tensor *dst, const struct ggml_tensor *x, const struct ggml_tensor *y,
    const struct ggml_tensor *z, int ith, int nth, void *data) {
    (void) y, (void) z;
    custom_skip1(dst, x, ith, nth, data);
}
static void custom_skip(struct ggml_tensor *dst, int ith, int nth, void *data) {
    custom_skip1(dst, NULL, ith, nth, data);
}
SAMPLE(map_custom1, ggml_map_custom1(c, sample_rows(c, a), custom_skip1, 1, NULL))
SAMPLE(map_custom2, ggml_map_custom2(c, sample_rows(c, a), sample_rows(c, a), custom_skip2, 1, NULL))
SAMPLE(map_custom3, ggml_map_custom3(c, sample_rows(c, a), sample_rows(c, a), sample_rows(c, a), custom_skip3, 1, NULL))
static struct ggml_tensor *sample_custom(BERTH_SAMPLE_ARGS) {
    BERTH_SAMPLE_UNUSED;
    struct ggml_tensor *source = sample_rows(c, a);
    return ggml_custom_4d(c, a, N, 4, 1, 1, &source, 1, custom_skip, 1, NULL);
}

// clang-format off
const struct berth_op_entry berth_ops_custom[] = {
    {GGML_OP_MAP_CUSTOM1, {"MAP_CUSTOM1", "map_custom(x)", .n_src = 1, .family = BERTH_OP_OTHER, .sample = sample_map_custom1}},
    {GGML_OP_MAP_CUSTOM2, {"MAP_CUSTOM2", "map_custom(x,y)", .n_src = 2, .family = BERTH_OP_OTHER, .sample = sample_map_custom2}},
    {GGML_OP_MAP_CUSTOM3, {"MAP_CUSTOM3", "map_custom(x,y,z)", .n_src = 3, .family = BERTH_OP_OTHER, .sample = sample_map_custom3}},
    {GGML_OP_CUSTOM, {"CUSTOM", "custom(x)", .n_src = 10, .family = BERTH_OP_OTHER, .sample = sample_custom}},
    BERTH_OPS_END,
};
// clang-format on
