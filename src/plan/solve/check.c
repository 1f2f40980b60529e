// SPDX-License-Identifier: MIT
// check.c: checks whether a plan is valid. In debug builds the planner checks every plan before it returns the plan.
// The items are entered into a tree over time, by rising offset. The tree holds the highest end of the entered items for each
// time. An item collides if the highest end in its lifetime is above its offset. Members of one alias group may share bytes, so
// all members are checked before any of them is entered. The time is O(n log n).

#include "base/min.h"
#include "plan/solve/blocks.h"
#include "plan/solve/plan.h"

#include <string.h>

// ---- the highest end in a range of time ----

struct tops {
    uint64_t *over; // [2 * n] highest end entered for the whole node
    uint64_t *most; // [2 * n] highest end at any time in the node
    size_t n;
};

/*@ predicate tops_are_valid(struct tops t) = 0 < t.n <= 1 << 30 && \valid(t.over + (0 .. 2 * t.n - 1)) &&
        \valid(t.most + (0 .. 2 * t.n - 1)) && \separated(t.over + (0 .. 2 * t.n - 1), t.most + (0 .. 2 * t.n - 1));

    // The two axioms define is_low and is_above by recursion over the ancestors of x. Predicates that call themselves would say
    // the same, but z3 does not apply such definitions.
    axiomatic paths {
        predicate is_parent_low{L}(struct tops t, integer x, integer v) reads t.over[0 .. x];
        // No end above v was entered for node x or its ancestors.
        predicate is_low{L}(struct tops t, integer x, integer v) = x > 0 ==> t.over[x] <= v && is_parent_low(t, x, v);
        axiom parent_low{L}: \forall struct tops t, integer x, v; is_parent_low(t, x, v) <==> is_low(t, x / 2, v);
        predicate is_above_parent(integer a, integer x);
        // Node a is node x or an ancestor of it.
        predicate is_above(integer a, integer x) = a == x || (a < x && is_above_parent(a, x));
        axiom above_parent: \forall integer a, x; is_above_parent(a, x) <==> is_above(a, x / 2);
    }
    predicate are_low(struct tops t, integer x, integer y, integer v) = \forall integer z; x <= z < y ==> is_low(t, z, v);

    // most[x] is the maximum of over[x] and of most of the children.
    predicate node_is_right(struct tops t, integer x) = t.over[x] <= t.most[x] &&
        (x < t.n ==> t.most[2 * x] <= t.most[x] && t.most[2 * x + 1] <= t.most[x]) &&
        (t.most[x] == t.over[x] || (x < t.n && (t.most[x] == t.most[2 * x] || t.most[x] == t.most[2 * x + 1])));
    predicate nodes_are_right(struct tops t) = \forall integer x; 0 < x < 2 * t.n ==> node_is_right(t, x);

    // No end above v was entered for a node below x, for x or for its ancestors.
    predicate is_clear(struct tops t, integer x, integer v) = t.most[x] <= v && is_low(t, x, v);
    predicate are_clear(struct tops t, integer x, integer y, integer v) = \forall integer z; x <= z < y ==> is_clear(t, z, v); */

// Nothing assigns these two variables of the proof, so the contracts hold for each of their values.
//@ ghost uint64_t any_end;
//@ ghost size_t any_time;

// Three functions of the proof. A node is clear exactly if its children are clear.
/*@ ghost
    /@ requires tops_are_valid(t) && nodes_are_right(t) && 0 < x < t.n;
       assigns \nothing;
       ensures is_clear(t, x, any_end) <==> is_clear(t, 2 * x, any_end) && is_clear(t, 2 * x + 1, any_end); @/
    void tops_children(struct tops t, size_t x) {
        /@ assert node_is_right(t, x); @/
        /@ assert node_is_right(t, 2 * x); @/
        /@ assert node_is_right(t, 2 * x + 1); @/
        /@ assert (2 * x) / 2 == x && (2 * x + 1) / 2 == x; @/
        /@ assert is_low(t, 2 * x, any_end) <==> t.over[2 * x] <= any_end && is_low(t, x, any_end); @/
        /@ assert is_low(t, 2 * x + 1, any_end) <==> t.over[2 * x + 1] <= any_end && is_low(t, x, any_end); @/
        /@ assert is_low(t, x, any_end) ==> t.over[x] <= any_end; @/
    } */

