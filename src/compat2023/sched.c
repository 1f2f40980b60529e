// SPDX-License-Identifier: MIT
// sched.c: the scheduler of the 2023 API (include/2023).
// The passes of the current scheduler assign nodes, make splits and insert copies. Facades present 2023 backends as devices.
// The 2023 graph allocator then places the tensors. Each backend has one tensor allocator.
// The program may also place its inputs with these tensor allocators.
//
//     sched_new -> measuring allocators -> init_measure -> one buffer per backend -> graph_compute -> graph_compute -> ...

#include "sched/sched.h"
#include "compat2023/compat2023.h"

#include "core/op.h"

#include <string.h>

struct gen_sched {
    const struct gen_date *date;
    int n_backends;
    struct gen_facade *facades; // [n_backends] used by the passes only
    ggml_backend_sched_t today; // current scheduler; stores assignments
    gen_tallocr_t *tallocs;     // [n_backends]
    gen_gallocr_t galloc;
    bool is_ready;    // measured: the allocators have buffers
    bool is_computed; // the last graph is finished: its assignments are cleared before the next graph is prepared
    ggml_backend_sched_eval_callback callback;
    void *callback_data;
};

// ---- creating and freeing ----

static bool sched_init(struct gen_sched *s, gen_backend_t *backends, const gen_source_t *sources, int n) {
    ggml_backend_t *list = berth_calloc((size_t) n, sizeof *list);
    s->facades = berth_calloc((size_t) n, sizeof s->facades[0]);
    s->tallocs = berth_calloc((size_t) n, sizeof s->tallocs[0]);
    s->galloc = berth_2023_gallocr_new();
    bool ok = list != NULL && s->facades != NULL && s->tallocs != NULL && s->galloc != NULL;
    s->n_backends = ok ? n : 0;
    for (int b = 0; b < n && ok; b++) {
        berth_2023_facade_init(&s->facades[b], s->date, backends[b], sources[b]);
        list[b] = &s->facades[b].backend;
        s->tallocs[b] = berth_2023_tallocr_over(s->date->measure(sources[b]), true, true, NULL);
        ok = s->tallocs[b] != NULL;
    }
    s->today = ok ? ggml_backend_sched_new(list, NULL, n, 0, false, false) : NULL;
    berth_free(list);
    return s->today != NULL;
}

gen_sched_t berth_2023_sched_over(
    const struct gen_date *date, gen_backend_t *backends, const gen_source_t *sources, int n_backends) {
    for (int b = 0; b < n_backends; b++) {
        if (backends[b] == NULL || sources[b] == NULL) {
            berth_fail(
                GGML_STATUS_FAILED, "ggml_backend_sched_new: backend %d of %d is NULL or has no buffer type", b, n_backends);
            return NULL;
        }
    }
    gen_sched_t s = berth_calloc(1, sizeof *s);
    if (s != NULL) {
        s->date = date;
    }
    if (s == NULL || !sched_init(s, backends, sources, n_backends)) {
        berth_fail(GGML_STATUS_FAILED,
            "ggml_backend_sched_new: cannot create a scheduler for %d backends (too many, or out of memory)", n_backends);
        berth_2023_sched_free(s);
        return NULL;
    }
    return s;
}

void berth_2023_sched_free(gen_sched_t s) {
    if (s == NULL) {
        return;
    }
    ggml_backend_sched_free(s->today);
    for (int b = 0; b < s->n_backends; b++) {
        berth_2023_facade_fini(&s->facades[b]);
        berth_2023_tallocr_free(s->tallocs[b]);
    }
    berth_2023_gallocr_free(s->galloc);
    berth_free(s->tallocs);
    berth_free(s->facades);
    berth_free(s);
}

// ---- splits ----

static int owner_of(const struct gen_sched *s, const struct ggml_tensor *t) {
    for (int b = 0; b < s->n_backends && t->buffer != NULL; b++) {
        if (t->buffer == gen_today(s->tallocs[b]->buffer) || berth_2023_old(s->tallocs[b], t->buffer) != NULL) {
            return b;
        }
    }
    return -1;
}

