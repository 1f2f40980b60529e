// SPDX-License-Identifier: MIT
// compute.c: plans graphs and runs them on a thread pool. All threads walk the nodes; the first n_tasks threads run a node.
//   1. Each thread decides from the tensors alone whether a barrier is before a node. So all threads pass the same barriers.
//   2. Between two barriers, several tasks run one node, or thread 0 alone runs nodes. Views and empty tensors need no barrier.
//   3. `stop` may be set at any time. At the next barrier between nodes, the last thread copies `stop` to `stopped`, which all
//      threads then read. While thread 0 runs nodes alone, thread 0 reads `stop` before each node.
// Computing a graph allocates no heap memory. A graph is checked before its first node runs. Poison, ops without an entry,
// tensors outside their memory (core/span.h), empty sources that an op reads, and too little work memory return
// GGML_STATUS_FAILED. If is_checked, Berth's libggml-base has already checked tensor memory and empty sources.

#include "backend/backend.h"
#include "base/min.h"
#include "core/graph.h"
#include "core/op.h"
#include "core/span.h"
#include "cpu/cpu.h"
#include "cpu/pool.h"

#include <string.h>

// weak: absent if libggml-base is not Berth's
#pragma weak berth_poison_error
#pragma weak berth_weights_begin
#pragma weak berth_weights_wait
#pragma weak berth_weights_done
#pragma weak berth_weights_end

#define WORK_ALIGN 64

// The backends and thread pools that compute on a thread, innermost first. An op must not compute a graph on any of them: it
// would wait for itself, or overwrite work memory in use.
struct busy {
    const void *resource;     // a backend or a thread pool; NULL: none
    const struct busy *outer; // NULL: end of the list
};

struct cpu_team {
    // constant during the walk
    const struct busy *busy; // list of the calling thread; workers use it too
    const struct ggml_cgraph *graph;
    const struct ggml_cplan *plan;
    const struct cpu_kernels *k;
    void *work;
    size_t work_size;
    int nth;                      // threads that walk the graph
    int n_cpus;                   // maximum tasks of an op, except for caller_tasks
    bool spin;                    // each thread has a processor, so barriers spin
    struct berth_weights *stream; // reads weights from a file during the walk; NULL: all weights are in memory

    struct cpu_gate node_gate;          // barrier of all threads between nodes
    struct cpu_gate op_gate;            // barrier of the tasks within an op (cpu_barrier)
    _Alignas(64) atomic_llong n_chunks; // chunks handed out (cpu_chunk_next)
    _Alignas(64) atomic_int stop;       // not GGML_STATUS_SUCCESS: status that ends the walk
    int stopped;                        // value of stop at the last barrier between nodes
    char error[256];                    // for GGML_STATUS_FAILED; written by the setter of stop
};

static BERTH_LATE_LOCAL const struct busy *busy_innermost;

bool cpu_is_busy_with(const void *resource) {
    const struct busy *b = busy_innermost;
    while (b != NULL && b->resource != resource) {
        b = b->outer;
    }
    return b != NULL;
}

// ---- functions for op drivers ----

static void chunks_restart(void *arg) {
    struct cpu_team *team = arg;
    atomic_store_explicit(&team->n_chunks, 0, memory_order_relaxed);
}

void cpu_barrier(const struct cpu_params *p) {
    if (p->nth == 1) {
        chunks_restart(p->team);
    } else {
        cpu_gate_pass(&p->team->op_gate, p->nth, p->team->spin, chunks_restart, p->team);
    }
}

int64_t cpu_chunk_next(const struct cpu_params *p) {
    return atomic_fetch_add_explicit(&p->team->n_chunks, 1, memory_order_relaxed);
}

static bool team_stop(struct cpu_team *team, enum ggml_status status) {
    int running = GGML_STATUS_SUCCESS;
    return atomic_compare_exchange_strong(&team->stop, &running, status);
}

void cpu_fail(const struct cpu_params *p, const char *fmt, ...) {
    if (!team_stop(p->team, GGML_STATUS_FAILED)) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->team->error, sizeof p->team->error, fmt, args);
    va_end(args);
}

// ---- the tasks of a node ----

