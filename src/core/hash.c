// SPDX-License-Identifier: MIT
// hash.c: hash sets of tensors. Sizes are primes, because the slot is the address modulo the size.

#include "core/graph.h"

#include <string.h>

// Each size is the next prime after a power of two. A set larger than the last entry has an odd size that need not be prime.
static const size_t hash_sizes[] = {2, 3, 5, 11, 17, 37, 67, 131, 257, 521, 1031, 2053, 4099, 8209, 16411, 32771, 65537, 131101,
    262147, 524309, 1048583, 2097169, 4194319, 8388617, 16777259, 33554467, 67108879, 134217757, 268435459, 536870923, 1073741827,
    2147483659};

size_t ggml_hash_size(size_t min_sz) {
    for (size_t i = 0; i < sizeof hash_sizes / sizeof hash_sizes[0]; i++) {
        if (hash_sizes[i] >= min_sz) {
            return hash_sizes[i];
        }
    }
    return min_sz | 1;
}

static size_t used_size(size_t size) {
    return (size + 31) / 32 * sizeof(ggml_bitset_t);
}

// On failure the set has size 0: it finds nothing and refuses insertions.
struct ggml_hash_set ggml_hash_set_new(size_t size) {
    struct ggml_hash_set set = {.size = ggml_hash_size(size)};

    set.keys = berth_calloc(set.size, sizeof set.keys[0]);
    set.used = berth_calloc(1, used_size(set.size));
    if (set.keys == NULL || set.used == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_hash_set_new: out of memory for %zu entries", set.size);
        ggml_hash_set_free(&set);
        set = (struct ggml_hash_set){0};
    }
    return set;
}

void ggml_hash_set_free(struct ggml_hash_set *hash_set) {
    if (hash_set != NULL) {
        berth_free(hash_set->keys);
        berth_free(hash_set->used);
    }
}

void ggml_hash_set_reset(struct ggml_hash_set *hash_set) {
    if (hash_set != NULL && hash_set->size > 0) {
        memset(hash_set->used, 0, used_size(hash_set->size));
    }
}
