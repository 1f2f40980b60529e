// SPDX-License-Identifier: MIT
// sched.c: the scheduler of the end of 2023 (include/2023), over the passes of today's: backends of then are shown to
// them as devices, which gives assignment, splits and copies; memory comes from one tensor allocator of then for each backend,
// which the program shares, through the graph allocator of then.
//
//   new: allocators that measure --init_measure--> one buffer for each backend --graph_compute--> the same, for the next graph

#include "sched/sched.h"
#include "compat2023/compat2023.h"

#include "core/op.h"

#include <string.h>

// A backend of then as today's passes see it. Nothing is allocated or computed through it.
struct shown {
    struct ggml_backend_device dev;
    struct ggml_backend_buffer_type buft;
    struct ggml_backend backend;
    gen_backend_t gen;
};

struct gen_sched {
    int n_backends;
    struct shown *shown;        // [n_backends]
    ggml_backend_sched_t today; // its passes and the program's choices
    gen_tallocr_t *tallocs;     // [n_backends]
    gen_gallocr_t galloc;
    bool is_ready; // measured: the allocators have buffers
};

// ---- devices ----

static struct shown *shown_of(ggml_backend_dev_t dev) {
    return dev->context;
}

static const char *dev_name(ggml_backend_dev_t dev) {
    return berth_2023_name(shown_of(dev)->gen);
}

static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev) {
    return berth_2023_is_cpu(shown_of(dev)->gen) ? GGML_BACKEND_DEVICE_TYPE_CPU : GGML_BACKEND_DEVICE_TYPE_GPU;
}

static ggml_backend_buffer_type_t dev_buft(ggml_backend_dev_t dev) {
    return &shown_of(dev)->buft;
}

static bool dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    return berth_2023_supports_op(shown_of(dev)->gen, op);
}

// Memory of then belongs to a backend. The host's is read by the CPU.
static bool dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    const gen_backend_t gen = shown_of(dev)->gen;
    return buft == dev_buft(dev) || berth_2023_backend_of_type(buft) == gen ||
           (berth_2023_is_cpu(gen) && ggml_backend_buft_is_host(buft));
}

static const char *buft_name(ggml_backend_buffer_type_t buft) {
    return berth_2023_name(((struct shown *) buft->context)->gen);
}

static ggml_backend_buffer_t buft_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    (void) buft;
    (void) size;
    return NULL; // memory comes from the allocators of then
}

static size_t buft_alignment(ggml_backend_buffer_type_t buft) {
    return berth_2023_get_alignment(((struct shown *) buft->context)->gen);
}

static bool buft_is_host(ggml_backend_buffer_type_t buft) {
    return berth_2023_is_cpu(((struct shown *) buft->context)->gen);
}

static const char *backend_name(ggml_backend_t backend) {
    return berth_2023_name(((struct shown *) backend->context)->gen);
}

static void shown_init(struct shown *s, gen_backend_t gen) {
    *s = (struct shown){
        .dev     = {.context = s,
                .iface       = {.get_name  = dev_name,
                          .get_type        = dev_type,
                          .get_buffer_type = dev_buft,
                          .supports_op     = dev_supports_op,
                          .supports_buft   = dev_supports_buft}},
        .buft    = {.context = s,
               .device       = &s->dev,
               .iface =
                   {.get_name = buft_name, .alloc_buffer = buft_alloc, .get_alignment = buft_alignment, .is_host = buft_is_host}},
        .backend = {.context = s, .device = &s->dev, .iface = {.get_name = backend_name}},
        .gen     = gen,
    };
}

// ---- life ----

static bool init(struct gen_sched *s, gen_backend_t *backends, int n) {
    ggml_backend_t *list = berth_calloc((size_t) n, sizeof *list);
    s->shown             = berth_calloc((size_t) n, sizeof s->shown[0]);
    s->tallocs           = berth_calloc((size_t) n, sizeof s->tallocs[0]);
    s->galloc            = berth_2023_gallocr_new();
    bool ok              = list != NULL && s->shown != NULL && s->tallocs != NULL && s->galloc != NULL;
    s->n_backends        = ok ? n : 0;
    for (int b = 0; b < n && ok; b++) {
        shown_init(&s->shown[b], backends[b]);
        list[b]       = &s->shown[b].backend;
        s->tallocs[b] = berth_2023_tallocr_new_measure_from_backend(backends[b]);
        ok            = s->tallocs[b] != NULL;
    }
    s->today = ok ? ggml_backend_sched_new(list, NULL, n, 0, false, false) : NULL;
    berth_free(list);
    return s->today != NULL;
}

