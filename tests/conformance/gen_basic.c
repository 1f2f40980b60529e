// SPDX-License-Identifier: MIT
// gen_basic.c: valid argument sets for tensors, views, elementwise ops, reductions and matrix products.
#include "gen.h"

#include <string.h>

// Fills the arguments from number `from` on with random values. The letters are the kinds of calls.inc.
static void args_fill(struct gen *g, enum call_id id, int64_t *args, int from) {
    const char *kinds = call_table[id].kinds;
    for (int i = from; kinds[i] != 0; i++) {
        switch (kinds[i]) {
            case 'F': args[i] = gen_float(g); break;
            case 'B': args[i] = pick(g, 0, 1); break;
            case 'E': args[i] = gen_type(g); break;
            case 'P': args[i] = pick(g, 1, 1000) * 16; break;
            case 'T': args[i] = -1; break;
            case 'Z': args[i] = pick(g, 0, RECIPE_NAMES - 1); break;
            default: args[i] = pick(g, 0, 3); break;
        }
    }
}

static void call_push_filled(struct gen *g, enum call_id id, int64_t *args, int from) {
    args_fill(g, id, args, from);
    gen_push(g, id, args, strlen(call_table[id].kinds));
}

// All tensor arguments have this type, shape and layout.
static void push_same(struct gen *g, enum call_id id, enum ggml_type type, struct shape s, enum layout layout) {
    const char *kinds = call_table[id].kinds;
    int64_t args[CALL_MAX_ARGS] = {0};
    int n = 0;
    for (; kinds[n] == 'T'; n++) {
        args[n] = gen_tensor(g, type, s, layout);
    }
    call_push_filled(g, id, args, n);
}

void gen_op_any(struct gen *g, enum call_id id) {
    const enum ggml_type type = chance(g, 70) ? gen_type_float(g) : gen_type(g);
    struct shape s = shape_fit(gen_shape(g), type);
    push_same(g, id, type, s, chance(g, 60) ? CONT : chance(g, 60) ? ROWS : ANY);
}

void gen_op_f32(struct gen *g, enum call_id id) {
    push_same(g, id, GGML_TYPE_F32, gen_shape(g), chance(g, 80) ? CONT : ANY);
}

void gen_op_mostly_f32(struct gen *g, enum call_id id) {
    push_same(g, id, chance(g, 80) ? GGML_TYPE_F32 : gen_type_float(g), gen_shape(g), chance(g, 70) ? CONT : ANY);
}

void gen_op_argsort(struct gen *g, enum call_id id) {
    const int a = gen_tensor(g, chance(g, 80) ? GGML_TYPE_F32 : gen_type_float(g), gen_shape(g), chance(g, 80) ? CONT : ANY);
    PUSH(g, id, a, pick(g, 0, 1));
}

void gen_op_matrix(struct gen *g, enum call_id id) {
    push_same(g, id, gen_type_float(g), shape4(gen_dim(g), gen_dim(g), 1, 1), chance(g, 80) ? CONT : ANY);
}

void gen_op_new(struct gen *g, enum call_id id) {
    const char *kinds = call_table[id].kinds;
    const enum ggml_type type = gen_type(g);
    const struct shape s = shape_fit(gen_shape(g), type);
    int64_t args[CALL_MAX_ARGS] = {type};
    if (chance(g, 20)) { // creates another tensor first, so that the arena is not empty
        gen_tensor(g, GGML_TYPE_F32, gen_shape(g), ANY);
    }
    int k = 1;
    if (kinds[1] == 'I') {
        args[k++] = pick(g, 1, 4);
    }
    for (int i = 0; kinds[k] != 0; k++, i++) {
        args[k] = chance(g, 3) ? 0 : s.ne[i];
    }
    gen_push(g, id, args, (size_t) k);
}

// ---- elementwise ops ----

// Returns a shape that can be repeated to s.
static struct shape divisor_shape(struct gen *g, struct shape s) {
    for (int i = 0; i < 4; i++) {
        if (chance(g, 30)) {
            s.ne[i] = 1;
        } else if (s.ne[i] % 2 == 0 && chance(g, 20)) {
            s.ne[i] /= 2;
        }
    }
    return s;
}

