// SPDX-License-Identifier: MIT
// op.h: the building blocks of op constructors. A constructor checks its sources and their shapes, and returns a new tensor:
//
//     struct ggml_tensor *ggml_silu_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
//         BERTH_SOURCES(ctx, a, b);
//         BERTH_REQUIRE(ctx, ggml_are_same_shape(a, b), "a is " BERTH_SHAPE ", b is " BERTH_SHAPE, BERTH_NE(a), BERTH_NE(b));
//         return BERTH_OP(ggml_dup_tensor(ctx, a), GGML_OP_SILU_BACK, a, b);
//     }
//
// Poison is a tensor that stands for an error. If a source is poison or a check fails, the constructor returns poison.
#pragma once

#include "core/context.h"
#include "core/optable.h"

#include <inttypes.h>
#include <string.h>

#define BERTH_FLAG_POISON (1 << 30)

// Atomic, because another thread that builds a graph may set the compute flag at the same time (expand.c).
static inline int32_t berth_flags(const struct ggml_tensor *t) {
    return __atomic_load_n(&t->flags, __ATOMIC_RELAXED);
}

static inline bool berth_poisoned(const struct ggml_tensor *t) {
    return (berth_flags(t) & BERTH_FLAG_POISON) != 0;
}

// If ctx has no error yet, stores and logs "func: text". Always sets the thread's last error.
// Returns the context's poison, or NULL if ctx is NULL.
struct ggml_tensor *berth_poison(struct ggml_context *ctx, const char *func, const char *fmt, ...) BERTH_PRINTF(3, 4);
// Copies the error of bad to ctx. bad is NULL if a source is missing.
struct ggml_tensor *berth_poison_spread(struct ggml_context *ctx, const char *func, const struct ggml_tensor *bad);

#define BERTH_SHAPE "[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]"
#define BERTH_NE(t) (t)->ne[0], (t)->ne[1], (t)->ne[2], (t)->ne[3]
#define BERTH_STRIDE "[%zu, %zu, %zu, %zu]"
#define BERTH_NB(t) (t)->nb[0], (t)->nb[1], (t)->nb[2], (t)->nb[3]

// If a required source is poison or NULL, the constructor returns poison. ctx must not be NULL.
// Helpers that several constructors share use the _AS forms. func is the name of the public constructor, for messages.
#define BERTH_SOURCE_AS(ctx, func, t) \
    do { \
        if (BERTH_UNLIKELY((t) == NULL || berth_poisoned(t))) { \
            return berth_poison_spread(ctx, func, t); \
        } \
    } while (0)
// An optional source may be NULL but not poison.
#define BERTH_SOURCE_OPT_AS(ctx, func, t) \
    do { \
        if (BERTH_UNLIKELY((t) != NULL && berth_poisoned(t))) { \
            return berth_poison_spread(ctx, func, t); \
        } \
    } while (0)
#define BERTH_SOURCE_OPT(ctx, t) BERTH_SOURCE_OPT_AS(ctx, __func__, t)
#define BERTH_SOURCES_1(ctx, func, a) BERTH_SOURCE_AS(ctx, func, a)
#define BERTH_SOURCES_2(ctx, func, a, ...) \
    BERTH_SOURCE_AS(ctx, func, a); \
    BERTH_SOURCES_1(ctx, func, __VA_ARGS__)
#define BERTH_SOURCES_3(ctx, func, a, ...) \
    BERTH_SOURCE_AS(ctx, func, a); \
    BERTH_SOURCES_2(ctx, func, __VA_ARGS__)
#define BERTH_SOURCES_4(ctx, func, a, ...) \
    BERTH_SOURCE_AS(ctx, func, a); \
    BERTH_SOURCES_3(ctx, func, __VA_ARGS__)
#define BERTH_SOURCES_5(ctx, func, a, ...) \
    BERTH_SOURCE_AS(ctx, func, a); \
    BERTH_SOURCES_4(ctx, func, __VA_ARGS__)
#define BERTH_SOURCES_6(ctx, func, a, ...) \
    BERTH_SOURCE_AS(ctx, func, a); \
    BERTH_SOURCES_5(ctx, func, __VA_ARGS__)
#define BERTH_SOURCES_7(ctx, func, a, ...) \
    BERTH_SOURCE_AS(ctx, func, a); \
    BERTH_SOURCES_6(ctx, func, __VA_ARGS__)
#define BERTH_PICK_8(a, b, c, d, e, f, g, name, ...) name
// Takes one to seven required sources. Check optional sources after this macro.
#define BERTH_SOURCES_AS(ctx, func, ...) \
    do { \
        if (BERTH_UNLIKELY((ctx) == NULL)) { \
            return berth_poison_spread(NULL, func, NULL); \
        } \
    } while (0); \
    BERTH_PICK_8(__VA_ARGS__, BERTH_SOURCES_7, BERTH_SOURCES_6, BERTH_SOURCES_5, BERTH_SOURCES_4, BERTH_SOURCES_3, \
        BERTH_SOURCES_2, BERTH_SOURCES_1, 0) \
    (ctx, func, __VA_ARGS__)