static bool is_placed_since_reset(const struct gen_tallocr *talloc, const struct ggml_tensor *t) {
    gen_buffer_t old = berth_2023_old(talloc, t->buffer);
    if (old != NULL) {
        return !gen_is_retired(old);
    }
    const uint64_t off = (uintptr_t) t->data - (uintptr_t) berth_2023_buffer_get_base(talloc->buffer);
    for (size_t i = 0; i < talloc->n_pieces; i++) {
        if (talloc->pieces[i].off == off) {
            return true;
        }
    }
    return false;
}

// Clears the addresses that earlier graphs gave the tensors. Inputs that the program has placed since the last reset keep their
// addresses.
static void graph_addresses_clear(struct gen_sched *s, const struct ggml_cgraph *graph) {
    for (int i = 0; i < graph->n_nodes + graph->n_leafs; i++) {
        struct ggml_tensor *t = i < graph->n_nodes ? graph->nodes[i] : graph->leafs[i - graph->n_nodes];
        const int b = owner_of(s, t);
        if (b >= 0 && (i < graph->n_nodes || t->view_src != NULL || !is_placed_since_reset(s->tallocs[b], t))) {
            t->buffer = NULL;
            t->data = NULL;
        }
    }
}

// Ops that read a weight run on the backend of its buffer. Leaves in a buffer of this scheduler are inputs, not weights.
static void mark_weights(const struct gen_sched *s, struct sched_cached *cached) {
    for (int32_t r = cached->rec.n_nodes; r < cached->rec.n_rows; r++) {
        const struct ggml_tensor *t = cached->rec.tensors[r];
        if (sched_base(cached, r) != r || !cached->rec.rows[r].has_memory || cached->rec.rows[r].buft == NULL ||
            owner_of(s, t) >= 0) {
            continue;
        }
        gen_buffer_t buffer = berth_2023_buffer_of(t->buffer);
        if (buffer != NULL ? gen_head(buffer)->date->pulls_ops(buffer) : s->date->number < 202402) {
            cached->rec.rows[r].usage = GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
        }
    }
}

// berth_2023_sched_set_node_backend returns no status. If it runs out of memory, the backend of the facade stores the error. This
// function returns the stored error.
static enum ggml_status stored_error_get(const struct gen_sched *s) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int b = 0; b < s->n_backends; b++) {
        const enum ggml_status kept = berth_backend_report(&s->facades[b].backend);
        if (status == GGML_STATUS_SUCCESS) {
            status = kept;
        }
    }
    return status;
}

// Clears the assignments of the last graph. Called when the next graph is prepared, because the program may query the assignments
// until then.
static void assignments_clear(struct gen_sched *s) {
    if (s->is_computed) {
        ggml_backend_sched_reset(s->today);
        s->is_computed = false;
    }
}

static enum ggml_status graph_split(struct gen_sched *s, struct sched_cached *cached, struct ggml_cgraph *graph) {
    assignments_clear(s);
    enum ggml_status status = stored_error_get(s);
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_graph_check(graph);
    }
    if (status == GGML_STATUS_SUCCESS) {
        graph_addresses_clear(s, graph);
        status = sched_cached_build(s->today, cached, graph);
    }
    if (status == GGML_STATUS_SUCCESS) {
        mark_weights(s, cached);
        status = sched_assign(s->today, cached);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = sched_split(s->today, cached);
    }
    s->today->cur = status == GGML_STATUS_SUCCESS ? cached : NULL;
    s->today->last_n_splits = status == GGML_STATUS_SUCCESS ? cached->n_splits : 0;
    return status;
}

// ---- memory ----

struct placement {
    struct ggml_tensor **nodes; // in execution order; copies before their split
    int n_nodes;
    struct gen_hash_set set;
    gen_tallocr_t *tallocs; // [set.size]
};

