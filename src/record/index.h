// SPDX-License-Identifier: MIT
// index.h: tensors to their positions in a list. Open addressing, at most half full.
// Tensors that were made one after the other have neighbouring slots: no two tensors are closer than the size of one, so an
// arena's never collide, and walking a graph walks the index. Those of other arenas that meet them go on in long odd steps,
// which no run of taken slots makes long.
#pragma once

#include "base/base.h"

// Where in a list of tensors one is: the first position if it is there several times. The list is the user's. Empty when zeroed.
struct record_index {
    int32_t *slots; // position + 1, 0: free
    size_t n_slots; // in use, a power of two, or 0
    size_t n_keys;  // n_keys * 2 <= n_slots
    size_t slots_cap;
};

// Empty, with room for n. False: out of memory.
bool berth_record_index_reset(struct record_index *index, size_t n) BERTH_MUST_USE;
// Room for n; the first n_listed of the list are in it. False: out of memory, and nothing changed.
bool berth_record_index_reserve(
    struct record_index *index, struct ggml_tensor *const *keys, int32_t n_listed, size_t n) BERTH_MUST_USE;
void berth_record_index_fini(struct record_index *index);

// The slot that holds the key, or the free one where it belongs.
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

// Adds keys[i], for which there is room. Its position: i, or where it was met before.
static inline int32_t record_index_add(struct record_index *index, struct ggml_tensor *const *keys, int32_t i) {
    int32_t *slot = record_index_slot(index, keys, keys[i]);
    if (*slot == 0) {
        *slot = i + 1;
        index->n_keys++;
    }
    return *slot - 1;
}

// The position, -1: none.
static inline int32_t record_index_find(
    const struct record_index *index, struct ggml_tensor *const *keys, const struct ggml_tensor *key) {
    return index->n_keys > 0 ? *record_index_slot(index, keys, key) - 1 : -1;
}

// A list of tensors, each once, with its index. Empty when zeroed.
struct record_list {
    struct ggml_tensor **at; // [n]
    int32_t n;
    size_t cap;
    struct record_index index;
};

// Adds a tensor unless it is there, or NULL. False: out of memory.
bool berth_record_list_add(struct record_list *list, struct ggml_tensor *t) BERTH_MUST_USE;
// Adds all that the tensors of the list read or look at, and so on. False: out of memory.
bool berth_record_list_close(struct record_list *list) BERTH_MUST_USE;
void berth_record_list_fini(struct record_list *list);
// -1: it is not there.
static inline int32_t record_list_find(const struct record_list *list, const struct ggml_tensor *t) {
    return record_index_find(&list->index, list->at, t);
}