// The nodes x to y - 1 are clear exactly if their children are clear.
/*@ ghost
    /@ requires tops_are_valid(t) && nodes_are_right(t) && 0 < x <= y <= t.n;
       assigns \nothing;
       ensures are_clear(t, x, y, any_end) <==> are_clear(t, 2 * x, 2 * y, any_end); @/
    void tops_level(struct tops t, size_t x, size_t y) {
        /@ loop invariant x <= z <= y;
           loop invariant are_clear(t, x, z, any_end) <==> are_clear(t, 2 * x, 2 * z, any_end);
           loop assigns z;
           loop variant y - z; @/
        for (size_t z = x; z < y; z++) {
            tops_children(t, z);
            /@ assert are_clear(t, x, z + 1, any_end) <==> are_clear(t, x, z, any_end) && is_clear(t, z, any_end); @/
            /@ assert are_clear(t, 2 * x, 2 * z + 1, any_end) <==>
                   are_clear(t, 2 * x, 2 * z, any_end) && is_clear(t, 2 * z, any_end); @/
            /@ assert are_clear(t, 2 * x, 2 * z + 2, any_end) <==>
                   are_clear(t, 2 * x, 2 * z + 1, any_end) && is_clear(t, 2 * z + 1, any_end); @/
        }
    } */

// A leaf has no node below it.
/*@ ghost
    /@ requires tops_are_valid(t) && nodes_are_right(t) && t.n <= x <= y <= 2 * t.n;
       assigns \nothing;
       ensures are_clear(t, x, y, any_end) <==> are_low(t, x, y, any_end); @/
    void tops_leaves(struct tops t, size_t x, size_t y) {
        /@ assert \forall integer z; x <= z < y ==>
               node_is_right(t, z) && (is_low(t, z, any_end) <==> is_clear(t, z, any_end)); @/
    } */

// Returns the highest end that was entered for node x or its ancestors.
/*@ requires tops_are_valid(t) && x < 2 * t.n;
    assigns \nothing;
    ensures \result <= any_end <==> is_low(t, x, any_end); */
static uint64_t tops_query_above(struct tops t, size_t x) {
    uint64_t most = 0;
    //@ assert is_low(t, 0, any_end);
    /*@ loop invariant x < 2 * t.n;
        loop invariant most <= any_end && is_low(t, x, any_end) <==> is_low(t, \at(x, Pre), any_end);
        loop assigns x, most;
        loop variant x; */
    for (; x > 0; x /= 2) {
        most = max_u64(t.over[x], most);
    }
    return most;
}

// Returns the highest end of the times lo to hi - 1.
/*@ requires tops_are_valid(t) && lo < hi <= t.n && nodes_are_right(t);
    assigns \nothing;
    ensures \result <= any_end <==> are_low(t, t.n + lo, t.n + hi, any_end); */
