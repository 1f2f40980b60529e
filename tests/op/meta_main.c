// SPDX-License-Identifier: MIT
// meta_main.c: runs the cases of the op suite on composite devices of 2, 3 and 4 CPUs. Results must equal those of a single CPU
// within the suite's tolerances. Every input is split along one axis, partial or mirrored: in all combinations with --all,
// otherwise in three random combinations. One run per device count uses random split states (support/meta_split.h). No case may
// fail. Usage: op-meta [-v] [-k OP] [--part I/N] [--seed N] [--all]. Exit status: 0 all passed, 1 some failed.

#include "runner.h"

#include "support/meta_split.h"

#include <math.h>

#define MAX_INPUTS 16
#define N_CHOICES 5 // ways to split an input: four axes; 4: partial if the input is f32, otherwise mirrored

// How state_of splits tensors. If is_random, `random` decides. Otherwise input k is split in the way choices[k] (N_CHOICES), and
// all other tensors are mirrored.
struct splits {
    struct meta_split random; // also has the number of devices, random.n
    bool is_random;
    int choices[MAX_INPUTS];
};

static struct {
    bool all;
    ggml_backend_t cpu, meta[3];
    struct splits splits[3];
    int64_t n_runs, n_gathered; // n_gathered: runs in which an op cannot be split, so that it got complete sources
} run;

static struct ggml_backend_meta_split_state state_of(const struct ggml_tensor *t, void *user) {
    struct splits *s = user;
    struct meta_split split = s->random;
    int k = -1;
    split.may_be_sum = true;
    split.only_axis = -1;
    const bool is_input = sscanf(t->name, "input %d", &k) == 1 && k < MAX_INPUTS;
    if (s->is_random) {
        return meta_split_state(t, &split);
    }
    split.only_axis = is_input ? s->choices[k] : N_CHOICES; // N_CHOICES: mirrored
    split.is_plain = true;
    return meta_split_state(t, &split);
}

// ---- one run ----

// Inputs get their own memory and content. Computed tensors get memory from the graph allocator.
static ggml_backend_buffer_t place(
    struct op_suite *s, const struct op_case *c, ggml_backend_buffer_type_t buft, ggml_gallocr_t galloc) {
    int n_inputs = 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(c->ctx); t != NULL; t = ggml_get_next_tensor(c->ctx, t)) {
        t->buffer = NULL;
        // ggml_backend_alloc_ctx_tensors_from_buft skips tensors whose data is not NULL. The graph allocator places these later.
        t->data = t->op != GGML_OP_NONE && t->view_src == NULL ? t : NULL;
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
    struct ggml_tensor host = *c->t;
    char *bytes = malloc(ggml_nbytes(root) + 1);
    ggml_backend_tensor_get(root, bytes, 0, ggml_nbytes(root));
    host.data = bytes + ((uintptr_t) c->t->data - (uintptr_t) root->data);
    double *v = op_values(&host);
    free(bytes);
    return v;
}

// Returns true if the op must write every element of its result. The result is then filled with 0xFF (NaN) before the op runs, so
// that an element that was not written is found.
static bool is_all_written(const struct op_case *c) {
    return c->t->op != GGML_OP_SET_ROWS && c->t->op != GGML_OP_CPY && c->t->view_src == NULL;
}

static double *meta_values(struct op_suite *s, const struct op_case *c, ggml_backend_t meta) {
    double *v = NULL;
    ggml_backend_buffer_type_t buft = ggml_backend_get_default_buffer_type(meta);
    ggml_gallocr_t galloc = ggml_gallocr_new(buft);
    op_case_restore(s, c);
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

static void run_one(
    struct op_suite *s, struct op_tally *tally, const struct op_case *c, const double *want, int i, int n_inputs) {
    struct berth_meta_stats before, after;
    char what[400], text[160];
    berth_meta_stats(run.meta[i], &before);
    double *got = meta_values(s, c, run.meta[i]);
    const double error = got != NULL ? op_nmse(got, want, ggml_nelements(c->t)) : INFINITY;
    berth_meta_stats(run.meta[i], &after);
    run.n_runs++;
    run.n_gathered += after.n_gathered > before.n_gathered;
    split_text(&run.splits[i], n_inputs, text, sizeof text);
    snprintf(what, sizeof what, "%s (%s)", c->what, text);
    const bool ok = error <= c->max_nmse;
    const struct op_case named = {.op = c->op, .what = what};
    op_report(s, ok ? "pass" : "FAIL", &named, got == NULL ? berth_last_error() : "nmse", error);
    tally->n_passed += ok;
    tally->n_failed += !ok;
    tally->worst = ok && error > tally->worst ? error : tally->worst;
    free(got);
}

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

static uint64_t hash_of(const char *text) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (; *text != '\0'; text++) {
        hash = (hash ^ (unsigned char) *text) * 0x100000001B3u;
    }
    return hash;
}

