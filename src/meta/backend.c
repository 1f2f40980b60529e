// SPDX-License-Identifier: MIT
// backend.c: the backend of a composite device. It owns the devices' backends, a team of threads (crew), and cached programs.
// A program is the list of steps by which the devices compute a graph (program.h). If a graph equals an earlier graph
// (src/record), its program is reused.

#include "meta/program.h"

#include "berth-backend.h"
#include "berth-meta.h"

#define N_PROGRAMS 4 // cached programs, for example two prefill and two decode splits

struct meta_backend {
    int n;
    ggml_backend_t *parts; // [n]
    struct meta_comm comm;
    struct meta_crew *crew;
    struct meta_program *programs[N_PROGRAMS];
    struct meta_scratch scratch;
    struct meta_plan_cache plan_cache;
    uint64_t n_runs;
    struct berth_meta_stats stats;
};

static const char *backend_name(ggml_backend_t backend) {
    return ggml_backend_dev_name(backend->device);
}

static void meta_free(struct meta_backend *m) {
    meta_crew_free(m->crew);
    for (int i = 0; i < N_PROGRAMS; i++) {
        meta_program_free(m->programs[i]);
    }
    meta_scratch_fini(&m->scratch);
    meta_plan_cache_fini(&m->plan_cache);
    if (m->comm.free != NULL && m->comm.ctx != NULL) {
        m->comm.free(m->comm.ctx);
    }
    for (int j = 0; m->parts != NULL && j < m->n; j++) {
        ggml_backend_free(m->parts[j]);
    }
    berth_free(m->parts);
    berth_free(m);
}

static void backend_free(ggml_backend_t backend) {
    meta_free(backend->context);
    berth_free(backend);
}

static void backend_synchronize(ggml_backend_t backend) {
    const struct meta_backend *m = backend->context;
    for (int j = 0; j < m->n; j++) {
        ggml_backend_synchronize(m->parts[j]);
    }
}

// ---- compute ----

// Returns the cache entry with the graph's program. If there is none, returns the least recently used entry.
static struct meta_program **program_find(struct meta_backend *m, const struct ggml_cgraph *graph, bool *is_found) {
    struct meta_program **oldest = &m->programs[0];
    for (int i = 0; i < N_PROGRAMS; i++) {
        struct meta_program **at = &m->programs[i];
        if (*at != NULL && (*at)->is_made && meta_program_matches(*at, graph)) {
            *is_found = true;
            return at;
        }
        if (*oldest != NULL && (*at == NULL || (*at)->last_use < (*oldest)->last_use)) {
            oldest = at;
        }
    }
    *is_found = false;
    return oldest;
}

static void stats_count(struct meta_backend *m, const struct meta_program *p, bool is_found) {
    m->stats.n_graphs++;
    m->stats.n_cache_misses += !is_found;
    m->stats.n_grown += is_found ? 0 : p->n_grown;
    m->stats.n_sums += p->n_sums;
    m->stats.summed_size += p->summed_size;
    m->stats.n_gathered += (int64_t) p->n_costs;
    m->stats.redistributed_size += p->redistributed_size;
}

static bool program_get(struct meta_program **at, const struct ggml_cgraph *graph) {
    if (*at == NULL) {
        *at = berth_calloc(1, sizeof **at);
    }
    if (*at == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the program of a graph of %d nodes", graph->n_nodes);
    }
    return *at != NULL;
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    struct meta_backend *m = backend->context;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    bool is_found = false;
    struct meta_program **at = program_find(m, graph, &is_found);
    if (!is_found) {
        status = program_get(at, graph) ? meta_program_make(*at, m->parts, m->n, graph, &m->scratch, &m->plan_cache)
                                        : GGML_STATUS_ALLOC_FAILED;
    }
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    (*at)->last_use = ++m->n_runs;
    status = meta_crew_run(m->crew, *at);
    if (status == GGML_STATUS_SUCCESS && !meta_program_record(*at)) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory to record the split states after a graph of %d nodes",
            backend_name(backend), graph->n_nodes);
    }
    stats_count(m, *at, is_found);
    return status;
}

// ---- reserve ----

static enum ggml_status reserve_like(struct meta_backend *m, struct meta_program *p, const struct ggml_cgraph *graph) {
    berth_clear_error(); // a device may report why it has no memory
    bool ok = meta_crew_reserve(m->crew, meta_share_size(p)) && meta_entries_reserve(p);
    for (int i = 0; i < N_PROGRAMS && ok; i++) {
        ok = program_get(&m->programs[i], graph) && meta_program_reserve_rows(m->programs[i], p);
    }
    if (!ok || !meta_plan_cache_add(&m->plan_cache, p)) {
        return berth_last_error()[0] != '\0'
                   ? GGML_STATUS_ALLOC_FAILED
                   : berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory to reserve a graph of %d nodes on %d devices",
                         graph->n_nodes, m->n);
    }
    return meta_parts_reserve(m->parts, p);
}

enum ggml_status meta_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    struct meta_backend *m = backend->context;
    struct meta_program *p = NULL;
    enum ggml_status status = program_get(&p, graph) ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED;
    if (status == GGML_STATUS_SUCCESS) {
        status = meta_program_make(p, m->parts, m->n, graph, &m->scratch, &(struct meta_plan_cache){0});
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = reserve_like(m, p, graph);
    }
    meta_program_free(p);
    return status;
}

// Returns an upper bound: on each device, the size for the complete nodes instead of their parts.
size_t meta_reserve_size(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    const struct meta_backend *m = backend->context;
    size_t size = 0;
    for (int j = 0; j < m->n; j++) {
        size += berth_backend_reserve_size(m->parts[j], graph);
    }
    return size;
}

