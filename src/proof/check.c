// SPDX-License-Identifier: MIT
// check.c: checks the proof of one pool: its header, the statements `live` and `item`, and the checksum.

#include "base/min.h"
#include "proof/proof.h"

#include <stdlib.h>

#define SIZE_LIMIT ((uint64_t) 1 << 62) // the largest size of an item

// ---- the items of a pool ----

static uint64_t divisor_common(uint64_t x, uint64_t y) {
    while (y != 0) {
        const uint64_t r = x % y;
        x = y;
        y = r;
    }
    return x;
}

// An item of an alias group.
struct member {
    int32_t alias, k;
};

static int by_alias(const void *a, const void *b) {
    const struct member *x = a, *y = b;
    if (x->alias != y->alias) {
        return x->alias < y->alias ? -1 : 1;
    }
    return x->k < y->k ? -1 : x->k > y->k;
}

// Fills group and align. False: some group has no common alignment below 2^63, or memory ran out.
static bool groups_find(struct proof_pool *p) {
    struct member *members = berth_arrays_new(&p->mem, (size_t) p->n, sizeof *members);
    if (members == NULL) {
        return false;
    }
    for (int32_t k = 0; k < p->n; k++) {
        members[k] = (struct member){proof_item(p, (uint64_t) k)->alias, k};
        p->group[k] = k;
        p->align[k] = max_u64(proof_item(p, (uint64_t) k)->align, 1);
    }
    qsort(members, (size_t) p->n, sizeof *members, by_alias);
    for (int32_t m = 1; m < p->n; m++) {
        if (members[m].alias > 0 && members[m].alias == members[m - 1].alias) {
            const int32_t k = members[m].k, first = p->group[members[m - 1].k];
            const uint64_t factor = p->align[k] / divisor_common(p->align[k], p->align[first]);
            p->group[k] = first;
            if (p->align[first] > (uint64_t) INT64_MAX / factor) {
                return false;
            }
            p->align[first] *= factor;
        }
    }
    return true;
}

static bool pool_init(struct proof_pool *p, const struct berth_plan_item *items, int64_t n, int32_t pool) {
    *p = (struct proof_pool){.items = items};
    for (int64_t i = 0; i < n; i++) {
        p->n += items[i].pool == pool;
    }
    const size_t size = (size_t) p->n;
    p->ids = berth_arrays_new(&p->mem, size, sizeof *p->ids);
    p->group = berth_arrays_new(&p->mem, size, sizeof *p->group);
    p->align = berth_arrays_new(&p->mem, size, sizeof *p->align);
    p->is_used = berth_arrays_new(&p->mem, size, sizeof *p->is_used);
    if (p->mem.has_failed) {
        return false;
    }
    p->n = 0;
    for (int64_t i = 0; i < n; i++) {
        if (items[i].pool == pool) {
            p->ids[p->n++] = (int32_t) i;
        }
    }
    return groups_find(p);
}

static bool items_check(const struct berth_plan_item *items, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (items[i].last < items[i].first || items[i].size > SIZE_LIMIT || items[i].align > SIZE_LIMIT || items[i].alias < 0 ||
            (items[i].is_fixed && items[i].fixed > SIZE_LIMIT)) {
            return false;
        }
    }
    return n <= INT32_MAX / 4;
}

// ---- live: items that are alive at one step ----

static bool live_check(struct proof_reader *r, struct proof_pool *p, uint64_t bound) {
    int64_t step;
    uint64_t align, n, sum = 0, most_pad = 0;
    if (!proof_signed(r, &step) || !proof_number(r, SIZE_LIMIT, &align, NULL) || !proof_number(r, (uint64_t) p->n, &n, NULL)) {
        return false;
    }
    if (align == 0) {
        return proof_refuse(r, "the alignment is 0");
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t k;
        if (!proof_number(r, (uint64_t) p->n - 1, &k, NULL)) {
            return false;
        }
        const struct berth_plan_item *item = proof_item(p, k);
        const int32_t group = p->group[k];
        if (step < item->first || step > item->last || p->align[group] % align != 0 || p->is_used[group]) {
            return proof_refuse(r, "item %llu does not count at this step", (unsigned long long) k);
        }
        p->is_used[group] = true;
        const uint64_t pad = (align - item->size % align) % align; // size + pad <= 2^63
        most_pad = max_u64(pad, most_pad);
        if (__builtin_add_overflow(sum, item->size + pad, &sum)) {
            return proof_refuse(r, "the sum of the sizes exceeds 2^64 - 1");
        }
    }
    return sum - most_pad >= bound || proof_refuse(r, "the items have fewer bytes than the bound");
}

