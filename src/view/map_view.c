// SPDX-License-Identifier: MIT
// map_view.c: converts a plan to the objects that are drawn. The time is O(n log n) in the number of items.

#include "view/map.h"

#include "base/base.h"
#include "base/min.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// ---- colours of the families of ops, for light and dark backgrounds ----

const struct map_family map_families[] = {
    [BERTH_OP_MATMUL] = {"matrix product", "#3b6fb6", "#5b8fd6"},
    [BERTH_OP_ATTENTION] = {"attention", "#d9772b", "#e8904a"},
    [BERTH_OP_NORM] = {"norm", "#218c7e", "#3fb3a3"},
    [BERTH_OP_ELEMENTWISE] = {"elementwise", "#6f9a35", "#92bd55"},
    [BERTH_OP_ACTIVATION] = {"activation", "#c49a1a", "#d9b545"},
    [BERTH_OP_MOVE] = {"copy, rows", "#8566a8", "#a78bc8"},
    [BERTH_OP_CONV] = {"convolution", "#4f4bb8", "#7d79e0"},
    [BERTH_OP_STATE] = {"state space", "#b34a7c", "#d5719f"},
    [BERTH_OP_REDUCE] = {"reduce, sort", "#3795b5", "#5cb8d6"},
    [BERTH_OP_TRAIN] = {"training", "#9a5536", "#c27a58"},
    [BERTH_OP_INPUT] = {"input", "#77828c", "#8f9aa5"},
    [BERTH_OP_OTHER] = {"other", "#a39c8b", "#b3ad9d"},
};
const int map_n_families = BERTH_OP_FAMILY_COUNT;

int map_family_of(const char *op) {
    return (int) (op[0] == '\0' ? BERTH_OP_INPUT : berth_op_family(op));
}

// ---- addresses ----

struct place {
    uint64_t offset, size;
    size_t item;
};

static int by_offset(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return (x->item > y->item) - (x->item < y->item);
}

// Sets the addresses and the peak of one buffer. places: its items.
static void set_addresses(struct map_view *view, size_t b, uint64_t chunk_limit, struct place *places, size_t n) {
    uint64_t chunk = 0, base = 0, used = 0; // current chunk: number; address; used bytes
    if (n > 0) {
        qsort(places, n, sizeof *places, by_offset);
    }
    for (size_t i = 0; i < n; i++) {
        const uint64_t k = chunk_limit > 0 ? places[i].offset / chunk_limit : 0, off = places[i].offset - k * chunk_limit;
        if (k != chunk) {
            chunk = k;
            base += used;
            used = 0;
        }
        view->items[places[i].item].at = base + off;
        if (places[i].size > 0) {
            used = max_u64(used, off + places[i].size);
        }
    }
    view->buffers[b].peak = base + used;
}

static bool set_buffer(
    struct map_view *view, const struct map_plan *plan, size_t b, struct place *places, struct berth_plan_item *items) {
    const struct berth_plan_set *set = plan->plan->set;
    const struct view_buffer *from = &plan->plan->buffers[b];
    const struct berth_plan_params params = {.chunk_limit = from->chunk_limit};
    struct map_buffer *buffer = &view->buffers[b];
    const size_t n = from->n_items;
    for (size_t k = 0; k < n; k++) {
        const size_t i = from->items[k];
        view->items[i].buffer = b;
        items[k] = set->items[i];
        places[k] = (struct place){plan->offsets[i], set->items[i].size, i};
    }
    buffer->name = from->name;
    buffer->items = from->items;
    buffer->n_items = n;
    if (n > 0 && berth_plan_bound(items, (int64_t) n, &params, &buffer->bound, &buffer->bound_step) != GGML_STATUS_SUCCESS) {
        return false;
    }
    set_addresses(view, b, from->chunk_limit, places, n);
    if (from->report.bound > buffer->bound && from->report.bound <= buffer->peak) {
        buffer->bound = from->report.bound; // the search has proven a higher bound
    }
    view->peak += buffer->peak;
    view->bound += buffer->bound;
    return true;
}

// ---- rectangles ----

static void add_rect(struct map_view *view, const struct map_rect *rect) {
    if (rect->first <= rect->last) { // a tensor that is replaced within its first step is not drawn
        view->rects[view->n_rects++] = *rect;
    }
}

