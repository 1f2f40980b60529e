// SPDX-License-Identifier: MIT
// meta_main.c: the op suite's cases on devices made of 2, 3 and 4 CPUs, against one CPU, within the suite's tolerances. Every
// input is split along each axis that it has and mirrored, in all combinations with --all, in some of them otherwise, and some
// runs have segments that repeat, devices that get nothing, and sums over devices. What the reference accepts is among them; here
// none may fail. Usage: op-meta [-v] [-k OP] [--part I/N] [--all]. Exit: 0 all passed, 1 some failed.

#include "op.h"

#include "support/meta_split.h"

#include <math.h>
#include <stdarg.h>

#define ARENA_SIZE (64u << 20)
#define MAX_OPS 256
#define MAX_INPUTS 16
#define N_CHOICES 5 // four axes, mirrored

struct tally {
    const char *op;
    int n_cases, n_odd, n_passed, n_failed;
    int64_t n_runs, n_whole; // of the runs: had an op that got whole sources
    double worst;
};

// What the callback says: of input k its choice, of others mirrored.
struct splits {
    struct meta_split random; // its n is the number of devices
    bool is_random;
    int choices[MAX_INPUTS];
};

struct op_suite {
    struct tally tallies[MAX_OPS];
    int n_ops, part, n_parts;
    const char *only;
    bool verbose, all;
    char *arena, *saved;
    ggml_backend_t cpu;
    ggml_backend_t meta[3];
    struct splits splits[3];
};

static void (*const families[])(struct op_suite *) = {op_suite_eltwise, op_suite_copy, op_suite_matmul, op_suite_norm,
    op_suite_rows, op_suite_conv, op_suite_pool, op_suite_pad, op_suite_sort, op_suite_repeat, op_suite_reduce, op_suite_rope,
    op_suite_attn, op_suite_moe, op_suite_ssm, op_suite_recurrent, op_suite_glu, op_suite_train};

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

static struct tally *tally_of(struct op_suite *s, const char *op) {
    for (int i = 0; i < s->n_ops; i++) {
        if (strcmp(s->tallies[i].op, op) == 0) {
            return &s->tallies[i];
        }
    }
    s->tallies[s->n_ops].op = op;
    return &s->tallies[s->n_ops++];
}

static struct ggml_backend_meta_split_state state_of(const struct ggml_tensor *t, void *user) {
    struct splits *s      = user;
    struct meta_split one = s->random;
    int k                 = -1;
    one.may_be_sum        = true;
    one.only_axis         = -1;
    const bool is_input   = sscanf(t->name, "input %d", &k) == 1 && k < MAX_INPUTS;
    if (s->is_random) {
        return meta_split_state(t, &one);
    }
    one.only_axis = is_input ? s->choices[k] : N_CHOICES;
    one.is_plain  = true;
    return meta_split_state(t, &one);
}

struct op_case {
    const char *op, *what;
    double max_nmse;
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *t;
    size_t used; // bytes of the arena
};

// ---- one run ----

// Inputs get memory of their own, with their bytes; what is computed gets a graph's.
static ggml_backend_buffer_t place(
    struct op_suite *s, const struct op_case *c, ggml_backend_buffer_type_t buft, ggml_gallocr_t galloc) {
    int n_inputs = 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(c->ctx); t != NULL; t = ggml_get_next_tensor(c->ctx, t)) {
        t->buffer = NULL;
        t->data   = t->op != GGML_OP_NONE && t->view_src == NULL ? t : NULL; // not to be given memory yet
        if (t->op == GGML_OP_NONE && t->view_src == NULL) {
            ggml_format_name(t, "input %d", n_inputs++);
        }
    }
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(c->ctx, buft);
    for (struct ggml_tensor *t = ggml_get_first_tensor(c->ctx); t != NULL; t = ggml_get_next_tensor(c->ctx, t)) {
        if (t->op != GGML_OP_NONE && t->view_src == NULL) {
            t->data = NULL;
        }
        const struct ggml_tensor *before = (const struct ggml_tensor *) (const void *) (s->saved + ((char *) t - s->arena));
        if (buffer != NULL && t->op == GGML_OP_NONE && t->view_src == NULL && ggml_nbytes(t) > 0) {
            ggml_backend_tensor_set(t, s->saved + ((char *) before->data - s->arena), 0, ggml_nbytes(t));
        }
    }
    if ((buffer == NULL && n_inputs > 0) || !ggml_gallocr_alloc_graph(galloc, c->graph)) {
        ggml_backend_buffer_free(buffer);
        return NULL;
    }
    return buffer != NULL ? buffer : ggml_backend_buft_alloc_buffer(buft, 0);
}

static double *read_values(const struct op_case *c) {
    const struct ggml_tensor *root = c->t->view_src != NULL ? c->t->view_src : c->t;
    struct ggml_tensor host        = *c->t;
    char *bytes                    = malloc(ggml_nbytes(root) + 1);
    ggml_backend_tensor_get(root, bytes, 0, ggml_nbytes(root));
    host.data = bytes + ((uintptr_t) c->t->data - (uintptr_t) root->data);
    double *v = op_values(&host);
    free(bytes);
    return v;
}