static uint64_t tops_query(struct tops t, size_t lo, size_t hi) {
    uint64_t most = 0;
    size_t l = lo + t.n;
    size_t h = hi + t.n;
    size_t last = h - 1;
    //@ ghost size_t a = l;
    //@ ghost size_t b = last;
    //@ assert l == t.n + lo && h == t.n + hi && last == h - 1;
    //@ ghost tops_leaves(t, l, h);
    /*@ loop invariant 0 < x <= 2 * t.n && y <= 2 * t.n && a < 2 * t.n && b < 2 * t.n;
        loop invariant (x == a || x == a + 1) && (y == b || y == b + 1);
        loop invariant is_low(t, l, any_end) ==> is_low(t, a, any_end);
        loop invariant is_low(t, last, any_end) ==> is_low(t, b, any_end);
        loop invariant are_clear(t, l, h, any_end) <==> most <= any_end && is_low(t, l, any_end) &&
            is_low(t, last, any_end) && are_clear(t, x, y, any_end);
        loop assigns x, y, most, a, b;
        loop variant y; */
    for (size_t x = l, y = h; x < y; x /= 2, y /= 2) {
        //@ assert is_low(t, a, any_end) ==> is_low(t, a / 2, any_end);
        //@ assert is_low(t, b, any_end) ==> is_low(t, b / 2, any_end);
        //@ ghost a /= 2;
        //@ ghost b /= 2;
        if (x % 2 == 1) {
            //@ assert x / 2 == a && node_is_right(t, x);
            //@ assert is_low(t, x, any_end) <==> t.over[x] <= any_end && is_low(t, a, any_end);
            //@ assert are_clear(t, x, y, any_end) <==> is_clear(t, x, any_end) && are_clear(t, x + 1, y, any_end);
            most = max_u64(t.most[x], most);
            x++;
        }
        /*@ assert are_clear(t, l, h, any_end) <==> most <= any_end && is_low(t, l, any_end) &&
                is_low(t, last, any_end) && are_clear(t, x, y, any_end); */
        if (y % 2 == 1) {
            y--;
            //@ assert y / 2 == b && node_is_right(t, y);
            //@ assert is_low(t, y, any_end) <==> t.over[y] <= any_end && is_low(t, b, any_end);
            //@ assert are_clear(t, x, y + 1, any_end) <==> is_clear(t, y, any_end) && are_clear(t, x, y, any_end);
            most = max_u64(t.most[y], most);
        }
        /*@ assert are_clear(t, l, h, any_end) <==> most <= any_end && is_low(t, l, any_end) &&
                is_low(t, last, any_end) && are_clear(t, x, y, any_end); */
        //@ assert 2 * (x / 2) == x && 2 * (y / 2) == y && x <= y;
        //@ ghost tops_level(t, x / 2, y / 2);
    }
    //@ assert are_clear(t, l, h, any_end) <==> most <= any_end && is_low(t, l, any_end) && is_low(t, last, any_end);
    //@ assert are_low(t, l, h, any_end) <==> most <= any_end && is_low(t, l, any_end) && is_low(t, last, any_end);
    // An end that was entered for an ancestor also covers the range.
    most = max_u64(tops_query_above(t, l), most);
    most = max_u64(tops_query_above(t, last), most);
    return most;
}

// Raises the end of node x to `top`, and so the ends of all leaves below it.
/*@ requires tops_are_valid(t) && 0 < x < 2 * t.n && nodes_are_right(t);
    assigns t.over[x], t.most[0 .. x];
    ensures nodes_are_right(t);
    ensures \forall integer z; 0 <= z < 2 * t.n ==>
        (is_low(t, z, any_end) <==> is_low{Pre}(t, z, any_end) && (is_above(x, z) ==> top <= any_end)); */
