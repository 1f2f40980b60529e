// SPDX-License-Identifier: MIT
// check.c: is a plan valid? The law that every plan passes before it leaves the planner in debug builds.
// Items are taken by rising offset; a tree over time knows the highest end so far. An item collides if and only if the highest
// end over its life lies above its offset. Members of one alias group are asked first and entered together. O(n log n).

#include "plan/plan.h"

// ---- highest end over a range of time ----

struct tops {
    uint64_t *over; // [2 * n] the highest end entered for all of the node
    uint64_t *most; // [2 * n] the highest end anywhere below the node
    size_t n;
};

static uint64_t tops_ask(const struct tops *t, size_t lo, size_t hi) {
    uint64_t most = 0;
    size_t l      = lo + t->n;
    size_t h      = hi + t->n;
    for (size_t x = l, y = h; x < y; x /= 2, y /= 2) {
        if (x & 1) {
            most = t->most[x] > most ? t->most[x] : most;
            x++;
        }
        if (y & 1) {
            y--;
            most = t->most[y] > most ? t->most[y] : most;
        }
    }
    // what was entered above either border covers part of the range
    for (size_t x = l; x > 0; x /= 2) {
        most = t->over[x] > most ? t->over[x] : most;
    }
    for (size_t x = h - 1; x > 0; x /= 2) {
        most = t->over[x] > most ? t->over[x] : most;
    }
    return most;
}

static void tops_enter_node(struct tops *t, size_t x, uint64_t top) {
    t->over[x] = top > t->over[x] ? top : t->over[x];
    for (; x > 0; x /= 2) {
        t->most[x] = top > t->most[x] ? top : t->most[x];
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

// What the sweep needs of an item.
struct spot {
    uint64_t off, size;
    int64_t first, last;
    int32_t pool, alias;
};

static int spot_cmp(const struct spot *x, const struct spot *y) {
    if (x->pool != y->pool) {
        return x->pool < y->pool ? -1 : 1;
    }
    if (x->off != y->off) {
        return x->off < y->off ? -1 : 1;
    }
    return x->alias != y->alias ? (x->alias < y->alias ? -1 : 1) : 0;
}

static bool spots_meet(const struct spot *x, const struct spot *y) {
    return x->pool == y->pool && x->first <= y->last && y->first <= x->last && x->off < y->off + y->size &&
           y->off < x->off + x->size && !(x->alias >= 0 && x->alias == y->alias);
}

// A heap sort: no memory, no recursion, no bad case.
static void sift_spots(int64_t *order, const struct spot *spots, int64_t i, int64_t n) {
    for (int64_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && spot_cmp(&spots[order[child]], &spots[order[child + 1]]) < 0) {
            child++;
        }
        if (spot_cmp(&spots[order[i]], &spots[order[child]]) >= 0) {
            return;
        }
        int64_t swap = order[i];
        order[i]     = order[child];
        order[child] = swap;
        i            = child;
    }
}

static void sort_spots(int64_t *order, const struct spot *spots, int64_t n) {
    for (int64_t i = n / 2 - 1; i >= 0; i--) {
        sift_spots(order, spots, i, n);
    }
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t swap = order[0];
        order[0]     = order[i];
        order[i]     = swap;
        sift_spots(order, spots, 0, i);
    }
}

static void sift_times(int64_t *t, size_t i, size_t n) {
    for (size_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        child += child + 1 < n && t[child] < t[child + 1];
        if (t[i] >= t[child]) {
            return;
        }
        int64_t swap = t[i];
        t[i]         = t[child];
        t[child]     = swap;
        i            = child;
    }
}

static size_t sort_times(int64_t *t, size_t n) {
    for (size_t i = n / 2; i-- > 0;) {
        sift_times(t, i, n);
    }
    for (size_t i = n; i-- > 1;) {
        int64_t swap = t[0];
        t[0]         = t[i];
        t[i]         = swap;
        sift_times(t, 0, i);
    }
    size_t n_unique = 0;
    for (size_t i = 0; i < n; i++) {
        if (n_unique == 0 || t[n_unique - 1] != t[i]) {
            t[n_unique++] = t[i];
        }
    }
    return n_unique;
}

