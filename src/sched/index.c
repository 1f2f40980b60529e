// SPDX-License-Identifier: MIT
// index.c: tensors to their positions in a list. Open addressing, at most half full.
// Tensors that were made one after the other have neighbouring slots: no two tensors are closer than the size of one, so an
// arena's never collide, and walking a graph walks the index. Those of other arenas that meet them go on in long odd steps,
// which no run of taken slots makes long.

#include "sched/sched.h"

#include <string.h>

static size_t home_of(const struct ggml_tensor *key) {
    return (uintptr_t) key / sizeof(struct ggml_tensor);
}

static size_t step_of(const struct ggml_tensor *key) {
    return (size_t) (((uint64_t) (uintptr_t) key >> 4) * 0x9E3779B97F4A7C15u >> 32) | 1;
}

// The slot that holds the key, or the free one where it belongs.
static inline size_t slot_of(const struct sched_index *index, struct ggml_tensor *const *keys, const struct ggml_tensor *key) {
    size_t i = home_of(key) & (index->n_slots - 1);
    if (index->slots[i] == 0 || keys[index->slots[i] - 1] == key) {
        return i;
    }
    const size_t step = step_of(key);
    do {
        i = (i + step) & (index->n_slots - 1);
    } while (index->slots[i] != 0 && keys[index->slots[i] - 1] != key);
    return i;
}

bool sched_index_reset(struct sched_index *index, size_t n) {
    size_t n_slots = 16;
    while (n_slots < n * 2) {
        n_slots *= 2;
    }
    if (!berth_grow((void **) &index->slots, &index->slots_cap, n_slots, sizeof index->slots[0])) {
        return false;
    }
    index->n_slots = n_slots;
    index->n_keys  = 0;
    memset(index->slots, 0, n_slots * sizeof index->slots[0]);
    return true;
}

bool sched_index_reserve(struct sched_index *index, struct ggml_tensor *const *keys, int32_t n_listed, size_t n) {
    if (n * 2 <= index->n_slots) {
        return true;
    }
    struct sched_index larger = {0};
    if (!sched_index_reset(&larger, n * 2)) {
        return false;
    }
    for (int32_t i = 0; i < n_listed; i++) {
        sched_index_add(&larger, keys, i);
    }
    sched_index_fini(index);
    *index = larger;
    return true;
}

int32_t sched_index_add(struct sched_index *index, struct ggml_tensor *const *keys, int32_t i) {
    int32_t *slot = &index->slots[slot_of(index, keys, keys[i])];
    if (*slot == 0) {
        *slot = i + 1;
        index->n_keys++;
    }
    return *slot - 1;
}

int32_t sched_index_find(const struct sched_index *index, struct ggml_tensor *const *keys, const struct ggml_tensor *key) {
    return index->n_keys > 0 ? index->slots[slot_of(index, keys, key)] - 1 : -1;
}

void sched_index_fini(struct sched_index *index) {
    berth_free(index->slots);
    *index = (struct sched_index){0};
}
