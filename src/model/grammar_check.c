// SPDX-License-Identifier: MIT
// grammar_check.c: refuses rules that begin with themselves (left recursion), because the guide's stack would grow without limit
// before a byte is read. A rule may end with a call of itself, because a call at the end of an alternative pushes nothing. The
// check takes time linear in the size of the grammar.

#include "base/min.h"
#include "model/grammar.h"

#include <string.h>

bool grammar_poll(const struct grammar *g, struct model_error *error) {
    return g->stop == NULL || !g->stop(g->stop_data) || model_fail(error, "interrupted while the grammar was processed");
}

// Iterates over the calls with which a rule may begin: all elements before such a call may match the empty text.
struct walk {
    uint32_t alt;                    // GRAMMAR_NONE: all alternatives are done
    const struct grammar_elem *elem; // last call that was returned; NULL: none in this alternative yet
};

static bool is_call(const struct grammar_elem *e) {
    return e->kind == GRAMMAR_RULE || e->kind == GRAMMAR_REPEAT;
}

// NULL: no more calls.
static const struct grammar_elem *walk_next(const struct grammar *g, struct walk *w) {
    while (w->alt != GRAMMAR_NONE) {
        const struct grammar_elem *e = w->elem == NULL ? g->elems + g->alts[w->alt].at : w->elem + 1;
        const bool is_reached = w->elem == NULL || grammar_can_skip(g, w->elem, 0);
        if (is_reached && is_call(e)) {
            w->elem = e;
            return e;
        }
        *w = (struct walk){g->alts[w->alt].next, NULL};
    }
    return NULL;
}

// ---- rules that match the empty text ----

// The state of one alternative. The alternative waits for its first element that is not yet known to match the empty text.
struct waiting {
    uint32_t rule; // rule of the alternative
    uint32_t elem; // element that it waits for
    uint32_t next; // next alternative that waits for the same rule
};

struct empty_search {
    struct grammar *g;
    struct waiting *alts; // [n_alts]
    uint32_t *first;      // [n_rules] first alternative that waits for the rule
    uint32_t *found;      // [n_rules] stack of empty rules, to be visited
    size_t n_found;
};

static void alt_visit(struct empty_search *s, uint32_t alt) {
    struct grammar *g = s->g;
    struct waiting *w = &s->alts[alt];
    const struct grammar_elem *e = &g->elems[w->elem];
    while (is_call(e) && (grammar_can_skip(g, e, 0) || g->rules[grammar_callee(g, e)].can_be_empty)) {
        e = &g->elems[++w->elem];
    }
    if (e->kind == GRAMMAR_END && !g->rules[w->rule].can_be_empty) {
        g->rules[w->rule].can_be_empty = true;
        s->found[s->n_found++] = w->rule;
    } else if (is_call(e)) {
        const uint32_t rule = grammar_callee(g, e);
        w->next = s->first[rule];
        s->first[rule] = alt;
    }
}

// If the rule of a repetition matches the empty text, the minimum count becomes 0.
static void repeats_loosen(struct grammar *g) {
    for (size_t i = 0; i < g->n_repeats; i++) {
        if (g->rules[g->repeats[i].rule].can_be_empty) {
            g->repeats[i].least = 0;
        }
    }
}

static bool empties_find(struct empty_search *s, struct model_error *error) {
    struct grammar *g = s->g;
    for (uint32_t r = 0; r < g->n_rules; r++) {
        s->first[r] = GRAMMAR_NONE;
    }
    for (uint32_t r = 0; r < g->n_rules; r++) {
        for (uint32_t a = g->rules[r].first; a != GRAMMAR_NONE; a = g->alts[a].next) {
            s->alts[a] = (struct waiting){r, g->alts[a].at, GRAMMAR_NONE};
            alt_visit(s, a);
        }
        if (!grammar_poll(g, error)) {
            return false;
        }
    }
    while (s->n_found > 0) {
        const uint32_t rule = s->found[--s->n_found];
        for (uint32_t a = s->first[rule], next; a != GRAMMAR_NONE; a = next) {
            next = s->alts[a].next;
            s->alts[a].elem++; // the element that the alternative waited for calls this rule, once or repeatedly
            alt_visit(s, a);
        }
        s->first[rule] = GRAMMAR_NONE;
    }
    repeats_loosen(g);
    return grammar_poll(g, error);
}

// ---- components ----

// Tarjan's search for strongly connected components.
struct visit {
    struct walk walk;
    uint32_t index, low; // index 0: not visited
    uint32_t component;  // 0: not yet assigned
};

struct search {
    const struct grammar *g;
    struct visit *visits; // [n_rules]
    uint32_t *path;       // [n_path] rules from the start of the search to the current one
    uint32_t *open;       // [n_open] visited rules without a component, in the order of their visits
    size_t n_path, n_open;
    uint32_t n_seen, n_components;
};

