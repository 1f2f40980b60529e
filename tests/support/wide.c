// SPDX-License-Identifier: MIT
// wide.c: a graph in double precision: the table of ops, the values of the tensors, and the loop over the nodes.

#include "support/wide.h"

#include "core/graph.h"

#include <stdlib.h>

#define ROW(op, name) [GGML_OP_##op] = wide_##name,
static const wide_op_t wide_ops[GGML_OP_COUNT] = {WIDE_OPS(ROW)};

struct value {
    const struct ggml_tensor *t;
    double *y;
    const double *x[GGML_MAX_SRC];
};

struct wide {
    int n_values;
    struct value values[]; // leaves, then nodes
};

double *wide_of(const struct wide *w, const struct ggml_tensor *t) {
    for (int i = 0; i < w->n_values; i++) {
        if (w->values[i].t == t) {
            return w->values[i].y;
        }
    }
    return NULL;
}

const struct ggml_tensor *wide_base(const struct ggml_tensor *view) {
    const struct ggml_tensor *t = view->src[0];
    while (!ggml_is_contiguous(t) && t->src[0] != NULL) {
        t = t->src[0];
    }
    return t;
}

// Loads a contiguous leaf without rounding.
static void leaf_load(const struct ggml_tensor *t, double *y) {
    const int64_t n = ggml_nelements(t);
    if (t->type == GGML_TYPE_I32 || t->type == GGML_TYPE_I64) {
        for (int64_t i = 0; i < n; i++) {
            y[i] = t->type == GGML_TYPE_I32 ? (double) ((const int32_t *) t->data)[i] : (double) ((const int64_t *) t->data)[i];
        }
        return;
    }
    float *x = malloc((size_t) n * sizeof *x);
    if (t->type == GGML_TYPE_F32) {
        memcpy(x, t->data, (size_t) n * sizeof *x);
    } else {
        ggml_get_type_traits(t->type)->to_float(t->data, x, n);
    }
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i];
    }
    free(x);
}

static void add_value(struct wide *w, const struct ggml_tensor *t) {
    struct value *v = &w->values[w->n_values++];
    *v = (struct value){.t = t, .y = calloc((size_t) ggml_nelements(t), sizeof *v->y)};
    if (t->op == GGML_OP_NONE) {
        leaf_load(t, v->y);
        return;
    }
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        v->x[i] = t->src[i] == NULL ? NULL : wide_of(w, t->op == GGML_OP_VIEW ? wide_base(t) : t->src[i]);
    }
}

struct wide *wide_new(struct ggml_cgraph *graph, const char **missing) {
    for (int i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i]->op != GGML_OP_NONE && wide_ops[graph->nodes[i]->op] == NULL) {
            *missing = ggml_op_name(graph->nodes[i]->op);
            return NULL;
        }
    }
    struct wide *w = calloc(1, sizeof *w + (size_t) (graph->n_leafs + graph->n_nodes) * sizeof w->values[0]);
    for (int i = 0; i < graph->n_leafs; i++) {
        add_value(w, graph->leafs[i]);
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        add_value(w, graph->nodes[i]);
    }
    return w;
}

void wide_free(struct wide *w) {
    for (int i = 0; i < w->n_values; i++) {
        free(w->values[i].y);
    }
    free(w);
}

void wide_run(struct wide *w) {
    for (int i = 0; i < w->n_values; i++) {
        const struct value *v = &w->values[i];
        if (v->t->op != GGML_OP_NONE) {
            wide_ops[v->t->op](v->t, v->y, v->x);
        }
    }
}
