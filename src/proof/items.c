// SPDX-License-Identifier: MIT
// items.c: the items of the plan, and their alias groups.

#include "base/min.h"
#include "base/multiple.h"
#include "proof/proof.h"

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
        if (item->last < item->first || item->size > PROOF_SIZE_LIMIT || item->align > PROOF_SIZE_LIMIT || item->alias < 0 ||
            (item->is_fixed && item->fixed > PROOF_SIZE_LIMIT)) {
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
            if (!berth_lcm_ok(max_u64(k->item->align, 1), p->items[k->group].align, &p->items[k->group].align)) {
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