static struct shape multiple_shape(struct gen *g, struct shape s) {
    for (int i = 0; i < 4; i++) {
        s.ne[i] *= chance(g, 50) ? 1 : pick(g, 1, 3);
    }
    return s;
}

void gen_op_param(struct gen *g, enum call_id id) {
    PUSH(g, id, gen_new(g, gen_type_float(g), gen_shape(g)));
}

void gen_op_loss(struct gen *g, enum call_id id) {
    PUSH(g, id, gen_tensor(g, GGML_TYPE_F32, shape4(1, 1, 1, 1), CONT));
}

void gen_op_bcast(struct gen *g, enum call_id id) {
    const struct shape s = gen_shape(g);
    const int a = gen_tensor(g, gen_type_float(g), s, ANY);
    const int b = chance(g, 10) ? a : gen_tensor(g, gen_type_float(g), divisor_shape(g, s), ANY);
    PUSH(g, id, a, b);
}

void gen_op_add_cast(struct gen *g, enum call_id id) {
    const enum ggml_type type = chance(g, 10) ? gen_type(g) : chance(g, 50) ? GGML_TYPE_F16 : GGML_TYPE_Q8_0;
    const struct shape s = shape_fit(gen_shape(g), type);
    struct shape sb = divisor_shape(g, s);
    sb.ne[0] = s.ne[0];
    const int a = gen_tensor(g, type, s, ROWS);
    const int b = gen_tensor(g, GGML_TYPE_F32, sb, ROWS);
    PUSH(g, id, a, b, gen_type_float(g));
}

void gen_op_add_id(struct gen *g, enum call_id id) {
    const int64_t n = gen_dim(g), used = gen_dim(g), tokens = gen_dim(g);
    const int a = gen_tensor(g, GGML_TYPE_F32, shape4(n, used, tokens, 1), ROWS);
    const int b = gen_tensor(g, GGML_TYPE_F32, shape4(n, gen_dim(g), 1, 1), ROWS);
    const int ids = gen_tensor(g, GGML_TYPE_I32, shape4(used, tokens, 1, 1), ROWS);
    PUSH(g, id, a, b, ids);
}

void gen_op_add1(struct gen *g, enum call_id id) {
    const int a = gen_tensor(g, gen_type_float(g), gen_shape(g), chance(g, 80) ? CONT : ROWS);
    const int b = gen_tensor(g, gen_type_float(g), shape4(1, 1, 1, 1), CONT);
    PUSH(g, id, a, b);
}

// The arguments after a and b are the strides and the offset of the part of a to which b is written.
void gen_op_acc(struct gen *g, enum call_id id) {
    const struct shape s = gen_shape(g);
    const struct shape sb = divisor_shape(g, s);
    const int a = gen_tensor(g, GGML_TYPE_F32, s, CONT);
    const int b = gen_tensor(g, GGML_TYPE_F32, sb, ANY);
    const int64_t nb1 = 4 * s.ne[0], nb2 = nb1 * s.ne[1], nb3 = nb2 * s.ne[2];
    PUSH(g, id, a, b, nb1, nb2, nb3, 4 * pick(g, 0, shape_count(s) - shape_count(sb)));
}

void gen_op_set_1d(struct gen *g, enum call_id id) {
    const int64_t n = gen_dim(g) + 4, nb = pick(g, 1, n);
    const int a = gen_tensor(g, gen_type_float(g), shape4(n, 1, 1, 1), CONT);
    const int b = gen_tensor(g, gen_type_float(g), shape4(nb, 1, 1, 1), ANY);
    PUSH(g, id, a, b, 4 * pick(g, 0, n - nb));
}

void gen_op_set_2d(struct gen *g, enum call_id id) {
    const int64_t n0 = gen_dim(g), n1 = gen_dim(g);
    const int a = gen_tensor(g, gen_type_float(g), shape4(n0, n1, 1, 1), CONT);
    const int b = gen_tensor(g, gen_type_float(g), shape4(pick(g, 1, n0), pick(g, 1, n1), 1, 1), ANY);
    PUSH(g, id, a, b, 4 * n0, 4 * pick(g, 0, 2));
}

// ---- repetition ----

