// SPDX-License-Identifier: MIT
// main.c: runs the op suite and prints one line per op. Usage: op-suite [-v] [-k OP] [--part I/N] [--seed N] [--spread A,B].
//   --part 3/8     runs every eighth case of each op, from the third on
//   --spread A,B   tests nothing. A and B are parts of the names of two CPU libraries of the reference, such as armv8.2_1. Prints
//                  per op how much the two libraries differ, and how much Berth differs from each of them.
// If the reference is unavailable, results with one thread, several threads and portable kernels must agree. Exit status: 0 all
// passed, 1 some failed.

#include "oracle_link.h"
#include "runner.h"
#include "spread.h"

#include "berth-cpu.h"
#include "berth.h"
#include "ggml-backend-impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_THREADS 4

struct cpu_suite {
    struct op_suite suite;
    double *base;   // the reference's result for the current case in the layout OP_AS_BUILT (op.h); NULL: none
    int64_t n_base; // elements of base
    ggml_backend_t berth;
    struct op_oracle reference;
    bool has_reference;
    struct op_spread *spread; // NULL: compare with the reference
};

// ---- a case ----

// Every tensor has its own block of exactly its size, so that a sanitizer detects accesses beyond it.
static bool blocks_alloc(struct ggml_context *ctx) {
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
        ok = ok && (block != NULL || ggml_nbytes(t) == 0);
        t->data = block;
    }
    return ok;
}

static void blocks_free(struct ggml_context *ctx) {
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (t->view_src == NULL) {
            free(t->data);
        }
    }
}

// Returns NULL if the compute failed.
static double *berth_values(struct cpu_suite *s, const struct op_case *c, int n_threads, bool portable) {
    op_case_restore(&s->suite, c);
    ggml_backend_cpu_set_n_threads(s->berth, n_threads);
    ggml_backend_cpu_set_use_ref(s->berth, portable);
    double *v =
        blocks_alloc(c->ctx) && s->berth->iface.graph_compute(s->berth, c->graph) == GGML_STATUS_SUCCESS ? op_values(c->t) : NULL;
    blocks_free(c->ctx);
    return v;
}

static double *oracle_values(struct cpu_suite *s, const struct op_case *c, struct op_oracle *o, enum op_outcome *outcome) {
    op_case_restore(&s->suite, c);
    *outcome = op_oracle_compute(o, c->graph, c->t);
    return *outcome == OP_DONE ? op_values(c->t) : NULL;
}

// Returns the result of the case's loop in double precision (plain.h), rounded to the type of the result.
static double *plain_values(struct cpu_suite *s, const struct op_case *c) {
    op_case_restore(&s->suite, c);
    double *v = malloc((size_t) ggml_nelements(c->t) * sizeof *v + 1);
    c->plain(c->t, v);
    for (int64_t i = 0; i < ggml_nelements(c->t); i++) {
        v[i] = op_rounded(c->t->type, v[i]);
    }
    return v;
}

static const char *why_no_reference(const struct cpu_suite *s, enum op_outcome outcome) {
    return !s->has_reference           ? "no reference"
           : outcome == OP_UNSUPPORTED ? "the reference's supports_op is false"
                                       : "the reference's supports_op is true, but its process ended";
}

// Berth may refuse a case if a source has no elements but the result has: the reference reads beyond the source or computes
// nothing. The ops listed here must not refuse, because their result is defined.
static bool may_refuse(const struct op_case *c) {
    static const char *const defined[] = {"SUM", "SUM_ROWS", "MEAN", "ARGMAX", "COUNT_EQUAL", "SET_ROWS", "CONCAT", "ACC", "SET",
        "MUL_MAT", "OUT_PROD", "PAD", "REPEAT_BACK", "GET_ROWS_BACK"};
    for (size_t i = 0; i < sizeof defined / sizeof defined[0]; i++) {
        if (strcmp(c->op, defined[i]) == 0) {
            return false;
        }
    }
    return c->layout >= OP_EMPTY_0 && ggml_nelements(c->t) > 0;
}

