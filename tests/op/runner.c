// SPDX-License-Identifier: MIT
// runner.c: builds cases and passes them to the comparison function.

#include "runner.h"

#include "berth.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

bool op_suite_option(struct op_suite *s, int argc, char **argv, int *i) {
    const char *name = argv[*i], *value = *i + 1 < argc ? argv[*i + 1] : NULL;
    if (strcmp(name, "-v") == 0) {
        s->verbose = true;
        return true;
    }
    if (value == NULL) {
        return false;
    }
    ++*i;
    if (strcmp(name, "-k") == 0) {
        s->only = value;
        return true;
    }
    if (strcmp(name, "--seed") == 0) {
        s->seed = strtoull(value, NULL, 10);
        return true;
    }
    const bool is_part = strcmp(name, "--part") == 0 && sscanf(value, "%d/%d", &s->part, &s->n_parts) == 2;
    return is_part && s->part >= 1 && s->part-- <= s->n_parts;
}

void op_suite_run(struct op_suite *s) {
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        families[i](s);
    }
}

struct op_tally *op_tally_of(struct op_suite *s, const char *op) {
    for (int i = 0; i < s->n_ops; i++) {
        if (strcmp(s->tallies[i].op, op) == 0) {
            return &s->tallies[i];
        }
    }
    s->tallies[s->n_ops].op = op;
    return &s->tallies[s->n_ops++];
}

void op_report(const struct op_suite *s, const char *verdict, const struct op_case *c, const char *why, double error) {
    if (s->verbose || strcmp(verdict, "FAIL") == 0) {
        printf("%s %s %s: %s %g\n", verdict, c->op, c->what, why, error);
        fflush(stdout);
    }
}

void op_case_restore(struct op_suite *s, const struct op_case *c) {
    memcpy(s->arena, s->saved, c->used);
}

static const char *const layout_names[OP_N_LAYOUTS] = {"as built", "strided", "with holes", "swapped 0 1", "swapped 0 2",
    "swapped 0 3", "swapped 1 2", "swapped 1 3", "swapped 2 3", "empty 0", "empty 1", "empty 2", "empty 3"};

// Runs one case in the layout of b. Returns the number of its inputs.
static int case_run(struct op_suite *s, struct op_tally *tally, const char *op, const char *what, double max_nmse,
    op_build_t build, const void *arg, struct op_build b) {
    const bool is_relaid = b.layout != OP_AS_BUILT;
    b.ctx = ggml_init((struct ggml_init_params){.mem_size = OP_ARENA_SIZE, .mem_buffer = s->arena});
    struct op_case c = {.op = op, .what = what, .max_nmse = max_nmse, .ctx = b.ctx, .layout = b.layout};
    c.t = build(&b, arg);
    c.graph = ggml_new_graph(b.ctx);
    c.used = ggml_used_mem(b.ctx);
    c.plain = is_relaid ? NULL : b.plain;
    c.plain_nmse = b.plain_nmse > 0 ? b.plain_nmse : max_nmse;
    if (b.skip == NULL && berth_is_poison(c.t)) {
        b.skip = "the constructor refuses the arguments";
    }
    if (b.skip != NULL && is_relaid) {
        op_report(s, "skip", &c, b.skip, 0); // the conformance tests compare constructors with the reference's
    } else if (b.skip != NULL) {
        tally->n_skipped++;
        op_report(s, "skip", &c, b.skip, 0);
    } else {
        if (c.t->op != GGML_OP_SET_ROWS && c.t->op != GGML_OP_CPY && c.t->view_src == NULL && c.t->data != NULL) {
            memset(c.t->data, 0xFF, ggml_nbytes(c.t)); // shows elements that are not written
        }
        ggml_build_forward_expand(c.graph, c.t);
        memcpy(s->saved, s->arena, c.used);
        s->compare(s, tally, &c);
        op_case_restore(s, &c);
    }
    ggml_free(b.ctx);
    return b.n_inputs;
}

void op_case(struct op_suite *s, const char *op, const char *what, double max_nmse, op_build_t build, const void *arg) {
    if (!op_wanted(s, op)) {
        return;
    }
    struct op_tally *tally = op_tally_of(s, op);
    const int i_case = tally->n_cases++;
    if (s->is_list || i_case % s->n_parts != s->part) {
        return;
    }
    const struct op_build b = {.rng = (0x9E3779B97F4A7C15u ^ (uint64_t) (i_case + 1)) + (s->seed << 32)};
    const int n_inputs = case_run(s, tally, op, what, max_nmse, build, arg, b);
    if (s->is_as_built || (i_case & (i_case - 1)) != 0) { // cases 0, 1, 2, 4, 8, ...
        return;
    }
    char text[256];
    for (int which = n_inputs > 1 ? -1 : 0; which < n_inputs; which++) {
        for (int layout = OP_AS_BUILT + 1; layout < OP_N_LAYOUTS; layout++) {
            if (tally->n_relaid++ % s->n_parts != s->part) {
                continue;
            }
            struct op_build relaid = b;
            relaid.layout = (enum op_layout) layout;
            relaid.which = which;
            snprintf(text, sizeof text, "%s, input %d %s", what, which, layout_names[layout]);
            case_run(s, tally, op, text, max_nmse, build, arg, relaid);
        }
    }
}
