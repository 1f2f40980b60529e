// SPDX-License-Identifier: MIT
// quant_diff.c: compares every block format with the reference, on the same rows in one process.
//
//     quant_diff [--rows N] [--phases N] [--only FORMAT] [--kind KIND] [--seed S] [--verbose]
//
// Five comparisons per format, with N rows of each kind and length:
//   dequantise   random blocks, every bit of the result compared;
//   rows         the bytes that from_float_ref and the CPU's from_float write, as in copies and caches: must be equal;
//   plain        ggml_quantize_chunk: bytes equal for the simple formats, otherwise the squared errors compared;
//   weighted     the same with an importance matrix, error weighted by it;
//   products     the error of dot products with rows that are correlated with the quantised one (bias.c).
// A format fails in four cases: a byte differs where all must be equal; Berth's squared error exceeds the reference's on all
// ordinary rows together (rows.h), or by more than 2% on normal rows; it exceeds the reference's by more than 5% on one kind of
// rows; or the error of products exceeds the reference's by more than chance explains. Squared errors are relative to the
// (weighted) sum of squares of the row, so that rows of all magnitudes count equally.
#include "bias.h"
#include "ggml-cpu.h"
#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/quants.h"
#include "rows.h"
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
    bool simple;       // the quantiser searches nothing, so all bytes must equal the reference's
    bool own_rows;     // from_float_ref searches, too, so rows are not compared
    bool needs_matrix; // requires an importance matrix; without one, the test passes equal weights
    deq_fn deq;
    rows_fn rows;
};

