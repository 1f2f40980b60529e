// SPDX-License-Identifier: MIT
// spread.c: the table of differences between variants of the reference.

#include "spread.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void op_spread_add(
    struct op_spread *s, const char *op, const struct ggml_tensor *t, double a_to_b, double berth_to_a, double berth_to_b) {
    char types[48] = "";
    for (int i = 0; i < 3 && t->src[i] != NULL; i++) {
        const size_t n = strlen(types);
        snprintf(types + n, sizeof types - n, "%s%s", i > 0 ? "," : "", ggml_type_name(t->src[i]->type));
    }
    struct op_spread_row *row = s->rows;
    for (; row < s->rows + s->n_rows; row++) {
        if (strcmp(row->op, op) == 0 && strcmp(row->types, types) == 0) {
            break;
        }
    }
    if (row == s->rows + s->n_rows) {
        if (s->n_rows == OP_MAX_SPREADS) {
            return;
        }
        s->n_rows++;
        row->op = op;
        snprintf(row->types, sizeof row->types, "%s", types);
    }
    row->n++;
    row->a_to_b = fmax(row->a_to_b, a_to_b);
    row->berth_a = fmax(row->berth_a, berth_to_a);
    row->berth_b = fmax(row->berth_b, berth_to_b);
    if (berth_to_a > 0) {
        row->excess = fmax(row->excess, a_to_b > 0 ? berth_to_a / a_to_b : INFINITY);
    }
}

void op_spread_print(const struct op_spread *s, const char *first) {
    printf("largest errors between A %s, B %s and Berth; excess: the largest quotient (Berth to A) / (A to B) of a case\n", first,
        s->other.name);
    printf("%-24s %-24s %6s %10s %10s %10s %10s\n", "op", "types", "cases", "A to B", "Berth to A", "Berth to B", "excess");
    for (int i = 0; i < s->n_rows; i++) {
        const struct op_spread_row *r = &s->rows[i];
        printf(
            "%-24s %-24s %6d %10.2g %10.2g %10.2g %10.2g\n", r->op, r->types, r->n, r->a_to_b, r->berth_a, r->berth_b, r->excess);
    }
}
