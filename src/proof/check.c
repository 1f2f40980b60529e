// SPDX-License-Identifier: MIT
// check.c: checks the parts of a proof: the header, the reason `live`, and the checksum.

#include "base/min.h"
#include "base/multiple.h"
#include "proof/proof.h"

#define SIZE_LIMIT ((uint64_t) 1 << 62) // the largest size of an item

// ---- the items of the plan ----

int proof_by_key(const void *a, const void *b) {
    const struct proof_key *x = a, *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return x->order < y->order ? -1 : x->order > y->order;
}

void proof_init(struct proof *p, const struct berth_plan_item *items, int64_t n, proof_read_t read, void *user) {
    memset(p, 0, sizeof *p);
    p->read = read;
    p->user = user;
    p->line = 1;
    p->n_items = n;
    p->items = berth_arrays_new(&p->mem, (size_t) n, sizeof *p->items);
    struct proof_key *keys = berth_arrays_new(&p->mem, (size_t) n, sizeof *keys);
    if (p->mem.has_failed || n > INT32_MAX / 4) {
        p->mem.has_failed = true;
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        keys[i] = (struct proof_key){items[i].pool, (int32_t) i, (int32_t) i};
    }
    qsort(keys, (size_t) n, sizeof *keys, proof_by_key);
    for (int64_t i = 0; i < n; i++) {
        const struct berth_plan_item *item = &items[keys[i].i];
        if (item->last < item->first || item->size > SIZE_LIMIT || item->align > SIZE_LIMIT || item->alias < 0 ||
            (item->is_fixed && item->fixed > SIZE_LIMIT)) {
            proof_refuse(p, "item %d of the plan is out of range", keys[i].i);
        }
        p->items[i] = (struct proof_item){item, (int32_t) i, max_u64(item->align, 1), 0};
        keys[i] = (struct proof_key){item->alias, (int32_t) i, (int32_t) i};
    }
    qsort(keys, (size_t) n, sizeof *keys, proof_by_key);
    for (int64_t m = 1; m < n; m++) {
        struct proof_item *k = &p->items[keys[m].i];
        if (keys[m].key > 0 && keys[m].key == keys[m - 1].key) {
            k->group = p->items[keys[m - 1].i].group;
            if (!berth_lcm_ok(k->align, p->items[k->group].align, &p->items[k->group].align)) {
                proof_refuse(p, "an alias group has no common alignment below 2^63");
            }
        }
    }
}

const struct proof_item *proof_item_take(struct proof *p, uint64_t align) {
    const uint64_t i = proof_number(p, (uint64_t) (p->n_items - p->i_pool) - 1);
    const struct proof_item *k = &p->items[p->i_pool + (int64_t) i];
    struct proof_item *group = &p->items[k->group];
    if (k->item->pool != p->pool || (align > 0 && (group->n_used == p->n_parts || group->align % align != 0))) {
        proof_refuse(p, "item %llu has another pool, is used twice, or its alignment is too small", (unsigned long long) i);
    }
    if (align > 0) {
        group->n_used = p->n_parts;
    }
    return p->is_refused ? NULL : k;
}

// ---- a part of the proof ----

// Items that are alive at a common step: the sum of their sizes, or the end of a fixed one, is at least the bound.
static void live_check(struct proof *p) {
    uint64_t sum = 0, most_pad = 0, top = 0;
    int64_t first = INT64_MIN, last = INT64_MAX;
    proof_text(p, "live ");
    const uint64_t align = max_u64(proof_number(p, SIZE_LIMIT), 1);
    while (!p->is_line_end && !p->is_refused) {
        const struct proof_item *k = proof_item_take(p, align);
        if (k != NULL) {
            const struct berth_plan_item *item = k->item;
            const uint64_t pad = berth_padding(item->size, align);
            most_pad = max_u64(pad, most_pad);
            first = max_i64(item->first, first);
            last = min_i64(item->last, last);
            top = max_u64(item->is_fixed && item->size > 0 ? item->fixed + item->size : 0, top);
            if (first > last || __builtin_add_overflow(sum, item->size + pad, &sum)) { // size + pad <= 2^63
                proof_refuse(p, "the items have no common step, or the sum of their sizes exceeds 2^64 - 1");
            }
        }
    }
    if (max_u64(sum - most_pad, top) < p->bound) {
        proof_refuse(p, "the items have fewer bytes than the bound");
    }
}

bool proof_next(struct proof *p) {
    if (proof_peek(p) < 0 || p->mem.has_failed) {
        return false;
    }
    p->sum[0] = 1;
    p->sum[1] = 0;
    p->n_parts++;
    p->n_steps = 0;
    proof_text(p, "berth-proof 1\npool ");
    p->pool = (int32_t) (uint32_t) proof_number(p, UINT32_MAX);
    proof_text(p, "bound ");
    p->bound = proof_number(p, SIZE_LIMIT);
    for (p->i_pool = 0; p->i_pool < p->n_items && p->items[p->i_pool].item->pool < p->pool;) {
        p->i_pool++;
    }
    if (p->i_pool == p->n_items) {
        return proof_refuse(p, "the plan has no pool %d", p->pool);
    }
    if (proof_peek(p) == 'l') {
        live_check(p);
    } else {
        proof_search(p);
    }
    const uint32_t sum = p->sum[1] << 16 | p->sum[0];
    proof_text(p, "end ");
    if (proof_number(p, UINT32_MAX) != sum) {
        proof_refuse(p, "the checksum of the text is %u", sum);
    }
    return !(p->is_refused || p->mem.has_failed);
}
