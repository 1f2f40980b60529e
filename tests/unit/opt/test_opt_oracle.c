// SPDX-License-Identifier: MIT
// test_opt_oracle.c: compares ggml-opt.h with the reference: the order of shuffled data, and 200 steps of a regression, a
// classifier of two layers and a small convolution net. Both sides start from the same weights and data. Losses must agree at each
// step, and so must the counts of correct predictions.

#include "support/oracle.h"

#include "support/grad_cases.h"

#define N_STEPS 200
#define TOLERANCE 1e-5 // relative to a loss
#define N_DATA 96
#define BATCH 8

static struct grad_api own, other; // other: the reference

static bool load(void) {
    const char *name;
    void *cpu = oracle_load_cpu(&name);
    if (cpu == NULL) {
        print_message("skipped: %s\n", oracle_why());
        return false;
    }
    own = grad_api_own();
    return grad_api_of(&other, oracle_load("libggml-base.so"), cpu);
}

// ---- nets: parameters in c->params, inputs [n_in, BATCH] ----

struct net {
    const char *name;
    int64_t n_in, n_out;
    enum ggml_opt_loss_type loss;
    enum ggml_opt_optimizer_type optimizer;
    int period;
    T *(*build)(struct grad_case *c, struct ggml_context *compute, T *inputs);
};

static T *param(struct grad_case *c, int64_t n0, int64_t n1, int64_t n2, int64_t n3, const char *name) {
    T *t = c->a->ggml_new_tensor(c->ctx, GGML_TYPE_F32, 4, (int64_t[]){n0, n1, n2, n3});
    c->a->ggml_set_param(t);
    c->a->ggml_set_name(t, name);
    c->params[c->n_params++] = t;
    return t;
}

static T *build_line(struct grad_case *c, struct ggml_context *ctx, T *in) {
    return c->a->ggml_add(ctx, c->a->ggml_mul_mat(ctx, param(c, 5, 3, 1, 1, "w"), in), param(c, 3, 1, 1, 1, "b"));
}

static T *build_mlp(struct grad_case *c, struct ggml_context *ctx, T *in) {
    T *w1 = param(c, 20, 33, 1, 1, "w1"), *b1 = param(c, 33, 1, 1, 1, "b1"), *w2 = param(c, 33, 4, 1, 1, "w2");
    T *h = c->a->ggml_unary(ctx, c->a->ggml_add(ctx, c->a->ggml_mul_mat(ctx, w1, in), b1), GGML_UNARY_OP_RELU);
    return c->a->ggml_mul_mat(ctx, w2, h);
}

// The convolution net. Its kernel is f32, so that the columns of the convolution are f32, too. With f16, Berth and the reference
// would round the sums differently.
static T *build_net(struct grad_case *c, struct ggml_context *ctx, T *in) {
    T *kernel = param(c, 3, 3, 1, 4, "kernel"), *w = param(c, 36, 4, 1, 1, "w");
    T *x = c->a->ggml_reshape_4d(ctx, in, 8, 8, 1, BATCH);
    T *cols = c->a->ggml_im2col(ctx, kernel, x, 1, 1, 0, 0, 1, 1, true, GGML_TYPE_F32);
    T *y = c->a->ggml_mul_mat(ctx, c->a->ggml_reshape_2d(ctx, cols, 9, 36 * BATCH), c->a->ggml_reshape_2d(ctx, kernel, 9, 4));
    y = c->a->ggml_cont(ctx, c->a->ggml_permute(ctx, c->a->ggml_reshape_4d(ctx, y, 6, 6, BATCH, 4), 0, 1, 3, 2));
    y = c->a->ggml_pool_2d(ctx, c->a->ggml_unary(ctx, y, GGML_UNARY_OP_RELU), GGML_OP_POOL_MAX, 2, 2, 2, 2, 0, 0);
    return c->a->ggml_mul_mat(ctx, w, c->a->ggml_reshape_2d(ctx, y, 36, BATCH));
}

static const struct net nets[] = {
    {"regression", 5, 3, GGML_OPT_LOSS_TYPE_MEAN_SQUARED_ERROR, GGML_OPT_OPTIMIZER_TYPE_SGD, 1, build_line},
    {"regression, two batches a step", 5, 3, GGML_OPT_LOSS_TYPE_MEAN_SQUARED_ERROR, GGML_OPT_OPTIMIZER_TYPE_ADAMW, 2, build_line},
    {"classifier", 20, 4, GGML_OPT_LOSS_TYPE_CROSS_ENTROPY, GGML_OPT_OPTIMIZER_TYPE_ADAMW, 1, build_mlp},
    {"convolutions", 64, 4, GGML_OPT_LOSS_TYPE_CROSS_ENTROPY, GGML_OPT_OPTIMIZER_TYPE_ADAMW, 1, build_net},
};

