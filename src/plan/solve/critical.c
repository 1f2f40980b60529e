// SPDX-License-Identifier: MIT
// critical.c: plans a problem by an exact search over its core. The core is all blocks that are alive in some section with a
// total near the bound. The core is small (10 of 1,404 blocks in an upscaler, 547 of 18,692 in a language model). If the core
// does not fit into the capacity, the bound rises. If the core fits, the other blocks go into the lowest gaps, the blocks of
// fuller sections first. If a block finds no gap, a larger core is tried.
//
// berth_plan_core plans a core by all methods, as a problem of its own. Local search then places the other blocks (improve.c).

#include "base/min.h"
#include "plan/solve/exact.h"

#include <string.h>

#define REPEAT_FACTOR 8    // node limit of the repetition with a log, as a multiple of that of the ask
#define ROUND_NODES 4      // node limit of an ask, per block of the core
#define SPLIT_BLOCK_NS 100 // counted work of core_split, per block of the problem
#define FAST_BLOCK_NS 3000 // counted work of the first plan of a core, per block of the core

struct core {
    const struct plan_prob *p;
    int64_t cap;
    const struct plan_goal *goal;
    struct plan_state *state;
    int64_t *most;     // [n] the largest total of a section in the lifetime of each block
    int32_t *ids;      // [n] the core, then the others in placing order
    int64_t *core_off; // [2n] offsets by index in the core
    int32_t *scratch;  // [2n]
    uint64_t *key;     // [2n]
    int32_t n_core;
};

// The core is every block with most[i] >= least. The others follow by falling most, then falling size.
static void core_split(struct core *c, int64_t least, struct plan_work *work) {
    const struct plan_prob *p = c->p;
    plan_work_add(work, (int64_t) p->n * SPLIT_BLOCK_NS);
    int32_t n_others = 0;
    c->n_core = 0;
    for (int32_t i = 0; i < p->n; i++) {
        if (c->most[i] >= least) {
            c->ids[c->n_core++] = i;
        } else {
            c->scratch[n_others++] = i;
        }
    }
    // The sort is stable, so the less significant key is sorted first.
    int32_t *others = c->ids + c->n_core;
    memcpy(others, c->scratch, (size_t) n_others * sizeof *others);
    for (int32_t k = 0; k < n_others; k++) {
        c->key[k] = ~(uint64_t) p->size[others[k]];
    }
    berth_plan_sort(c->key, others, c->key + p->n, c->scratch, n_others);
    for (int32_t k = 0; k < n_others; k++) {
        c->key[k] = ~(uint64_t) c->most[others[k]];
    }
    berth_plan_sort(c->key, others, c->key + p->n, c->scratch, n_others);
}

// Tries up to four orders of search. EXACT_NO raises the bound.
static enum exact_answer core_ask(struct core *c, const struct plan_prob *sub) {
    static const struct {
        enum exact_valley valley;
        enum plan_priority preorder;
    } searches[] = {
        {EXACT_TIGHTEST, PLAN_TWA}, {EXACT_TIGHTEST, PLAN_TAW}, {EXACT_NARROWEST, PLAN_TWA}, {EXACT_LOWEST, PLAN_WAT}};
    const int64_t exact_new_us = berth_exact_pairs(sub) / 1000 * EXACT_PAIR_NS;
    const bool is_too_slow = exact_new_us > c->goal->deadline_us - plan_now_us(c->goal->work);
    struct exact *x = is_too_slow ? NULL : berth_exact_new(sub);
    enum exact_answer answer = EXACT_UNKNOWN;
    plan_work_add(c->goal->work, is_too_slow ? 0 : exact_new_us * 1000);
    for (int m = 0; x != NULL && m < 4 && answer == EXACT_UNKNOWN; m++) {
        struct exact_ask ask = {.cap = c->cap,
            .preorder = searches[m].preorder,
            .valley = searches[m].valley,
            .rules = EXACT_ALL,
            .max_nodes = (int64_t) sub->n * ROUND_NODES + 100,
            .deadline_us = c->goal->deadline_us,
            .work = c->goal->work,
            .watch = c->goal->watch,
            .scope = {.ids = c->ids, .n = c->n_core}};
        int64_t next;
        bool is_late;
        answer = berth_exact_ask(x, &ask, c->core_off, &next, &c->state->n_nodes, &is_late);
        if (answer == EXACT_NO && c->goal->proof != NULL) { // a search with a log uses weaker rules, so it is a second one
            ask.proof = c->goal->proof;
            ask.max_nodes *= REPEAT_FACTOR;
            answer = berth_exact_ask(x, &ask, c->core_off, &next, &c->state->n_nodes, &is_late);
        }
        if (answer == EXACT_NO && next > c->state->bound) {
            c->state->bound = min_i64(next, c->state->peak);
        }
    }
    berth_exact_free(x);
    return answer;
}

