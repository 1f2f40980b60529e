// SPDX-License-Identifier: MIT
// index.h: finds the position of a tensor in a list, by a hash table with open addressing that is at most half full. The hash is
// the address divided by sizeof(struct ggml_tensor), so tensors of one ggml_context get neighbouring slots and rarely collide.
// After a collision, the search advances by a large odd step that depends on the address (double hashing), so that clusters of
// used slots do not slow it down.
#pragma once

#include "base/base.h"

// Maps a tensor to its first position in the caller's list `keys`. A zeroed struct is empty.
struct record_index {
    int32_t *slots; // [n_slots] position + 1, 0: free
    size_t n_slots; // size of the table: a power of two, or 0
    size_t n_keys;  // number of tensors; n_keys * 2 <= n_slots
    size_t slots_cap;
};

// Empties the index and reserves memory for n tensors. False: out of memory.
bool berth_record_index_reset(struct record_index *index, size_t n) BERTH_MUST_USE;
// Reserves memory for n tensors. The index then contains keys[0..n_listed). False: out of memory; nothing is changed.
bool berth_record_index_reserve(
    struct record_index *index, struct ggml_tensor *const *keys, int32_t n_listed, size_t n) BERTH_MUST_USE;
void berth_record_index_fini(struct record_index *index);

// Returns the slot of the key, or the free slot where the key belongs.
static inline int32_t *record_index_slot(
    const struct record_index *index, struct ggml_tensor *const *keys, const struct ggml_tensor *key) {
    int32_t *slots = index->slots;
    size_t i = (uintptr_t) key / sizeof(struct ggml_tensor) & (index->n_slots - 1);
    if (slots[i] == 0 || keys[slots[i] - 1] == key) {
        return &slots[i];
    }
    const size_t step = (size_t) (((uint64_t) (uintptr_t) key >> 4) * 0x9E3779B97F4A7C15u >> 32) | 1;
    do {
        i = (i + step) & (index->n_slots - 1);
    } while (slots[i] != 0 && keys[slots[i] - 1] != key);
    return &slots[i];
}

// Adds keys[i], for which memory must be reserved. Returns i, or the earlier position of the same tensor.
static inline int32_t record_index_add(struct record_index *index, struct ggml_tensor *const *keys, int32_t i) {
    int32_t *slot = record_index_slot(index, keys, keys[i]);
    if (*slot == 0) {
        *slot = i + 1;
        index->n_keys++;
    }
    return *slot - 1;
}

// Returns the position, -1: not found.
static inline int32_t record_index_find(
    const struct record_index *index, struct ggml_tensor *const *keys, const struct ggml_tensor *key) {
    return index->n_keys > 0 ? *record_index_slot(index, keys, key) - 1 : -1;
}

// A list of different tensors with an index. A zeroed struct is empty.
struct record_list {
    struct ggml_tensor **at; // [n]
    int32_t n;
    size_t cap;
    struct record_index index;
};

// Adds a tensor unless it is NULL or already in the list. False: out of memory.
bool berth_record_list_add(struct record_list *list, struct ggml_tensor *t) BERTH_MUST_USE;
// Makes the list transitively closed: adds all sources and view sources of the listed tensors, recursively. False: out of memory.
bool berth_record_list_close(struct record_list *list) BERTH_MUST_USE;
void berth_record_list_fini(struct record_list *list);
// Returns the position, -1: not in the list.
static inline int32_t record_list_find(const struct record_list *list, const struct ggml_tensor *t) {
    return record_index_find(&list->index, list->at, t);
}