static void tops_enter_node(struct tops t, size_t x, uint64_t top) {
    //@ assert node_is_right(t, x);
    //@ ghost size_t first = x;
    t.over[x] = max_u64(top, t.over[x]);
    /*@ loop invariant x < 2 * t.n && x <= \at(x, Pre);
        loop invariant t.over[first] == \max(top, \at(t.over[x], Pre));
        loop invariant \forall integer z; 0 <= z < 2 * t.n && z != first ==> t.over[z] == \at(t.over[z], Pre);
        loop invariant \forall integer z; 0 < z < 2 * t.n && z != x ==> node_is_right(t, z);
        loop invariant x > 0 ==> t.over[x] <= \max(top, t.most[x]) &&
            (x < t.n ==> t.most[2 * x] <= \max(top, t.most[x]) && t.most[2 * x + 1] <= \max(top, t.most[x])) &&
            (\max(top, t.most[x]) == t.over[x] ||
                (x < t.n && (\max(top, t.most[x]) == t.most[2 * x] || \max(top, t.most[x]) == t.most[2 * x + 1])));
        loop assigns x, t.most[0 .. \at(x, Pre)];
        loop variant x; */
    for (; x > 0; x /= 2) {
        //@ assert x / 2 > 0 ==> node_is_right(t, x / 2);
        t.most[x] = max_u64(top, t.most[x]);
        //@ assert node_is_right(t, x);
        //@ assert \forall integer z; z != x / 2 ==> x < 2 * z || 2 * z + 1 < x;
        /*@ assert \forall integer z; 0 < z < 2 * t.n && z != x && (x < 2 * z || 2 * z + 1 < x) ==>
                node_is_right{LoopCurrent}(t, z) && node_is_right(t, z); */
    }
    /*@ ghost
        /@ loop invariant z <= 2 * t.n;
           loop invariant \forall integer c; 0 <= c < z ==>
               (is_low(t, c, any_end) <==> is_low{Pre}(t, c, any_end) && (is_above(first, c) ==> top <= any_end));
           loop assigns z;
           loop variant 2 * t.n - z; @/
        for (size_t z = 0; z < 2 * t.n; z++) {
            /@ assert z > 0 ==> (is_low(t, z / 2, any_end) <==>
                   is_low{Pre}(t, z / 2, any_end) && (is_above(first, z / 2) ==> top <= any_end)); @/
            /@ assert is_low(t, z, any_end) <==> (z > 0 ==> t.over[z] <= any_end && is_low(t, z / 2, any_end)); @/
            /@ assert is_low{Pre}(t, z, any_end) <==>
                   (z > 0 ==> \at(t.over[\at(z, Here)], Pre) <= any_end && is_low{Pre}(t, z / 2, any_end)); @/
            /@ assert is_above(first, z) <==> first == z || (first < z && is_above(first, z / 2)); @/
        } */
}

// Raises the ends of the times lo to hi - 1 to `top`. The other times keep theirs.
/*@ requires tops_are_valid(t) && lo < hi <= t.n && nodes_are_right(t) && any_time < t.n;
    assigns t.over[0 .. 2 * t.n - 1], t.most[0 .. 2 * t.n - 1];
    ensures nodes_are_right(t);
    ensures is_low(t, t.n + any_time, any_end) <==>
        is_low{Pre}(t, t.n + any_time, any_end) && (lo <= any_time < hi ==> top <= any_end); */
static void tops_enter(struct tops t, size_t lo, size_t hi, uint64_t top) {
    //@ ghost size_t p = t.n + any_time;
    //@ ghost size_t q = p;
    /*@ loop invariant 0 < x <= 2 * t.n && y <= 2 * t.n;
        loop invariant q < 2 * x && y <= 2 * q + 1;
        loop invariant nodes_are_right(t);
        loop invariant \forall integer a; is_above(a, q) ==> is_above(a, p);
        loop invariant \forall integer a; is_above(a, p) ==> is_above(a, q) || a >= y;
        loop invariant x <= q < y ==> lo <= any_time < hi;
        loop invariant is_low(t, p, any_end) <==> is_low{Pre}(t, t.n + any_time, any_end) &&
            (lo <= any_time < hi && !(x <= q < y) ==> top <= any_end);
        loop assigns x, y, q, t.over[0 .. 2 * t.n - 1], t.most[0 .. 2 * t.n - 1];
        loop variant y; */
    for (size_t x = lo + t.n, y = hi + t.n; x < y; x /= 2, y /= 2) {
        //@ assert \forall integer a; is_above(a, q / 2) ==> is_above(a, q) && a <= q / 2 && a < x;
        //@ assert \forall integer a; is_above(a, p) ==> a == q || is_above(a, q / 2) || a >= y;
        //@ assert is_above(q, p) && (x != q ==> !is_above(x, p)) && (y - 1 != q ==> !is_above(y - 1, p));
        if (x % 2 == 1) {
            tops_enter_node(t, x, top);
            x++;
        }
        /*@ assert is_low(t, p, any_end) <==> is_low{Pre}(t, t.n + any_time, any_end) &&
                (lo <= any_time < hi && !(x <= q < y) ==> top <= any_end); */
        if (y % 2 == 1) {
            y--;
            tops_enter_node(t, y, top);
        }
        /*@ assert is_low(t, p, any_end) <==> is_low{Pre}(t, t.n + any_time, any_end) &&
                (lo <= any_time < hi && !(x <= q < y) ==> top <= any_end); */
        //@ ghost q /= 2;
    }
}

