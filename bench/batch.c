// SPDX-License-Identifier: MIT
// batch.c: measures the ops of B sequences that each decode one token: attention, experts, state space models, embeddings. Berth
// and the reference's best CPU library for this machine compute the same graph in one process. A time is the shortest of all runs:
// processor time with one thread, elapsed time with more threads. A row fails if the normalised mean squared error between the
// two results is above its limit.
//
// The column "each" is the time per sequence divided by the time of one sequence alone. A graph of attention has LAYERS / B nodes
// with a cache each, so that the caches of one sequence are as far from the processor as those of many. A time is that of one
// node. Attention is measured with
//   separate:    a cache per sequence (4-d tensors)
//   unified:     one cache, in which the keys of a sequence are adjacent, and a mask
//   interleaved: one cache, in which token i of all sequences are adjacent, and a mask
//
// Usage: bench-batch [-t threads] [-s seconds per row] [-b B,B,...] [-k keys,keys,...] [-d elements per head,...] [name ...]
// Rows of experts end with the time and the ratio of the reference with repacked weights, if it has them for the type.
// A name is a case (attn_separate) or a case and a type (attn_separate_f16).

#include "runner.h"

#include "berth-cpu.h"
#include "ggml-backend.h"

#include <math.h>
#include <strings.h>

#define LIST 32

struct list {
    int n;
    int64_t at[LIST];
};

static struct {
    int n_threads, n_names;
    struct list b, n_kv, d;
    double seconds;
    char **names;
} opt = {.n_threads = 1, .seconds = 0.3, .b = {5, {1, 2, 4, 8, 16}}, .n_kv = {3, {256, 1024, 4096}}, .d = {2, {64, 128}}};

static struct runner berth, reference;
static bool has_reference;
static int n_failed;

// ---- numbers ----

static float noise(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (float) ((double) (state >> 11) / 4503599627370496.0 - 1.0);
}

// Fills up to 64 rows with random numbers and copies them to the other rows, because some formats quantise slowly.
static struct ggml_tensor *filled(struct ggml_context *ctx, enum ggml_type type, int64_t a, int64_t b, int64_t c, int64_t d) {
    struct ggml_tensor *t = ggml_new_tensor_4d(ctx, type, a, b, c, d);
    const int64_t n_rows = ggml_nrows(t), n_own = n_rows < 64 ? n_rows : 64;
    const size_t row = ggml_row_size(type, a);
    float *x = malloc((size_t) (a * n_own) * sizeof *x);
    for (int64_t i = 0; i < a * n_own; i++) {
        x[i] = noise();
    }
    if (type == GGML_TYPE_F32) {
        memcpy(t->data, x, row * (size_t) n_own);
    } else if (type == GGML_TYPE_F16) {
        ggml_fp32_to_fp16_row(x, t->data, a * n_own);
    } else {
        ggml_quantize_chunk(type, x, t->data, 0, n_own, a, NULL);
    }
    for (int64_t i = n_own; i < n_rows; i++) {
        const int64_t from = (i + i / n_own) % n_own; // rows at any equal distance differ
        memcpy((char *) t->data + (size_t) i * row, (char *) t->data + (size_t) from * row, row);
    }
    free(x);
    return t;
}

// ---- cases ----

struct shape {
    enum ggml_type type;
    int64_t n_seq, n_kv, d;
};

#define LAYERS 16
#define HEADS 32
#define HEADS_KV 8

enum cache { SEPARATE, UNIFIED, INTERLEAVED };

// Key j of a cache with all keys belongs to this sequence.
static int64_t owner(const struct shape *s, enum cache cache, int64_t j) {
    return cache == UNIFIED ? j / s->n_kv : j % s->n_seq;
}

