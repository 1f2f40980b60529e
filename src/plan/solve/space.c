// SPDX-License-Identifier: MIT
// space.c: free space with best fit, see space.h. Taking and giving are O(log n) with alignment 1 or sizes that are multiples of
// the alignment; with other alignments a take also looks at each free block of size [size, size + align) that turns out too
// crooked.

#include "plan/solve/space.h"

#define NONE BERTH_SPACE_NONE

void berth_space_init(struct berth_space *space, uint64_t limit) {
    *space = (struct berth_space){.spare = NONE, .root = NONE, .limit = limit, .rng = 0x9e3779b97f4a7c15u};
}

void berth_space_fini(struct berth_space *space) {
    berth_free(space->blocks);
    berth_space_init(space, space->limit);
}

void berth_space_reset(struct berth_space *space) {
    space->n_blocks = 0;
    space->spare = NONE;
    space->n_spare = 0;
    space->root = NONE;
    space->peak = 0;
    space->used = 0;
}

static uint32_t next_prio(struct berth_space *space) {
    space->rng ^= space->rng << 13;
    space->rng ^= space->rng >> 7;
    space->rng ^= space->rng << 17;
    return (uint32_t) (space->rng >> 32);
}

// Order of the treap: by size, of equals the highest first (as ggml chooses); the block that ends at the limit comes last.
static bool is_before(const struct berth_space_block *a, const struct berth_space_block *b) {
    const bool a_tail = a->next == NONE, b_tail = b->next == NONE;
    if (a_tail != b_tail) {
        return b_tail;
    }
    return a->size != b->size ? a->size < b->size : a->off > b->off;
}

static void tree_insert(struct berth_space *space, uint32_t x) {
    struct berth_space_block *blocks = space->blocks;
    uint32_t *link = &space->root;
    blocks[x].prio = next_prio(space);
    while (*link != NONE && blocks[*link].prio >= blocks[x].prio) {
        link = is_before(&blocks[x], &blocks[*link]) ? &blocks[*link].left : &blocks[*link].right;
    }
    // x takes the place of this subtree, which is split around it
    uint32_t rest = *link, *low = &blocks[x].left, *high = &blocks[x].right;
    *link = x;
    while (rest != NONE) {
        if (is_before(&blocks[rest], &blocks[x])) {
            *low = rest;
            low = &blocks[rest].right;
            rest = *low;
        } else {
            *high = rest;
            high = &blocks[rest].left;
            rest = *high;
        }
    }
    *low = *high = NONE;
    blocks[x].is_free = true;
}

static void tree_remove(struct berth_space *space, uint32_t x) {
    struct berth_space_block *blocks = space->blocks;
    uint32_t *link = &space->root;
    while (*link != x) {
        link = is_before(&blocks[x], &blocks[*link]) ? &blocks[*link].left : &blocks[*link].right;
    }
    uint32_t a = blocks[x].left, b = blocks[x].right;
    while (a != NONE && b != NONE) {
        if (blocks[a].prio >= blocks[b].prio) {
            *link = a;
            link = &blocks[a].right;
            a = *link;
        } else {
            *link = b;
            link = &blocks[b].left;
            b = *link;
        }
    }
    *link = a != NONE ? a : b;
    blocks[x].is_free = false;
}

// Room for n more blocks, so that what follows cannot fail.
static bool blocks_reserve(struct berth_space *space, size_t n) {
    if (space->n_spare >= n) {
        return true;
    }
    const size_t n_want = space->n_blocks + n - space->n_spare;
    return n_want < NONE && berth_grow((void **) &space->blocks, &space->n_cap, n_want, sizeof *space->blocks);
}

static uint32_t block_new(struct berth_space *space) {
    if (space->spare != NONE) {
        const uint32_t x = space->spare;
        space->spare = space->blocks[x].next;
        space->n_spare--;
        return x;
    }
    return (uint32_t) space->n_blocks++;
}

static void block_drop(struct berth_space *space, uint32_t x) {
    space->blocks[x].next = space->spare;
    space->blocks[x].size = 0;
    space->spare = x;
    space->n_spare++;
}

// A block [off, off + size) linked behind `after` (NONE: first). Not in the treap.
static uint32_t block_link(struct berth_space *space, uint64_t off, uint64_t size, uint32_t after, uint32_t before) {
    const uint32_t x = block_new(space);
    space->blocks[x] =
        (struct berth_space_block){.off = off, .size = size, .prev = after, .next = before, .left = NONE, .right = NONE};
    if (after != NONE) {
        space->blocks[after].next = x;
    }
    if (before != NONE) {
        space->blocks[before].prev = x;
    }
    return x;
}

static void block_unlink(struct berth_space *space, uint32_t x) {
    const struct berth_space_block *b = &space->blocks[x];
    if (b->prev != NONE) {
        space->blocks[b->prev].next = b->next;
    }
    if (b->next != NONE) {
        space->blocks[b->next].prev = b->prev;
    }
    block_drop(space, x);
}