gen_sched_t berth_2023_sched_new(gen_backend_t *backends, int n_backends) {
    for (int b = 0; backends != NULL && b < n_backends; b++) {
        if (backends[b] == NULL) {
            berth_fail(GGML_STATUS_FAILED, "ggml_backend_sched_new: backend %d of %d is NULL", b, n_backends);
            return NULL;
        }
    }
    gen_sched_t s = backends != NULL && n_backends > 0 ? berth_calloc(1, sizeof *s) : NULL;
    if (s == NULL || !init(s, backends, n_backends)) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_sched_new: %d backends, or out of memory", n_backends);
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
        const enum ggml_status kept = berth_backend_report(&s->shown[b].backend);
        (void) kept; // nobody is left to be told
        berth_2023_tallocr_free(s->tallocs[b]);
    }
    berth_2023_gallocr_free(s->galloc);
    berth_free(s->tallocs);
    berth_free(s->shown);
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

// Of a tensor that was given its place since the last reset.
static bool is_taken(const struct gen_tallocr *talloc, const struct ggml_tensor *t) {
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

// A graph that was computed before is placed anew; of what the program places itself, inputs stay where they are.
static void forget_places(struct gen_sched *s, const struct ggml_cgraph *graph) {
    for (int i = 0; i < graph->n_nodes + graph->n_leafs; i++) {
        struct ggml_tensor *t = i < graph->n_nodes ? graph->nodes[i] : graph->leafs[i - graph->n_nodes];
        const int b           = owner_of(s, t);
        if (b >= 0 && (i < graph->n_nodes || t->view_src != NULL || !is_taken(s->tallocs[b], t))) {
            t->buffer = NULL;
            t->data   = NULL;
        }
    }
}

// Leafs with memory pull their ops, unless they come from an allocator of this scheduler: those are inputs.
static void mark_weights(const struct gen_sched *s, struct sched_memo *memo) {
    for (int32_t r = memo->rec.n_nodes; r < memo->rec.n_rows; r++) {
        if (sched_base(memo, r) == r && memo->rec.rows[r].has_memory && memo->rec.rows[r].buft != NULL &&
            owner_of(s, memo->rec.tensors[r]) < 0) {
            memo->rec.rows[r].usage = GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
        }
    }
}

// A choice that could not be kept for lack of memory is told with the graph it was for.
static enum ggml_status report(const struct gen_sched *s) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int b = 0; b < s->n_backends; b++) {
        const enum ggml_status kept = berth_backend_report(&s->shown[b].backend);
        status                      = status == GGML_STATUS_SUCCESS ? kept : status;
    }
    return status;
}

static enum ggml_status split(struct gen_sched *s, struct sched_memo *memo, struct ggml_cgraph *graph) {
    enum ggml_status status = report(s);
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_graph_check(graph);
    }
    if (status == GGML_STATUS_SUCCESS) {
        forget_places(s, graph);
        status = sched_memo_build(s->today, memo, graph);
    }
    if (status == GGML_STATUS_SUCCESS) {
        mark_weights(s, memo);
        status = sched_assign(s->today, memo);
    }
    return status == GGML_STATUS_SUCCESS ? sched_split(s->today, memo) : status;
}

// ---- memory ----

// Which allocator places which tensor, as the graph allocator of then wants to know it.
struct placement {
    struct ggml_tensor **nodes; // copies before their split, nodes as they run
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
    p->tallocs[i]  = talloc;
}

static bool placement_init(struct placement *p, const struct sched_memo *memo) {
    const size_t n = (size_t) memo->rec.n_rows + (size_t) memo->n_copies;
    *p             = (struct placement){.set.size = 2 * n + 1};
    p->nodes       = berth_malloc((n + 1) * sizeof p->nodes[0]);
    p->set.keys    = berth_calloc(p->set.size, sizeof p->set.keys[0]);
    p->tallocs     = berth_calloc(p->set.size, sizeof p->tallocs[0]);
    return p->nodes != NULL && p->set.keys != NULL && p->tallocs != NULL;
}