static void search_enter(struct search *s, uint32_t rule) {
    s->n_seen++;
    s->visits[rule] = (struct visit){{s->g->rules[rule].first, NULL}, s->n_seen, s->n_seen, 0};
    s->path[s->n_path++] = s->open[s->n_open++] = rule;
}

static void search_step(struct search *s) {
    const uint32_t rule = s->path[s->n_path - 1];
    struct visit *v = &s->visits[rule];
    const struct grammar_elem *e = walk_next(s->g, &v->walk);
    const uint32_t callee = e != NULL ? grammar_callee(s->g, e) : 0;
    if (e != NULL && s->visits[callee].index == 0) {
        search_enter(s, callee);
    } else if (e != NULL) {
        const struct visit *to = &s->visits[callee];
        if (to->component == 0) {
            v->low = min_u32(v->low, to->index);
        }
    } else {
        if (--s->n_path > 0) {
            struct visit *caller = &s->visits[s->path[s->n_path - 1]];
            caller->low = min_u32(v->low, caller->low);
        }
        if (v->low == v->index) {
            s->n_components++;
            uint32_t last;
            do {
                last = s->open[--s->n_open];
                s->visits[last].component = s->n_components;
            } while (last != rule);
        }
    }
}

// A call that is not the last element of its alternative pushes a place (grammar_stack.h). If the called rule can begin with the
// calling rule, the stack would grow without limit.
static bool left_recursion_check(const struct search *s, struct model_error *error) {
    for (size_t r = 0; r < s->g->n_rules; r++) {
        struct walk w = {s->g->rules[r].first, NULL};
        for (const struct grammar_elem *e; (e = walk_next(s->g, &w)) != NULL;) {
            const uint32_t callee = grammar_callee(s->g, e);
            if (!grammar_is_tail(s->g, e, 0) && s->visits[callee].component == s->visits[r].component) {
                const char *name = s->g->rules[r].name != NULL ? s->g->rules[r].name : s->g->rules[callee].name;
                return model_fail(error, "rule '%.64s' begins with itself (left recursion)", name != NULL ? name : "(...)");
            }
        }
    }
    return true;
}

static void members_list(struct grammar *g, const struct search *s) {
    g->n_components = s->n_components;
    for (size_t r = 0; r < g->n_rules; r++) {
        g->rules[r].component = s->visits[r].component - 1;
        g->first_member[g->rules[r].component + 1]++;
    }
    for (size_t c = 0; c < g->n_components; c++) {
        g->first_member[c + 1] += g->first_member[c];
    }
    // first_member[c + 1] moves from the end of component c down to its start.
    for (size_t r = g->n_rules; r-- > 0;) {
        g->members[--g->first_member[g->rules[r].component + 1]] = (uint32_t) r;
    }
    memmove(g->first_member, g->first_member + 1, g->n_components * sizeof *g->first_member);
    g->first_member[g->n_components] = (uint32_t) g->n_rules;
}

bool grammar_check(struct grammar *g, struct model_error *error) {
    const size_t n = g->n_rules;
    struct search s = {.g = g};
    struct empty_search m = {.g = g};
    s.visits = berth_calloc(n + 1, sizeof *s.visits);
    s.path = berth_malloc((n + 1) * sizeof *s.path);
    s.open = berth_malloc((n + 1) * sizeof *s.open);
    m.alts = berth_malloc((g->n_alts + 1) * sizeof *m.alts);
    m.first = berth_malloc((n + 1) * sizeof *m.first);
    m.found = berth_malloc((n + 1) * sizeof *m.found);
    g->members = berth_malloc((n + 1) * sizeof *g->members);
    g->first_member = berth_calloc(n + 2, sizeof *g->first_member);
    bool ok = false;
    if (s.visits == NULL || s.path == NULL || s.open == NULL || m.alts == NULL || m.first == NULL || m.found == NULL ||
        g->members == NULL || g->first_member == NULL) {
        model_fail(error, "out of memory for a grammar of %zu rules", n);
        goto end;
    }
    if (!empties_find(&m, error)) {
        goto end;
    }
    for (size_t r = 0; r < n; r++) {
        if (s.visits[r].index == 0) {
            search_enter(&s, (uint32_t) r);
        }
        while (s.n_path > 0) {
            search_step(&s);
        }
        if (!grammar_poll(g, error)) {
            goto end;
        }
    }
    ok = left_recursion_check(&s, error);
    if (ok) {
        members_list(g, &s);
    }
end:
    berth_free(s.visits);
    berth_free(s.path);
    berth_free(s.open);
    berth_free(m.alts);
    berth_free(m.first);
    berth_free(m.found);
    return ok;
}