static void placement_set(struct placement *p, struct ggml_tensor *t, gen_tallocr_t talloc) {
    size_t i = (uintptr_t) t % p->set.size;
    while (p->set.keys[i] != NULL && p->set.keys[i] != t) {
        i = i + 1 == p->set.size ? 0 : i + 1;
    }
    p->set.keys[i] = t;
    p->tallocs[i] = talloc;
}

static bool placement_init(struct placement *p, const struct sched_cached *cached) {
    const size_t n = (size_t) cached->rec.n_rows + (size_t) cached->n_copies;
    *p = (struct placement){.set.size = 2 * n + 1};
    p->nodes = berth_malloc((n + 1) * sizeof p->nodes[0]);
    p->set.keys = berth_calloc(p->set.size, sizeof p->set.keys[0]);
    p->tallocs = berth_calloc(p->set.size, sizeof p->tallocs[0]);
    return p->nodes != NULL && p->set.keys != NULL && p->tallocs != NULL;
}

static void placement_fini(struct placement *p) {
    berth_free(p->nodes);
    berth_free(p->set.keys);
    berth_free(p->tallocs);
}

// While planning, the destination of a copy is a DUP node, so that the graph allocator sees the edge.
// graph_place restores the destination.
static void placement_fill(struct placement *p, const struct gen_sched *s, struct sched_cached *cached) {
    for (int32_t i = 0; i < cached->n_splits; i++) {
        const struct sched_split *split = &cached->splits[i];
        for (int32_t k = split->copies; k < split->copies + split->n_copies; k++) {
            struct ggml_tensor *t = sched_copy_tensor(cached, k, 0);
            t->op = GGML_OP_DUP;
            t->src[0] = cached->rec.tensors[cached->copies[k].row];
            p->nodes[p->n_nodes++] = t;
            placement_set(p, t, s->tallocs[split->backend]);
        }
        sched_edges_to_copies(cached, split, 0);
        for (int32_t k = split->i_start; k < split->i_end; k++) {
            p->nodes[p->n_nodes++] = sched_nodes(cached)[k];
        }
    }
    for (int32_t r = 0; r < cached->rec.n_rows; r++) {
        placement_set(
            p, cached->rec.tensors[r], s->tallocs[cached->rows[r].backend >= 0 ? cached->rows[r].backend : s->n_backends - 1]);
    }
}