void gen_op_repeat(struct gen *g, enum call_id id) {
    const struct shape s = gen_shape(g);
    const int a = gen_tensor(g, gen_type_float(g), s, ANY);
    const int b = gen_tensor(g, gen_type_float(g), multiple_shape(g, s), ANY);
    PUSH(g, id, a, b);
}

void gen_op_repeat_4d(struct gen *g, enum call_id id) {
    const struct shape s = gen_shape(g);
    const struct shape m = multiple_shape(g, s);
    const int a = gen_tensor(g, gen_type_float(g), s, ANY);
    PUSH(g, id, a, m.ne[0], m.ne[1], m.ne[2], m.ne[3]);
}

void gen_op_repeat_back(struct gen *g, enum call_id id) {
    const struct shape s = gen_shape(g);
    const int a = gen_tensor(g, gen_type_float(g), multiple_shape(g, s), ANY);
    const int b = gen_tensor(g, gen_type_float(g), s, ANY);
    PUSH(g, id, a, b);
}

void gen_op_concat(struct gen *g, enum call_id id) {
    const enum ggml_type type = gen_type(g);
    const struct shape s = shape_fit(gen_shape(g), type);
    const int dim = (int) pick(g, 0, 3);
    struct shape sb = s;
    sb.ne[dim] = dim == 0 ? type_block(type) * pick(g, 1, 3) : gen_dim(g);
    const int a = gen_tensor(g, type, s, ANY);
    const int b = gen_tensor(g, type, sb, ANY);
    PUSH(g, id, a, b, dim);
}

void gen_op_diag(struct gen *g, enum call_id id) {
    push_same(g, id, chance(g, 80) ? GGML_TYPE_F32 : gen_type_float(g), shape4(gen_dim(g), 1, gen_dim(g), gen_dim(g)), ANY);
}

void gen_op_tri(struct gen *g, enum call_id id) {
    const int64_t n = gen_dim(g);
    const int a = gen_tensor(g, chance(g, 80) ? GGML_TYPE_F32 : gen_type_float(g), shape4(n, n, gen_dim(g), gen_dim(g)), CONT);
    PUSH(g, id, a, pick(g, 0, 3));
}

// ---- shapes and views ----

// Returns another shape of n_dims dimensions with the same elements. ne[0] stays a multiple of the block size.
static struct shape reshaped(struct gen *g, struct shape s, int n_dims, enum ggml_type type) {
    int64_t rest = shape_count(s) / type_block(type);
    struct shape out = {{1, 1, 1, 1}};
    for (int i = n_dims - 1; i > 0; i--) {
        for (int64_t f = 2; f <= 7; f++) {
            if (rest % f == 0 && chance(g, 40)) {
                out.ne[i] *= f;
                rest /= f;
            }
        }
    }
    out.ne[0] = rest * type_block(type);
    return out;
}

static void push_reshape(struct gen *g, enum call_id id, enum layout layout) {
    const int n_dims = (int) strlen(call_table[id].kinds) - 1;
    const enum ggml_type type = gen_type(g);
    const struct shape s = shape_fit(gen_shape(g), type);
    const struct shape to = reshaped(g, s, n_dims, type);
    const int a = gen_tensor(g, type, s, layout);
    gen_push(g, id, (int64_t[]){a, to.ne[0], to.ne[1], to.ne[2], to.ne[3]}, (size_t) n_dims + 1);
}

void gen_op_cont_nd(struct gen *g, enum call_id id) {
    push_reshape(g, id, ANY);
}

void gen_op_reshape_nd(struct gen *g, enum call_id id) {
    push_reshape(g, id, CONT);
}

void gen_op_reshape(struct gen *g, enum call_id id) {
    const enum ggml_type type = gen_type(g);
    const struct shape s = shape_fit(gen_shape(g), type);
    const int a = gen_tensor(g, type, s, CONT);
    const int b = gen_tensor(g, type, reshaped(g, s, 4, type), ANY);
    PUSH(g, id, a, b);
}

