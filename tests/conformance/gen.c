// SPDX-License-Identifier: MIT
// gen.c: generates numbers, tensors of every layout, and the three sorts of recipes.
#include "gen.h"

#include <limits.h>
#include <math.h>
#include <string.h>

// ---- numbers ----

int64_t gen_dim(struct gen *g) {
    static const int64_t dims[] = {1, 1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 12, 16, 32};
    return PICK_OF(g, dims);
}

int64_t gen_float(struct gen *g) {
    static const float edges[] = {0.0f, -0.0f, 1.0f, -1.0f, 1e-5f, INFINITY, -INFINITY, 1e30f, 0.5f, 10000.0f};
    if (chance(g, 2)) {
        return 0x7fc00000; // NaN
    }
    return float_bits(chance(g, 40) ? PICK_OF(g, edges) : (float) pick(g, -1000, 1000) / 64.0f);
}

static const struct {
    enum ggml_type type;
    int block, bytes;
} types[] = {
    {GGML_TYPE_F32, 1, 4},
    {GGML_TYPE_F16, 1, 2},
    {GGML_TYPE_Q4_0, 32, 18},
    {GGML_TYPE_Q4_1, 32, 20},
    {GGML_TYPE_Q5_0, 32, 22},
    {GGML_TYPE_Q5_1, 32, 24},
    {GGML_TYPE_Q8_0, 32, 34},
    {GGML_TYPE_Q8_1, 32, 36},
    {GGML_TYPE_Q2_K, 256, 84},
    {GGML_TYPE_Q3_K, 256, 110},
    {GGML_TYPE_Q4_K, 256, 144},
    {GGML_TYPE_Q5_K, 256, 176},
    {GGML_TYPE_Q6_K, 256, 210},
    {GGML_TYPE_Q8_K, 256, 292},
    {GGML_TYPE_IQ2_XXS, 256, 66},
    {GGML_TYPE_IQ2_XS, 256, 74},
    {GGML_TYPE_IQ3_XXS, 256, 98},
    {GGML_TYPE_IQ1_S, 256, 50},
    {GGML_TYPE_IQ4_NL, 32, 18},
    {GGML_TYPE_IQ3_S, 256, 110},
    {GGML_TYPE_IQ2_S, 256, 82},
    {GGML_TYPE_IQ4_XS, 256, 136},
    {GGML_TYPE_I8, 1, 1},
    {GGML_TYPE_I16, 1, 2},
    {GGML_TYPE_I32, 1, 4},
    {GGML_TYPE_I64, 1, 8},
    {GGML_TYPE_F64, 1, 8},
    {GGML_TYPE_IQ1_M, 256, 56},
    {GGML_TYPE_BF16, 1, 2},
    {GGML_TYPE_TQ1_0, 256, 54},
    {GGML_TYPE_TQ2_0, 256, 66},
    {GGML_TYPE_MXFP4, 32, 17},
    {GGML_TYPE_NVFP4, 64, 36},
    {GGML_TYPE_Q1_0, 128, 18},
    {GGML_TYPE_Q2_0, 64, 18},
};

enum ggml_type gen_type(struct gen *g) {
    return chance(g, 40) ? gen_type_float(g) : types[pick(g, 0, (int64_t) (sizeof(types) / sizeof(types[0])) - 1)].type;
}

enum ggml_type gen_type_float(struct gen *g) {
    static const enum ggml_type list[] = {GGML_TYPE_F32, GGML_TYPE_F32, GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16};
    return PICK_OF(g, list);
}

enum ggml_type gen_type_mat(struct gen *g) {
    static const enum ggml_type list[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q4_0, GGML_TYPE_Q8_0,
        GGML_TYPE_Q4_K, GGML_TYPE_Q6_K, GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4, GGML_TYPE_NVFP4, GGML_TYPE_Q1_0, GGML_TYPE_TQ2_0};
    return PICK_OF(g, list);
}

bool type_exists(int64_t type) {
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if ((int64_t) types[i].type == type) {
            return true;
        }
    }
    return false;
}

int64_t type_block(enum ggml_type type) {
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (types[i].type == type) {
            return types[i].block;
        }
    }
    return 1;
}

int64_t type_bytes(enum ggml_type type) {
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (types[i].type == type) {
            return types[i].bytes;
        }
    }
    return 1;
}

// ---- tensors ----