// ---- item: an item with a fixed offset ----

static bool item_check(struct proof_reader *r, const struct proof_pool *p, uint64_t bound) {
    uint64_t k;
    if (p->n == 0 || !proof_number(r, (uint64_t) p->n - 1, &k, NULL)) {
        return proof_refuse(r, "the pool has no items");
    }
    const struct berth_plan_item *item = proof_item(p, k);
    return (item->is_fixed && item->size > 0 && item->fixed + item->size >= bound) ||
           proof_refuse(r, "the item is not fixed, or ends below the bound");
}

// ---- the proof of a pool ----

static bool statement_check(struct proof_reader *r, struct proof_pool *p, struct proof_claim *claim, bool *is_out_of_memory) {
    switch (proof_peek(r)) {
        case 'l': return proof_word(r, "live") && live_check(r, p, claim->bound);
        case 'i': return proof_word(r, "item") && item_check(r, p, claim->bound);
        default: return proof_search(r, p, claim, is_out_of_memory);
    }
}

static bool pool_check(struct proof_reader *r, const struct berth_plan_item *items, int64_t n, struct proof_claim *claim,
    struct proof_pool *p, bool *is_out_of_memory) {
    int64_t pool;
    uint64_t n_items, sum;
    if (!proof_word(r, "berth-proof") || !proof_word(r, "1") || !proof_word(r, "pool") || !proof_signed(r, &pool) ||
        !proof_number(r, INT32_MAX, &n_items, NULL) || !proof_word(r, "bound") ||
        !proof_number(r, SIZE_LIMIT, &claim->bound, NULL)) {
        return false;
    }
    if (pool < INT32_MIN || pool > INT32_MAX || !items_check(items, n)) {
        return proof_refuse(r, "the pool or an item of the plan is out of range");
    }
    claim->pool = (int32_t) pool;
    if (!pool_init(p, items, n, claim->pool)) {
        *is_out_of_memory = p->mem.has_failed;
        return proof_refuse(r, "an alias group has no common alignment below 2^63");
    }
    if ((uint64_t) p->n != n_items) {
        return proof_refuse(
            r, "the proof is about %llu items, but pool %d of the plan has %d", (unsigned long long) n_items, claim->pool, p->n);
    }
    if (!statement_check(r, p, claim, is_out_of_memory)) {
        return false;
    }
    const uint32_t is = r->sum[1] << 16 | r->sum[0];
    if (!proof_word(r, "end") || !proof_number(r, UINT32_MAX, &sum, NULL)) {
        return false;
    }
    return sum == is || proof_refuse(r, "the checksum is %llu, but the text has %u", (unsigned long long) sum, is);
}

enum proof_answer proof_check(struct proof_reader *r, const struct berth_plan_item *items, int64_t n, struct proof_claim *claim) {
    if (proof_peek(r) < 0) {
        return PROOF_ENDED;
    }
    struct proof_pool p = {0};
    bool is_out_of_memory = false;
    *claim = (struct proof_claim){0};
    r->sum[0] = 1;
    r->sum[1] = 0;
    const bool ok = pool_check(r, items, n, claim, &p, &is_out_of_memory);
    berth_arrays_free(&p.mem);
    if (is_out_of_memory) {
        return PROOF_OUT_OF_MEMORY;
    }
    return ok ? PROOF_VALID : PROOF_REFUSED;
}