// Adds the rectangles of item i, whose tensors start at index t. Each tensor of an item ends where the next tensor begins.
// Returns the index of the next item's first tensor.
static int64_t add_tensors(struct map_view *view, const struct berth_plan_set *set, int64_t i, int64_t t) {
    const struct berth_plan_item *item = &set->items[i];
    struct map_rect rect = {.item = (size_t) i, .name = set->ids[i], .op = "", .type = "", .uses = ""};
    int64_t first = item->first;
    if (t == set->n_tensors || set->tensors[t].item != i) {
        rect.first = item->first;
        rect.last = item->last;
        rect.family = map_family_of("");
        add_rect(view, &rect);
        return t;
    }
    for (; t < set->n_tensors && set->tensors[t].item == i; t++) {
        const struct berth_plan_tensor *tensor = &set->tensors[t];
        const bool is_last = t + 1 == set->n_tensors || set->tensors[t + 1].item != i;
        const int64_t next = is_last ? item->last + 1 : set->tensors[t + 1].node;

        rect.name = tensor->name;
        rect.op = tensor->op;
        rect.type = tensor->type;
        rect.uses = tensor->uses;
        rect.family = map_family_of(tensor->op);
        rect.first = first;
        rect.last = next > item->last ? item->last : next - 1;
        memcpy(rect.ne, tensor->ne, sizeof rect.ne);
        add_rect(view, &rect);
        view->has_ops = view->has_ops || tensor->op[0] != '\0';
        first = max_i64(first, rect.last + 1);
    }
    return t;
}

static void set_items(struct map_view *view, const struct berth_plan_set *set) {
    size_t t = 0;
    view->first = set->n_items > 0 ? INT64_MAX : 0;
    view->last = set->n_items > 0 ? INT64_MIN : 0;
    for (int64_t i = 0; i < set->n_items; i++) {
        const struct berth_plan_item *item = &set->items[i];
        view->items[i] = (struct map_item){.first = item->first,
            .last = item->last,
            .size = item->size,
            .align = max_u64(item->align, 1),
            .is_fixed = item->is_fixed,
            .rect = view->n_rects};
        view->first = min_i64(view->first, item->first);
        view->last = max_i64(view->last, item->last);
        t = add_tensors(view, set, i, t);
    }
}

bool map_view_init(struct map_view *view, const struct map_plan *plan) {
    const struct berth_plan_set *set = plan->plan->set;
    const size_t n = set->n_items + 1;
    *view = (struct map_view){.title = plan->title, .n_items = set->n_items};
    view->items = berth_calloc(n, sizeof *view->items);
    view->rects = berth_calloc(n + set->n_tensors, sizeof *view->rects);
    view->buffers = berth_calloc(plan->plan->n_buffers + 1, sizeof *view->buffers);
    view->n_buffers = plan->plan->n_buffers;
    struct place *places = berth_calloc(n, sizeof *places);
    struct berth_plan_item *items = berth_calloc(n, sizeof *items);
    bool ok = view->items != NULL && view->rects != NULL && view->buffers != NULL && places != NULL && items != NULL;
    if (!ok) {
        berth_set_error("out of memory for a map of %" PRId64 " items", set->n_items);
    } else {
        set_items(view, set);
    }
    for (size_t b = 0; b < view->n_buffers && ok; b++) {
        ok = set_buffer(view, plan, b, places, items);
    }
    berth_free(places);
    berth_free(items);
    if (!ok) {
        map_view_fini(view);
    }
    return ok;
}

void map_view_fini(struct map_view *view) {
    berth_free(view->items);
    berth_free(view->rects);
    berth_free(view->buffers);
    *view = (struct map_view){0};
}

// ---- bytes alive ----

struct event {
    int64_t step;
    uint64_t bytes;
    bool is_end;
};

static int by_step(const void *a, const void *b) {
    const struct event *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

struct map_live *map_view_live(const struct map_view *view, size_t buffer, size_t *n) {
    const struct map_buffer *own = &view->buffers[buffer];
    struct event *events = berth_malloc((2 * own->n_items + 1) * sizeof *events);
    struct map_live *live = berth_malloc((2 * own->n_items + 1) * sizeof *live);
    size_t n_events = 0;
    uint64_t bytes = 0;
    *n = 0;
    for (size_t k = 0; events != NULL && k < own->n_items; k++) {
        const struct map_item *item = &view->items[own->items[k]];
        if (item->size > 0) {
            events[n_events++] = (struct event){item->first, item->size, false};
            events[n_events++] = (struct event){item->last + 1, item->size, true};
        }
    }
    if (n_events > 0) {
        qsort(events, n_events, sizeof *events, by_step);
    }
    for (size_t i = 0; live != NULL && i < n_events; i++) {
        bytes += events[i].is_end ? 0 - events[i].bytes : events[i].bytes; // may wrap within a step; correct after its last event
        if (i + 1 == n_events || events[i + 1].step != events[i].step) {
            live[(*n)++] = (struct map_live){events[i].step, bytes};
        }
    }
    if (events == NULL) { // out of memory: fails instead of returning an empty curve
        berth_free(live);
        live = NULL;
    }
    berth_free(events);
    return live;
}
