// SPDX-License-Identifier: MIT
// gen_query.c: argument sets for setters and queries.
#include "gen.h"

#include <string.h>

static int random_tensor(struct gen *g) {
    const enum ggml_type type = gen_type(g);
    struct shape s = shape_fit(gen_shape(g), type);
    if (chance(g, 5)) {
        s.ne[pick(g, 1, 3)] = 0;
    }
    return gen_tensor(g, type, s, ANY);
}

// ---- setters ----

void gen_op_set_prec(struct gen *g, enum call_id id) {
    gen_op_mul_mat(g, CALL_ggml_mul_mat);
    PUSH(g, id, g->r->n_calls - 1, chance(g, 50) ? GGML_PREC_F32 : GGML_PREC_DEFAULT);
}

void gen_op_set_hint(struct gen *g, enum call_id id) {
    gen_op_mul_mat(g, CALL_ggml_mul_mat);
    PUSH(g, id, g->r->n_calls - 1, pick(g, 0, 1));
}

void gen_op_set_fa_prec(struct gen *g, enum call_id id) {
    gen_op_flash_attn_ext(g, CALL_ggml_flash_attn_ext);
    PUSH(g, id, g->r->n_calls - 1, chance(g, 50) ? GGML_PREC_F32 : GGML_PREC_DEFAULT);
}

// Pushes a call that creates a tensor, in most cases of an op that has a precision.
static void push_prec(struct gen *g) {
    if (chance(g, 40)) {
        gen_op_mul_mat(g, CALL_ggml_mul_mat);
    } else if (chance(g, 50)) {
        gen_op_mul_mat_id(g, CALL_ggml_mul_mat_id);
    } else if (chance(g, 70)) {
        gen_op_flash_attn_ext(g, CALL_ggml_flash_attn_ext);
    } else {
        gen_op_any(g, CALL_ggml_sqr);
    }
}

static const int precisions[] = {GGML_PREC_DEFAULT, GGML_PREC_F32, GGML_PREC_BF16, GGML_PREC_F16, GGML_PREC_Q8, GGML_PREC_Q4};

void gen_op_prec_acc(struct gen *g, enum call_id id) {
    push_prec(g);
    PUSH(g, id, g->r->n_calls - 1, PICK_OF(g, precisions));
}

void gen_op_prec_src(struct gen *g, enum call_id id) {
    push_prec(g);
    PUSH(g, id, g->r->n_calls - 1, PICK_OF(g, precisions), chance(g, 60) ? 1 : pick(g, 0, GGML_MAX_SRC - 1));
}

void gen_op_n_kv_max(struct gen *g, enum call_id id) {
    gen_op_flash_attn_ext(g, CALL_ggml_flash_attn_ext);
    PUSH(g, id, g->r->n_calls - 1, pick(g, 0, 1000));
}

// Returns ne[2], the number of heads, of the tensor that call i returned. It is derived from the calls that created the tensor.
static int64_t heads_of(const struct recipe *r, int64_t i) {
    int axis = 2;
    for (;;) {
        const struct call *c = &r->calls[i];
        switch (c->id) {
            case CALL_ggml_new_tensor_1d:
            case CALL_ggml_new_tensor_2d:
            case CALL_ggml_new_tensor_3d:
            case CALL_ggml_new_tensor_4d: return axis + 1 < c->n_args ? c->args[axis + 1] : 1;
            case CALL_ggml_view_4d:
            case CALL_ggml_reshape_4d: return c->args[axis + 1];
            case CALL_ggml_permute: {
                int k = 0;
                while (k < 3 && c->args[k + 1] != axis) {
                    k++;
                }
                axis = k;
                i = c->args[0];
                break;
            }
            case CALL_ggml_transpose:
            case CALL_ggml_silu:
            case CALL_ggml_set_name: i = c->args[0]; break;
            default: return 1;
        }
    }
}

static void push_sinks(struct gen *g, enum call_id id, enum call_id of, gen_function *make) {
    make(g, of);
    const int a = g->r->n_calls - 1;
    const int64_t ne = heads_of(g->r, g->r->calls[a].args[0]);
    const int sinks = chance(g, 5) ? -1 : gen_tensor(g, GGML_TYPE_F32, shape4(ne, 1, 1, 1), CONT);
    PUSH(g, id, a, sinks);
}

void gen_op_add_fa_sinks(struct gen *g, enum call_id id) {
    push_sinks(g, id, CALL_ggml_flash_attn_ext, gen_op_flash_attn_ext);
}

void gen_op_add_sinks(struct gen *g, enum call_id id) {
    push_sinks(g, id, CALL_ggml_soft_max_ext, gen_op_soft_max_ext);
}

void gen_op_name(struct gen *g, enum call_id id) {
    const int t = random_tensor(g);
    int64_t args[CALL_MAX_ARGS] = {t, pick(g, 0, RECIPE_NAMES - 1), pick(g, -5, 100)};
    gen_push(g, id, args, strlen(call_table[id].kinds));
    if (chance(g, 50)) { // a name derived from a name
        PUSH(g, chance(g, 50) ? CALL_ggml_view_tensor : CALL_ggml_cont, t);
        gen_push(g, id, args, strlen(call_table[id].kinds));
    }
}

void gen_op_get_tensor(struct gen *g, enum call_id id) {
    for (int64_t n = pick(g, 0, 6); n > 0; n--) {
        PUSH(g, CALL_ggml_set_name, random_tensor(g), pick(g, 0, RECIPE_NAMES - 1));
    }
    PUSH(g, id, pick(g, 0, RECIPE_NAMES - 1));
}

// ---- queries on tensors ----

