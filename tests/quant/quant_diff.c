// SPDX-License-Identifier: MIT
// quant_diff.c: every block format beside the reference's, on the same rows in one process.
//
//     quant_diff [--rows N] [--only FORMAT] [--kind KIND] [--seed S] [--verbose]
//
// Three questions a format, N rows of each kind and length:
//   dequantise   random blocks, every bit of the result compared;
//   quantise     bytes equal (required of the simple formats), else squared error side by side;
//   weighted     the same with an importance matrix, error weighted by it.
// A format fails if a bit differs where all must be equal, or if the error of one row is above the reference's. Errors are
// relative to the row's own (weighted) sum of squares, so that rows of all magnitudes count alike.
#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/quants.h"
#include "support/oracle.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void (*row_fn)(const float *, void *, int64_t);
typedef void (*deq_fn)(const void *, float *, int64_t);
typedef size_t (*rows_fn)(const float *, void *, int64_t, int64_t, const float *);

struct format {
    const char *name;
    enum ggml_type type;
    int qk;
    size_t block_size;
    bool simple; // bytes must be equal
    row_fn row;  // NULL: the API has none
    deq_fn deq;
    rows_fn rows;
};

#define ROW(name) ((row_fn) (void (*)(void)) quantize_row_##name##_ref)
#define DEQ(name) ((deq_fn) (void (*)(void)) dequantize_row_##name)
#define FULL(name, type, qk, simple) \
    { #name, type, qk, sizeof(block_##name), simple, ROW(name), DEQ(name), quantize_##name }
#define NO_ROW(name, type) \
    { #name, type, QK_K, sizeof(block_##name), false, NULL, DEQ(name), quantize_##name }

static const struct format formats[] = {
    FULL(q1_0, GGML_TYPE_Q1_0, QK_Q1_0, true),
    FULL(q2_0, GGML_TYPE_Q2_0, QK_Q2_0, true),
    FULL(q4_0, GGML_TYPE_Q4_0, QK_Q4_0, true),
    FULL(q4_1, GGML_TYPE_Q4_1, QK_Q4_1, true),
    FULL(q5_0, GGML_TYPE_Q5_0, QK_Q5_0, true),
    FULL(q5_1, GGML_TYPE_Q5_1, QK_Q5_1, true),
    FULL(q8_0, GGML_TYPE_Q8_0, QK_Q8_0, true),
    {"q8_1", GGML_TYPE_Q8_1, QK_Q8_1, sizeof(block_q8_1), true, ROW(q8_1), NULL, NULL},
    {"q8_K", GGML_TYPE_Q8_K, QK_K, sizeof(block_q8_K), true, ROW(q8_K), DEQ(q8_K), NULL},
    FULL(tq1_0, GGML_TYPE_TQ1_0, QK_K, true),
    FULL(tq2_0, GGML_TYPE_TQ2_0, QK_K, true),
    FULL(mxfp4, GGML_TYPE_MXFP4, QK_MXFP4, true),
    FULL(nvfp4, GGML_TYPE_NVFP4, QK_NVFP4, true),
    FULL(q2_K, GGML_TYPE_Q2_K, QK_K, false),
    FULL(q3_K, GGML_TYPE_Q3_K, QK_K, false),
    FULL(q4_K, GGML_TYPE_Q4_K, QK_K, false),
    FULL(q5_K, GGML_TYPE_Q5_K, QK_K, false),
    FULL(q6_K, GGML_TYPE_Q6_K, QK_K, false),
    FULL(iq4_nl, GGML_TYPE_IQ4_NL, QK_IQ4_NL, false),
    FULL(iq4_xs, GGML_TYPE_IQ4_XS, QK_K, false),
    FULL(iq3_xxs, GGML_TYPE_IQ3_XXS, QK_K, false),
    FULL(iq3_s, GGML_TYPE_IQ3_S, QK_K, false),
    FULL(iq2_s, GGML_TYPE_IQ2_S, QK_K, false),
    NO_ROW(iq2_xs, GGML_TYPE_IQ2_XS),
    NO_ROW(iq2_xxs, GGML_TYPE_IQ2_XXS),
    NO_ROW(iq1_s, GGML_TYPE_IQ1_S),
    NO_ROW(iq1_m, GGML_TYPE_IQ1_M),
};

// ---- random rows ----

static uint64_t rng_state;

static uint64_t rng(void) {
    uint64_t z = rng_state += 0x9e3779b97f4a7c15u;
    z          = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z          = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double uniform(void) {
    return (double) (rng() >> 11) * 0x1p-53;
}

static double gauss(void) {
    return sqrt(-2.0 * log(1.0 - uniform())) * cos(6.283185307179586 * uniform());
}

enum kind {
    GAUSS,
    UNIFORM,
    POSITIVE,
    NEGATIVE,
    OUTLIER,
    LUMPY,
    SPARSE,
    GRID,
    CONSTANT,
    SINGLE,
    ZERO,
    LARGE,
    SMALL,
    HUGE_ROW,
    DENORMAL,
    N_FINITE_KINDS,
    NONFINITE = N_FINITE_KINDS,
    N_KINDS,
};
// Scales that overflow turn numbers beyond the range of an int into ints, which C leaves open: the reference's build for arm
// takes the nearest, as Berth does everywhere; its build for x86 takes what the instruction gives.
#if defined(__x86_64__)
#    define N_COMPARED_KINDS HUGE_ROW
#else
#    define N_COMPARED_KINDS N_KINDS
#endif
static const char *const kind_names[N_KINDS] = {"gauss", "uniform", "positive", "negative", "outlier", "lumpy", "sparse", "grid",
    "constant", "single", "zero", "large", "small", "huge", "denormal", "nonfinite"};
// Kinds that count in the mean error: within the range of every format, and not exactly representable.
static bool is_ordinary(enum kind kind) {
    return kind <= GRID;
}

static void fill(enum kind kind, float *x, int n) {
    const double c = gauss();
    double lump    = 1;
    const int at   = (int) (rng() % (uint64_t) n);
    for (int i = 0; i < n; i++) {
        if (i % 16 == 0) {
            lump = exp(2 * gauss());
        }
        double v = 0;
        switch (kind) {
            case GAUSS: v = gauss(); break;
            case UNIFORM: v = 2 * uniform() - 1; break;
            case POSITIVE: v = 0.5 + uniform(); break;
            case NEGATIVE: v = -0.1 - fabs(gauss()); break;
            case OUTLIER: v = gauss() * (rng() % 64 == 0 ? 20 : 1); break;
            case LUMPY: v = gauss() * lump; break;
            case SPARSE: v = rng() % 8 == 0 ? gauss() : 0; break;
            case GRID: v = (double) (int) (rng() % 65 - 32) / 16; break;
            case CONSTANT: v = c; break;
            case SINGLE: v = i == at ? c : 0; break;
            case ZERO: v = rng() % 2 ? 0.0 : -0.0; break;
            case LARGE: v = gauss() * 3e5; break;
            case SMALL: v = gauss() * 1e-7; break;
            case HUGE_ROW: v = gauss() * 1e37; break;
            case DENORMAL: v = gauss() * 1e-40; break;
            default: v = rng() % 16 == 0 ? (rng() % 2 ? NAN : rng() % 2 ? INFINITY : -INFINITY) : gauss(); break;
        }
        x[i] = (float) v;
    }
}

// Importance as activations have it: of one magnitude, of many, or with elements that never count; none is zero in a whole block.
static void fill_weights(float *w, int n) {
    const double spread = 1 + 2 * (double) (rng() % 2);
    const bool sparse   = rng() % 4 == 0;
    for (int i = 0; i < n; i++) {
        w[i] = sparse && i % 16 != 0 && rng() % 4 == 0 ? 0.0f : (float) exp(spread * gauss());
    }
}

// ---- one format ----

struct tally {
    int n_rows, n_equal, n_worse, n_better;
    int n_died;          // rows on which the reference aborts
    double ours, theirs; // mean of the relative errors over the ordinary kinds
    double worst;        // largest ratio ours / theirs of a row
    const char *worst_kind;
};

static double error_of(const float *x, const float *y, const float *w, int n) {
    double e = 0;
    double s = 0;
    for (int i = 0; i < n; i++) {
        const double wi = w != NULL ? w[i] : 1;
        const double d  = (double) x[i] - y[i];
        e += wi * d * d;
        s += wi * (double) x[i] * x[i];
    }
    return s > 0 ? e / s : e;
}

static void tally_error(struct tally *t, enum kind kind, double ours, double theirs) {
    if (is_ordinary(kind)) {
        t->ours += ours;
        t->theirs += theirs;
    }
    if (isnan(ours) ? !isnan(theirs) : ours > theirs * (1 + 1e-6) + 1e-13) {
        t->n_worse++;
        const double ratio = ours / theirs;
        if (!(ratio <= t->worst)) {
            t->worst      = ratio;
            t->worst_kind = kind_names[kind];
        }
    } else if ((isnan(theirs) && !isnan(ours)) || ours < theirs * (1 - 1e-6)) {
        t->n_better++;
    }
}

static bool same_float(float a, float b) {
    return berth_float_bits(a) == berth_float_bits(b) || (isnan(a) && isnan(b));
}

static int dequantise(const struct format *f, deq_fn theirs, int n_rows) {
    enum { N_BLOCKS = 8 };
    static _Alignas(8) uint8_t blocks[N_BLOCKS * 512];
    static float a[N_BLOCKS * QK_K], b[N_BLOCKS * QK_K];
    int n_bad = 0;
    for (int r = 0; r < n_rows; r++) {
        for (size_t i = 0; i < sizeof(blocks); i++) {
            blocks[i] = (uint8_t) rng();
        }
        memset(a, 0x11, sizeof(a));
        memset(b, 0x22, sizeof(b));
        f->deq(blocks, a, N_BLOCKS * f->qk);
        theirs(blocks, b, N_BLOCKS * f->qk);
        bool same = true;
        for (int i = 0; i < N_BLOCKS * f->qk; i++) {
            same = same && same_float(a[i], b[i]);
        }
        n_bad += !same;
    }
    return n_bad;
}

struct reference {
    row_fn row;
    deq_fn deq;
    rows_fn rows;
};

static bool verbose;
static const char *only_kind; // NULL: all

// The reference's turn. Its codebook searches abort on some rows: those run in a child that shares out. False: it died.
static bool ask_reference(
    const struct format *f, const struct reference *ref, const float *x, const float *w, int n, uint8_t *out) {
    const bool in_child = f->name[0] == 'i';
    const pid_t child   = in_child ? fork() : 0;
    if (child != 0) {
        int status = 0;
        return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    if (in_child) {
        const int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
    }
    bool done = true;
    if (w == NULL) {
        ref->row(x, out, n);
    } else {
        done = ref->rows(x, out, 1, n, w) == (size_t) (n / f->qk) * f->block_size;
    }
    if (in_child) {
        _exit(done ? 0 : 1);
    }
    return done;
}

static void quantise(const struct format *f, const struct reference *ref, bool weighted, int n_rows, struct tally *t) {
    enum { MAX = 5 * QK_K };
    static float x[MAX], w[MAX], a[MAX], b[MAX];
    static _Alignas(8) uint8_t ours[8192];
    uint8_t *theirs   = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const int n_kinds = f->simple ? N_COMPARED_KINDS : N_FINITE_KINDS;
    // Where the API has no row function, or the reference insists on weights, equal weights stand for none.
    const bool by_row = !weighted && f->row != NULL;
    for (int kind = 0; kind < n_kinds; kind++) {
        for (int r = 0; r < n_rows && (only_kind == NULL || strcmp(only_kind, kind_names[kind]) == 0); r++) {
            const int n = f->qk * (1 + (int) (rng() % (uint64_t) (f->qk < QK_K ? 8 : 4)));
            fill((enum kind) kind, x, n);
            if (weighted) {
                fill_weights(w, n);
            } else {
                for (int i = 0; i < n; i++) {
                    w[i] = 1.0f;
                }
            }
            const size_t size = (size_t) (n / f->qk) * f->block_size;
            memset(ours, 0, size);
            memset(theirs, 0, size);
            if (by_row) {
                f->row(x, ours, n);
            } else if (f->rows(x, ours, 1, n, w) != size) {
                printf("%s: wrong size returned\n", f->name);
                t->n_worse++;
            }
            if (!ask_reference(f, ref, x, by_row ? NULL : w, n, theirs)) {
                t->n_died++;
                continue;
            }
            const bool equal = memcmp(ours, theirs, size) == 0;
            t->n_rows++;
            t->n_equal += equal;
            if (f->deq != NULL && kind < N_FINITE_KINDS) {
                f->deq(ours, a, n);
                f->deq(theirs, b, n);
                const double ea = error_of(x, a, weighted ? w : NULL, n);
                const double eb = error_of(x, b, weighted ? w : NULL, n);
                tally_error(t, (enum kind) kind, ea, eb);
                if (verbose && ea > eb * (1 + 1e-6) + 1e-13) {
                    printf("    %s %s%s n %d: %.6g, reference %.6g\n", f->name, kind_names[kind], weighted ? " weighted" : "", n,
                        ea, eb);
                }
            }
            if (verbose && f->simple && !equal) {
                size_t at = 0;
                while (ours[at] == theirs[at]) {
                    at++;
                }
                printf("    %s %s%s n %d: byte %zu is %02x, reference %02x\n", f->name, kind_names[kind],
                    weighted ? " weighted" : "", n, at, ours[at], theirs[at]);
            }
        }
    }
    munmap(theirs, 8192);
}

static void report(const char *what, const struct tally *t) {
    printf(" | %s %5d rows, %5.1f%% equal, error x%.4f, better %4d worse %3d", what, t->n_rows, 100.0 * t->n_equal / t->n_rows,
        t->theirs > 0 ? t->ours / t->theirs : 1.0, t->n_better, t->n_worse);
    if (t->n_died > 0) {
        printf(" (aborts on %d)", t->n_died);
    }
    if (t->n_worse > 0) {
        printf(" (x%.3g %s)", t->worst, t->worst_kind);
    }
}

static void *symbol(void *lib, const char *prefix, const char *name, const char *suffix) {
    char full[64];
    snprintf(full, sizeof(full), "%s%s%s", prefix, name, suffix);
    return dlsym(lib, full);
}

int main(int argc, char **argv) {
    int n_rows       = 10;
    uint64_t seed    = 1;
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--rows") == 0 && i + 1 < argc) {
            n_rows = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--kind") == 0 && i + 1 < argc) {
            only_kind = argv[++i];
        } else if (strcmp(argv[i], "--verbose") == 0) {
            verbose = true;
        } else {
            fprintf(stderr, "usage: quant_diff [--rows N] [--only FORMAT] [--kind KIND] [--seed S] [--verbose]\n");
            return 2;
        }
    }
    setenv("GGML_NO_BACKTRACE", "1", 1); // its C library takes the environment as it is when loaded
    void *lib = oracle_load("libggml-base.so");
    if (lib == NULL) {
        printf("skipped: %s\n", oracle_why());
        return 77;
    }
    void (*init)(enum ggml_type);
    *(void **) &init = dlsym(lib, "ggml_quantize_init");
    int n_failed     = 0;
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        const struct format *f = &formats[i];
        struct reference ref;
        struct tally plain = {0}, weighted = {0};
        if (only != NULL && strcmp(only, f->name) != 0) {
            continue;
        }
        rng_state            = seed * 1000003 + i;
        *(void **) &ref.row  = symbol(lib, "quantize_row_", f->name, "_ref");
        *(void **) &ref.deq  = symbol(lib, "dequantize_row_", f->name, "");
        *(void **) &ref.rows = symbol(lib, "quantize_", f->name, "");
        init(f->type);
        const int n_bad = f->deq != NULL ? dequantise(f, ref.deq, 50 * n_rows) : 0;
        printf("%-8s deq %d/%d differ", f->name, n_bad, f->deq != NULL ? 50 * n_rows : 0);
        bool failed = n_bad > 0;
        quantise(f, &ref, false, n_rows, &plain);
        report("plain", &plain);
        failed = failed || (f->simple ? plain.n_equal < plain.n_rows : plain.n_worse > 0);
        if (f->rows != NULL) {
            quantise(f, &ref, true, n_rows, &weighted);
            report("weighted", &weighted);
            failed = failed || (f->simple ? weighted.n_equal < weighted.n_rows : weighted.n_worse > 0);
        }
        printf("%s\n", failed ? " FAILED" : "");
        fflush(stdout);
        n_failed += failed;
    }
    printf("%d formats failed\n", n_failed);
    return n_failed > 0;
}