static enum ggml_status placement_check(const struct placement *p) {
    for (int i = 0; i < p->n_nodes; i++) {
        if (p->nodes[i]->data == NULL && ggml_nelements(p->nodes[i]) > 0) {
            return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler of the 2023 API: %s has no memory: %s",
                berth_name_of(p->nodes[i]), "the graph is larger than the measured one, or out of memory");
        }
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status graph_place(struct gen_sched *s, struct sched_cached *cached, struct ggml_cgraph *graph) {
    struct placement p;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (!placement_init(&p, cached)) {
        status = berth_fail(
            GGML_STATUS_ALLOC_FAILED, "scheduler of the 2023 API: out of memory for a graph of %d nodes", cached->rec.n_nodes);
    } else {
        placement_fill(&p, s, cached);
        struct ggml_cgraph all = {
            .size = p.n_nodes, .nodes = p.nodes, .n_nodes = p.n_nodes, .leafs = graph->leafs, .n_leafs = graph->n_leafs};
        berth_2023_gallocr_alloc_graph_n(s->galloc, &all, p.set, p.tallocs);
        for (int32_t i = 0; i < cached->n_splits; i++) {
            sched_edges_to_graph(cached, &cached->splits[i]);
        }
        for (int32_t i = 0; i < cached->n_copies; i++) {
            sched_copy_tensor(cached, i, 0)->op = GGML_OP_NONE;
            sched_copy_tensor(cached, i, 0)->src[0] = NULL;
        }
        status = placement_check(&p);
    }
    placement_fini(&p);
    return status;
}

// ---- measuring ----

static void measured_addresses_clear(struct gen_sched *s, struct sched_cached *cached) {
    for (int32_t r = 0; r < cached->rec.n_rows; r++) {
        if (owner_of(s, cached->rec.tensors[r]) >= 0) {
            cached->rec.tensors[r]->buffer = NULL;
            cached->rec.tensors[r]->data = NULL;
        }
    }
}

static enum ggml_status buffers_alloc(struct gen_sched *s) {
    gen_tallocr_t *ready = berth_calloc((size_t) s->n_backends, sizeof *ready);
    bool ok = ready != NULL;
    for (int b = 0; b < s->n_backends && ok; b++) {
        const size_t size = berth_2023_tallocr_max_size(s->tallocs[b]);
        const gen_source_t source = s->facades[b].source;
        ready[b] = berth_2023_tallocr_over(s->date->alloc(source, size > 0 ? size : 1), true, false, source);
        ok = ready[b] != NULL;
        if (!ok) {
            berth_fail(GGML_STATUS_ALLOC_FAILED,
                "ggml_backend_sched_init_measure: backend %s cannot allocate a buffer of %zu bytes",
                s->date->name(s->facades[b].gen), size);
        }
    }
    for (int b = 0; b < s->n_backends && ready != NULL; b++) {
        berth_2023_tallocr_free(ok ? s->tallocs[b] : ready[b]);
        if (ok) {
            s->tallocs[b] = ready[b];
        }
    }
    berth_free(ready);
    return ok ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED;
}

static void sched_end(struct gen_sched *s) {
    for (int b = 0; b < s->n_backends; b++) {
        berth_2023_tallocr_reset(s->tallocs[b]);
    }
    s->is_computed = true;
}

void berth_2023_sched_reset(gen_sched_t s) {
    if (s != NULL) {
        sched_end(s);
        assignments_clear(s);
    }
}

void berth_2023_sched_init_measure(gen_sched_t s, struct ggml_cgraph *measure_graph) {
    if (s == NULL || measure_graph == NULL || s->is_ready) {
        berth_fail(GGML_STATUS_FAILED,
            "ggml_backend_sched_init_measure: scheduler or graph is NULL, or the scheduler was measured already");
        return;
    }
    struct sched_cached *cached = &s->today->cached_graphs[0];
    enum ggml_status status = graph_split(s, cached, measure_graph);
    if (status == GGML_STATUS_SUCCESS) {
        status = graph_place(s, cached, measure_graph);
        measured_addresses_clear(s, cached);
    }
    if (status == GGML_STATUS_SUCCESS) {
        s->is_ready = buffers_alloc(s) == GGML_STATUS_SUCCESS;
    }
    sched_end(s);
}

// ---- computing ----

static enum ggml_status nodes_run(
    gen_sched_t s, const struct sched_split *split, const struct ggml_cgraph *graph, int32_t i0, int32_t i1) {
    const gen_backend_t backend = s->facades[split->backend].gen;
    struct ggml_cgraph part = {
        .n_nodes = i1 - i0,
        .nodes = sched_nodes(s->today->cur) + i0,
        .use_counts = graph->use_counts,
        .visited_hash_set = graph->visited_hash_set,
    };
    const enum ggml_status status = berth_2023_compute(s->date, backend, &part);
    s->date->synchronize(backend);
    return status;
}

// Each part of the split ends at a node that the callback observes. *is_stopped: the callback stopped the run.
static enum ggml_status split_run_observed(
    gen_sched_t s, const struct sched_split *split, const struct ggml_cgraph *graph, bool *is_stopped) {
    int32_t i0 = split->i_start;
    for (int32_t i = split->i_start; i < split->i_end; i++) {
        struct ggml_tensor *t = sched_nodes(s->today->cur)[i];
        const bool is_observed = s->callback(t, true, s->callback_data);
        if (!is_observed && i + 1 < split->i_end) {
            continue;
        }
        const enum ggml_status status = nodes_run(s, split, graph, i0, i + 1);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
        i0 = i + 1;
        if (is_observed && !s->callback(t, false, s->callback_data)) {
            *is_stopped = true;
            break;
        }
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status graph_run(struct gen_sched *s, struct sched_cached *cached, const struct ggml_cgraph *graph) {
    bool is_stopped = false;
    for (int32_t i = 0; i < cached->n_splits && !is_stopped; i++) {
        const struct sched_split *split = &cached->splits[i];
        for (int32_t k = split->copies; k < split->copies + split->n_copies; k++) {
            berth_2023_tensor_copy(cached->rec.tensors[cached->copies[k].row], sched_copy_tensor(cached, k, 0));
        }
        sched_edges_to_copies(cached, split, 0);
        const enum ggml_status status = s->callback != NULL ? split_run_observed(s, split, graph, &is_stopped)
                                                            : nodes_run(s, split, graph, split->i_start, split->i_end);
        sched_edges_to_graph(cached, split);
        if (status != GGML_STATUS_SUCCESS) {
            char text[400];
            snprintf(text, sizeof text, "%s", berth_last_error());
            return berth_fail(status, "scheduler of the 2023 API: backend %s failed at split %d of %d: %s",
                s->date->name(s->facades[split->backend].gen), i, cached->n_splits, text);
        }
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status berth_2023_sched_graph_compute_status(gen_sched_t s, struct ggml_cgraph *graph) {
    if (s == NULL || graph == NULL || !s->is_ready) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_sched_graph_compute: %s",
            s == NULL || graph == NULL ? "scheduler or graph is NULL" : "call ggml_backend_sched_init_measure first");
    }
    struct sched_cached *cached = &s->today->cached_graphs[0];
    enum ggml_status status = graph_split(s, cached, graph);
    if (status == GGML_STATUS_SUCCESS) {
        status = graph_place(s, cached, graph);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = graph_run(s, cached, graph);
    }
    if (status != GGML_STATUS_SUCCESS) {
        berth_2023_spoil(graph);
    }
    sched_end(s);
    return status;
}

void berth_2023_sched_graph_compute(gen_sched_t s, struct ggml_cgraph *graph) {
    const enum ggml_status status = berth_2023_sched_graph_compute_status(s, graph);
    (void) status; // berth_last_error() has the text
}

// ---- queries and assignments ----

static int index_of(const struct gen_sched *s, gen_backend_t backend) {
    for (int b = 0; s != NULL && b < s->n_backends; b++) {
        if (s->facades[b].gen == backend) {
            return b;
        }
    }
    berth_fail(GGML_STATUS_FAILED, "scheduler of the 2023 API: it is NULL, or the backend does not belong to it");
    return -1;
}

gen_tallocr_t berth_2023_sched_get_tallocr(gen_sched_t s, gen_backend_t backend) {
    const int b = index_of(s, backend);
    return b >= 0 ? s->tallocs[b] : NULL;
}

gen_buffer_t berth_2023_sched_get_buffer(gen_sched_t s, gen_backend_t backend) {
    const int b = index_of(s, backend);
    return b >= 0 ? berth_2023_tallocr_get_buffer(s->tallocs[b]) : NULL;
}

void berth_2023_sched_set_node_backend(gen_sched_t s, struct ggml_tensor *node, gen_backend_t backend) {
    const int b = index_of(s, backend);
    if (b >= 0) {
        assignments_clear(s);
        ggml_backend_sched_set_tensor_backend(s->today, node, &s->facades[b].backend);
    }
}

gen_backend_t berth_2023_sched_get_node_backend(gen_sched_t s, struct ggml_tensor *node) {
    const ggml_backend_t backend = s != NULL ? ggml_backend_sched_get_tensor_backend(s->today, node) : NULL;
    for (int b = 0; backend != NULL && b < s->n_backends; b++) {
        if (backend == &s->facades[b].backend) {
            return s->facades[b].gen;
        }
    }
    return NULL;
}

int berth_2023_sched_get_n_splits(gen_sched_t s) {
    return s != NULL ? ggml_backend_sched_get_n_splits(s->today) : 0;
}

void berth_2023_sched_set_eval_callback(gen_sched_t s, ggml_backend_sched_eval_callback callback, void *user_data) {
    if (s != NULL) {
        s->callback = callback;
        s->callback_data = user_data;
    }
}