static void placement_fini(struct placement *p) {
    berth_free(p->nodes);
    berth_free(p->set.keys);
    berth_free(p->tallocs);
}

// A copy is a node that reads what it copies, only while memory is planned.
static void placement_fill(struct placement *p, const struct gen_sched *s, struct sched_memo *memo) {
    for (int32_t i = 0; i < memo->n_splits; i++) {
        const struct sched_split *split = &memo->splits[i];
        for (int32_t k = split->copies; k < split->copies + split->n_copies; k++) {
            struct ggml_tensor *t  = sched_copy_tensor(memo, k, 0);
            t->op                  = GGML_OP_DUP;
            t->src[0]              = memo->rec.tensors[memo->copies[k].row];
            p->nodes[p->n_nodes++] = t;
            placement_set(p, t, s->tallocs[split->backend]);
        }
        sched_edges_to_copies(memo, split, 0);
        for (int32_t k = split->i_start; k < split->i_end; k++) {
            p->nodes[p->n_nodes++] = sched_nodes(memo)[k];
        }
    }
    for (int32_t r = 0; r < memo->rec.n_rows; r++) {
        placement_set(
            p, memo->rec.tensors[r], s->tallocs[memo->rows[r].backend >= 0 ? memo->rows[r].backend : s->n_backends - 1]);
    }
}

static enum ggml_status check_places(const struct placement *p) {
    for (int i = 0; i < p->n_nodes; i++) {
        if (p->nodes[i]->data == NULL && ggml_nelements(p->nodes[i]) > 0) {
            return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler of 2023: %s has no memory: %s", berth_name_of(p->nodes[i]),
                "the graph is larger than the one that was measured, or memory is short");
        }
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status place(struct gen_sched *s, struct sched_memo *memo, struct ggml_cgraph *graph) {
    struct placement p;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (!placement_init(&p, memo)) {
        status =
            berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler of 2023: out of memory for a graph of %d nodes", memo->rec.n_nodes);
    } else {
        placement_fill(&p, s, memo);
        struct ggml_cgraph all = {
            .size = p.n_nodes, .nodes = p.nodes, .n_nodes = p.n_nodes, .leafs = graph->leafs, .n_leafs = graph->n_leafs};
        berth_2023_gallocr_alloc_graph_n(s->galloc, &all, p.set, p.tallocs);
        for (int32_t i = 0; i < memo->n_splits; i++) {
            sched_edges_to_graph(memo, &memo->splits[i]);
        }
        for (int32_t i = 0; i < memo->n_copies; i++) {
            sched_copy_tensor(memo, i, 0)->op     = GGML_OP_NONE;
            sched_copy_tensor(memo, i, 0)->src[0] = NULL;
        }
        status = check_places(&p);
    }
    placement_fini(&p);
    return status;
}

// ---- measuring ----

// The addresses of a measured graph are nobody's.
static void forget_measured(struct gen_sched *s, struct sched_memo *memo) {
    for (int32_t r = 0; r < memo->rec.n_rows; r++) {
        if (owner_of(s, memo->rec.tensors[r]) >= 0) {
            memo->rec.tensors[r]->buffer = NULL;
            memo->rec.tensors[r]->data   = NULL;
        }
    }
}

// Allocators with buffers of the sizes that were measured, in place of those that measured.
static enum ggml_status get_buffers(struct gen_sched *s) {
    gen_tallocr_t *ready = berth_calloc((size_t) s->n_backends, sizeof *ready);
    bool ok              = ready != NULL;
    for (int b = 0; b < s->n_backends && ok; b++) {
        const size_t size = berth_2023_tallocr_max_size(s->tallocs[b]);
        ready[b]          = berth_2023_tallocr_new_from_backend(s->shown[b].gen, size > 0 ? size : 1);
        ok                = ready[b] != NULL;
        if (!ok) {
            berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_backend_sched_init_measure: backend %s has no buffer of %zu bytes",
                berth_2023_name(s->shown[b].gen), size);
        }
    }
    for (int b = 0; b < s->n_backends && ready != NULL; b++) {
        berth_2023_tallocr_free(ok ? s->tallocs[b] : ready[b]);
        s->tallocs[b] = ok ? ready[b] : s->tallocs[b];
    }
    berth_free(ready);
    return ok ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED;
}