#define BERTH_SOURCES(ctx, ...) BERTH_SOURCES_AS(ctx, __func__, __VA_ARGS__)

#define BERTH_REQUIRE_AS(ctx, func, cond, ...) \
    do { \
        if (BERTH_UNLIKELY(!(cond))) { \
            return berth_poison(ctx, func, __VA_ARGS__); \
        } \
    } while (0)
#define BERTH_REQUIRE(ctx, cond, ...) BERTH_REQUIRE_AS(ctx, __func__, cond, __VA_ARGS__)

// params may be NULL. Poison is returned unchanged.
static inline struct ggml_tensor *berth_op_set(struct ggml_tensor *result, enum ggml_op op, const void *params,
    size_t params_size, struct ggml_tensor *const *srcs, size_t n_srcs) {
    if (BERTH_UNLIKELY(result == NULL || berth_poisoned(result))) {
        return result;
    }
    BERTH_ASSERT(params_size <= GGML_MAX_OP_PARAMS);
    result->op = op;
    if (params != NULL) {
        memcpy(result->op_params, params, params_size);
    }
    for (size_t i = 0; i < n_srcs; i++) {
        result->src[i] = srcs[i];
    }
    return result;
}
// BERTH_OP completes a result without op_params. BERTH_OP_WITH also copies the variable `params` to op_params.
#define BERTH_SRCS(...) \
    (struct ggml_tensor *const[]){__VA_ARGS__}, sizeof((struct ggml_tensor *const[]){__VA_ARGS__}) / sizeof(struct ggml_tensor *)
#define BERTH_OP(result, op, ...) berth_op_set(result, op, NULL, 0, BERTH_SRCS(__VA_ARGS__))
#define BERTH_OP_WITH(result, op, params, ...) berth_op_set(result, op, &(params), sizeof(params), BERTH_SRCS(__VA_ARGS__))

// Makes the existing tensor `a` poison. A setter, such as ggml_rope_set_offset, has no context to poison, so it refuses a wrong
// setting this way.
// text must stay valid as long as the program runs.
static inline void berth_poison_self(struct ggml_tensor *a, char *text) {
    a->flags |= BERTH_FLAG_POISON;
    a->extra = text;
}

// Only these functions create tensors (tensor.c). offset is in bytes.
struct ggml_tensor *berth_tensor_new(
    struct ggml_context *ctx, const char *func, enum ggml_type type, int n_dims, const int64_t *ne);
struct ggml_tensor *berth_view_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, int n_dims, const int64_t *ne, size_t offset);

// Names t after src, followed by the suffix. A name that is too long is truncated. Poison is unchanged.
void berth_name_suffix(struct ggml_tensor *t, const struct ggml_tensor *src, const char *suffix);

static inline struct ggml_tensor *berth_like(struct ggml_context *ctx, const char *func, const struct ggml_tensor *a) {
    return berth_tensor_new(ctx, func, a->type, GGML_MAX_DIMS, a->ne);
}

// inplace: the result is a view of a.
static inline struct ggml_tensor *berth_like_or_view(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, bool inplace) {
    return inplace ? ggml_view_tensor(ctx, a) : berth_like(ctx, func, a);
}

// The part of a tensor to which an op writes, with strides nb[1..3].
// If inplace, the result is a view of the tensor. Otherwise the result is a copy.
struct berth_part {
    const size_t *nb; // [GGML_MAX_DIMS]
    size_t offset;
    bool inplace;
};

// Returns a node of an op that writes b into a part of a. op_params: [nb1, nb2, nb3, offset, inplace], 32 bits each.
// As in ggml, the stride of a dimension with one element is unused, so truncating it to 32 bits is harmless.
static inline struct ggml_tensor *berth_op_set_part(struct ggml_context *ctx, const char *func, struct ggml_tensor *a,
    struct ggml_tensor *b, enum ggml_op op, const struct berth_part *part) {
    const size_t *nb = part->nb, offset = part->offset;
    for (int i = 1; i < GGML_MAX_DIMS; i++) {
        BERTH_REQUIRE_AS(ctx, func, b->ne[i] <= 1 || nb[i] <= INT32_MAX, "stride nb[%d] = %zu does not fit 32 bits", i, nb[i]);
    }
    BERTH_REQUIRE_AS(ctx, func, offset <= INT32_MAX, "offset %zu does not fit 32 bits", offset);
    const int32_t params[] = {(int32_t) nb[1], (int32_t) nb[2], (int32_t) nb[3], (int32_t) offset, part->inplace};
    return BERTH_OP_WITH(berth_like_or_view(ctx, func, a, part->inplace), op, params, a, b);
}