// ---- collisions ----

struct spot {
    uint64_t off, size;
    int64_t first, last;
    int32_t pool, alias;
};

/*@ requires \valid_read(x) && x->first <= x->last && x->size > 0 && x->off + x->size <= UINT64_MAX;
    requires \valid_read(y) && y->first <= y->last && y->size > 0 && y->off + y->size <= UINT64_MAX;
    assigns \nothing;
    ensures \result <==> x->pool == y->pool && !(x->alias > 0 && x->alias == y->alias) &&
        (\exists integer step; x->first <= step <= x->last && y->first <= step <= y->last) &&
        (\exists integer byte; x->off <= byte < x->off + x->size && y->off <= byte < y->off + y->size); */
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
        o->key[2 * k] = plan_time_key(spots[idx[k]].first);
        o->key[2 * k + 1] = plan_time_key(spots[idx[k]].last);
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

// Returns the index of the last of the n sorted times that is at most x. The first time is at most x.
/*@ requires n > 0 && \valid_read(t + (0 .. n - 1)) && t[0] <= x;
    requires \forall integer i, j; 0 <= i <= j < n ==> t[i] <= t[j];
    assigns \nothing;
    ensures \result < n && t[\result] <= x;
    ensures \forall integer i; \result < i < n ==> t[i] > x; */
static size_t time_index(const uint64_t *t, size_t n, uint64_t x) {
    size_t lo = 0;
    /*@ loop invariant 0 < n && lo + n <= \at(n, Pre) && t[lo] <= x;
        loop invariant \forall integer i; lo + n <= i < \at(n, Pre) ==> t[i] > x;
        loop assigns lo, n;
        loop variant n; */
    while (n > 1) {
        size_t half = n / 2;
        if (t[lo + half] <= x) {
            lo += half;
        }
        n -= half;
    }
    return lo;
}

/*@ requires \valid_read(x) && \valid_read(y);
    assigns \nothing;
    ensures \result <==> x->alias > 0 && x->alias == y->alias && x->off == y->off; */
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
            const size_t first = time_index(times.key, tops.n, plan_time_key(x->first));
            const size_t last = time_index(times.key, tops.n, plan_time_key(x->last));
            if (tops_query(tops, first, last + 1) > x->off) {
                found = idx[j];
            }
        }
        for (; i < end; i++) {
            const struct spot *x = &spots[idx[i]];
            const size_t first = time_index(times.key, tops.n, plan_time_key(x->first));
            const size_t last = time_index(times.key, tops.n, plan_time_key(x->last));
            tops_enter(tops, first, last + 1, x->off + x->size);
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

/*@ predicate item_is_valid(struct berth_plan_item *item, integer off, integer chunk_limit) =
        item->first <= item->last && item->size <= 1 << 62 && item->alias >= 0 && off + item->size <= INT64_MAX &&
        (item->is_fixed ==> off == item->fixed) &&
        (chunk_limit == 0 && item->align > 1 ==> off % item->align == 0) &&
        (chunk_limit > 0 ==> off % chunk_limit + item->size <= chunk_limit) &&
        (chunk_limit > 0 && item->align > 1 ==> (off % chunk_limit) % item->align == 0); */

/*@ requires \valid_read(item);
    assigns \nothing;
    ensures \result == BERTH_PLAN_SOUND <==> item_is_valid(item, off, chunk_limit); */
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

/*@ requires fault == \null || \valid(fault);
    assigns *fault;
    ensures \result == GGML_STATUS_SUCCESS <==> kind == BERTH_PLAN_SOUND;
    ensures fault != \null ==> fault->kind == kind;
    ensures fault != \null ==> fault->i == (0 <= j < i ? j : i) && fault->j == (0 <= j < i ? i : j); */
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
