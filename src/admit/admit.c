// SPDX-License-Identifier: MIT
// admit.c: admits requests, counts steps and ends sequences.

#include "admit/admit.h"

#include "admit/state.h"
#include "base/base.h"
#include "base/min.h"

// Limits of the parameters. With them, no sum below overflows.
#define MAX_COUNT ((int64_t) 1 << 30)
#define MAX_RUNNING (1 << 20)

static bool params_are_valid(const struct admit_params *p) {
    const int64_t counts[] = {p->n_page, p->n_pages, p->n_ctx, p->n_batch};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (counts[i] < 1 || counts[i] > MAX_COUNT) {
            return false;
        }
    }
    return p->n_running >= 1 && p->n_running <= MAX_RUNNING && p->n_batch >= p->n_running && p->n_chunk >= 0;
}

// The arrays follow struct admit in one block. Arrays whose elements need the largest alignment come first.
struct layout {
    size_t nodes, begin, schedules, total, extra, active, place; // offsets
    size_t size;
};

static size_t array_place(struct layout *l, size_t n, size_t size) {
    const size_t at = l->size;
    l->size += n * size;
    return at;
}

static struct layout layout_of(const struct admit_params *p) {
    const size_t n_running = (size_t) p->n_running, n_ctx = (size_t) p->n_ctx;
    struct layout l = {.size = sizeof(struct admit)};
    l.nodes = array_place(&l, 2 * n_running, sizeof(struct admit_node));
    l.begin = array_place(&l, n_running, sizeof(int64_t));
    l.schedules = array_place(&l, n_running + 1, sizeof(struct admit_schedule));
    l.total = array_place(&l, n_ctx, sizeof(int32_t));
    l.extra = array_place(&l, n_ctx, sizeof(int32_t));
    l.active = array_place(&l, n_running, sizeof(int32_t));
    l.place = array_place(&l, n_running, sizeof(int32_t));
    return l;
}

size_t admit_size(const struct admit_params *params) {
    return params_are_valid(params) ? layout_of(params).size : 0;
}

struct admit *admit_new(const struct admit_params *params) {
    if (!params_are_valid(params)) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED,
            "admit: %lld pages of %lld tokens, context %lld, %d sequences, %lld tokens per step: each must be from 1 to 2^30 "
            "(sequences: "
            "2^20), and a step needs a token per sequence",
            (long long) params->n_pages, (long long) params->n_page, (long long) params->n_ctx, params->n_running,
            (long long) params->n_batch);
    }
    const struct layout l = layout_of(params);
    char *block = berth_malloc(l.size);
    if (block == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_ALLOC_FAILED, "admit: cannot allocate %zu bytes for %d sequences and %lld steps",
            l.size, params->n_running, (long long) params->n_ctx);
    }
    memset(block, 0, l.size); // also makes the memory resident, so that no later step can fail for lack of it
    struct admit *a = (struct admit *) (void *) block;
    a->params = *params;
    a->n_extra = params->n_batch - params->n_running;
    a->nodes = (struct admit_node *) (void *) (block + l.nodes);
    a->begin = (int64_t *) (void *) (block + l.begin);
    a->schedules = (struct admit_schedule *) (void *) (block + l.schedules);
    a->total = (int32_t *) (void *) (block + l.total);
    a->extra = (int32_t *) (void *) (block + l.extra);
    a->active = (int32_t *) (void *) (block + l.active);
    a->place = (int32_t *) (void *) (block + l.place);
    for (int32_t i = 0; i < params->n_running; i++) {
        a->active[i] = i;
        a->place[i] = i;
    }
    admit_tree_init(a);
    return a;
}

void admit_free(struct admit *a) {
    berth_free(a);
}

bool admit_is_running(const struct admit *a, int id) {
    return id >= 0 && id < a->params.n_running && a->place[id] < a->n_active;
}

// ---- requests ----

// Returns status.
static enum admit_status reason_set(
    struct admit_reason *reason, enum admit_status status, enum admit_why why, int64_t n_need, int64_t n_have) {
    *reason = (struct admit_reason){.why = why, .n_need = n_need, .n_have = n_have};
    return status;
}

static int64_t pages_for(const struct admit *a, int64_t n_tokens) {
    return (n_tokens + a->params.n_page - 1) / a->params.n_page;
}

