// SPDX-License-Identifier: MIT
// op_named.h: the kit of op.h for helpers that several constructors share: func is the public name that messages carry.
#pragma once

#include "core/op.h"

#define BERTH_SOURCE_AS(ctx, func, t) \
    do { \
        if (BERTH_UNLIKELY((ctx) == NULL || (t) == NULL || berth_poisoned(t))) { \
            return berth_poison_spread(ctx, func, t); \
        } \
    } while (0)
#define BERTH_SOURCE_OPT_AS(ctx, func, t) \
    do { \
        if (BERTH_UNLIKELY((ctx) == NULL || ((t) != NULL && berth_poisoned(t)))) { \
            return berth_poison_spread(ctx, func, t); \
        } \
    } while (0)
#define BERTH_REQUIRE_AS(ctx, func, cond, ...) \
    do { \
        if (BERTH_UNLIKELY(!(cond))) { \
            return berth_poison(ctx, func, __VA_ARGS__); \
        } \
    } while (0)

// A new tensor of a's type and shape.
static inline struct ggml_tensor *berth_like(struct ggml_context *ctx, const char *func, const struct ggml_tensor *a) {
    return berth_tensor_new(ctx, func, a->type, GGML_MAX_DIMS, a->ne, NULL, 0);
}

// The same, or a view of a for the inplace form.
static inline struct ggml_tensor *berth_like_or_view(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, bool inplace) {
    return inplace ? ggml_view_tensor(ctx, a) : berth_like(ctx, func, a);
}

// The result of ops that write b into the part of a that starts at offset bytes and has strides nb[1..3]: a copy or a view of a.
// op_params: [nb1, nb2, nb3, offset, inplace], 32 bits each. A stride that b does not use may be cut, as ggml does it.
static inline struct ggml_tensor *berth_op_set_part(struct ggml_context *ctx, const char *func, struct ggml_tensor *a,
    struct ggml_tensor *b, enum ggml_op op, const size_t nb[GGML_MAX_DIMS], size_t offset, bool inplace) {
    for (int i = 1; i < GGML_MAX_DIMS; i++) {
        BERTH_REQUIRE_AS(ctx, func, b->ne[i] <= 1 || nb[i] <= INT32_MAX, "stride nb[%d] = %zu does not fit 32 bits", i, nb[i]);
    }
    BERTH_REQUIRE_AS(ctx, func, offset <= INT32_MAX, "offset %zu does not fit 32 bits", offset);
    const int32_t params[] = {(int32_t) nb[1], (int32_t) nb[2], (int32_t) nb[3], (int32_t) offset, inplace};
    return berth_op_set(berth_like_or_view(ctx, func, a, inplace), op, params, sizeof params, a, b, NULL);
}
