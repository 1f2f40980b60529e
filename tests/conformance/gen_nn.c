// SPDX-License-Identifier: MIT
// gen_nn.c: valid argument sets for RoPE, convolution, pooling, resampling, attention and recurrent ops.
#include "gen.h"

#include <string.h>

static int f32(struct gen *g, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3, enum layout layout) {
    return gen_tensor(g, GGML_TYPE_F32, shape4(ne0, ne1, ne2, ne3), layout);
}

// ---- RoPE ----

static void push_rope(struct gen *g, enum call_id id, int n_tensors, bool multi) {
    static const int64_t modes[] = {GGML_ROPE_TYPE_NORMAL, GGML_ROPE_TYPE_NEOX, GGML_ROPE_TYPE_NORMAL, GGML_ROPE_TYPE_NEOX};
    static const int64_t multi_modes[] = {GGML_ROPE_TYPE_MROPE, GGML_ROPE_TYPE_VISION, GGML_ROPE_TYPE_IMROPE};
    const char *kinds = call_table[id].kinds;
    const int64_t mode = multi ? PICK_OF(g, multi_modes) : PICK_OF(g, modes);
    const int64_t head = 2 * pick(g, 1, 16), tokens = gen_dim(g);
    const int64_t n_dims = mode == GGML_ROPE_TYPE_VISION ? head / 2 : 2 * pick(g, 1, head / 2);
    int64_t args[CALL_MAX_ARGS] = {0};
    args[0] = gen_tensor(g, gen_type_float(g), shape4(head, gen_dim(g), tokens, gen_dim(g)), ROWS);
    args[1] = gen_tensor(g, GGML_TYPE_I32, shape4(multi ? 4 * tokens : tokens, 1, 1, 1), CONT);
    int k = 2;
    if (n_tensors == 3) {
        args[k++] = chance(g, 50) ? -1 : f32(g, n_dims / 2 + pick(g, 0, 2), 1, 1, 1, CONT);
    }
    args[k++] = n_dims;
    if (multi) {
        for (int i = 0; i < 4; i++) {
            args[k++] = pick(g, i == 0 ? 1 : 0, 16);
        }
    }
    args[k++] = mode;
    for (; kinds[k] != 0; k++) {
        args[k] = kinds[k] == 'F' ? gen_float(g) : pick(g, 0, 1) * 4096;
    }
    gen_push(g, id, args, (size_t) k);
}

void gen_op_rope(struct gen *g, enum call_id id) {
    push_rope(g, id, 2, false);
}

void gen_op_rope_ext(struct gen *g, enum call_id id) {
    push_rope(g, id, 3, false);
}

void gen_op_rope_multi(struct gen *g, enum call_id id) {
    push_rope(g, id, 3, true);
}

void gen_op_rope_offset(struct gen *g, enum call_id id) {
    static const enum call_id ropes[] = {CALL_ggml_rope_ext, CALL_ggml_rope_ext_inplace, CALL_ggml_rope_ext_back};
    if (chance(g, 70)) {
        gen_op_rope_ext(g, PICK_OF(g, ropes));
    } else {
        gen_op_rope_multi(g, chance(g, 50) ? CALL_ggml_rope_multi : CALL_ggml_rope_multi_back);
    }
    PUSH(g, id, g->r->n_calls - 1, pick(g, 0, 100));
}

// ---- convolution ----

// Kernel extents, strides, padding and dilation for n axes, and input extents that are large enough for them.
struct window {
    int64_t k[3], s[3], p[3], d[3], in[3];
};

static struct window gen_window(struct gen *g, int n) {
    struct window w;
    for (int i = 0; i < 3; i++) {
        w.k[i] = i < n ? pick(g, 1, 4) : 1;
        w.s[i] = i < n ? pick(g, 1, 3) : 1;
        w.p[i] = i < n ? pick(g, 0, 2) : 0;
        w.d[i] = i < n ? pick(g, 1, 2) : 1;
        w.in[i] = i < n ? w.d[i] * w.k[i] + pick(g, 0, 8) : 1;
    }
    return w;
}

static enum ggml_type kernel_type(struct gen *g) {
    return chance(g, 60) ? GGML_TYPE_F16 : chance(g, 80) ? GGML_TYPE_F32 : gen_type_float(g);
}

