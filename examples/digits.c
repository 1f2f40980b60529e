// SPDX-License-Identifier: MIT
// digits.c: trains a small network to recognise handwritten digits of 8x8 pixels, with ggml-opt.
//
//     zcat /usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz | digits
//
// The file is part of Debian's python3-sklearn. It has one line per image: 64 pixels from 0 to 16, then the digit. A fifth of the
// images is held back, so the network does not learn from them. The exit code is 0 if it recognises at least 97% of these.
#include "berth-opt.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-opt.h"
#include "ggml.h"

#include "berth.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { PIXELS = 64, DIGITS = 10, HIDDEN = 128, BATCH = 16, MOST = 4096, EPOCHS = 30 };

static uint64_t state = 1; // state of the random numbers, the same in each run

static double even(void) { // from 0 to 1
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double) (state >> 11) * 0x1p-53;
}

static int rows[MOST][PIXELS + 1];

static int read_rows(FILE *file) {
    int n = 0;
    for (int i = 0; n < MOST && fscanf(file, i < PIXELS ? "%d," : "%d", &rows[n][i]) == 1; i = (i + 1) % (PIXELS + 1)) {
        n += i == PIXELS;
    }
    for (int i = n - 1; i > 0; i--) { // the file is sorted by writer, so shuffle it
        const int j = (int) (even() * (i + 1));
        for (int k = 0; k <= PIXELS; k++) {
            const int swap = rows[i][k];
            rows[i][k] = rows[j][k];
            rows[j][k] = swap;
        }
    }
    return n / BATCH * BATCH; // complete batches only
}

static ggml_opt_dataset_t data_make(int n) {
    ggml_opt_dataset_t data = ggml_opt_dataset_init(GGML_TYPE_F32, GGML_TYPE_F32, PIXELS, DIGITS, n, 1);
    float *x = ggml_get_data_f32(ggml_opt_dataset_data(data)), *y = ggml_get_data_f32(ggml_opt_dataset_labels(data));
    for (int i = 0; x != NULL && y != NULL && i < n; i++) {
        for (int k = 0; k < PIXELS; k++) {
            x[i * PIXELS + k] = (float) rows[i][k] / 16;
        }
        for (int k = 0; k < DIGITS; k++) {
            y[i * DIGITS + k] = rows[i][PIXELS] == k;
        }
    }
    return data;
}

// A parameter. param_fill gives a matrix random values, in a range that depends on the length of its rows, and a bias (n1 = 0)
// zeros.
static struct ggml_tensor *param(struct ggml_context *ctx, int64_t n0, int64_t n1) {
    struct ggml_tensor *t = n1 > 0 ? ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n0, n1) : ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n0);
    ggml_set_param(t);
    return t;
}

static void param_fill(struct ggml_tensor *t) {
    float *values = malloc(ggml_nbytes(t));
    const double width = ggml_n_dims(t) > 1 ? sqrt(6.0 / (double) t->ne[0]) : 0;
    for (int64_t i = 0; values != NULL && i < ggml_nelements(t); i++) {
        values[i] = (float) (width * (2 * even() - 1));
    }
    ggml_backend_tensor_set(t, values, 0, values != NULL ? ggml_nbytes(t) : 0);
    free(values);
}

static bool learn(ggml_backend_t backend, ggml_opt_dataset_t data, int64_t n, double *accuracy) {
    struct ggml_init_params few = {.mem_size = 4 << 20, .no_alloc = true};
    struct ggml_context *weights = ggml_init(few), *ctx = ggml_init(few);
    struct ggml_tensor *w1 = param(weights, PIXELS, HIDDEN), *b1 = param(weights, HIDDEN, 0);
    struct ggml_tensor *w2 = param(weights, HIDDEN, DIGITS), *b2 = param(weights, DIGITS, 0);
    struct ggml_tensor *images = ggml_new_tensor_2d(weights, GGML_TYPE_F32, PIXELS, BATCH);
    ggml_set_input(images);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(weights, backend);
    param_fill(w1), param_fill(b1), param_fill(w2), param_fill(b2);

    struct ggml_tensor *hidden = ggml_relu(ctx, ggml_add(ctx, ggml_mul_mat(ctx, w1, images), b1));
    struct ggml_tensor *logits = ggml_add(ctx, ggml_mul_mat(ctx, w2, hidden), b2);
    ggml_set_output(logits);

    ggml_backend_sched_t sched = ggml_backend_sched_new(&backend, NULL, 1, 1024, false, true);
    struct ggml_opt_params how = ggml_opt_default_params(sched, GGML_OPT_LOSS_TYPE_CROSS_ENTROPY);
    how.ctx_compute = ctx, how.inputs = images, how.outputs = logits;
    ggml_opt_context_t opt = ggml_opt_init(how);
    ggml_opt_result_t train = ggml_opt_result_init(), held_back = ggml_opt_result_init();
    const int64_t n_train = n * 4 / 5 / BATCH * BATCH;
    bool ok = opt != NULL && train != NULL && held_back != NULL;
    for (int epoch = 1; ok && epoch <= EPOCHS; epoch++) {
        double loss = 0;
        ggml_opt_result_reset(train);
        ggml_opt_result_reset(held_back);
        ggml_opt_dataset_shuffle(opt, data, n_train);
        ggml_opt_epoch(opt, data, train, held_back, n_train, NULL, NULL);
        ok = berth_opt_status(opt) == GGML_STATUS_SUCCESS;
        ggml_opt_result_loss(train, &loss, NULL);
        ggml_opt_result_accuracy(held_back, accuracy, NULL);
        printf("epoch %2d: loss %.4f, %5.2f%% of %lld held-back digits recognised\n", epoch, loss, 100 * *accuracy,
            (long long) (n - n_train));
    }
    ggml_opt_result_free(train);
    ggml_opt_result_free(held_back);
    ggml_opt_free(opt);
    ggml_backend_sched_free(sched);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    ggml_free(weights);
    return ok;
}

int main(void) {
    const int n = read_rows(stdin);
    double accuracy = 0;
    ggml_opt_dataset_t data = n >= 10 * BATCH ? data_make(n) : NULL;
    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, 1);
    if (data == NULL || backend == NULL) {
        fprintf(stderr, "%d images on standard input, at least %d required: give one line per image, 64 pixels and the digit\n",
            n, 10 * BATCH);
        return 2;
    }
    const bool ok = learn(backend, data, n, &accuracy);
    if (!ok) {
        fprintf(stderr, "%s\n", berth_last_error());
    }
    ggml_opt_dataset_free(data);
    ggml_backend_free(backend);
    return ok && accuracy >= 0.97 ? 0 : 1;
}
