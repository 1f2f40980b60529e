// SPDX-License-Identifier: MIT
// main.c: runs the op suite and prints a line an op. Usage: op-suite [-v] [-k OP] [--part I/N] [--spread A,B].
// --part 3/8 runs the third of every eight cases of each op. --spread tells, instead of comparing, how far the reference's CPU
// variants A and B are from each other, and Berth from A: the figures behind the tolerances. Without the reference a case still
// runs on one thread, on several and with the portable kernels, which must agree. Exit: 0 all passed, 1 some failed.

#include "op.h"
#include "oracle_link.h"
#include "spread.h"

#include "berth-cpu.h"
#include "berth.h"
#include "ggml-backend-impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPS 256
#define ARENA_SIZE (64u << 20)
#define N_THREADS 4

struct tally {
    const char *op;
    int n_cases; // of all parts
    int n_passed, n_failed, n_skipped;
    int n_plain;   // of the passed ones: compared with a loop in double precision, since the reference has no result
    int n_refused; // of the passed ones: neither the reference nor Berth does it, and Berth says so
    int n_dense;   // of the passed ones: the reference takes a source for dense that is not; Berth follows its strides
    int n_odd;     // built in another layout, of all parts
    double worst;  // error of the passed ones
};

struct op_suite {
    struct tally tallies[MAX_OPS];
    double *base;   // the reference's result of the last case as it was built, for its other layouts; NULL: none
    int64_t n_base; // elements of it
    int n_ops;
    const char *only;
    bool verbose;
    int part, n_parts;
    char *arena, *saved; // contexts are made in arena
    ggml_backend_t berth;
    struct op_oracle reference;
    bool has_reference;
    struct op_spread *spread; // NULL: compare
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

// ---- a case ----

struct op_case {
    const char *op, *what;
    double max_nmse;
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *t;
    enum op_layout layout;
    op_plain_t plain;
    double plain_nmse;
    size_t used; // bytes of the arena
};

static struct tally *tally_of(struct op_suite *s, const char *op) {
    for (int i = 0; i < s->n_ops; i++) {
        if (strcmp(s->tallies[i].op, op) == 0) {
            return &s->tallies[i];
        }
    }
    s->tallies[s->n_ops].op = op;
    return &s->tallies[s->n_ops++];
}

static void report(const struct op_suite *s, const char *verdict, const struct op_case *c, const char *why, double error) {
    if (s->verbose || strcmp(verdict, "FAIL") == 0) {
        printf("%s %s %s: %s %g\n", verdict, c->op, c->what, why, error);
        fflush(stdout);
    }
}

// Every tensor of the case gets memory of its own, of its size to the byte, so that a sanitizer sees what reaches beyond it.
static bool blocks_take(struct ggml_context *ctx) {
    bool ok = true;
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (t->view_src != NULL) {
            t->data = (char *) t->view_src->data + t->view_offs;
            continue;
        }
        void *block = malloc(ggml_nbytes(t));
        if (block != NULL && t->data != NULL) {
            memcpy(block, t->data, ggml_nbytes(t));
        }
        ok      = ok && (block != NULL || ggml_nbytes(t) == 0);
        t->data = block;
    }
    return ok;
}

static void blocks_give_back(struct ggml_context *ctx) {
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (t->view_src == NULL) {
            free(t->data);
        }
    }
}

// Computes with the inputs as they were; the result's values, NULL if it failed.
static double *berth_values(struct op_suite *s, const struct op_case *c, int n_threads, bool portable) {
    memcpy(s->arena, s->saved, c->used);
    ggml_backend_cpu_set_n_threads(s->berth, n_threads);
    ggml_backend_cpu_set_use_ref(s->berth, portable);
    double *v =
        blocks_take(c->ctx) && s->berth->iface.graph_compute(s->berth, c->graph) == GGML_STATUS_SUCCESS ? op_values(c->t) : NULL;
    blocks_give_back(c->ctx);
    return v;
}

static double *oracle_values(struct op_suite *s, const struct op_case *c, struct op_oracle *o, enum op_outcome *outcome) {
    memcpy(s->arena, s->saved, c->used);
    *outcome = op_oracle_compute(o, c->graph, c->t);
    return *outcome == OP_DONE ? op_values(c->t) : NULL;
}

