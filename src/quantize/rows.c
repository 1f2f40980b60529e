// SPDX-License-Identifier: MIT
// rows.c: converts a tensor to another type with several threads. A thread takes one band of rows at a time. Squared errors are
// summed in the order of bands, so the sum does not depend on the threads.

#include "quantize/quantize.h"

#include "base/min.h"

#include <pthread.h>
#include <stdatomic.h>

enum { BAND_ELEMENTS = 1 << 16 };

struct work {
    const struct quantize_rows *params;
    char *out;
    int64_t band_rows; // rows per band; the last band of a matrix may have fewer
    int64_t n_bands;   // bands per matrix
    int64_t n_all;     // bands of the tensor
    double *squares;   // [n_all] squared error of each band
    _Atomic int64_t next;
    _Atomic bool failed;
    pthread_t caller;
};

// real, back: temporary memory for the values before and after the conversion.
static bool band_convert(const struct work *w, int64_t band, float *real, float *back) {
    const struct ggml_tensor *t = w->params->tensor;
    const enum ggml_type type = w->params->type;
    const float *weights = w->params->weights != NULL ? w->params->weights + band / w->n_bands * t->ne[0] : NULL;
    const int64_t i_matrix = band / w->n_bands, first = band % w->n_bands * w->band_rows;
    const int64_t n_rows = min_i64(w->band_rows, t->ne[1] - first);
    const int64_t i_row = i_matrix * t->ne[1] + first, n = n_rows * t->ne[0];
    const size_t row_size = ggml_row_size(type, t->ne[0]);
    char *out = w->out + (size_t) i_row * row_size;
    const char *from = (const char *) t->data + (size_t) i_row * ggml_row_size(t->type, t->ne[0]);
    if (!rows_widen(t->type, from, real, n, NULL) ||
        ggml_quantize_chunk(type, real, out, 0, n_rows, t->ne[0], weights) != row_size * (size_t) n_rows ||
        !rows_widen(type, out, back, n, NULL)) {
        return false;
    }
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double e = (double) back[i] - (double) real[i];
        sum += e * e;
    }
    w->squares[band] = sum;
    return true;
}

static void *bands_convert(void *data) {
    struct work *w = data;
    const size_t n = (size_t) (w->band_rows * w->params->tensor->ne[0]);
    float *real = berth_malloc(n * sizeof *real), *back = berth_malloc(n * sizeof *back);
    bool ok = real != NULL && back != NULL;
    while (ok && !w->failed) {
        const int64_t band = atomic_fetch_add(&w->next, 1);
        if (band >= w->n_all) {
            break;
        }
        ok = band_convert(w, band, real, back);
        if (w->params->progress != NULL && pthread_equal(pthread_self(), w->caller)) {
            w->params->progress((double) band / (double) w->n_all, w->params->user);
        }
    }
    if (!ok) {
        w->failed = true;
    }
    berth_free(real);
    berth_free(back);
    return NULL;
}

// If a thread does not start, the other threads process its share.
static void threads_run(struct work *w, pthread_t *threads, int n) {
    int n_started = 0;
    while (n_started < n && pthread_create(&threads[n_started], NULL, bands_convert, w) == 0) {
        n_started++;
    }
    (void) bands_convert(w);
    for (int i = 0; i < n_started; i++) {
        pthread_join(threads[i], NULL);
    }
}

bool quantize_rows_run(const struct quantize_rows *params, void *out, double *squares) {
    const struct ggml_tensor *t = params->tensor;
    struct work w = {.params = params, .out = out, .caller = pthread_self()};
    if (ggml_nelements(t) == 0) {
        return true;
    }
    w.band_rows = min_i64(max_i64(BAND_ELEMENTS / t->ne[0], 1), t->ne[1]);
    w.n_bands = (t->ne[1] + w.band_rows - 1) / w.band_rows;
    w.n_all = w.n_bands * t->ne[2] * t->ne[3];
    const int n = (int) min_i64(params->n_threads, w.n_all);
    pthread_t *threads = berth_calloc((size_t) n, sizeof *threads);
    w.squares = berth_calloc((size_t) w.n_all, sizeof *w.squares);
    w.failed = w.squares == NULL || threads == NULL;
    if (!w.failed) {
        threads_run(&w, threads, n - 1);
    }
    const bool ok = !w.failed;
    for (int64_t i = 0; ok && i < w.n_all; i++) {
        *squares += w.squares[i];
    }
    berth_free(threads);
    berth_free(w.squares);
    return ok;
}

bool quantize_can_make(enum ggml_type type, bool has_imatrix) {
    const float zeros[256] = {0};
    char out[1024];
    return ggml_blck_size(type) > 0 && ggml_blck_size(type) <= 256 &&
           ggml_quantize_chunk(type, zeros, out, 0, 1, ggml_blck_size(type), has_imatrix ? zeros : NULL) > 0;
}
