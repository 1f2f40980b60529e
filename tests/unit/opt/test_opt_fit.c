// SPDX-License-Identifier: MIT
// test_opt_fit.c: ggml-opt.h from data sets to fitted weights: fits with a known solution, their output, shuffled data, the getters
// of a context, and that a reset context repeats the same steps.

#include "support/check.h"

#include "berth-opt.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <math.h>
#include <unistd.h>

typedef struct ggml_tensor T;

#define N_DATA 24
#define BATCH 4
#define CLASSES 3

// A linear layer with two inputs and n_out outputs.
struct layer {
    struct ggml_context *ctx, *compute;
    ggml_backend_t backend;
    ggml_backend_buffer_t buffer;
    ggml_backend_sched_t sched;
    T *inputs, *w, *outputs;
    ggml_opt_dataset_t data;
};

static const float start[2 * CLASSES] = {0.5f, 0.25f, -0.5f, 0.125f, 1.0f, -0.75f};

// With one output, the label is 3 x0 - 2 x1, which the fit has to find. With three outputs, the label is one of three classes:
// the index of the largest of x0, x1 and -x0 - x1.
static void label(const float *x, float *y, int n_out) {
    const float scores[CLASSES] = {x[0], x[1], -x[0] - x[1]};
    int best = 0;
    for (int i = 1; i < CLASSES; i++) {
        best = scores[i] > scores[best] ? i : best;
    }
    for (int i = 0; i < n_out; i++) {
        y[i] = n_out == 1 ? 3 * x[0] - 2 * x[1] : (float) (i == best);
    }
}

static void layer_init(struct layer *l, int n_out) {
    *l = (struct layer){.ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true})};
    l->compute = ggml_init((struct ggml_init_params){.mem_size = 4 << 20, .no_alloc = true});
    l->inputs = ggml_new_tensor_2d(l->ctx, GGML_TYPE_F32, 2, BATCH);
    l->w = ggml_new_tensor_2d(l->ctx, GGML_TYPE_F32, 2, n_out);
    ggml_set_param(l->w);
    l->outputs = ggml_mul_mat(l->compute, l->w, l->inputs);
    l->backend = ggml_backend_cpu_init();
    l->buffer = ggml_backend_alloc_ctx_tensors(l->ctx, l->backend);
    ggml_backend_tensor_set(l->w, start, 0, ggml_nbytes(l->w));
    ggml_backend_buffer_type_t buft = ggml_backend_get_default_buffer_type(l->backend);
    l->sched = ggml_backend_sched_new(&l->backend, &buft, 1, 512, false, true);
    l->data = ggml_opt_dataset_init(GGML_TYPE_F32, GGML_TYPE_F32, 2, n_out, N_DATA, 1);
    assert_non_null(l->sched);
    assert_non_null(l->data);
    struct check_rng rng = check_rng_new(7);
    float *x = ggml_opt_dataset_data(l->data)->data, *y = ggml_opt_dataset_labels(l->data)->data;
    for (int i = 0; i < N_DATA; i++) {
        for (int k = 0; k < 2; k++) {
            x[2 * i + k] = (float) check_rng_below(&rng, 2001) / 1000.0f - 1.0f;
        }
        label(x + 2 * i, y + n_out * i, n_out);
    }
}

static void layer_fini(struct layer *l) {
    ggml_opt_dataset_free(l->data);
    ggml_backend_sched_free(l->sched);
    ggml_backend_buffer_free(l->buffer);
    ggml_backend_free(l->backend);
    ggml_free(l->compute);
    ggml_free(l->ctx);
}

static ggml_opt_context_t layer_opt(struct layer *l, enum ggml_opt_loss_type loss, enum ggml_opt_optimizer_type optimizer) {
    struct ggml_opt_params p = ggml_opt_default_params(l->sched, loss);
    p.ctx_compute = l->compute;
    p.inputs = l->inputs;
    p.outputs = l->outputs;
    p.optimizer = optimizer;
    ggml_opt_context_t opt = ggml_opt_init(p);
    assert_non_null(opt);
    return opt;
}

// ---- capturing stderr ----

struct stderr_capture {
    FILE *file;
    int saved_fd;
};

static struct stderr_capture capture_start(void) {
    struct stderr_capture h = {.file = tmpfile(), .saved_fd = dup(STDERR_FILENO)};
    assert_non_null(h.file);
    assert_true(h.saved_fd >= 0 && dup2(fileno(h.file), STDERR_FILENO) >= 0);
    return h;
}

