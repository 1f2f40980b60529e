// SPDX-License-Identifier: MIT
// report.c: decides whether two outcomes agree. Success and failure must agree call by call. Texts must be equal.
#include "report.h"

#include <string.h>

// The rows of calls.inc start with the constructors. A constructor that fails returns poison.
static bool is_constructor(int id) {
    return id <= CALL_ggml_opt_step_sgd;
}

// ---- intended differences: docs/user/differences.md explains the same reasons in detail ----

// A tensor overflowed if it has a negative extent or stride, or more bytes than 63 bits can count.
static bool has_wrapped(const struct outcome *ref) {
    const char *end = ref->text + ref->n_text;
    for (const char *line = ref->text; ref->n_text > 0 && line < end; line += strcspn(line, "\n") + 1) {
        long long ne[4];
        unsigned long long nb[4];
        if (sscanf(line, "%*s type %*d op %*d ne %lld %lld %lld %lld nb %llu %llu %llu %llu", &ne[0], &ne[1], &ne[2], &ne[3],
                &nb[0], &nb[1], &nb[2], &nb[3]) != 8) {
            continue;
        }
        double bytes = 8; // size of the largest element type
        for (int i = 0; i < 4; i++) {
            if (ne[i] < 0 || nb[i] >> 60 != 0) {
                return true;
            }
            bytes *= (double) ne[i];
        }
        if (bytes > 9.0e18) {
            return true;
        }
    }
    return false;
}

// Enum arguments that the reference uses as table indices or stores without a check.
static const struct {
    enum call_id id;
    int arg;
    int64_t lo, hi, step;
} enum_args[] = {
    {CALL_ggml_op_name, 0, 0, REFERENCE_N_OPS - 1, 1},
    {CALL_ggml_op_symbol, 0, 0, REFERENCE_N_OPS - 1, 1},
    {CALL_ggml_unary_op_name, 0, 0, GGML_UNARY_OP_COUNT - 1, 1},
    {CALL_ggml_glu_op_name, 0, 0, GGML_GLU_OP_COUNT - 1, 1},
    {CALL_ggml_unary, 1, 0, GGML_UNARY_OP_COUNT - 1, 1},
    {CALL_ggml_unary_inplace, 1, 0, GGML_UNARY_OP_COUNT - 1, 1},
    {CALL_ggml_glu, 1, 0, GGML_GLU_OP_COUNT - 1, 1},
    {CALL_ggml_glu_split, 2, 0, GGML_GLU_OP_COUNT - 1, 1},
    {CALL_ggml_pool_1d, 1, 0, GGML_OP_POOL_COUNT - 1, 1},
    {CALL_ggml_pool_2d, 1, 0, GGML_OP_POOL_COUNT - 1, 1},
    {CALL_ggml_pool_2d_back, 2, 0, GGML_OP_POOL_COUNT - 1, 1},
    {CALL_ggml_tri, 1, GGML_TRI_TYPE_UPPER_DIAG, GGML_TRI_TYPE_LOWER, 1},
    {CALL_ggml_argsort, 1, GGML_SORT_ORDER_ASC, GGML_SORT_ORDER_DESC, 1},
    {CALL_ggml_mul_mat_set_prec, 1, GGML_PREC_DEFAULT, GGML_PREC_F32, 10},
    {CALL_ggml_flash_attn_ext_set_prec, 1, GGML_PREC_DEFAULT, GGML_PREC_F32, 10},
    {CALL_ggml_mul_mat_set_hint, 1, GGML_HINT_NONE, GGML_HINT_SRC0_IS_HADAMARD, 1},
};

static bool has_bad_enum(const struct recipe *r) {
    for (int i = 0; i < r->n_calls; i++) {
        const struct call *c = &r->calls[i];
        for (int k = 0; k < c->n_args; k++) {
            if (call_table[c->id].kinds[k] == 'E' && !type_exists(c->args[k])) {
                return true;
            }
        }
        for (size_t k = 0; k < sizeof(enum_args) / sizeof(enum_args[0]); k++) {
            const int64_t x = c->args[enum_args[k].arg];
            if (c->id == (int32_t) enum_args[k].id &&
                (x < enum_args[k].lo || x > enum_args[k].hi || x % enum_args[k].step != 0)) {
                return true;
            }
        }
    }
    return false;
}

// Whether the function stores 64-bit arguments as int: strides in op_params, channels, sizes of graphs.
static bool keeps_32_bits(int id) {
    return (id >= CALL_ggml_acc && id <= CALL_ggml_acc_inplace) || (id >= CALL_ggml_set && id <= CALL_ggml_set_2d_inplace) ||
           id == CALL_ggml_im2col_3d || id == CALL_ggml_conv_3d || id == CALL_ggml_new_graph_custom ||
           id == CALL_ggml_graph_overhead_custom;
}

