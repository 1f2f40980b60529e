// SPDX-License-Identifier: MIT
// prop_grad.c: compares every gradient rule, on random shapes and numbers (grad_cases.h), with central differences in double
// (wide.h). The differences are exact to 1e-10, so Berth's error is the rounding of f32. The loss is a weighted sum of the
// result.
// In planned memory, where ops run in place, the gradients must have the same bits. Every op with a rule must occur, with each
// source for which its rule computes a gradient.
// BERTH_SEED sets the seed, BERTH_WORST=1 prints the largest error of each case.

#include "support/grad_cases.h"
#include "support/wide.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#include "core/grad.h"
#include "core/graph.h"

#define STEP 1e-4
#define TOLERANCE 3e-6         // relative to the largest gradient
#define FORWARD_TOLERANCE 3e-6 // relative to the largest result
#define SMALLEST 0.25          // errors are relative to the largest number of a tensor, but to at least this
#define ROUNDS 8

static struct ggml_context *context_new(void) {
    return ggml_init((struct ggml_init_params){.mem_size = 8u << 20});
}

static double largest_value(const struct ggml_tensor *t) {
    double most = SMALLEST;
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        most = fmax(most, fabs((double) grad_element(t, i)));
    }
    return most;
}

// ---- one case ----

struct worst {
    double result, gradient; // the largest relative errors so far
};

static void compare_result(const struct grad_rule *rule, const struct grad_graph *g, const struct wide *w, struct worst *worst) {
    const double tol = rule->forward != 0 ? rule->forward : FORWARD_TOLERANCE, most = largest_value(g->result);
    const double *want = wide_of(w, g->result);
    for (int64_t i = 0; i < ggml_nelements(g->result); i++) {
        const double got = grad_element(g->result, i), off = fabs(got - want[i]) / most;
        if (!(off <= tol)) {
            fail_msg("%s: element %lld of the result is %.9g, in double %.9g", rule->name, (long long) i, got, want[i]);
        }
        worst->result = fmax(worst->result, off);
    }
}

static double loss_of(const struct grad_graph *g, struct wide *w) {
    wide_run(w);
    const double *y = wide_of(w, g->result);
    double sum = 0;
    for (int64_t i = 0; i < ggml_nelements(g->result); i++) {
        sum += y[i] * (double) ((const float *) g->weights->data)[i];
    }
    return sum;
}

// Returns the derivative of the loss with respect to *x, as a central difference of fourth order.
static double slope_at(const struct grad_graph *g, struct wide *w, double *x) {
    static const int steps[] = {-2, -1, 1, 2};
    const double was = *x;
    double loss[4];
    for (int k = 0; k < 4; k++) {
        *x = was + steps[k] * STEP;
        loss[k] = loss_of(g, w);
    }
    *x = was;
    return (8 * (loss[2] - loss[1]) - (loss[3] - loss[0])) / (12 * STEP);
}

static void compare_gradient(const struct grad_rule *rule, const struct grad_graph *g, struct wide *w,
    const struct ggml_tensor *param, const struct ggml_tensor *grad, struct worst *worst) {
    const double tol = rule->tol != 0 ? rule->tol : TOLERANCE, most = largest_value(grad);
    for (int64_t i = 0; i < ggml_nelements(param); i++) {
        const double want = slope_at(g, w, wide_of(w, param) + i), got = grad_element(grad, i), off = fabs(got - want) / most;
        if (!(off <= tol)) {
            fail_msg("%s: gradient %.9g for element %lld of a parameter, %.9g by central differences; the largest is %.4g",
                rule->name, got, (long long) i, want, most);
        }
        worst->gradient = fmax(worst->gradient, off);
    }
}

// Computes the same case in memory that the graph allocator has planned. The gradients must equal those of plain_graph, in which
// every tensor has separate memory.
static void compare_planned(
    const struct grad_rule *rule, uint64_t seed, const struct grad_case *plain, struct ggml_cgraph *plain_graph) {
    const struct grad_api api = grad_api_own();
    struct check_rng rng = check_rng_new(seed);
    struct ggml_context *data = context_new();
    struct grad_case c = {.a = &api, .ctx = data, .rng = &rng, .scale = 1};
    const struct grad_graph g = grad_graph_new(&c, rule);
    struct ggml_cgraph *graph = ggml_new_graph_custom(data, 512, true);
    ggml_build_forward_expand(graph, g.loss);
    ggml_build_backward_expand(data, graph, NULL);
    for (int i = 0; i < graph->n_nodes; i++) { // clear the memory of the nodes
        struct ggml_tensor *t = graph->nodes[i];
        if (t->op != GGML_OP_NONE && (t->view_src == NULL || t->view_src->op != GGML_OP_NONE)) {
            t->data = NULL;
        }
    }
    for (int i = 0; i < c.n_params; i++) {
        ggml_set_output(ggml_graph_get_grad(graph, c.params[i]));
    }
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    ggml_graph_reset(graph);
    struct ggml_cplan plan = ggml_graph_plan(graph, 2, NULL);
    plan.work_data = plan.work_size > 0 ? malloc(plan.work_size) : NULL;
    assert_int_equal(ggml_graph_compute(graph, &plan), GGML_STATUS_SUCCESS);
    for (int i = 0; i < c.n_params; i++) {
        const struct ggml_tensor *here = ggml_graph_get_grad(graph, c.params[i]),
                                 *there = ggml_graph_get_grad(plain_graph, plain->params[i]);
        for (int64_t k = 0; k < ggml_nelements(here); k++) {
            const float x = grad_element(here, k), y = grad_element(there, k);
            if (memcmp(&x, &y, sizeof x) != 0) {
                fail_msg("%s: parameter %d, element %lld: %.9g in planned memory, %.9g in separate memory", rule->name, i,
                    (long long) k, (double) x, (double) y);
            }
        }
    }
    free(plan.work_data);
    ggml_gallocr_free(galloc);
    ggml_free(data);
}