void gen_op_im2col(struct gen *g, enum call_id id) {
    const bool is_2d = chance(g, 60);
    const struct window w = gen_window(g, is_2d ? 2 : 1);
    const int64_t ic = gen_dim(g), n = pick(g, 1, 3);
    const struct shape kernel = is_2d ? shape4(w.k[0], w.k[1], ic, gen_dim(g)) : shape4(w.k[0], ic, gen_dim(g), 1);
    const struct shape in = is_2d ? shape4(w.in[0], w.in[1], ic, n) : shape4(w.in[0], ic, n, 1);
    const int a = gen_tensor(g, kernel_type(g), kernel, CONT);
    const int b = gen_tensor(g, chance(g, 80) ? GGML_TYPE_F32 : gen_type_float(g), in, CONT);
    PUSH(g, id, a, b, w.s[0], w.s[1], w.p[0], w.p[1], w.d[0], w.d[1], is_2d, chance(g, 50) ? GGML_TYPE_F16 : GGML_TYPE_F32);
}

void gen_op_im2col_back(struct gen *g, enum call_id id) {
    const bool is_2d = chance(g, 60);
    const struct window w = gen_window(g, 2);
    const int64_t ic = gen_dim(g), n = pick(g, 1, 3);
    const int a = gen_tensor(g, kernel_type(g), shape4(w.k[0], w.k[1], ic, gen_dim(g)), CONT);
    const int b = f32(g, ic * w.k[0] * w.k[1], w.in[0], w.in[1], n, CONT);
    PUSH(g, id, a, b, w.in[0], w.in[1], ic, n, w.s[0], w.s[1], w.p[0], w.p[1], w.d[0], w.d[1], is_2d);
}

void gen_op_col2im_1d(struct gen *g, enum call_id id) {
    const int64_t oc = gen_dim(g), k = pick(g, 1, 5);
    const int a = gen_tensor(g, gen_type_float(g), shape4(oc * k, gen_dim(g), 1, 1), chance(g, 80) ? CONT : ROWS);
    PUSH(g, id, a, pick(g, 1, 3), oc, pick(g, 0, 1));
}

static void push_conv_1d(struct gen *g, enum call_id id, bool depthwise) {
    const struct window w = gen_window(g, 1);
    const int64_t ic = gen_dim(g);
    const int a = gen_tensor(g, kernel_type(g), shape4(w.k[0], depthwise ? 1 : ic, depthwise ? ic : gen_dim(g), 1), CONT);
    const int b = f32(g, w.in[0], ic, depthwise && chance(g, 90) ? 1 : pick(g, 1, 3), 1, CONT);
    if (call_table[id].kinds[4] == 0) { // ggml_conv_1d_ph and ggml_conv_1d_dw_ph have no argument for the padding
        PUSH(g, id, a, b, w.s[0], w.d[0]);
    } else {
        PUSH(g, id, a, b, w.s[0], w.p[0], w.d[0]);
    }
}

void gen_op_conv_1d(struct gen *g, enum call_id id) {
    push_conv_1d(g, id, false);
}

void gen_op_conv_1d_dw(struct gen *g, enum call_id id) {
    push_conv_1d(g, id, true);
}

void gen_op_conv_transpose_1d(struct gen *g, enum call_id id) {
    const int64_t ic = gen_dim(g);
    const int a = gen_tensor(g, kernel_type(g), shape4(pick(g, 1, 5), gen_dim(g), ic, 1), CONT);
    const int b = f32(g, gen_dim(g), ic, 1, 1, CONT);
    PUSH(g, id, a, b, pick(g, 1, 3), 0, 1);
}

static void push_conv_2d(struct gen *g, enum call_id id, struct window w, int a, int b) {
    if (call_table[id].kinds[2] == 0) {
        PUSH(g, id, a, b);
    } else {
        PUSH(g, id, a, b, w.s[0], w.s[1], w.p[0], w.p[1], w.d[0], w.d[1]);
    }
}

void gen_op_conv_2d(struct gen *g, enum call_id id) {
    const struct window w = gen_window(g, 2);
    const int64_t ic = gen_dim(g);
    const int a = gen_tensor(g, kernel_type(g), shape4(w.k[0], w.k[1], ic, gen_dim(g)), CONT);
    const int b = f32(g, w.in[0], w.in[1], ic, pick(g, 1, 3), CONT);
    push_conv_2d(g, id, w, a, b);
}

