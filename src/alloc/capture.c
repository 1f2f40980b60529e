// SPDX-License-Identifier: MIT
// capture.c: writes the graph of a plan as a captured graph (src/capture/), with the memory that the plan assigned.

#include "alloc/galloc.h"

#include "base/min.h"
#include "capture/capture.h"
#include "ggml-backend.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_bool is_broken; // after an error, nothing more is captured

struct writer {
    const struct ggml_gallocr *galloc;
    const struct galloc_plan *plan;
    const struct record *rec;
    int32_t *ids;      // [n_all] number of the row in the file, -1: another row of the same tensor has the number
    int32_t early_end; // rows [n_nodes, early_end) are leafs
    int32_t n_leafs;
    FILE *file;
};

// Numbers the rows in the order of the lines of the file: first the steps, then the other rows. If a tensor has several rows,
// only the first of them has a number.
static bool make_ids(struct writer *w) {
    const struct lifetime_order *order = &w->plan->lives.order;
    const struct record *rec = w->rec;
    w->ids = berth_malloc(((size_t) rec->n_all + 1) * sizeof w->ids[0]);
    w->early_end = rec->n_nodes + order->n_early;
    if (w->ids == NULL) {
        return false;
    }
    memset(w->ids, -1, ((size_t) rec->n_all + 1) * sizeof w->ids[0]);
    int32_t n = 0;
    for (; n < order->n_steps; n++) {
        w->ids[lifetime_step(order, n)] = n;
    }
    for (int32_t r = rec->n_nodes; r < rec->n_all; r++) {
        if (w->ids[r] < 0 && rec->rows[r].same_as == r) {
            w->ids[r] = n++;
            w->n_leafs += r < w->early_end;
        }
    }
    return true;
}

static void write_head(const struct writer *w) {
    const struct ggml_gallocr *galloc = w->galloc;
    const struct galloc_plan *plan = w->plan;
    const struct record *rec = w->rec;
    const int32_t n_steps = plan->lives.order.n_steps, n_early = plan->lives.order.n_early;
    FILE *f = w->file;
    berth_capture_write_head(f, n_steps, w->n_leafs, rec->n_all - n_steps - n_early, galloc->n_bufs);
    for (int b = 0; b < galloc->n_bufs; b++) {
        const struct galloc_pool *pool = &galloc->pools[galloc->pool_of[b]];
        const struct galloc_need *need = &plan->needs[galloc->pool_of[b]];
        struct capture_buf buf = {
            .name = ggml_backend_buft_name(pool->buft), .align = pool->align, .chunk_limit = pool->chunk_limit};
        while (galloc->pool_of[buf.same_as] != galloc->pool_of[b]) {
            buf.same_as++;
        }
        for (size_t c = 0; c < need->n && buf.same_as == b; c++) {
            buf.size += need->sizes[c];
        }
        berth_capture_write_buf(f, b, &buf);
    }
    for (int32_t i = 0; i < n_early && rec->n_duplicates > 0; i++) {
        const int32_t r = rec->n_nodes + i;
        fprintf(f, "%s%d:%d%s", i == 0 ? "leaforder " : ",", w->ids[rec->rows[r].same_as], plan->lives.rows[r].id,
            i + 1 == n_early ? "\n" : "");
    }
    berth_capture_write_columns(f);
}

static void write_row(const struct writer *w, int32_t r) {
    const struct ggml_gallocr *galloc = w->galloc;
    const struct galloc_plan *plan = w->plan;
    const struct record *rec = w->rec;
    const struct record_row *row = &rec->rows[r];
    const struct lifetime_row *lifetime = &plan->lives.rows[r];
    const struct ggml_tensor *t = rec->tensors[r];
    const int32_t buf = max_i32(lifetime->buf, 0);
    const bool is_node = w->ids[r] < plan->lives.order.n_steps;
    int32_t srcs[GGML_MAX_SRC];
    char kind = r < w->early_end ? 'L' : 'X';
    if (is_node) {
        kind = 'N';
    }
    struct capture_tensor c = {.tensor = t,
        .id = w->ids[r],
        .kind = kind,
        .op = (enum ggml_op) row->op,
        .flags = (t->flags & ~RECORD_FLAGS) | row->flags |
                 (lifetime->is_kept ? GGML_TENSOR_FLAG_OUTPUT : 0), // is_kept: an input, with several graphs in flight
        .view_src = row->view_src >= 0 ? w->ids[rec->rows[row->view_src].same_as] : -1,
        .has_memory = row->has_memory,
        .buf = lifetime->id,
        .alloc_size = ggml_backend_buft_get_alloc_size(galloc->pools[galloc->pool_of[buf]].buft, t),
        .chunk = -1,
        .off = -1,
        .item = lifetime->item};
    if (lifetime->item >= 0) {
        const struct galloc_spot *spot = &plan->spots[lifetime->item];
        const bool is_in_parts = spot->chunk == GALLOC_PARTS; // the offset differs per device
        c.chunk = is_in_parts ? 0 : spot->chunk;
        c.off = (int64_t) (is_in_parts ? plan->offsets[lifetime->item] : spot->off);
    }
    if (lifetime->item >= 0 && plan->lives.owners[lifetime->item] == r) {
        c.life = &plan->lives.items[lifetime->item];
        c.life_buf = lifetime->buf;
    }
    const int n_srcs = is_node ? row->n_src : 0; // a row that is not a node has no sources in the file
    for (int k = 0; k < n_srcs; k++) {
        srcs[k] = w->ids[rec->rows[rec->srcs[row->src + k]].same_as];
    }
    berth_capture_write_tensor(w->file, &c, srcs, n_srcs);
}

static bool graph_capture(const char *dir, struct writer *w) {
    struct berth_stream s;
    if (!make_ids(w) || !berth_stream_open(&s)) {
        berth_free(w->ids);
        errno = ENOMEM;
        return false;
    }
    w->file = s.file;
    write_head(w);
    for (int32_t i = 0; i < w->plan->lives.order.n_steps; i++) {
        write_row(w, lifetime_step(&w->plan->lives.order, i));
    }
    for (int32_t r = w->rec->n_nodes; r < w->rec->n_all; r++) {
        if (w->ids[r] >= w->plan->lives.order.n_steps) {
            write_row(w, r);
        }
    }
    const bool ok = berth_stream_close(&s) && berth_capture_write_file(dir, s.text, s.size);
    const int why = errno;
    berth_stream_fini(&s);
    berth_free(w->ids);
    errno = why;
    return ok;
}

bool berth_capture_is_on(void) {
    return berth_capture_dir() != NULL;
}

void berth_capture(const struct ggml_gallocr *galloc, const struct galloc_plan *plan, const struct record *rec) {
    const char *dir = galloc->has_capture ? berth_capture_dir() : NULL;
    if (dir == NULL || atomic_load(&is_broken)) {
        return;
    }
    struct writer w = {.galloc = galloc, .plan = plan, .rec = rec};
    if (!graph_capture(dir, &w) && !atomic_exchange(&is_broken, true)) {
        berth_log(GGML_LOG_LEVEL_WARN, "BERTH_CAPTURE: cannot write a captured graph to %s: %s; capturing is off from now on\n",
            dir, strerror(errno));
    }
}