static void compare(struct op_suite *s, struct op_tally *tally, const struct op_case *c) {
    double *want = run.cpu->iface.graph_compute(run.cpu, c->graph) == GGML_STATUS_SUCCESS ? op_values(c->t) : NULL;
    op_case_restore(s, c);
    const int n_inputs = count_inputs(c);
    struct check_rng r = check_rng_new(hash_of(c->what));
    int64_t n_all = 1;
    for (int k = 0; k < n_inputs && k < 4; k++) {
        n_all *= N_CHOICES;
    }
    for (int i = 0; i < 3 && want != NULL && n_inputs > 0; i++) {
        const int64_t n_runs = run.all ? n_all : 3;
        for (int64_t k = 0; k < n_runs; k++) {
            choose(&run.splits[i], n_inputs, run.all ? k : (int64_t) check_rng_below(&r, (uint64_t) n_all));
            run_one(s, tally, c, want, i, n_inputs);
        }
        run.splits[i].is_random = true;
        run.splits[i].random.seed = check_rng_next(&r);
        run_one(s, tally, c, want, i, n_inputs);
    }
    free(want);
}

// ---- the run ----

static bool parse(struct op_suite *s, int argc, char **argv) {
    bool ok = true;
    for (int i = 1; i < argc && ok; i++) {
        const bool is_all = strcmp(argv[i], "--all") == 0;
        run.all = run.all || is_all;
        ok = is_all || op_suite_option(s, argc, argv, &i);
    }
    return ok;
}

static bool devices_new(void) {
    ggml_backend_dev_t cpu = ggml_backend_get_device(run.cpu), devs[] = {cpu, cpu, cpu, cpu};
    bool ok = true;
    for (int i = 0; i < 3; i++) {
        run.splits[i].random = (struct meta_split){.n = i + 2, .only_axis = -1};
        ggml_backend_dev_t dev = ggml_backend_meta_device(devs, (size_t) i + 2, state_of, &run.splits[i]);
        run.meta[i] = dev != NULL ? ggml_backend_dev_init(dev, NULL) : NULL;
        ok = ok && run.meta[i] != NULL;
        for (int j = 0; ok && j < i + 2; j++) {
            ggml_backend_cpu_set_n_threads(ggml_backend_meta_simple_backend(run.meta[i], (size_t) j), 1);
        }
    }
    return ok;
}

int main(int argc, char **argv) {
    static struct op_suite s = {.n_parts = 1, .compare = compare};
    if (!parse(&s, argc, argv)) {
        fprintf(stderr, "Usage: op-meta [-v] [-k OP] [--part I/N] [--seed N] [--all]\n");
        return 2;
    }
    s.arena = malloc(OP_ARENA_SIZE);
    s.saved = malloc(OP_ARENA_SIZE);
    run.cpu = ggml_backend_cpu_init();
    if (s.arena == NULL || s.saved == NULL || run.cpu == NULL || !devices_new()) {
        printf("out of memory\n");
        return 1;
    }
    ggml_backend_cpu_set_n_threads(run.cpu, 1);
    check_quiet();
    op_suite_run(&s);
    int n_failed = 0;
    for (int i = 0; i < s.n_ops; i++) {
        const struct op_tally *t = &s.tallies[i];
        printf("%-24s %d passed, %d failed (worst nmse %.2g)\n", t->op, t->n_passed, t->n_failed, t->worst);
        n_failed += t->n_failed;
    }
    printf("%lld runs, %lld of them with unsplit sources, %d failed\n", (long long) run.n_runs, (long long) run.n_gathered,
        n_failed);
    for (int i = 0; i < 3; i++) {
        ggml_backend_free(run.meta[i]);
    }
    ggml_backend_free(run.cpu);
    free(s.saved);
    free(s.arena);
    return run.n_runs == 0 || n_failed > 0;
}
