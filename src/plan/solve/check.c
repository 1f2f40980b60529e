// SPDX-License-Identifier: MIT
// check.c: checks whether a plan is valid. In debug builds the planner checks every plan before it returns the plan.
// The items are entered into a tree over time, by rising offset. The tree holds the highest end of the entered items for each
// time. An item collides if the highest end in its lifetime is above its offset. Members of one alias group may share bytes, so
// all members are checked before any of them is entered. The time is O(n log n).

#include "base/min.h"
#include "plan/solve/plan.h"

#include <string.h>

// ---- the highest end in a range of time ----

struct tops {
    uint64_t *over; // [2 * n] highest end entered for the whole node
    uint64_t *most; // [2 * n] highest end at any time in the node
    size_t n;
};

static uint64_t tops_query(const struct tops *t, size_t lo, size_t hi) {
    uint64_t most = 0;
    size_t l = lo + t->n;
    size_t h = hi + t->n;
    for (size_t x = l, y = h; x < y; x /= 2, y /= 2) {
        if (x & 1) {
            most = max_u64(t->most[x], most);
            x++;
        }
        if (y & 1) {
            y--;
            most = max_u64(t->most[y], most);
        }
    }
    // An end that was entered for an ancestor also covers the range.
    for (size_t x = l; x > 0; x /= 2) {
        most = max_u64(t->over[x], most);
    }
    for (size_t x = h - 1; x > 0; x /= 2) {
        most = max_u64(t->over[x], most);
    }
    return most;
}

static void tops_enter_node(struct tops *t, size_t x, uint64_t top) {
    t->over[x] = max_u64(top, t->over[x]);
    for (; x > 0; x /= 2) {
        t->most[x] = max_u64(top, t->most[x]);
    }
}

static void tops_enter(struct tops *t, size_t lo, size_t hi, uint64_t top) {
    for (size_t x = lo + t->n, y = hi + t->n; x < y; x /= 2, y /= 2) {
        if (x & 1) {
            tops_enter_node(t, x++, top);
        }
        if (y & 1) {
            tops_enter_node(t, --y, top);
        }
    }
}

// ---- collisions ----

struct spot {
    uint64_t off, size;
    int64_t first, last;
    int32_t pool, alias;
};

static bool spots_meet(const struct spot *x, const struct spot *y) {
    return x->pool == y->pool && x->first <= y->last && y->first <= x->last && x->off < y->off + y->size &&
           y->off < x->off + x->size && !(x->alias > 0 && x->alias == y->alias);
}

// Indices with their sort keys and the scratch of the sort. The sort is stable, so to sort by several keys, the least significant
// key is sorted first.
struct order {
    int32_t *idx, *tmp_idx;
    uint64_t *key, *tmp_key;
    int32_t n;
};

enum order_key { BY_ALIAS, BY_OFFSET, BY_POOL };

static bool order_init(struct order *o, int64_t n) {
    const size_t each = 2 * (sizeof *o->key + sizeof *o->idx);
    o->n = 0;
    o->key = berth_malloc((size_t) n * each);
    if (o->key == NULL) {
        return false;
    }
    o->tmp_key = o->key + n;
    o->idx = (int32_t *) (o->tmp_key + n);
    o->tmp_idx = o->idx + n;
    return true;
}

static void order_fini(struct order *o) {
    berth_free(o->key);
}

static void order_sort(struct order *o, const struct spot *spots, enum order_key by) {
    for (int32_t k = 0; k < o->n; k++) {
        const struct spot *x = &spots[o->idx[k]];
        const int64_t group = by == BY_POOL ? x->pool : x->alias;
        o->key[k] = by == BY_OFFSET ? x->off : (uint64_t) (group - INT32_MIN);
    }
    berth_plan_sort(o->key, o->idx, o->tmp_key, o->tmp_idx, o->n);
}

// Fills o->key with the sorted, unique steps at which items begin or end. Returns their number.
static size_t times_sort(struct order *o, const struct spot *spots, const int32_t *idx, int32_t n) {
    for (int32_t k = 0; k < n; k++) {
        o->key[2 * k] = (uint64_t) spots[idx[k]].first ^ (uint64_t) INT64_MIN; // flips the sign: negative steps come first
        o->key[2 * k + 1] = (uint64_t) spots[idx[k]].last ^ (uint64_t) INT64_MIN;
    }
    memset(o->idx, 0, (size_t) n * 2 * sizeof *o->idx); // the sort needs indices, but nothing reads them
    berth_plan_sort(o->key, o->idx, o->tmp_key, o->tmp_idx, 2 * n);
    size_t n_unique = 0;
    for (int32_t k = 0; k < 2 * n; k++) {
        if (n_unique == 0 || o->key[n_unique - 1] != o->key[k]) {
            o->key[n_unique++] = o->key[k];
        }
    }
    return n_unique;
}