void gen_op_conv_2d_dw(struct gen *g, enum call_id id) {
    const struct window w = gen_window(g, 2);
    const int64_t c = gen_dim(g);
    const int a = gen_tensor(g, kernel_type(g), shape4(w.k[0], w.k[1], 1, c), CONT);
    const int b = f32(g, w.in[0], w.in[1], c, pick(g, 1, 3), chance(g, 70) ? CONT : ANY);
    push_conv_2d(g, id, w, a, b);
}

void gen_op_conv_transpose_2d(struct gen *g, enum call_id id) {
    const int64_t ic = gen_dim(g);
    const int a = gen_tensor(g, kernel_type(g), shape4(pick(g, 1, 4), pick(g, 1, 4), gen_dim(g), ic), CONT);
    const int b = f32(g, gen_dim(g), gen_dim(g), ic, pick(g, 1, 2), CONT);
    PUSH(g, id, a, b, pick(g, 1, 3));
}

void gen_op_conv_3d(struct gen *g, enum call_id id) {
    const struct window w = gen_window(g, 3);
    const int64_t ic = pick(g, 1, 4), oc = pick(g, 1, 4);
    const int a = gen_tensor(g, kernel_type(g), shape4(w.k[0], w.k[1], w.k[2], ic * oc), CONT);
    const int b = f32(g, w.in[0], w.in[1], w.in[2], ic * pick(g, 1, 2), CONT);
    int64_t args[CALL_MAX_ARGS] = {a, b, ic, w.s[0], w.s[1], w.s[2], w.p[0], w.p[1], w.p[2], w.d[0], w.d[1], w.d[2],
        chance(g, 50) ? GGML_TYPE_F16 : GGML_TYPE_F32};
    gen_push(g, id, args, strlen(call_table[id].kinds));
}

void gen_op_conv_3d_direct(struct gen *g, enum call_id id) {
    const struct window w = gen_window(g, 3);
    const int64_t ic = pick(g, 1, 4), oc = pick(g, 1, 4), n = pick(g, 1, 3);
    const int a = gen_tensor(g, kernel_type(g), shape4(w.k[0], w.k[1], w.k[2], ic * oc), CONT);
    const int b = f32(g, w.in[0], w.in[1], w.in[2], ic * n, CONT);
    PUSH(g, id, a, b, w.s[0], w.s[1], w.s[2], w.p[0], w.p[1], w.p[2], w.d[0], w.d[1], w.d[2], ic, n, oc);
}

// ---- pooling and resampling ----

void gen_op_pool_1d(struct gen *g, enum call_id id) {
    const struct window w = gen_window(g, 1);
    const int a = f32(g, w.in[0] + w.k[0], gen_dim(g), gen_dim(g), gen_dim(g), ROWS);
    PUSH(g, id, a, pick(g, 0, GGML_OP_POOL_COUNT - 1), w.k[0], w.s[0], pick(g, 0, 1));
}

// Returns the bits of 0, 0.5, 1 or 1.5.
static int64_t half_float(struct gen *g) {
    return float_bits((float) pick(g, 0, 3) / 2.0f);
}

void gen_op_pool_2d(struct gen *g, enum call_id id) {
    const struct window w = gen_window(g, 2);
    const int a = f32(g, w.in[0] + w.k[0], w.in[1] + w.k[1], gen_dim(g), gen_dim(g), ROWS);
    PUSH(g, id, a, pick(g, 0, GGML_OP_POOL_COUNT - 1), w.k[0], w.k[1], w.s[0], w.s[1], half_float(g), half_float(g));
}

void gen_op_pool_2d_back(struct gen *g, enum call_id id) {
    const struct window w = gen_window(g, 2);
    const int64_t c = gen_dim(g), n = gen_dim(g);
    const int a = f32(g, w.in[0], w.in[1], c, n, ROWS);
    const int af = f32(g, w.in[0] * w.s[0], w.in[1] * w.s[1], c, n, ROWS);
    PUSH(g, id, a, af, pick(g, 0, GGML_OP_POOL_COUNT - 1), w.k[0], w.k[1], w.s[0], w.s[1], half_float(g), half_float(g));
}