void gen_op_query(struct gen *g, enum call_id id) {
    int t = random_tensor(g);
    if (chance(g, 30)) { // a view with random extents
        t = PUSH(g, CALL_ggml_view_2d, t, pick(g, 1, 4), pick(g, 1, 3), 4 * pick(g, 0, 8), 0);
    }
    if (chance(g, 30)) {
        t = PUSH(g, CALL_ggml_permute, t, 1, 2, 0, 3);
    }
    PUSH(g, id, t);
}

void gen_op_query2(struct gen *g, enum call_id id) {
    const enum ggml_type type = gen_type_float(g);
    const struct shape s = gen_shape(g);
    struct shape s2 = s;
    for (int i = 0; i < 4; i++) {
        s2.ne[i] = chance(g, 70) ? s.ne[i] * pick(g, 1, 2) : s.ne[i];
        s2.ne[i] = chance(g, 5) ? 0 : s2.ne[i];
    }
    const int a = gen_tensor(g, type, s, ANY);
    const int b = gen_tensor(g, chance(g, 70) ? type : gen_type_float(g), chance(g, 40) ? s : s2, ANY);
    PUSH(g, id, a, b);
}

void gen_op_query_unary(struct gen *g, enum call_id id) {
    const int a = gen_tensor(g, GGML_TYPE_F32, gen_shape(g), CONT);
    PUSH(g, id, PUSH(g, CALL_ggml_unary, a, pick(g, 0, GGML_UNARY_OP_COUNT - 1)));
}

void gen_op_query_glu(struct gen *g, enum call_id id) {
    const int a = gen_tensor(g, GGML_TYPE_F32, gen_shape(g), CONT);
    PUSH(g, id, PUSH(g, CALL_ggml_glu, a, pick(g, 0, GGML_GLU_OP_COUNT - 1), 0));
}

void gen_op_query_op(struct gen *g, enum call_id id) {
    const int64_t sort = pick(g, 0, 2);
    if (sort == 0) {
        gen_op_query_unary(g, id);
    } else if (sort == 1) {
        gen_op_query_glu(g, id);
    } else {
        gen_op_query(g, id);
    }
}

void gen_op_query_fa(struct gen *g, enum call_id id) {
    gen_op_set_fa_prec(g, CALL_ggml_flash_attn_ext_set_prec);
    PUSH(g, id, g->r->calls[g->r->n_calls - 1].args[0]);
}

void gen_op_unravel(struct gen *g, enum call_id id) {
    const struct shape s = gen_shape(g);
    const int t = gen_tensor(g, gen_type_float(g), s, ANY);
    PUSH(g, id, t, pick(g, 0, shape_count(s) - 1));
}

void gen_op_walk(struct gen *g, enum call_id id) {
    for (int64_t n = pick(g, 0, 5); n > 0; n--) {
        if (chance(g, 20)) {
            PUSH(g, CALL_ggml_new_buffer, pick(g, 1, 100));
        }
        random_tensor(g);
    }
    int t = PUSH(g, CALL_ggml_get_first_tensor, 0);
    for (int64_t n = pick(g, 0, 3); n > 0 && g->r->n_calls > 8; n--) {
        t = PUSH(g, CALL_ggml_get_next_tensor, t);
    }
    if (id == CALL_ggml_get_next_tensor) {
        PUSH(g, id, t);
    }
}

// ---- queries on types, ops and contexts ----

void gen_op_type(struct gen *g, enum call_id id) {
    PUSH(g, id, chance(g, 80) ? (int64_t) gen_type(g) : pick(g, 0, REFERENCE_N_TYPES - 1));
}

void gen_op_row_size(struct gen *g, enum call_id id) {
    const enum ggml_type type = gen_type(g);
    PUSH(g, id, type, type_block(type) * pick(g, 0, 1000));
}

void gen_op_enum(struct gen *g, enum call_id id) {
    const int64_t last = id == CALL_ggml_unary_op_name        ? GGML_UNARY_OP_COUNT - 1
                         : id == CALL_ggml_glu_op_name        ? GGML_GLU_OP_COUNT - 1
                         : id == CALL_ggml_status_to_string   ? 1
                         : id == CALL_ggml_ftype_to_ggml_type ? GGML_FTYPE_MOSTLY_Q2_0
                                                              : REFERENCE_N_OPS - 1;
    PUSH(g, id, pick(g, id == CALL_ggml_status_to_string ? -2 : 0, last));
}

void gen_op_context(struct gen *g, enum call_id id) {
    for (int64_t n = pick(g, 0, 6); n > 0; n--) {
        random_tensor(g);
    }
    int64_t args[CALL_MAX_ARGS] = {pick(g, 0, 1)};
    gen_push(g, id, args, strlen(call_table[id].kinds));
    if (id == CALL_ggml_set_no_alloc || id == CALL_ggml_reset) {
        random_tensor(g);
        PUSH(g, CALL_ggml_get_no_alloc, 0);
        PUSH(g, CALL_ggml_used_mem, 0);
    }
}

void gen_op_graph_overhead(struct gen *g, enum call_id id) {
    PUSH(g, id, chance(g, 50) ? pick(g, 1, 100) : pick(g, 1, 300000), pick(g, 0, 1));
}

void gen_op_new_buffer(struct gen *g, enum call_id id) {
    random_tensor(g);
    PUSH(g, id, pick(g, 1, 5000));
}

void gen_op_yarn(struct gen *g, enum call_id id) {
    PUSH(g, id, 2 * pick(g, 1, 64), pick(g, 1, 1 << 20), float_bits((float) pick(g, 2, 1000000)),
        float_bits((float) pick(g, 1, 64)), float_bits((float) pick(g, 1, 64) / 16.0f));
}