static void capture_end(struct stderr_capture *h, char *text, size_t size) {
    fflush(stderr);
    assert_true(dup2(h->saved_fd, STDERR_FILENO) >= 0);
    close(h->saved_fd);
    rewind(h->file);
    text[fread(text, 1, size - 1, h->file)] = 0;
    fclose(h->file);
}

// ---- fits ----

static int64_t last_epoch;

// data points to the number of the epoch, as ggml_opt_fit passes it.
static struct ggml_opt_optimizer_params pars(void *data) {
    struct ggml_opt_optimizer_params p = ggml_opt_get_default_optimizer_params(NULL);
    last_epoch = *(const int64_t *) data;
    p.sgd.alpha = 0.2f;
    p.sgd.wd = 0.0f;
    return p;
}

static void fit(struct layer *l, int64_t n_epoch, int64_t logical, float val_split, bool silent) {
    ggml_opt_fit(l->sched, l->compute, l->inputs, l->outputs, l->data, GGML_OPT_LOSS_TYPE_MEAN_SQUARED_ERROR,
        GGML_OPT_OPTIMIZER_TYPE_SGD, pars, n_epoch, logical, val_split, silent);
}

static void test_fit(void **state) {
    (void) state;
    struct layer l;
    char text[4096];
    layer_init(&l, 1);
    struct stderr_capture h = capture_start();
    fit(&l, 150, 8, 0.25f, true);
    capture_end(&h, text, sizeof text);
    assert_string_equal(text, "");
    assert_int_equal(last_epoch, 150);
    float w[2];
    ggml_backend_tensor_get(l.w, w, 0, sizeof w);
    assert_float_equal(w[0], 3.0f, 1e-3f);
    assert_float_equal(w[1], -2.0f, 1e-3f);
    layer_fini(&l);
}

// 16 of 24 data are for training, 8 for validation. If one step uses all data, the data is not shuffled.
static void test_fit_prints_progress(void **state) {
    (void) state;
    struct layer l;
    char text[8192];
    layer_init(&l, 1);
    struct stderr_capture h = capture_start();
    fit(&l, 2, 8, 0.25f, false);
    capture_end(&h, text, sizeof text);
    const char *const parts[] = {"ggml_opt_fit: epoch 0001/0002:\n", "train: [█▉      ] data=0000004",
        "data=0000004/0000016 loss=", "data=0000016/0000016 loss=", "val:   [",
        "data=0000008/0000008 loss=", "███████▉] data=", "acc=nan", "t=00:00:0", " ETA=00:00:00 \r\n",
        "ggml_opt_fit: epoch 0002/0002:\n", "ggml_opt_fit: training took 00:00:0"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strstr(text, parts[i]) == NULL) {
            fail_msg("'%s' is not in '%s'", parts[i], text);
        }
    }
    layer_fini(&l);
    layer_init(&l, 1);
    fit(&l, 1, N_DATA, 0.0f, true);
    assert_int_equal(last_epoch, 1);
    float first;
    ggml_opt_dataset_get_batch_host(l.data, (float[2]){0}, 8, &first, 0);
    assert_true(first == ((const float *) ggml_opt_dataset_labels(l.data)->data)[0]);
    layer_fini(&l);
}

static void expect_error(const char *text) {
    if (strstr(berth_last_error(), text) == NULL) {
        fail_msg("'%s' is not in '%s'", text, berth_last_error());
    }
}

static void test_fit_refused(void **state) {
    (void) state;
    check_quiet();
    struct layer l;
    layer_init(&l, 1);
    T *inputs = l.inputs;
    l.inputs = NULL;
    fit(&l, 1, 8, 0.0f, true);
    expect_error("NULL");
    l.inputs = inputs;
    fit(&l, 1, 6, 0.0f, true); // not a multiple of the batch size 4
    expect_error("24 data, 6 per step, 4 per batch");
    fit(&l, 1, 16, 0.0f, true); // 24 data are not a multiple of 16
    expect_error("24 data, 16 per step, 4 per batch");
    fit(&l, 1, 0, 0.0f, true);
    expect_error("0 per step");
    fit(&l, 1, 8, 1.0f, true);
    expect_error("val_split 1 must");
    fit(&l, 1, 8, NAN, true);
    expect_error("val_split nan must");
    float w[2];
    ggml_backend_tensor_get(l.w, w, 0, sizeof w);
    assert_memory_equal(w, start, sizeof w);
    layer_fini(&l);
}