void gen_op_upscale(struct gen *g, enum call_id id) {
    const int a = gen_tensor(g, chance(g, 90) ? GGML_TYPE_F32 : gen_type_float(g), gen_shape(g), ANY);
    PUSH(g, id, a, pick(g, chance(g, 5) ? 1 : 2, 4), pick(g, 0, GGML_SCALE_MODE_COUNT - 1));
}

void gen_op_upscale_ext(struct gen *g, enum call_id id) {
    const struct shape s = gen_shape(g);
    const int a = gen_tensor(g, chance(g, 90) ? GGML_TYPE_F32 : gen_type_float(g), s, ANY);
    const bool flags = id == CALL_ggml_interpolate;
    const int64_t mode = pick(g, 0, GGML_SCALE_MODE_COUNT - 1);
    PUSH(g, id, a, s.ne[0] * pick(g, 1, 3), s.ne[1] * pick(g, 1, 3), s.ne[2] * pick(g, 1, 2), s.ne[3] * pick(g, 1, 2),
        mode + (flags ? 256 * pick(g, 0, mode == GGML_SCALE_MODE_BILINEAR ? 3 : 1) : 0));
}

void gen_op_pad(struct gen *g, enum call_id id) {
    const struct shape s = gen_shape(g);
    const size_t n = strlen(call_table[id].kinds);
    int64_t args[CALL_MAX_ARGS] = {0};
    args[0] = gen_tensor(g, chance(g, 85) ? GGML_TYPE_F32 : gen_type_float(g), s, chance(g, 80) ? CONT : ANY);
    for (size_t i = 1; i < n; i++) {
        const int64_t ne = s.ne[n == 5 ? i - 1 : (i - 1) / 2];
        args[i] = pick(g, 0, ne < 4 ? ne : 4);
    }
    gen_push(g, id, args, n);
}

void gen_op_pad_reflect(struct gen *g, enum call_id id) {
    const int64_t n = gen_dim(g) + 1;
    const int a = f32(g, n, gen_dim(g), gen_dim(g), 1, CONT);
    PUSH(g, id, a, pick(g, 0, n - 1), pick(g, 0, n - 1));
}

void gen_op_roll(struct gen *g, enum call_id id) {
    const struct shape s = gen_shape(g);
    const int a = f32(g, s.ne[0], s.ne[1], s.ne[2], s.ne[3], CONT);
    PUSH(g, id, a, pick(g, 1 - s.ne[0], s.ne[0] - 1), pick(g, 1 - s.ne[1], s.ne[1] - 1), pick(g, 1 - s.ne[2], s.ne[2] - 1),
        pick(g, 1 - s.ne[3], s.ne[3] - 1));
}

// ---- sorting ----

void gen_op_top_k(struct gen *g, enum call_id id) {
    const struct shape s = gen_shape(g);
    const int a = gen_tensor(g, chance(g, 80) ? GGML_TYPE_F32 : gen_type_float(g), s, chance(g, 80) ? CONT : ANY);
    PUSH(g, id, a, pick(g, 1, s.ne[0]));
}

void gen_op_arange(struct gen *g, enum call_id id) {
    const float start = (float) pick(g, -20, 20) / 4.0f;
    PUSH(g, id, float_bits(start), float_bits(start + (float) pick(g, 1, 200) / 8.0f), float_bits((float) pick(g, 1, 20) / 8.0f));
}

// ---- attention ----

void gen_op_flash_attn_ext(struct gen *g, enum call_id id) {
    const enum ggml_type type = gen_type_mat(g);
    const int64_t head = shape_fit(shape4(gen_dim(g), 1, 1, 1), type).ne[0];
    const int64_t kv = gen_dim(g), n = gen_dim(g), heads_kv = pick(g, 1, 4), heads = heads_kv * pick(g, 1, 4),
                  batch = pick(g, 1, 3);
    const bool masked = chance(g, 75);
    const int q = gen_tensor(g, chance(g, 90) ? GGML_TYPE_F32 : gen_type_float(g), shape4(head, n, heads, batch), ANY);
    const int k = gen_tensor(g, type, shape4(head, kv, heads_kv, batch), ROWS);
    const int v = gen_tensor(g, type, shape_fit(shape4(chance(g, 80) ? head : gen_dim(g), kv, heads_kv, batch), type), ROWS);
    const int mask = !masked ? -1
                             : gen_tensor(g, GGML_TYPE_F16,
                                   shape4(kv, n + pick(g, 0, 3), chance(g, 30) ? heads : 1, chance(g, 30) ? batch : 1), CONT);
    PUSH(g, id, q, k, v, mask, gen_float(g), masked && chance(g, 50) ? float_bits(8.0f) : 0,
        chance(g, 70) ? 0 : float_bits(30.0f));
}

