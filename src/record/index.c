// SPDX-License-Identifier: MIT
// index.c: allocates an index (see index.h), and implements lists of tensors with an index.

#include "record/index.h"

#include <string.h>

bool berth_record_index_reset(struct record_index *index, size_t n) {
    size_t n_slots = 16;
    while (n_slots < n * 2) {
        n_slots *= 2;
    }
    if (!BERTH_GROW(&index->slots, &index->slots_cap, n_slots)) {
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
    if (!berth_record_index_reset(index, n * 2)) { // on failure the index is unchanged
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

// ---- lists ----

bool berth_record_list_add(struct record_list *list, struct ggml_tensor *t) {
    if (t == NULL || record_list_find(list, t) >= 0) {
        return true;
    }
    const size_t n = (size_t) list->n + 1;
    if (!BERTH_GROW(&list->at, &list->cap, n) || !berth_record_index_reserve(&list->index, list->at, list->n, n)) {
        return false;
    }
    list->at[list->n] = t;
    record_index_add(&list->index, list->at, list->n++);
    return true;
}

bool berth_record_list_close(struct record_list *list) {
    for (int32_t i = 0; i < list->n; i++) { // the list grows during the loop
        struct ggml_tensor *t = list->at[i];
        for (int k = -1; k < GGML_MAX_SRC; k++) {
            if (!berth_record_list_add(list, k < 0 ? t->view_src : t->src[k])) {
                return false;
            }
        }
    }
    return true;
}

void berth_record_list_fini(struct record_list *list) {
    berth_record_index_fini(&list->index);
    berth_free(list->at);
}
