// SPDX-License-Identifier: MIT
// galloc_json.c: writes the plan of a graph to a file and reads it back, in the format of src/plan: one item per piece of memory.

#include "alloc/galloc.h"
#include "base/json.h"
#include "ggml-backend.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// ---- save ----

// The chain of an item is the list of rows that use the item one after another. Both arrays have one entry per row.
struct chains {
    int32_t *next; // row that takes over the memory of this row, -1: none
    int32_t *step; // step at which the row runs, -1: never
};

// The readers of each row: the steps that read row r are steps[first[r]] to steps[first[r + 1] - 1].
struct uses {
    int32_t *first, *steps;
};

struct tensor_row {
    const struct ggml_tensor *tensor;
    int32_t row;
};

static int by_tensor(const void *a, const void *b) {
    const struct tensor_row *x = a, *y = b;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

// Returns the row whose memory a source reads, -1: not in the plan.
static int32_t row_of(const struct tensor_row *rows_by_tensor, int32_t n, const struct ggml_tensor *src) {
    const struct tensor_row key = {.tensor = src != NULL && src->view_src != NULL ? src->view_src : src};
    const struct tensor_row *at =
        key.tensor != NULL ? bsearch(&key, rows_by_tensor, (size_t) n, sizeof *rows_by_tensor, by_tensor) : NULL;
    return at != NULL ? at->row : -1;
}

static bool is_view(const struct ggml_tensor *t) {
    return t->op == GGML_OP_RESHAPE || t->op == GGML_OP_VIEW || t->op == GGML_OP_PERMUTE || t->op == GGML_OP_TRANSPOSE;
}

// Counting sort: the first call (is_count) counts in first[row + 2], the second call stores the steps.
static void uses_walk(const struct galloc_plan *plan, const struct tensor_row *rows_by_tensor, struct uses *uses, bool is_count) {
    for (int32_t i = 0; i < plan->lives.order.n_steps; i++) {
        const struct ggml_tensor *t = plan->tensors[lifetime_step(&plan->lives.order, i)];
        for (int k = 0; k < GGML_MAX_SRC && !is_view(t); k++) {
            const int32_t row =
                t->src[k] != t ? row_of(rows_by_tensor, plan->n_rows, t->src[k]) : -1; // a cast lists itself as a source
            if (row >= 0 && is_count) {
                uses->first[row + 2]++;
            } else if (row >= 0) {
                uses->steps[uses->first[row + 1]++] = i;
            }
        }
    }
}

// False: out of memory.
static bool uses_find(const struct galloc_plan *plan, struct berth_arrays *mem, struct uses *uses) {
    const size_t n = (size_t) plan->n_rows;
    const size_t n_most = (size_t) plan->lives.order.n_steps * GGML_MAX_SRC;
    struct tensor_row *rows_by_tensor = berth_arrays_new(mem, n, sizeof *rows_by_tensor);
    uses->first = berth_arrays_new(mem, n + 3, sizeof *uses->first);
    uses->steps = berth_arrays_new(mem, n_most, sizeof *uses->steps);
    if (mem->has_failed) {
        return false;
    }
    for (int32_t r = 0; r < plan->n_rows; r++) {
        rows_by_tensor[r] = (struct tensor_row){plan->tensors[r], r};
    }
    if (n > 0) {
        qsort(rows_by_tensor, n, sizeof *rows_by_tensor, by_tensor);
    }
    uses_walk(plan, rows_by_tensor, uses, true);
    for (size_t r = 2; r < n + 2; r++) {
        uses->first[r] += uses->first[r - 1];
    }
    uses_walk(plan, rows_by_tensor, uses, false);
    return true;
}

static void write_uses(struct berth_json_writer *w, const struct uses *uses, int32_t r) {
    if (uses->first[r] == uses->first[r + 1]) {
        return;
    }
    berth_json_put_key(w, "uses");
    for (int32_t i = uses->first[r], last = -1; i < uses->first[r + 1]; i++) {
        if (uses->steps[i] != last) { // a step may read a row twice
            fprintf(w->file, "%c%d", last < 0 ? '"' : ' ', uses->steps[i]);
            last = uses->steps[i];
        }
    }
    fputc('"', w->file);
}

static void write_tensor(
    struct berth_json_writer *w, const struct galloc_plan *plan, const struct uses *uses, int32_t r, int32_t step) {
    const struct ggml_tensor *t = plan->tensors[r];
    berth_json_begin(w, NULL, '{');
    berth_json_printf(w, "'name': %s, 'op': %s, 'type': %s, 'shape': [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]",
        t->name, ggml_op_desc(t), ggml_type_name(t->type), t->ne[0], t->ne[1], t->ne[2], t->ne[3]);
    if (step >= 0) {
        berth_json_printf(w, "'node': %d", step);
    }
    write_uses(w, uses, r);
    berth_json_printf(w, "'buffer': %d", plan->lives.rows[r].buf);
    berth_json_end(w);
}

// Appends row r to the chain of its item, unless r has no item or is already the first row of the chain.
static void chain_append(const struct galloc_plan *plan, int32_t *next, int32_t *tail, int32_t r) {
    const int32_t item = plan->lives.rows[r].item;
    if (item >= 0 && plan->lives.owners[item] != r) {
        next[tail[item]] = r;
        tail[item] = r;
    }
}

// False: out of memory.
static bool chains_find(const struct galloc_plan *plan, struct berth_arrays *mem, struct chains *chains) {
    const struct lifetime_order *order = &plan->lives.order;
    const size_t n_rows = (size_t) plan->n_rows + 1, n_items = plan->lives.n_items;
    int32_t *next = berth_arrays_new(mem, n_rows, sizeof *next), *step = berth_arrays_new(mem, n_rows, sizeof *step);
    int32_t *tail = berth_arrays_new(mem, n_items, sizeof *tail);
    if (mem->has_failed) {
        return false;
    }
    memset(next, -1, n_rows * sizeof *next);
    memset(step, -1, n_rows * sizeof *step);
    for (size_t i = 0; i < n_items; i++) {
        tail[i] = plan->lives.owners[i];
    }
    for (int32_t r = 0; r < plan->n_rows && plan->lives.n_late > 0; r++) {
        if (plan->lives.rows[r].is_late) { // several late leafs may share one item
            chain_append(plan, next, tail, r);
        }
    }
    for (int32_t i = 0; i < order->n_steps; i++) {
        const int32_t r = lifetime_step(order, i);
        step[r] = i;
        chain_append(plan, next, tail, r);
    }
    *chains = (struct chains){next, step};
    return true;
}

static void write_buffers(struct berth_json_writer *w, const struct ggml_gallocr *galloc, const struct galloc_plan *plan) {
    uint64_t peak = 0, bound = 0;
    bool proven = true;
    for (int p = 0; p < galloc->n_pools; p++) {
        peak += plan->needs[p].report.peak;
        bound += plan->needs[p].report.bound;
        if (!plan->needs[p].report.proven) {
            proven = false;
        }
    }
    berth_json_line(w, 2);
    berth_json_printf(w, "'peak': %" PRIu64 ",\n  'bound': %" PRIu64 ",\n  'proven': %c,\n  'nodes': %d", peak, bound, proven,
        plan->lives.order.n_steps);
    berth_json_line(w, 2);
    berth_json_begin(w, "pools", '[');
    for (int p = 0; p < galloc->n_pools; p++) {
        const struct berth_plan_report *r = &plan->needs[p].report;
        const char *name = ggml_backend_buft_name(galloc->pools[p].buft);
        berth_json_line(w, 4);
        berth_json_printf(w,
            "{'pool': %d, 'name': %s, 'alignment': %zu, 'max_chunk': %zu, 'peak': %" PRIu64 ", 'bound': %" PRIu64
            ", 'bound_step': %" PRId64 "}",
            p, name != NULL ? name : "", galloc->pools[p].align, plan->needs[p].chunk_limit, r->peak, r->bound, r->bound_step);
    }
    berth_json_line(w, 2);
    berth_json_end(w);
}

enum ggml_status berth_galloc_plan_save(const struct ggml_gallocr *galloc, const struct galloc_plan *plan, FILE *file) {
    struct berth_arrays mem = {0};
    struct chains chains;
    struct uses uses;
    if (!chains_find(plan, &mem, &chains) || !uses_find(plan, &mem, &uses)) {
        berth_arrays_free(&mem);
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "cannot save the plan: out of memory for %d tensors", plan->n_rows);
    }
    struct berth_json_writer w = {.file = file};
    berth_json_begin(&w, NULL, '{');
    write_buffers(&w, galloc, plan);
    berth_json_line(&w, 2);
    berth_json_begin(&w, "items", '[');
    for (size_t i = 0; i < plan->lives.n_items && !ferror(file); i++) {
        const struct berth_plan_item *item = &plan->lives.items[i];
        berth_json_line(&w, 4);
        berth_json_begin(&w, NULL, '{');
        berth_json_printf(&w,
            "'id': %s, 'first': %" PRId64 ", 'last': %" PRId64 ", 'size': %" PRIu64 ", 'alignment': %" PRIu64
            ", 'offset': %" PRIu64 ", 'pool': %d",
            plan->tensors[plan->lives.owners[i]]->name, item->first, item->last, item->size, item->align, plan->offsets[i],
            item->pool);
        berth_json_begin(&w, "tensors", '[');
        for (int32_t r = plan->lives.owners[i]; r >= 0; r = chains.next[r]) {
            write_tensor(&w, plan, &uses, r, chains.step[r]);
        }
        berth_json_end(&w);
        berth_json_end(&w);
    }
    berth_json_line(&w, 2);
    berth_json_end(&w);
    berth_json_line(&w, 0);
    berth_json_end(&w);
    fputc('\n', file);
    berth_arrays_free(&mem);
    if (fflush(file) != 0 || ferror(file)) {
        return berth_fail(GGML_STATUS_FAILED, "cannot save the plan: %s", strerror(errno));
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status berth_gallocr_save(ggml_gallocr_t galloc, struct ggml_cgraph *graph, FILE *file) {
    if (!berth_galloc_has_arguments(__func__, galloc, graph) || file == NULL) {
        return GGML_STATUS_FAILED;
    }
    const struct galloc_plan *plan = berth_galloc_find_any(galloc, graph);
    if (plan == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "berth_gallocr_save: the graph of %d nodes was not reserved", graph->n_nodes);
    }
    return berth_galloc_plan_save(galloc, plan, file);
}

// ---- load ----

static enum ggml_status same_items(const struct galloc_plan *plan, const struct berth_plan_set *set) {
    if (!set->has_offsets && set->n_items > 0) {
        return berth_fail(GGML_STATUS_FAILED, "berth_gallocr_load: the plan has no offsets");
    }
    if (set->n_items != (int64_t) plan->lives.n_items) {
        return berth_fail(GGML_STATUS_FAILED,
            "berth_gallocr_load: the plan belongs to another graph: it has %" PRId64 " items, this graph has %zu", set->n_items,
            plan->lives.n_items);
    }
    for (int64_t i = 0; i < set->n_items; i++) {
        const struct berth_plan_item *a = &set->items[i], *b = &plan->lives.items[i];
        if (a->first != b->first || a->last != b->last || a->size != b->size || a->align != b->align || a->pool != b->pool) {
            return berth_fail(GGML_STATUS_FAILED,
                "berth_gallocr_load: the plan belongs to another graph: item %" PRId64
                " (%s) is alive from step %lld to %lld with %llu "
                "bytes, in this graph "
                "from %lld to %lld with %llu",
                i, set->ids[i], (long long) a->first, (long long) a->last, (unsigned long long) a->size, (long long) b->first,
                (long long) b->last, (unsigned long long) b->size);
        }
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status check_pool(struct galloc_plan *plan, int p, struct berth_plan_item *items, uint64_t *offsets) {
    const struct berth_plan_params params = {.chunk_limit = plan->needs[p].chunk_limit};
    struct berth_plan_report *report = &plan->needs[p].report;
    int64_t n = 0;
    for (size_t i = 0; i < plan->lives.n_items; i++) {
        if (plan->lives.items[i].pool == p) {
            items[n] = plan->lives.items[i];
            offsets[n++] = plan->offsets[i];
        }
    }
    *report = (struct berth_plan_report){.fits = true, .method = "loaded"};
    const enum ggml_status status = berth_plan_check(items, n, &params, offsets, NULL);
    if (status != GGML_STATUS_SUCCESS || n == 0) {
        return status;
    }
    return berth_plan_bound(items, n, &params, &report->bound, &report->bound_step);
}

static enum ggml_status check_pools(const struct ggml_gallocr *galloc, struct galloc_plan *plan) {
    const size_t n = plan->lives.n_items + 1;
    struct berth_arrays mem = {0};
    struct berth_plan_item *items = berth_arrays_new(&mem, n, sizeof *items);
    uint64_t *offsets = berth_arrays_new(&mem, n, sizeof *offsets);
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (mem.has_failed) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "berth_gallocr_load: out of memory for %zu items", n);
    }
    for (int p = 0; p < galloc->n_pools && status == GGML_STATUS_SUCCESS; p++) {
        status = check_pool(plan, p, items, offsets);
    }
    berth_arrays_free(&mem);
    return status;
}

// The layout of a composite device is computed from the graph, so saved offsets do not apply.
static enum ggml_status parts_resolve(struct ggml_gallocr *galloc, struct galloc_plan *plan) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int p = 0; p < galloc->n_pools && status == GGML_STATUS_SUCCESS; p++) {
        if (galloc->pools[p].composite != NULL) {
            status = berth_galloc_parts_solve(galloc, plan, &plan->rec, p);
        }
    }
    return status;
}