static size_t time_index(const int64_t *t, size_t n, int64_t x) {
    size_t lo = 0;
    while (n > 1) {
        size_t half = n / 2;
        lo          = t[lo + half] <= x ? lo + half : lo;
        n -= half;
    }
    return lo;
}

// The first of the sorted spots of one pool that meets an earlier one, or -1; -2: out of memory.
static int64_t sweep_pool(const struct spot *spots, const int64_t *order, int64_t n) {
    int64_t found    = -1;
    int64_t *times   = berth_malloc((size_t) n * 2 * sizeof *times);
    struct tops tops = {0};
    if (times == NULL) {
        return -2;
    }
    for (int64_t i = 0; i < n; i++) {
        times[2 * i]     = spots[order[i]].first;
        times[2 * i + 1] = spots[order[i]].last;
    }
    tops.n    = sort_times(times, (size_t) n * 2);
    tops.over = berth_calloc(4 * tops.n, sizeof *tops.over);
    if (tops.over == NULL) {
        berth_free(times);
        return -2;
    }
    tops.most = tops.over + 2 * tops.n;
    for (int64_t i = 0; i < n && found < 0;) {
        const struct spot *s = &spots[order[i]];
        int64_t end          = i + 1; // of the members of one group
        while (s->alias >= 0 && end < n && spot_cmp(s, &spots[order[end]]) == 0) {
            end++;
        }
        for (int64_t j = i; j < end && found < 0; j++) {
            const struct spot *x = &spots[order[j]];
            if (tops_ask(&tops, time_index(times, tops.n, x->first), time_index(times, tops.n, x->last) + 1) > x->off) {
                found = order[j];
            }
        }
        for (; i < end; i++) {
            const struct spot *x = &spots[order[i]];
            tops_enter(&tops, time_index(times, tops.n, x->first), time_index(times, tops.n, x->last) + 1, x->off + x->size);
        }
    }
    berth_free(tops.over);
    berth_free(times);
    return found;
}

// The same over all pools, each with the times of its own items: many pools cost no more than one.
static int64_t sweep(const struct spot *spots, const int64_t *order, int64_t n) {
    int64_t found = -1;
    for (int64_t i = 0, end; i < n && found == -1; i = end) {
        for (end = i + 1; end < n && spots[order[end]].pool == spots[order[i]].pool;) {
            end++;
        }
        found = sweep_pool(spots, order + i, end - i);
    }
    return found;
}

// ---- one item ----

static enum berth_plan_fault_kind item_fault(const struct berth_plan_item *item, uint64_t off, uint64_t max_chunk) {
    if (item->last < item->first || item->size > PLAN_SIZE_MAX || (max_chunk > 0 && item->size > max_chunk)) {
        return BERTH_PLAN_ITEM;
    }
    if (off > (uint64_t) INT64_MAX - item->size) {
        return BERTH_PLAN_OVERFLOW;
    }
    if (item->fixed != BERTH_PLAN_ANY && off != item->fixed) {
        return BERTH_PLAN_FIXED;
    }
    uint64_t in = max_chunk > 0 ? off % max_chunk : off;
    if (item->align > 1 && in % item->align != 0) {
        return BERTH_PLAN_ALIGN;
    }
    return max_chunk > 0 && item->size > max_chunk - in ? BERTH_PLAN_CHUNK : BERTH_PLAN_SOUND;
}

static enum ggml_status tell(struct berth_plan_fault *fault, enum berth_plan_fault_kind kind, int64_t i, int64_t j) {
    if (fault != NULL) {
        *fault = (struct berth_plan_fault){kind, j >= 0 && j < i ? j : i, j >= 0 && j < i ? i : j};
    }
    return kind == BERTH_PLAN_SOUND ? GGML_STATUS_SUCCESS : GGML_STATUS_FAILED;
}

