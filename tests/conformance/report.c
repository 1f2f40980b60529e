// SPDX-License-Identifier: MIT
// report.c: what counts as the same. Success and failure must agree call by call; on success the texts must be equal.
#include "report.h"

#include <string.h>

// The rows of calls.inc begin with the constructors: their failures become poison.
static bool is_constructor(int id) {
    return id <= CALL_ggml_opt_step_sgd;
}

// ---- purposeful differences: docs/differences.md gives the same reasons at length ----

// Berth refuses sizes that do not fit in 63 bits; in the reference they wrap around.
static bool has_bad_extent(const struct outcome *ref) {
    for (const char *line = ref->text; line != NULL && ref->n_text > 0; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *ne = strstr(line, " ne ");
        const char *nl = strchr(line, '\n');
        if (ne == NULL) {
            return false;
        }
        if (nl != NULL && ne > nl) {
            continue;
        }
        long long x[4];
        if (sscanf(ne, " ne %lld %lld %lld %lld", &x[0], &x[1], &x[2], &x[3]) != 4) {
            continue;
        }
        double bytes = 8; // of the largest element
        for (int i = 0; i < 4; i++) {
            if (x[i] < 0) {
                return true;
            }
            bytes *= (double) x[i];
        }
        if (bytes > 9.0e18) {
            return true;
        }
    }
    return false;
}

static const char *purpose(const struct recipe *r, const struct outcome *mine, const struct outcome *ref) {
    (void) r;
    if (ref->kind == OUTCOME_DONE && mine->kind == OUTCOME_FAILED && has_bad_extent(ref)) {
        return "negative extents and sizes past 63 bits are refused";
    }
    return NULL;
}

const char *never_succeeds(enum call_id id) {
    return id == CALL_ggml_flash_attn_back ? "the reference has no body for it" : NULL;
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

// Prints line by line what only one of the two texts has at the same place.
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