void gen_op_view_nd(struct gen *g, enum call_id id) {
    const int n_dims = ((int) strlen(call_table[id].kinds) - 1) / 2;
    const enum ggml_type type = gen_type(g);
    const struct shape s = shape_fit(gen_shape(g), type);
    const int64_t block = type_block(type), bytes = type_bytes(type);
    const int a = gen_tensor(g, type, s, chance(g, 70) ? CONT : ANY);
    int64_t args[CALL_MAX_ARGS] = {a};
    int64_t nb = s.ne[0] / block * bytes, offset = 0, k = 1;
    const int64_t ne0 = block * pick(g, 1, s.ne[0] / block);
    args[k++] = ne0;
    offset += bytes * pick(g, 0, (s.ne[0] - ne0) / block);
    for (int i = 1; i < n_dims; i++) {
        args[k] = pick(g, chance(g, 3) ? 0 : 1, s.ne[i]);
        offset += nb * (s.ne[i] - args[k]) * pick(g, 0, 1);
        nb *= s.ne[i];
        k++;
    }
    nb = s.ne[0] / block * bytes;
    for (int i = 1; i < n_dims; i++) {
        args[k++] = nb;
        nb *= s.ne[i];
    }
    args[k++] = offset;
    gen_push(g, id, args, (size_t) k);
}

void gen_op_permute(struct gen *g, enum call_id id) {
    const enum ggml_type type = gen_type(g);
    const int a = gen_tensor(g, type, shape_fit(gen_shape(g), type), ANY);
    int64_t axes[4] = {0, 1, 2, 3};
    for (int i = 3; i > 0; i--) {
        const int j = (int) pick(g, 0, i);
        const int64_t t = axes[i];
        axes[i] = axes[j];
        axes[j] = t;
    }
    PUSH(g, id, a, axes[0], axes[1], axes[2], axes[3]);
}

void gen_op_cpy(struct gen *g, enum call_id id) {
    const enum ggml_type type = chance(g, 70) ? gen_type_float(g) : gen_type_mat(g);
    const struct shape s = shape_fit(gen_shape(g), type);
    const int a = gen_tensor(g, gen_type_float(g), s, ANY);
    const int b = gen_tensor(g, type, chance(g, 70) ? s : reshaped(g, s, 4, type), ANY);
    PUSH(g, id, a, b);
}

void gen_op_cast(struct gen *g, enum call_id id) {
    const enum ggml_type type = gen_type(g);
    const int a = gen_tensor(g, gen_type_float(g), shape_fit(gen_shape(g), type), ANY);
    PUSH(g, id, a, type);
}

// ---- matrix products and rows ----

void gen_op_mul_mat(struct gen *g, enum call_id id) {
    const enum ggml_type type = gen_type_mat(g);
    const struct shape s = shape_fit(gen_shape(g), type);
    const int a = gen_tensor(g, type, s, ROWS);
    const int b =
        gen_tensor(g, gen_type_float(g), shape4(s.ne[0], gen_dim(g), s.ne[2] * pick(g, 1, 3), s.ne[3] * pick(g, 1, 3)), ANY);
    PUSH(g, id, a, b);
}

void gen_op_mul_mat_id(struct gen *g, enum call_id id) {
    const enum ggml_type type = gen_type_mat(g);
    const struct shape s = shape_fit(shape4(gen_dim(g), gen_dim(g), pick(g, 2, 8), 1), type);
    const int64_t used = pick(g, 1, s.ne[2]), tokens = gen_dim(g);
    const int as = gen_tensor(g, type, s, ROWS);
    const int b = gen_tensor(g, GGML_TYPE_F32, shape4(s.ne[0], chance(g, 50) ? used : 1, tokens, 1), ANY);
    const int ids = gen_tensor(g, GGML_TYPE_I32, shape4(used, tokens, 1, 1), ROWS);
    PUSH(g, id, as, b, ids);
}

void gen_op_out_prod(struct gen *g, enum call_id id) {
    const int64_t n = gen_dim(g), n2 = gen_dim(g), n3 = gen_dim(g);
    const enum ggml_type type = gen_type_mat(g);
    const int a = gen_tensor(g, type, shape_fit(shape4(gen_dim(g), n, n2, n3), type), ROWS);
    const int b = gen_tensor(g, GGML_TYPE_F32, shape4(gen_dim(g), n, n2 * pick(g, 1, 2), n3 * pick(g, 1, 2)), ANY);
    PUSH(g, id, a, b);
}

