// SPDX-License-Identifier: MIT
// test_grad_oracle.c: compares backward graphs with the reference's. For every rule that the reference has, the nodes, their order,
// names, sources, parameters and gradients must be the same (grad_cases.h: same), and the values equal within rounding.

#include "support/oracle.h"

#include "support/grad_cases.h"

#include "core/graph.h"

#define TOLERANCE 2e-6 // relative to the largest element of a gradient
#define ROUNDS 4

static struct grad_api own, other;

struct side {
    struct grad_case c;
    struct grad_graph g;
    struct ggml_cgraph *graph;
};

static void side_init(struct side *s, const struct grad_api *api, const struct grad_rule *rule, struct check_rng *rng) {
    s->c = (struct grad_case){
        .a = api, .ctx = api->ggml_init((struct ggml_init_params){.mem_size = 8u << 20}), .rng = rng, .scale = 1};
    s->g = grad_graph_new(&s->c, rule);
    s->graph = api->ggml_new_graph_custom(s->c.ctx, 512, true);
    api->ggml_build_forward_expand(s->graph, s->g.loss);
    api->ggml_build_backward_expand(s->c.ctx, s->graph, NULL);
    api->ggml_graph_reset(s->graph);
    assert_int_equal(api->ggml_graph_compute_with_ctx(s->c.ctx, s->graph, 1), GGML_STATUS_SUCCESS);
}

static const char *name_of(const struct ggml_tensor *t) {
    return t != NULL ? t->name : "(none)";
}

static void compare_nodes(const struct grad_rule *rule, const struct side *a, const struct side *b) {
    if (a->graph->n_nodes != b->graph->n_nodes || a->graph->n_leafs != b->graph->n_leafs) {
        fail_msg("%s: %d nodes and %d leafs, the reference has %d and %d", rule->name, a->graph->n_nodes, a->graph->n_leafs,
            b->graph->n_nodes, b->graph->n_leafs);
    }
    for (int i = 0; i < a->graph->n_nodes; i++) {
        const struct ggml_tensor *x = a->graph->nodes[i], *y = b->graph->nodes[i];
        bool same = x->op == y->op && x->type == y->type && memcmp(x->ne, y->ne, sizeof x->ne) == 0 &&
                    memcmp(x->nb, y->nb, sizeof x->nb) == 0 && memcmp(x->op_params, y->op_params, sizeof x->op_params) == 0 &&
                    strcmp(x->name, y->name) == 0 && x->flags == y->flags &&
                    strcmp(name_of(x->view_src), name_of(y->view_src)) == 0;
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            same = same && strcmp(name_of(x->src[k]), name_of(y->src[k])) == 0;
        }
        same =
            same && strcmp(name_of(own.ggml_graph_get_grad(a->graph, x)), name_of(other.ggml_graph_get_grad(b->graph, y))) == 0 &&
            strcmp(name_of(own.ggml_graph_get_grad_acc(a->graph, x)), name_of(other.ggml_graph_get_grad_acc(b->graph, y))) == 0;
        if (!same) {
            fail_msg("%s: node %d is %s '%s', in the reference %s '%s'", rule->name, i, ggml_op_desc(x), x->name, ggml_op_desc(y),
                y->name);
        }
    }
}

static void compare_gradients(const struct grad_rule *rule, const struct side *a, const struct side *b) {
    for (int p = 0; p < a->c.n_params; p++) {
        const struct ggml_tensor *x = own.ggml_graph_get_grad(a->graph, a->c.params[p]),
                                 *y = other.ggml_graph_get_grad(b->graph, b->c.params[p]);
        double largest = 0, worst = 0;
        for (int64_t i = 0; i < ggml_nelements(x); i++) {
            const double u = grad_element(x, i), v = grad_element(y, i);
            largest = fmax(largest, fabs(v));
            worst = fmax(worst, fabs(u - v));
        }
        const double tolerance =
            (rule->tol >= HALF ? 2e-3 : TOLERANCE) * fmax(largest, 0.1); // f16 intermediates round differently
        if (!(worst <= tolerance)) {
            fail_msg("%s: parameter %d: gradients differ by %g, the largest is %g", rule->name, p, worst, largest);
        }
    }
}

static void test_rules(void **state) {
    (void) state;
    const char *name;
    void *cpu = oracle_load_cpu(&name);
    if (cpu == NULL) {
        print_message("skipped: %s\n", oracle_why());
        skip();
    }
    own = grad_api_own();
    assert_true(grad_api_of(&other, oracle_load("libggml-base.so"), cpu));
    const uint64_t seed = check_seed(7);
    int n_same = 0;
    for (int i = 0; i < GRAD_N_RULES * ROUNDS; i++) {
        const struct grad_rule *rule = &grad_rules[i / ROUNDS];
        if (!rule->same) {
            continue;
        }
        struct check_rng rng = check_rng_new(seed + (uint64_t) i), again = rng;
        struct side a, b;
        side_init(&a, &own, rule, &rng);
        side_init(&b, &other, rule, &again);
        compare_nodes(rule, &a, &b);
        compare_gradients(rule, &a, &b);
        own.ggml_free(a.c.ctx);
        other.ggml_free(b.c.ctx);
        n_same++;
    }
    assert_true(n_same > 150);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