// ---- classes ----

// The predictions and the accuracy of an evaluation equal those computed here from the weights. The progress bar prints nothing for
// a NULL context and for batch 0.
static void test_classes(void **state) {
    (void) state;
    struct layer l;
    layer_init(&l, CLASSES);
    ggml_opt_context_t opt = layer_opt(&l, GGML_OPT_LOSS_TYPE_CROSS_ENTROPY, GGML_OPT_OPTIMIZER_TYPE_ADAMW);
    ggml_opt_result_t train = ggml_opt_result_init(), eval = ggml_opt_result_init();
    char text[256];
    struct stderr_capture h = capture_start();
    ggml_opt_epoch_callback_progress_bar(true, NULL, l.data, train, 1, 1, 0);
    ggml_opt_epoch_callback_progress_bar(true, opt, l.data, train, 0, 1, 0);
    capture_end(&h, text, sizeof text);
    assert_string_equal(text, "");
    ggml_opt_epoch(opt, l.data, train, eval, 16, NULL, NULL);
    assert_int_equal(berth_opt_status(opt), GGML_STATUS_SUCCESS);
    int64_t n;
    ggml_opt_result_ndata(eval, &n);
    assert_int_equal(n, 8);
    ggml_opt_result_ndata(train, &n);
    assert_int_equal(n, 16);
    int32_t preds[8], n_right = 0;
    const float *x = (const float *) ggml_opt_dataset_data(l.data)->data + 2 * 16;
    float w[2 * CLASSES];
    ggml_opt_result_pred(eval, preds);
    ggml_backend_tensor_get(l.w, w, 0, sizeof w); // the evaluation used these weights
    for (int i = 0; i < 8; i++, x += 2) {
        float y[CLASSES];
        int best = 0;
        label(x, y, CLASSES);
        for (int k = 1; k < CLASSES; k++) {
            best = w[2 * k] * x[0] + w[2 * k + 1] * x[1] > w[2 * best] * x[0] + w[2 * best + 1] * x[1] ? k : best;
        }
        assert_int_equal(preds[i], best);
        n_right += y[best] == 1.0f;
    }
    double accuracy;
    ggml_opt_result_accuracy(eval, &accuracy, NULL);
    assert_float_equal(accuracy, (double) n_right / 8, 1e-12);
    ggml_opt_result_free(train);
    ggml_opt_result_free(eval);
    ggml_opt_free(opt);
    layer_fini(&l);
}

static void test_mean(void **state) {
    (void) state;
    struct layer l;
    layer_init(&l, 1);
    ggml_opt_context_t opt = layer_opt(&l, GGML_OPT_LOSS_TYPE_MEAN, GGML_OPT_OPTIMIZER_TYPE_SGD);
    ggml_opt_alloc(opt, false);
    ggml_backend_tensor_set(l.inputs, (float[]){1, 0, 0, 1, 2, 2, -4, 0}, 0, 8 * sizeof(float));
    ggml_opt_result_t result = ggml_opt_result_init();
    ggml_opt_eval(opt, result);
    double loss;
    ggml_opt_result_loss(result, &loss, NULL);
    assert_float_equal(loss, (0.5 + 0.25 + 1.5 - 2.0) / 4, 1e-6);
    ggml_opt_result_free(result);
    ggml_opt_free(opt);
    layer_fini(&l);
}

// ---- contexts ----

