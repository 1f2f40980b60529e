// SPDX-License-Identifier: MIT
// test_opt.c: backward graphs and ggml-opt.h in error cases: refused arguments, losses that are not finite, contexts that are too
// small, every allocation failing in turn. Also features that the reference lacks: graphs that change, and gradients without steps.

#include "support/check.h"

#include "base/base.h"
#include "berth-opt.h"
#include "core/graph.h"
#include "core/op.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <math.h>

typedef struct ggml_tensor T;

// ---- backward graphs that are refused ----

static struct ggml_context *context(size_t size) {
    return ggml_init((struct ggml_init_params){.mem_size = size});
}

static T *param(struct ggml_context *ctx, int64_t n0, int64_t n1) {
    T *t = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n0, n1);
    ggml_set_param(t);
    return t;
}

// The loss is the sum of t. Building the backward pass must fail with an error that contains `text`, and the graph cannot be
// computed.
static void expect_refusal(struct ggml_context *ctx, T *t, bool grads, bool loss, const char *text) {
    T *sum = ggml_sum(ctx, t);
    if (loss) {
        ggml_set_loss(sum);
    }
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 64, grads);
    ggml_build_forward_expand(graph, sum);
    ggml_build_backward_expand(ctx, graph, NULL);
    if (strstr(berth_last_error(), text) == NULL) {
        fail_msg("'%s' is not in '%s'", text, berth_last_error());
    }
    assert_int_equal(berth_graph_check(graph), GGML_STATUS_FAILED);
    assert_int_equal(ggml_graph_compute_with_ctx(ctx, graph, 1), GGML_STATUS_FAILED);
    ggml_free(ctx);
}

static void custom(T *dst, const T *a, int ith, int nth, void *data) {
    (void) dst, (void) a, (void) ith, (void) nth, (void) data;
}

static void test_refused(void **state) {
    (void) state;
    check_quiet();
    struct ggml_context *ctx = context(1 << 20);
    expect_refusal(ctx, ggml_map_custom1(ctx, param(ctx, 4, 4), custom, 1, NULL), true, true, "MAP_CUSTOM1");
    ctx = context(1 << 20);
    expect_refusal(ctx, ggml_solve_tri(ctx, param(ctx, 4, 4), param(ctx, 4, 4), true, true, false), true, true, "SOLVE_TRI");
    ctx = context(1 << 20);
    expect_refusal(ctx, ggml_scale_inplace(ctx, ggml_sqr(ctx, param(ctx, 4, 4)), 2.0f), true, true, "in-place");
    ctx = context(1 << 20);
    expect_refusal(ctx, ggml_sqr(ctx, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4)), true, true, "no node is a parameter");
    ctx = context(1 << 20);
    expect_refusal(ctx, ggml_sqr(ctx, param(ctx, 4, 4)), true, false, "no node is a loss");
    ctx = context(1 << 20);
    expect_refusal(ctx, ggml_sqr(ctx, param(ctx, 4, 4)), false, true, "created without gradients");
    ggml_build_backward_expand(NULL, NULL, NULL);
}

// An op without a gradient rule is not an error if the loss does not depend on it.
static void test_op_unrelated_to_loss(void **state) {
    (void) state;
    struct ggml_context *ctx = context(1 << 20);
    T *x = param(ctx, 3, 1);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 64, true);
    T *loss = ggml_sum(ctx, ggml_sqr(ctx, x));
    memcpy(x->data, (float[]){1, 2, 3}, 12);
    ggml_set_loss(loss);
    ggml_build_forward_expand(graph, ggml_map_custom1(ctx, x, custom, 1, NULL));
    ggml_build_forward_expand(graph, ggml_argmax(ctx, x));
    ggml_build_forward_expand(graph, loss);
    ggml_build_backward_expand(ctx, graph, NULL);
    ggml_graph_reset(graph);
    assert_int_equal(ggml_graph_compute_with_ctx(ctx, graph, 1), GGML_STATUS_SUCCESS);
    assert_memory_equal(ggml_graph_get_grad(graph, x)->data, ((float[]){2, 4, 6}), 12);
    ggml_free(ctx);
}