static struct ggml_tensor *attn(struct ggml_context *ctx, const struct shape *s, enum cache cache) {
    const int64_t n_stream = cache == SEPARATE ? s->n_seq : 1, n_token = s->n_seq / n_stream, n_kv = s->n_kv * n_token;
    struct ggml_tensor *q = filled(ctx, GGML_TYPE_F32, s->d, HEADS, n_token, n_stream);
    struct ggml_tensor *k = filled(ctx, s->type, s->d, HEADS_KV, n_kv, n_stream);
    struct ggml_tensor *v = filled(ctx, s->type, s->d, HEADS_KV, n_kv, n_stream);
    struct ggml_tensor *mask = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, n_kv, n_token, 1, n_stream);
    for (int64_t i = 0; i < ggml_nelements(mask); i++) {
        const bool is_visible = cache == SEPARATE || owner(s, cache, i % n_kv) == i / n_kv;
        ((uint16_t *) mask->data)[i] = is_visible ? 0 : 0xfc00; // -inf
    }
    return ggml_flash_attn_ext(ctx, ggml_permute(ctx, q, 0, 2, 1, 3), ggml_permute(ctx, k, 0, 2, 1, 3),
        ggml_permute(ctx, v, 0, 2, 1, 3), mask, 1.0f / sqrtf((float) s->d), 0.0f, 0.0f);
}
static struct ggml_tensor *attn_separate(struct ggml_context *ctx, const struct shape *s) {
    return attn(ctx, s, SEPARATE);
}
static struct ggml_tensor *attn_unified(struct ggml_context *ctx, const struct shape *s) {
    return attn(ctx, s, UNIFIED);
}
static struct ggml_tensor *attn_interleaved(struct ggml_context *ctx, const struct shape *s) {
    return attn(ctx, s, INTERLEAVED);
}

static struct ggml_tensor *experts(struct ggml_context *ctx, const struct shape *s, int64_t n_used, int64_t n_expert) {
    struct ggml_tensor *ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, n_used, s->n_seq);
    int32_t *id = ids->data;
    for (int64_t i = 0; i < s->n_seq * n_used; i++) {
        bool is_new = false;
        while (!is_new) { // the experts of a token differ
            id[i] = (int32_t) ((noise() + 1) / 2 * (float) n_expert) % (int32_t) n_expert;
            is_new = true;
            for (int64_t j = i / n_used * n_used; j < i; j++) {
                is_new = is_new && id[j] != id[i];
            }
        }
    }
    return ggml_mul_mat_id(
        ctx, filled(ctx, s->type, 2048, 768, n_expert, 1), filled(ctx, GGML_TYPE_F32, 2048, 1, s->n_seq, 1), ids);
}
static struct ggml_tensor *experts_8_64(struct ggml_context *ctx, const struct shape *s) {
    return experts(ctx, s, 8, 64);
}
static struct ggml_tensor *experts_4_32(struct ggml_context *ctx, const struct shape *s) {
    return experts(ctx, s, 4, 32);
}

// The ops of a mamba model of 1.4B: 4096 channels, 16 states.
#define CHANNELS 4096
#define STATES 16
static struct ggml_tensor *ssm_conv(struct ggml_context *ctx, const struct shape *s) {
    return ggml_ssm_conv(
        ctx, filled(ctx, GGML_TYPE_F32, 4, CHANNELS, s->n_seq, 1), filled(ctx, GGML_TYPE_F32, 4, CHANNELS, 1, 1));
}
static struct ggml_tensor *scan(
    struct ggml_context *ctx, const struct shape *s, int64_t d_head, int64_t d_state, int64_t n_rate) {
    const int64_t n_head = CHANNELS / d_head;
    struct ggml_tensor *ids = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, s->n_seq);
    for (int64_t i = 0; i < s->n_seq; i++) {
        ((int32_t *) ids->data)[i] = (int32_t) i;
    }
    struct ggml_tensor *rate = filled(ctx, GGML_TYPE_F32, n_rate, n_head, 1, 1);
    for (int64_t i = 0; i < ggml_nelements(rate); i++) {
        ((float *) rate->data)[i] = -1.0f - (float) (i % STATES);
    }
    return ggml_ssm_scan(ctx, filled(ctx, GGML_TYPE_F32, d_state, d_head, n_head, s->n_seq),
        filled(ctx, GGML_TYPE_F32, d_head, n_head, 1, s->n_seq), filled(ctx, GGML_TYPE_F32, n_head, 1, s->n_seq, 1), rate,
        filled(ctx, GGML_TYPE_F32, d_state, 1, 1, s->n_seq), filled(ctx, GGML_TYPE_F32, d_state, 1, 1, s->n_seq), ids, 1);
}
static struct ggml_tensor *ssm_scan(struct ggml_context *ctx, const struct shape *s) {
    return scan(ctx, s, 1, STATES, STATES);
}
static struct ggml_tensor *ssm_scan2(struct ggml_context *ctx, const struct shape *s) {
    return scan(ctx, s, 64, 128, 1);
}

