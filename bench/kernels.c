// SPDX-License-Identifier: MIT
// kernels.c: measures the ops that take most of the time of language models. Berth and the reference's best CPU library for this
// machine compute the same graph in one process and alternate. A time is the shortest of all runs: processor time with one thread,
// elapsed time with more threads. The results are compared. A row fails if the normalised mean squared error between the two is
// above its limit.
//
// A MUL_MAT row multiplies weights of n rows and k elements per row with m columns. "plain" is the reference with the weights as
// the file holds them. "repacked" is the reference with its extra buffer type, if it has one for the type of the weights.
//
// The time of Berth should not fall if a column is added. After the rows of a name, a line that begins with "step" reports each m
// whose time exceeds that of the next larger m by more than 2%. The last line has their number.
//
// Usage: bench-kernels [-t threads] [-k k] [-n rows] [-m m,first-last,...] [-s seconds per row] [name ...]
// A name is a type of weights or an op. tools/bench-tiers.sh reads the output.

#include "runner.h"

#include "berth-cpu.h"
#include "ggml-backend.h"

#include <math.h>
#include <strings.h>

#define M_MAX 65536 // maximum columns
#define STEP_MAX 1.02

static struct {
    int n_threads, n_m, n_names;
    int64_t k, n, *m; // m: ascending
    double seconds;
    char **names;
} opt = {.n_threads = 1, .k = 4096, .n = 1024, .seconds = 0.5};

static struct runner berth, reference;
static bool has_reference;
static int n_failed, n_steps;

static bool wanted(const char *name) {
    for (int i = 0; i < opt.n_names; i++) {
        if (strcasecmp(opt.names[i], name) == 0) {
            return true;
        }
    }
    return opt.n_names == 0;
}

// ---- lanes: one graph, run by Berth, by the reference, and by the reference with repacked weights ----

struct lane {
    const struct runner *by;
    struct ggml_cgraph *graph;
    struct ggml_cplan plan;
    struct ggml_threadpool *pool;
    double best_us;
};

static struct lane lane_of(const struct runner *by, struct ggml_cgraph *graph) {
    return (struct lane){.by = by, .graph = graph, .best_us = INFINITY};
}

static void lane_start(struct lane *l) {
    struct ggml_threadpool_params params = ggml_threadpool_params_default(opt.n_threads);
    l->pool = l->by->pool_new(&params);
    l->plan = l->by->plan(l->graph, opt.n_threads, l->pool);
    l->plan.work_data = malloc(l->plan.work_size + 64);
}

static void lane_run(struct lane *l) {
    const clockid_t clock = opt.n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    const double start = 1e6 * clock_s(clock);
    if (l->by->compute(l->graph, &l->plan) != GGML_STATUS_SUCCESS) {
        printf("%s failed\n", l->by->name);
        n_failed++;
    }
    const double spent = 1e6 * clock_s(clock) - start;
    l->best_us = spent < l->best_us ? spent : l->best_us;
}

static void lane_stop(struct lane *l) {
    free(l->plan.work_data);
    l->by->pool_free(l->pool);
}

static float *answer(const struct ggml_tensor *t) {
    const int64_t n = ggml_nelements(t);
    float *y = malloc((size_t) n * sizeof *y);
    if (t->type == GGML_TYPE_F16) {
        ggml_fp16_to_fp32_row(t->data, y, n);
    } else {
        memcpy(y, t->data, (size_t) n * sizeof *y);
    }
    return y;
}

static double nmse(int64_t n, const float *x, const float *y) {
    double err = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double) x[i] - (double) y[i];
        err += d * d;
        all += (double) y[i] * y[i];
    }
    return all > 0 ? err / all : err;
}

static void row_print(const char *name, int64_t m, const struct lane *lanes, int n_lanes, double err, double limit) {
    printf("%-14s %4lld %11.1f", name, (long long) m, lanes[0].best_us);
    for (int i = 1; i < 3; i++) {
        if (i < n_lanes) {
            printf(" %11.1f %6.2f", lanes[i].best_us, lanes[i].best_us / lanes[0].best_us);
        } else {
            printf(" %11s %6s", "-", "-");
        }
    }
    n_failed += !(err <= limit);
    printf("  %8.1e%s\n", err, err <= limit ? "" : " WRONG");
}

