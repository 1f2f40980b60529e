// SPDX-License-Identifier: MIT
// main.c: runs the op suite and prints a line an op. Usage: op-suite [-v] [-k OP]. Without the reference (or under sanitizers,
// which do not mix with it) a case still runs on one thread, on several and with the portable kernels, which must agree. Exit: 0
// all passed, 1 some failed.

#include "op.h"

#include "berth-cpu.h"
#include "berth.h"
#include "ggml-backend-impl.h"
#include "support/oracle.h"

#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define MAX_OPS 128
#define ARENA_SIZE (64u << 20)
#define SHARED_SIZE (32u << 20)
#define N_THREADS 4

struct tally {
    const char *op;
    int n_passed, n_failed, n_skipped;
    double worst; // error of the passed ones
};

struct op_suite {
    struct tally tallies[MAX_OPS];
    int n_ops;
    const char *only;
    bool verbose;
    char *arena, *saved; // contexts are made in arena
    void *shared;        // where the reference leaves its results
    ggml_backend_t berth;
    // the reference; all NULL without it
    struct ggml_cplan (*ref_plan)(const struct ggml_cgraph *, int, struct ggml_threadpool *);
    enum ggml_status (*ref_compute)(struct ggml_cgraph *, struct ggml_cplan *);
    ggml_backend_dev_t ref_dev;
};

static void (*const families[])(struct op_suite *) = {
    op_suite_eltwise,
    op_suite_copy,
    op_suite_matmul,
    op_suite_norm,
    op_suite_rows,
    op_suite_conv,
    op_suite_pool,
    op_suite_pad,
    op_suite_sort,
    op_suite_repeat,
    op_suite_reduce,
    op_suite_rope,
    op_suite_attn,
    op_suite_moe,
    op_suite_ssm,
    op_suite_recurrent,
    op_suite_glu,
    op_suite_train,
    op_suite_custom,
};

const char *op_text(const char *fmt, ...) {
    static char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return text;
}

bool op_wanted(const struct op_suite *s, const char *op) {
    return s->only == NULL || strcmp(s->only, op) == 0;
}

// ---- the reference ----

