// SPDX-License-Identifier: MIT
// items.c: which pieces of memory a captured plan had, where the file says so: a tensor names its piece by number, the first one
// in a piece says how long it lives and how large it is. On success every number has such a tensor, and only one. O(tensors).

#include "capture/read/reader.h"

#include <string.h>

enum ggml_status ggraph_item_read(struct ggraph_reader *r, int64_t id, const char *item, const char *life) {
    struct ggraph_place *place = &r->g->places[id];
    int64_t x[4];
    if (!ggraph_number(item, &place->item) || place->item < -1) {
        return ggraph_refuse(r, "item '%.32s' is not a number from -1", item);
    }
    if (strcmp(life, "-") == 0) {
        return GGML_STATUS_SUCCESS;
    }
    if (place->item < 0 || !ggraph_four(life, x) || x[1] < x[0] || x[2] > (int64_t) 1 << 62 || x[3] >= r->g->n_bufs) {
        return ggraph_refuse(r, "life '%.80s' is not first, last, size and buffer of an item", life);
    }
    const size_t n = (size_t) r->g->n_items + 1;
    if (!berth_grow((void **) &r->lives, &r->lives_cap, n, sizeof r->lives[0])) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for %zu items", r->path, n);
    }
    r->lives[r->g->n_items++] =
        (struct ggraph_item){.first = x[0], .last = x[1], .size = (uint64_t) x[2], .buf = (int) x[3], .owner = id};
    return GGML_STATUS_SUCCESS;
}

enum ggml_status ggraph_items_all(struct ggraph_reader *r, int64_t n_all) {
    struct ggraph *g = r->g;
    const int64_t first_line = r->i_line - n_all + 1; // a line a tensor
    g->items = berth_calloc((size_t) g->n_items + 1, sizeof g->items[0]);
    if (g->items == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for %lld items", r->path, (long long) g->n_items);
    }
    for (int64_t i = 0; i < g->n_items; i++) {
        g->items[i].owner = -1;
    }
    for (int64_t i = 0; i < g->n_items; i++) {
        const int64_t item = g->places[r->lives[i].owner].item;
        r->i_line = first_line + r->lives[i].owner;
        if (item >= g->n_items || g->items[item].owner >= 0) {
            return ggraph_refuse(r, "item %lld of %lld lives twice, or is none", (long long) item, (long long) g->n_items);
        }
        g->items[item] = r->lives[i];
    }
    for (int64_t i = 0; i < n_all; i++) {
        if (g->places[i].item >= g->n_items) {
            r->i_line = first_line + i;
            return ggraph_refuse(r, "item %lld has no life", (long long) g->places[i].item);
        }
    }
    r->i_line = first_line + n_all - 1;
    return GGML_STATUS_SUCCESS;
}