void gen_op_get_rows(struct gen *g, enum call_id id) {
    const enum ggml_type type = chance(g, 70) ? gen_type_mat(g) : gen_type(g);
    const struct shape s = shape_fit(gen_shape(g), type);
    const int a = gen_tensor(g, type, s, ROWS);
    const int b = gen_tensor(g, GGML_TYPE_I32, shape4(gen_dim(g), s.ne[2], s.ne[3], 1), ANY);
    PUSH(g, id, a, b);
}

void gen_op_get_rows_back(struct gen *g, enum call_id id) {
    const int64_t n = gen_dim(g), rows = gen_dim(g);
    const int a = gen_tensor(g, gen_type_float(g), shape4(n, rows, 1, 1), ROWS);
    const int b = gen_tensor(g, GGML_TYPE_I32, shape4(rows, 1, 1, 1), CONT);
    const int c = gen_tensor(g, gen_type_float(g), shape4(n, gen_dim(g), 1, 1), ROWS);
    PUSH(g, id, a, b, c);
}

void gen_op_set_rows(struct gen *g, enum call_id id) {
    const enum ggml_type type = chance(g, 70) ? gen_type_mat(g) : gen_type(g);
    const struct shape s = shape_fit(gen_shape(g), type);
    const int64_t rows = gen_dim(g);
    const int a = gen_tensor(g, type, s, ROWS);
    const int b = gen_tensor(g, chance(g, 80) ? GGML_TYPE_F32 : gen_type_float(g), shape4(s.ne[0], rows, s.ne[2], s.ne[3]), ROWS);
    const int c = gen_tensor(g, chance(g, 60) ? GGML_TYPE_I64 : GGML_TYPE_I32,
        shape4(rows, chance(g, 50) ? s.ne[2] : 1, chance(g, 50) ? s.ne[3] : 1, 1), CONT);
    PUSH(g, id, a, b, c);
}

// ---- activations and norms with parameters ----

void gen_op_unary_op(struct gen *g, enum call_id id) {
    const int a = gen_tensor(g, gen_type_float(g), gen_shape(g), chance(g, 80) ? ROWS : ANY);
    PUSH(g, id, a, pick(g, 0, GGML_UNARY_OP_COUNT - 1));
}

void gen_op_glu(struct gen *g, enum call_id id) {
    const int a = gen_tensor(g, gen_type_float(g), gen_shape(g), chance(g, 80) ? CONT : ANY);
    PUSH(g, id, a, pick(g, 0, GGML_GLU_OP_COUNT - 1), pick(g, 0, 1));
}

void gen_op_glu_split(struct gen *g, enum call_id id) {
    const struct shape s = gen_shape(g);
    const enum ggml_type type = gen_type_float(g);
    const int a = gen_tensor(g, type, s, chance(g, 80) ? CONT : ROWS);
    const int b = gen_tensor(g, chance(g, 95) ? type : gen_type_float(g), s, chance(g, 80) ? CONT : ROWS);
    int64_t args[CALL_MAX_ARGS] = {a, b, pick(g, 0, GGML_GLU_OP_COUNT - 1)};
    if (call_table[id].kinds[2] == 'F') {
        args_fill(g, id, args, 2);
    }
    gen_push(g, id, args, strlen(call_table[id].kinds));
}

void gen_op_group_norm(struct gen *g, enum call_id id) {
    const int a = gen_tensor(g, gen_type_float(g), gen_shape(g), ROWS);
    PUSH(g, id, a, pick(g, 1, 32), gen_float(g));
}

void gen_op_soft_max_ext(struct gen *g, enum call_id id) {
    const struct shape s = gen_shape(g);
    const bool masked = chance(g, 75);
    const int a = gen_tensor(g, chance(g, 85) ? GGML_TYPE_F32 : gen_type_float(g), s, CONT);
    const int mask =
        !masked ? -1
                : gen_tensor(g, chance(g, 50) ? GGML_TYPE_F16 : GGML_TYPE_F32,
                      shape4(s.ne[0], s.ne[1] + pick(g, 0, 2), chance(g, 50) ? s.ne[2] : 1, chance(g, 50) ? s.ne[3] : 1), CONT);
    PUSH(g, id, a, mask, gen_float(g), masked && chance(g, 50) ? float_bits(8.0f) : 0);
}