// *function = the library's symbol; ISO C has no cast for it.
static bool symbol(void *lib, const char *name, void *function) {
    void *found = dlsym(lib, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static void reference_open(struct op_suite *s) {
    static const char *const libraries[] = {
#if defined(__aarch64__)
        "libggml-cpu-armv9.2_2.so",
        "libggml-cpu-armv9.2_1.so",
        "libggml-cpu-armv8.6_2.so",
        "libggml-cpu-armv8.6_1.so",
        "libggml-cpu-armv8.2_3.so",
        "libggml-cpu-armv8.2_2.so",
        "libggml-cpu-armv8.2_1.so",
        "libggml-cpu-armv8.0_1.so",
#else
        "libggml-cpu-sapphirerapids.so",
        "libggml-cpu-icelake.so",
        "libggml-cpu-skylakex.so",
        "libggml-cpu-alderlake.so",
        "libggml-cpu-haswell.so",
        "libggml-cpu-x64.so",
#endif
    };
    const char *wish = getenv("BERTH_REFERENCE_CPU"); // another of its variants
    if (oracle_load("libggml-base.so") == NULL) {
        printf("no reference: %s\n", oracle_why());
        return;
    }
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        if (wish != NULL && strstr(libraries[i], wish) == NULL) {
            continue;
        }
        int (*score)(void)               = NULL;
        ggml_backend_reg_t (*init)(void) = NULL;
        void *lib                        = oracle_load(libraries[i]);
        if (lib == NULL || !symbol(lib, "ggml_backend_score", &score) || score() == 0 ||
            !symbol(lib, "ggml_backend_init", &init) || !symbol(lib, "ggml_graph_plan", &s->ref_plan) ||
            !symbol(lib, "ggml_graph_compute", &s->ref_compute)) {
            continue;
        }
        ggml_backend_reg_t reg = init();
        s->ref_dev             = reg->iface.get_device(reg, 0);
        printf("reference: %s\n", libraries[i]);
        return;
    }
    printf("no reference: none of its CPU libraries runs here\n");
}

// ---- inputs ----

uint64_t op_random(struct op_build *b) {
    b->rng ^= b->rng >> 12;
    b->rng ^= b->rng << 25;
    b->rng ^= b->rng >> 27;
    return b->rng * 0x2545F4914F6CDD1Du;
}

float op_uniform(struct op_build *b, float lo, float hi) {
    return lo + (hi - lo) * ((float) (op_random(b) >> 40) * 0x1p-24f);
}

static void fill_row(struct op_build *b, struct ggml_tensor *t, char *row, float lo, float hi) {
    const struct ggml_type_traits_cpu *traits = ggml_get_type_traits_cpu(t->type);
    float *x                                  = malloc((size_t) t->ne[0] * sizeof *x + 1);
    for (int64_t i = 0; i < t->ne[0]; i++) {
        x[i] = op_uniform(b, lo, hi);
    }
    if (ggml_is_quantized(t->type)) {
        if (traits->from_float != NULL) {
            traits->from_float(x, row, t->ne[0]);
        } else {
            float *weights = malloc((size_t) t->ne[0] * sizeof *weights + 1); // these formats want an importance of each column
            for (int64_t i = 0; i < t->ne[0]; i++) {
                weights[i] = 1.0f;
            }
            if (ggml_quantize_chunk(t->type, x, row, 0, 1, t->ne[0], weights) == 0) {
                b->skip = "rows of this type cannot be made here";
            }
            free(weights);
        }
    } else {
        for (int64_t i = 0; i < t->ne[0]; i++) {
            char *at           = row + (size_t) i * t->nb[0];
            const float scaled = x[i] * 100.0f;
            const int64_t v64  = (int64_t) scaled;
            const double v_f64 = x[i];
            switch (t->type) {
                case GGML_TYPE_I8: *(int8_t *) at = (int8_t) scaled; break;
                case GGML_TYPE_I16: *(int16_t *) (void *) at = (int16_t) scaled; break;
                case GGML_TYPE_I32: *(int32_t *) (void *) at = (int32_t) scaled; break;
                case GGML_TYPE_I64: memcpy(at, &v64, sizeof v64); break;
                case GGML_TYPE_F64: memcpy(at, &v_f64, sizeof v_f64); break;
                default: traits->from_float(&x[i], at, 1);
            }
        }
    }
    free(x);
}

static struct ggml_tensor *filled(struct op_build *b, struct ggml_tensor *t, float lo, float hi) {
    for (int64_t i3 = 0; i3 < t->ne[3]; i3++) {
        for (int64_t i2 = 0; i2 < t->ne[2]; i2++) {
            for (int64_t i1 = 0; i1 < t->ne[1]; i1++) {
                fill_row(
                    b, t, (char *) t->data + (size_t) i1 * t->nb[1] + (size_t) i2 * t->nb[2] + (size_t) i3 * t->nb[3], lo, hi);
            }
        }
    }
    return t;
}

struct ggml_tensor *op_input_range(struct op_build *b, enum ggml_type type, const int64_t *ne, float lo, float hi) {
    return filled(b, ggml_new_tensor(b->ctx, type, 4, ne), lo, hi);
}

struct ggml_tensor *op_input(struct op_build *b, enum ggml_type type, const int64_t *ne) {
    return op_input_range(b, type, ne, -1.0f, 1.0f);
}

struct ggml_tensor *op_input_holes(struct op_build *b, enum ggml_type type, const int64_t *ne) {
    const int64_t blck = ggml_blck_size(type);
    struct ggml_tensor *whole =
        ggml_new_tensor(b->ctx, type, 4, NE(ne[0] + 2 * blck, ne[1] + (ne[2] * ne[3] > 1), ne[2] + (ne[3] > 1), ne[3]));
    memset(whole->data, 0, ggml_nbytes(whole));
    struct ggml_tensor *t =
        ggml_view_4d(b->ctx, whole, ne[0], ne[1], ne[2], ne[3], whole->nb[1], whole->nb[2], whole->nb[3], whole->nb[0]);
    return filled(b, t, -1.0f, 1.0f);
}

struct ggml_tensor *op_input_swapped(struct op_build *b, enum ggml_type type, const int64_t *ne) {
    struct ggml_tensor *t = ggml_new_tensor(b->ctx, type, 4, NE(ne[1], ne[0], ne[2], ne[3]));
    return ggml_transpose(b->ctx, filled(b, t, -1.0f, 1.0f));
}

struct ggml_tensor *op_indices(struct op_build *b, enum ggml_type type, const int64_t *ne, int64_t below, bool distinct) {
    struct ggml_tensor *t = ggml_new_tensor(b->ctx, type, 4, ne);
    const int64_t n       = ggml_nelements(t);
    int64_t first = 0, step = 1;
    for (int64_t i = 0; i < n; i++) {
        if (i % ne[0] == 0) { // walk the residues with a step that has no factor in common with `below`
            first = (int64_t) (op_random(b) % (uint64_t) below);
            step  = below > 2 ? below - 1 : 1;
        }
        const int64_t v = distinct ? (first + i % ne[0] * step) % below : (int64_t) (op_random(b) % (uint64_t) below);
        if (type == GGML_TYPE_I64) {
            ((int64_t *) t->data)[i] = v;
        } else {
            ((int32_t *) t->data)[i] = (int32_t) v;
        }
    }
    return t;
}

struct ggml_tensor *op_with_specials(struct ggml_tensor *t) {
    static const float special[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-40f, 3e38f, -3e38f};
    const int64_t n              = ggml_nelements(t);
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        if ((int64_t) (3 * i) < n) {
            ((float *) t->data)[3 * i] = special[i];
        }
    }
    return t;
}

