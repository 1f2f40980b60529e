// SPDX-License-Identifier: MIT
// check.c: checks the parts of a proof: the header, the reason `live`, and the checksum.

#include "base/min.h"
#include "base/multiple.h"
#include "proof/proof.h"

// Items that are alive at a common step: the sum of their sizes, or the end of a fixed one, is at least the bound.
static void live_check(struct proof *p) {
    uint64_t sum = 0, most_pad = 0, top = 0;
    int64_t first = INT64_MIN, last = INT64_MAX;
    proof_text(p, "live ");
    const uint64_t align = max_u64(proof_number(p, PROOF_SIZE_LIMIT), 1);
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
    p->bound = proof_number(p, PROOF_SIZE_LIMIT);
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
