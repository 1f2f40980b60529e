// SPDX-License-Identifier: MIT
// sizing.c: computes the size of each item of a graph's plan on each device before any memory exists.
// It builds the steps of the graph (build.c) without addresses. The size of an item on a device is the largest size of the parts
// that use the item there.

#include "meta/program.h"

#include "base/min.h"
#include "meta/build.h"

int32_t meta_sizing_item(const struct meta_sizing *s, const struct ggml_tensor *root) {
    const int32_t row = berth_record_find(s->rec, root);
    const int32_t item = row >= 0 ? s->lives->rows[record_base(s->rec, row)].item : -1;
    return item >= 0 && s->lives->items[item].pool == s->params->pool ? item : -1;
}

static void item_enlarge(struct meta_sizing *s, int32_t item, int j, const struct ggml_tensor *part) {
    const size_t size = ggml_backend_buft_get_alloc_size(ggml_backend_dev_buffer_type(s->device->parts[j]), part);
    uint64_t *most = &s->sizes[(size_t) j * s->lives->n_items + (size_t) item];
    *most = max_u64(size, *most);
}

void meta_sizing_enlarge(struct meta_sizing *s, const struct ggml_tensor *root, int j, const struct ggml_tensor *part) {
    const int32_t item = root->view_src == NULL ? meta_sizing_item(s, root) : -1;
    if (item >= 0 && ggml_nelements(part) > 0) {
        item_enlarge(s, item, j, part);
    }
}

void meta_sizing_part(
    struct meta_sizing *s, const struct ggml_tensor *root, const meta_state *state, int j, struct ggml_tensor *part) {
    *part = (struct ggml_tensor){.type = root->type, .flags = root->flags};
    memcpy(part->name, root->name, sizeof part->name);
    meta_view_part(root, state, root, state, s->device->n, j, part);
    meta_sizing_enlarge(s, root, j, part);
}

static bool is_of_pool(const struct meta_sizing *s, int32_t row) {
    const int32_t id = s->lives->rows[row].id;
    return id >= 0 && s->params->pool_of[id] == s->params->pool;
}

static bool is_computed(const struct meta_sizing *s, int32_t row) {
    const struct ggml_tensor *t = s->rec->tensors[row];
    return row < s->rec->n_nodes && is_of_pool(s, row) && t->view_src == NULL && meta_computes(t);
}

// Enlarges the items of tensors that exist before the graph runs, or that are never computed. Such tensors are complete on every
// device.
static void whole_rows(struct meta_sizing *s) {
    for (int32_t r = 0; r < s->rec->n_all; r++) {
        const int32_t item = s->lives->rows[r].item;
        if (item < 0 || s->lives->items[item].pool != s->params->pool || is_computed(s, r)) {
            continue;
        }
        for (int j = 0; j < s->device->n; j++) {
            item_enlarge(s, item, j, s->rec->tensors[r]);
        }
    }
}

enum ggml_status meta_sizing_run(struct meta_sizing *s) {
    const struct lifetime_order *order = &s->lives->order;
    struct ggml_tensor **nodes = berth_malloc(((size_t) order->n_steps + 1) * sizeof *nodes);
    struct ggml_cgraph graph = {.nodes = nodes};
    if (nodes == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the parts of a graph of %d nodes", order->n_steps);
    }
    for (int32_t i = 0; i < order->n_steps; i++) {
        const int32_t row = lifetime_step(order, i);
        if (row < s->rec->n_nodes && is_of_pool(s, row)) {
            nodes[graph.n_nodes++] = s->rec->tensors[row];
        }
    }
    graph.size = graph.n_nodes;
    const enum ggml_status status = meta_program_size(s, &graph);
    berth_free(nodes);
    whole_rows(s);
    return status;
}