// Runs the lanes alternately until the time is up. Keeps the results of the first run in answers.
static void turns(struct lane *lanes, int n_lanes, float **answers) {
    const double end = 1e6 * clock_s(CLOCK_MONOTONIC) + opt.seconds * 1e6;
    for (int turn = 0; turn < 3 || 1e6 * clock_s(CLOCK_MONOTONIC) < end; turn++) {
        for (int i = 0; i < n_lanes; i++) {
            lane_run(&lanes[i]);
            if (turn == 0) {
                answers[i] = answer(ggml_graph_node(lanes[i].graph, -1));
            }
        }
    }
}

// Compares the lanes, prints a row and returns Berth's time. With several threads, each lane runs alone and frees its pool at the
// end, because the idle threads of a pool may spin and slow down the next lane.
static double race(const char *name, int64_t m, struct ggml_tensor *out, struct lane *lanes, int n_lanes, double limit) {
    float *answers[3] = {NULL};
    double err = 0;
    for (int i = 0; i < n_lanes; i += opt.n_threads == 1 ? n_lanes : 1) {
        const int n = opt.n_threads == 1 ? n_lanes : 1;
        for (int j = i; j < i + n; j++) {
            lane_start(&lanes[j]);
        }
        turns(lanes + i, n, answers + i);
        for (int j = i; j < i + n; j++) {
            lane_stop(&lanes[j]);
        }
    }
    for (int i = 1; i < n_lanes; i++) {
        const double e = nmse(ggml_nelements(out), answers[0], answers[i]);
        err = e > err || isnan(e) ? e : err;
    }
    row_print(name, m, lanes, n_lanes, err, limit);
    for (int i = 0; i < n_lanes; i++) {
        free(answers[i]);
    }
    return lanes[0].best_us;
}

// Reports the step from *last_us, the time of opt.m[i - 1], to the time of opt.m[i].
static void step_check(const char *name, int i, double *last_us, double us) {
    if (i > 0 && *last_us > STEP_MAX * us) {
        printf("step %s: %lld takes %.2f times as long as %lld\n", name, (long long) opt.m[i - 1], *last_us / us,
            (long long) opt.m[i]);
        n_steps++;
    }
    *last_us = us;
}

static struct ggml_cgraph *graph_of(struct ggml_context *ctx, struct ggml_tensor *out) {
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 64, false);
    ggml_build_forward_expand(graph, out);
    return graph;
}

// ---- numbers ----

static float noise(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (float) ((double) (state >> 11) / 4503599627370496.0 - 1.0);
}

// Fills up to 32 rows with random numbers and copies them to the other rows, because some formats quantise slowly.
static void fill(struct ggml_tensor *t) {
    const int64_t n = t->ne[0], n_rows = ggml_nrows(t), n_own = n_rows < 32 ? n_rows : 32;
    const size_t row = ggml_row_size(t->type, n);
    float *x = malloc((size_t) (n * n_own) * sizeof *x);
    for (int64_t i = 0; i < n * n_own; i++) {
        x[i] = noise() * 0.25f;
    }
    if (t->type == GGML_TYPE_F32) {
        memcpy(t->data, x, row * (size_t) n_own);
    } else if (t->type == GGML_TYPE_F16) {
        ggml_fp32_to_fp16_row(x, t->data, n * n_own);
    } else if (t->type == GGML_TYPE_BF16) {
        ggml_fp32_to_bf16_row(x, t->data, n * n_own);
    } else {
        float *weights = ggml_quantize_requires_imatrix(t->type) ? malloc((size_t) n * sizeof *weights) : NULL;
        for (int64_t i = 0; weights != NULL && i < n; i++) {
            weights[i] = 1.0f;
        }
        ggml_quantize_chunk(t->type, x, t->data, 0, n_own, n, weights);
        free(weights);
    }
    for (int64_t i = n_own; i < n_rows; i++) {
        memcpy((char *) t->data + (size_t) i * row, (char *) t->data + (size_t) (i % n_own) * row, row);
    }
    free(x);
}