// f16 and bf16 weights get f32 gradients, quantised weights get none.
static void test_types(void **state) {
    (void) state;
    struct ggml_context *ctx = context(1 << 20);
    T *f16 = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, 32, 3), *bf16 = ggml_new_tensor_2d(ctx, GGML_TYPE_BF16, 32, 3);
    T *q8_0 = ggml_new_tensor_2d(ctx, GGML_TYPE_Q8_0, 32, 3), *x = param(ctx, 32, 2);
    memset(f16->data, 0, ggml_nbytes(f16)), memset(bf16->data, 0, ggml_nbytes(bf16)), memset(q8_0->data, 0, ggml_nbytes(q8_0));
    for (int i = 0; i < 64; i++) {
        ((float *) x->data)[i] = (float) i;
    }
    ggml_set_param(f16), ggml_set_param(bf16), ggml_set_param(q8_0);
    T *sum = ggml_add(ctx, ggml_mul_mat(ctx, f16, x), ggml_mul_mat(ctx, bf16, x));
    T *loss = ggml_sum(ctx, ggml_add(ctx, sum, ggml_mul_mat(ctx, q8_0, x)));
    ggml_set_loss(loss);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 128, true);
    ggml_build_forward_expand(graph, loss);
    ggml_build_backward_expand(ctx, graph, NULL);
    ggml_graph_reset(graph);
    assert_int_equal(ggml_graph_compute_with_ctx(ctx, graph, 1), GGML_STATUS_SUCCESS);
    assert_null(ggml_graph_get_grad(graph, q8_0));
    const T *by_f16 = ggml_graph_get_grad(graph, f16), *by_bf16 = ggml_graph_get_grad(graph, bf16);
    assert_int_equal(by_f16->type, GGML_TYPE_F32);
    for (int i = 0; i < 96; i++) { // each row is the sum of both rows of x
        assert_float_equal(((float *) by_f16->data)[i], (float) (2 * (i % 32) + 32), 0);
        assert_float_equal(((float *) by_bf16->data)[i], (float) (2 * (i % 32) + 32), 0);
    }
    ggml_free(ctx);
}

// ---- optimisation ----

struct job {
    struct ggml_context *ctx, *compute;
    ggml_backend_t backend;
    ggml_backend_buffer_t buffer;
    ggml_backend_sched_t sched;
    T *inputs, *w, *outputs;
    ggml_opt_context_t opt;
};

static struct ggml_opt_optimizer_params pars(void *data) {
    struct ggml_opt_optimizer_params p = ggml_opt_get_default_optimizer_params(NULL);
    p.sgd.alpha = data != NULL ? *(const float *) data : 0.1f;
    return p;
}

static struct ggml_opt_params job_params(struct job *j, bool is_static) {
    struct ggml_opt_params p = ggml_opt_default_params(j->sched, GGML_OPT_LOSS_TYPE_SUM);
    p.ctx_compute = is_static ? j->compute : NULL;
    p.inputs = is_static ? j->inputs : NULL;
    p.outputs = is_static ? j->outputs : NULL;
    p.get_opt_pars = pars;
    p.optimizer = GGML_OPT_OPTIMIZER_TYPE_SGD;
    return p;
}

static bool job_init(struct job *j, size_t compute_size) {
    *j = (struct job){.ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true})};
    j->compute = ggml_init((struct ggml_init_params){.mem_size = compute_size, .no_alloc = true});
    j->inputs = ggml_new_tensor_2d(j->ctx, GGML_TYPE_F32, 2, 1);
    j->w = ggml_new_tensor_2d(j->ctx, GGML_TYPE_F32, 2, 1);
    ggml_set_param(j->w);
    ggml_set_name(j->w, "weight");
    j->outputs = ggml_log(j->compute, ggml_mul_mat(j->compute, j->w, j->inputs));
    j->backend = ggml_backend_cpu_init();
    j->buffer = j->ctx != NULL && j->backend != NULL ? ggml_backend_alloc_ctx_tensors(j->ctx, j->backend) : NULL;
    if (j->buffer == NULL || j->compute == NULL) {
        return false;
    }
    ggml_backend_tensor_set(j->w, (float[]){1, 2}, 0, 8);
    ggml_backend_buffer_type_t buft = ggml_backend_get_default_buffer_type(j->backend);
    j->sched = ggml_backend_sched_new(&j->backend, &buft, 1, 512, false, true);
    return j->sched != NULL;
}

static void job_fini(struct job *j) {
    ggml_opt_free(j->opt);
    ggml_backend_sched_free(j->sched);
    ggml_backend_buffer_free(j->buffer);
    ggml_backend_free(j->backend);
    ggml_free(j->compute);
    ggml_free(j->ctx);
}

static enum ggml_status job_eval(struct job *j, float x0, float x1, ggml_opt_result_t result) {
    ggml_opt_alloc(j->opt, true);
    if (berth_opt_status(j->opt) != GGML_STATUS_SUCCESS) {
        return berth_opt_status(j->opt);
    }
    ggml_backend_tensor_set(j->inputs, (float[]){x0, x1}, 0, 8);
    ggml_opt_eval(j->opt, result);
    return berth_opt_status(j->opt);
}