void gen_op_flash_attn_back(struct gen *g, enum call_id id) {
    const int64_t head = gen_dim(g), kv = gen_dim(g), n = gen_dim(g), heads = gen_dim(g);
    const int q = f32(g, head, n, heads, 1, CONT);
    const int k = f32(g, head, kv, heads, 1, CONT);
    const int v = f32(g, kv, head, heads, 1, CONT);
    const int d = f32(g, head, n, heads, 1, CONT);
    PUSH(g, id, q, k, v, d, pick(g, 0, 1));
}

// ---- recurrent ----

void gen_op_ssm_conv(struct gen *g, enum call_id id) {
    const int64_t width = pick(g, 1, 5), tokens = gen_dim(g), inner = gen_dim(g);
    const int sx = f32(g, width - 1 + tokens, inner, pick(g, 1, 3), 1, chance(g, 80) ? CONT : ROWS);
    const int c = f32(g, width, inner, 1, 1, CONT);
    PUSH(g, id, sx, c);
}

void gen_op_ssm_scan(struct gen *g, enum call_id id) {
    const int64_t state = gen_dim(g), dim = gen_dim(g), groups = pick(g, 1, 3), heads = groups * pick(g, 1, 3);
    const int64_t tokens = gen_dim(g), seqs = pick(g, 1, 3);
    const enum layout layout = chance(g, 80) ? CONT : ROWS;
    const int s = f32(g, state, dim, heads, seqs + pick(g, 0, 2), layout);
    const int x = f32(g, dim, heads, tokens, seqs, layout);
    const int dt = f32(g, heads, tokens, seqs, 1, layout);
    const bool scalar_a = chance(g, 60);
    const int a = f32(g, scalar_a ? 1 : state, heads, 1, 1, layout);
    const int b = f32(g, state, groups, tokens, seqs, layout);
    const int c = f32(g, state, groups, tokens, seqs, layout);
    const int ids = gen_tensor(g, GGML_TYPE_I32, shape4(seqs, 1, 1, 1), CONT);
    PUSH(g, id, s, x, dt, a, b, c, ids, scalar_a && chance(g, 60) ? pick(g, 1, 12) : 1);
}

void gen_op_win_part(struct gen *g, enum call_id id) {
    const int a = f32(g, gen_dim(g), gen_dim(g), gen_dim(g), 1, ANY);
    PUSH(g, id, a, pick(g, 1, 8));
}

void gen_op_win_unpart(struct gen *g, enum call_id id) {
    const int64_t w = pick(g, 1, 8);
    const int a = f32(g, gen_dim(g), w, w, gen_dim(g), ANY);
    PUSH(g, id, a, pick(g, 1, 16), pick(g, 1, 16), w);
}

void gen_op_get_rel_pos(struct gen *g, enum call_id id) {
    const int64_t n = pick(g, 1, 16);
    const int a = gen_tensor(g, chance(g, 60) ? GGML_TYPE_F16 : gen_type_float(g), shape4(gen_dim(g), 2 * n - 1, 1, 1), ROWS);
    PUSH(g, id, a, n, n);
}

void gen_op_add_rel_pos(struct gen *g, enum call_id id) {
    const int64_t n = pick(g, 1, 5), h = pick(g, 1, 4), w = pick(g, 1, 4), c = gen_dim(g);
    const int a = f32(g, n * n, h * w, c, 1, CONT);
    const int pw = f32(g, n, h, w, c, CONT);
    const int ph = f32(g, n, h, w, c, CONT);
    PUSH(g, id, a, pw, ph);
}

