// SPDX-License-Identifier: MIT
// grammar_check.c: refuses rules that begin with themselves: what follows them would be put aside without end before a byte is
// read. A rule may end with itself, also where all before it is nothing: that leaves nothing behind. Linear in the grammar.

#include "model/grammar.h"

// Rules that a rule may begin with: those before which only what may be nothing stands.
struct walk {
    uint32_t alt;                    // GRAMMAR_NONE: all are done
    const struct grammar_elem *elem; // NULL: the alternative's first
};

// The next of them, NULL: there are no more.
static const struct grammar_elem *walk_next(const struct grammar *g, const bool *is_empty, struct walk *w) {
    while (w->alt != GRAMMAR_NONE) {
        const struct grammar_elem *e = w->elem == NULL ? g->elems + g->alts[w->alt].at : w->elem + 1;
        const bool is_open           = w->elem == NULL || is_empty[w->elem->rule];
        if (is_open && e->kind == GRAMMAR_RULE) {
            w->elem = e;
            return e;
        }
        *w = (struct walk){g->alts[w->alt].next, NULL};
    }
    return NULL;
}

static void empties_find(const struct grammar *g, bool *is_empty) {
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t r = 0; r < g->n_rules; r++) {
            for (uint32_t a = g->rules[r].first; !is_empty[r] && a != GRAMMAR_NONE; a = g->alts[a].next) {
                const struct grammar_elem *e = g->elems + g->alts[a].at;
                while (e->kind == GRAMMAR_RULE && is_empty[e->rule]) {
                    e++;
                }
                is_empty[r] = e->kind == GRAMMAR_END;
                changed |= is_empty[r];
            }
        }
    }
}

// What Tarjan's search for strongly connected rules keeps of each.
struct visit {
    struct walk walk;
    uint32_t index, low; // index 0: not seen
    uint32_t component;  // 0: still open
};

struct search {
    const struct grammar *g;
    const bool *is_empty;
    struct visit *visits;  // [n_rules]
    uint32_t *path, *open; // [n_rules]
    size_t n_path, n_open;
    uint32_t n_seen, n_components;
};

static void search_enter(struct search *s, uint32_t rule) {
    s->n_seen++;
    s->visits[rule]      = (struct visit){{s->g->rules[rule].first, NULL}, s->n_seen, s->n_seen, 0};
    s->path[s->n_path++] = s->open[s->n_open++] = rule;
}

// Steps on from the last rule of the path, or leaves it.
static void search_step(struct search *s) {
    const uint32_t rule          = s->path[s->n_path - 1];
    struct visit *v              = &s->visits[rule];
    const struct grammar_elem *e = walk_next(s->g, s->is_empty, &v->walk);
    if (e != NULL && s->visits[e->rule].index == 0) {
        search_enter(s, e->rule);
    } else if (e != NULL) {
        const struct visit *to = &s->visits[e->rule];
        v->low                 = to->component == 0 && to->index < v->low ? to->index : v->low;
    } else {
        if (--s->n_path > 0) {
            struct visit *above = &s->visits[s->path[s->n_path - 1]];
            above->low          = v->low < above->low ? v->low : above->low;
        }
        if (v->low == v->index) {
            s->n_components++;
            uint32_t last;
            do {
                last                      = s->open[--s->n_open];
                s->visits[last].component = s->n_components;
            } while (last != rule);
        }
    }
}

// A rule that is not the last of its alternative leaves a frame behind; one that comes back to itself that way before a byte is
// read would leave frames without end.
static bool frames_check(const struct search *s, struct model_error *error) {
    for (size_t r = 0; r < s->g->n_rules; r++) {
        struct walk w = {s->g->rules[r].first, NULL};
        for (const struct grammar_elem *e; (e = walk_next(s->g, s->is_empty, &w)) != NULL;) {
            if (e[1].kind != GRAMMAR_END && s->visits[e->rule].component == s->visits[r].component) {
                const char *name = s->g->rules[r].name != NULL ? s->g->rules[r].name : s->g->rules[e->rule].name;
                return model_fail(error, "rule '%.64s' begins with itself", name != NULL ? name : "(...)");
            }
        }
    }
    return true;
}

bool grammar_check(const struct grammar *g, struct model_error *error) {
    const size_t n  = g->n_rules;
    bool *is_empty  = model_alloc_calloc(n + 1, sizeof *is_empty);
    struct search s = {.g = g, .is_empty = is_empty};
    s.visits        = model_alloc_calloc(n + 1, sizeof *s.visits);
    s.path          = model_alloc_malloc((n + 1) * sizeof *s.path);
    s.open          = model_alloc_malloc((n + 1) * sizeof *s.open);
    bool ok         = (is_empty != NULL && s.visits != NULL && s.path != NULL && s.open != NULL) ||
              model_fail(error, "out of memory for a grammar of %zu rules", n);
    if (ok) {
        empties_find(g, is_empty);
    }
    for (size_t r = 0; ok && r < n; r++) {
        if (s.visits[r].index == 0) {
            search_enter(&s, (uint32_t) r);
        }
        while (s.n_path > 0) {
            search_step(&s);
        }
    }
    ok = ok && frames_check(&s, error);
    model_alloc_free(is_empty);
    model_alloc_free(s.visits);
    model_alloc_free(s.path);
    model_alloc_free(s.open);
    return ok;
}