// What is not written shows.
static bool is_all_written(const struct op_case *c) {
    return c->t->op != GGML_OP_SET_ROWS && c->t->op != GGML_OP_CPY && c->t->view_src == NULL;
}

static double *meta_values(struct op_suite *s, const struct op_case *c, ggml_backend_t meta) {
    double *v                       = NULL;
    ggml_backend_buffer_type_t buft = ggml_backend_get_default_buffer_type(meta);
    ggml_gallocr_t galloc           = ggml_gallocr_new(buft);
    memcpy(s->arena, s->saved, c->used);
    ggml_backend_buffer_t buffer = place(s, c, buft, galloc);
    if (buffer != NULL && is_all_written(c)) {
        ggml_backend_tensor_memset(c->t, 0xFF, 0, ggml_nbytes(c->t));
    }
    if (buffer != NULL && ggml_backend_graph_compute(meta, c->graph) == GGML_STATUS_SUCCESS) {
        v = read_values(c);
    }
    ggml_gallocr_free(galloc);
    ggml_backend_buffer_free(buffer);
    return v;
}

static void split_text(const struct splits *s, int n_inputs, char *text, size_t size) {
    size_t at = (size_t) snprintf(text, size, "%d devices, %s", s->random.n, s->is_random ? "random" : "axes");
    for (int k = 0; k < n_inputs && k < MAX_INPUTS && !s->is_random && at < size; k++) {
        at += (size_t) snprintf(text + at, size - at, " %d", s->choices[k]);
    }
}

static void run_one(struct op_suite *s, struct tally *tally, const struct op_case *c, const double *want, int i, int n_inputs) {
    struct berth_meta_stats before, after;
    char text[160];
    berth_meta_stats(s->meta[i], &before);
    double *is         = meta_values(s, c, s->meta[i]);
    const double error = is != NULL ? op_nmse(is, want, ggml_nelements(c->t)) : INFINITY;
    berth_meta_stats(s->meta[i], &after);
    tally->n_runs++;
    tally->n_whole += after.n_whole > before.n_whole;
    split_text(&s->splits[i], n_inputs, text, sizeof text);
    if (!(error <= c->max_nmse)) {
        tally->n_failed++;
        printf("FAIL %s %s (%s): %s %g\n", c->op, c->what, text, is == NULL ? berth_last_error() : "nmse", error);
        fflush(stdout);
    } else {
        tally->n_passed++;
        tally->worst = error > tally->worst ? error : tally->worst;
        if (s->verbose) {
            printf("pass %s %s (%s): %g\n", c->op, c->what, text, error);
        }
    }
    free(is);
}

// The i-th of all combinations.
static void choose(struct splits *s, int n_inputs, int64_t i) {
    s->is_random = false;
    for (int k = 0; k < MAX_INPUTS; k++) {
        s->choices[k] = k < n_inputs ? (int) (i % N_CHOICES) : N_CHOICES - 1;
        i /= k < n_inputs ? N_CHOICES : 1;
    }
}

static int count_inputs(const struct op_case *c) {
    int n = 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(c->ctx); t != NULL; t = ggml_get_next_tensor(c->ctx, t)) {
        n += t->op == GGML_OP_NONE && t->view_src == NULL;
    }
    return n;
}

static void case_compare(struct op_suite *s, struct tally *tally, const struct op_case *c, uint64_t seed) {
    memcpy(s->arena, s->saved, c->used);
    double *want = s->cpu->iface.graph_compute(s->cpu, c->graph) == GGML_STATUS_SUCCESS ? op_values(c->t) : NULL;
    memcpy(s->arena, s->saved, c->used);
    const int n_inputs = count_inputs(c);
    struct check_rng r = check_rng_new(seed);
    int64_t n_all      = 1;
    for (int k = 0; k < n_inputs && k < 4; k++) {
        n_all *= N_CHOICES;
    }
    for (int i = 0; i < 3 && want != NULL && n_inputs > 0; i++) {
        const int64_t n_runs = s->all ? n_all : 3;
        for (int64_t k = 0; k < n_runs; k++) {
            choose(&s->splits[i], n_inputs, s->all ? k : (int64_t) check_rng_below(&r, (uint64_t) n_all));
            run_one(s, tally, c, want, i, n_inputs);
        }
        s->splits[i].is_random   = true;
        s->splits[i].random.seed = check_rng_next(&r);
        run_one(s, tally, c, want, i, n_inputs);
    }
    free(want);
}