struct shape gen_shape(struct gen *g) {
    struct shape s = {{1, 1, 1, 1}};
    const int n_dims = (int) pick(g, 1, 4);
    for (int i = 0; i < n_dims; i++) {
        s.ne[i] = gen_dim(g);
    }
    return s;
}

struct shape shape_fit(struct shape s, enum ggml_type type) {
    const int64_t block = type_block(type);
    s.ne[0] = (s.ne[0] + block - 1) / block * block;
    return s;
}

int64_t shape_count(struct shape s) {
    return s.ne[0] * s.ne[1] * s.ne[2] * s.ne[3];
}

int gen_push(struct gen *g, enum call_id id, const int64_t *args, size_t n) {
    const int i = recipe_push(g->r, id);
    memcpy(g->r->calls[i].args, args, n * sizeof(*args));
    return i;
}

int gen_new(struct gen *g, enum ggml_type type, struct shape s) {
    int n_dims = 4;
    while (n_dims > 1 && s.ne[n_dims - 1] == 1 && chance(g, 80)) {
        n_dims--;
    }
    switch (n_dims) {
        case 1: return PUSH(g, CALL_ggml_new_tensor_1d, type, s.ne[0]);
        case 2: return PUSH(g, CALL_ggml_new_tensor_2d, type, s.ne[0], s.ne[1]);
        case 3: return PUSH(g, CALL_ggml_new_tensor_3d, type, s.ne[0], s.ne[1], s.ne[2]);
        default: return PUSH(g, CALL_ggml_new_tensor_4d, type, s.ne[0], s.ne[1], s.ne[2], s.ne[3]);
    }
}

// Axis i of the created tensor becomes axis axes[i] of the result. keep: axis 0 stays axis 0.
static int gen_permuted(struct gen *g, enum ggml_type type, struct shape s, bool keep) {
    int64_t axes[4] = {0, 1, 2, 3};
    for (int i = 3; i > (keep ? 1 : 0); i--) {
        const int j = (int) pick(g, keep ? 1 : 0, i);
        const int64_t t = axes[i];
        axes[i] = axes[j];
        axes[j] = t;
    }
    struct shape base;
    for (int i = 0; i < 4; i++) {
        base.ne[i] = s.ne[axes[i]];
    }
    const int a = gen_new(g, type, base);
    return PUSH(g, CALL_ggml_permute, a, axes[0], axes[1], axes[2], axes[3]);
}

static int gen_strided(struct gen *g, enum ggml_type type, struct shape s) {
    struct shape base = s;
    const int64_t block = type_block(type), bytes = type_bytes(type);
    base.ne[0] += block * pick(g, 0, 2);
    for (int i = 1; i < 4; i++) {
        base.ne[i] += pick(g, 0, 2);
    }
    const int a = gen_new(g, type, base);
    const int64_t nb1 = base.ne[0] / block * bytes;
    const int64_t nb2 = nb1 * base.ne[1];
    const int64_t nb3 = nb2 * base.ne[2];
    const int64_t offs = bytes * pick(g, 0, (base.ne[0] - s.ne[0]) / block) + nb1 * pick(g, 0, base.ne[1] - s.ne[1]) +
                         nb2 * pick(g, 0, base.ne[2] - s.ne[2]) + nb3 * pick(g, 0, base.ne[3] - s.ne[3]);
    return PUSH(g, CALL_ggml_view_4d, a, s.ne[0], s.ne[1], s.ne[2], s.ne[3], nb1, nb2, nb3, offs);
}

static int gen_layout(struct gen *g, enum ggml_type type, struct shape s, enum layout layout) {
    const int64_t block = type_block(type);
    if (layout == ANY && chance(g, 30) && block == 1) {
        if (chance(g, 50)) {
            return gen_permuted(g, type, s, false);
        }
        const int a = gen_new(g, type, shape4(s.ne[1], s.ne[0], s.ne[2], s.ne[3]));
        return PUSH(g, CALL_ggml_transpose, a);
    }
    if (layout != CONT && chance(g, 40)) {
        return chance(g, 50) ? gen_permuted(g, type, s, true) : gen_strided(g, type, s);
    }
    if (chance(g, 75) || shape_count(s) > 1 << 20) {
        return gen_new(g, type, s);
    }
    if (chance(g, 30)) {
        const int a = gen_new(g, type, s);
        return PUSH(g, CALL_ggml_silu, a);
    }
    const int64_t n = shape_count(s);
    if (chance(g, 50)) {
        const int a = gen_new(g, type, shape4(n, 1, 1, 1));
        return PUSH(g, CALL_ggml_reshape_4d, a, s.ne[0], s.ne[1], s.ne[2], s.ne[3]);
    }
    const int64_t bytes = type_bytes(type);
    const int64_t skip = pick(g, 0, 3);
    const int a = gen_new(g, type, shape4(n + skip * block, 1, 1, 1));
    const int64_t nb1 = s.ne[0] / block * bytes, nb2 = nb1 * s.ne[1], nb3 = nb2 * s.ne[2];
    return PUSH(g, CALL_ggml_view_4d, a, s.ne[0], s.ne[1], s.ne[2], s.ne[3], nb1, nb2, nb3, skip * bytes);
}

