// SPDX-License-Identifier: MIT
// online.c: the online allocator: a free space (space.c) and a table from offset to taken block, so that a block that was never
// given out, or was given back already, is refused. Linear probing, at most half full; every call O(log n): blocks are padded
// to the alignment, as ggml does, so that every free block starts aligned and no search meets one that is too crooked.

#include "plan/solve/space.h"

struct slot {
    uint64_t size;  // as it was asked for, without padding
    uint32_t block; // BERTH_SPACE_NONE: empty
};

struct berth_online {
    struct berth_space space;
    uint64_t align;     // >= 1
    uint64_t capacity;  // the space ends at the next multiple of align
    uint64_t peak;      // without padding
    uint64_t used;      //
    struct slot *slots; // taken blocks by offset
    size_t n_slots;     // 0 or a power of two
    size_t n_taken;
};

#define NONE BERTH_SPACE_NONE
#define LIMIT ((uint64_t) 1 << 62)

// At most 2^63: sizes, capacities and alignments go up to 2^62.
static uint64_t padded(const struct berth_online *online, uint64_t size) {
    const uint64_t over = size % online->align;
    return over == 0 ? size : size + (online->align - over);
}

struct berth_online *berth_online_new(uint64_t align, uint64_t capacity) {
    if (align > LIMIT || capacity > LIMIT) {
        berth_fail(GGML_STATUS_FAILED, "online allocator: align %llu and capacity %llu must not pass 2^62",
            (unsigned long long) align, (unsigned long long) capacity);
        return NULL;
    }
    struct berth_online *online = berth_calloc(1, sizeof *online);
    if (online == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory: %zu bytes for an online allocator", sizeof *online);
        return NULL;
    }
    online->align = align == 0 ? 1 : align;
    online->capacity = capacity == 0 ? LIMIT : capacity;
    berth_space_init(&online->space, padded(online, online->capacity));
    return online;
}

void berth_online_free(struct berth_online *online) {
    if (online == NULL) {
        return;
    }
    berth_space_fini(&online->space);
    berth_free(online->slots);
    berth_free(online);
}

static size_t slot_home(const struct berth_online *online, uint64_t off) {
    return (size_t) ((off ^ off >> 29) * 0x9e3779b97f4a7c15u >> 20) & (online->n_slots - 1);
}

// The slot of the block at this offset, or the empty one where it would go.
static size_t slot_find(const struct berth_online *online, uint64_t off) {
    size_t i = slot_home(online, off);
    while (online->slots[i].block != NONE && berth_space_off(&online->space, online->slots[i].block) != off) {
        i = (i + 1) & (online->n_slots - 1);
    }
    return i;
}

static bool slots_reserve(struct berth_online *online) {
    if (2 * (online->n_taken + 1) <= online->n_slots) {
        return true;
    }
    const size_t n_old = online->n_slots, n_new = n_old == 0 ? 16 : 2 * n_old;
    size_t size;
    struct slot *slots = berth_mul_ok(n_new, sizeof *slots, &size) ? berth_malloc(size) : NULL;
    if (slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < n_new; i++) {
        slots[i].block = NONE;
    }
    struct slot *old = online->slots;
    online->slots = slots;
    online->n_slots = n_new;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].block != NONE) {
            slots[slot_find(online, berth_space_off(&online->space, old[i].block))] = old[i];
        }
    }
    berth_free(old);
    return true;
}

enum ggml_status berth_online_alloc(struct berth_online *online, uint64_t size, uint64_t *offset) {
    if (online == NULL || offset == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "online allocator: NULL");
    }
    *offset = 0;
    if (size == 0) {
        return GGML_STATUS_SUCCESS;
    }
    bool no_room = size > online->capacity;
    uint32_t block = NONE;
    if (!no_room && (!slots_reserve(online) ||
                        berth_space_take(&online->space, padded(online, size), 1, &block, &no_room) != GGML_STATUS_SUCCESS)) {
        block = NONE;
    }
    if (block != NONE && berth_space_off(&online->space, block) + size > online->capacity) { // only its padding fits
        berth_space_give(&online->space, block);
        no_room = true;
    }
    if (no_room) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED,
            "online allocator: no room for %llu bytes: %llu of %llu are taken in %zu blocks, the rest is in smaller pieces",
            (unsigned long long) size, (unsigned long long) online->used, (unsigned long long) online->capacity, online->n_taken);
    }
    if (block == NONE) {
        return berth_fail(
            GGML_STATUS_ALLOC_FAILED, "out of memory: the books of an online allocator with %zu blocks", online->n_taken);
    }
    *offset = berth_space_off(&online->space, block);
    online->slots[slot_find(online, *offset)] = (struct slot){size, block};
    online->n_taken++;
    online->used += size;
    online->peak = *offset + size > online->peak ? *offset + size : online->peak;
    BERTH_ASSERT_WHOLE(online->n_taken > 256 || berth_space_is_valid(&online->space));
    return GGML_STATUS_SUCCESS;
}

enum ggml_status berth_online_release(struct berth_online *online, uint64_t offset, uint64_t size) {
    if (online == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "online allocator: NULL");
    }
    if (size == 0) {
        return GGML_STATUS_SUCCESS;
    }
    size_t i = online->n_slots == 0 ? 0 : slot_find(online, offset);
    const struct slot slot = online->n_slots == 0 ? (struct slot){.block = NONE} : online->slots[i];
    if (slot.block == NONE || slot.size != size) {
        return berth_fail(GGML_STATUS_FAILED, "online allocator: no block of %llu bytes is taken at %llu",
            (unsigned long long) size, (unsigned long long) offset);
    }
    // Close the gap: whoever probed past it moves up.
    for (size_t j = i;;) {
        j = (j + 1) & (online->n_slots - 1);
        if (online->slots[j].block == NONE) {
            break;
        }
        const size_t home = slot_home(online, berth_space_off(&online->space, online->slots[j].block));
        if (((j - home) & (online->n_slots - 1)) >= ((j - i) & (online->n_slots - 1))) {
            online->slots[i] = online->slots[j];
            i = j;
        }
    }
    online->slots[i].block = NONE;
    online->n_taken--;
    online->used -= size;
    berth_space_give(&online->space, slot.block);
    BERTH_ASSERT_WHOLE(online->n_taken > 256 || berth_space_is_valid(&online->space));
    return GGML_STATUS_SUCCESS;
}

void berth_online_reset(struct berth_online *online) {
    if (online == NULL) {
        return;
    }
    berth_space_reset(&online->space);
    for (size_t i = 0; i < online->n_slots; i++) {
        online->slots[i].block = NONE;
    }
    online->n_taken = 0;
    online->used = 0;
    online->peak = 0;
}

uint64_t berth_online_peak(const struct berth_online *online) {
    return online == NULL ? 0 : online->peak;
}

uint64_t berth_online_used(const struct berth_online *online) {
    return online == NULL ? 0 : online->used;
}

size_t berth_online_blocks(const struct berth_online *online) {
    return online == NULL ? 0 : online->n_taken;
}
