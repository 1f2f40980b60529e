// SPDX-License-Identifier: MIT
// quant.c: measures the time and the error of quantising rows in every block format, for Berth and the reference in one process and
// on one thread. A time is the shortest processor time of several alternating runs. The error is the (weighted) squared error
// divided by the reference's. The exit code is 1 if an error is larger than the reference's. Usage: bench-quant [--values N]
// [--only FORMAT]

#include "clock.h"
#include "ggml.h"
#include "quant/formats.h"
#include "support/oracle.h"

#include <math.h>
#include <stdint.h>

enum { ROW = 2048, N_TURNS = 5 };

typedef size_t (*chunk_fn)(
    enum ggml_type type, const float *src, void *dst, int64_t start, int64_t nrows, int64_t n_per_row, const float *imatrix);

#define TYPE(TYPE, ...) GGML_TYPE_##TYPE,
static const enum ggml_type types[] = {BERTH_FORMATS(TYPE)};

static double normal(void) {
    static uint64_t state = 1;
    double v = -6;
    for (int k = 0; k < 12; k++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        v += (double) (state >> 11) * 0x1p-53;
    }
    return v;
}

static double error_of(enum ggml_type type, const void *blocks, const float *x, const float *w, int64_t n, float *y) {
    double sum = 0;
    ggml_get_type_traits(type)->to_float(blocks, y, n);
    for (int64_t i = 0; i < n; i++) {
        const double d = (double) x[i] - y[i];
        sum += (w != NULL ? w[i % ROW] : 1.0) * d * d;
    }
    return sum;
}

struct side {
    chunk_fn chunk;
    uint8_t *blocks;
    double seconds;
};

static void turn(struct side *s, enum ggml_type type, const float *x, const float *w, int64_t n) {
    const double start = clock_s(CLOCK_THREAD_CPUTIME_ID);
    s->chunk(type, x, s->blocks, 0, n / ROW, ROW, w);
    const double spent = clock_s(CLOCK_THREAD_CPUTIME_ID) - start;
    s->seconds = spent < s->seconds ? spent : s->seconds;
}

// Prints the nanoseconds per value and the ratios of time and error. False: Berth's error is larger.
static bool compare(
    struct side *ours, struct side *theirs, enum ggml_type type, const float *x, const float *w, int64_t n, float *y) {
    ours->seconds = theirs->seconds = 1e30;
    for (int i = 0; i < N_TURNS; i++) {
        turn(ours, type, x, w, n);
        turn(theirs, type, x, w, n);
    }
    const double a = error_of(type, ours->blocks, x, w, n, y);
    const double b = error_of(type, theirs->blocks, x, w, n, y);
    printf(" %8.2f %8.2f %7.2f %8.4f", ours->seconds / (double) n * 1e9, theirs->seconds / (double) n * 1e9,
        ours->seconds / theirs->seconds, a / b);
    return a <= b;
}

int main(int argc, char **argv) {
    int64_t n = 32 * ROW;
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--values") == 0 && i + 1 < argc) {
            n = atoll(argv[++i]) / ROW * ROW;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else {
            fprintf(stderr, "usage: bench-quant [--values N] [--only FORMAT]\n");
            return 2;
        }
    }
    void *lib = oracle_load("libggml-base.so");
    if (lib == NULL || n <= 0) {
        printf("skipped: %s\n", lib == NULL ? oracle_why() : "a row has 2048 values");
        return 77;
    }
    float *x = malloc((size_t) n * sizeof(float));
    float *y = malloc((size_t) n * sizeof(float));
    float w[ROW];
    struct side ours = {ggml_quantize_chunk, malloc((size_t) n * 2), 0};
    struct side theirs = {NULL, malloc((size_t) n * 2), 0};
    void (*init)(enum ggml_type);
    *(void **) &theirs.chunk = dlsym(lib, "ggml_quantize_chunk");
    *(void **) &init = dlsym(lib, "ggml_quantize_init");
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float) normal();
    }
    for (int i = 0; i < ROW; i++) {
        w[i] = (float) exp(normal());
    }
    bool good = true;
    printf("%-8s %35s %35s\n", "", "plain: ns/value, ref., time, error", "weighted");
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        const enum ggml_type type = types[i];
        if (only != NULL && strcmp(only, ggml_type_name(type)) != 0) {
            continue;
        }
        init(type);
        printf("%-8s", ggml_type_name(type));
        // The formats that require an importance matrix are not measured without one.
        if (ggml_quantize_requires_imatrix(type)) {
            printf(" %35s", "");
        } else {
            good = compare(&ours, &theirs, type, x, NULL, n, y) && good;
        }
        good = compare(&ours, &theirs, type, x, w, n, y) && good;
        printf("\n");
        fflush(stdout);
    }
    free(x);
    free(y);
    free(ours.blocks);
    free(theirs.blocks);
    return good ? 0 : 1;
}