static void test_getters(void **state) {
    (void) state;
    struct layer l;
    layer_init(&l, CLASSES);
    ggml_opt_context_t opt = layer_opt(&l, GGML_OPT_LOSS_TYPE_CROSS_ENTROPY, GGML_OPT_OPTIMIZER_TYPE_ADAMW);
    assert_true(ggml_opt_static_graphs(opt));
    assert_ptr_equal(ggml_opt_inputs(opt), l.inputs);
    assert_ptr_equal(ggml_opt_outputs(opt), l.outputs);
    assert_true(ggml_are_same_shape(ggml_opt_labels(opt), l.outputs));
    assert_int_equal(ggml_nelements(ggml_opt_loss(opt)), 1);
    assert_int_equal(ggml_nelements(ggml_opt_pred(opt)), BATCH);
    assert_int_equal(ggml_nelements(ggml_opt_ncorrect(opt)), 1);
    assert_int_equal(ggml_opt_context_optimizer_type(opt), GGML_OPT_OPTIMIZER_TYPE_ADAMW);
    assert_string_equal(ggml_opt_optimizer_name(ggml_opt_context_optimizer_type(opt)), "adamw");
    assert_int_equal(ggml_opt_dataset_ndata(l.data), N_DATA);
    assert_null(berth_opt_moment(opt, l.w, 2));
    assert_null(berth_opt_moment(opt, NULL, 0));
    ggml_opt_free(opt);
    layer_fini(&l);
    assert_false(ggml_opt_static_graphs(NULL));
    assert_null(ggml_opt_inputs(NULL));
    assert_null(ggml_opt_outputs(NULL));
    assert_null(ggml_opt_labels(NULL));
    assert_null(ggml_opt_pred(NULL));
    assert_null(ggml_opt_ncorrect(NULL));
    assert_null(ggml_opt_grad_acc(NULL, NULL));
    assert_null(berth_opt_moment(NULL, NULL, 0));
    assert_int_equal(berth_opt_iter(NULL), 0);
    assert_int_equal(berth_opt_status(NULL), GGML_STATUS_FAILED);
    assert_int_equal(ggml_opt_context_optimizer_type(NULL), GGML_OPT_OPTIMIZER_TYPE_COUNT);
    assert_int_equal(ggml_opt_dataset_ndata(NULL), 0);
    assert_null(ggml_opt_dataset_data(NULL));
    assert_null(ggml_opt_dataset_labels(NULL));
    berth_opt_set_iter(NULL, 1);
}

// Takes three steps on the first batch, starting from the initial weights.
static void steps(struct layer *l, ggml_opt_context_t opt, float *w) {
    ggml_backend_tensor_set(l->w, start, 0, ggml_nbytes(l->w));
    for (int i = 0; i < 3; i++) {
        ggml_opt_alloc(opt, true);
        ggml_opt_dataset_get_batch(l->data, l->inputs, ggml_opt_labels(opt), 0);
        ggml_opt_eval(opt, NULL);
        assert_int_equal(berth_opt_status(opt), GGML_STATUS_SUCCESS);
    }
    ggml_backend_tensor_get(l->w, w, 0, ggml_nbytes(l->w));
}

static bool is_zero(const T *t) {
    float v[2 * CLASSES];
    ggml_backend_tensor_get(t, v, 0, ggml_nbytes(t));
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        if (v[i] != 0) {
            return false;
        }
    }
    return true;
}

// A reset with the optimiser restores the initial state. Without it, the moments and the number of steps stay.
static void test_reset(void **state) {
    (void) state;
    struct layer l;
    layer_init(&l, CLASSES);
    ggml_opt_context_t opt = layer_opt(&l, GGML_OPT_LOSS_TYPE_CROSS_ENTROPY, GGML_OPT_OPTIMIZER_TYPE_ADAMW);
    float first[2 * CLASSES], again[2 * CLASSES];
    steps(&l, opt, first);
    assert_int_equal(berth_opt_iter(opt), 4);
    ggml_opt_reset(opt, false);
    assert_int_equal(berth_opt_iter(opt), 4);
    assert_false(is_zero(berth_opt_moment(opt, l.w, 0)));
    steps(&l, opt, again);
    assert_memory_not_equal(first, again, sizeof first);
    ggml_opt_reset(opt, true);
    assert_int_equal(berth_opt_iter(opt), 1);
    assert_true(is_zero(berth_opt_moment(opt, l.w, 0)));
    assert_true(is_zero(berth_opt_moment(opt, l.w, 1)));
    steps(&l, opt, again);
    assert_memory_equal(first, again, sizeof first);
    berth_opt_set_iter(opt, 0); // 0 is invalid and ignored
    assert_int_equal(berth_opt_iter(opt), 4);
    berth_opt_set_iter(opt, 9);
    assert_int_equal(berth_opt_iter(opt), 9);
    ggml_opt_free(opt);
    layer_fini(&l);
}

