// SPDX-License-Identifier: MIT
// ops_rope.c: constructors of RoPE. a: [head_dim, n_head, n_token, ...], c: frequency factors or NULL.
// b: one position per token, four with the M-RoPE modes.

#include "core/grad.h"
#include "core/op.h"
#include "core/sample.h"

#include <math.h>

// op_params of ROPE and ROPE_BACK. n_past and n_ctx are obsolete and always 0.
struct rope_params {
    int32_t n_past;
    int32_t n_dims;
    int32_t mode;
    int32_t n_ctx;
    int32_t n_ctx_orig;
    float freq_base;
    float freq_scale;
    float ext_factor;
    float attn_factor;
    float beta_fast;
    float beta_slow;
    int32_t sections[GGML_MROPE_SECTIONS]; // only with the M-RoPE bit in mode
    int32_t n_offs;                        // the first dimension that is rotated; set by ggml_rope_set_offset
};

_Static_assert(sizeof(struct rope_params) == 64, "backends read these 16 words");

struct rope {
    enum ggml_op op;
    bool inplace;
    struct rope_params params; // sections are not set
    const int *sections;       // [GGML_MROPE_SECTIONS], or NULL
};

static struct ggml_tensor *rope_new(struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, struct rope rope) {
    struct rope_params *params = &rope.params;
    BERTH_SOURCES_AS(ctx, func, a, b);
    BERTH_SOURCE_OPT_AS(ctx, func, c);
    BERTH_REQUIRE_AS(ctx, func, (params->mode & 1) == 0, "mode %d: bit 0 is obsolete and must be 0", params->mode);
    BERTH_REQUIRE_AS(ctx, func, ggml_is_vector(b) && b->type == GGML_TYPE_I32,
        "positions are %s " BERTH_SHAPE ", must be an i32 vector", ggml_type_name(b->type), BERTH_NE(b));
    const bool mrope = (params->mode & GGML_ROPE_TYPE_MROPE) != 0;
    const bool enough =
        mrope ? b->ne[0] % GGML_MROPE_SECTIONS == 0 && b->ne[0] / GGML_MROPE_SECTIONS == a->ne[2] : b->ne[0] == a->ne[2];
    BERTH_REQUIRE_AS(ctx, func, enough, "%" PRId64 " positions for %" PRId64 " tokens, mode %d requires %d per token", b->ne[0],
        a->ne[2], params->mode, mrope ? GGML_MROPE_SECTIONS : 1);
    BERTH_REQUIRE_AS(ctx, func, c == NULL || (c->type == GGML_TYPE_F32 && c->ne[0] >= params->n_dims / 2),
        "frequency factors are %s, %" PRId64 " of them, must be f32 and at least n_dims / 2 = %d", ggml_type_name(c->type),
        c->ne[0], params->n_dims / 2);
    if (mrope && rope.sections != NULL) {
        memcpy(params->sections, rope.sections, sizeof params->sections);
    }
    return BERTH_OP_WITH(berth_like_or_view(ctx, func, a, rope.inplace), rope.op, *params, a, b, c);
}

#define ROPE_PLAIN \
    { .n_dims = n_dims, .mode = mode, .freq_base = 10000.0f, .freq_scale = 1.0f, .attn_factor = 1.0f }
#define ROPE_PARAMS \
    { 0, n_dims, mode, 0, n_ctx_orig, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow, {0}, 0 }

struct ggml_tensor *ggml_rope(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims, int mode) {
    return rope_new(ctx, __func__, a, b, NULL, (struct rope){GGML_OP_ROPE, false, ROPE_PLAIN, NULL});
}

struct ggml_tensor *ggml_rope_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims, int mode) {
    return rope_new(ctx, __func__, a, b, NULL, (struct rope){GGML_OP_ROPE, true, ROPE_PLAIN, NULL});
}

