// SPDX-License-Identifier: MIT
// trace_ops.c: the bars of single ops in a timeline. While a split is traced its nodes run one by one, and each is recorded with its
// cost (berth_op_cost) and with how many bytes of the compute buffers are in use.

#include "sched/sched.h"

#include "alloc/alloc.h"

#include <string.h>
#include <time.h>

// ---- memory in use ----

struct life {
    int32_t first, last; // steps; first -1: nobody asked for it
};

static bool is_ours(const struct ggml_backend_sched *sched, const struct sched_memo *memo, int32_t base) {
    const struct ggml_tensor *t = memo->rec.tensors[base];
    return !memo->rows[base].is_placed && t->buffer != NULL && berth_galloc_owns(sched->galloc, t->buffer);
}

static void lives_find(const struct sched_memo *memo, struct life *lives) {
    const struct record *rec = &memo->rec;
    for (int32_t r = 0; r < rec->n_rows; r++) {
        lives[r] = (struct life){-1, -1};
    }
    for (int32_t i = 0; i < rec->n_nodes; i++) {
        const int32_t r = sched_order(memo, i), own = sched_base(memo, r);
        for (int k = 0; k < rec->rows[r].n_src; k++) {
            const int32_t base = sched_base(memo, rec->srcs[rec->rows[r].src + k]);
            struct life *life = &lives[base];
            if (base == own && rec->rows[r].names_self) {
                continue;
            }
            if (life->first < 0) { // an input
                life->first = 0;
            }
            life->last = i;
        }
        if (lives[own].first < 0) {
            lives[own].first = i;
        }
        lives[own].last = (rec->rows[r].flags & GGML_TENSOR_FLAG_OUTPUT) != 0 ? rec->n_nodes - 1 : i;
    }
    // Memory that a result took over from its source is counted once.
    for (int32_t i = 0; i < rec->n_nodes; i++) {
        const int32_t r = sched_order(memo, i), own = sched_base(memo, r);
        for (int k = 0; k < rec->rows[r].n_src; k++) {
            const int32_t base = sched_base(memo, rec->srcs[rec->rows[r].src + k]);
            if (base != own && lives[base].last == i && lives[own].first == i &&
                rec->tensors[base]->data == rec->tensors[own]->data) {
                lives[base].last = i - 1;
            }
        }
    }
}

bool sched_trace_memory(struct ggml_backend_sched *sched, const struct sched_memo *memo) {
    const struct record *rec = &memo->rec;
    const size_t n_steps = (size_t) rec->n_nodes + 1, n = n_steps * (size_t) sched->n_backends;
    struct life *lives = berth_malloc(((size_t) rec->n_rows + 1) * sizeof *lives);
    const bool ok = lives != NULL && berth_grow((void **) &sched->in_use, &sched->in_use_cap, n, sizeof sched->in_use[0]);
    if (ok) {
        memset(sched->in_use, 0, n * sizeof sched->in_use[0]);
        lives_find(memo, lives);
    }
    for (int32_t r = 0; ok && r < rec->n_rows; r++) {
        const int b = memo->rows[r].backend;
        if (lives[r].first >= 0 && lives[r].last >= lives[r].first && b >= 0 && is_ours(sched, memo, r)) {
            const int64_t size = (int64_t) ggml_nbytes(rec->tensors[r]);
            int64_t *steps = sched->in_use + (size_t) b * n_steps;
            steps[lives[r].first] += size;
            steps[lives[r].last + 1] -= size;
        }
    }
    for (size_t i = 1; ok && i < n; i++) {
        sched->in_use[i] += i % n_steps != 0 ? sched->in_use[i - 1] : 0;
    }
    berth_free(lives);
    return ok;
}

// ---- running ----

static enum ggml_status nodes_run(struct ggml_backend_sched *sched, struct sched_memo *memo, int b, int32_t i, int32_t end) {
    ggml_backend_t backend = sched->backends[b];
    struct ggml_cgraph part = sched_part(sched, memo, i, end);
    enum ggml_status status = ggml_backend_graph_compute_async(backend, &part);
    const enum ggml_status late = berth_backend_synchronize(backend);
    return status != GGML_STATUS_SUCCESS ? status : late;
}

enum ggml_status sched_trace_ops(struct ggml_backend_sched *sched, struct sched_memo *memo, int32_t i_split) {
    const struct sched_split *split = &memo->splits[i_split];
    const int64_t *in_use = sched->has_in_use ? sched->in_use + (size_t) split->backend * ((size_t) memo->rec.n_nodes + 1) : NULL;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int32_t i = split->i_start, end; i < split->i_end && status == GGML_STATUS_SUCCESS; i = end) {
        end = i + 1;
        while (end < split->i_end && memo->rows[sched_order(memo, end - 1)].is_empty) { // with the op that follows
            end++;
        }
        const int64_t start_ns = sched_trace_now(), cpu_ns = sched_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        status = nodes_run(sched, memo, split->backend, i, end);
        const struct ggml_tensor *node = sched_nodes(memo)[end - 1];
        struct sched_trace_event *e = status == GGML_STATUS_SUCCESS && !memo->rows[sched_order(memo, end - 1)].is_empty
                                          ? sched_trace_add(sched, SCHED_TRACE_OP, node->name, i_split, split->backend, start_ns)
                                          : NULL;
        if (e != NULL) {
            const struct berth_op_cost cost = berth_op_cost(node);
            e->op = ggml_op_desc(node);
            e->bytes = (size_t) cost.bytes_read;
            e->written = (size_t) cost.bytes_written;
            e->flops = cost.flops;
            e->cpu_ns = sched_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
            e->in_use = in_use != NULL ? in_use[end - 1] : -1;
        }
    }
    return status;
}