static size_t time_index(const uint64_t *t, size_t n, int64_t step) {
    const uint64_t x = (uint64_t) step ^ (uint64_t) INT64_MIN;
    size_t lo = 0;
    while (n > 1) {
        size_t half = n / 2;
        if (t[lo + half] <= x) {
            lo += half;
        }
        n -= half;
    }
    return lo;
}

static bool is_same_group(const struct spot *x, const struct spot *y) {
    return x->alias > 0 && x->alias == y->alias && x->off == y->off;
}

// Returns the first spot that collides with an earlier spot, -1: none, -2: out of memory.
static int64_t sweep_pool(const struct spot *spots, const int32_t *idx, int32_t n) {
    int64_t found = -1;
    struct order times;
    if (!order_init(&times, 2 * (int64_t) n)) {
        return -2;
    }
    struct tops tops = {.n = times_sort(&times, spots, idx, n)};
    tops.over = berth_calloc(4 * tops.n, sizeof *tops.over);
    if (tops.over == NULL) {
        order_fini(&times);
        return -2;
    }
    tops.most = tops.over + 2 * tops.n;
    for (int32_t i = 0; i < n && found < 0;) {
        int32_t end = i + 1; // end of the members of one group
        while (end < n && is_same_group(&spots[idx[i]], &spots[idx[end]])) {
            end++;
        }
        for (int32_t j = i; j < end && found < 0; j++) {
            const struct spot *x = &spots[idx[j]];
            if (tops_query(&tops, time_index(times.key, tops.n, x->first), time_index(times.key, tops.n, x->last) + 1) > x->off) {
                found = idx[j];
            }
        }
        for (; i < end; i++) {
            const struct spot *x = &spots[idx[i]];
            tops_enter(
                &tops, time_index(times.key, tops.n, x->first), time_index(times.key, tops.n, x->last) + 1, x->off + x->size);
        }
    }
    berth_free(tops.over);
    order_fini(&times);
    return found;
}

// Returns the first spot that collides, -1: none, -2: out of memory. Each pool has a tree over its own times, so many pools take
// no more time than one.
static int64_t spots_sweep(const struct spot *spots, struct order *o) {
    int64_t found = -1;
    order_sort(o, spots, BY_ALIAS);
    order_sort(o, spots, BY_OFFSET);
    order_sort(o, spots, BY_POOL);
    for (int32_t i = 0, end; i < o->n && found == -1; i = end) {
        for (end = i + 1; end < o->n && spots[o->idx[end]].pool == spots[o->idx[i]].pool;) {
            end++;
        }
        found = sweep_pool(spots, o->idx + i, end - i);
    }
    return found;
}

// Finds two members of one alias group with different offsets or pools. False: there are none.
static bool alias_fault(const struct spot *spots, struct order *o, int64_t *i, int64_t *j) {
    order_sort(o, spots, BY_ALIAS);
    for (int32_t k = 1; k < o->n; k++) {
        const struct spot *x = &spots[o->idx[k - 1]], *y = &spots[o->idx[k]];
        if (x->alias > 0 && x->alias == y->alias && (x->off != y->off || x->pool != y->pool)) {
            *i = o->idx[k - 1];
            *j = o->idx[k];
            return true;
        }
    }
    return false;
}

// ---- one item ----

static enum berth_plan_fault_kind item_fault(const struct berth_plan_item *item, uint64_t off, uint64_t chunk_limit) {
    if (item->last < item->first || item->size > PLAN_SIZE_MAX || (chunk_limit > 0 && item->size > chunk_limit) ||
        item->alias < 0) {
        return BERTH_PLAN_ITEM;
    }
    if (off > (uint64_t) INT64_MAX - item->size) {
        return BERTH_PLAN_OVERFLOW;
    }
    if (item->is_fixed && off != item->fixed) {
        return BERTH_PLAN_FIXED;
    }
    uint64_t in = chunk_limit > 0 ? off % chunk_limit : off;
    if (item->align > 1 && in % item->align != 0) {
        return BERTH_PLAN_ALIGN;
    }
    return chunk_limit > 0 && item->size > chunk_limit - in ? BERTH_PLAN_CHUNK : BERTH_PLAN_SOUND;
}

