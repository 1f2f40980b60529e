// SPDX-License-Identifier: MIT
// prop_grad.c: every gradient rule on random shapes and numbers (grad_cases.h) against differences of the result.
// The loss is a weighted sum of the result, taken in double; what it changes by when one number of a parameter moves is measured
// at four points, which is exact for polynomials of fourth degree: with steps of 0.04 the method's own error is far below the
// tolerance, and so is the rounding of f32 results. A rule that is wrong by a part in 500 fails. The same gradients must come
// out, bit for bit, where the graph lies in planned memory, in place where the plan says so. BERTH_SEED sets the seed.

#include "support/grad_cases.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#include "core/graph.h"

#define STEP 0.04
#define TOLERANCE 2e-3
#define N_PROBES 10
#define ROUNDS 8

static struct ggml_context *context(void) {
    return ggml_init((struct ggml_init_params){.mem_size = 8u << 20});
}

static double loss_of(const struct grad_graph *g, struct ggml_cgraph *forward, struct ggml_context *ctx, double *size) {
    assert_int_equal(ggml_graph_compute_with_ctx(ctx, forward, 1), GGML_STATUS_SUCCESS);
    double sum = 0;
    *size      = 0;
    for (int64_t i = 0; i < ggml_nelements(g->result); i++) {
        int64_t at[4];
        ggml_unravel_index(g->result, i, &at[0], &at[1], &at[2], &at[3]);
        const char *p = g->result->data;
        const float y =
            *(const float *) (const void *) (p + (size_t) at[0] * g->result->nb[0] + (size_t) at[1] * g->result->nb[1] +
                                             (size_t) at[2] * g->result->nb[2] + (size_t) at[3] * g->result->nb[3]);
        const double v = (double) y * ((const float *) g->weights->data)[i];
        sum += v;
        *size += fabs(v);
    }
    return sum;
}

static float element(const struct ggml_tensor *t, int64_t i) {
    int64_t at[4];
    ggml_unravel_index(t, i, &at[0], &at[1], &at[2], &at[3]);
    float x;
    memcpy(&x,
        (const char *) t->data + (size_t) at[0] * t->nb[0] + (size_t) at[1] * t->nb[1] + (size_t) at[2] * t->nb[2] +
            (size_t) at[3] * t->nb[3],
        sizeof x);
    return x;
}

static double largest(const struct ggml_tensor *grad) {
    double most = 0;
    for (int64_t i = 0; i < ggml_nelements(grad); i++) {
        most = fmax(most, fabs((double) element(grad, i)));
    }
    return most;
}

static void probe(const struct grad_rule *rule, struct grad_case *c, const struct grad_graph *g, struct ggml_cgraph *forward,
    struct ggml_tensor *param, const struct ggml_tensor *grad) {
    const double h = rule->h != 0 ? rule->h : STEP, tol = rule->tol != 0 ? rule->tol : TOLERANCE, most = largest(grad);
    for (int n = 0; n < N_PROBES; n++) {
        const int64_t i = grad_pick(c, 0, ggml_nelements(param) - 1);
        float *x        = (float *) param->data + i;
        const float was = *x;
        double loss[4], size = 0;
        for (int k = 0; k < 4; k++) {
            static const int steps[] = {-2, -1, 1, 2};
            *x                       = (float) (was + steps[k] * h);
            loss[k]                  = loss_of(g, forward, c->ctx, &size);
        }
        *x                = was;
        const double want = (8 * (loss[2] - loss[1]) - (loss[3] - loss[0])) / (12 * h), got = element(grad, i);
        const double room = tol * fmax(most, 0.05) + size * 4e-7 / h;
        if (!(fabs(got - want) <= room)) {
            fail_msg("%s: gradient %.7g by element %lld of a parameter, differences say %.7g (room %.2g)", rule->name, got,
                (long long) i, want, room);
        }
    }
}

// The same in memory that a plan gave. The loss's own gradient is a leaf without memory until then.
static void compare_planned(
    const struct grad_rule *rule, uint64_t seed, const struct grad_case *plain, struct ggml_cgraph *plain_graph) {
    const struct grad_api api = grad_api_own();
    struct check_rng rng      = check_rng_new(seed);
    struct ggml_context *data = context();
    struct grad_case c        = {.a = &api, .ctx = data, .rng = &rng, .scale = 1};
    const struct grad_graph g = grad_graph_new(&c, rule);
    struct ggml_cgraph *graph = ggml_new_graph_custom(data, 512, true);
    ggml_build_forward_expand(graph, g.loss);
    ggml_build_backward_expand(data, graph, NULL);
    for (int i = 0; i < graph->n_nodes; i++) { // nodes lose the memory they have
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
    plan.work_data         = plan.work_size > 0 ? malloc(plan.work_size) : NULL;
    assert_int_equal(ggml_graph_compute(graph, &plan), GGML_STATUS_SUCCESS);
    for (int i = 0; i < c.n_params; i++) {
        const struct ggml_tensor *here  = ggml_graph_get_grad(graph, c.params[i]),
                                 *there = ggml_graph_get_grad(plain_graph, plain->params[i]);
        for (int64_t k = 0; k < ggml_nelements(here); k++) {
            const float x = element(here, k), y = element(there, k);
            if (memcmp(&x, &y, sizeof x) != 0) {
                fail_msg("%s: parameter %d, element %lld: %.9g in planned memory, %.9g in its own", rule->name, i, (long long) k,
                    (double) x, (double) y);
            }
        }
    }
    free(plan.work_data);
    ggml_gallocr_free(galloc);
    ggml_free(data);
}

static void try_rule(const struct grad_rule *rule, uint64_t seed) {
    const struct grad_api api   = grad_api_own();
    struct check_rng rng        = check_rng_new(seed);
    struct grad_case c          = {.a = &api, .ctx = context(), .rng = &rng, .scale = 1};
    const struct grad_graph g   = grad_graph_new(&c, rule);
    struct ggml_cgraph *forward = ggml_new_graph_custom(c.ctx, 256, false), *graph = ggml_new_graph_custom(c.ctx, 512, true);
    ggml_build_forward_expand(forward, g.result);
    ggml_build_forward_expand(graph, g.loss);
    ggml_build_backward_expand(c.ctx, graph, NULL);
    ggml_graph_reset(graph);
    if (ggml_graph_compute_with_ctx(c.ctx, graph, 1) != GGML_STATUS_SUCCESS) {
        fail_msg("%s: the graph cannot be computed: %s", rule->name, berth_last_error());
    }
    for (int i = 0; i < c.n_params; i++) {
        const struct ggml_tensor *grad = ggml_graph_get_grad(graph, c.params[i]);
        if (grad == NULL || !ggml_are_same_shape(grad, c.params[i]) || grad->type != GGML_TYPE_F32) {
            fail_msg("%s: parameter %d has no gradient of its shape", rule->name, i);
        }
        probe(rule, &c, &g, forward, c.params[i], grad);
    }
    ggml_graph_compute_with_ctx(c.ctx, graph, 2); // what the probes moved is back
    compare_planned(rule, seed, &c, graph);
    ggml_free(c.ctx);
}

static void test_rules(void **state) {
    (void) state;
    const uint64_t seed = check_seed(20261115);
    for (int i = 0; i < GRAD_N_RULES; i++) {
        for (int round = 0; round < ROUNDS; round++) {
            try_rule(&grad_rules[i], seed * 1000003 + (uint64_t) (i * 64 + round));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
