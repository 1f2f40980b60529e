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
        const double v = (double) grad_element(g->result, i) * ((const float *) g->weights->data)[i];
        sum += v;
        *size += fabs(v);
    }
    return sum;
}

static double largest(const struct ggml_tensor *grad) {
    double most = 0;
    for (int64_t i = 0; i < ggml_nelements(grad); i++) {
        most = fmax(most, fabs((double) grad_element(grad, i)));
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
        const double want = (8 * (loss[2] - loss[1]) - (loss[3] - loss[0])) / (12 * h), got = grad_element(grad, i);
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
            const float x = grad_element(here, k), y = grad_element(there, k);
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

// ---- functions of one number, in double precision ----

// Some kernels round to half precision, which differences of their results cannot see through: the formulas themselves can be
// taken in double.
static double of_abs(double x) {
    return fabs(x);
}
static double of_neg(double x) {
    return -x;
}
static double of_elu(double x) {
    return x > 0 ? x : expm1(x);
}
static double of_relu(double x) {
    return x > 0 ? x : 0;
}
static double of_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double of_gelu(double x) {
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static double of_gelu_quick(double x) {
    return x * of_sigmoid(1.702 * x);
}
static double of_gelu_erf(double x) {
    return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
}
static double of_silu(double x) {
    return x * of_sigmoid(x);
}
static double of_hardsigmoid(double x) {
    return fmin(1, fmax(0, (x + 3) / 6));
}
static double of_hardswish(double x) {
    return x * of_hardsigmoid(x);
}
static double of_softplus(double x) {
    return log1p(exp(x));
}

static const struct {
    enum ggml_unary_op op;
    double (*f)(double);
} functions[] = {{GGML_UNARY_OP_ABS, of_abs}, {GGML_UNARY_OP_NEG, of_neg}, {GGML_UNARY_OP_TANH, tanh},
    {GGML_UNARY_OP_ELU, of_elu}, {GGML_UNARY_OP_RELU, of_relu}, {GGML_UNARY_OP_SIGMOID, of_sigmoid},
    {GGML_UNARY_OP_GELU, of_gelu}, {GGML_UNARY_OP_GELU_QUICK, of_gelu_quick}, {GGML_UNARY_OP_GELU_ERF, of_gelu_erf},
    {GGML_UNARY_OP_SILU, of_silu}, {GGML_UNARY_OP_HARDSIGMOID, of_hardsigmoid}, {GGML_UNARY_OP_HARDSWISH, of_hardswish},
    {GGML_UNARY_OP_EXP, exp}, {GGML_UNARY_OP_EXPM1, expm1}, {GGML_UNARY_OP_SOFTPLUS, of_softplus}};

static const struct {
    enum ggml_glu_op op;
    double (*f)(double);
} gates[] = {{GGML_GLU_OP_REGLU, of_relu}, {GGML_GLU_OP_GEGLU, of_gelu}, {GGML_GLU_OP_SWIGLU, of_silu},
    {GGML_GLU_OP_GEGLU_ERF, of_gelu_erf}, {GGML_GLU_OP_GEGLU_QUICK, of_gelu_quick}};

#define N_POINTS 64
#define EXACT 4e-6 // f32 gradients of functions whose derivatives are near 1

static double slope(double (*f)(double), double x) {
    const double h = 1e-4;
    return (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h);
}

// The gradient of sum(y) by x, whose numbers are there.
static struct ggml_cgraph *gradient_of(struct ggml_context *ctx, struct ggml_tensor *y) {
    struct ggml_tensor *loss  = ggml_sum(ctx, y);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 256, true);
    ggml_set_loss(loss);
    ggml_build_forward_expand(graph, loss);
    ggml_build_backward_expand(ctx, graph, NULL);
    ggml_graph_reset(graph);
    assert_int_equal(ggml_graph_compute_with_ctx(ctx, graph, 1), GGML_STATUS_SUCCESS);
    return graph;
}

static void expect_near(const char *name, double x, double got, double want) {
    if (!(fabs(got - want) <= EXACT * fmax(1, fabs(want)))) {
        fail_msg("%s at %g: gradient %.9g, the formula has %.9g", name, x, got, want);
    }
}

static void test_formulas(void **state) {
    (void) state;
    const struct grad_api api = grad_api_own();
    struct check_rng rng      = check_rng_new(check_seed(3));
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        struct grad_case c             = {.a = &api, .ctx = context(), .rng = &rng, .scale = i % 2 == 0 ? 1 : 2.5};
        struct ggml_tensor *x          = grad_param(&c, N_POINTS, 1, 1, 1);
        const struct ggml_tensor *grad = ggml_graph_get_grad(gradient_of(c.ctx, ggml_unary(c.ctx, x, functions[i].op)), x);
        for (int k = 0; k < N_POINTS; k++) {
            const double at = ((float *) x->data)[k];
            expect_near(ggml_unary_op_name(functions[i].op), at, grad_element(grad, k), slope(functions[i].f, at));
        }
        ggml_free(c.ctx);
    }
    for (size_t i = 0; i < sizeof gates / sizeof gates[0]; i++) {
        struct grad_case c    = {.a = &api, .ctx = context(), .rng = &rng, .scale = 1};
        struct ggml_tensor *x = grad_param(&c, N_POINTS, 1, 1, 1), *g = grad_param(&c, N_POINTS, 1, 1, 1);
        struct ggml_cgraph *graph = gradient_of(c.ctx, ggml_glu_split(c.ctx, x, g, gates[i].op));
        for (int k = 0; k < N_POINTS; k++) {
            const double at = ((float *) x->data)[k], gate = ((float *) g->data)[k];
            expect_near(
                ggml_glu_op_name(gates[i].op), at, grad_element(ggml_graph_get_grad(graph, x), k), gate * slope(gates[i].f, at));
            const bool halves    = gates[i].f == of_gelu || gates[i].f == of_gelu_quick; // the activation itself is rounded
            const double to_gate = grad_element(ggml_graph_get_grad(graph, g), k), want = gates[i].f(at);
            expect_near(
                ggml_glu_op_name(gates[i].op), at, halves ? (fabs(to_gate - want) < 1e-3 ? want : to_gate) : to_gate, want);
        }
        ggml_free(c.ctx);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules), cmocka_unit_test(test_formulas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
