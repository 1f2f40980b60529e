// SPDX-License-Identifier: MIT
// plan.c: finds the buffers of a plan, plans their items, and lists the values alive at the peak. The time is O(n log n) in the
// number of items.

#include "view/plan.h"

#include "base/base.h"

#include <inttypes.h>
#include <stdlib.h>

enum ggml_status view_set_make(
    enum ggml_status (*write)(FILE *file, void *user), void *user, const char *path, struct berth_plan_set **set) {
    struct berth_stream s;
    enum ggml_status status = berth_stream_open(&s) ? write(s.file, user) : GGML_STATUS_ALLOC_FAILED;
    if (!berth_stream_close(&s) || status == GGML_STATUS_ALLOC_FAILED) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for the text of the plan", path);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_plan_read_json(s.text, s.size, path, set);
    }
    if (status == GGML_STATUS_SUCCESS) {
        (*set)->has_offsets = false;
    }
    berth_stream_fini(&s);
    return status;
}

// ---- descriptions of pools in the file ----

static int by_pool(const void *a, const void *b) {
    const struct berth_plan_pool *x = a, *y = b;
    return (x->pool > y->pool) - (x->pool < y->pool);
}

void view_pools_sort(struct berth_plan_set *set) {
    if (set->n_pools > 1) {
        qsort(set->pools, set->n_pools, sizeof set->pools[0], by_pool);
    }
}

const struct berth_plan_pool *view_pools_find(const struct berth_plan_set *set, int32_t pool) {
    const struct berth_plan_pool key = {.pool = pool};
    return set->n_pools > 0 ? bsearch(&key, set->pools, set->n_pools, sizeof set->pools[0], by_pool) : NULL;
}

// ---- items per buffer ----

struct member {
    int32_t pool;
    size_t item;
};

static int by_member(const void *a, const void *b) {
    const struct member *x = a, *y = b;
    if (x->pool != y->pool) {
        return x->pool < y->pool ? -1 : 1;
    }
    return (x->item > y->item) - (x->item < y->item);
}

// Returns all items sorted by pool, then by index. NULL: out of memory.
static struct member *members_of(const struct berth_plan_set *set, size_t *n_pools) {
    struct member *members = berth_malloc((set->n_items + 1) * sizeof *members);
    *n_pools = 0;
    for (int64_t i = 0; members != NULL && i < set->n_items; i++) {
        members[i] = (struct member){set->items[i].pool, i};
    }
    if (members != NULL && set->n_items > 0) {
        qsort(members, set->n_items, sizeof *members, by_member);
    }
    for (int64_t i = 0; members != NULL && i < set->n_items; i++) {
        *n_pools += i == 0 || members[i].pool != members[i - 1].pool;
    }
    return members;
}

static struct view_buffer buffer_of(const struct berth_plan_set *set, int32_t pool, const size_t *items) {
    const struct berth_plan_pool *description = view_pools_find(set, pool);
    struct view_buffer buffer = {.pool = pool, .items = items};
    if (description != NULL) {
        buffer.chunk_limit = description->chunk_limit < (uint64_t) 1 << 62 ? description->chunk_limit : 0;
        snprintf(buffer.name, sizeof buffer.name, "%s", description->name);
    }
    return buffer;
}

enum ggml_status view_plan_buffers(struct view_plan *plan) {
    const struct berth_plan_set *set = plan->set;
    size_t n_pools;
    struct member *members = members_of(set, &n_pools);
    plan->order = berth_malloc((set->n_items + 1) * sizeof *plan->order);
    plan->buffers = berth_malloc((n_pools + 1) * sizeof *plan->buffers);
    if (members == NULL || plan->order == NULL || plan->buffers == NULL) {
        berth_free(members);
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for %zu buffers of %" PRId64 " items", n_pools, set->n_items);
    }
    view_pools_sort(plan->set);
    for (int64_t i = 0; i < set->n_items; i++) {
        plan->order[i] = members[i].item;
        if (i == 0 || members[i].pool != members[i - 1].pool) {
            plan->buffers[plan->n_buffers++] = buffer_of(set, members[i].pool, &plan->order[i]);
        }
        plan->buffers[plan->n_buffers - 1].n_items++;
    }
    berth_free(members);
    return GGML_STATUS_SUCCESS;
}

void view_plan_alive_add(struct view_plan *plan, size_t i, const char *name, uint64_t size) {
    if (i < VIEW_BUDGET_N_ALIVE) {
        snprintf(plan->alive[i].name, sizeof plan->alive[i].name, "%s", name);
        plan->alive[i].size = size;
    }
}