int gen_tensor(struct gen *g, enum ggml_type type, struct shape s, enum layout layout) {
    const int t = gen_layout(g, type, s, layout);
    if (chance(g, 15)) {
        PUSH(g, CALL_ggml_set_name, t, pick(g, 0, RECIPE_NAMES - 1));
    }
    if (chance(g, 5)) {
        const bool fresh = g->r->calls[t].id >= CALL_ggml_new_tensor && g->r->calls[t].id <= CALL_ggml_new_tensor_4d;
        const bool scalar = type == GGML_TYPE_F32 && shape_count(s) == 1;
        PUSH(g,
            fresh && chance(g, 50) ? CALL_ggml_set_param
            : scalar               ? CALL_ggml_set_loss
            : chance(g, 50)        ? CALL_ggml_set_input
                                   : CALL_ggml_set_output,
            t);
    }
    return t;
}

// ---- the three sorts of recipes: valid, mutated, wild ----

static gen_function *const generators[CALL_COUNT] = {
#define CALL(result, name, kinds, gen, ...) gen_op_##gen,
#include "calls.inc"
};

static int64_t wild_int(struct gen *g) {
    static const int64_t edges[] = {0, 1, -1, 2, 3, 4, 7, 8, 16, 31, 32, 64, 255, -2, INT_MAX, INT_MIN};
    return PICK_OF(g, edges);
}

static int64_t wild_long(struct gen *g) {
    static const int64_t edges[] = {0, 1, -1, 4, 32, 256, 1 << 20, INT32_MAX, INT64_MAX, INT64_MIN, (int64_t) 1 << 40};
    return chance(g, 70) ? pick(g, 0, 64) : PICK_OF(g, edges);
}

static int64_t wild_type(struct gen *g) {
    return chance(g, 85) ? (int64_t) gen_type(g) : pick(g, -1, GGML_TYPE_COUNT + 1);
}

// kind: a letter of calls.inc. Tensors (T) are chosen by the callers.
static int64_t wild_arg(struct gen *g, char kind) {
    switch (kind) {
        case 'B': return pick(g, 0, 1);
        case 'E': return wild_type(g);
        case 'F': return gen_float(g);
        case 'L': return wild_long(g);
        case 'P': return pick(g, 0, 1 << 20) * 16;
        case 'Z': return pick(g, 0, RECIPE_NAMES - 1);
        case 'G': return -1;
        default: return wild_int(g);
    }
}

static bool makes_tensor(const struct call *c) {
    return c->id <= CALL_ggml_opt_step_sgd; // constructors; other functions may return NULL
}

// Returns a random call before `end` that creates a tensor. -1: 32 random calls were no such call.
static int64_t any_tensor(struct gen *g, int end) {
    for (int tries = 0; tries < 32 && end > 0; tries++) {
        const int i = (int) pick(g, 0, end - 1);
        if (makes_tensor(&g->r->calls[i])) {
            return i;
        }
    }
    return -1;
}

static void gen_wild(struct gen *g, enum call_id id) {
    const char *kinds = call_table[id].kinds;
    int64_t args[CALL_MAX_ARGS] = {0};
    int64_t first = -1; // first tensor among the arguments
    const size_t n = strlen(kinds);
    for (size_t i = 0; i < n; i++) {
        if (kinds[i] != 'T') {
            args[i] = wild_arg(g, kinds[i]);
        } else if (chance(g, 5)) {
            args[i] = -1;
        } else if (first >= 0 && chance(g, 30)) {
            args[i] = first;
        } else {
            const enum ggml_type type = gen_type(g);
            args[i] = gen_tensor(g, type, shape_fit(gen_shape(g), type), ANY);
            first = first >= 0 ? first : args[i];
        }
    }
    gen_push(g, id, args, n);
}

