// SPDX-License-Identifier: MIT
// online.c: the online allocator: a free space (space.c) and a table from offset to taken block, so that a block that was never
// given out, or was given back already, is refused. Linear probing, at most half full; every call O(log n).

#include "plan/space.h"

struct berth_online {
    struct berth_space space;
    uint64_t align;  // >= 1
    uint32_t *slots; // taken blocks by offset, BERTH_SPACE_NONE: empty
    size_t n_slots;  // 0 or a power of two
    size_t n_taken;
};

#define NONE BERTH_SPACE_NONE
#define LIMIT ((uint64_t) 1 << 62)

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
    berth_space_init(&online->space, capacity == 0 ? LIMIT : capacity);
    online->align = align == 0 ? 1 : align;
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
    while (online->slots[i] != NONE && berth_space_off(&online->space, online->slots[i]) != off) {
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
    uint32_t *slots = berth_mul_ok(n_new, sizeof *slots, &size) ? berth_malloc(size) : NULL;
    if (slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < n_new; i++) {
        slots[i] = NONE;
    }
    uint32_t *old   = online->slots;
    online->slots   = slots;
    online->n_slots = n_new;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i] != NONE) {
            slots[slot_find(online, berth_space_off(&online->space, old[i]))] = old[i];
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
    bool no_room   = size > online->space.limit;
    uint32_t block = NONE;
    if (!no_room && (!slots_reserve(online) ||
                        berth_space_take(&online->space, size, online->align, &block, &no_room) != GGML_STATUS_SUCCESS)) {
        block = NONE;
    }
    if (no_room) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED,
            "online allocator: no room for %llu bytes: %llu of %llu are taken in %zu blocks, the rest is in smaller pieces",
            (unsigned long long) size, (unsigned long long) online->space.used, (unsigned long long) online->space.limit,
            online->n_taken);
    }
    if (block == NONE) {
        return berth_fail(
            GGML_STATUS_ALLOC_FAILED, "out of memory: the books of an online allocator with %zu blocks", online->n_taken);
    }
    *offset                                   = berth_space_off(&online->space, block);
    online->slots[slot_find(online, *offset)] = block;
    online->n_taken++;
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
    size_t i             = online->n_slots == 0 ? 0 : slot_find(online, offset);
    const uint32_t block = online->n_slots == 0 ? NONE : online->slots[i];
    if (block == NONE || online->space.blocks[block].size != size) {
        return berth_fail(GGML_STATUS_FAILED, "online allocator: no block of %llu bytes is taken at %llu",
            (unsigned long long) size, (unsigned long long) offset);
    }
    // Close the gap: whoever probed past it moves up.
    for (size_t j = i;;) {
        j = (j + 1) & (online->n_slots - 1);
        if (online->slots[j] == NONE) {
            break;
        }
        const size_t home = slot_home(online, berth_space_off(&online->space, online->slots[j]));
        if (((j - home) & (online->n_slots - 1)) >= ((j - i) & (online->n_slots - 1))) {
            online->slots[i] = online->slots[j];
            i                = j;
        }
    }
    online->slots[i] = NONE;
    online->n_taken--;
    berth_space_give(&online->space, block);
    BERTH_ASSERT_WHOLE(online->n_taken > 256 || berth_space_is_valid(&online->space));
    return GGML_STATUS_SUCCESS;
}

void berth_online_reset(struct berth_online *online) {
    if (online == NULL) {
        return;
    }
    berth_space_reset(&online->space);
    for (size_t i = 0; i < online->n_slots; i++) {
        online->slots[i] = NONE;
    }
    online->n_taken = 0;
}

uint64_t berth_online_peak(const struct berth_online *online) {
    return online == NULL ? 0 : online->space.peak;
}

uint64_t berth_online_used(const struct berth_online *online) {
    return online == NULL ? 0 : online->space.used;
}

size_t berth_online_blocks(const struct berth_online *online) {
    return online == NULL ? 0 : online->n_taken;
}