// Places the other blocks around the core. Returns the peak, -1: some block has no gap, -2: out of memory.
static int64_t core_complete(struct core *c) {
    const struct plan_prob *p = c->p;
    size_t n = (size_t) p->n;
    struct plan_prob whole = *p;
    whole.fixed = berth_malloc(n * sizeof *whole.fixed);
    if (whole.fixed == NULL) {
        return -2;
    }
    for (int32_t i = 0; i < p->n; i++) {
        whole.fixed[i] = -1;
    }
    for (int32_t k = 0; k < c->n_core; k++) {
        c->scratch[k] = c->ids[k];
        c->key[k] = (uint64_t) c->core_off[k];
        whole.fixed[c->ids[k]] = c->core_off[k];
    }
    berth_plan_sort(c->key, c->scratch, c->key + n, c->scratch + n, c->n_core);
    plan_work_add(c->goal->work, plan_work_place(p->n));
    // how.set lists the fixed blocks. So whole.n_fixed stays 0, and berth_plan_lowest_at does not test them a second time.
    const struct plan_placing how = {c->scratch, c->ids + c->n_core, c->n_core, p->n - c->n_core, c->scratch};
    const int64_t peak = berth_plan_place_around(&whole, &how, c->cap, c->state->spare);
    berth_free(whole.fixed);
    return peak;
}

static enum ggml_status core_run(struct core *c, int32_t limit) {
    static const double fractions[] = {0.95, 0.8, 0.6, 0.4};
    int32_t last = 0;
    for (size_t k = 0;
         k < sizeof fractions / sizeof fractions[0] && !plan_is_over(c->goal->deadline_us, c->goal->work, c->goal->watch); k++) {
        core_split(c, (int64_t) ((double) c->p->bound * fractions[k]), c->goal->work);
        if (c->n_core == last || (k > 0 && c->n_core < last + last / 8)) {
            continue;
        }
        if (c->n_core > c->p->n / 2 || (limit > 0 && c->n_core > limit)) {
            break;
        }
        last = c->n_core;
        struct plan_prob sub;
        if (!berth_plan_prob_subset(c->p, c->ids, c->n_core, &sub)) {
            return GGML_STATUS_ALLOC_FAILED;
        }
        enum exact_answer answer = core_ask(c, &sub);
        berth_plan_prob_fini(&sub);
        int64_t peak = answer == EXACT_FITS ? core_complete(c) : -1;
        if (peak == -2) {
            return GGML_STATUS_ALLOC_FAILED;
        }
        if (peak >= 0 && peak < c->state->peak) {
            plan_state_take(c->state, peak, "core");
        }
        if (peak >= 0 || answer != EXACT_FITS) {
            break;
        }
    }
    return GGML_STATUS_SUCCESS;
}

// Allocates the arrays of c. False: out of memory.
static bool core_init(struct core *c, struct berth_arrays *mem) {
    const size_t n = (size_t) c->p->n;
    c->most = berth_arrays_new(mem, n, sizeof *c->most);
    c->core_off = berth_arrays_new(mem, 2 * n, sizeof *c->core_off);
    c->ids = berth_arrays_new(mem, n, sizeof *c->ids);
    c->scratch = berth_arrays_new(mem, 2 * n, sizeof *c->scratch);
    c->key = berth_arrays_new(mem, 2 * n, sizeof *c->key);
    return !mem->has_failed && berth_plan_life_max(c->p, c->most);
}

// Plans the core as a problem of its own. Returns false if there is no plan.
static bool core_plan(const struct core *c, const struct plan_goal *g, struct plan_state *st) {
    struct plan_prob sub;
    if (!berth_plan_prob_subset(c->p, c->ids, c->n_core, &sub)) {
        return false;
    }
    st->bound = sub.bound;
    plan_work_add(g->work, (int64_t) c->n_core * FAST_BLOCK_NS);
    enum ggml_status status = berth_plan_fast(&sub, g, st);
    if (status == GGML_STATUS_SUCCESS && !plan_is_done(st, g) && !plan_is_over(g->deadline_us, g->work, g->watch)) {
        status = berth_plan_search(&sub, g, st);
    }
    berth_plan_prob_fini(&sub);
    return status == GGML_STATUS_SUCCESS && st->peak != PLAN_NO_CAP;
}

int32_t berth_plan_core(const struct plan_prob *p, double part, int64_t until_us, const struct plan_goal *g, int64_t *off) {
    struct core c = {.p = p};
    struct berth_arrays mem = {0};
    if (!core_init(&c, &mem)) {
        berth_arrays_free(&mem);
        return 0;
    }
    core_split(&c, (int64_t) ((double) p->bound * part), g->work);
    struct plan_goal goal = *g;
    goal.deadline_us = min_i64(until_us, g->deadline_us);
    goal.n_threads = 1;
    goal.proof = NULL;
    struct plan_state st = {.peak = PLAN_NO_CAP, .method = "core", .off = c.core_off, .spare = c.core_off + p->n};
    int32_t n_placed = 0;
    if (c.n_core <= p->n / 2 && core_plan(&c, &goal, &st)) {
        for (int32_t i = 0; i < p->n; i++) {
            off[i] = -1;
        }
        for (int32_t k = 0; k < c.n_core; k++) {
            off[c.ids[k]] = st.off[k];
        }
        n_placed = c.n_core;
    }
    berth_arrays_free(&mem);
    return n_placed;
}

enum ggml_status berth_plan_critical(
    const struct plan_prob *p, int64_t cap, int32_t limit, const struct plan_goal *g, struct plan_state *s) {
    struct core c = {.p = p, .cap = cap, .goal = g, .state = s};
    struct berth_arrays mem = {0};
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    if (core_init(&c, &mem)) {
        status = core_run(&c, limit);
    }
    berth_arrays_free(&mem);
    return status == GGML_STATUS_SUCCESS ? status : berth_fail(status, "plan: out of memory for the core of %d blocks", p->n);
}
