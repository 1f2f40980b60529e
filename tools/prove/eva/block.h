// SPDX-License-Identifier: MIT
// block.h: the blocks of a search (src/proof/search.c) between two steps. proof.c shows that the first step finds such blocks, and
// search.c that each step leaves such blocks.
#pragma once

#define EVA_UNITS ((int64_t) 1 << 60)     // UNITS_LIMIT
#define EVA_LOW ((int64_t) 1 << 62)       // LOW_LIMIT
#define EVA_SKY (EVA_LOW + EVA_UNITS + 1) // the highest end of a block

// b: one of the n + 1 blocks from `from`.
/*@ predicate block_is_valid(struct block *b, struct block *from, integer n) = 0 <= b->size <= EVA_UNITS + 1 &&
        0 <= b->low <= EVA_LOW && 0 <= b->sky <= EVA_SKY && 0 <= b->begin <= 2 * n && 0 <= b->end <= 2 * n && 0 <= b->n_saved <= n &&
        0 <= b->prev - from <= n && 0 <= b->next - from <= n; */