// Returns NULL if the node does not run.
static inline const struct cpu_op_row *node_row(const struct ggml_tensor *node) {
    if ((node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0) {
        return NULL;
    }
    const struct cpu_op_row *row = cpu_op_row(node->op);
    return row != NULL && row->run != NULL && !cpu_is_empty(node) ? row : NULL;
}

static int node_tasks(const struct cpu_op_row *row, const struct ggml_tensor *node, int n_threads, int n_cpus) {
    const int n_max = row->caller_tasks || n_threads < n_cpus ? n_threads : n_cpus;
    if (n_max == 1) {
        return 1;
    }
    const int n = row->n_tasks != NULL ? row->n_tasks(node, n_max) : cpu_tasks_by_size(node, n_max);
    return max_int(1, min_int(n, n_max));
}

// ---- the walk ----

static void node_barrier_serial(void *arg) {
    struct cpu_team *team = arg;
    chunks_restart(team);
    team->stopped = atomic_load_explicit(&team->stop, memory_order_relaxed);
}

static struct cpu_params team_params(struct cpu_team *team, int ith, int nth) {
    return (struct cpu_params){
        .ith = ith, .nth = nth, .work_size = team->work_size, .work = team->work, .k = team->k, .team = team};
}

static void node_run(const struct cpu_params *p, const struct cpu_op_row *row, struct ggml_tensor *node) {
    row->run(p, node);
    const struct ggml_cplan *plan = p->team->plan;
    if (p->ith == 0 && plan->abort_callback != NULL && plan->abort_callback(plan->abort_callback_data)) {
        team_stop(p->team, GGML_STATUS_ABORTED);
    }
}

static bool has_stop_request(struct cpu_team *team) {
    return atomic_load_explicit(&team->stop, memory_order_relaxed) != GGML_STATUS_SUCCESS;
}

// Waits for the weights of node i. All nodes before node i have run, or thread 0 runs them. If reading fails, the graph ends. All
// threads then skip the node, so none of them waits in the node for the others.
static bool weights_wait(const struct cpu_params *p, int i) {
    struct cpu_team *team = p->team;
    if (BERTH_LIKELY(team->stream == NULL)) {
        return true;
    }
    if (p->ith == 0) {
        berth_weights_done(team->stream, i);
    }
    const int error = berth_weights_wait(team->stream, i);
    if (error != 0) {
        cpu_fail(
            p, "node %d '%s': the weights cannot be read from their file: %s", i, team->graph->nodes[i]->name, strerror(error));
    }
    return error == 0;
}

static void team_walk_alone(struct cpu_team *team) {
    const struct cpu_params alone = team_params(team, 0, 1);
    for (int i = 0; i < team->graph->n_nodes && !has_stop_request(team); i++) {
        const struct cpu_op_row *row = node_row(team->graph->nodes[i]);
        if (row != NULL && weights_wait(&alone, i)) {
            chunks_restart(team);
            node_run(&alone, row, team->graph->nodes[i]);
        }
    }
}

enum { NONE_WROTE, THREAD_0_WROTE, SEVERAL_WROTE }; // writers since the last barrier

static void team_walk_shared(struct cpu_team *team, int ith) {
    const struct cpu_params alone = team_params(team, 0, 1);
    int wrote = NONE_WROTE;
    for (int i = 0; i < team->graph->n_nodes; i++) {
        struct ggml_tensor *node = team->graph->nodes[i];
        const struct cpu_op_row *row = node_row(node);
        if (row == NULL) {
            continue;
        }
        const int n_tasks = node_tasks(row, node, team->nth, team->n_cpus);
        if (wrote == SEVERAL_WROTE || (wrote == THREAD_0_WROTE && n_tasks > 1)) {
            cpu_gate_pass(&team->node_gate, team->nth, team->spin, node_barrier_serial, team);
            if (team->stopped != GGML_STATUS_SUCCESS) {
                return;
            }
            wrote = NONE_WROTE;
        }
        if (n_tasks > 1) {
            wrote = SEVERAL_WROTE;
            if (ith < n_tasks) {
                const struct cpu_params shared = team_params(team, ith, n_tasks);
                if (weights_wait(&shared, i)) {
                    node_run(&shared, row, node);
                }
            }
            continue;
        }
        wrote = THREAD_0_WROTE;
        if (ith == 0 && !has_stop_request(team) && weights_wait(&alone, i)) {
            chunks_restart(team);
            node_run(&alone, row, node);
        }
    }
}

static void team_walk(void *arg, int ith) {
    struct cpu_team *team = arg;
    const struct busy *was = busy_innermost;
    busy_innermost = team->busy;
    team_walk_shared(team, ith);
    busy_innermost = was;
}

// ---- checks before the walk ----

static enum ggml_status poison_report(const struct ggml_tensor *t) {
    const char *text = berth_poison_error != NULL ? berth_poison_error(t) : "";
    return shim_error(GGML_STATUS_FAILED, "the graph contains poison: %s", text[0] != '\0' ? text : "a constructor failed");
}

static __attribute__((noinline, cold)) enum ggml_status span_refuse(
    const struct ggml_tensor *node, int i, const struct ggml_tensor *bad, enum berth_span_fault fault) {
    char text[320];
    berth_span_report(fault, bad, text, sizeof text);
    return shim_error(GGML_STATUS_FAILED, "node %d '%s' (%s): %s %s", i, node->name, ggml_op_name(node->op),
        bad == node ? "the result" : "source", text);
}

// Checks that the node and its sources are within their memory. An empty source is allowed if the result is empty or empty_srcs
// permits it.
static inline enum ggml_status node_check_tensors(
    struct berth_span_walk *walk, const struct cpu_op_row *row, const struct ggml_tensor *node, int i) {
    const enum berth_span_fault result = berth_span_walk_node(walk, node);
    if (BERTH_UNLIKELY(result > BERTH_SPAN_EMPTY)) {
        return span_refuse(node, i, node, result);
    }
    for (int s = 0, n = berth_span_n_src(node); s < n; s++) {
        const struct ggml_tensor *src = node->src[s];
        const enum berth_span_fault fault = src != NULL ? berth_span_walk(walk, src) : BERTH_SPAN_OK;
        if (BERTH_UNLIKELY(fault != BERTH_SPAN_OK) &&
            (fault != BERTH_SPAN_EMPTY || (result != BERTH_SPAN_EMPTY && (row->empty_srcs >> s & 1) == 0))) {
            return span_refuse(node, i, src, fault);
        }
    }
    return GGML_STATUS_SUCCESS;
}

struct needs {
    int n_threads, n_cpus; // input: threads and usable processors
    int n_tasks;           // maximum over the nodes
    size_t work_size;      // bytes; maximum over the nodes
};

static inline void needs_add(struct needs *needs, const struct cpu_op_row *row, const struct ggml_tensor *node) {
    if (needs->n_threads == 1 && row->work_size == NULL) {
        return;
    }
    const int n = node_tasks(row, node, needs->n_threads, needs->n_cpus);
    const size_t size = row->work_size != NULL ? row->work_size(node, n) : 0;
    needs->n_tasks = max_int(n, needs->n_tasks);
    needs->work_size = max_size(size, needs->work_size);
}

static inline enum ggml_status node_check(
    struct berth_span_walk *walk, const struct ggml_tensor *node, int i, struct needs *needs) {
    if (node == NULL) {
        return shim_error(GGML_STATUS_FAILED, "node %d is NULL", i);
    }
    if (BERTH_UNLIKELY(berth_poisoned(node))) {
        return poison_report(node);
    }
    if ((node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0) {
        return GGML_STATUS_SUCCESS;
    }
    const struct cpu_op_row *row = cpu_op_row(node->op);
    const bool is_empty = cpu_is_empty(node);
    // walk is NULL if libggml-base has already checked the tensors.
    if (walk != NULL && row != NULL && row->run != NULL && node_check_tensors(walk, row, node, i) != GGML_STATUS_SUCCESS) {
        return GGML_STATUS_FAILED;
    }
    // An op with an empty result does not run, so its sources need not be supported.
    if (BERTH_UNLIKELY(row == NULL || (!is_empty && row->supports != NULL && !row->supports(node)))) {
        return shim_error(GGML_STATUS_FAILED,
            "node %d '%s': the CPU backend does not support %s with sources %s and %s and result %s", i, node->name,
            ggml_op_name(node->op), node->src[0] != NULL ? ggml_type_name(node->src[0]->type) : "none",
            node->src[1] != NULL ? ggml_type_name(node->src[1]->type) : "none", ggml_type_name(node->type));
    }
    if (row->run != NULL && !is_empty) {
        needs_add(needs, row, node);
    }
    return GGML_STATUS_SUCCESS;
}

static size_t needs_work_size(const struct needs *needs) {
    return needs->work_size + (needs->work_size > 0 ? WORK_ALIGN : 0); // work_data may be unaligned
}

// One pass, because graphs of small nodes spend much of their time here.
static enum ggml_status graph_check(const struct ggml_cgraph *graph, struct berth_span_walk *walk, struct needs *needs) {
    for (int i = 0; i < graph->n_leafs; i++) {
        if (graph->leafs[i] != NULL && berth_poisoned(graph->leafs[i])) {
            return poison_report(graph->leafs[i]);
        }
    }
    for (int i = 0; i < graph->n_nodes; i++) {
        if (node_check(walk, graph->nodes[i], i, needs) != GGML_STATUS_SUCCESS) {
            return GGML_STATUS_FAILED;
        }
    }
    return GGML_STATUS_SUCCESS;
}

struct ggml_cplan ggml_graph_plan(const struct ggml_cgraph *cgraph, int n_threads, struct ggml_threadpool *threadpool) {
    cpu_init();
    struct ggml_cplan plan = {.threadpool = threadpool, .n_threads = 1};
    if (cgraph == NULL) {
        return plan;
    }
    if (n_threads <= 0) {
        n_threads = threadpool != NULL ? ggml_threadpool_get_n_threads(threadpool) : GGML_DEFAULT_N_THREADS;
    }
    if (n_threads > GGML_MAX_N_THREADS) {
        n_threads = GGML_MAX_N_THREADS;
    }
    // n_cpus = n_threads gives the largest number of tasks.
    struct needs needs = {.n_threads = n_threads, .n_cpus = n_threads, .n_tasks = 1};
    for (int i = 0; i < cgraph->n_nodes; i++) { // graph_check refuses the nodes skipped here
        const struct ggml_tensor *node = cgraph->nodes[i];
        const struct cpu_op_row *row = node != NULL && !berth_poisoned(node) ? node_row(node) : NULL;
        if (row != NULL && cpu_supports_op(node)) {
            needs_add(&needs, row, node);
        }
    }
    plan.n_threads = needs.n_tasks;
    plan.work_size = needs_work_size(&needs);
    return plan;
}

static size_t node_work_max(const struct ggml_tensor *node, int n_threads) {
    const struct cpu_op_row *row = node != NULL && !berth_poisoned(node) ? node_row(node) : NULL;
    if (row == NULL || row->work_size == NULL || !cpu_supports_op(node)) {
        return 0;
    }
    return (row->work_bound != NULL ? row->work_bound : row->work_size)(node, n_threads);
}

size_t cpu_graph_work_bound(const struct ggml_cgraph *graph, int n_threads) {
    struct needs needs = {0};
    for (int i = 0; i < graph->n_nodes; i++) {
        const size_t size = node_work_max(graph->nodes[i], n_threads);
        needs.work_size = max_size(size, needs.work_size);
    }
    return needs_work_size(&needs);
}

static enum ggml_status team_run(
    struct cpu_team *team, struct ggml_threadpool *pool, int n_threads, struct berth_span_walk *walk) {
    team->n_cpus = pool != NULL ? cpu_pool_n_cpus(pool) : 1;
    struct needs needs = {.n_threads = n_threads, .n_cpus = team->n_cpus, .n_tasks = 1};
    if (graph_check(team->graph, walk, &needs) != GGML_STATUS_SUCCESS) {
        return GGML_STATUS_FAILED;
    }
    team->nth = needs.n_tasks;
    const size_t need = needs_work_size(&needs);
    if (need > team->plan->work_size || (need > 0 && team->plan->work_data == NULL)) {
        return shim_error(GGML_STATUS_FAILED, "the graph requires %zu bytes of work memory, the plan has %zu%s", need,
            team->plan->work_size, team->plan->work_data == NULL ? ", and its work_data is NULL" : "");
    }
    if (need > 0) {
        const uintptr_t at = (uintptr_t) team->plan->work_data;
        team->work = (void *) ((at + WORK_ALIGN - 1) & ~(uintptr_t) (WORK_ALIGN - 1));
        team->work_size = team->plan->work_size - (size_t) ((uintptr_t) team->work - at);
    }
    team->spin = team->nth <= team->n_cpus;
    team->stream = berth_weights_begin != NULL ? berth_weights_begin(team->graph) : NULL;
    if (team->nth > 1) {
        cpu_pool_run(pool, team->nth, team_walk, team);
    } else {
        const struct busy *was = busy_innermost;
        busy_innermost = team->busy;
        team_walk_alone(team);
        busy_innermost = was;
    }
    const enum ggml_status status = (enum ggml_status) atomic_load(&team->stop);
    if (team->stream != NULL) {
        if (status == GGML_STATUS_SUCCESS) {
            berth_weights_done(team->stream, team->graph->n_nodes);
        }
        berth_weights_end(team->stream);
    }
    return status == GGML_STATUS_FAILED ? shim_error(status, "%s", team->error) : status;
}

static const struct cpu_kernels *kernels_for(const struct ggml_cplan *plan, bool batch_invariant) {
    if (plan->use_ref) {
        return &cpu_kernels_portable;
    }
    return batch_invariant ? &cpu_kernels_invariant : &cpu_kernels_best;
}

enum ggml_status cpu_graph_compute(
    const struct ggml_cgraph *cgraph, const struct ggml_cplan *cplan, bool batch_invariant, const void *owner, bool is_checked) {
    struct ggml_threadpool *pool = cplan->threadpool;
    if (pool != NULL && cpu_is_busy_with(pool)) {
        return shim_error(
            GGML_STATUS_FAILED, "an op of the running graph computes on the thread pool that runs the graph; use another pool");
    }
    const struct busy outer = {owner, busy_innermost}, busy = {pool, &outer};
    struct cpu_team team = {
        .graph = cgraph, .plan = cplan, .busy = &busy, .k = kernels_for(cplan, batch_invariant), .nth = 1, .n_cpus = 1};
    cpu_gate_init(&team.node_gate);
    cpu_gate_init(&team.op_gate);
    atomic_init(&team.n_chunks, 0);
    atomic_init(&team.stop, GGML_STATUS_SUCCESS);

    if (pool == NULL && cplan->n_threads > 1) {
        pool = cpu_pool_borrow(cplan->n_threads); // NULL: one thread computes
    }
    const int n_pool = pool != NULL ? cpu_pool_restart_after_fork(pool) : 1;
    const int n_threads = max_int(1, min_int(cplan->n_threads, n_pool));

    struct berth_span_walk walk = {0};
    const enum ggml_status status = team_run(&team, pool, n_threads, is_checked ? NULL : &walk);
    if (pool != cplan->threadpool) {
        cpu_pool_return(pool);
    }
    return status;
}

enum ggml_status ggml_graph_compute(struct ggml_cgraph *cgraph, struct ggml_cplan *cplan) {
    cpu_init();
    if (cgraph == NULL || cplan == NULL) {
        return shim_error(GGML_STATUS_FAILED, "ggml_graph_compute: no %s", cgraph == NULL ? "graph" : "plan");
    }
    return cpu_graph_compute(cgraph, cplan, cpu_batch_invariant_default, NULL, false);
}

enum ggml_status ggml_graph_compute_with_ctx(struct ggml_context *ctx, struct ggml_cgraph *cgraph, int n_threads) {
    struct ggml_cplan plan = ggml_graph_plan(cgraph, n_threads, NULL);
    if (plan.work_size > 0) {
        plan.work_data = ggml_new_buffer(ctx, plan.work_size);
        if (plan.work_data == NULL) {
            return shim_error(
                GGML_STATUS_ALLOC_FAILED, "the context has no free memory for %zu bytes of work memory", plan.work_size);
        }
    }
    return ggml_graph_compute(cgraph, &plan);
}