static double *plain_values(struct op_suite *s, const struct op_case *c) {
    memcpy(s->arena, s->saved, c->used);
    double *v = malloc((size_t) ggml_nelements(c->t) * sizeof *v + 1);
    c->plain(c->t, v);
    for (int64_t i = 0; i < ggml_nelements(c->t); i++) {
        v[i] = op_rounded(c->t->type, v[i]);
    }
    return v;
}

static const char *why_no_reference(const struct op_suite *s, enum op_outcome outcome) {
    return !s->has_reference           ? "no reference"
           : outcome == OP_UNSUPPORTED ? "the reference's supports_op says no"
                                       : "the reference says it does it, and ends its process";
}

// A source without elements for a result that has some is refused, where the reference computes with what lies behind it or with
// nothing; but for these ops, which have an answer.
static bool may_refuse(const struct op_case *c) {
    static const char *const answer[] = {"SUM", "SUM_ROWS", "MEAN", "ARGMAX", "COUNT_EQUAL", "SET_ROWS", "CONCAT", "ACC", "SET",
        "MUL_MAT", "OUT_PROD", "PAD", "REPEAT_BACK", "GET_ROWS_BACK"};
    for (size_t i = 0; i < sizeof answer / sizeof answer[0]; i++) {
        if (strcmp(c->op, answer[i]) == 0) {
            return false;
        }
    }
    return c->layout >= OP_EMPTY_0 && ggml_nelements(c->t) > 0;
}

// The same numbers in another layout give the same result: so who is right where the reference's differs?
static bool is_as_built(const struct op_suite *s, const struct op_case *c, const double *is, double *error) {
    if (c->layout == OP_AS_BUILT || c->layout >= OP_EMPTY_0 || s->base == NULL || s->n_base != ggml_nelements(c->t)) {
        return false;
    }
    *error = op_nmse(is, s->base, s->n_base);
    return *error <= c->max_nmse;
}

// Compares one thread with the reference, and several threads and the portable kernels with one thread.
static void case_compare(struct op_suite *s, struct tally *tally, const struct op_case *c) {
    const int64_t n         = ggml_nelements(c->t);
    const bool does         = s->berth->device->iface.supports_op(s->berth->device, c->t);
    enum op_outcome outcome = OP_UNSUPPORTED;
    double *one             = berth_values(s, c, 1, false);
    double *many            = berth_values(s, c, N_THREADS, false);
    double *portable        = berth_values(s, c, 2, true);
    double *want            = s->has_reference ? oracle_values(s, c, &s->reference, &outcome) : NULL;
    double *plain           = does && c->plain != NULL ? plain_values(s, c) : NULL;
    const bool none         = one == NULL && many == NULL && portable == NULL;
    const bool refused      = none && ((want == NULL && s->has_reference && !does) || may_refuse(c));
    bool as_built           = false;
    const char *why         = NULL;
    double error            = 0;
    if (refused) {
    } else if (!does && want == NULL) {
        why = !none ? "computed what it does not support" : NULL;
    } else if (!does) {
        why = "refused, and the reference computes it";
    } else if (one == NULL || many == NULL || portable == NULL) {
        why = want != NULL || c->layout == OP_AS_BUILT ? "compute failed" : NULL; // else neither computes it
    } else if (memcmp(one, many, (size_t) n * sizeof *one) != 0 && op_nmse(many, one, n) != 0) {
        why = "threads differ", error = op_nmse(many, one, n);
    } else if (!((error = op_nmse(portable, one, n)) <= (c->max_nmse > OP_F32 ? c->max_nmse : OP_F32))) {
        why = "portable differs";
    } else if (want != NULL && !((error = op_nmse(one, want, n)) <= c->max_nmse)) {
        as_built = is_as_built(s, c, one, &error);
        why      = as_built ? NULL : "nmse";
    } else if (plain != NULL && !((error = op_nmse(one, plain, n)) <= c->plain_nmse)) {
        why = "nmse to double precision";
    } else if (want == NULL && plain == NULL) {
        as_built = is_as_built(s, c, one, &error);
    }
    if (why != NULL) {
        tally->n_failed++;
        report(s, "FAIL", c, why, error);
    } else if (want == NULL && plain == NULL && !refused && !as_built) {
        tally->n_skipped += c->layout == OP_AS_BUILT;
        report(s, "skip", c, why_no_reference(s, outcome), 0);
    } else {
        tally->n_passed++;
        tally->n_plain += want == NULL && plain != NULL;
        tally->n_refused += refused;
        tally->n_dense += as_built && want != NULL;
        error        = want != NULL && !refused && !as_built ? op_nmse(one, want, n) : error;
        tally->worst = error > tally->worst ? error : tally->worst;
        report(s, "pass", c,
            refused        ? "refused by both"
            : as_built     ? "nmse to the reference's, as built"
            : want == NULL ? "nmse to double precision"
                           : "nmse",
            error);
    }
    if (c->layout == OP_AS_BUILT) {
        free(s->base);
        s->base   = want;
        s->n_base = n;
        want      = NULL;
    }
    free(one), free(many), free(portable), free(want), free(plain);
}