// ---- the ops and sources that have occurred ----

static unsigned seen[GGML_OP_COUNT]; // [op] bit i is set if, in some case, source i of the op depends on a parameter
static bool seen_unary[GGML_UNARY_OP_COUNT], seen_glu[GGML_GLU_OP_COUNT];

static bool leads_to_param(const struct ggml_tensor *t) {
    if (t == NULL || (t->flags & GGML_TENSOR_FLAG_PARAM) != 0) {
        return t != NULL;
    }
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (leads_to_param(t->src[i])) {
            return true;
        }
    }
    return false;
}

static void note_ops(const struct ggml_cgraph *forward) {
    for (int n = 0; n < forward->n_nodes; n++) {
        const struct ggml_tensor *t = forward->nodes[n];
        for (int i = 0; i < GGML_MAX_SRC; i++) {
            seen[t->op] |= (unsigned) leads_to_param(t->src[i]) << i;
        }
        if (t->op == GGML_OP_UNARY) {
            seen_unary[t->op_params[0]] = true;
        } else if (t->op == GGML_OP_GLU) {
            seen_glu[t->op_params[0]] = true;
        }
    }
}

static void try_rule(const struct grad_rule *rule, uint64_t seed, struct worst *worst) {
    const struct grad_api api = grad_api_own();
    struct check_rng rng = check_rng_new(seed);
    struct grad_case c = {.a = &api, .ctx = context_new(), .rng = &rng, .scale = 1};
    const struct grad_graph g = grad_graph_new(&c, rule);
    struct ggml_cgraph *forward = ggml_new_graph_custom(c.ctx, 256, false), *graph = ggml_new_graph_custom(c.ctx, 512, true);
    ggml_build_forward_expand(forward, g.result);
    ggml_build_forward_expand(graph, g.loss);
    ggml_build_backward_expand(c.ctx, graph, NULL);
    ggml_graph_reset(graph);
    if (ggml_graph_compute_with_ctx(c.ctx, graph, 2) != GGML_STATUS_SUCCESS) {
        fail_msg("%s: the graph cannot be computed: %s", rule->name, berth_last_error());
    }
    const char *missing = NULL;
    struct wide *w = wide_new(forward, &missing);
    if (w == NULL) {
        fail_msg("%s: wide.c has no row for %s", rule->name, missing);
    }
    wide_run(w);
    compare_result(rule, &g, w, worst);
    for (int i = 0; i < c.n_params; i++) {
        const struct ggml_tensor *grad = ggml_graph_get_grad(graph, c.params[i]);
        if (grad == NULL || !ggml_are_same_shape(grad, c.params[i]) || grad->type != GGML_TYPE_F32) {
            fail_msg("%s: parameter %d has no gradient of its shape", rule->name, i);
        }
        compare_gradient(rule, &g, w, c.params[i], grad, worst);
    }
    wide_free(w);
    note_ops(forward);
    compare_planned(rule, seed, &c, graph);
    ggml_free(c.ctx);
}

static void test_rules(void **state) {
    (void) state;
    const uint64_t seed = check_seed(20261115);
    for (int i = 0; i < GRAD_N_RULES; i++) {
        struct worst worst = {0};
        for (int round = 0; round < ROUNDS; round++) {
            try_rule(&grad_rules[i], seed * 1000003 + (uint64_t) (i * 64 + round), &worst);
        }
        if (getenv("BERTH_WORST") != NULL) {
            print_message("%-24s result %.1e, gradient %.1e\n", grad_rules[i].name, worst.result, worst.gradient);
        }
    }
}

// Every rule must have a case, and every source with a gradient must lead to a parameter in some case.
static void test_all_rules_seen(void **state) {
    (void) state;
    for (int op = 0; op < GGML_OP_COUNT; op++) {
        const struct berth_op_info *info = berth_op_info((enum ggml_op) op);
        const unsigned missing = info->grad != NULL ? info->grad_src_mask & ~seen[op] : 0;
        if (missing != 0) {
            fail_msg("%s: its rule computes gradients of sources %#x, but the cases have only %#x", info->name,
                info->grad_src_mask, seen[op]);
        }
    }
    for (int op = 0; op < GGML_UNARY_OP_COUNT; op++) {
        if (!seen_unary[op]) {
            fail_msg("no case for %s", ggml_unary_op_name((enum ggml_unary_op) op));
        }
    }
    for (int op = 0; op < GGML_GLU_OP_COUNT; op++) {
        if (!seen_glu[op]) {
            fail_msg("no case for %s", ggml_glu_op_name((enum ggml_glu_op) op));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules), cmocka_unit_test(test_all_rules_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
