// SPDX-License-Identifier: MIT
// optable.c: collects the op table rows from ops_*.c and answers queries about ops. FAMILIES has one line per such file.

#include "core/optable.h"

#include "base/min.h"
#include "core/graph.h"
#include "ggml-backend-impl.h"

#include <string.h>

#define FAMILIES(X) \
    X(attn) \
    X(conv) \
    X(custom) \
    X(eltwise) \
    X(matmul) \
    X(norm) \
    X(pool) \
    X(recurrent) \
    X(reduce) \
    X(rope) \
    X(rows) \
    X(train) \
    X(unary) \
    X(view)
#define DECLARE(name) extern const struct berth_op_entry berth_ops_##name[];
FAMILIES(DECLARE)

static const struct berth_op_info *ops[GGML_OP_COUNT];

// Priority 101: runs before the other ELF constructors of a program that contains Berth, because those may call Berth.
__attribute__((constructor(101))) static void ops_collect(void) {
#define LIST(name) berth_ops_##name,
    static const struct berth_op_entry *const lists[] = {FAMILIES(LIST)};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (const struct berth_op_entry *e = lists[i]; e->op != GGML_OP_COUNT; e++) {
            ops[e->op] = &e->info;
        }
    }
}

#define ACT(name) \
    { #name, BERTH_OP_ACTIVATION, false }
#define ELT(name) \
    { #name, BERTH_OP_ELEMENTWISE, false }
#define FLAT(name) \
    { #name, BERTH_OP_ELEMENTWISE, true }
static const struct {
    const char *name;
    enum berth_op_family family;
    bool is_flat; // as in struct berth_op_info
} unary_rows[GGML_UNARY_OP_COUNT] = {ELT(ABS), FLAT(SGN), ELT(NEG), FLAT(STEP), ACT(TANH), ACT(ELU), ACT(RELU), ACT(SIGMOID),
    ACT(GELU), ACT(GELU_QUICK), ACT(SILU), ACT(HARDSWISH), ACT(HARDSIGMOID), ACT(EXP), ACT(EXPM1), ACT(SOFTPLUS), ACT(GELU_ERF),
    ACT(XIELU), FLAT(FLOOR), FLAT(CEIL), FLAT(ROUND), FLAT(TRUNC)};

static const char *const glu_names[GGML_GLU_OP_COUNT] = {
    "REGLU", "GEGLU", "SWIGLU", "SWIGLU_OAI", "GEGLU_ERF", "GEGLU_QUICK", "SWIGLU_CLAMP"};

const struct berth_op_info *berth_op_info(enum ggml_op op) {
    return (unsigned) op < GGML_OP_COUNT ? ops[op] : NULL;
}

bool berth_op_is_flat(const struct ggml_tensor *node) {
    if (node->op == GGML_OP_UNARY) {
        return (unsigned) node->op_params[0] < GGML_UNARY_OP_COUNT && unary_rows[node->op_params[0]].is_flat;
    }
    return (unsigned) node->op < GGML_OP_COUNT && ops[node->op]->is_flat;
}

const char *ggml_op_name(enum ggml_op op) {
    return (unsigned) op < GGML_OP_COUNT ? ops[op]->name : "UNKNOWN";
}

const char *ggml_op_symbol(enum ggml_op op) {
    return (unsigned) op < GGML_OP_COUNT ? ops[op]->symbol : "?";
}

const char *ggml_unary_op_name(enum ggml_unary_op op) {
    return (unsigned) op < GGML_UNARY_OP_COUNT ? unary_rows[op].name : "UNKNOWN";
}

const char *ggml_glu_op_name(enum ggml_glu_op op) {
    return (unsigned) op < GGML_GLU_OP_COUNT ? glu_names[op] : "UNKNOWN";
}

const char *ggml_op_desc(const struct ggml_tensor *t) {
    if (t == NULL) {
        return "NONE";
    }
    if (t->op == GGML_OP_UNARY) {
        return ggml_unary_op_name((enum ggml_unary_op) t->op_params[0]);
    }
    if (t->op == GGML_OP_GLU) {
        return ggml_glu_op_name((enum ggml_glu_op) t->op_params[0]);
    }
    return ggml_op_name(t->op);
}

bool ggml_op_can_inplace(enum ggml_op op) {
    return (unsigned) op < GGML_OP_COUNT && ops[op]->in_place;
}

bool ggml_op_alloc_size_may_expand(enum ggml_op op) {
    return (unsigned) op < GGML_OP_COUNT && ops[op]->may_expand;
}

enum berth_op_family berth_op_family(const char *name) {
    if (name == NULL) {
        return BERTH_OP_OTHER;
    }
    const char *colon = strchr(name, ':'); // in "UNARY:SILU"
    if (colon != NULL) {
        name = colon + 1;
    }
    for (int i = 0; i < GGML_OP_COUNT; i++) {
        if (strcmp(ops[i]->name, name) == 0) {
            return ops[i]->family;
        }
    }
    for (int i = 0; i < GGML_UNARY_OP_COUNT; i++) {
        if (strcmp(unary_rows[i].name, name) == 0) {
            return unary_rows[i].family;
        }
    }
    for (int i = 0; i < GGML_GLU_OP_COUNT; i++) {
        if (strcmp(glu_names[i], name) == 0) {
            return BERTH_OP_ACTIVATION;
        }
    }
    return BERTH_OP_OTHER;
}

// ---- cost ----

void berth_cost_move(const struct ggml_tensor *node, struct berth_op_cost *c) {
    (void) node;
    c->flops = 0;
}

static bool source_is_new(const struct ggml_tensor *node, int k) {
    for (int i = 0; i < k; i++) {
        if (node->src[i] == node->src[k]) {
            return false;
        }
    }
    return node->src[k] != NULL;
}

struct berth_op_cost berth_op_cost(const struct ggml_tensor *node) {
    struct berth_op_cost c = {0, 0, 0};
    const struct berth_op_info *info = node == NULL ? NULL : berth_op_info(node->op);
    if (info == NULL || info->is_empty) {
        return c;
    }
    c.written_size = berth_elements_size(node);
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (k + 1 != info->overwrites && source_is_new(node, k)) {
            c.read_size += berth_elements_size(node->src[k]);
        }
        if ((info->updates >> k & 1) != 0 && node->src[k] != NULL) {
            c.written_size += berth_elements_size(node->src[k]);
        }
    }
    if (info->family != BERTH_OP_MOVE && node->src[0] != NULL) {
        c.flops = (double) max_i64(ggml_nelements(node), ggml_nelements(node->src[0]));
    }
    if (info->cost != NULL && node->src[0] != NULL && node->src[1] != NULL) {
        info->cost(node, &c);
    }
    return c;
}

// ---- shapes ----

bool berth_op_shape_holds(const struct ggml_tensor *node) {
    const struct berth_op_info *info = node == NULL ? NULL : berth_op_info(node->op);
    if (info == NULL || info->is_empty) {
        return info != NULL;
    }
    const int n_needed = info->n_needed > 0 ? info->n_needed : info->n_src;
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (node->src[i] == NULL ? i < n_needed : i >= info->n_src) {
            return false;
        }
    }
    return info->shape != NULL && info->shape(node);
}

const char *berth_op_relation(enum ggml_op op) {
    const struct berth_op_info *info = berth_op_info(op);
    return info != NULL ? info->relation : NULL;
}

struct ggml_tensor *berth_op_sample(struct ggml_context *ctx, enum ggml_op op, int sub, enum ggml_type a, enum ggml_type b) {
    const struct berth_op_info *info = berth_op_info(op);
    return info != NULL && info->sample != NULL ? info->sample(ctx, a, b, sub) : NULL;
}
