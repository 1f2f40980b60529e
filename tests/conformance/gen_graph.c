// SPDX-License-Identifier: MIT
// gen_graph.c: recipes that build random graphs and call graph functions on them.
#include "gen.h"

#include <string.h>

// Tensors for use as sources, by call index. All are 8 x 8, so that every op accepts every pair.
struct pool {
    int64_t t[4096];
    int n;
};

static void pool_add(struct pool *p, int64_t t) {
    if (p->n < (int) (sizeof(p->t) / sizeof(p->t[0]))) {
        p->t[p->n++] = t;
    }
}

// Mostly one of the last eight, because real networks mostly use recent results.
static int64_t pool_pick(struct gen *g, const struct pool *p) {
    const int64_t back = chance(g, 70) ? pick(g, 1, p->n < 8 ? p->n : 8) : pick(g, 1, p->n);
    return p->t[p->n - back];
}

static void push_leaf(struct gen *g, struct pool *p) {
    const int t = PUSH(g, CALL_ggml_new_tensor_2d, GGML_TYPE_F32, 8, 8);
    if (chance(g, 30)) {
        PUSH(g, chance(g, 50) ? CALL_ggml_set_param : CALL_ggml_set_input, t);
    }
    if (chance(g, 20)) {
        PUSH(g, CALL_ggml_set_name, t, pick(g, 0, RECIPE_NAMES - 1));
    }
    pool_add(p, t);
}

static void push_node(struct gen *g, struct pool *p) {
    static const enum call_id unary[] = {CALL_ggml_silu, CALL_ggml_relu, CALL_ggml_sqr, CALL_ggml_cont, CALL_ggml_view_tensor,
        CALL_ggml_transpose, CALL_ggml_silu_inplace, CALL_ggml_dup, CALL_ggml_soft_max};
    static const enum call_id binary[] = {CALL_ggml_add, CALL_ggml_mul, CALL_ggml_sub, CALL_ggml_add_inplace, CALL_ggml_cpy};
    const int64_t a = pool_pick(g, p);
    int t;
    switch (pick(g, 0, 9)) {
        case 0:
        case 1:
        case 2: {
            const enum call_id id = PICK_OF(g, unary);
            t = PUSH(g, id, a);
            if (id == CALL_ggml_transpose || id == CALL_ggml_view_tensor) { // the next op requires a contiguous tensor
                t = PUSH(g, CALL_ggml_cont, t);
            }
            break;
        }
        case 3: {
            const int v = PUSH(g, CALL_ggml_view_2d, a, 8, 4, 32, 32 * pick(g, 0, 4));
            t = PUSH(g, CALL_ggml_concat, v, v, 1);
            break;
        }
        case 4: t = PUSH(g, CALL_ggml_reshape_2d, PUSH(g, CALL_ggml_reshape_1d, a, 64), 8, 8); break;
        case 5: {
            const int64_t b = pool_pick(g, p), c = pool_pick(g, p);
            t = PUSH(g, CALL_ggml_map_custom3, a, b, c, 16, 1, 0);
            break;
        }
        default: t = PUSH(g, PICK_OF(g, binary), a, pool_pick(g, p)); break;
    }
    if (chance(g, 5)) {
        PUSH(g, chance(g, 50) ? CALL_ggml_set_output : CALL_ggml_set_input, t);
    }
    if (chance(g, 5)) {
        PUSH(g, CALL_ggml_set_name, t, pick(g, 0, RECIPE_NAMES - 1));
    }
    pool_add(p, t);
}

static void push_net(struct gen *g, struct pool *p, int n_nodes) {
    p->n = 0;
    for (int64_t n = pick(g, 1, 5); n > 0; n--) {
        push_leaf(g, p);
    }
    for (int i = 0; i < n_nodes; i++) {
        if (chance(g, 10)) {
            push_leaf(g, p);
        } else {
            push_node(g, p);
        }
    }
}