struct ggml_tensor *ggml_rope_ext(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c,
    int n_dims, int mode, int n_ctx_orig, float freq_base, float freq_scale, float ext_factor, float attn_factor, float beta_fast,
    float beta_slow) {
    return rope_new(ctx, __func__, a, b, c, (struct rope){GGML_OP_ROPE, false, ROPE_PARAMS, NULL});
}

struct ggml_tensor *ggml_rope_ext_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int mode, int n_ctx_orig, float freq_base, float freq_scale, float ext_factor,
    float attn_factor, float beta_fast, float beta_slow) {
    return rope_new(ctx, __func__, a, b, c, (struct rope){GGML_OP_ROPE, true, ROPE_PARAMS, NULL});
}

struct ggml_tensor *ggml_rope_ext_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int mode, int n_ctx_orig, float freq_base, float freq_scale, float ext_factor,
    float attn_factor, float beta_fast, float beta_slow) {
    return rope_new(ctx, __func__, a, b, c, (struct rope){GGML_OP_ROPE_BACK, false, ROPE_PARAMS, NULL});
}

struct ggml_tensor *ggml_rope_multi(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c,
    int n_dims, int *sections, int mode, int n_ctx_orig, float freq_base, float freq_scale, float ext_factor, float attn_factor,
    float beta_fast, float beta_slow) {
    return rope_new(ctx, __func__, a, b, c, (struct rope){GGML_OP_ROPE, false, ROPE_PARAMS, sections});
}

struct ggml_tensor *ggml_rope_multi_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int *sections, int mode, int n_ctx_orig, float freq_base, float freq_scale,
    float ext_factor, float attn_factor, float beta_fast, float beta_slow) {
    return rope_new(ctx, __func__, a, b, c, (struct rope){GGML_OP_ROPE, true, ROPE_PARAMS, sections});
}

struct ggml_tensor *ggml_rope_multi_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    struct ggml_tensor *c, int n_dims, int *sections, int mode, int n_ctx_orig, float freq_base, float freq_scale,
    float ext_factor, float attn_factor, float beta_fast, float beta_slow) {
    return rope_new(ctx, __func__, a, b, c, (struct rope){GGML_OP_ROPE_BACK, false, ROPE_PARAMS, sections});
}

struct ggml_tensor *ggml_rope_custom(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims, int mode,
    int n_ctx_orig, float freq_base, float freq_scale, float ext_factor, float attn_factor, float beta_fast, float beta_slow) {
    return rope_new(ctx, __func__, a, b, NULL, (struct rope){GGML_OP_ROPE, false, ROPE_PARAMS, NULL});
}

struct ggml_tensor *ggml_rope_custom_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims,
    int mode, int n_ctx_orig, float freq_base, float freq_scale, float ext_factor, float attn_factor, float beta_fast,
    float beta_slow) {
    return rope_new(ctx, __func__, a, b, NULL, (struct rope){GGML_OP_ROPE, true, ROPE_PARAMS, NULL});
}

struct ggml_tensor *ggml_rope_set_offset(struct ggml_tensor *a, int n_offs) {
    static char text[] = "ggml_rope_set_offset: the offset was refused";
    if (a == NULL || berth_poisoned(a)) {
        return a; // the constructor reported the error
    }
    struct rope_params params;
    memcpy(&params, a->op_params, sizeof params);
    const bool is_rope = a->op == GGML_OP_ROPE || a->op == GGML_OP_ROPE_BACK;
    if (!is_rope || n_offs < 0 || params.mode == GGML_ROPE_TYPE_VISION) {
        berth_fail(GGML_STATUS_FAILED,
            "%s: %s: offset %d for op %s, mode %d: the offset must not be negative, the op must be ROPE or ROPE_BACK, and the "
            "mode "
            "must not be vision",
            __func__, a->name, n_offs, ggml_op_name(a->op), is_rope ? params.mode : 0);
        berth_poison_self(a, text);
        return a;
    }
    params.n_offs = n_offs;
    memcpy(a->op_params, &params, sizeof params);
    return a;
}