// ---- one side ----

struct side {
    struct grad_case c;
    struct ggml_context *compute;
    ggml_backend_t backend;
    ggml_backend_buffer_t buffer;
    ggml_backend_sched_t sched;
    ggml_opt_dataset_t data;
    ggml_opt_context_t opt;
    ggml_opt_result_t result;
    const struct net *net;
};

static struct ggml_opt_optimizer_params pars(void *data) {
    (void) data;
    struct ggml_opt_optimizer_params p = ggml_opt_get_default_optimizer_params(NULL);
    p.sgd.alpha = 0.01f;
    p.adamw.alpha = 0.003f;
    p.adamw.wd = p.sgd.wd = 0.001f;
    return p;
}

static float wave(int64_t i) {
    return sinf((float) (i % 9973) * 1.7f + (float) (i / 9973));
}

static void fill_data(struct side *s) {
    const struct net *net = s->net;
    float *x = s->c.a->ggml_opt_dataset_data(s->data)->data, *y = s->c.a->ggml_opt_dataset_labels(s->data)->data;
    for (int64_t i = 0; i < N_DATA; i++) {
        float largest = -2.0f;
        int64_t top = 0;
        for (int64_t k = 0; k < net->n_in; k++) {
            x[i * net->n_in + k] = wave(i * net->n_in + k);
        }
        for (int64_t k = 0; k < net->n_out; k++) { // labels: a function of x, or a one-hot vector of the largest component
            const float v = x[i * net->n_in + k] - 0.5f * x[i * net->n_in + (k + 2) % net->n_in];
            top = v > largest ? k : top;
            largest = v > largest ? v : largest;
            y[i * net->n_out + k] = net->loss == GGML_OPT_LOSS_TYPE_CROSS_ENTROPY ? 0.0f : v;
        }
        if (net->loss == GGML_OPT_LOSS_TYPE_CROSS_ENTROPY) {
            y[i * net->n_out + (i % 4 == 0 ? i / 4 % net->n_out : top)] = 1.0f; // a quarter of the labels is wrong: no loss is 0
        }
    }
}

static void side_init(struct side *s, const struct grad_api *a, const struct net *net) {
    const struct ggml_init_params sizes = {.mem_size = 4u << 20, .no_alloc = true};

    *s = (struct side){.c = {.a = a, .ctx = a->ggml_init(sizes), .scale = 1}, .compute = a->ggml_init(sizes), .net = net};
    T *inputs = a->ggml_new_tensor(s->c.ctx, GGML_TYPE_F32, 2, (int64_t[]){net->n_in, BATCH});
    T *outputs = net->build(&s->c, s->compute, inputs);
    s->backend = a->ggml_backend_cpu_init();
    a->ggml_backend_cpu_set_n_threads(s->backend, 1);
    s->buffer = a->ggml_backend_alloc_ctx_tensors(s->c.ctx, s->backend);
    for (int p = 0; p < s->c.n_params; p++) {
        T *t = s->c.params[p];
        for (int64_t i = 0; i < ggml_nelements(t); i++) {
            ((float *) t->data)[i] = 0.3f * wave(1000 * p + 3 * i);
        }
    }
    ggml_backend_buffer_type_t buft = a->ggml_backend_get_default_buffer_type(s->backend);
    s->sched = a->ggml_backend_sched_new(&s->backend, &buft, 1, 2048, false, true);
    s->data = a->ggml_opt_dataset_init(GGML_TYPE_F32, GGML_TYPE_F32, net->n_in, net->n_out, N_DATA, 2);
    fill_data(s);
    struct ggml_opt_params params = a->ggml_opt_default_params(s->sched, net->loss);
    params.ctx_compute = s->compute;
    params.inputs = inputs;
    params.outputs = outputs;
    params.opt_period = net->period;
    params.get_opt_pars = pars;
    params.optimizer = net->optimizer;
    s->opt = a->ggml_opt_init(params);
    assert_non_null(s->opt);
    s->result = a->ggml_opt_result_init();
}