// The most pages that the request holds in a step, shared ones included.
static int64_t request_pages(const struct admit *a, const struct admit_request *r) {
    return pages_for(a, r->n_prompt + max_i64(r->n_new - 1, 0));
}

// Refuses requests that break a rule, or that do not fit alone.
static enum admit_status request_check(const struct admit *a, const struct admit_request *r, struct admit_reason *why) {
    const struct admit_params *p = &a->params;
    if (r->n_prompt < 1 || r->n_new < 0) {
        return reason_set(why, ADMIT_INVALID, ADMIT_WHY_TOKENS, r->n_prompt < 1 ? r->n_prompt : r->n_new, r->n_prompt < 1);
    }
    int64_t n_tokens;
    if (!berth_add_i64_ok(r->n_prompt, r->n_new, &n_tokens)) {
        n_tokens = INT64_MAX;
    }
    if (n_tokens > p->n_ctx) {
        return reason_set(why, ADMIT_NEVER, ADMIT_WHY_CONTEXT, n_tokens, p->n_ctx);
    }
    if (request_pages(a, r) > p->n_pages) {
        return reason_set(why, ADMIT_NEVER, ADMIT_WHY_PAGES, request_pages(a, r), p->n_pages);
    }
    if (r->n_cached < 0 || r->n_cached >= r->n_prompt || r->n_cached % p->n_page != 0) {
        return reason_set(why, ADMIT_INVALID, ADMIT_WHY_CACHED, r->n_cached, r->n_prompt - 1);
    }
    if (r->n_shared < 0 || r->n_shared > r->n_cached || r->n_shared % p->n_page != 0) {
        return reason_set(why, ADMIT_INVALID, ADMIT_WHY_CACHED, r->n_shared, r->n_cached);
    }
    if (r->n_shared > 0 && admit_computed(a, r->sharer) < r->n_shared) {
        return reason_set(why, ADMIT_INVALID, ADMIT_WHY_SHARER, r->n_shared, admit_computed(a, r->sharer));
    }
    return ADMIT_YES;
}

// The steps until n further pages and a further sequence fit for good, if nothing is admitted before.
static int64_t steps_to_wait(const struct admit *a, int64_t n) {
    int64_t n_first = a->params.n_ctx, n_last = 0;
    for (int i = 0; i < a->n_active; i++) {
        const int64_t n_left = a->nodes[a->active[i]].end - a->now;
        n_first = min_i64(n_first, n_left);
        n_last = max_i64(n_last, n_left);
    }
    while (n_last > 0 && admit_ring_get(a, a->total, n_last - 1) + n <= a->params.n_pages) {
        n_last--;
    }
    return a->n_active == a->params.n_running ? max_i64(n_first, n_last) : n_last;
}

// Pieces of the pages that a new sequence adds to the totals.
static struct admit_pieces pieces_of_new(const struct admit *a, const struct admit_schedule *s, int32_t above, int32_t n_shared) {
    const int32_t n_above = above >= 0 ? n_shared - a->nodes[above].base : 0;
    return (struct admit_pieces){.a = a, .s = s, .base = n_shared, .above = above, .n_above = n_above};
}

// The first step in which the pages do not suffice for all pieces; -1: they suffice.
static int64_t first_excess(const struct admit *a, struct admit_pieces p, int64_t *n_need) {
    while (admit_pieces_next(&p)) {
        if (admit_ring_max(a, a->total, p.i_step, p.n) + (int64_t) p.n_pages <= a->params.n_pages) {
            continue;
        }
        int64_t i_step = p.i_step;
        while (admit_ring_get(a, a->total, i_step) + (int64_t) p.n_pages <= a->params.n_pages) {
            i_step++;
        }
        *n_need = admit_ring_get(a, a->total, i_step) + (int64_t) p.n_pages;
        return i_step;
    }
    return -1;
}

// Adds a sequence with the schedule of the request being decided. Returns its id.
static int sequence_add(struct admit *a, struct admit_pieces p, int32_t above, int32_t n_shared) {
    const struct admit_schedule *s = p.s;
    const int id = a->active[a->n_active++];
    while (admit_pieces_next(&p)) {
        admit_ring_add(a, a->total, p.i_step, p.n, p.n_pages);
    }
    admit_schedule_add_extra(a, s, 0, 1);
    admit_tree_add(a, id, above, n_shared, a->now + s->n_steps);
    a->schedules[id] = *s;
    a->begin[id] = a->now;
    return id;
}