double op_quant_nmse(enum ggml_type type) {
    static const struct {
        enum ggml_type type;
        double nmse;
    } searched[] = {{GGML_TYPE_Q2_K, 0.1}, {GGML_TYPE_Q3_K, 0.03}, {GGML_TYPE_Q4_K, 0.006}, {GGML_TYPE_Q5_K, 0.002},
        {GGML_TYPE_Q6_K, 5e-4}, {GGML_TYPE_IQ4_NL, 0.012}, {GGML_TYPE_IQ4_XS, 0.01}};
    for (size_t i = 0; i < sizeof searched / sizeof searched[0]; i++) {
        if (searched[i].type == type) {
            return searched[i].nmse;
        }
    }
    return OP_EXACT;
}

// ---- comparing ----

// The tensor's elements in their order, as doubles; its bytes as they are for exact cases.
static double *values(const struct ggml_tensor *t) {
    double *v = malloc((size_t) ggml_nelements(t) * sizeof *v + 1);
    float *x  = malloc((size_t) t->ne[0] * sizeof *x + 1);
    size_t n  = 0;
    for (int64_t ir = 0; ir < ggml_nrows(t); ir++) {
        const int64_t i3 = ir / (t->ne[1] * t->ne[2]), i2 = ir / t->ne[1] % t->ne[2], i1 = ir % t->ne[1];
        const char *row = (const char *) t->data + (size_t) i1 * t->nb[1] + (size_t) i2 * t->nb[2] + (size_t) i3 * t->nb[3];
        if (ggml_is_quantized(t->type)) {
            ggml_get_type_traits(t->type)->to_float(row, x, t->ne[0]);
        }
        for (int64_t i0 = 0; i0 < t->ne[0]; i0++) {
            const char *at = row + (size_t) i0 * t->nb[0];
            int64_t v64;
            double v_f64;
            switch (t->type) {
                case GGML_TYPE_F32: v[n++] = *(const float *) (const void *) at; break;
                case GGML_TYPE_F16: v[n++] = ggml_fp16_to_fp32(*(const ggml_fp16_t *) (const void *) at); break;
                case GGML_TYPE_BF16: v[n++] = ggml_bf16_to_fp32(*(const ggml_bf16_t *) (const void *) at); break;
                case GGML_TYPE_I8: v[n++] = *(const int8_t *) at; break;
                case GGML_TYPE_I16: v[n++] = *(const int16_t *) (const void *) at; break;
                case GGML_TYPE_I32: v[n++] = *(const int32_t *) (const void *) at; break;
                case GGML_TYPE_I64: memcpy(&v64, at, sizeof v64), v[n++] = (double) v64; break;
                case GGML_TYPE_F64: memcpy(&v_f64, at, sizeof v_f64), v[n++] = v_f64; break;
                default: v[n++] = x[i0];
            }
        }
    }
    free(x);
    return v;
}

