// SPDX-License-Identifier: MIT
// rows.c: see quantize_rows.h. Rows go in bands; a thread that is done takes the next one. Sums of errors are kept by
// band and added up in the end, in the order of the rows.

#include "quantize/rows.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BAND_ELEMENTS = 1 << 16 };

struct work {
    const struct ggml_tensor *t;
    enum ggml_type type;
    const float *weights;
    char *out;
    int64_t band_rows; // rows of a band; the last one of a matrix may have less
    int64_t n_bands;   // of a matrix
    int64_t n_all;     // of the tensor
    double *squares;   // of each band
    _Atomic int64_t next;
    _Atomic bool failed;
    pthread_t caller;
    void (*tell)(double part, void *user);
    void *user;
};

static void to_floats(enum ggml_type type, const void *from, float *to, int64_t n) {
    if (type == GGML_TYPE_F32) {
        memcpy(to, from, (size_t) n * sizeof *to);
    } else {
        ggml_get_type_traits(type)->to_float(from, to, n);
    }
}

// real and back: floats of a band.
static bool band_make(const struct work *w, int64_t band, float *real, float *back) {
    const struct ggml_tensor *t = w->t;
    const int64_t i_matrix = band / w->n_bands, first = band % w->n_bands * w->band_rows;
    const int64_t n_rows = first + w->band_rows < t->ne[1] ? w->band_rows : t->ne[1] - first;
    const int64_t i_row = i_matrix * t->ne[1] + first, n = n_rows * t->ne[0];
    const size_t row_size = ggml_row_size(w->type, t->ne[0]);
    char *out = w->out + (size_t) i_row * row_size;
    to_floats(t->type, (const char *) t->data + (size_t) i_row * ggml_row_size(t->type, t->ne[0]), real, n);
    if (ggml_quantize_chunk(w->type, real, out, 0, n_rows, t->ne[0],
            w->weights != NULL ? w->weights + i_matrix * t->ne[0] : NULL) != row_size * (size_t) n_rows) {
        return false;
    }
    to_floats(w->type, out, back, n);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double e = (double) back[i] - (double) real[i];
        sum += e * e;
    }
    w->squares[band] = sum;
    return true;
}

static void *bands_make(void *data) {
    struct work *w = data;
    const size_t n = (size_t) (w->band_rows * w->t->ne[0]);
    float *real = malloc(n * sizeof *real), *back = malloc(n * sizeof *back);
    bool ok = real != NULL && back != NULL;
    while (ok && !w->failed) {
        const int64_t band = atomic_fetch_add(&w->next, 1);
        if (band >= w->n_all) {
            break;
        }
        ok = band_make(w, band, real, back);
        if (w->tell != NULL && pthread_equal(pthread_self(), w->caller)) {
            w->tell((double) band / (double) w->n_all, w->user);
        }
    }
    if (!ok) {
        w->failed = true;
    }
    free(real);
    free(back);
    return NULL;
}

// A thread that does not start leaves its share to the others.
static void threads_run(struct work *w, pthread_t *threads, int n) {
    int n_started = 0;
    while (n_started < n && pthread_create(&threads[n_started], NULL, bands_make, w) == 0) {
        n_started++;
    }
    (void) bands_make(w);
    for (int i = 0; i < n_started; i++) {
        pthread_join(threads[i], NULL);
    }
}

bool cli_quantize_rows(const struct ggml_tensor *t, enum ggml_type type, const float *weights, int n_threads, void *out,
    double *squares, void (*tell)(double part, void *user), void *user) {
    struct work w = {.t = t, .type = type, .weights = weights, .out = out, .caller = pthread_self(), .tell = tell, .user = user};
    if (ggml_nelements(t) == 0) {
        return true;
    }
    w.band_rows = t->ne[0] < BAND_ELEMENTS ? BAND_ELEMENTS / t->ne[0] : 1;
    w.band_rows = w.band_rows < t->ne[1] ? w.band_rows : t->ne[1];
    w.n_bands = (t->ne[1] + w.band_rows - 1) / w.band_rows;
    w.n_all = w.n_bands * t->ne[2] * t->ne[3];
    w.squares = calloc((size_t) w.n_all, sizeof *w.squares);
    const int n = n_threads < w.n_all ? n_threads : (int) w.n_all;

    pthread_t *threads = calloc((size_t) n, sizeof *threads);
    const bool ready = w.squares != NULL && threads != NULL;
    if (ready) {
        threads_run(&w, threads, n - 1);
    }
    const bool ok = ready && !w.failed;
    for (int64_t i = 0; ok && i < w.n_all; i++) {
        *squares += w.squares[i];
    }
    free(threads);
    free(w.squares);
    return ok;
}