static struct ggml_tensor *get_rows(struct ggml_context *ctx, const struct shape *s) {
    struct ggml_tensor *ids = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, s->n_seq);
    for (int64_t i = 0; i < s->n_seq; i++) {
        ((int32_t *) ids->data)[i] = (int32_t) (i * 3777 % 32000);
    }
    return ggml_get_rows(ctx, filled(ctx, s->type, 4096, 32000, 1, 1), ids);
}

#define NONE GGML_TYPE_COUNT
static const struct {
    const char *name;
    struct ggml_tensor *(*build)(struct ggml_context *, const struct shape *);
    bool has_keys; // measured with each number of keys and each size of a head
    enum ggml_type types[8];
} cases[] = {
    {"attn_separate", attn_separate, true, {GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_Q8_0, NONE}},
    {"attn_unified", attn_unified, true, {GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_Q8_0, NONE}},
    {"attn_interleaved", attn_interleaved, true, {GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_Q8_0, NONE}},
    {"experts_8_64", experts_8_64, false, {GGML_TYPE_Q4_K, GGML_TYPE_Q8_0, GGML_TYPE_F16, NONE}},
    {"experts_4_32", experts_4_32, false, {GGML_TYPE_Q4_K, GGML_TYPE_Q8_0, GGML_TYPE_F16, NONE}},
    {"ssm_conv", ssm_conv, false, {GGML_TYPE_F32, NONE}},
    {"ssm_scan", ssm_scan, false, {GGML_TYPE_F32, NONE}},
    {"ssm_scan2", ssm_scan2, false, {GGML_TYPE_F32, NONE}},
    {"get_rows", get_rows, false,
        {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K, NONE}},
};

// ---- measuring ----

static double best_us(const struct runner *r, struct ggml_cgraph *graph) {
    struct ggml_threadpool_params params = ggml_threadpool_params_default(opt.n_threads);
    struct ggml_threadpool *pool = r->pool_new(&params);
    struct ggml_cplan plan = r->plan(graph, opt.n_threads, pool);
    const clockid_t clock = opt.n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    const double end = clock_s(CLOCK_MONOTONIC) + opt.seconds;
    double best = INFINITY;
    plan.work_data = malloc(plan.work_size + 64);
    for (int i = 0; i < 3 || clock_s(CLOCK_MONOTONIC) < end; i++) {
        const double start = clock_s(clock);
        if (r->compute(graph, &plan) != GGML_STATUS_SUCCESS) {
            printf("%s failed\n", r->name);
            n_failed++;
            break;
        }
        const double spent = 1e6 * (clock_s(clock) - start);
        best = spent < best ? spent : best;
    }
    free(plan.work_data);
    r->pool_free(pool);
    return best;
}

// Puts a copy of the weights of MUL_MAT_ID in the reference's extra buffer type, which repacks them. Returns the op with these
// weights. NULL: the reference has no such type for the weights.
static struct ggml_tensor *repacked(struct ggml_context *ctx, const struct ggml_tensor *op, void **buffer) {
    const struct ggml_tensor *w = op->src[0];
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
        struct ggml_tensor *product = ggml_mul_mat_id(ctx, t, op->src[1], op->src[2]);
        if (place(mine, t, start(mine)) == GGML_STATUS_SUCCESS && t->extra != NULL && supports(dev_of(reg_of(), 0), product)) {
            set(t, w->data, 0, ggml_nbytes(w));
            *buffer = mine;
            return product;
        }
    }
    return NULL;
}

static void print_repacked(struct ggml_context *ctx, struct ggml_tensor *op, double ours) {
    void *buffer = NULL;
    void (*release)(void *) = NULL;
    struct ggml_tensor *other =
        op->op == GGML_OP_MUL_MAT_ID && ggml_is_quantized(op->src[0]->type) ? repacked(ctx, op, &buffer) : NULL;
    if (other == NULL || !runner_symbol(reference.base, "ggml_backend_buffer_free", &release)) {
        return;
    }
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 64, false);
    ggml_build_forward_expand(graph, other);
    const double theirs = best_us(&reference, graph);
    printf("  repacked %.1f %.2f", theirs, theirs / ours);
    release(buffer);
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