static enum admit_status request_decide(struct admit *a, const struct admit_request *r, int *id, struct admit_reason *why) {
    const enum admit_status checked = request_check(a, r, why);
    if (checked != ADMIT_YES) {
        return checked;
    }
    if (a->n_active == a->params.n_running) {
        return reason_set(why, ADMIT_WAIT, ADMIT_WHY_RUNNING, a->n_active + 1, a->params.n_running);
    }
    struct admit_schedule *s = &a->schedules[a->params.n_running];
    admit_schedule_make(a, r, s);
    const int32_t n_shared = (int32_t) (r->n_shared / a->params.n_page);
    const int32_t above = n_shared > 0 ? admit_tree_find(a, r->sharer, n_shared - 1) : -1;
    const struct admit_pieces pieces = pieces_of_new(a, s, above, n_shared);
    int64_t n_need = 0;
    const int64_t i_step = first_excess(a, pieces, &n_need);
    if (i_step >= 0) {
        reason_set(why, ADMIT_WAIT, ADMIT_WHY_PAGES, n_need, a->params.n_pages);
        why->i_step = i_step;
        return ADMIT_WAIT;
    }
    *id = sequence_add(a, pieces, above, n_shared);
    return ADMIT_YES;
}

enum admit_status admit_request(struct admit *a, const struct admit_request *r, int *id, struct admit_reason *reason) {
    struct admit_reason why = {0};
    *id = -1;
    const enum admit_status status = request_decide(a, r, id, &why);
    if (reason != NULL) {
        *reason = why;
        if (status == ADMIT_WAIT) {
            reason->n_wait = steps_to_wait(a, request_pages(a, r));
        }
    }
    return status;
}

// ---- steps ----

void admit_end(struct admit *a, int id) {
    if (!admit_is_running(a, id)) {
        return;
    }
    const struct admit_schedule *s = &a->schedules[id];
    const int64_t now_t = a->now - a->begin[id];
    struct admit_pieces p = {.a = a, .s = s, .now_t = now_t, .t = now_t, .base = a->nodes[id].base, .above = -1};
    while (admit_pieces_next(&p)) {
        admit_ring_add(a, a->total, p.i_step, p.n, -p.n_pages);
    }
    admit_schedule_add_extra(a, s, now_t, -1);
    admit_tree_remove(a, id);
    // The last running sequence moves to the place of this one.
    const int32_t last = a->active[--a->n_active];
    a->active[a->place[id]] = last;
    a->place[last] = a->place[id];
    a->active[a->n_active] = id;
    a->place[id] = a->n_active;
}

void admit_advance(struct admit *a) {
    a->total[a->i_now] = 0;
    a->extra[a->i_now] = 0;
    a->i_now = a->i_now + 1 < a->params.n_ctx ? a->i_now + 1 : 0;
    a->now++;
    for (int i = a->n_active - 1; i >= 0; i--) { // downwards, because admit_end moves a later sequence to place i
        if (a->nodes[a->active[i]].end <= a->now) {
            admit_end(a, a->active[i]);
        }
    }
}

// ---- queries ----

int64_t admit_tokens_at(const struct admit *a, int id, int64_t t) {
    if (t < 0 || t >= admit_steps_left(a, id)) {
        return 0;
    }
    return admit_schedule_run(&a->schedules[id], a->now - a->begin[id] + t)->size;
}

int64_t admit_tokens(const struct admit *a, int id) {
    return admit_tokens_at(a, id, 0);
}

int64_t admit_computed(const struct admit *a, int id) {
    return admit_is_running(a, id) ? admit_schedule_before(&a->schedules[id], a->now - a->begin[id]) : 0;
}

int64_t admit_steps_left(const struct admit *a, int id) {
    return admit_is_running(a, id) ? a->nodes[id].end - a->now : 0;
}

int64_t admit_total(const struct admit *a, int64_t t) {
    return t < 0 || t >= a->params.n_ctx ? 0 : admit_ring_get(a, a->total, t);
}

int64_t admit_peak(const struct admit *a) {
    return admit_ring_max(a, a->total, 0, a->params.n_ctx);
}

int admit_n_running(const struct admit *a) {
    return a->n_active;
}