static int64_t mutate_number(struct gen *g, char kind, int64_t x) {
    if (kind == 'F' || kind == 'E' || kind == 'B' || kind == 'P' || kind == 'Z') {
        return wild_arg(g, kind);
    }
    switch (pick(g, 0, 7)) {
        case 0: return (int64_t) ((uint64_t) x + 1);
        case 1: return (int64_t) ((uint64_t) x - 1);
        case 2: return (int64_t) (2 * (uint64_t) x);
        case 3: return x / 2;
        case 4: return (int64_t) (0 - (uint64_t) x);
        case 5: return 0;
        case 6: return 1;
        default: return wild_arg(g, kind);
    }
}

// Chooses a tensor argument of the last call. Inserts a call before the last call that returns a transposed, permuted, viewed or
// contiguous version of that tensor. The last call then gets this version.
static void mutate_layout(struct gen *g) {
    struct recipe *r = g->r;
    struct call last = r->calls[r->n_calls - 1];
    const char *kinds = call_table[last.id].kinds;
    const int k = last.n_args == 0 ? 0 : (int) pick(g, 0, last.n_args - 1);
    if (kinds[k] != 'T' || last.args[k] < 0) {
        return;
    }
    r->n_calls--;
    const int64_t a = last.args[k];
    switch (pick(g, 0, 4)) {
        case 0: last.args[k] = PUSH(g, CALL_ggml_transpose, a); break;
        case 1: last.args[k] = PUSH(g, CALL_ggml_permute, a, 0, 2, 1, 3); break;
        case 2: last.args[k] = PUSH(g, CALL_ggml_permute, a, 2, 0, 1, 3); break;
        case 3: last.args[k] = PUSH(g, CALL_ggml_view_tensor, a); break;
        default: last.args[k] = PUSH(g, CALL_ggml_cont, a); break;
    }
    gen_push(g, (enum call_id) last.id, last.args, (size_t) last.n_args);
}

static void mutate_call(struct gen *g, struct call *c, int index) {
    if (c->n_args == 0) {
        return;
    }
    const int k = (int) pick(g, 0, c->n_args - 1);
    const char kind = call_table[c->id].kinds[k];
    const bool is_ref = kind == 'T' || kind == 'G';
    if (kind == 'T') {
        c->args[k] = chance(g, 15) ? -1 : any_tensor(g, index);
    } else if (!is_ref) {
        c->args[k] = mutate_number(g, kind, c->args[k]);
    }
}

static void mutate(struct gen *g) {
    struct recipe *r = g->r;
    const int last = r->n_calls - 1;
    switch (pick(g, 0, 9)) {
        case 0:
        case 1:
        case 2: mutate_layout(g); break;
        case 3: r->mem_size = (uint64_t) pick(g, 1, 4000); break;
        case 4:
        case 5:
        case 6: mutate_call(g, &r->calls[last], last); break;
        default: {
            const int i = (int) pick(g, 0, last);
            mutate_call(g, &r->calls[i], i);
        }
    }
}

// Changes arguments that must not be tested:
// - sizes of graphs of 2^24 and more, for which the reference takes very long;
// - lengths of lists that exceed the array;
// - tensors and graphs that ggml_reset has freed.
static void tidy(struct recipe *r) {
    int first = 0; // first call whose result still exists
    for (int i = 0; i < r->n_calls; i++) {
        struct call *c = &r->calls[i];
        const char *kinds = call_table[c->id].kinds;
        for (int k = 0; k < c->n_args; k++) {
            if ((kinds[k] == 'T' || kinds[k] == 'G') && c->args[k] < first) {
                c->args[k] = -1;
            }
        }
        if (c->id == CALL_ggml_reset) {
            first = i + 1;
        } else if (c->id == CALL_ggml_new_graph_custom) {
            c->args[0] &= 0xffffff;
        } else if (c->id == CALL_ggml_build_forward_select && c->args[1] > CALL_MAX_LIST) {
            c->args[1] = CALL_MAX_LIST;
        }
    }
}

void gen_recipe(struct gen *g, enum call_id id, enum recipe_sort sort) {
    recipe_clear(g->r);
    g->r->no_alloc = chance(g, 80);
    g->r->mem_size = g->r->no_alloc ? 1 << 20 : 64 << 20;
    if (sort == SORT_WILD) {
        gen_wild(g, id);
    } else {
        generators[id](g, id);
    }
    if (sort == SORT_MUTATED) {
        mutate(g);
    }
    if (sort != SORT_VALID) {
        tidy(g->r);
    }
}