static void measure(int i, const struct shape *s, double *alone_us) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t) 3 << 30});
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 256, false);
    const int64_t n_layers = cases[i].has_keys && s->n_seq < LAYERS ? LAYERS / s->n_seq : 1;
    struct ggml_tensor *out = NULL;
    for (int64_t j = 0; j < n_layers; j++) {
        out = cases[i].build(ctx, s);
        ggml_build_forward_expand(graph, out);
    }
    const int64_t n = ggml_nelements(out);
    const double ours = best_us(&berth, graph) / (double) n_layers;
    char name[64];
    snprintf(name, sizeof name, "%s_%s", cases[i].name, ggml_type_name(s->type));
    *alone_us = s->n_seq == 1 ? ours : *alone_us;
    printf("%-22s %3lld %5lld %4lld %10.1f %5.2f", name, (long long) s->n_seq, (long long) s->n_kv, (long long) s->d, ours,
        ours / (double) s->n_seq / *alone_us);
    if (has_reference) {
        float *answer = malloc((size_t) n * sizeof *answer);
        memcpy(answer, out->data, (size_t) n * sizeof *answer);
        const double theirs = best_us(&reference, graph) / (double) n_layers;
        const double err = nmse(n, answer, out->data);
        const bool is_right = err <= (cases[i].has_keys ? 2e-2 : 1e-4); // the reference sums f16 values in f16
        printf(" %10.1f %6.2f %9.1e%s", theirs, theirs / ours, err, is_right ? "" : " WRONG");
        n_failed += !is_right;
        print_repacked(ctx, out, ours);
        free(answer);
    }
    printf("\n");
    ggml_free(ctx);
}

static bool wanted(const char *name, enum ggml_type type) {
    for (int i = 0; i < opt.n_names; i++) {
        const size_t n = strlen(name);
        const char *given = opt.names[i];
        if (strncasecmp(given, name, n) == 0 &&
            (given[n] == '\0' || (given[n] == '_' && strcasecmp(given + n + 1, ggml_type_name(type)) == 0))) {
            return true;
        }
    }
    return opt.n_names == 0;
}

static void case_run(int i, enum ggml_type type) {
    const struct list once = {1, {0}};
    const struct list *keys = cases[i].has_keys ? &opt.n_kv : &once, *d = cases[i].has_keys ? &opt.d : &once;
    for (int ik = 0; ik < keys->n; ik++) {
        for (int id = 0; id < d->n; id++) {
            double alone_us = NAN;
            for (int ib = 0; ib < opt.b.n; ib++) {
                measure(i, &(struct shape){type, opt.b.at[ib], keys->at[ik], d->at[id]}, &alone_us);
            }
        }
    }
}

static bool list_read(const char *text, struct list *list) {
    list->n = 0;
    for (char *at = (char *) (uintptr_t) text; *at != '\0' && list->n < LIST; at += *at == ',') {
        list->at[list->n] = strtoll(at, &at, 10);
        if (list->at[list->n++] <= 0) {
            return false;
        }
    }
    return list->n > 0;
}

static bool options(int argc, char **argv) {
    int c;
    bool ok = true;
    while ((c = getopt(argc, argv, "t:s:b:k:d:")) != -1) {
        switch (c) {
            case 't': opt.n_threads = atoi(optarg); break;
            case 's': opt.seconds = atof(optarg); break;
            case 'b': ok = list_read(optarg, &opt.b) && ok; break;
            case 'k': ok = list_read(optarg, &opt.n_kv) && ok; break;
            case 'd': ok = list_read(optarg, &opt.d) && ok; break;
            default: return false;
        }
    }
    opt.names = argv + optind;
    opt.n_names = argc - optind;
    return ok && opt.n_threads > 0;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!options(argc, argv)) {
        fprintf(stderr, "usage: bench-batch [-t threads] [-s seconds] [-b B,...] [-k keys,...] [-d elements,...] [name ...]\n");
        return 2;
    }
    berth = runner_berth();
    has_reference = runner_reference(&reference);
    ggml_cpu_init();
    printf(
        "kernels %s, reference %s, %d threads\n", berth_cpu_isa(), has_reference ? reference.name : oracle_why(), opt.n_threads);
    printf("%-22s %3s %5s %4s %10s %5s %10s %6s %9s\n", "", "B", "keys", "d", "berth us", "each", "plain us", "ratio", "nmse");
    for (int i = 0; i < (int) (sizeof cases / sizeof cases[0]); i++) {
        for (int j = 0; cases[i].types[j] != NONE; j++) {
            if (wanted(cases[i].name, cases[i].types[j])) {
                case_run(i, cases[i].types[j]);
            }
        }
    }
    return n_failed != 0;
}