// Normalised mean squared error of `is` against `want`; infinite if NaN or infinities are in other places. 0 only if all are
// equal.
static double nmse(const double *is, const double *want, int64_t n) {
    double err = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(want[i]) || isnan(is[i]) || isinf(want[i]) || isinf(is[i])) {
            if (!(isnan(want[i]) && isnan(is[i])) && is[i] != want[i]) {
                return INFINITY;
            }
            continue;
        }
        err += (is[i] - want[i]) * (is[i] - want[i]);
        norm += want[i] * want[i];
    }
    return err == 0 ? 0 : norm == 0 ? INFINITY : err / norm;
}

// ---- a case ----

static struct tally *tally_of(struct op_suite *s, const char *op) {
    for (int i = 0; i < s->n_ops; i++) {
        if (strcmp(s->tallies[i].op, op) == 0) {
            return &s->tallies[i];
        }
    }
    s->tallies[s->n_ops].op = op;
    return &s->tallies[s->n_ops++];
}

static void report(
    const struct op_suite *s, const char *verdict, const char *op, const char *what, const char *why, double error) {
    if (s->verbose || strcmp(verdict, "FAIL") == 0) {
        printf("%s %s %s: %s %g\n", verdict, op, what, why, error);
    }
}

// Computes with the inputs as they were; the result's values, NULL if it failed.
static double *berth_values(
    struct op_suite *s, struct ggml_cgraph *graph, struct ggml_tensor *t, size_t used, int n_threads, bool ref) {
    memcpy(s->arena, s->saved, used);
    ggml_backend_cpu_set_n_threads(s->berth, n_threads);
    ggml_backend_cpu_set_use_ref(s->berth, ref);
    return s->berth->iface.graph_compute(s->berth, graph) == GGML_STATUS_SUCCESS ? values(t) : NULL;
}

// In a child: the reference ends the process where it meets what it does not do, whatever its supports_op says. NULL then.
static double *reference_values(struct op_suite *s, struct ggml_cgraph *graph, struct ggml_tensor *t, size_t used) {
    const size_t size = (size_t) ggml_nelements(t) * sizeof(double);
    memcpy(s->arena, s->saved, used);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        struct ggml_cplan plan = s->ref_plan(graph, 1, NULL);
        plan.work_data         = malloc(plan.work_size + 1);
        if (size > SHARED_SIZE || s->ref_compute(graph, &plan) != GGML_STATUS_SUCCESS) {
            _exit(1);
        }
        memcpy(s->shared, values(t), size);
        _exit(0);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        return NULL;
    }
    double *v = malloc(size + 1);
    memcpy(v, s->shared, size);
    return v;
}

// Compares one thread with the reference, and several threads and the portable kernels with one thread.
static void case_run(struct op_suite *s, struct tally *tally, const char *op, const char *what, double max_nmse,
    struct ggml_cgraph *graph, struct ggml_tensor *t, size_t used) {
    const int64_t n  = ggml_nelements(t);
    const bool known = s->ref_dev != NULL && s->ref_dev->iface.supports_op(s->ref_dev, t);
    double *one      = berth_values(s, graph, t, used, 1, false);
    double *many     = berth_values(s, graph, t, used, N_THREADS, false);
    double *portable = berth_values(s, graph, t, used, 2, true);
    double *want     = known ? reference_values(s, graph, t, used) : NULL;
    const char *why  = NULL;
    double error     = 0;
    if (want == NULL && !s->berth->device->iface.supports_op(s->berth->device, t)) {
        why = NULL; // nobody does it
    } else if (one == NULL || many == NULL || portable == NULL) {
        why = "compute failed";
    } else if (memcmp(one, many, (size_t) n * sizeof *one) != 0 && nmse(many, one, n) != 0) {
        why = "threads differ", error = nmse(many, one, n);
    } else if (!((error = nmse(portable, one, n)) <= (max_nmse > OP_F32 ? max_nmse : OP_F32))) {
        why = "portable differs";
    } else if (want != NULL && !((error = nmse(one, want, n)) <= max_nmse)) {
        why = "nmse";
    }
    if (why != NULL) {
        tally->n_failed++;
        report(s, "FAIL", op, what, why, error);
    } else if (want == NULL) {
        tally->n_skipped++;
        report(s, "skip", op, what, s->ref_dev == NULL ? "no reference" : "the reference does not do it", 0);
    } else {
        tally->n_passed++;
        tally->worst = error > tally->worst ? error : tally->worst;
        report(s, "pass", op, what, "nmse", error);
    }
    free(one), free(many), free(portable), free(want);
}