static struct ggml_tensor *filled(struct ggml_context *ctx, enum ggml_type type, int64_t a, int64_t b, int64_t c) {
    struct ggml_tensor *t = ggml_new_tensor_3d(ctx, type, a, b, c);
    fill(t);
    return t;
}

// ---- MUL_MAT ----

// The same weights in the reference's extra buffer type, which repacks them. NULL: the reference has none for this type.
static struct ggml_tensor *repacked(struct ggml_context *ctx, const struct ggml_tensor *w, void **buffer) {
    ggml_backend_reg_t (*reg_of)(void) = NULL;
    void *(*proc)(ggml_backend_reg_t, const char *) = NULL;
    ggml_backend_dev_t (*dev_of)(ggml_backend_reg_t, size_t) = NULL;
    ggml_backend_buffer_t (*alloc)(ggml_backend_buffer_type_t, size_t) = NULL;
    enum ggml_status (*place)(ggml_backend_buffer_t, struct ggml_tensor *, void *) = NULL;
    void *(*start)(ggml_backend_buffer_t) = NULL;
    size_t (*size_of)(ggml_backend_buffer_type_t, const struct ggml_tensor *) = NULL;
    bool (*supports)(ggml_backend_dev_t, const struct ggml_tensor *) = NULL;
    void (*set)(struct ggml_tensor *, const void *, size_t, size_t) = NULL;
    if (!runner_symbol(reference.cpu, "ggml_backend_cpu_reg", &reg_of) ||
        !runner_symbol(reference.base, "ggml_backend_reg_get_proc_address", &proc) ||
        !runner_symbol(reference.base, "ggml_backend_reg_dev_get", &dev_of) ||
        !runner_symbol(reference.base, "ggml_backend_buft_alloc_buffer", &alloc) ||
        !runner_symbol(reference.base, "ggml_backend_tensor_alloc", &place) ||
        !runner_symbol(reference.base, "ggml_backend_buffer_get_base", &start) ||
        !runner_symbol(reference.base, "ggml_backend_buft_get_alloc_size", &size_of) ||
        !runner_symbol(reference.base, "ggml_backend_dev_supports_op", &supports) ||
        !runner_symbol(reference.base, "ggml_backend_tensor_set", &set)) {
        return NULL;
    }
    ggml_backend_dev_get_extra_bufts_t bufts = NULL;
    void *found = proc(reg_of(), "ggml_backend_dev_get_extra_bufts");
    memcpy(&bufts, &found, sizeof found);
    ggml_backend_buffer_type_t *list = bufts != NULL ? bufts(dev_of(reg_of(), 0)) : NULL;
    for (; list != NULL && *list != NULL; list++) {
        struct ggml_tensor *t = ggml_new_tensor(ctx, w->type, 4, w->ne);
        ggml_backend_buffer_t mine = t != NULL ? alloc(*list, size_of(*list, t) + 4096) : NULL;
        if (mine == NULL) {
            continue;
        }
        t->data = NULL;
        struct ggml_tensor *two = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, w->ne[0], 2);
        if (place(mine, t, start(mine)) == GGML_STATUS_SUCCESS && t->extra != NULL &&
            supports(dev_of(reg_of(), 0), ggml_mul_mat(ctx, t, two))) {
            set(t, w->data, 0, ggml_nbytes(w));
            *buffer = mine;
            return t;
        }
    }
    return NULL;
}