#define DEQ(name) ((deq_fn) (void (*)(void)) dequantize_row_##name)
#define SIMPLE(name, type, qk) \
    { #name, type, qk, sizeof(block_##name), true, false, false, DEQ(name), quantize_##name }
#define SEARCHED(name, type, qk) \
    { #name, type, qk, sizeof(block_##name), false, false, false, DEQ(name), quantize_##name }
#define CODEBOOK(name, type, needs_matrix) \
    { #name, type, QK_K, sizeof(block_##name), false, true, needs_matrix, DEQ(name), quantize_##name }

static const struct format formats[] = {
    SIMPLE(q1_0, GGML_TYPE_Q1_0, QK_Q1_0),
    SIMPLE(q2_0, GGML_TYPE_Q2_0, QK_Q2_0),
    SIMPLE(q4_0, GGML_TYPE_Q4_0, QK_Q4_0),
    SIMPLE(q4_1, GGML_TYPE_Q4_1, QK_Q4_1),
    SIMPLE(q5_0, GGML_TYPE_Q5_0, QK_Q5_0),
    SIMPLE(q5_1, GGML_TYPE_Q5_1, QK_Q5_1),
    SIMPLE(q8_0, GGML_TYPE_Q8_0, QK_Q8_0),
    {"q8_1", GGML_TYPE_Q8_1, QK_Q8_1, sizeof(block_q8_1), true, false, false, NULL, NULL},
    {"q8_K", GGML_TYPE_Q8_K, QK_K, sizeof(block_q8_K), true, false, false, DEQ(q8_K), NULL},
    SIMPLE(tq1_0, GGML_TYPE_TQ1_0, QK_K),
    SIMPLE(tq2_0, GGML_TYPE_TQ2_0, QK_K),
    SIMPLE(mxfp4, GGML_TYPE_MXFP4, QK_MXFP4),
    SIMPLE(nvfp4, GGML_TYPE_NVFP4, QK_NVFP4),
    SEARCHED(q2_K, GGML_TYPE_Q2_K, QK_K),
    SEARCHED(q3_K, GGML_TYPE_Q3_K, QK_K),
    SEARCHED(q4_K, GGML_TYPE_Q4_K, QK_K),
    SEARCHED(q5_K, GGML_TYPE_Q5_K, QK_K),
    SEARCHED(q6_K, GGML_TYPE_Q6_K, QK_K),
    SEARCHED(iq4_nl, GGML_TYPE_IQ4_NL, QK_IQ4_NL),
    SEARCHED(iq4_xs, GGML_TYPE_IQ4_XS, QK_K),
    CODEBOOK(iq3_xxs, GGML_TYPE_IQ3_XXS, false),
    CODEBOOK(iq3_s, GGML_TYPE_IQ3_S, false),
    CODEBOOK(iq2_s, GGML_TYPE_IQ2_S, false),
    CODEBOOK(iq2_xs, GGML_TYPE_IQ2_XS, true),
    CODEBOOK(iq2_xxs, GGML_TYPE_IQ2_XXS, true),
    CODEBOOK(iq1_s, GGML_TYPE_IQ1_S, true),
    CODEBOOK(iq1_m, GGML_TYPE_IQ1_M, true),
};

enum { MAX_ROW = 5 * QK_K, MAX_BYTES = 8192 };

static bool verbose;
static const char *only_kind; // NULL: all kinds

static bool is_selected(enum kind kind) {
    return only_kind == NULL || strcmp(only_kind, kind_names[kind]) == 0;
}

static int random_length(const struct format *f) {
    return f->qk * (1 + (int) (rng() % (uint64_t) (f->qk < QK_K ? 8 : 4)));
}

static size_t bytes_of(const struct format *f, int n) {
    return (size_t) (n / f->qk) * f->block_size;
}

// ---- dequantising ----

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

// ---- rows ----

// Clears the quants of iq4_nl blocks whose scale is 0. They have no effect, and the reference leaves them undefined.
static void zero_levels_clear(const struct format *f, uint8_t *bytes, int n) {
    block_iq4_nl *blocks = (block_iq4_nl *) (void *) bytes;
    for (int i = 0; f->type == GGML_TYPE_IQ4_NL && i < n / f->qk; i++) {
        if (blocks[i].d == 0) {
            memset(blocks[i].qs, 0, sizeof(blocks[i].qs));
        }
    }
}

// Returns the number of rows that the two functions write differently; 0 if neither function exists.
static int row_bytes(const struct format *f, const char *what, int n_kinds, row_fn ours, row_fn theirs, int n_rows) {
    static float x[MAX_ROW];
    static _Alignas(8) uint8_t a[MAX_BYTES], b[MAX_BYTES];
    int n_bad = 0;
    if (ours == NULL || theirs == NULL) {
        if (ours != theirs) {
            printf(" %s: only %s has it;", what, ours != NULL ? "Berth" : "the reference");
        }
        return ours != theirs;
    }
    for (int kind = 0; kind < n_kinds; kind++) {
        for (int r = 0; r < n_rows && is_selected((enum kind) kind); r++) {
            const int n = random_length(f);
            const size_t size = bytes_of(f, n);
            fill((enum kind) kind, x, n);
            memset(a, 0, size);
            memset(b, 0, size);
            ours(x, a, n);
            theirs(x, b, n);
            zero_levels_clear(f, a, n);
            zero_levels_clear(f, b, n);
            if (memcmp(a, b, size) != 0) {
                size_t at = 0;
                while (a[at] == b[at]) {
                    at++;
                }
                if (verbose) {
                    printf("    %s %s %s n %d: byte %zu is %02x, reference %02x\n", f->name, what, kind_names[kind], n, at, a[at],
                        b[at]);
                }
                n_bad++;
            }
        }
    }
    return n_bad;
}

// ---- the search ----

struct tally {
    int n_rows, n_equal, n_worse, n_better;
    int n_died; // rows on which the reference aborts
    struct {
        double ours, theirs; // sums of the relative errors
    } kind[N_KINDS];
};

static double error_of(const float *x, const float *y, const float *w, int n) {
    double e = 0;
    double s = 0;
    for (int i = 0; i < n; i++) {
        const double wi = w != NULL ? w[i] : 1;
        const double d = (double) x[i] - y[i];
        e += wi * d * d;
        s += wi * (double) x[i] * x[i];
    }
    return s > 0 ? e / s : e;
}

static void tally_error(struct tally *t, enum kind kind, double ours, double theirs) {
    t->kind[kind].ours += ours;
    t->kind[kind].theirs += theirs;
    t->n_worse += isnan(ours) ? !isnan(theirs) : ours > theirs * (1 + 1e-6) + 1e-13;
    t->n_better += (isnan(theirs) && !isnan(ours)) || ours < theirs * (1 - 1e-6);
}

struct reference {
    row_fn row, cpu_row;
    deq_fn deq;
    rows_fn rows;
};

// Quantises a row with the reference. Its codebook searches abort on some rows, so they run in a child process that shares `out`.
// Returns false if the child aborted.
static bool reference_quantise(
    const struct format *f, const struct reference *ref, const float *x, const float *w, int n, uint8_t *out) {
    const bool in_child = f->name[0] == 'i';
    const pid_t child = in_child ? fork() : 0;
    if (child != 0) {
        int status = 0;
        return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    if (in_child) {
        const int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
    }
    const bool done = ref->rows(x, out, 1, n, w) == bytes_of(f, n);
    if (in_child) {
        _exit(done ? 0 : 1);
    }
    return done;
}

static void quantise(const struct format *f, const struct reference *ref, bool weighted, int n_rows, struct tally *t) {
    static float x[MAX_ROW], weights[MAX_ROW], a[MAX_ROW], b[MAX_ROW];
    static _Alignas(8) uint8_t ours[MAX_BYTES];
    uint8_t *theirs = mmap(NULL, MAX_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const int n_kinds = f->simple ? N_COMPARED_KINDS : N_FINITE_KINDS;
    const float *w = weighted || f->needs_matrix ? weights : NULL;
    for (int kind = 0; kind < n_kinds; kind++) {
        for (int r = 0; r < n_rows && is_selected((enum kind) kind); r++) {
            const int n = random_length(f);
            const size_t size = bytes_of(f, n);
            fill((enum kind) kind, x, n);
            if (weighted) {
                fill_weights(weights, n);
            } else {
                for (int i = 0; i < n; i++) {
                    weights[i] = 1.0f;
                }
            }
            memset(ours, 0, size);
            memset(theirs, 0, size);
            if (f->rows(x, ours, 1, n, w) != size) {
                printf("%s: wrong size returned\n", f->name);
                t->kind[kind].ours = INFINITY;
            }
            if (!reference_quantise(f, ref, x, w, n, theirs)) {
                t->n_died++;
                continue;
            }
            t->n_rows++;
            t->n_equal += memcmp(ours, theirs, size) == 0;
            if (kind < N_FINITE_KINDS) {
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
        }
    }
    munmap(theirs, MAX_BYTES);
}

// Prints the result, and returns whether the format failed.
static bool report(const char *what, const struct format *f, const struct tally *t) {
    double ours = 0, theirs = 0, worst = 1;
    const char *worst_kind = NULL;
    for (int kind = 0; kind < N_FINITE_KINDS; kind++) {
        const double a = t->kind[kind].ours;
        const double b = t->kind[kind].theirs;
        if (is_ordinary((enum kind) kind)) {
            ours += a;
            theirs += b;
        }
        if (isnan(a) ? !isnan(b) : a > b * worst + 1e-12) {
            worst = a / b;
            worst_kind = kind_names[kind];
        }
    }
    const bool worse =
        !(worst < 1.05) || ours > theirs || t->kind[GAUSS].ours > 1.02 * t->kind[GAUSS].theirs; // 2%: there are few normal rows
    printf(" | %s %d rows, %.1f%% equal, error x%.4f, better %d worse %d", what, t->n_rows, 100.0 * t->n_equal / t->n_rows,
        theirs > 0 ? ours / theirs : 1.0, t->n_better, t->n_worse);
    if (t->n_died > 0) {
        printf(" (reference aborts on %d rows)", t->n_died);
    }
    if (worst_kind != NULL) {
        printf(" (x%.4g %s)", worst, worst_kind);
    }
    return f->simple ? t->n_equal < t->n_rows : worse;
}

// ---- all formats ----

static bool compare(const struct format *f, const struct reference *ref, int n_rows, int n_phases) {
    const struct ggml_type_traits *traits = ggml_get_type_traits(f->type);
    const struct ggml_type_traits_cpu *cpu_traits = ggml_get_type_traits_cpu(f->type);
    struct tally plain = {0}, weighted = {0};
    const int n_bad = f->deq != NULL ? dequantise(f, ref->deq, 50 * n_rows) : 0;
    bool failed = n_bad > 0;
    printf("%-8s deq %d/%d differ", f->name, n_bad, f->deq != NULL ? 50 * n_rows : 0);
    const row_fn ours = f->type == GGML_TYPE_Q8_K ? (row_fn) (void (*)(void)) quantize_row_q8_K_ref : traits->from_float_ref;
    const int n_kinds = f->simple ? N_COMPARED_KINDS : N_FINITE_KINDS;
    const int n_finite = n_kinds < N_FINITE_KINDS ? n_kinds : N_FINITE_KINDS; // each CPU treats non-finite elements differently
    const int n_bad_rows = f->own_rows ? 0 : row_bytes(f, "row", n_kinds, ours, ref->row, n_rows);
    const int n_bad_copies = row_bytes(f, "CPU row", n_finite, cpu_traits->from_float, ref->cpu_row, n_rows);
    printf(", rows %d, by CPU %d", n_bad_rows, n_bad_copies);
    failed = failed || n_bad_rows > 0 || n_bad_copies > 0;
    if (f->rows != NULL) {
        quantise(f, ref, false, n_rows, &plain);
        failed = report("plain", f, &plain) || failed;
        quantise(f, ref, true, n_rows, &weighted);
        failed = report("weighted", f, &weighted) || failed;
    }
    if (f->rows != NULL && !f->simple) {
        const struct bias_side us = {f->rows, f->deq}, them = {ref->rows, ref->deq};
        failed = !bias_compare(&us, &them, f->needs_matrix, n_phases) || failed;
    }
    printf("%s\n", failed ? " FAILED" : "");
    fflush(stdout);
    return !failed;
}

static void *symbol(void *lib, const char *prefix, const char *name, const char *suffix) {
    char full[64];
    snprintf(full, sizeof(full), "%s%s%s", prefix, name, suffix);
    return dlsym(lib, full);
}

// A variant of the reference's CPU library that runs on all current machines.
#if defined(__aarch64__)
#    define CPU_LIBRARY "libggml-cpu-armv8.0_1.so"
#else
#    define CPU_LIBRARY "libggml-cpu-haswell.so"
#endif

int main(int argc, char **argv) {
    int n_rows = 10;
    int n_phases = 20;
    uint64_t seed = 1;
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--rows") == 0 && i + 1 < argc) {
            n_rows = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--phases") == 0 && i + 1 < argc) {
            n_phases = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--kind") == 0 && i + 1 < argc) {
            only_kind = argv[++i];
        } else if (strcmp(argv[i], "--verbose") == 0) {
            verbose = true;
        } else {
            fprintf(stderr, "usage: quant_diff [--rows N] [--phases N] [--only FORMAT] [--kind KIND] [--seed S] [--verbose]\n");
            return 2;
        }
    }
    setenv("GGML_NO_BACKTRACE", "1", 1); // the reference's C library reads the environment when it is loaded
    void *lib = oracle_load("libggml-base.so");
    void *cpu = lib != NULL ? oracle_load(CPU_LIBRARY) : NULL;
    if (cpu == NULL) {
        printf("skipped: %s\n", oracle_why());
        return 77;
    }
    void (*init)(enum ggml_type);
    void (*cpu_init)(void);
    const struct ggml_type_traits_cpu *(*cpu_traits)(enum ggml_type);
    *(void **) &init = dlsym(lib, "ggml_quantize_init");
    *(void **) &cpu_init = dlsym(cpu, "ggml_cpu_init");
    *(void **) &cpu_traits = dlsym(cpu, "ggml_get_type_traits_cpu");
    cpu_init();
    ggml_cpu_init();
    int n_failed = 0;
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        const struct format *f = &formats[i];
        struct reference ref;
        if (only != NULL && strcmp(only, f->name) != 0) {
            continue;
        }
        rng_state = seed * 1000003 + i;
        *(void **) &ref.row = symbol(lib, "quantize_row_", f->name, "_ref");
        *(void **) &ref.deq = symbol(lib, "dequantize_row_", f->name, "");
        *(void **) &ref.rows = symbol(lib, "quantize_", f->name, "");
        ref.cpu_row = cpu_traits(f->type)->from_float;
        init(f->type);
        n_failed += !compare(f, &ref, n_rows, n_phases);
    }
    printf("%d formats failed\n", n_failed);
    return n_failed > 0;
}
