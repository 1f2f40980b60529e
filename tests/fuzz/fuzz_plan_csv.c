// SPDX-License-Identifier: MIT
// fuzz_plan_csv.c: passes any bytes to the readers of plans, as CSV and as JSON. There must be no crash, and every refusal must
// have a message. A plan that was read must be unchanged after it is written and read back.

#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// CSV requires unique ids. The second item with the id "id" in JSON has the id "id (2)" in CSV.
static bool is_same_id(const char *now, const char *was) {
    const size_t n = strlen(was);
    return strcmp(now, was) == 0 || (strncmp(now, was, n) == 0 && strncmp(now + n, " (", 2) == 0);
}

static void round_trip(const struct berth_plan_set *set, bool as_json) {
    char *text = NULL;
    size_t size = 0;
    struct berth_plan_set *two = NULL;
    FILE *file = open_memstream(&text, &size);
    if (file == NULL) {
        return;
    }
    const enum ggml_status status =
        as_json ? berth_plan_write_json(set, set->offsets, NULL, file) : berth_plan_write_csv(set, set->offsets, file);
    fclose(file);
    expect(status == GGML_STATUS_SUCCESS, "the plan cannot be written");
    expect((as_json ? berth_plan_read_json(text, size, "again", &two) : berth_plan_read_csv(text, size, "again", &two)) ==
               GGML_STATUS_SUCCESS,
        "the written plan cannot be read");
    expect(two->n_items == set->n_items, "items lost");
    for (int64_t i = 0; i < set->n_items; i++) {
        expect(memcmp(&two->items[i], &set->items[i], sizeof set->items[i]) == 0 && two->offsets[i] == set->offsets[i],
            "items changed");
        expect(as_json || is_same_id(two->ids[i], set->ids[i]), "ids changed"); // JSON replaces bytes that are not UTF-8
    }
    expect(!as_json || (two->n_tensors == set->n_tensors && two->n_pools == set->n_pools), "tensors or pools lost");
    for (int64_t i = 0; i < two->n_tensors; i++) {
        const struct berth_plan_tensor *a = &set->tensors[i], *b = &two->tensors[i];
        expect(a->item == b->item && a->node == b->node && memcmp(a->ne, b->ne, sizeof a->ne) == 0, "tensors changed");
    }
    for (int64_t i = 0; i < two->n_pools; i++) {
        expect(
            set->pools[i].pool == two->pools[i].pool && set->pools[i].chunk_limit == two->pools[i].chunk_limit, "pools changed");
    }
    berth_plan_set_free(two);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ggml_log_set(quiet, NULL);
    for (int as_json = 0; as_json < 2; as_json++) {
        struct berth_plan_set *set = NULL;
        berth_clear_error();
        const enum ggml_status status = as_json ? berth_plan_read_json((const char *) data, size, "in", &set)
                                                : berth_plan_read_csv((const char *) data, size, "in", &set);
        expect((status == GGML_STATUS_SUCCESS) == (set != NULL), "status and set disagree");
        expect(set != NULL || strncmp(berth_last_error(), "in:", 3) == 0, "the message has no line number");
        if (set != NULL) {
            round_trip(set, true);
            round_trip(set, false);
            berth_plan_set_free(set);
        }
    }
    return 0;
}