// Whether the call has extents, strides or an offset that exceed any memory, or ints whose sums overflow.
static bool has_huge_argument(const struct call *c) {
    const int64_t limit = keeps_32_bits(c->id) ? INT32_MAX : (int64_t) 1 << 60;
    double product = 1;
    for (int i = 0; i < c->n_args; i++) {
        const int64_t x = c->args[i];
        switch (call_table[c->id].kinds[i]) {
            case 'L':
                if (x < 0 || x > limit) {
                    return true;
                }
                product *= x == 0 ? 1 : (double) x;
                break;
            case 'I':
                if (x >= 1 << 30 || x <= -(1 << 30)) {
                    return true;
                }
                break;
            default: break;
        }
    }
    return product > 1e18;
}

// Arguments by which the reference divides.
static const struct {
    enum call_id id;
    int first, last;
} divisors[] = {
    {CALL_ggml_im2col, 2, 3},
    {CALL_ggml_conv_1d, 2, 2},
    {CALL_ggml_conv_1d_ph, 2, 2},
    {CALL_ggml_conv_1d_dw, 2, 2},
    {CALL_ggml_conv_1d_dw_ph, 2, 2},
    {CALL_ggml_conv_2d, 2, 3},
    {CALL_ggml_conv_2d_dw, 2, 3},
    {CALL_ggml_conv_2d_dw_direct, 2, 3},
    {CALL_ggml_conv_2d_direct, 2, 3},
    {CALL_ggml_im2col_3d, 2, 5},
    {CALL_ggml_conv_3d, 2, 5},
    {CALL_ggml_conv_3d_direct, 2, 4},
    {CALL_ggml_pool_1d, 3, 3},
    {CALL_ggml_pool_2d, 4, 5},
    {CALL_ggml_win_part, 1, 1},
};

static bool divides_by_zero(const struct call *c) {
    for (size_t i = 0; i < sizeof(divisors) / sizeof(divisors[0]); i++) {
        for (int k = divisors[i].first; k <= divisors[i].last && c->id == (int32_t) divisors[i].id; k++) {
            if (c->args[k] == 0) {
                return true;
            }
        }
    }
    return false;
}

// Whether the call has floats that the reference converts to an int or a count although they do not fit.
static bool has_bad_float(const struct call *c) {
    if (c->id != CALL_ggml_pool_2d && c->id != CALL_ggml_pool_2d_back && c->id != CALL_ggml_arange) {
        return false;
    }
    for (int i = 0; i < c->n_args; i++) {
        const float x = call_table[c->id].kinds[i] == 'F' ? bits_float(c->args[i]) : 0;
        if (!(x > -2e9f && x < 2e9f)) {
            return true;
        }
    }
    return false;
}

static bool has_zero_extent(const struct recipe *r) {
    for (int i = 0; i < r->n_calls; i++) {
        for (int k = 0; k < r->calls[i].n_args; k++) {
            if (call_table[r->calls[i].id].kinds[k] == 'L' && r->calls[i].args[k] == 0) {
                return true;
            }
        }
    }
    return false;
}

static bool error_contains(const struct outcome *mine, const char *text) {
    return mine->kind == OUTCOME_FAILED && strstr(mine->message, text) != NULL;
}

// Returns NULL if the outcomes must agree.
static const char *purpose(const struct recipe *r, const struct outcome *mine, const struct outcome *ref) {
    for (int i = 0; i < r->n_calls; i++) {
        const struct call *c = &r->calls[i];
        if (has_huge_argument(c)) {
            return "negative extents and sizes past 63 bits are refused, in the reference they wrap";
        }
        if (has_bad_float(c)) {
            return "infinities and NaN are refused where the reference turns them into integers";
        }
        if (divides_by_zero(c) || (c->id == CALL_ggml_unravel_index && has_zero_extent(r)) || error_contains(mine, "has fewer")) {
            return "strides, windows, channels and extents of 0 are refused where the reference divides by them";
        }
        if (c->id == CALL_ggml_graph_view && (c->args[1] < 0 || c->args[2] < c->args[1] || c->args[2] > 1)) {
            return "a view of nodes that the graph lacks is empty"; // only node 0 exists in every graph that recipes view
        }
        if (c->id == CALL_ggml_graph_add_node && c->args[1] < 0) {
            return "NULL is never a node";
        }
    }
    if (has_bad_enum(r)) {
        return "types and enum values that do not exist are refused, the reference reads past the end of its tables";
    }
    if (ref->kind == OUTCOME_DONE && has_wrapped(ref)) {
        return "negative extents and sizes past 63 bits are refused, in the reference they wrap";
    }
    if (error_contains(mine, "requires a multiple of")) {
        return "rows of a tensor with its own memory must be multiples of blocks, in the reference such rows overlap";
    }
    if (ref->kind == OUTCOME_DONE && error_contains(mine, " is NULL")) {
        return "a missing source or function is refused, the reference makes a node that no backend can run";
    }
    return NULL;
}

const char *never_succeeds(enum call_id id) {
    return id == CALL_ggml_flash_attn_back ? "the reference does not implement it" : NULL;
}

