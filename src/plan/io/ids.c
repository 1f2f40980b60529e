// SPDX-License-Identifier: MIT
// ids.c: which items of a set have one id. Graphs may have tensors of one name; a CSV file, which others join by id, may not.
// O(n log n).

#include "plan/io/plan_file.h"

#include <stdlib.h>
#include <string.h>

struct named {
    const char *id;
    size_t item;
};

static int by_id(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    const int order = strcmp(x->id, y->id);
    return order != 0 ? order : (x->item > y->item) - (x->item < y->item);
}

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
        const bool is_again = names[i].id[0] != '\0' && strcmp(names[i].id, names[i - 1].id) == 0;
        ranks[names[i].item] = is_again ? ranks[names[i - 1].item] + 1 : 0;
    }
    berth_free(names);
    return ranks;
}