static void case_spread(struct op_suite *s, struct tally *tally, const struct op_case *c) {
    enum op_outcome outcome;
    double *one = berth_values(s, c, 1, false);
    double *a   = oracle_values(s, c, &s->reference, &outcome);
    double *b   = oracle_values(s, c, &s->spread->other, &outcome);
    if (one != NULL && a != NULL && b != NULL) {
        const int64_t n = ggml_nelements(c->t);
        op_spread_add(s->spread, c->op, c->t, op_nmse(b, a, n), op_nmse(one, a, n), op_nmse(one, b, n));
        tally->n_passed++;
    }
    free(one), free(a), free(b);
}

static const char *const layout_names[OP_N_LAYOUTS] = {"as built", "strided", "with holes", "swapped 0 1", "swapped 0 2",
    "swapped 0 3", "swapped 1 2", "swapped 1 3", "swapped 2 3", "empty 0", "empty 1", "empty 2", "empty 3"};

// One case as b says it is to be built. Returns how many inputs it has.
static int case_run(struct op_suite *s, struct tally *tally, const char *op, const char *what, double max_nmse, op_build_t build,
    const void *arg, struct op_build b) {
    const bool is_odd = b.layout != OP_AS_BUILT;
    b.ctx             = ggml_init((struct ggml_init_params){.mem_size = ARENA_SIZE, .mem_buffer = s->arena});
    struct op_case c  = {.op = op, .what = what, .max_nmse = max_nmse, .ctx = b.ctx, .layout = b.layout};
    c.t               = build(&b, arg);
    c.graph           = ggml_new_graph(b.ctx);
    c.used            = ggml_used_mem(b.ctx);
    c.plain           = is_odd ? NULL : b.plain;
    c.plain_nmse      = b.plain_nmse > 0 ? b.plain_nmse : max_nmse;
    if (b.skip == NULL && berth_is_poison(c.t)) {
        b.skip = "the constructor says no";
    }
    if (b.skip != NULL && is_odd) {
        report(s, "skip", &c, b.skip, 0); // conformance holds the constructors to the reference's
    } else if (b.skip != NULL) {
        tally->n_skipped++;
        report(s, "skip", &c, b.skip, 0);
    } else {
        if (c.t->op != GGML_OP_SET_ROWS && c.t->op != GGML_OP_CPY && c.t->view_src == NULL && c.t->data != NULL) {
            memset(c.t->data, 0xFF, ggml_nbytes(c.t)); // what is not written shows
        }
        ggml_build_forward_expand(c.graph, c.t);
        memcpy(s->saved, s->arena, c.used);
        (s->spread != NULL ? case_spread : case_compare)(s, tally, &c);
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
    if (s->spread != NULL || (i_case & (i_case - 1)) != 0) { // cases 0, 1, 2, 4, 8, ...
        return;
    }
    char text[256];
    for (int which = n_inputs > 1 ? -1 : 0; which < n_inputs; which++) {
        for (int layout = OP_AS_BUILT + 1; layout < OP_N_LAYOUTS; layout++) {
            if (tally->n_odd++ % s->n_parts != s->part) {
                continue;
            }
            struct op_build odd = b;
            odd.layout          = (enum op_layout) layout;
            odd.which           = which;
            snprintf(text, sizeof text, "%s, input %d %s", what, which, layout_names[layout]);
            case_run(s, tally, op, text, max_nmse, build, arg, odd);
        }
    }
}

// ---- the run ----

static void log_drop(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level, (void) text, (void) user_data;
}

static bool parse(struct op_suite *s, struct op_spread *spread, int argc, char **argv) {
    static char first[64];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-v") == 0) {
            s->verbose = true;
        } else if (strcmp(argv[i], "-k") == 0 && i + 1 < argc) {
            s->only = argv[++i];
        } else if (strcmp(argv[i], "--part") == 0 && i + 1 < argc) {
            if (sscanf(argv[++i], "%d/%d", &s->part, &s->n_parts) != 2 || s->part < 1 || s->part > s->n_parts) {
                return false;
            }
            s->part--;
        } else if (strcmp(argv[i], "--spread") == 0 && i + 1 < argc && strchr(argv[i + 1], ',') != NULL) {
            const char *comma = strchr(argv[++i], ',');
            snprintf(first, sizeof first, "%.*s", (int) (comma - argv[i]), argv[i]);
            s->reference.wish  = first;
            spread->other.wish = comma + 1;
            s->spread          = spread;
        } else {
            return false;
        }
    }
    return true;
}