static enum ggml_status plan_fill(struct ggml_gallocr *galloc, struct galloc_plan *plan, const struct berth_plan_set *set) {
    enum ggml_status status = same_items(plan, set);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    berth_galloc_plan_prepare(galloc, plan);
    if (set->n_items > 0) {
        memcpy(plan->offsets, set->offsets, (size_t) set->n_items * sizeof plan->offsets[0]);
    }
    status = check_pools(galloc, plan);
    if (status == GGML_STATUS_SUCCESS) {
        status = parts_resolve(galloc, plan);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_galloc_plan_set_spots(galloc, plan);
    }
    for (int p = 0; p < galloc->n_pools && status == GGML_STATUS_SUCCESS; p++) {
        struct berth_plan_report *r = &plan->needs[p].report;
        if (plan->needs[p].layout != NULL) {
            continue;
        }
        for (size_t c = 0; c < plan->needs[p].n; c++) {
            r->peak += plan->needs[p].sizes[c];
        }
        r->proven = r->peak == r->bound;
        r->gap = r->bound > 0 ? (double) r->peak / (double) r->bound - 1 : 0;
    }
    return status;
}

enum ggml_status berth_gallocr_load(ggml_gallocr_t galloc, struct ggml_cgraph *graph, const int *node_buffer_ids,
    const int *leaf_buffer_ids, const struct berth_plan_set *set) {
    if (!berth_galloc_has_arguments(__func__, galloc, graph) || set == NULL) {
        return GGML_STATUS_FAILED;
    }
    struct galloc_plan *plan = berth_galloc_plan_new(galloc, true);
    if (plan == NULL) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    enum ggml_status status = berth_galloc_plan_items(galloc, plan, graph, (struct galloc_ids){node_buffer_ids, leaf_buffer_ids});
    if (status == GGML_STATUS_SUCCESS) {
        status = plan_fill(galloc, plan, set);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_galloc_buffers_reserve(galloc, plan);
    }
    if (status == GGML_STATUS_SUCCESS) {
        berth_galloc_adopt(galloc, plan);
    } else {
        berth_galloc_plan_free(galloc, plan);
    }
    return status;
}