// ---- custom ops ----

static int64_t n_tasks(struct gen *g) {
    return chance(g, 50) ? -1 : pick(g, 1, 8);
}

void gen_op_map_custom(struct gen *g, enum call_id id) {
    const char *kinds = call_table[id].kinds;
    int64_t args[CALL_MAX_ARGS] = {0};
    int k = 0;
    for (; kinds[k] == 'T'; k++) {
        const enum ggml_type type = gen_type(g);
        args[k] = gen_tensor(g, type, shape_fit(gen_shape(g), type), ANY);
    }
    args[k++] = chance(g, 3) ? 0 : pick(g, 1, 1 << 20) * 16;
    args[k++] = n_tasks(g);
    args[k++] = chance(g, 30) ? 0 : pick(g, 1, 1 << 20) * 16;
    gen_push(g, id, args, (size_t) k);
}

static void push_custom(struct gen *g, enum call_id id, int64_t *args, int k, int n) {
    args[k++] = n;
    args[k++] = chance(g, 3) ? 0 : pick(g, 1, 1 << 20) * 16;
    args[k++] = n_tasks(g);
    args[k++] = chance(g, 30) ? 0 : pick(g, 1, 1 << 20) * 16;
    for (int i = 0; i < CALL_MAX_LIST; i++) {
        args[k++] = i < n ? gen_tensor(g, gen_type_float(g), gen_shape(g), ANY) : -1;
    }
    gen_push(g, id, args, (size_t) k);
}

void gen_op_custom_4d(struct gen *g, enum call_id id) {
    const enum ggml_type type = gen_type(g);
    const struct shape s = shape_fit(gen_shape(g), type);
    push_custom(g, id, (int64_t[CALL_MAX_ARGS]){type, s.ne[0], s.ne[1], s.ne[2], s.ne[3]}, 5, (int) pick(g, 0, GGML_MAX_SRC));
}

void gen_op_custom_inplace(struct gen *g, enum call_id id) {
    const int a = gen_tensor(g, gen_type_float(g), gen_shape(g), ANY);
    push_custom(g, id, (int64_t[CALL_MAX_ARGS]){a}, 1, (int) pick(g, 0, GGML_MAX_SRC - 1));
}

// ---- training ----

void gen_op_xent_back(struct gen *g, enum call_id id) {
    const struct shape s = gen_shape(g);
    const int a = gen_tensor(g, GGML_TYPE_F32, shape4(1, 1, 1, 1), CONT);
    const int b = gen_tensor(g, GGML_TYPE_F32, s, ROWS);
    const int c = gen_tensor(g, GGML_TYPE_F32, s, ROWS);
    PUSH(g, id, a, b, c);
}

void gen_op_adamw(struct gen *g, enum call_id id) {
    const struct shape s = gen_shape(g);
    const int a = gen_new(g, GGML_TYPE_F32, s);
    const int grad = gen_tensor(g, GGML_TYPE_F32, s, ROWS);
    const int m = gen_tensor(g, GGML_TYPE_F32, s, CONT);
    const int v = gen_tensor(g, GGML_TYPE_F32, s, CONT);
    const int params = gen_tensor(g, GGML_TYPE_F32, shape4(7, 1, 1, 1), CONT);
    if (chance(g, 95)) {
        PUSH(g, CALL_ggml_set_param, a);
    }
    PUSH(g, id, a, grad, m, v, params);
}

void gen_op_sgd(struct gen *g, enum call_id id) {
    const struct shape s = gen_shape(g);
    const int a = gen_new(g, GGML_TYPE_F32, s);
    const int grad = gen_tensor(g, GGML_TYPE_F32, s, CONT);
    const int params = gen_tensor(g, GGML_TYPE_F32, shape4(2, 1, 1, 1), CONT);
    if (chance(g, 95)) {
        PUSH(g, CALL_ggml_set_param, a);
    }
    PUSH(g, id, a, grad, params);
}