static struct tally print_tallies(const struct op_suite *s) {
    struct tally all = {.op = "all"};
    for (int i = 0; i < s->n_ops; i++) {
        const struct tally *t = &s->tallies[i];
        printf("%-24s %d passed, %d failed, %d skipped (worst nmse %.2g)\n", t->op, t->n_passed, t->n_failed, t->n_skipped,
            t->worst);
        all.n_passed += t->n_passed, all.n_failed += t->n_failed, all.n_skipped += t->n_skipped;
        all.n_plain += t->n_plain, all.n_refused += t->n_refused, all.n_dense += t->n_dense;
    }
    printf(
        "%-24s %d passed, %d failed, %d skipped (of the passed, %d were compared with double precision alone, %d are refused by "
        "the reference and by Berth, and in %d the reference takes a source for dense)\n",
        all.op, all.n_passed, all.n_failed, all.n_skipped, all.n_plain, all.n_refused, all.n_dense);
    return all;
}

// Ops that Berth computes by their samples, and that no case asks for. Views compute nothing.
static int print_untried(struct op_suite *s) {
    int n                    = 0;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){ARENA_SIZE, s->arena, true});
    for (int op = GGML_OP_NONE + 1; op < GGML_OP_COUNT; op++) {
        for (int sub = 0; sub < (op == GGML_OP_UNARY ? GGML_UNARY_OP_COUNT : 1); sub++) {
            const struct ggml_tensor *t = berth_op_sample(ctx, (enum ggml_op) op, sub, GGML_TYPE_F32, GGML_TYPE_F32);
            const char *name            = op == GGML_OP_UNARY ? ggml_op_desc(t) : ggml_op_name((enum ggml_op) op);
            if (t != NULL && !berth_is_poison(t) && t->view_src == NULL &&
                s->berth->device->iface.supports_op(s->berth->device, t) && tally_of(s, name)->n_cases == 0) {
                printf("FAIL %s: no case\n", name);
                n++;
            }
        }
    }
    ggml_free(ctx);
    return n;
}

int main(int argc, char **argv) {
    static struct op_spread spread;
    struct op_suite s = {.n_parts = 1, .reference = {.wish = getenv("BERTH_REFERENCE_CPU")}};
    if (!parse(&s, &spread, argc, argv)) {
        fprintf(stderr, "Usage: op-suite [-v] [-k OP] [--part I/N] [--spread VARIANT,VARIANT]\n");
        return 2;
    }
    setenv("BERTH_CPU_OVERSUBSCRIBE", "1", 0); // several threads, whatever the machine has
    s.arena = op_arena_new(ARENA_SIZE);
    s.saved = malloc(ARENA_SIZE);
    s.berth = ggml_backend_cpu_init();
    if (s.arena == NULL || s.saved == NULL || s.berth == NULL) {
        printf("out of memory\n");
        return 1;
    }
    if (!s.verbose) {
        ggml_log_set(log_drop, NULL);
    }
    s.has_reference = op_oracle_open(&s.reference);
    if (s.has_reference) {
        printf("reference: %s\n", s.reference.name);
    }
    if (s.spread != NULL && (!s.has_reference || !op_oracle_open(&s.spread->other))) {
        return 1;
    }
    printf("kernels: %s\n", berth_cpu_isa());
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        families[i](&s);
    }
    int n_failed = 0;
    if (s.spread != NULL) {
        op_spread_print(s.spread, s.reference.name);
        op_oracle_close(&s.spread->other);
    } else {
        n_failed = print_tallies(&s).n_failed + (s.only == NULL ? print_untried(&s) : 0);
    }
    op_oracle_close(&s.reference);
    s.berth->iface.free(s.berth);
    free(s.saved);
    free(s.base);
    return n_failed > 0;
}