// Compares Berth's result in another layout with the reference's result in the layout OP_AS_BUILT. This is used if the reference
// cannot compute the other layout correctly.
static bool equals_as_built(const struct cpu_suite *s, const struct op_case *c, const double *got, double *error) {
    if (c->layout == OP_AS_BUILT || c->layout >= OP_EMPTY_0 || s->base == NULL || s->n_base != ggml_nelements(c->t)) {
        return false;
    }
    *error = op_nmse(got, s->base, s->n_base);
    return *error <= c->max_nmse;
}

static void case_compare(struct op_suite *suite, struct op_tally *tally, const struct op_case *c) {
    struct cpu_suite *s = (struct cpu_suite *) suite;
    const int64_t n = ggml_nelements(c->t);
    const bool is_supported = s->berth->device->iface.supports_op(s->berth->device, c->t);
    enum op_outcome outcome = OP_UNSUPPORTED;
    double *one = berth_values(s, c, 1, false);
    double *many = berth_values(s, c, N_THREADS, false);
    double *portable = berth_values(s, c, 2, true);
    double *want = s->has_reference ? oracle_values(s, c, &s->reference, &outcome) : NULL;
    double *plain = is_supported && c->plain != NULL ? plain_values(s, c) : NULL;
    const bool none = one == NULL && many == NULL && portable == NULL;
    const bool refused = none && ((want == NULL && s->has_reference && !is_supported) || may_refuse(c));
    bool as_built = false;
    const char *why = NULL;
    double error = 0;
    if (refused) {
    } else if (!is_supported && want == NULL) {
        why = !none ? "computed an op that it does not support" : NULL;
    } else if (!is_supported) {
        why = "refused an op that the reference computes";
    } else if (one == NULL || many == NULL || portable == NULL) {
        why = want != NULL || c->layout == OP_AS_BUILT
                  ? "compute failed"
                  : NULL; // in another layout Berth may fail if the reference does not compute it either
    } else if (memcmp(one, many, (size_t) n * sizeof *one) != 0 && op_nmse(many, one, n) != 0) {
        why = "threads differ", error = op_nmse(many, one, n);
    } else if (!((error = op_nmse(portable, one, n)) <= (c->max_nmse > OP_F32 ? c->max_nmse : OP_F32))) {
        why = "portable differs";
    } else if (want != NULL && !((error = op_nmse(one, want, n)) <= c->max_nmse)) {
        as_built = equals_as_built(s, c, one, &error);
        why = as_built ? NULL : "nmse";
    } else if (plain != NULL && !((error = op_nmse(one, plain, n)) <= c->plain_nmse)) {
        why = "nmse to double precision";
    } else if (want == NULL && plain == NULL) {
        as_built = equals_as_built(s, c, one, &error);
    }
    if (why != NULL) {
        tally->n_failed++;
        op_report(&s->suite, "FAIL", c, why, error);
    } else if (want == NULL && plain == NULL && !refused && !as_built) {
        tally->n_skipped += c->layout == OP_AS_BUILT;
        op_report(&s->suite, "skip", c, why_no_reference(s, outcome), 0);
    } else {
        tally->n_passed++;
        tally->n_plain += want == NULL && plain != NULL;
        tally->n_refused += refused;
        tally->n_dense += as_built && want != NULL;
        error = want != NULL && !refused && !as_built ? op_nmse(one, want, n) : error;
        tally->worst = error > tally->worst ? error : tally->worst;
        op_report(&s->suite, "pass", c,
            refused        ? "refused by both"
            : as_built     ? "nmse to the reference's result as built"
            : want == NULL ? "nmse to double precision"
                           : "nmse",
            error);
    }
    if (c->layout == OP_AS_BUILT) {
        free(s->base);
        s->base = want;
        s->n_base = n;
        want = NULL;
    }
    free(one), free(many), free(portable), free(want), free(plain);
}

static void case_spread(struct op_suite *suite, struct op_tally *tally, const struct op_case *c) {
    struct cpu_suite *s = (struct cpu_suite *) suite;
    enum op_outcome outcome;
    double *one = berth_values(s, c, 1, false);
    double *a = oracle_values(s, c, &s->reference, &outcome);
    double *b = oracle_values(s, c, &s->spread->other, &outcome);
    if (one != NULL && a != NULL && b != NULL) {
        const int64_t n = ggml_nelements(c->t);
        op_spread_add(s->spread, c->op, c->t, op_nmse(b, a, n), op_nmse(one, a, n), op_nmse(one, b, n));
        tally->n_passed++;
    }
    free(one), free(a), free(b);
}