// ---- comparison ----

static const char *kind_name(int kind) {
    static const char *const names[] = {"done", "failed", "crashed", "process died", "function missing"};
    return names[kind];
}

struct verdict compare(const struct recipe *r, const struct outcome *mine, const struct outcome *ref) {
    struct verdict v = {.ok = true};
    if (mine->kind == OUTCOME_CRASHED || mine->kind == OUTCOME_MISSING) {
        v.ok = false;
        snprintf(v.reason, sizeof(v.reason), "Berth: %s at call #%d", kind_name(mine->kind), mine->at);
        return v;
    }
    if (ref->kind == OUTCOME_DONE) {
        if (mine->kind != OUTCOME_DONE) {
            v.ok = false;
            snprintf(v.reason, sizeof(v.reason), "the reference succeeds, Berth fails at call #%d", mine->at);
        } else if (mine->n_text != ref->n_text || memcmp(mine->text, ref->text, (size_t) ref->n_text) != 0) {
            v.ok = false;
            snprintf(v.reason, sizeof(v.reason), "both succeed, results differ");
        }
    } else if (ref->at >= 0 && ref->at < r->n_calls && is_constructor(r->calls[ref->at].id)) {
        if (mine->kind != OUTCOME_FAILED) {
            v.ok = false;
            snprintf(v.reason, sizeof(v.reason), "the reference %s at call #%d, Berth succeeds", kind_name(ref->kind), ref->at);
        } else if (mine->at != ref->at) {
            v.ok = false;
            snprintf(v.reason, sizeof(v.reason), "the reference %s at call #%d, Berth at #%d", kind_name(ref->kind), ref->at,
                mine->at);
        } else if (mine->silent) {
            v.ok = false;
            snprintf(v.reason, sizeof(v.reason), "Berth fails without a message");
        }
    }
    if (!v.ok) {
        v.purpose = purpose(r, mine, ref);
    }
    return v;
}

static void print_lines(const char *mine, const char *ref) {
    int shown = 0;
    while ((*mine != 0 || *ref != 0) && shown < 6) {
        const size_t n_mine = strcspn(mine, "\n"), n_ref = strcspn(ref, "\n");
        if (n_mine != n_ref || memcmp(mine, ref, n_mine) != 0) {
            printf("    - reference: %.*s\n    + Berth:     %.*s\n", (int) n_ref, ref, (int) n_mine, mine);
            shown++;
        }
        mine += n_mine + (mine[n_mine] == '\n');
        ref += n_ref + (ref[n_ref] == '\n');
    }
}

void print_difference(const struct recipe *r, const struct verdict *v, const struct outcome *mine, const struct outcome *ref) {
    printf("  %s\n", v->reason);
    if (r->n_calls > 60) {
        printf("    (a recipe of %d calls)\n", r->n_calls);
    } else {
        recipe_print(r, stdout);
    }
    if (ref->kind != OUTCOME_DONE) {
        const char *base = strrchr(ref->message, '/');
        printf("    reference %s: %s\n", kind_name(ref->kind), base != NULL ? base + 1 : ref->message);
    }
    if (mine->kind != OUTCOME_DONE) {
        printf("    Berth %s: %s\n", kind_name(mine->kind), mine->message);
    }
    if (ref->kind == OUTCOME_DONE && mine->kind == OUTCOME_DONE) {
        print_lines(mine->text, ref->text);
    }
}

void count(
    struct counts *c, const struct recipe *r, const struct verdict *v, const struct outcome *mine, const struct outcome *ref) {
    c->sets++;
    c->ref_ok += ref->kind == OUTCOME_DONE;
    if (mine->kind == OUTCOME_MISSING) {
        c->missing++;
    } else if (v->purpose != NULL) {
        c->purposeful++;
    } else if (!v->ok) {
        c->different++;
    } else if (ref->kind == OUTCOME_DONE) {
        c->same++;
    } else if (ref->at >= 0 && ref->at < r->n_calls && is_constructor(r->calls[ref->at].id)) {
        c->poison++;
    } else {
        c->survived++;
    }
}

void counts_add(struct counts *to, const struct counts *from) {
    to->sets += from->sets;
    to->same += from->same;
    to->poison += from->poison;
    to->survived += from->survived;
    to->purposeful += from->purposeful;
    to->different += from->different;
    to->missing += from->missing;
    to->ref_ok += from->ref_ok;
}

// Compares texts, because equal literals may have different addresses.
void purposes_add(struct purposes *p, const char *purpose) {
    for (int i = 0; i < MAX_PURPOSES; i++) {
        if (p->text[i] == NULL || strcmp(p->text[i], purpose) == 0) {
            p->text[i] = purpose;
            p->n[i]++;
            return;
        }
    }
}

void purposes_print(const struct purposes *p) {
    for (int i = 0; i < MAX_PURPOSES && p->text[i] != NULL; i++) {
        printf("intended: %6lld x %s\n", (long long) p->n[i], p->text[i]);
    }
}