static void reset(struct gen_sched *s) {
    for (int b = 0; b < s->n_backends; b++) {
        berth_2023_tallocr_reset(s->tallocs[b]);
    }
    ggml_backend_sched_reset(s->today);
}

void berth_2023_sched_init_measure(gen_sched_t s, struct ggml_cgraph *measure_graph) {
    if (s == NULL || measure_graph == NULL || s->is_ready) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_sched_init_measure: no scheduler, no graph, or measured before");
        return;
    }
    struct sched_memo *memo = &s->today->memos[0];
    enum ggml_status status = split(s, memo, measure_graph);
    if (status == GGML_STATUS_SUCCESS) {
        status = place(s, memo, measure_graph);
        forget_measured(s, memo);
    }
    if (status == GGML_STATUS_SUCCESS) {
        s->is_ready = get_buffers(s) == GGML_STATUS_SUCCESS;
    }
    reset(s);
}

// ---- computing ----

static enum ggml_status run(struct gen_sched *s, struct sched_memo *memo, const struct ggml_cgraph *graph) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int32_t i = 0; i < memo->n_splits && status == GGML_STATUS_SUCCESS; i++) {
        const struct sched_split *split = &memo->splits[i];
        const gen_backend_t backend     = s->shown[split->backend].gen;
        for (int32_t k = split->copies; k < split->copies + split->n_copies; k++) {
            berth_2023_tensor_copy(memo->rec.tensors[memo->copies[k].row], sched_copy_tensor(memo, k, 0));
        }
        struct ggml_cgraph part = {
            .n_nodes          = split->i_end - split->i_start,
            .nodes            = sched_nodes(memo) + split->i_start,
            .use_counts       = graph->use_counts,
            .visited_hash_set = graph->visited_hash_set,
        };
        sched_edges_to_copies(memo, split, 0);
        status = berth_2023_graph_compute_status(backend, &part);
        sched_edges_to_graph(memo, split);
        berth_2023_synchronize(backend);
        if (status != GGML_STATUS_SUCCESS) {
            char text[400];
            snprintf(text, sizeof text, "%s", berth_last_error());
            berth_fail(status, "scheduler of 2023: backend %s failed at split %d of %d: %s", berth_2023_name(backend), i,
                memo->n_splits, text);
        }
    }
    return status;
}

enum ggml_status berth_2023_sched_graph_compute_status(gen_sched_t s, struct ggml_cgraph *graph) {
    if (s == NULL || graph == NULL || !s->is_ready) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_sched_graph_compute: %s",
            s == NULL || graph == NULL ? "no scheduler, or no graph" : "ggml_backend_sched_init_measure comes first");
    }
    struct sched_memo *memo = &s->today->memos[0];
    enum ggml_status status = split(s, memo, graph);
    if (status == GGML_STATUS_SUCCESS) {
        status = place(s, memo, graph);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = run(s, memo, graph);
    }
    if (status != GGML_STATUS_SUCCESS) {
        berth_2023_spoil(graph);
    }
    reset(s);
    return status;
}

void berth_2023_sched_graph_compute(gen_sched_t s, struct ggml_cgraph *graph) {
    const enum ggml_status status = berth_2023_sched_graph_compute_status(s, graph);
    (void) status; // berth_last_error() has the text
}

// ---- questions and choices ----

static int index_of(const struct gen_sched *s, gen_backend_t backend) {
    for (int b = 0; s != NULL && b < s->n_backends; b++) {
        if (s->shown[b].gen == backend) {
            return b;
        }
    }
    berth_fail(GGML_STATUS_FAILED, "scheduler of 2023: no scheduler, or the backend is none of its");
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
        ggml_backend_sched_set_tensor_backend(s->today, node, &s->shown[b].backend);
    }
}
