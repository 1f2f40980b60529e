// SPDX-License-Identifier: MIT
// capture.c: the graph of a plan as a captured graph (src/capture/): its rows with the memory that the plan gave them.

#include "alloc/capture.h"

#include "capture/capture.h"
#include "ggml-backend.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_bool is_broken; // something went wrong once

// Ids follow the lines: nodes, leafs that are listed once, the rest. ids[row], -1: another row stands for it.
static int32_t *make_ids(const struct record *rec, int32_t *n_leafs) {
    int32_t *ids = berth_malloc(((size_t) rec->n_rows + 1) * sizeof *ids);
    int32_t n    = rec->n_nodes;
    *n_leafs     = 0;
    for (int32_t r = 0; ids != NULL && r < rec->n_rows; r++) {
        const bool is_leaf = r >= rec->n_nodes && r < rec->n_nodes + rec->n_leafs;
        ids[r]             = r < rec->n_nodes ? r : rec->rows[r].same_as == r ? n++ : -1;
        *n_leafs += is_leaf && ids[r] >= 0;
    }
    return ids;
}

static void write_head(
    const struct ggml_gallocr *galloc, const struct galloc_plan *plan, const int32_t *ids, int32_t n_leafs, FILE *f) {
    const struct record *rec = &plan->rec;
    berth_capture_write_head(f, rec->n_nodes, n_leafs, rec->n_rows - rec->n_nodes - rec->n_leafs, galloc->n_bufs);
    for (int b = 0; b < galloc->n_bufs; b++) {
        const struct galloc_pool *pool = &galloc->pools[galloc->pool_of[b]];
        const struct galloc_need *need = &plan->needs[galloc->pool_of[b]];
        struct capture_buf buf = {.name = ggml_backend_buft_name(pool->buft), .align = pool->align, .max_chunk = pool->max_chunk};
        while (galloc->pool_of[buf.same_as] != galloc->pool_of[b]) {
            buf.same_as++;
        }
        for (size_t c = 0; c < need->n && buf.same_as == b; c++) {
            buf.size += need->sizes[c];
        }
        berth_capture_write_buf(f, b, &buf);
    }
    for (int32_t i = 0; i < rec->n_leafs && rec->n_twice > 0; i++) {
        const int32_t r = rec->n_nodes + i;
        fprintf(f, "%s%d:%d%s", i == 0 ? "leaforder " : ",", ids[rec->rows[r].same_as], lifetime_rows(rec)[r].id,
            i + 1 == rec->n_leafs ? "\n" : "");
    }
    berth_capture_write_columns(f);
}

static void write_row(const struct ggml_gallocr *galloc, const struct galloc_plan *plan, const int32_t *ids, int32_t r, FILE *f) {
    const struct record *rec         = &plan->rec;
    const struct record_row *row     = &rec->rows[r];
    const struct lifetime_row *given = &lifetime_rows(rec)[r];
    const struct ggml_tensor *t      = rec->tensors[r];
    const int32_t buf                = given->buf >= 0 ? given->buf : 0;
    const bool is_node               = r < rec->n_nodes;
    int32_t srcs[GGML_MAX_SRC];
    struct capture_tensor c = {.tensor = t,
        .id                            = ids[r],
        .kind                          = is_node                           ? 'N'
                                         : r < rec->n_nodes + rec->n_leafs ? 'L'
                                                                           : 'X',
        .op                            = (enum ggml_op) row->op,
        .flags                         = (t->flags & ~RECORD_FLAGS) | row->flags,
        .view_src                      = row->view_src >= 0 ? ids[rec->rows[row->view_src].same_as] : -1,
        .has_memory                    = row->has_memory,
        .buf                           = given->id,
        .alloc_size                    = ggml_backend_buft_get_alloc_size(galloc->pools[galloc->pool_of[buf]].buft, t),
        .chunk                         = -1,
        .off                           = -1,
        .item                          = given->item};
    if (given->item >= 0) {
        c.chunk = plan->spots[given->item].chunk;
        c.off   = (int64_t) plan->spots[given->item].off;
    }
    if (given->item >= 0 && plan->lives.owners[given->item] == r) {
        c.life     = &plan->lives.items[given->item];
        c.life_buf = given->buf;
    }
    const int n_srcs = is_node ? row->n_src : 0; // nobody waits for what is not computed
    for (int k = 0; k < n_srcs; k++) {
        srcs[k] = ids[rec->rows[rec->srcs[row->src + k]].same_as];
    }
    berth_capture_write_tensor(f, &c, srcs, n_srcs);
}

static bool capture(const char *dir, const struct ggml_gallocr *galloc, const struct galloc_plan *plan) {
    struct berth_stream s;
    int32_t n_leafs;
    int32_t *ids = make_ids(&plan->rec, &n_leafs);
    if (ids == NULL || !berth_stream_open(&s)) {
        berth_free(ids);
        errno = ENOMEM;
        return false;
    }
    write_head(galloc, plan, ids, n_leafs, s.file);
    for (int32_t r = 0; r < plan->rec.n_rows; r++) {
        if (ids[r] >= 0) {
            write_row(galloc, plan, ids, r, s.file);
        }
    }
    const bool ok = berth_stream_close(&s) && berth_capture_write_file(dir, s.text, s.size);
    const int why = errno;
    berth_stream_fini(&s);
    berth_free(ids);
    errno = why;
    return ok;
}

bool berth_capture_is_on(void) {
    return berth_capture_dir() != NULL;
}

void berth_capture(const struct ggml_gallocr *galloc, const struct galloc_plan *plan) {
    const char *dir = galloc->has_capture ? berth_capture_dir() : NULL;
    if (dir == NULL || atomic_load(&is_broken)) {
        return;
    }
    if (!capture(dir, galloc, plan) && !atomic_exchange(&is_broken, true)) {
        berth_log(GGML_LOG_LEVEL_WARN, "BERTH_CAPTURE: graphs cannot be written to %s: %s\n", dir, strerror(errno));
    }
}