// Returns the dimension whose wave completes n_rot periods in the original context (YaRN, arXiv 2309.00071, section 3.2).
static float yarn_dim(int n_dims, int n_ctx_orig, float n_rot, float base) {
    const float two_pi = 2.0f * 3.14159265358979323846f;
    return (float) n_dims * logf((float) n_ctx_orig / (n_rot * two_pi)) / (2.0f * logf(base));
}

void ggml_rope_yarn_corr_dims(int n_dims, int n_ctx_orig, float freq_base, float beta_fast, float beta_slow, float *dims) {
    if (dims == NULL) {
        return;
    }
    const float first = floorf(yarn_dim(n_dims, n_ctx_orig, beta_fast, freq_base));
    const float last = ceilf(yarn_dim(n_dims, n_ctx_orig, beta_slow, freq_base));
    const float limit = (float) (int32_t) ((uint32_t) n_dims - 1u);
    // NaN stays NaN.
    dims[0] = first < 0.0f ? 0.0f : first;
    dims[1] = last > limit ? limit : last;
}

// ---- shapes ----

static bool shape_rope(const struct ggml_tensor *r) {
    const struct ggml_tensor *a = r->src[0], *b = r->src[1], *c = r->src[2];
    int32_t n_dims = r->op_params[1], mode = r->op_params[2];
    const int64_t n_pos = (mode & GGML_ROPE_TYPE_MROPE) != 0 ? 4 * a->ne[2] : a->ne[2];
    return ggml_are_same_shape(r, a) && b->type == GGML_TYPE_I32 && berth_shape_is(b, n_pos, 1, 1, 1) && n_dims > 0 &&
           n_dims % 2 == 0 && n_dims <= a->ne[0] &&
           (c == NULL || (c->type == GGML_TYPE_F32 && c->ne[0] >= n_dims / 2 && c->ne[1] == 1 && c->ne[2] == 1 && c->ne[3] == 1));
}

// ---- gradients ----
// The gradient is rotated by the same angles in the opposite direction. Frequency factors get no gradient.

static void rope_inverse(struct berth_grad *g, enum ggml_op op) {
    const struct ggml_tensor *node = g->node;
    struct ggml_tensor *result = berth_like(g->ctx, "ggml_build_backward_expand", g->grad);
    berth_grad_put_add(g, 0, BERTH_OP_WITH(result, op, node->op_params, g->grad, node->src[1], node->src[2]));
}

static void grad_rope(struct berth_grad *g) {
    rope_inverse(g, GGML_OP_ROPE_BACK);
}

static void grad_rope_back(struct berth_grad *g) {
    rope_inverse(g, GGML_OP_ROPE);
}

// ---- rows of the op table, and the samples that they name ----

SAMPLE(rope, ggml_rope(c, sample_shaped(c, a, N, 2, 4, 1), sample_shaped(c, I32, 4, 1, 1, 1), N, 0))
SAMPLE(rope_back, ggml_rope_ext_back(c, sample_shaped(c, a, N, 2, 4, 1), sample_shaped(c, I32, 4, 1, 1, 1), NULL, N, 0, 0,
                      10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f))

// clang-format off
const struct berth_op_entry berth_ops_rope[] = {
    {GGML_OP_ROPE, {"ROPE", "rope(x)", .n_src = 3, .in_place = true, .family = BERTH_OP_ATTENTION, .split = BERTH_SPLIT_ROPE, .n_needed = 2, .shape = shape_rope, .sample = sample_rope, .grad = grad_rope, .grad_src_mask = 1}},
    {GGML_OP_ROPE_BACK, {"ROPE_BACK", "rope_back(x)", .n_src = 3, .in_place = true, .family = BERTH_OP_TRAIN, .split = BERTH_SPLIT_ROPE, .sample = sample_rope_back, .grad = grad_rope_back, .grad_src_mask = 1}},
    BERTH_OPS_END,
};
// clang-format on
