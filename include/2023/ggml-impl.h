// SPDX-License-Identifier: MIT
// 2023/ggml-impl.h: the hash set of ggml_gallocr_alloc_graph_n. Programs of 2023 included it from ggml's internal header.
#pragma once

#include "ggml-alloc.h"

#define GGML_HASHTABLE_FULL ((size_t) -1)
#define GGML_HASHTABLE_ALREADY_EXISTS ((size_t) -2)

#ifdef __cplusplus
extern "C" {
#endif

// Returns the slot of key, or the free slot for it. Returns GGML_HASHTABLE_FULL if all slots have other keys.
static inline size_t berth_2023_hash_find(const struct ggml_hash_set hash_set, struct ggml_tensor *key) {
    if (hash_set.size == 0) {
        return GGML_HASHTABLE_FULL;
    }
    const size_t first = (size_t) (uintptr_t) key % hash_set.size;
    size_t i = first;
    while (hash_set.keys[i] != NULL && hash_set.keys[i] != key) {
        i = i + 1 == hash_set.size ? 0 : i + 1;
        if (i == first) {
            return GGML_HASHTABLE_FULL;
        }
    }
    return i;
}

// Returns whether key is in the set.
static inline bool berth_2023_hash_contains(const struct ggml_hash_set hash_set, struct ggml_tensor *key) {
    const size_t i = berth_2023_hash_find(hash_set, key);
    return i != GGML_HASHTABLE_FULL && hash_set.keys[i] == key;
}

// Adds key and returns its slot. Returns GGML_HASHTABLE_ALREADY_EXISTS or GGML_HASHTABLE_FULL if it adds nothing.
static inline size_t berth_2023_hash_insert(struct ggml_hash_set hash_set, struct ggml_tensor *key) {
    const size_t i = berth_2023_hash_find(hash_set, key);
    if (i == GGML_HASHTABLE_FULL) {
        return GGML_HASHTABLE_FULL;
    }
    if (hash_set.keys[i] == key) {
        return GGML_HASHTABLE_ALREADY_EXISTS;
    }
    hash_set.keys[i] = key;
    return i;
}

// Returns the slot of key and adds key if it is missing. For a full set it returns GGML_HASHTABLE_FULL;
// in 2023 it ended the program.
static inline size_t berth_2023_hash_find_or_insert(struct ggml_hash_set hash_set, struct ggml_tensor *key) {
    const size_t i = berth_2023_hash_find(hash_set, key);
    if (i != GGML_HASHTABLE_FULL) {
        hash_set.keys[i] = key;
    }
    return i;
}

#ifdef __cplusplus
}
#endif

// ---- names of ggml's API ----

#define ggml_hash_find berth_2023_hash_find
#define ggml_hash_contains berth_2023_hash_contains
#define ggml_hash_insert berth_2023_hash_insert
#define ggml_hash_find_or_insert berth_2023_hash_find_or_insert