static bool block_holds(const struct berth_space_block *b, uint64_t size, uint64_t align, uint64_t *off) {
    const uint64_t over = b->off % align;
    uint64_t at = b->off;
    if (over != 0 && __builtin_add_overflow(at, align - over, &at)) {
        return false;
    }
    *off = at;
    return at - b->off <= b->size && b->size - (at - b->off) >= size;
}

// The first block in the treap's order that holds the bytes. Subtrees of too small blocks are skipped by the order alone.
static uint32_t best_fit(const struct berth_space *space, uint32_t root, uint64_t size, uint64_t align, uint64_t *off) {
    while (root != NONE) {
        const struct berth_space_block *b = &space->blocks[root];
        if (b->size >= size || b->next == NONE) {
            const uint32_t found = best_fit(space, b->left, size, align, off);
            if (found != NONE) {
                return found;
            }
            if (block_holds(b, size, align, off)) {
                return root;
            }
        }
        root = b->right;
    }
    return NONE;
}

enum ggml_status berth_space_take(struct berth_space *space, uint64_t size, uint64_t align, uint32_t *block, bool *no_room) {
    *no_room = false;
    if (!blocks_reserve(space, 3)) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    if (space->n_blocks == space->n_spare && space->limit > 0) {
        tree_insert(space, block_link(space, 0, space->limit, NONE, NONE));
    }
    uint64_t off;
    const uint32_t x = best_fit(space, space->root, size, align, &off);
    if (x == NONE) {
        *no_room = true;
        return GGML_STATUS_ALLOC_FAILED;
    }
    tree_remove(space, x);
    struct berth_space_block *b = &space->blocks[x];
    const uint64_t end = b->off + b->size;
    if (off > b->off) {
        const uint32_t before = block_link(space, b->off, off - b->off, b->prev, x);
        tree_insert(space, before);
    }
    b->off = off;
    b->size = size;
    if (off + size < end) {
        const uint32_t after = block_link(space, off + size, end - off - size, x, b->next);
        tree_insert(space, after);
    }
    space->used += size;
    space->peak = off + size > space->peak ? off + size : space->peak;
    *block = x;
    BERTH_ASSERT_INTERNAL(!b->is_free && off % align == 0);
    return GGML_STATUS_SUCCESS;
}

void berth_space_give(struct berth_space *space, uint32_t block) {
    struct berth_space_block *b = &space->blocks[block];
    BERTH_ASSERT(block < space->n_blocks && !b->is_free && b->size > 0);
    space->used -= b->size;
    const uint32_t prev = b->prev, next = b->next;
    // Out of the treap first: its order depends on the neighbours' sizes and on who is last.
    if (prev != NONE && space->blocks[prev].is_free) {
        tree_remove(space, prev);
        b->off = space->blocks[prev].off;
        b->size += space->blocks[prev].size;
        block_unlink(space, prev);
    }
    if (next != NONE && space->blocks[next].is_free) {
        tree_remove(space, next);
        b->size += space->blocks[next].size;
        block_unlink(space, next);
    }
    tree_insert(space, block);
}

static bool tree_is_valid(const struct berth_space *space, uint32_t root, size_t *n) {
    if (root == NONE) {
        return true;
    }
    const struct berth_space_block *b = &space->blocks[root];
    const uint32_t kids[2] = {b->left, b->right};
    *n += 1;
    for (int i = 0; i < 2; i++) {
        const struct berth_space_block *kid = kids[i] == NONE ? NULL : &space->blocks[kids[i]];
        if (kid != NULL && (kid->prio > b->prio || is_before(kid, b) != (i == 0) || !tree_is_valid(space, kids[i], n))) {
            return false;
        }
    }
    return b->is_free;
}

bool berth_space_is_valid(const struct berth_space *space) {
    uint32_t x = NONE;
    for (uint32_t i = 0; i < space->n_blocks; i++) {
        if (space->blocks[i].size > 0 && space->blocks[i].off == 0) {
            x = i;
        }
    }
    size_t n_seen = 0, n_free = 0, n_tree = 0;
    uint64_t end = 0, used = 0;
    uint32_t prev = NONE;
    for (; x != NONE; prev = x, x = space->blocks[x].next) {
        const struct berth_space_block *b = &space->blocks[x];
        if (b->prev != prev || b->off != end || b->size == 0 || (b->is_free && prev != NONE && space->blocks[prev].is_free)) {
            return false;
        }
        end += b->size;
        used += b->is_free ? 0 : b->size;
        n_free += b->is_free;
        n_seen++;
    }
    return n_seen == space->n_blocks - space->n_spare && (n_seen == 0 || end == space->limit) && used == space->used &&
           used <= space->peak && tree_is_valid(space, space->root, &n_tree) && n_tree == n_free;
}