void view_plan_free(struct view_plan *plan) {
    berth_plan_set_free(plan->set);
    berth_budget_free(plan->budgeted);
    berth_free(plan->homes);
    for (size_t b = 0; b < plan->n_buffers; b++) {
        berth_free(plan->buffers[b].curve);
    }
    berth_free(plan->buffers);
    berth_free(plan->order);
    *plan = (struct view_plan){0};
}

// ---- planning ----

struct search {
    const struct view_plan *plan;
    int64_t start_us, time_limit_us; // start and time limit of the search over all buffers
    uint64_t done_peak, done_bound;  // sums over the finished buffers
    struct view_buffer *buffer;      // the current one
    int64_t buffer_us;               // when planning of the current buffer began
    int64_t fell_us;                 // time of the last improvement, from start_us; 0: none yet
    bool is_stopped;
};

// Appends a point to the curve of a buffer if the peak or the bound has changed.
static void curve_add(struct view_buffer *b, struct view_point point) {
    const struct view_point *last = b->n_curve > 0 ? &b->curve[b->n_curve - 1] : NULL;
    if (last != NULL && last->peak == point.peak && last->bound == point.bound) {
        return;
    }
    if (b->n_curve == VIEW_CURVE_MAX) {
        b->n_curve = VIEW_CURVE_MAX / 2;
        for (size_t k = 1; k < b->n_curve; k++) {
            b->curve[k] = b->curve[2 * k];
        }
    }
    b->curve[b->n_curve++] = point;
}

static bool search_watch(uint64_t peak, uint64_t bound, void *user) {
    struct search *s = user;
    struct view_buffer *b = s->buffer;
    const int64_t now_us = ggml_time_us();
    if (b->n_curve > 0 && peak < b->curve[b->n_curve - 1].peak) {
        s->fell_us = now_us - s->start_us;
    }
    curve_add(b, (struct view_point){now_us - s->buffer_us, peak, bound});
    const struct view_progress progress = {
        now_us - s->start_us, s->time_limit_us, s->fell_us, s->done_peak + peak, s->done_bound + bound};
    s->is_stopped = s->plan->watch != NULL && !s->plan->watch(&progress, s->plan->watch_user);
    return !s->is_stopped;
}

// The items of the current buffer, with their offsets. The arrays are reused for every buffer.
struct buffer_arrays {
    struct berth_plan_item *items;
    uint64_t *offsets, *start;
};

static enum ggml_status solve_buffer(const struct berth_plan_set *set, struct view_buffer *buffer,
    const struct berth_plan_params *params, struct search *search, struct buffer_arrays *arrays, uint64_t *offsets) {
    struct berth_plan_params own = *params;

    own.chunk_limit = buffer->chunk_limit;
    if (params->start != NULL) {
        own.start = arrays->start;
    }
    for (size_t k = 0; k < buffer->n_items; k++) {
        arrays->items[k] = set->items[buffer->items[k]];
        arrays->start[k] = params->start != NULL ? params->start[buffer->items[k]] : 0;
    }
    berth_free(buffer->curve); // of an earlier plan
    buffer->n_curve = 0;
    buffer->curve = berth_malloc(VIEW_CURVE_MAX * sizeof *buffer->curve);
    if (buffer->curve == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for the curve of a search");
    }
    const int64_t n = (int64_t) buffer->n_items;
    const int64_t start_us = ggml_time_us();
    search->buffer = buffer;
    search->buffer_us = start_us;
    enum ggml_status status =
        berth_plan_solve_watched(arrays->items, n, &own, search_watch, search, arrays->offsets, &buffer->report);
    // The planner reports no time for very short plans.
    buffer->report.time_us = ggml_time_us() - start_us + 1;
    curve_add(buffer, (struct view_point){buffer->report.time_us, buffer->report.peak, buffer->report.bound});
    search->done_peak += buffer->report.peak;
    search->done_bound += buffer->report.bound;
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_plan_check(arrays->items, n, &own, arrays->offsets, NULL);
    }
    for (size_t k = 0; k < buffer->n_items && status == GGML_STATUS_SUCCESS; k++) {
        offsets[buffer->items[k]] = arrays->offsets[k];
    }
    return status;
}