// other: a second graph, for functions that need two.
static void push_graph_call(struct gen *g, const struct pool *p, int64_t gr, int64_t other, bool grads) {
    switch (pick(g, 0, 11)) {
        case 0:
        case 1:
        case 2: PUSH(g, CALL_ggml_build_forward_expand, gr, pool_pick(g, p)); break;
        case 3: PUSH(g, CALL_ggml_build_forward_expand, gr, p->t[pick(g, 0, p->n - 1)]); break;
        case 4: {
            int64_t args[CALL_MAX_ARGS] = {gr, 0, 0};
            const int64_t n = pick(g, 1, 4);
            args[1] = n;
            args[2] = pick(g, 0, n - 1);
            for (int i = 0; i < CALL_MAX_LIST; i++) {
                args[3 + i] = i < n ? pool_pick(g, p) : -1;
            }
            gen_push(g, CALL_ggml_build_forward_select, args, 3 + CALL_MAX_LIST);
            break;
        }
        case 5: PUSH(g, CALL_ggml_build_forward_order, gr, pool_pick(g, p)); break;
        case 6: PUSH(g, CALL_ggml_graph_add_node, gr, pool_pick(g, p)); break;
        case 7: PUSH(g, CALL_ggml_graph_get_tensor, gr, pick(g, 0, RECIPE_NAMES - 1)); break;
        case 8:
            PUSH(
                g, CALL_ggml_graph_clear, other); // if the destination of a copy is not empty, the reference writes out of bounds
            PUSH(g, CALL_ggml_graph_cpy, gr, other);
            break;
        case 9: PUSH(g, CALL_ggml_graph_dup, gr, grads); break;
        case 10:
            if (grads && chance(g, 30)) {
                PUSH(g, CALL_ggml_graph_reset, gr);
            } else if (chance(g, 15)) {
                PUSH(g, CALL_ggml_graph_clear, gr);
                PUSH(g, CALL_ggml_build_forward_expand, gr, PUSH(g, CALL_ggml_sqr, pool_pick(g, p)));
            } else {
                PUSH(g, CALL_ggml_graph_n_nodes, gr);
                PUSH(g, CALL_ggml_graph_size, gr);
                PUSH(g, CALL_ggml_graph_get_grad, gr, pool_pick(g, p));
                PUSH(g, CALL_ggml_graph_get_grad_acc, gr, pool_pick(g, p));
            }
            break;
        default:
            PUSH(g, CALL_ggml_build_forward_expand, gr, PUSH(g, CALL_ggml_sqr, p->t[p->n - 1]));
            PUSH(g, CALL_ggml_graph_node, gr, -1);
            PUSH(g, CALL_ggml_graph_view, gr, 0, 1);
            break;
    }
}

static void push_graph(struct gen *g, int n_nodes, int n_graph_calls, int64_t *graph, struct pool *p) {
    push_net(g, p, n_nodes);
    const bool grads = chance(g, 25);
    // An op adds at most two nodes and a leaf. Nodes and leafs are counted separately. 64 and more are a reserve.
    const int64_t graph_size = 2 * n_nodes + 64 + pick(g, 0, 100);
    const int64_t gr =
        chance(g, 20) && n_nodes < 400 ? PUSH(g, CALL_ggml_new_graph, 0) : PUSH(g, CALL_ggml_new_graph_custom, graph_size, grads);
    const int64_t other = PUSH(g, CALL_ggml_new_graph_custom, graph_size + 2048, grads);
    PUSH(g, CALL_ggml_build_forward_expand, gr, PUSH(g, CALL_ggml_sqr, p->t[0])); // at least one node
    for (int i = 0; i < n_graph_calls; i++) {
        push_graph_call(g, p, gr, other, grads);
    }
    *graph = gr;
}

void gen_graph_recipe(struct gen *g, int n_nodes) {
    static struct pool p;
    int64_t gr;
    recipe_clear(g->r);
    g->r->mem_size = 64 << 20;
    push_graph(g, n_nodes, (int) pick(g, 1, 12), &gr, &p);
}

void gen_op_graph(struct gen *g, enum call_id id) {
    static struct pool p;
    int64_t gr;
    g->r->mem_size = 16 << 20;
    push_graph(g, (int) pick(g, 1, 24), (int) pick(g, 1, 4), &gr, &p);
    const char *kinds = call_table[id].kinds;
    int64_t args[CALL_MAX_ARGS] = {0};
    size_t k = 0;
    for (; kinds[k] != 0; k++) {
        switch (kinds[k]) {
            case 'G': args[k] = k == 0 ? gr : gr + 1; break;
            case 'T': args[k] = pool_pick(g, &p); break;
            case 'L': args[k] = pick(g, 1, 3000); break;
            case 'B': args[k] = pick(g, 0, 1); break;
            case 'Z': args[k] = pick(g, 0, RECIPE_NAMES - 1); break;
            default: args[k] = 0; break;
        }
    }
    if (id == CALL_ggml_build_forward_select) {
        args[1] = pick(g, 1, CALL_MAX_LIST - 1);
        args[2] = pick(g, 0, args[1] - 1);
    } else if (id == CALL_ggml_graph_view) {
        args[2] = pick(g, 0, 1);
    } else if (id == CALL_ggml_graph_cpy) {
        PUSH(g, CALL_ggml_graph_clear, gr + 1);
    } else if (id == CALL_ggml_graph_reset) { // requires gradients
        args[0] = PUSH(g, CALL_ggml_new_graph_custom, 4096, 1);
        PUSH(g, CALL_ggml_build_forward_expand, args[0], pool_pick(g, &p));
    }
    gen_push(g, id, args, k);
}