static void mul_mat(enum ggml_type type) {
    const size_t size = ggml_row_size(type, opt.k) * (size_t) opt.n;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 2 * size + (64u << 20)});
    struct ggml_tensor *w = filled(ctx, type, opt.k, opt.n, 1);
    void *buffer = NULL;
    struct ggml_tensor *other = has_reference && ggml_is_quantized(type) ? repacked(ctx, w, &buffer) : NULL;
    double last_us = 0;
    for (int i = 0; i < opt.n_m; i++) {
        struct ggml_context *tmp = ggml_init(
            (struct ggml_init_params){.mem_size = (size_t) (opt.m[i] * (opt.k + 2 * opt.n)) * sizeof(float) + (1u << 20)});
        struct ggml_tensor *x = filled(tmp, GGML_TYPE_F32, opt.k, opt.m[i], 1);
        struct ggml_tensor *y = ggml_mul_mat(tmp, w, x);
        struct ggml_cgraph *graph = graph_of(tmp, y);
        struct lane lanes[3] = {lane_of(&berth, graph)};
        int n_lanes = 1;
        if (has_reference) {
            lanes[n_lanes++] = lane_of(&reference, graph);
        }
        if (other != NULL) {
            lanes[n_lanes++] = lane_of(&reference, graph_of(tmp, ggml_mul_mat(tmp, other, x)));
        }
        step_check(ggml_type_name(type), i, &last_us, race(ggml_type_name(type), opt.m[i], y, lanes, n_lanes, 1e-4));
        ggml_free(tmp);
    }
    void (*release)(void *) = NULL;
    if (buffer != NULL && runner_symbol(reference.base, "ggml_backend_buffer_free", &release)) {
        release(buffer);
    }
    ggml_free(ctx);
}

// ---- the other ops: 32 query heads and 8 key and value heads of 128 elements, rows of 4096, feed-forward rows of 11008 ----

static struct ggml_tensor *op_rms_norm(struct ggml_context *ctx, int64_t m, int how) {
    (void) how;
    return ggml_rms_norm(ctx, filled(ctx, GGML_TYPE_F32, 4096, m, 1), 1e-5f);
}
static struct ggml_tensor *op_add(struct ggml_context *ctx, int64_t m, int how) {
    (void) how;
    return ggml_add(ctx, filled(ctx, GGML_TYPE_F32, 4096, m, 1), filled(ctx, GGML_TYPE_F32, 4096, m, 1));
}
static struct ggml_tensor *op_mul(struct ggml_context *ctx, int64_t m, int how) {
    (void) how;
    return ggml_mul(ctx, filled(ctx, GGML_TYPE_F32, 4096, m, 1), filled(ctx, GGML_TYPE_F32, 4096, 1, 1));
}
static struct ggml_tensor *op_silu(struct ggml_context *ctx, int64_t m, int how) {
    (void) how;
    return ggml_silu(ctx, filled(ctx, GGML_TYPE_F32, 11008, m, 1));
}
static struct ggml_tensor *op_gelu(struct ggml_context *ctx, int64_t m, int how) {
    (void) how;
    return ggml_gelu(ctx, filled(ctx, GGML_TYPE_F32, 11008, m, 1));
}
static struct ggml_tensor *op_swiglu(struct ggml_context *ctx, int64_t m, int how) {
    (void) how;
    return ggml_swiglu_split(ctx, filled(ctx, GGML_TYPE_F32, 11008, m, 1), filled(ctx, GGML_TYPE_F32, 11008, m, 1));
}
static struct ggml_tensor *op_rope(struct ggml_context *ctx, int64_t m, int mode) {
    struct ggml_tensor *pos = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, m);
    for (int64_t i = 0; i < m; i++) {
        ((int32_t *) pos->data)[i] = (int32_t) i;
    }
    return ggml_rope(ctx, filled(ctx, GGML_TYPE_F32, 128, 32, m), pos, 128, mode);
}
static struct ggml_tensor *op_soft_max(struct ggml_context *ctx, int64_t m, int how) {
    (void) how;
    return ggml_soft_max_ext(ctx, filled(ctx, GGML_TYPE_F32, 1024, m, 32), filled(ctx, GGML_TYPE_F32, 1024, m, 1), 0.088f, 0.0f);
}
static struct ggml_tensor *op_cpy_f16(struct ggml_context *ctx, int64_t m, int how) {
    (void) how;
    return ggml_cpy(ctx, filled(ctx, GGML_TYPE_F32, 1024, m, 1), ggml_new_tensor_2d(ctx, GGML_TYPE_F16, 1024, m));
}
static struct ggml_tensor *op_cont(struct ggml_context *ctx, int64_t m, int how) {
    (void) how;
    return ggml_cont(ctx, ggml_permute(ctx, filled(ctx, GGML_TYPE_F32, 128, 32, m), 0, 2, 1, 3));
}
static struct ggml_tensor *op_get_rows(struct ggml_context *ctx, int64_t m, int type) {
    struct ggml_tensor *ids = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, m);
    for (int64_t i = 0; i < m; i++) {
        ((int32_t *) ids->data)[i] = (int32_t) (i * 37 % 512);
    }
    return ggml_get_rows(ctx, filled(ctx, (enum ggml_type) type, 4096, 512, 1), ids);
}
static struct ggml_tensor *op_attn(struct ggml_context *ctx, int64_t m, int type) {
    const int64_t n_kv = 1024;
    struct ggml_tensor *q = ggml_permute(ctx, filled(ctx, GGML_TYPE_F32, 128, 32, m), 0, 2, 1, 3);
    struct ggml_tensor *k = ggml_permute(ctx, filled(ctx, (enum ggml_type) type, 128, 8, n_kv), 0, 2, 1, 3);
    struct ggml_tensor *v = ggml_permute(ctx, filled(ctx, (enum ggml_type) type, 128, 8, n_kv), 0, 2, 1, 3);
    struct ggml_tensor *mask = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, n_kv, (m + 63) / 64 * 64);
    memset(mask->data, 0, ggml_nbytes(mask));
    for (int64_t i = 0; i < m; i++) { // causal mask: the queries are the last m of n_kv tokens
        for (int64_t j = n_kv - m + i + 1; j < n_kv; j++) {
            ((uint16_t *) mask->data)[i * n_kv + j] = 0xfc00; // -inf
        }
    }
    return ggml_flash_attn_ext(ctx, q, k, v, mask, 0.088f, 0.0f, 0.0f);
}