static int case_run(struct op_suite *s, struct tally *tally, const char *op, const char *what, double max_nmse, op_build_t build,
    const void *arg, struct op_build b) {
    const uint64_t seed = b.rng;
    b.ctx               = ggml_init((struct ggml_init_params){.mem_size = ARENA_SIZE, .mem_buffer = s->arena});
    struct op_case c    = {.op = op, .what = what, .max_nmse = max_nmse, .ctx = b.ctx};
    c.t                 = build(&b, arg);
    c.graph             = ggml_new_graph(b.ctx);
    if (b.skip == NULL && !berth_is_poison(c.t)) {
        ggml_build_forward_expand(c.graph, c.t);
        c.used = ggml_used_mem(b.ctx);
        if (is_all_written(&c) && c.t->data != NULL) {
            memset(c.t->data, 0xFF, ggml_nbytes(c.t));
        }
        memcpy(s->saved, s->arena, c.used);
        case_compare(s, tally, &c, seed);
        memcpy(s->arena, s->saved, c.used);
    }
    ggml_free(b.ctx);
    return b.n_inputs;
}

void op_case(struct op_suite *s, const char *op, const char *what, double max_nmse, op_build_t build, const void *arg) {
    if (!op_wanted(s, op)) {
        return;
    }
    struct tally *tally = tally_of(s, op);
    const int i_case    = tally->n_cases++;
    if (i_case % s->n_parts != s->part) {
        return;
    }
    const struct op_build b = {.rng = 0x9E3779B97F4A7C15u ^ (uint64_t) (i_case + 1)};
    const int n_inputs      = case_run(s, tally, op, what, max_nmse, build, arg, b);
    if ((i_case & (i_case - 1)) != 0) { // cases 0, 1, 2, 4, 8, ... in other layouts, too
        return;
    }
    char text[256];
    for (int layout = OP_AS_BUILT + 1; layout < OP_EMPTY_0 && n_inputs > 0; layout++) {
        if (tally->n_odd++ % s->n_parts != s->part) {
            continue;
        }
        struct op_build odd = b;
        odd.layout          = (enum op_layout) layout;
        odd.which           = -1;
        snprintf(text, sizeof text, "%s, layout %d", what, layout);
        case_run(s, tally, op, text, max_nmse, build, arg, odd);
    }
}

// ---- the run ----

static bool parse(struct op_suite *s, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-v") == 0) {
            s->verbose = true;
        } else if (strcmp(argv[i], "--all") == 0) {
            s->all = true;
        } else if (strcmp(argv[i], "-k") == 0 && i + 1 < argc) {
            s->only = argv[++i];
        } else if (strcmp(argv[i], "--part") == 0 && i + 1 < argc) {
            if (sscanf(argv[++i], "%d/%d", &s->part, &s->n_parts) != 2 || s->part < 1 || s->part > s->n_parts) {
                return false;
            }
            s->part--;
        } else {
            return false;
        }
    }
    return true;
}

static bool devices_new(struct op_suite *s) {
    ggml_backend_dev_t cpu = ggml_backend_get_device(s->cpu), devs[] = {cpu, cpu, cpu, cpu};
    bool ok = true;
    for (int i = 0; i < 3; i++) {
        s->splits[i].random    = (struct meta_split){.n = i + 2, .only_axis = -1};
        ggml_backend_dev_t dev = ggml_backend_meta_device(devs, (size_t) i + 2, state_of, &s->splits[i]);
        s->meta[i]             = dev != NULL ? ggml_backend_dev_init(dev, NULL) : NULL;
        ok                     = ok && s->meta[i] != NULL;
        for (int j = 0; ok && j < i + 2; j++) {
            ggml_backend_cpu_set_n_threads(ggml_backend_meta_simple_backend(s->meta[i], (size_t) j), 1);
        }
    }
    return ok;
}

int main(int argc, char **argv) {
    static struct op_suite s = {.n_parts = 1};
    if (!parse(&s, argc, argv)) {
        fprintf(stderr, "Usage: op-meta [-v] [-k OP] [--part I/N] [--all]\n");
        return 2;
    }
    s.arena = malloc(ARENA_SIZE);
    s.saved = malloc(ARENA_SIZE);
    s.cpu   = ggml_backend_cpu_init();
    if (s.arena == NULL || s.saved == NULL || s.cpu == NULL || !devices_new(&s)) {
        printf("out of memory\n");
        return 1;
    }
    ggml_backend_cpu_set_n_threads(s.cpu, 1);
    check_quiet();
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        families[i](&s);
    }
    struct tally all = {.op = "all"};
    for (int i = 0; i <= s.n_ops; i++) {
        const struct tally *t = i < s.n_ops ? &s.tallies[i] : &all;
        printf("%-24s %d passed, %d failed; %lld of %lld runs with whole sources (worst nmse %.2g)\n", t->op, t->n_passed,
            t->n_failed, (long long) t->n_whole, (long long) t->n_runs, t->worst);
        if (i < s.n_ops) {
            all.n_passed += t->n_passed, all.n_failed += t->n_failed, all.n_runs += t->n_runs, all.n_whole += t->n_whole;
        }
    }
    for (int i = 0; i < 3; i++) {
        ggml_backend_free(s.meta[i]);
    }
    ggml_backend_free(s.cpu);
    free(s.saved);
    free(s.arena);
    return s.tallies[0].n_runs == 0 || all.n_failed > 0;
}