// ---- the run ----

static void log_drop(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level, (void) text, (void) user_data;
}

static bool parse(struct cpu_suite *s, struct op_spread *spread, int argc, char **argv) {
    static char first[64];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--spread") == 0 && i + 1 < argc && strchr(argv[i + 1], ',') != NULL) {
            const char *comma = strchr(argv[++i], ',');
            snprintf(first, sizeof first, "%.*s", (int) (comma - argv[i]), argv[i]);
            s->reference.filter = first;
            spread->other.filter = comma + 1;
            s->spread = spread;
        } else if (!op_suite_option(&s->suite, argc, argv, &i)) {
            return false;
        }
    }
    return true;
}

static struct op_tally print_tallies(const struct cpu_suite *s) {
    struct op_tally all = {.op = "all"};
    for (int i = 0; i < s->suite.n_ops; i++) {
        const struct op_tally *t = &s->suite.tallies[i];
        printf("%-24s %d passed, %d failed, %d skipped (worst nmse %.2g)\n", t->op, t->n_passed, t->n_failed, t->n_skipped,
            t->worst);
        all.n_passed += t->n_passed, all.n_failed += t->n_failed, all.n_skipped += t->n_skipped;
        all.n_plain += t->n_plain, all.n_refused += t->n_refused, all.n_dense += t->n_dense;
    }
    printf(
        "%-24s %d passed, %d failed, %d skipped (of the passed, %d were compared with double precision only, %d are refused by "
        "the reference and by Berth, and in %d the reference assumes a dense source)\n",
        all.op, all.n_passed, all.n_failed, all.n_skipped, all.n_plain, all.n_refused, all.n_dense);
    return all;
}

// Prints the supported ops that no case tests. Views compute nothing.
static int print_untested(struct cpu_suite *s) {
    int n = 0;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){OP_ARENA_SIZE, s->suite.arena, true});
    for (int op = GGML_OP_NONE + 1; op < GGML_OP_COUNT; op++) {
        for (int sub = 0; sub < (op == GGML_OP_UNARY ? GGML_UNARY_OP_COUNT : 1); sub++) {
            const struct ggml_tensor *t = berth_op_sample(ctx, (enum ggml_op) op, sub, GGML_TYPE_F32, GGML_TYPE_F32);
            const char *name = op == GGML_OP_UNARY ? ggml_op_desc(t) : ggml_op_name((enum ggml_op) op);
            if (t != NULL && !berth_is_poison(t) && t->view_src == NULL &&
                s->berth->device->iface.supports_op(s->berth->device, t) && op_tally_of(&s->suite, name)->n_cases == 0) {
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
    struct cpu_suite s = {.suite.n_parts = 1, .reference = {.filter = getenv("BERTH_REFERENCE_CPU")}};
    if (!parse(&s, &spread, argc, argv)) {
        fprintf(stderr, "Usage: op-suite [-v] [-k OP] [--part I/N] [--seed N] [--spread VARIANT,VARIANT]\n");
        return 2;
    }
    setenv("BERTH_CPU_OVERSUBSCRIBE", "1", 0); // several threads on any machine
    s.suite.arena = op_arena_new(OP_ARENA_SIZE);
    s.suite.saved = malloc(OP_ARENA_SIZE);
    s.berth = ggml_backend_cpu_init();
    if (s.suite.arena == NULL || s.suite.saved == NULL || s.berth == NULL) {
        printf("out of memory\n");
        return 1;
    }
    if (!s.suite.verbose) {
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
    s.suite.compare = s.spread != NULL ? case_spread : case_compare;
    s.suite.is_as_built = s.spread != NULL;
    op_suite_run(&s.suite);
    op_suite_custom(&s.suite);
    int n_failed = 0;
    if (s.spread != NULL) {
        op_spread_print(s.spread, s.reference.name);
        op_oracle_close(&s.spread->other);
    } else {
        n_failed = print_tallies(&s).n_failed + (s.suite.only == NULL ? print_untested(&s) : 0);
    }
    op_oracle_close(&s.reference);
    s.berth->iface.free(s.berth);
    free(s.suite.saved);
    free(s.base);
    return n_failed > 0;
}
