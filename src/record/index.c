// SPDX-License-Identifier: MIT
// index.c: the memory of an index.

#include "record/index.h"

#include <string.h>

bool berth_record_index_reset(struct record_index *index, size_t n) {
    size_t n_slots = 16;
    while (n_slots < n * 2) {
        n_slots *= 2;
    }
    if (!berth_grow((void **) &index->slots, &index->slots_cap, n_slots, sizeof index->slots[0])) {
        return false;
    }
    index->n_slots = n_slots;
    index->n_keys = 0;
    memset(index->slots, 0, n_slots * sizeof index->slots[0]);
    return true;
}

bool berth_record_index_reserve(struct record_index *index, struct ggml_tensor *const *keys, int32_t n_listed, size_t n) {
    if (n * 2 <= index->n_slots) {
        return true;
    }
    if (!berth_record_index_reset(index, n * 2)) { // which keeps what was there if it cannot grow
        return false;
    }
    for (int32_t i = 0; i < n_listed; i++) {
        record_index_add(index, keys, i);
    }
    return true;
}

void berth_record_index_fini(struct record_index *index) {
    berth_free(index->slots);
    *index = (struct record_index){0};
}