void op_case(struct op_suite *s, const char *op, const char *what, double max_nmse, op_build_t build, const void *arg) {
    if (!op_wanted(s, op)) {
        return;
    }
    struct tally *tally   = tally_of(s, op);
    struct op_build b     = {.rng = 0x9E3779B97F4A7C15u ^ (uint64_t) (tally->n_passed + tally->n_failed + tally->n_skipped + 1)};
    b.ctx                 = ggml_init((struct ggml_init_params){.mem_size = ARENA_SIZE, .mem_buffer = s->arena});
    struct ggml_tensor *t = build(&b, arg);
    struct ggml_cgraph *graph = ggml_new_graph(b.ctx);
    const size_t used         = ggml_used_mem(b.ctx);
    if (b.skip == NULL && berth_is_poison(t)) {
        b.skip = "the constructor says no";
    }
    if (b.skip != NULL) {
        tally->n_skipped++;
        report(s, "skip", op, what, b.skip, 0);
    } else {
        if (t->op != GGML_OP_SET_ROWS && t->op != GGML_OP_CPY && t->view_src == NULL && t->data != NULL) {
            memset(t->data, 0xFF, ggml_nbytes(t)); // what is not written shows
        }
        ggml_build_forward_expand(graph, t);
        memcpy(s->saved, s->arena, used);
        case_run(s, tally, op, what, max_nmse, graph, t, used);
    }
    ggml_free(b.ctx);
}

static void log_drop(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level, (void) text, (void) user_data;
}

int main(int argc, char **argv) {
    struct op_suite s = {0};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-v") == 0) {
            s.verbose = true;
        } else if (strcmp(argv[i], "-k") == 0 && i + 1 < argc) {
            s.only = argv[++i];
        }
    }
    setenv("GGML_NO_BACKTRACE", "1", 1);
    setenv("BERTH_CPU_OVERSUBSCRIBE", "1", 0); // several threads, whatever the machine has
    s.arena  = aligned_alloc(64, ARENA_SIZE);
    s.saved  = malloc(ARENA_SIZE);
    s.shared = mmap(NULL, SHARED_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    s.berth  = ggml_backend_cpu_init();
    if (s.shared == MAP_FAILED || s.arena == NULL || s.saved == NULL || s.berth == NULL) {
        printf("out of memory\n");
        return 1;
    }
    if (!s.verbose) {
        ggml_log_set(log_drop, NULL);
    }
    reference_open(&s);
    printf("kernels: %s\n", berth_cpu_isa());
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        families[i](&s);
    }
    struct tally all = {.op = "all"};
    for (int i = 0; i < s.n_ops; i++) {
        const struct tally *t = &s.tallies[i];
        printf("%-24s %d passed, %d failed, %d skipped (worst nmse %.2g)\n", t->op, t->n_passed, t->n_failed, t->n_skipped,
            t->worst);
        all.n_passed += t->n_passed, all.n_failed += t->n_failed, all.n_skipped += t->n_skipped;
    }
    printf("%-24s %d passed, %d failed, %d skipped\n", all.op, all.n_passed, all.n_failed, all.n_skipped);
    s.berth->iface.free(s.berth);
    free(s.arena), free(s.saved);
    return all.n_failed > 0;
}