static float weight(const struct job *j, int i) {
    float w;
    ggml_backend_tensor_get(j->w, &w, (size_t) i * sizeof w, sizeof w);
    return w;
}

// A value of the graph is not finite: the log of a negative number or of 0, a NaN in the inputs, or a NaN in the weights. The
// optimiser takes no step, and the error names the first tensor that is not finite. The next step with valid values works.
static void test_not_finite(void **state) {
    (void) state;
    check_quiet();
    struct job j;
    assert_true(job_init(&j, 4 << 20));
    j.opt = ggml_opt_init(job_params(&j, true));
    ggml_opt_result_t result = ggml_opt_result_init();
    assert_int_equal(job_eval(&j, 1, 1, result), GGML_STATUS_SUCCESS);
    const float w0 = weight(&j, 0), w1 = weight(&j, 1);
    assert_true(w0 < 1 && w1 < 2);
    assert_int_equal(job_eval(&j, -1, -1, result), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "step 2"));
    assert_non_null(strstr(berth_last_error(), "(LOG)"));
    assert_true(weight(&j, 0) == w0 && weight(&j, 1) == w1);
    assert_int_equal(job_eval(&j, NAN, 1, NULL), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "leaf_0 (NONE)")); // the input
    ggml_backend_tensor_set(j.w, (float[]){NAN, 2}, 0, 8);
    assert_int_equal(job_eval(&j, 1, 1, NULL), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "weight (NONE)"));
    ggml_backend_tensor_set(j.w, (float[]){w0, w1}, 0, 8);
    assert_int_equal(job_eval(&j, 0, 0, NULL), GGML_STATUS_FAILED); // -infinity
    assert_int_equal(job_eval(&j, 1, 1, NULL), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_opt_iter(j.opt), 3);
    double loss;
    ggml_opt_result_loss(result, &loss, NULL);
    assert_true(isnan(loss));
    ggml_opt_result_free(result);
    job_fini(&j);
}

// The scheduler's eval callback is still called for every node and may stop a graph.
static bool count(struct ggml_tensor *t, bool ask, void *data) {
    (void) t;
    *(int *) data += !ask;
    return true;
}

static void test_callback(void **state) {
    (void) state;
    struct job j;
    int n = 0;
    assert_true(job_init(&j, 4 << 20));
    ggml_backend_sched_set_eval_callback(j.sched, count, &n);
    j.opt = ggml_opt_init(job_params(&j, true));
    assert_int_equal(job_eval(&j, 1, 1, NULL), GGML_STATUS_SUCCESS);
    assert_true(n >= 6);
    job_fini(&j);
}

static void test_bad_arguments(void **state) {
    (void) state;
    check_quiet();
    struct job j;
    assert_true(job_init(&j, 4 << 20));
    struct ggml_opt_params p = job_params(&j, true);
    p.opt_period = 0;
    assert_null(ggml_opt_init(p));
    p = job_params(&j, true);
    p.backend_sched = NULL;
    assert_null(ggml_opt_init(p));
    p = job_params(&j, true);
    p.inputs = NULL;
    assert_null(ggml_opt_init(p));
    p = job_params(&j, true);
    p.loss_type = (enum ggml_opt_loss_type) 9;
    assert_null(ggml_opt_init(p));
    assert_null(ggml_opt_dataset_init(GGML_TYPE_F32, GGML_TYPE_F32, 0, 1, 1, 1));
    assert_null(ggml_opt_dataset_init(GGML_TYPE_F32, GGML_TYPE_F32, INT64_MAX / 8, 1, 9, 1));
    ggml_opt_dataset_t d = ggml_opt_dataset_init(GGML_TYPE_F32, GGML_TYPE_F32, 2, 0, 10, 2);
    float batch[8];
    ggml_opt_dataset_get_batch_host(d, batch, 12, NULL, 0); // not a multiple of a shard
    assert_non_null(strstr(berth_last_error(), "12 bytes"));
    ggml_opt_dataset_get_batch_host(d, batch, 16, NULL, 5); // there are five batches: 0 to 4
    assert_non_null(strstr(berth_last_error(), "batch 5"));
    ggml_opt_dataset_get_batch_host(d, batch, 16, batch, 0); // the data set has no labels
    assert_non_null(strstr(berth_last_error(), "labels"));
    j.opt = ggml_opt_init(job_params(&j, true));
    ggml_opt_dataset_shuffle(j.opt, d, 3);
    assert_non_null(strstr(berth_last_error(), "multiple of the shard size"));
    ggml_opt_epoch(j.opt, d, NULL, NULL, 10, NULL, NULL); // a batch of one is not a multiple of a shard of two
    assert_int_equal(berth_opt_status(j.opt), GGML_STATUS_FAILED);
    ggml_opt_eval(j.opt, NULL); // no graph is allocated
    assert_int_equal(berth_opt_status(j.opt), GGML_STATUS_FAILED);
    ggml_opt_dataset_free(d);
    job_fini(&j);
    ggml_opt_free(NULL), ggml_opt_reset(NULL, true), ggml_opt_alloc(NULL, true), ggml_opt_eval(NULL, NULL),
        ggml_opt_dataset_free(NULL);
    ggml_opt_result_free(NULL), ggml_opt_result_reset(NULL), ggml_opt_epoch(NULL, NULL, NULL, NULL, 0, NULL, NULL);
    assert_null(ggml_opt_loss(NULL));
}

