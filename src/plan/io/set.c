// SPDX-License-Identifier: MIT
// set.c: builds and frees plan sets: items with ids and offsets, as files hold them. The formats are in csv.c and json_plan.c.

#include "plan/io/set.h"

#include <stdlib.h>
#include <string.h>

bool berth_set_begin(struct berth_set_builder *b) {
    size_t none;
    *b = (struct berth_set_builder){0};
    b->set = berth_calloc(1, sizeof *b->set);
    if (b->set == NULL || !berth_set_text(b, NULL, 0, &none)) {
        berth_set_drop(b);
        return false;
    }
    return true;
}

bool berth_set_text(struct berth_set_builder *b, const char *text, size_t len, size_t *at) {
    size_t size;
    if (!berth_add_ok(b->text_size, len, &size) || !berth_add_ok(size, 1, &size) || !BERTH_GROW(&b->text, &b->n_text_cap, size)) {
        return false;
    }
    *at = b->text_size;
    if (len > 0) {
        memcpy(b->text + *at, text, len);
    }
    b->text[size - 1] = '\0';
    b->text_size = size;
    return true;
}

static bool cost_add(struct berth_set_builder *b, const struct berth_set_item *item) {
    const size_t i = b->set->n_items;
    if (!b->has_costs) {
        return true;
    }
    if (!BERTH_GROW(&b->set->costs, &b->n_costs_cap, i + 1) || !BERTH_GROW(&b->read_texts, &b->n_reads_cap, i + 1)) {
        return false;
    }
    b->set->costs[i] = item->cost;
    b->read_texts[i] = item->reads;
    return true;
}

bool berth_set_add(struct berth_set_builder *b, const struct berth_set_item *item) {
    struct berth_plan_set *set = b->set;
    const size_t i = set->n_items;
    if (!BERTH_GROW(&set->items, &b->n_items_cap, i + 1) || !BERTH_GROW(&set->offsets, &b->n_offsets_cap, i + 1) ||
        !BERTH_GROW(&b->starts, &b->n_starts_cap, i + 1) || !cost_add(b, item)) {
        return false;
    }
    b->starts[i] = item->id;
    set->items[i] = item->item;
    set->items[i].alias = item->alias + 1;
    set->items[i].is_fixed = item->fixed != BERTH_PLAN_ANY;
    set->items[i].fixed = set->items[i].is_fixed ? item->fixed : 0;
    set->offsets[i] = item->offset;
    b->n_offsets += item->offset != BERTH_PLAN_ANY;
    set->n_items++;
    return true;
}

bool berth_set_add_tensor(
    struct berth_set_builder *b, const struct berth_plan_tensor *tensor, const struct berth_set_words *words) {
    struct berth_plan_set *set = b->set;
    const size_t i = (size_t) set->n_tensors;
    if (!BERTH_GROW(&set->tensors, &b->n_tensors_cap, i + 1) || !BERTH_GROW(&b->words, &b->n_words_cap, i + 1)) {
        return false;
    }
    set->tensors[i] = *tensor;
    set->tensors[i].item = set->n_items;
    b->words[i] = *words;
    set->n_tensors++;
    return true;
}

bool berth_set_add_pool(struct berth_set_builder *b, const struct berth_plan_pool *pool, size_t name) {
    struct berth_plan_set *set = b->set;
    const size_t i = (size_t) set->n_pools;
    if (!BERTH_GROW(&set->pools, &b->n_pools_cap, i + 1) || !BERTH_GROW(&b->pool_names, &b->n_pool_names_cap, i + 1)) {
        return false;
    }
    set->pools[i] = *pool;
    b->pool_names[i] = name;
    set->n_pools++;
    return true;
}

bool berth_set_end(struct berth_set_builder *b, struct berth_plan_set **set) {
    struct berth_plan_set *s = b->set;
    size_t size;
    if (s->n_items > 0) {
        s->ids = berth_mul_ok((size_t) s->n_items, sizeof(char *), &size) ? berth_malloc(size) : NULL;
        if (s->ids == NULL) {
            return false;
        }
    }
    s->reads = b->has_costs ? berth_calloc((size_t) s->n_items + 1, sizeof *s->reads) : NULL;
    if (b->has_costs && s->reads == NULL) {
        return false;
    }
    for (int64_t i = 0; i < s->n_items; i++) {
        s->ids[i] = b->text + b->starts[i];
        if (b->has_costs) {
            s->reads[i] = b->text + b->read_texts[i];
        }
    }
    for (int64_t i = 0; i < s->n_tensors; i++) {
        s->tensors[i].name = b->text + b->words[i].name;
        s->tensors[i].op = b->text + b->words[i].op;
        s->tensors[i].type = b->text + b->words[i].type;
        s->tensors[i].uses = b->text + b->words[i].uses;
    }
    for (int64_t i = 0; i < s->n_pools; i++) {
        s->pools[i].name = b->text + b->pool_names[i];
    }
    s->text = b->text;
    s->has_offsets = s->n_items > 0 && b->n_offsets == s->n_items;
    *set = s;
    b->text = NULL;
    b->set = NULL;
    berth_set_drop(b);
    return true;
}

void berth_set_drop(struct berth_set_builder *b) {
    berth_plan_set_free(b->set);
    berth_free(b->starts);
    berth_free(b->words);
    berth_free(b->pool_names);
    berth_free(b->read_texts);
    berth_free(b->text);
    *b = (struct berth_set_builder){0};
}

void berth_plan_set_free(struct berth_plan_set *set) {
    if (set == NULL) {
        return;
    }
    berth_free(set->text);
    berth_free(set->ids);
    berth_free(set->items);
    berth_free(set->offsets);
    berth_free(set->tensors);
    berth_free(set->pools);
    berth_free(set->costs);
    berth_free(set->reads);
    berth_free(set);
}

// ---- ids ----

struct named {
    const char *id;
    size_t item;
};

static int by_id(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    const int order = strcmp(x->id, y->id);
    return order != 0 ? order : (x->item > y->item) - (x->item < y->item);
}

// The ranks serve to make ids unique, because other tools join CSV files by id. The time is O(n log n).
size_t *berth_set_id_ranks(const struct berth_plan_set *set) {
    const size_t n = set->n_items;
    struct named *names = berth_malloc((n + 1) * sizeof *names);
    size_t *ranks = berth_calloc(n + 1, sizeof *ranks);
    if (names == NULL || ranks == NULL) {
        berth_free(names);
        berth_free(ranks);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        names[i] = (struct named){set->ids[i], i};
    }
    qsort(names, n, sizeof *names, by_id);
    for (size_t i = 1; i < n; i++) {
        const bool is_repeated = names[i].id[0] != '\0' && strcmp(names[i].id, names[i - 1].id) == 0;
        ranks[names[i].item] = is_repeated ? ranks[names[i - 1].item] + 1 : 0;
    }
    berth_free(names);
    return ranks;
}
