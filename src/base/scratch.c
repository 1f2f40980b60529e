// SPDX-License-Identifier: MIT
// scratch.c: memory for the length of one call. What is little lies in the struct itself, on the caller's stack, so that small
// problems ask the allocator for nothing; what is more lies in a block of its own a piece. Pieces go in the reverse order of
// their taking, all those after a mark at once.

#include "base/base.h"

struct berth_scratch_block {
    _Alignas(16) struct berth_scratch_block *prev;
};

void *berth_scratch_take(struct berth_scratch *s, size_t size) {
    size_t padded;
    if (!berth_pad_ok(size, 16, &padded)) {
        return NULL;
    }
    if (padded <= sizeof s->few - s->at.used) {
        void *p = s->few + s->at.used;
        s->at.used += padded;
        return p;
    }
    struct berth_scratch_block *block = berth_add_ok(padded, sizeof *block, &padded) ? berth_malloc(padded) : NULL;
    if (block == NULL) {
        return NULL;
    }
    block->prev = s->at.last;
    s->at.last = block;
    return block + 1;
}

void berth_scratch_back(struct berth_scratch *s, struct berth_scratch_mark mark) {
    while (s->at.last != mark.last) {
        struct berth_scratch_block *block = s->at.last;
        s->at.last = block->prev;
        berth_free(block);
    }
    s->at.used = mark.used;
}