enum ggml_status berth_plan_check(const struct berth_plan_item *items, int64_t n, const struct berth_plan_params *params,
    const uint64_t *offsets, struct berth_plan_fault *fault) {
    uint64_t max_chunk = params != NULL ? params->max_chunk : 0;
    if (n <= 0 || items == NULL || offsets == NULL) {
        return n == 0 ? tell(fault, BERTH_PLAN_SOUND, -1, -1)
                      : berth_fail(GGML_STATUS_FAILED, "plan check: no items to check (n = %lld)", (long long) n);
    }
    for (int64_t i = 0; i < n; i++) {
        enum berth_plan_fault_kind kind = item_fault(&items[i], offsets[i], max_chunk);
        if (kind != BERTH_PLAN_SOUND) {
            return tell(fault, kind, i, -1);
        }
    }
    struct spot *spots      = berth_malloc((size_t) n * sizeof *spots);
    int64_t *order          = berth_malloc((size_t) n * sizeof *order);
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    if (spots == NULL || order == NULL) {
        berth_fail(status, "plan check: out of memory for %lld items", (long long) n);
        goto done;
    }
    int64_t n_spots = 0;
    bool has_alias  = false;
    for (int64_t i = 0; i < n; i++) {
        spots[i] = (struct spot){offsets[i], items[i].size, items[i].first, items[i].last, items[i].pool, items[i].alias};
        has_alias |= items[i].alias >= 0;
        order[i] = i;
    }
    if (has_alias) {
        // by (alias) only: neighbours of one group must agree
        for (int64_t i = 0; i < n; i++) {
            spots[i].pool = items[i].alias;
            spots[i].off  = 0;
        }
        sort_spots(order, spots, n);
        for (int64_t k = 1; k < n; k++) {
            int64_t i = order[k - 1];
            int64_t j = order[k];
            if (items[i].alias >= 0 && items[i].alias == items[j].alias &&
                (offsets[i] != offsets[j] || items[i].pool != items[j].pool)) {
                status = tell(fault, BERTH_PLAN_ALIAS, i, j);
                goto done;
            }
        }
        for (int64_t i = 0; i < n; i++) {
            spots[i].pool = items[i].pool;
            spots[i].off  = offsets[i];
        }
    }
    for (int64_t i = 0; i < n; i++) {
        if (items[i].size > 0) {
            order[n_spots++] = i;
        }
    }
    sort_spots(order, spots, n_spots);
    int64_t i = n_spots > 0 ? sweep(spots, order, n_spots) : -1;
    if (i == -2) {
        berth_fail(status, "plan check: out of memory for %lld items", (long long) n);
        goto done;
    }
    int64_t j = -1;
    for (int64_t x = 0; i >= 0 && x < n && j < 0; x++) {
        j = x != i && items[x].size > 0 && spots_meet(&spots[x], &spots[i]) ? x : -1;
    }
    status = i < 0 ? tell(fault, BERTH_PLAN_SOUND, -1, -1) : tell(fault, BERTH_PLAN_COLLIDE, i, j);
done:
    berth_free(order);
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
    struct spot *spots = berth_malloc((size_t) p->n * sizeof *spots);
    int64_t *order     = berth_malloc((size_t) p->n * sizeof *order);
    bool ok            = true;
    if (spots != NULL && order != NULL) {
        for (int32_t i = 0; i < p->n; i++) {
            // Fixed blocks at one offset are of one alias group; others would have been refused.
            int32_t group = p->fixed != NULL && p->fixed[i] >= 0 ? 0 : -1;
            spots[i]      = (struct spot){(uint64_t) off[i], (uint64_t) p->size[i], p->a[i], p->b[i] - 1, 0, group};
            order[i]      = i;
        }
        sort_spots(order, spots, p->n);
        ok = sweep(spots, order, p->n) < 0; // out of memory proves nothing
    }
    berth_free(order);
    berth_free(spots);
    return ok;
}