static const struct ggml_backend_i backend_iface = {
    .get_name = backend_name,
    .free = backend_free,
    .synchronize = backend_synchronize,
    .graph_compute = backend_compute,
};

// ---- new ----

static void *reg_proc(ggml_backend_reg_t reg, const char *name) {
    return ggml_backend_reg_get_proc_address(reg, name);
}

// A registry may offer functions that sum a tensor over backends.
// If the registry does not support these backends, its ggml_backend_comm_init returns NULL.
static bool comm_init_by(struct meta_backend *m, ggml_backend_reg_t reg) {
    void *(*init)(ggml_backend_t *, size_t);
    *(void **) &init = reg_proc(reg, "ggml_backend_comm_init");
    *(void **) &m->comm.free = reg_proc(reg, "ggml_backend_comm_free");
    *(void **) &m->comm.allreduce = reg_proc(reg, "ggml_backend_comm_allreduce_tensor");
    *(void **) &m->comm.ask = reg_proc(reg, "berth_comm_sum_ask");
    *(void **) &m->comm.join = reg_proc(reg, "berth_comm_sum_join");
    m->comm.ctx = NULL;
    if (m->n > 1 && init != NULL && m->comm.free != NULL && m->comm.allreduce != NULL) {
        m->comm.ctx = init(m->parts, (size_t) m->n);
    }
    if (m->comm.ctx == NULL) {
        m->comm = (struct meta_comm){0};
    }
    return m->comm.ctx != NULL;
}

static void comm_init(struct meta_backend *m, const struct meta_device *device) {
    bool ok = false;
    for (int j = 0; j < m->n && !ok; j++) {
        ok = comm_init_by(m, ggml_backend_dev_backend_reg(device->parts[j]));
    }
}

ggml_backend_t meta_backend_new(ggml_backend_dev_t dev, const char *params) {
    static ggml_guid guid = {0xf1, 0x0e, 0x34, 0xcf, 0x9c, 0x6f, 0x43, 0xcb, 0x96, 0x92, 0xbe, 0x8e, 0xbb, 0x71, 0x3f, 0xda};
    const struct meta_device *device = (struct meta_device *) dev;
    struct meta_backend *m = berth_calloc(1, sizeof *m);
    ggml_backend_t backend = berth_malloc(sizeof *backend);
    bool ok = m != NULL && backend != NULL;
    if (ok) {
        m->n = device->n;
        m->parts = berth_calloc((size_t) m->n, sizeof m->parts[0]);
        ok = m->parts != NULL;
    }
    for (int j = 0; ok && j < m->n; j++) {
        m->parts[j] = ggml_backend_dev_init(device->parts[j], params);
        ok = m->parts[j] != NULL;
    }
    if (ok) {
        comm_init(m, device);
        m->crew = meta_crew_new(m->parts, m->n, &m->comm);
        ok = m->crew != NULL;
    }
    if (!ok) {
        berth_fail(GGML_STATUS_FAILED, "%s: cannot create a backend for each of its %d devices", device->name, device->n);
        if (m != NULL) {
            meta_free(m);
        }
        berth_free(backend);
        return NULL;
    }
    *backend = (struct ggml_backend){.guid = &guid, .iface = backend_iface, .device = dev, .context = m};
    return backend;
}

// ---- queries ----

static struct meta_backend *meta_of(ggml_backend_t backend) {
    return ggml_backend_is_meta(backend) ? backend->context : NULL;
}

bool ggml_backend_is_meta(ggml_backend_t backend) {
    return backend != NULL && backend->iface.graph_compute == backend_compute;
}

size_t ggml_backend_meta_n_backends(ggml_backend_t meta_backend) {
    const struct meta_backend *m = meta_of(meta_backend);
    return m != NULL ? (size_t) m->n : 0;
}

ggml_backend_t ggml_backend_meta_simple_backend(ggml_backend_t meta_backend, size_t index) {
    const struct meta_backend *m = meta_of(meta_backend);
    return m != NULL && index < (size_t) m->n ? m->parts[index] : NULL;
}

bool berth_meta_stats(ggml_backend_t backend, struct berth_meta_stats *stats) {
    const struct meta_backend *m = meta_of(backend);
    if (m == NULL || stats == NULL) {
        return false;
    }
    *stats = m->stats;
    for (int j = 0; j < m->n; j++) {
        stats->scratch_size += (int64_t) ggml_backend_buffer_get_size(m->scratch.parts[j]);
    }
    return true;
}

bool berth_meta_explain(ggml_backend_t backend, FILE *file) {
    const struct meta_backend *m = meta_of(backend);
    if (m == NULL || file == NULL) {
        return false;
    }
    const struct meta_program *p = NULL;
    for (int i = 0; i < N_PROGRAMS; i++) {
        if (m->programs[i] != NULL && m->programs[i]->is_made && (p == NULL || m->programs[i]->last_use > p->last_use)) {
            p = m->programs[i];
        }
    }
    if (p == NULL) {
        return true;
    }
    fprintf(file, "%s: %lld sums over %d devices with %lld bytes in total, %lld bytes moved per run\n", backend_name(backend),
        (long long) p->n_sums, m->n, (long long) p->summed_size, (long long) p->redistributed_size);
    for (size_t i = 0; i < p->n_costs; i++) {
        fprintf(file, "  %s %s cannot be computed on split sources: each device gets complete ones, %lld bytes moved\n",
            ggml_op_name(p->costs[i].op), p->costs[i].name, (long long) p->costs[i].n_bytes);
    }
    return true;
}