// m tokens; each uses 4 of 16 experts of 1024 rows.
static struct ggml_tensor *op_experts(struct ggml_context *ctx, int64_t m, int type) {
    const int64_t n_expert = 16, n_used = 4;
    struct ggml_tensor *ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, n_used, m);
    for (int64_t i = 0; i < n_used * m; i++) {
        ((int32_t *) ids->data)[i] = (int32_t) ((i / n_used * 7 + i % n_used * 3) % n_expert);
    }
    return ggml_mul_mat_id(
        ctx, filled(ctx, (enum ggml_type) type, 2048, 1024, n_expert), filled(ctx, GGML_TYPE_F32, 2048, 1, m), ids);
}

static const struct {
    const char *name;
    struct ggml_tensor *(*build)(struct ggml_context *, int64_t m, int how);
    int how;      // the mode of RoPE or the type, for ops that have one
    double limit; // 0: 1e-4
} ops[] = {{"attn_f16", op_attn, GGML_TYPE_F16, 2e-3 /* the reference sums in f16 if there are few queries */},
    {"attn_q8_0", op_attn, GGML_TYPE_Q8_0, 0}, {"rms_norm", op_rms_norm, 0, 0}, {"rope", op_rope, 0, 0},
    {"rope_neox", op_rope, 2, 0}, {"soft_max", op_soft_max, 0, 0}, {"silu", op_silu, 0, 0}, {"gelu", op_gelu, 0, 0},
    {"swiglu", op_swiglu, 0, 0}, {"add", op_add, 0, 0}, {"mul", op_mul, 0, 0}, {"cpy_f16", op_cpy_f16, 0, 0},
    {"cont", op_cont, 0, 0}, {"get_rows_q4_K", op_get_rows, GGML_TYPE_Q4_K, 0}, {"get_rows_q8_0", op_get_rows, GGML_TYPE_Q8_0, 0},
    {"experts_q4_K", op_experts, GGML_TYPE_Q4_K, 0}, {"experts_q8_0", op_experts, GGML_TYPE_Q8_0, 0},
    {"experts_f16", op_experts, GGML_TYPE_F16, 0}};