static enum ggml_status fault_report(struct berth_plan_fault *fault, enum berth_plan_fault_kind kind, int64_t i, int64_t j) {
    if (fault != NULL) {
        *fault = (struct berth_plan_fault){kind, j >= 0 && j < i ? j : i, j >= 0 && j < i ? i : j};
    }
    return kind == BERTH_PLAN_SOUND ? GGML_STATUS_SUCCESS : GGML_STATUS_FAILED;
}

enum ggml_status berth_plan_check(const struct berth_plan_item *items, int64_t n, const struct berth_plan_params *params,
    const uint64_t *offsets, struct berth_plan_fault *fault) {
    uint64_t chunk_limit = params != NULL ? params->chunk_limit : 0;
    if (n <= 0 || items == NULL || offsets == NULL) {
        return n == 0 ? fault_report(fault, BERTH_PLAN_SOUND, -1, -1)
                      : berth_fail(GGML_STATUS_FAILED, "plan check: no items to check (n = %lld)", (long long) n);
    }
    if (n > INT32_MAX / 4) { // the same limit as for planning
        return berth_fail(
            GGML_STATUS_FAILED, "plan check: cannot check %lld items (allowed: 0 to %d)", (long long) n, INT32_MAX / 4);
    }
    for (int64_t i = 0; i < n; i++) {
        enum berth_plan_fault_kind kind = item_fault(&items[i], offsets[i], chunk_limit);
        if (kind != BERTH_PLAN_SOUND) {
            return fault_report(fault, kind, i, -1);
        }
    }
    struct order o = {0};
    struct spot *spots = berth_malloc((size_t) n * sizeof *spots);
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    int64_t i = -2, j = -1;
    if (spots == NULL || !order_init(&o, n)) {
        goto done;
    }
    bool has_alias = false;
    for (int64_t k = 0; k < n; k++) {
        spots[k] = (struct spot){offsets[k], items[k].size, items[k].first, items[k].last, items[k].pool, items[k].alias};
        has_alias |= items[k].alias > 0;
        o.idx[o.n++] = (int32_t) k;
    }
    if (has_alias && alias_fault(spots, &o, &i, &j)) {
        status = fault_report(fault, BERTH_PLAN_ALIAS, i, j);
        goto done;
    }
    o.n = 0;
    for (int64_t k = 0; k < n; k++) {
        o.idx[o.n] = (int32_t) k;
        o.n += items[k].size > 0;
    }
    i = spots_sweep(spots, &o);
    for (int64_t x = 0; i >= 0 && x < n && j < 0; x++) {
        j = x != i && items[x].size > 0 && spots_meet(&spots[x], &spots[i]) ? x : -1;
    }
    if (i == -2) {
        status = GGML_STATUS_ALLOC_FAILED;
    } else {
        status = i < 0 ? fault_report(fault, BERTH_PLAN_SOUND, -1, -1) : fault_report(fault, BERTH_PLAN_COLLIDE, i, j);
    }
done:
    if (status == GGML_STATUS_ALLOC_FAILED) {
        berth_fail(status, "plan check: out of memory for %lld items", (long long) n);
    }
    order_fini(&o);
    berth_free(spots);
    return status;
}

bool berth_plan_is_valid(const struct plan_prob *p, const int64_t *off) {
    for (int32_t i = 0; i < p->n; i++) {
        if (off[i] < 0 || p->size[i] > INT64_MAX - off[i]) {
            return false;
        }
        if (p->fixed != NULL && p->fixed[i] >= 0 && off[i] != p->fixed[i]) {
            return false;
        }
        int64_t in = p->chunk > 0 ? off[i] % p->chunk : off[i];
        if ((p->align != NULL && in % p->align[i] != 0) || (p->chunk > 0 && p->size[i] > p->chunk - in)) {
            return false;
        }
    }
    struct order o = {0};
    struct spot *spots = berth_malloc((size_t) p->n * sizeof *spots);
    bool ok = true;
    if (spots != NULL && order_init(&o, p->n)) {
        for (; o.n < p->n; o.n++) {
            const int32_t i = o.n;
            // All fixed blocks get alias 1. So fixed blocks at the same offset may share bytes, because they are members of one
            // group. berth_plan_blocks has refused all other collisions of fixed blocks.
            int32_t group = p->fixed != NULL && p->fixed[i] >= 0 ? 1 : 0;
            spots[i] = (struct spot){(uint64_t) off[i], (uint64_t) p->size[i], p->begin[i], p->end[i] - 1, 0, group};
            o.idx[i] = i;
        }
        ok = spots_sweep(spots, &o) < 0; // out of memory counts as valid
    }
    order_fini(&o);
    berth_free(spots);
    return ok;
}