// Sums the reports of all buffers. If one buffer is proven not to fit, the sum is proven. Otherwise the sum is proven only if the
// result of every buffer is proven.
static void sum_reports(const struct view_plan *plan, struct berth_plan_report *sum) {
    uint64_t most = 0;
    bool is_proven_too_large = false;

    *sum = (struct berth_plan_report){.proven = true, .fits = true, .method = "nothing to place"};
    for (size_t b = 0; b < plan->n_buffers; b++) {
        const struct berth_plan_report *r = &plan->buffers[b].report;
        sum->peak += r->peak;
        sum->bound += r->bound;
        sum->proven = sum->proven && r->proven;
        sum->fits = sum->fits && r->fits;
        is_proven_too_large = is_proven_too_large || (!r->fits && r->proven);
        sum->time_us += r->time_us;
        sum->n_nodes += r->n_nodes;
        sum->n_peak += r->n_peak;
        if (b == 0 || r->peak > most) {
            most = r->peak;
            sum->method = r->method;
            sum->bound_step = r->bound_step;
        }
    }
    sum->proven = sum->proven || is_proven_too_large;
    sum->gap = sum->bound > 0 ? (double) sum->peak / (double) sum->bound - 1 : 0;
}

enum ggml_status view_plan_solve(struct view_plan *plan, const struct berth_plan_params *params, uint64_t *offsets,
    struct berth_plan_report *sum, bool *is_stopped) {
    const size_t n = plan->set->n_items + 1;
    struct buffer_arrays arrays = {
        berth_malloc(n * sizeof *arrays.items), berth_malloc(n * sizeof *arrays.offsets), berth_malloc(n * sizeof *arrays.start)};

    struct search search = {.plan = plan, .start_us = ggml_time_us(), .time_limit_us = params->time_limit_us};
    struct berth_plan_params own = *params;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    bool has_chunks = false;
    if (arrays.items == NULL || arrays.offsets == NULL || arrays.start == NULL) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for %zu items", n);
    }
    for (size_t b = 0; b < plan->n_buffers && status == GGML_STATUS_SUCCESS; b++) {
        own.time_limit_us = params->time_limit_us / (int64_t) plan->n_buffers;
        has_chunks = has_chunks || plan->buffers[b].chunk_limit > 0;
        status = solve_buffer(plan->set, &plan->buffers[b], &own, &search, &arrays, offsets);
    }
    *is_stopped = search.is_stopped;
    // Only a check of all items detects items with one alias in different buffers.
    if (!has_chunks && plan->n_buffers > 1 && status == GGML_STATUS_SUCCESS) {
        status = berth_plan_check(plan->set->items, plan->set->n_items, NULL, offsets, NULL);
    }
    berth_free(arrays.items);
    berth_free(arrays.offsets);
    berth_free(arrays.start);
    if (status == GGML_STATUS_SUCCESS) {
        sum_reports(plan, sum);
    }
    return status;
}

// ---- values alive at the peak ----

static int by_size(const void *a, const void *b) {
    const struct view_alive *x = a, *y = b;
    if (x->size != y->size) {
        return x->size < y->size ? 1 : -1;
    }
    return (x->name > y->name) - (x->name < y->name);
}

// Returns the index of the item's first tensor, by binary search, because tensors are sorted by item.
static int64_t first_tensor(const struct berth_plan_set *set, int64_t item) {
    int64_t low = 0;
    for (int64_t high = set->n_tensors; low < high;) {
        const int64_t mid = low + (high - low) / 2;
        if (set->tensors[mid].item < item) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

// The tensors of an item use it one after another, so the last tensor computed up to this step occupies the item.
static struct view_alive alive_of(const struct berth_plan_set *set, int64_t item, int64_t step) {
    struct view_alive alive = {set->items[item].size, set->ids[item], ""};
    for (int64_t t = first_tensor(set, item); t < set->n_tensors && set->tensors[t].item == item; t++) {
        if (set->tensors[t].node <= step) {
            alive.name = set->tensors[t].name;
            alive.op = set->tensors[t].op;
        }
    }
    return alive;
}

struct view_alive *view_alive_at_bound(
    const struct view_plan *plan, const struct view_buffer *buffer, size_t *n, uint64_t *bytes) {
    struct view_alive *list = berth_malloc((buffer->n_items + 1) * sizeof *list);
    const int64_t step = buffer->report.bound_step;
    *n = 0;
    *bytes = 0;
    for (size_t k = 0; list != NULL && k < buffer->n_items; k++) {
        const struct berth_plan_item *item = &plan->set->items[buffer->items[k]];
        if (item->first <= step && step <= item->last && item->size > 0) {
            list[(*n)++] = alive_of(plan->set, buffer->items[k], step);
            *bytes += item->size;
        }
    }
    if (list != NULL && *n > 0) {
        qsort(list, *n, sizeof *list, by_size);
    }
    return list;
}

const struct view_buffer *view_plan_largest(const struct view_plan *plan) {
    const struct view_buffer *most = NULL;
    for (size_t b = 0; b < plan->n_buffers; b++) {
        if (most == NULL || plan->buffers[b].report.peak > most->report.peak) {
            most = &plan->buffers[b];
        }
    }
    return most;
}