// A context with static graphs accepts no other graph. A context without static graphs requires all arguments.
static void test_prepare_refused(void **state) {
    (void) state;
    check_quiet();
    struct layer l;
    layer_init(&l, 1);
    ggml_opt_context_t opt = layer_opt(&l, GGML_OPT_LOSS_TYPE_MEAN_SQUARED_ERROR, GGML_OPT_OPTIMIZER_TYPE_SGD);
    ggml_opt_prepare_alloc(opt, l.compute, NULL, l.inputs, l.outputs);
    assert_int_equal(berth_opt_status(opt), GGML_STATUS_FAILED);
    expect_error("static");
    ggml_opt_free(opt);
    opt = ggml_opt_init(ggml_opt_default_params(l.sched, GGML_OPT_LOSS_TYPE_MEAN_SQUARED_ERROR));
    assert_non_null(opt);
    ggml_opt_prepare_alloc(opt, l.compute, NULL, l.inputs, l.outputs);
    assert_int_equal(berth_opt_status(opt), GGML_STATUS_FAILED);
    expect_error("are NULL");
    ggml_opt_epoch(opt, l.data, NULL, NULL, -1, NULL, NULL);
    expect_error("static graphs");
    ggml_opt_epoch(opt, NULL, NULL, NULL, -1, NULL, NULL);
    expect_error("data set is NULL");
    ggml_opt_free(opt);
    ggml_opt_prepare_alloc(NULL, NULL, NULL, NULL, NULL);
    layer_fini(&l);
}

// ---- data in another order ----

static void test_shuffle(void **state) {
    (void) state;
    struct layer l;
    layer_init(&l, 1);
    ggml_opt_context_t opt = layer_opt(&l, GGML_OPT_LOSS_TYPE_MEAN_SQUARED_ERROR, GGML_OPT_OPTIMIZER_TYPE_SGD);
    const float *labels = ggml_opt_dataset_labels(l.data)->data;
    for (int first = 16; first >= -1; first -= 17) { // shuffles the first 16, then all
        float x[2 * N_DATA], y[N_DATA];
        ggml_opt_dataset_shuffle(opt, l.data, first);
        ggml_opt_dataset_get_batch_host(l.data, x, sizeof x, y, 0);
        int n_found[N_DATA] = {0}, n_moved = 0;
        for (int i = 0; i < N_DATA; i++) {
            float own;
            label(x + 2 * i, &own, 1);
            assert_true(own == y[i]); // data and labels stay together
            n_moved += y[i] != labels[i];
            assert_true(first < 0 || i < first || y[i] == labels[i]);
            for (int k = 0; k < N_DATA; k++) {
                n_found[k] += y[i] == labels[k];
            }
        }
        assert_true(n_moved > 4);
        for (int k = 0; k < N_DATA; k++) {
            assert_int_equal(n_found[k], 1);
        }
    }
    ggml_opt_free(opt);
    layer_fini(&l);
}

static void test_batches_refused(void **state) {
    (void) state;
    check_quiet();
    struct layer l;
    layer_init(&l, 1);
    ggml_opt_context_t opt = layer_opt(&l, GGML_OPT_LOSS_TYPE_MEAN_SQUARED_ERROR, GGML_OPT_OPTIMIZER_TYPE_SGD);
    ggml_opt_alloc(opt, true);
    T *labels = ggml_opt_labels(opt);
    ggml_opt_dataset_get_batch(l.data, NULL, labels, 0);
    expect_error("batch is NULL");
    ggml_opt_dataset_get_batch(l.data, ggml_transpose(l.compute, l.inputs), labels, 0);
    expect_error("not contiguous");
    ggml_opt_dataset_get_batch(NULL, l.inputs, labels, 0);
    expect_error("data set is NULL");
    ggml_opt_dataset_get_batch(l.data, l.inputs, NULL, 0);
    expect_error("labels, the batch has none");
    ggml_opt_dataset_get_batch(l.data, l.inputs, labels, N_DATA / BATCH);
    expect_error("batch 6 of 32 bytes: the data set has 24 shards");
    ggml_opt_dataset_get_batch(l.data, l.inputs, ggml_view_1d(l.compute, labels, 2, 0), 0);
    expect_error("labels have 8 bytes instead of 16");
    ggml_opt_dataset_get_batch(l.data, ggml_new_tensor_2d(l.compute, GGML_TYPE_I32, 2, BATCH), labels, 0);
    expect_error("other types");
    ggml_opt_dataset_shuffle(NULL, l.data, -1);
    expect_error("context is NULL");
    ggml_opt_dataset_shuffle(opt, NULL, -1);
    expect_error("data set is NULL");
    ggml_opt_free(opt);
    layer_fini(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_fit_prints_progress),
        cmocka_unit_test(test_fit_refused),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_mean),
        cmocka_unit_test(test_getters),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_prepare_refused),
        cmocka_unit_test(test_shuffle),
        cmocka_unit_test(test_batches_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