// rwkv_wkv6, rwkv_wkv7, gated_linear_attn: tensors of one shape and a state.
void gen_op_rwkv(struct gen *g, enum call_id id) {
    const char *kinds = call_table[id].kinds;
    const int64_t size = gen_dim(g), heads = gen_dim(g), seqs = pick(g, 1, 3), tokens = seqs * pick(g, 1, 4);
    int64_t args[CALL_MAX_ARGS] = {0};
    int k = 0;
    for (; kinds[k + 1] == 'T'; k++) {
        args[k] = f32(g, size, heads, tokens, 1, CONT);
    }
    args[k++] = chance(g, 90) ? f32(g, size * size * heads, seqs, 1, 1, CONT) : f32(g, size, size, heads, seqs, CONT);
    if (kinds[k] == 'F') {
        args[k++] = gen_float(g);
    }
    gen_push(g, id, args, (size_t) k);
}

void gen_op_solve_tri(struct gen *g, enum call_id id) {
    const int64_t n = gen_dim(g), n2 = gen_dim(g), n3 = gen_dim(g);
    const int a = f32(g, n, n, n2, n3, CONT);
    const int b = f32(g, gen_dim(g), n, n2, n3, CONT);
    PUSH(g, id, a, b, 1, 1, 0);
}

void gen_op_gated_delta_net(struct gen *g, enum call_id id) {
    const int64_t size = gen_dim(g), groups = pick(g, 1, 3), heads = groups * pick(g, 1, 3), tokens = gen_dim(g),
                  seqs = pick(g, 1, 3);
    const int q = f32(g, size, groups, tokens, seqs, CONT);
    const int k = f32(g, size, groups, tokens, seqs, CONT);
    const int v = f32(g, size, heads, tokens, seqs, CONT);
    const int gate = f32(g, chance(g, 50) ? 1 : size, heads, tokens, seqs, CONT);
    const int beta = f32(g, 1, heads, tokens, seqs, CONT);
    const int state = f32(g, size, size, heads, seqs, CONT);
    PUSH(g, id, q, k, v, gate, beta, state, pick(g, 1, 4));
}

void gen_op_lightning_indexer(struct gen *g, enum call_id id) {
    const int64_t size = gen_dim(g), heads = gen_dim(g), tokens = gen_dim(g), kv = gen_dim(g), batch = pick(g, 1, 2);
    const int q = f32(g, size, heads, tokens, batch, CONT);
    const int k = gen_tensor(g, gen_type_float(g), shape4(size, 1, kv, batch), CONT);
    const int weights = f32(g, heads, tokens, 1, batch, CONT);
    const int mask = gen_tensor(g, GGML_TYPE_F16, shape4(kv, tokens, 1, batch), CONT);
    PUSH(g, id, q, k, weights, mask);
}

void gen_op_dsv4_comb(struct gen *g, enum call_id id) {
    const int64_t n = chance(g, 95) ? 4 : pick(g, 1, 5), tokens = gen_dim(g);
    const int mixes = f32(g, n * n + 2 * n, tokens, 1, 1, CONT);
    const int scale = f32(g, 3, 1, 1, 1, CONT);
    const int base = f32(g, n * n + 2 * n, 1, 1, 1, CONT);
    PUSH(g, id, mixes, scale, base, gen_float(g), pick(g, 1, 20));
}

void gen_op_dsv4_pre(struct gen *g, enum call_id id) {
    const int64_t n = pick(g, 1, 4), tokens = gen_dim(g);
    const int x = f32(g, gen_dim(g), n, tokens, 1, CONT);
    const int weights = f32(g, n, tokens, 1, 1, CONT);
    PUSH(g, id, x, weights);
}

void gen_op_dsv4_pre_gated(struct gen *g, enum call_id id) {
    const int64_t size = gen_dim(g), n = pick(g, 1, 4), tokens = gen_dim(g);
    const int x = f32(g, size, n, tokens, 1, ROWS);
    const int gate = f32(g, size, n, tokens, 1, ROWS);
    PUSH(g, id, x, gate, gen_float(g));
}

void gen_op_dsv4_post(struct gen *g, enum call_id id) {
    const int64_t n = pick(g, 1, 4), tokens = gen_dim(g), size = gen_dim(g);
    const int x = f32(g, size, tokens, 1, 1, CONT);
    const int residual = f32(g, size, n, tokens, 1, CONT);
    const int post = f32(g, n, tokens, 1, 1, CONT);
    const int comb = chance(g, 30) ? -1 : f32(g, n, n, tokens, 1, CONT);
    PUSH(g, id, x, residual, post, comb);
}
