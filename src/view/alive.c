// SPDX-License-Identifier: MIT
// alive.c: see alive.h. O(n log n) for a buffer of n items.

#include "view/alive.h"

#include "cli/cli.h"

#include <inttypes.h>
#include <stdlib.h>

static int by_size(const void *a, const void *b) {
    const struct cli_alive *x = a, *y = b;
    return x->size != y->size ? (x->size < y->size ? 1 : -1) : (x->name > y->name) - (x->name < y->name);
}

// The first tensor of an item, by halving: they are in the order of items.
static size_t first_tensor(const struct berth_plan_set *set, size_t item) {
    size_t low = 0;
    for (size_t high = set->n_tensors; low < high;) {
        const size_t mid = low + (high - low) / 2;
        if (set->tensors[mid].item < item) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

// The tensors of an item have it one after another; the last that was computed by then has it.
static struct cli_alive alive_of(const struct berth_plan_set *set, size_t item, int64_t step) {
    struct cli_alive alive = {set->items[item].size, set->ids[item], ""};
    for (size_t t = first_tensor(set, item); t < set->n_tensors && set->tensors[t].item == item; t++) {
        if (set->tensors[t].node <= step) {
            alive.name = set->tensors[t].name;
            alive.op = set->tensors[t].op;
        }
    }
    return alive;
}

struct cli_alive *cli_alive_at_bound(const struct cli_plan *plan, const struct cli_buffer *buffer, size_t *n, uint64_t *bytes) {
    struct cli_alive *list = malloc((buffer->n_items + 1) * sizeof *list);
    const int64_t step = buffer->report.bound_step;
    *n = 0;
    *bytes = 0;
    for (size_t k = 0; list != NULL && k < buffer->n_items; k++) {
        const struct berth_plan_item *item = &plan->set->items[buffer->items[k]];
        if (item->first <= step && step <= item->last && item->size > 0) {
            list[(*n)++] = alive_of(plan->set, buffer->items[k], step);
            *bytes += item->size;
        }
    }
    if (list != NULL && *n > 0) {
        qsort(list, *n, sizeof *list, by_size);
    }
    return list;
}

static double share(uint64_t part, uint64_t all) {
    return all > 0 ? (double) part / (double) all : 0;
}

bool cli_alive_print(FILE *file, const struct cli_plan *plan, const struct cli_buffer *buffer) {
    size_t n;
    uint64_t bytes, rest = 0;
    char text[32];
    struct cli_alive *list = cli_alive_at_bound(plan, buffer, &n, &bytes);
    const bool is_out = list == NULL;
    if (is_out || n == 0) {
        free(list);
        return !is_out;
    }
    fprintf(file, "  alive at step %" PRId64, buffer->report.bound_step);
    if (plan->n_buffers > 1 && *buffer->name != '\0') {
        fputs(" in ", file);
        cli_text(file, 0, buffer->name);
    }
    fprintf(file, ": %s in %zu piece%s\n", cli_short_bytes(bytes, text), n, n == 1 ? "" : "s");
    for (size_t i = 0; i < n; i++) {
        if (i >= CLI_ALIVE_SHOWN) {
            rest += list[i].size;
            continue;
        }
        fprintf(file, "    %10s %5.1f%%  ", cli_short_bytes(list[i].size, text), 100 * share(list[i].size, bytes));
        cli_text(file, *list[i].op != '\0' ? 28 : 0, list[i].name);
        if (*list[i].op != '\0') {
            fputc(' ', file);
            cli_text(file, 0, list[i].op);
        }
        fputc('\n', file);
    }
    if (n > CLI_ALIVE_SHOWN) {
        fprintf(
            file, "    %10s %5.1f%%  %zu others\n", cli_short_bytes(rest, text), 100 * share(rest, bytes), n - CLI_ALIVE_SHOWN);
    }
    free(list);
    return true;
}

bool cli_alive_json(FILE *file, const struct cli_plan *plan, const struct cli_buffer *buffer) {
    size_t n = 0;
    uint64_t bytes = 0;
    struct cli_alive *list = cli_alive_at_bound(plan, buffer, &n, &bytes);
    if (list == NULL) {
        return false;
    }
    fprintf(file, ", \"alive\": {\"step\": %" PRId64 ", \"bytes\": %" PRIu64 ", \"pieces\": %zu, \"largest\": [",
        buffer->report.bound_step, bytes, n);
    for (size_t i = 0; i < n && i < CLI_ALIVE_SHOWN; i++) {
        fputs(i > 0 ? ", {\"name\": " : "{\"name\": ", file);
        cli_json_text(file, list[i].name);
        fputs(", \"op\": ", file);
        cli_json_text(file, list[i].op);
        fprintf(file, ", \"bytes\": %" PRIu64 ", \"share\": %.6f}", list[i].size, share(list[i].size, bytes));
    }
    fputs("]}", file);
    free(list);
    return true;
}

static const struct cli_buffer *largest_of(const struct cli_plan *plan) {
    const struct cli_buffer *most = NULL;
    for (size_t b = 0; b < plan->n_buffers; b++) {
        most = most == NULL || plan->buffers[b].report.peak > most->report.peak ? &plan->buffers[b] : most;
    }
    return most;
}

bool cli_alive_print_most(FILE *file, const struct cli_plan *plan) {
    const struct cli_buffer *most = largest_of(plan);
    return most == NULL || cli_alive_print(file, plan, most);
}

bool cli_alive_json_most(FILE *file, const struct cli_plan *plan) {
    const struct cli_buffer *most = largest_of(plan);
    return most == NULL || cli_alive_json(file, plan, most);
}