// Invalid hyperparameters of an optimiser.
static void test_bad_hyperparameters(void **state) {
    (void) state;
    check_quiet();
    struct job j;
    float alpha = NAN;
    assert_true(job_init(&j, 4 << 20));
    struct ggml_opt_params p = job_params(&j, true);
    p.get_opt_pars_ud = &alpha;
    j.opt = ggml_opt_init(p);
    assert_int_equal(job_eval(&j, 1, 1, NULL), GGML_STATUS_FAILED);
    alpha = 0.1f;
    assert_int_equal(job_eval(&j, 1, 1, NULL), GGML_STATUS_SUCCESS);
    job_fini(&j);
}

// If the compute context is too small, ggml_opt_init returns NULL and sets an error.
static void test_small_context(void **state) {
    (void) state;
    check_quiet();
    for (size_t size = 1 << 12; size < 600000; size += 40000) {
        struct job j;
        job_init(&j, size);
        j.opt = ggml_opt_init(job_params(&j, true));
        if (j.opt == NULL) {
            assert_true(strlen(berth_last_error()) > 0);
        } else {
            assert_int_equal(job_eval(&j, 1, 1, NULL), GGML_STATUS_SUCCESS);
        }
        job_fini(&j);
    }
}

// Each evaluation has another graph, in a context that is freed afterwards. Gradients accumulate only within a period.
static void test_dynamic(void **state) {
    (void) state;
    struct job j;
    assert_true(job_init(&j, 1 << 16));
    struct ggml_opt_params p = job_params(&j, false);
    p.opt_period = 2;
    j.opt = ggml_opt_init(p);
    for (int i = 0; i < 8; i++) {
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
        struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 256, true);
        T *out = ggml_mul_mat(ctx, j.w, j.inputs);
        for (int k = 0; k < i; k++) { // each graph is longer than the one before
            out = ggml_scale(ctx, out, 1.0f);
        }
        ggml_build_forward_expand(graph, out);
        ggml_opt_prepare_alloc(j.opt, ctx, graph, j.inputs, out);
        assert_int_equal(job_eval(&j, 1, 0, NULL), GGML_STATUS_SUCCESS);
        assert_float_equal(weight(&j, 0), 1.0f - 0.2f * (float) ((i + 1) / 2), 1e-6f);
        ggml_free(ctx);
    }
    ggml_opt_alloc(j.opt, true); // there is no graph
    assert_int_equal(berth_opt_status(j.opt), GGML_STATUS_FAILED);
    job_fini(&j);
}

// GGML_OPT_BUILD_TYPE_GRAD: gradients accumulate and the weights do not change.
static void test_gradients_without_steps(void **state) {
    (void) state;
    struct job j;
    assert_true(job_init(&j, 4 << 20));
    j.outputs = ggml_mul_mat(j.compute, j.w, j.inputs);
    struct ggml_opt_params p = job_params(&j, true);
    p.build_type = GGML_OPT_BUILD_TYPE_GRAD;
    p.opt_period = 3;
    j.opt = ggml_opt_init(p);
    assert_non_null(j.opt);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(job_eval(&j, 1, 2, NULL), GGML_STATUS_SUCCESS);
        float acc[2];
        ggml_backend_tensor_get(ggml_opt_grad_acc(j.opt, j.w), acc, 0, sizeof acc);
        assert_float_equal(acc[0], (float) i, 0);
        assert_float_equal(acc[1], (float) (2 * i), 0);
    }
    assert_float_equal(weight(&j, 0), 1.0f, 0);
    job_fini(&j);
}

// ---- threads ----

#define WIDE 150
#define N_BATCH 40