static void one_op(int i) {
    const double limit = ops[i].limit > 0 ? ops[i].limit : 1e-4;
    double last_us = 0;
    for (int j = 0; j < opt.n_m; j++) {
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 512u << 20});
        struct ggml_tensor *y = ops[i].build(ctx, opt.m[j], ops[i].how);
        struct ggml_cgraph *graph = graph_of(ctx, y);
        struct lane lanes[2] = {lane_of(&berth, graph)};
        if (has_reference) {
            lanes[1] = lane_of(&reference, graph);
        }
        step_check(ops[i].name, j, &last_us, race(ops[i].name, opt.m[j], y, lanes, has_reference ? 2 : 1, limit));
        ggml_free(ctx);
    }
}

// Parses a list such as 1-20,24,32. Returns false unless the numbers are ascending.
static bool m_parse(const char *text) {
    int64_t last = 0;
    opt.n_m = 0;
    while (*text != '\0') {
        char *end;
        int64_t m = strtoll(text, &end, 10), to = m;
        if (*end == '-') {
            to = strtoll(end + 1, &end, 10);
        }
        if (m <= last || to < m || to > M_MAX || (*end != '\0' && *end != ',')) {
            return false;
        }
        opt.m = realloc(opt.m, (size_t) (opt.n_m + to - m + 1) * sizeof *opt.m);
        for (; m <= to; m++) {
            opt.m[opt.n_m++] = m;
        }
        last = to;
        text = *end == ',' ? end + 1 : end;
    }
    return opt.n_m > 0;
}

static bool options(int argc, char **argv) {
    int c;
    if (!m_parse("1,32,256")) {
        return false;
    }
    while ((c = getopt(argc, argv, "t:k:n:m:s:")) != -1) {
        if (c == 't') {
            opt.n_threads = atoi(optarg);
        } else if (c == 'k') {
            opt.k = atoll(optarg);
        } else if (c == 'n') {
            opt.n = atoll(optarg);
        } else if (c == 's') {
            opt.seconds = atof(optarg);
        } else if (c != 'm' || !m_parse(optarg)) {
            return false;
        }
    }
    opt.names = argv + optind;
    opt.n_names = argc - optind;
    return opt.n_threads > 0 && opt.k > 0 && opt.n > 0;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!options(argc, argv)) {
        fprintf(stderr, "usage: bench-kernels [-t threads] [-k k] [-n rows] [-m m,first-last,...] [-s seconds] [name ...]\n");
        return 2;
    }
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
        GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K,
        GGML_TYPE_Q6_K, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4, GGML_TYPE_IQ1_S, GGML_TYPE_IQ1_M, GGML_TYPE_IQ2_XXS,
        GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_S, GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ3_S, GGML_TYPE_TQ1_0, GGML_TYPE_TQ2_0, GGML_TYPE_NVFP4,
        GGML_TYPE_Q1_0, GGML_TYPE_Q2_0};
    berth = runner_berth();
    has_reference = runner_reference(&reference);
    ggml_cpu_init();
    printf("kernels %s, reference %s, %d threads, k %lld, n %lld\n", berth_cpu_isa(),
        has_reference ? reference.name : oracle_why(), opt.n_threads, (long long) opt.k, (long long) opt.n);
    printf("%-14s %4s %11s %11s %6s %11s %6s  %8s\n", "", "m", "berth us", "plain us", "ratio", "repack us", "ratio", "nmse");
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (wanted(ggml_type_name(types[i]))) {
            mul_mat(types[i]);
        }
    }
    for (int i = 0; i < (int) (sizeof ops / sizeof ops[0]); i++) {
        if (wanted(ops[i].name)) {
            one_op(i);
        }
    }
    if (opt.n_m > 1) {
        printf("steps: %d\n", n_steps);
    }
    free(opt.m);
    return n_failed != 0;
}