static void side_fini(struct side *s) {
    const struct grad_api *a = s->c.a;
    a->ggml_opt_result_free(s->result);
    a->ggml_opt_free(s->opt);
    a->ggml_opt_dataset_free(s->data);
    a->ggml_backend_sched_free(s->sched);
    a->ggml_backend_buffer_free(s->buffer);
    a->ggml_backend_free(s->backend);
    a->ggml_free(s->compute);
    a->ggml_free(s->c.ctx);
}

// Trains on batch i of an epoch and returns the loss. The data is shuffled before batch 0. *n_right is the number of correct
// predictions, -1 without classes.
static double side_step(struct side *s, int i, int64_t *n_right) {
    const struct grad_api *a = s->c.a;
    if (i == 0) {
        a->ggml_opt_dataset_shuffle(s->opt, s->data, -1);
    }
    a->ggml_opt_result_reset(s->result);
    a->ggml_opt_alloc(s->opt, true);
    a->ggml_opt_dataset_get_batch(s->data, a->ggml_opt_inputs(s->opt), a->ggml_opt_labels(s->opt), i);
    a->ggml_opt_eval(s->opt, s->result);
    double loss, accuracy;
    a->ggml_opt_result_loss(s->result, &loss, NULL);
    a->ggml_opt_result_accuracy(s->result, &accuracy, NULL);
    *n_right = isnan(accuracy) ? -1 : (int64_t) lround(accuracy * BATCH);
    return loss;
}

static void test_nets(void **state) {
    (void) state;
    if (!load()) {
        skip();
    }
    for (size_t n = 0; n < sizeof nets / sizeof nets[0]; n++) {
        struct side a, b;
        side_init(&a, &own, &nets[n]);
        side_init(&b, &other, &nets[n]);
        double first = 0, last = 0, worst = 0;
        int64_t n_right = 0;
        for (int i = 0; i < N_STEPS; i++) {
            int64_t n_own, n_reference;
            const double x = side_step(&a, i % (N_DATA / BATCH), &n_own), y = side_step(&b, i % (N_DATA / BATCH), &n_reference);
            const double off = fabs(x - y) / fabs(y);
            if (!(off <= TOLERANCE) || n_own != n_reference) {
                fail_msg("%s: step %d: loss %.9g and %lld correct, in the reference %.9g and %lld", nets[n].name, i, x,
                    (long long) n_own, y, (long long) n_reference);
            }
            worst = fmax(worst, off);
            first += i < N_DATA / BATCH ? x : 0;
            last += i >= N_STEPS - N_DATA / BATCH ? x : 0;
            n_right += n_own > 0 ? n_own : 0;
        }
        print_message("%s: losses differ by at most %.2g, %lld correct predictions on both sides, last epoch's loss / first "
                      "epoch's loss %.2f\n",
            nets[n].name, worst, (long long) n_right, last / first);
        assert_true(last < 0.9 * first); // training lowers the loss
        side_fini(&a);
        side_fini(&b);
    }
}

static void order_of(const struct grad_api *a, int64_t n, int64_t shard, float *order, int times) {
    struct side s;
    side_init(&s, a, &nets[0]);
    ggml_opt_dataset_t d = a->ggml_opt_dataset_init(GGML_TYPE_F32, GGML_TYPE_F32, 1, 0, n, shard);
    float *x = a->ggml_opt_dataset_data(d)->data;
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float) i;
    }
    for (int t = 0; t < times; t++) { // the last shuffle covers the first half only
        a->ggml_opt_dataset_shuffle(s.opt, d, t + 1 == times ? n / 2 / shard * shard : -1);
    }
    for (int64_t i = 0; i < n / shard; i++) {
        a->ggml_opt_dataset_get_batch_host(d, order + i * shard, (size_t) shard * sizeof(float), NULL, i);
    }
    a->ggml_opt_dataset_free(d);
    side_fini(&s);
}

static void test_order(void **state) {
    (void) state;
    if (!load()) {
        skip();
    }
    static const int64_t sizes[][2] = {{1, 1}, {2, 1}, {3, 1}, {7, 1}, {64, 1}, {999, 3}, {5000, 10}, {65536, 1}, {70001, 1}};
    static float own_order[80000], reference_order[80000];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        order_of(&own, sizes[i][0], sizes[i][1], own_order, 3);
        order_of(&other, sizes[i][0], sizes[i][1], reference_order, 3);
        assert_memory_equal(own_order, reference_order, (size_t) (sizes[i][0] / sizes[i][1] * sizes[i][1]) * sizeof(float));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nets), cmocka_unit_test(test_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