// Takes some training steps with two layers, which are large enough for several threads. Stores all weights.
static void train_with(int n_threads, float *weights) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    struct ggml_context *work = ggml_init((struct ggml_init_params){.mem_size = 4 << 20, .no_alloc = true});
    T *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, WIDE, N_BATCH), *w[2];
    ggml_backend_t backend = ggml_backend_cpu_init();
    for (int i = 0; i < 2; i++) {
        w[i] = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, WIDE, WIDE);
        ggml_set_param(w[i]);
    }
    ggml_backend_cpu_set_n_threads(backend, n_threads);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    ggml_backend_buffer_type_t buft = ggml_backend_get_default_buffer_type(backend);
    ggml_backend_sched_t sched = ggml_backend_sched_new(&backend, &buft, 1, 512, false, true);
    struct check_rng rng = check_rng_new(1);
    for (int i = 0; i < 2 * WIDE * WIDE; i++) {
        ((float *) w[i / (WIDE * WIDE)]->data)[i % (WIDE * WIDE)] = (float) check_rng_below(&rng, 1000) / 5000.0f - 0.1f;
    }
    struct ggml_opt_params p = ggml_opt_default_params(sched, GGML_OPT_LOSS_TYPE_CROSS_ENTROPY);
    p.ctx_compute = work;
    p.inputs = x;
    p.outputs = ggml_mul_mat(work, w[1], ggml_silu(work, ggml_mul_mat(work, w[0], x)));
    ggml_opt_context_t opt = ggml_opt_init(p);
    for (int step = 0; step < 3; step++) {
        ggml_opt_alloc(opt, true);
        for (int i = 0; i < WIDE * N_BATCH; i++) {
            ((float *) x->data)[i] = (float) check_rng_below(&rng, 1000) / 500.0f - 1.0f;
            ((float *) ggml_opt_labels(opt)->data)[i] = i % WIDE == (i / WIDE + step) % WIDE ? 1.0f : 0.0f;
        }
        ggml_opt_eval(opt, NULL);
        assert_int_equal(berth_opt_status(opt), GGML_STATUS_SUCCESS);
    }
    for (int i = 0; i < 2; i++) {
        memcpy(weights + i * WIDE * WIDE, w[i]->data, WIDE * WIDE * sizeof(float));
    }
    ggml_opt_free(opt);
    ggml_backend_sched_free(sched);
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_free(work);
    ggml_free(ctx);
}

static void test_threads(void **state) {
    (void) state;
    static float one[2 * WIDE * WIDE], three[2 * WIDE * WIDE];
    train_with(1, one);
    train_with(3, three);
    assert_memory_equal(one, three, sizeof one);
}

// ---- every allocation fails in turn ----

static bool scenario(void) {
    struct job j;
    bool ok = false;
    ggml_opt_dataset_t d = NULL;
    ggml_opt_result_t result = NULL;
    if (job_init(&j, 4 << 20)) {
        struct ggml_opt_params p = job_params(&j, true);
        p.optimizer = GGML_OPT_OPTIMIZER_TYPE_ADAMW;
        p.loss_type = GGML_OPT_LOSS_TYPE_CROSS_ENTROPY;
        p.opt_period = 2;
        j.opt = ggml_opt_init(p);
        d = ggml_opt_dataset_init(GGML_TYPE_F32, GGML_TYPE_F32, 2, 1, 4, 1);
        result = ggml_opt_result_init();
        if (j.opt != NULL && d != NULL && result != NULL) {
            for (int i = 0; i < 8; i++) {
                ((float *) ggml_opt_dataset_data(d)->data)[i] = 1.0f + (float) i;
            }
            memset(ggml_opt_dataset_labels(d)->data, 0, 16);
            ggml_opt_epoch(j.opt, d, result, result, 2, NULL, NULL);
            int64_t n;
            ggml_opt_result_ndata(result, &n);
            ok = berth_opt_status(j.opt) == GGML_STATUS_SUCCESS && n == 4;
        }
    }
    ggml_opt_result_free(result);
    ggml_opt_dataset_free(d);
    job_fini(&j);
    return ok;
}

static void test_allocations(void **state) {
    (void) state;
    check_quiet();
    assert_true(scenario());
    int n_failed = 0;
    for (int64_t n = 1; n < 400; n++) {
        berth_alloc_fail_at(n);
        const bool ok = scenario();
        berth_alloc_fail_at(0);
        n_failed += !ok;
        if (ok && n_failed > 0 && n > 300) {
            break;
        }
    }
    assert_true(n_failed > 20);
    assert_true(scenario());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_op_unrelated_to_loss),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_callback),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_bad_hyperparameters),
        cmocka_unit_test(test_small_context),
        cmocka_unit_test(test_dynamic),
        cmocka_unit_test(test_gradients_without_steps),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
