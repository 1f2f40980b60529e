// SPDX-License-Identifier: MIT
// run.c: runs a program with one thread per device (the crew). The caller's thread serves the first device.
// A step of a program consists of phases. All threads meet at a gate (a barrier) before a phase that needs results of other
// devices.
// A device is synchronous if its compute call returns only when the work is done. If at most one device is synchronous, the
// caller's thread does the work of all devices. If a registry then offers sums as ask and join (program.h), the caller's thread
// sends up to N_AHEAD steps to the asynchronous devices before it runs the first of them on the synchronous device.
// Rules:
// - A gate opens when all threads have arrived. If one of them has failed before, all threads then end the run.
// - Between two gates a thread writes only to its own device, and reads from other devices only data that no thread writes.
// - An asynchronous device does its work in order. The crew waits for the device before other devices access its memory.

#include "meta/program.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#define N_AHEAD 4 // number of steps that are sent ahead; if a run fails, these steps must still be completed

struct worker {
    struct meta_crew *crew;
    int j;
    pthread_t thread;
};

struct meta_crew {
    ggml_backend_t *backends; // [n] owned by the backend
    int n, n_started;
    struct meta_comm comm;
    bool is_single_threaded;         // the caller's thread does everything
    bool is_async[META_MAX];         // the device returns before its work is done
    bool has_pending_work[META_MAX]; // the device may still be working; only its thread uses this field
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    // Protected by the mutex:
    struct meta_program *program; // program of the current run
    uint64_t run_number;
    bool is_stopping;
    int n_waiting;    // number of threads at the gate
    uint64_t n_gates; // number of gates that have opened so far
    int n_busy;       // number of workers that are still in this run
    enum ggml_status status, gate_status;
    char error[400];               // error of the first failure
    bool is_summed;                // comm.allreduce has summed the parts in this step
    struct berth_staging *staging; // [n] one per device
    struct worker workers[];
};

// ---- synchronisation ----

static void crew_fail(struct meta_crew *crew, enum ggml_status status) {
    pthread_mutex_lock(&crew->mutex);
    if (crew->status == GGML_STATUS_SUCCESS) {
        crew->status = status;
        snprintf(crew->error, sizeof crew->error, "%s", berth_last_error());
    }
    pthread_mutex_unlock(&crew->mutex);
}

static bool crew_gate(struct meta_crew *crew) {
    pthread_mutex_lock(&crew->mutex);
    const uint64_t mine = crew->n_gates;
    if (++crew->n_waiting == crew->n) {
        crew->n_waiting = 0;
        crew->gate_status = crew->status;
        crew->n_gates++;
        pthread_cond_broadcast(&crew->changed);
    }
    while (crew->n_gates == mine) {
        pthread_cond_wait(&crew->changed, &crew->mutex);
    }
    const bool ok = crew->gate_status == GGML_STATUS_SUCCESS;
    pthread_mutex_unlock(&crew->mutex);
    return ok;
}

// ---- phases ----

typedef void (*phase_run)(struct meta_crew *crew, struct meta_program *p, const struct meta_step *step, int j);

// Waits for the device and collects its failure.
static void part_wait(struct meta_crew *crew, struct meta_program *p, const struct meta_step *step, int j) {
    (void) p;
    (void) step;
    if (crew->has_pending_work[j]) {
        crew->has_pending_work[j] = false;
        if (berth_backend_synchronize(crew->backends[j]) != GGML_STATUS_SUCCESS) {
            crew_fail(crew, GGML_STATUS_FAILED);
        }
    }
}

static void part_compute(struct meta_crew *crew, int j, struct ggml_cgraph *graph) {
    const enum ggml_status status =
        graph->n_nodes > 0 ? ggml_backend_graph_compute_async(crew->backends[j], graph) : GGML_STATUS_SUCCESS;
    crew->has_pending_work[j] = crew->has_pending_work[j] || crew->is_async[j];
    if (status != GGML_STATUS_SUCCESS) {
        crew_fail(crew, status);
    }
}

struct ggml_cgraph meta_step_graph(struct meta_program *p, const struct meta_step *step, int j) {
    return (struct ggml_cgraph){
        .size = step->to[j] - step->from[j],
        .n_nodes = step->to[j] - step->from[j],
        .nodes = p->nodes[j] + step->from[j],
        .use_counts = p->use_counts[j],
        .visited_hash_set = p->tensors[j],
        .uid = p->uid[j] + (uint64_t) step->from[j],
    };
}

static void run_nodes(struct meta_crew *crew, struct meta_program *p, const struct meta_step *step, int j) {
    struct ggml_cgraph graph = meta_step_graph(p, step, j);
    part_compute(crew, j, &graph);
}

static void run_zero(struct meta_crew *crew, struct meta_program *p, const struct meta_step *step, int j) {
    if (step->dst[j].op != GGML_OP_NONE) {
        part_wait(crew, p, step, j);
        ggml_backend_tensor_memset(&step->dst[j], 0, 0, ggml_nbytes(&step->dst[j]));
    }
}

struct staged {
    char *stage;
    struct ggml_tensor *part;
    bool is_write;
};

static bool stage_piece(const struct meta_piece *p, void *user) {
    const struct staged *s = user;
    if (s->is_write) {
        ggml_backend_tensor_set_2d(s->part, s->stage + p->whole, p->part, p->size, p->n_outer, p->part_step, p->whole_step);
    } else {
        ggml_backend_tensor_get_2d(s->part, s->stage + p->whole, p->part, p->size, p->n_outer, p->part_step, p->whole_step);
    }
    return true;
}

// Adds the parts of a partial tensor. The sum is then in the staging memory.
static void stage_sum(const struct meta_step *step, struct meta_program *p) {
    const size_t size = ggml_nbytes(step->shape), count = size / sizeof(float);
    float *sum = (float *) (void *) p->stage, *one = sum + count;
    ggml_backend_tensor_get(&step->src[0], sum, 0, size);
    for (int j = 1; j < p->n; j++) {
        ggml_backend_tensor_get(&step->src[j], one, 0, size);
        for (size_t i = 0; i < count; i++) {
            sum[i] += one[i];
        }
    }
}

static void move_out(struct meta_crew *crew, struct meta_program *p, const struct meta_step *step, int j) {
    (void) crew;
    if (meta_is_split(step->src_state)) {
        meta_pieces(step->shape, step->src_state, p->n, j, stage_piece, &(struct staged){p->stage, &step->src[j], false});
    } else if (j == 0 && meta_is_partial(step->src_state)) {
        stage_sum(step, p);
    } else if (j == 0) {
        ggml_backend_tensor_get(&step->src[0], p->stage, 0, ggml_nbytes(step->shape));
    }
}

static void move_in(struct meta_crew *crew, struct meta_program *p, const struct meta_step *step, int j) {
    const size_t size = ggml_nbytes(step->shape);
    (void) crew;
    if (meta_is_split(step->dst_state)) {
        meta_pieces(step->shape, step->dst_state, p->n, j, stage_piece, &(struct staged){p->stage, &step->dst[j], true});
    } else if (meta_is_partial(step->dst_state) && j > 0) {
        ggml_backend_tensor_memset(&step->dst[j], 0, 0, size);
    } else {
        ggml_backend_tensor_set(&step->dst[j], p->stage, 0, size);
    }
}

static bool comm_call(
    struct meta_crew *crew, const struct meta_step *step, bool (*call)(void *ctx, struct ggml_tensor **tensors)) {
    struct ggml_tensor *tensors[META_MAX];
    for (int k = 0; k < crew->n; k++) {
        tensors[k] = &step->dst[k];
    }
    return call(crew->comm.ctx, tensors);
}

// Called once per device. Only the call for device 0 calls allreduce, which sums for all devices.
static void sum_by_registry(struct meta_crew *crew, struct meta_program *p, const struct meta_step *step, int j) {
    (void) p;
    crew->has_pending_work[j] = crew->has_pending_work[j] || crew->is_async[j];
    if (j == 0) {
        crew->is_summed = comm_call(crew, step, crew->comm.allreduce);
    }
}

// If no registry offers a function, the devices sum in three phases: reduce-scatter (shares_take, shares_add), then all-gather
// (shares_collect).
static void shares_take(struct meta_crew *crew, struct meta_program *p, const struct meta_step *step, int j) {
    const int n = crew->n;
    (void) p;
    for (int i = 0; i < n; i++) {
        struct ggml_tensor *share = &step->shares[i * n + j];
        if (i != j && share->ne[0] > 0) {
            berth_tensor_copy(__func__, NULL, share, &step->operands[j * n + i], &crew->staging[j]);
        }
    }
}

static void shares_add(struct meta_crew *crew, struct meta_program *p, const struct meta_step *step, int j) {
    part_compute(crew, j, &step->graphs[j]);
    part_wait(crew, p, step, j);
}

static void shares_collect(struct meta_crew *crew, struct meta_program *p, const struct meta_step *step, int j) {
    const int n = crew->n;
    (void) p;
    for (int i = 0; i < n; i++) {
        struct ggml_tensor *share = &step->shares[i * n + i];
        if (i != j && share->ne[0] > 0) {
            berth_tensor_copy(__func__, NULL, share, &step->shares[j * n + i], &crew->staging[j]);
        }
    }
}

static void step_skip(struct meta_crew *crew, struct meta_program *p, const struct meta_step *step, int j) {
    (void) crew;
    (void) p;
    (void) step;
    (void) j;
}

// A phase of a step. has_gate: all threads meet at a gate before the phase. ends_summed: if allreduce has already done the sum
// (crew.is_summed), the step ends before this phase.
struct phase {
    phase_run run;
    bool has_gate, ends_summed;
};

#define SUM_BY_SHARES \
    {shares_take, true, false}, {shares_add, true, false}, {shares_collect, true, false}, { \
        step_skip, true, false \
    }

static const struct phase phases[][8] = {
    [META_COMPUTE] = {{run_nodes, false, false}},
    [META_ZERO] = {{run_zero, false, false}},
    [META_MOVE] = {{part_wait, false, false}, {move_out, true, false}, {move_in, true, false}},
    [META_SUM] = {{part_wait, false, false}, SUM_BY_SHARES},
};
static const struct phase sum_phases_by_registry[] = {
    {sum_by_registry, true, false}, {part_wait, true, true}, SUM_BY_SHARES, {NULL, false, false}};

static const struct phase *phases_of(const struct meta_crew *crew, const struct meta_step *step) {
    return step->kind == META_SUM && crew->comm.allreduce != NULL ? sum_phases_by_registry : phases[step->kind];
}

static void run_part(struct meta_crew *crew, struct meta_program *p, int j) {
    for (size_t i = 0; i < p->n_steps; i++) {
        const struct meta_step *step = &p->steps[i];
        for (const struct phase *phase = phases_of(crew, step); phase->run != NULL; phase++) {
            if (phase->has_gate && !crew_gate(crew)) {
                return;
            }
            if (phase->ends_summed && crew->is_summed) {
                break;
            }
            phase->run(crew, p, step, j);
        }
    }
    part_wait(crew, p, NULL, j);
}

// Runs all phases of a step on the caller's thread. Asynchronous devices get their work before the synchronous device.
static void run_step(struct meta_crew *crew, struct meta_program *p, const struct meta_step *step) {
    for (const struct phase *phase = phases_of(crew, step); phase->run != NULL; phase++) {
        if (crew->status != GGML_STATUS_SUCCESS || (phase->ends_summed && crew->is_summed)) {
            return;
        }
        for (int k = 0; k < 2 * crew->n; k++) {
            if (crew->is_async[k % crew->n] == (k < crew->n)) {
                phase->run(crew, p, step, k % crew->n);
            }
        }
    }
}

static void run_nodes_of(struct meta_crew *crew, struct meta_program *p, const struct meta_step *step, bool is_async) {
    for (int j = 0; j < crew->n; j++) {
        if (crew->is_async[j] == is_async) {
            run_nodes(crew, p, step, j);
        }
    }
}

// Sends the step to the asynchronous devices. If the step cannot be sent ahead, sends nothing and returns false.
static bool step_issue(struct meta_crew *crew, struct meta_program *p, const struct meta_step *step) {
    if (step->kind == META_COMPUTE) {
        run_nodes_of(crew, p, step, true);
    } else if (step->kind != META_SUM || !comm_call(crew, step, crew->comm.ask)) {
        return false;
    }
    for (int j = 0; j < crew->n; j++) {
        crew->has_pending_work[j] = crew->has_pending_work[j] || crew->is_async[j];
    }
    return true;
}

// Runs the synchronous device's share of a step that step_issue has sent. A sum is joined even after a failure, because the other
// devices wait for it.
static void step_run_own(struct meta_crew *crew, struct meta_program *p, const struct meta_step *step) {
    if (step->kind == META_SUM && !comm_call(crew, step, crew->comm.join)) {
        crew_fail(crew, GGML_STATUS_FAILED);
    } else if (step->kind == META_COMPUTE && crew->status == GGML_STATUS_SUCCESS) {
        run_nodes_of(crew, p, step, false);
    }
}

// Runs steps from index `at` on, up to the first step that cannot be sent ahead. Returns the index of the first step that was not
// run.
static size_t run_ahead(struct meta_crew *crew, struct meta_program *p, size_t at) {
    size_t n_issued = at;
    bool can_issue = true;
    do {
        while (can_issue && n_issued < p->n_steps && n_issued - at < N_AHEAD && crew->status == GGML_STATUS_SUCCESS) {
            can_issue = step_issue(crew, p, &p->steps[n_issued]);
            n_issued += can_issue;
        }
        if (at < n_issued) {
            step_run_own(crew, p, &p->steps[at++]);
        }
    } while (at < n_issued);
    return at;
}

static void run_on_caller(struct meta_crew *crew, struct meta_program *p) {
    const bool may_ahead = crew->comm.ask != NULL && crew->comm.join != NULL;
    for (size_t i = 0; i < p->n_steps && crew->status == GGML_STATUS_SUCCESS;) {
        const size_t done = may_ahead ? run_ahead(crew, p, i) : i;
        if (done == i) {
            run_step(crew, p, &p->steps[i]);
        }
        i = done > i ? done : i + 1;
    }
    for (int j = 0; j < crew->n && crew->status == GGML_STATUS_SUCCESS; j++) {
        part_wait(crew, p, NULL, j);
    }
}

// ---- threads ----

static void *worker_run(void *arg) {
    struct worker *w = arg;
    struct meta_crew *crew = w->crew;
    uint64_t seen = 0;
    pthread_mutex_lock(&crew->mutex);
    for (;;) {
        while (crew->run_number == seen && !crew->is_stopping) {
            pthread_cond_wait(&crew->changed, &crew->mutex);
        }
        if (crew->is_stopping) {
            break;
        }
        seen = crew->run_number;
        struct meta_program *p = crew->program;
        pthread_mutex_unlock(&crew->mutex);
        run_part(crew, p, w->j);
        pthread_mutex_lock(&crew->mutex);
        if (--crew->n_busy == 0) {
            pthread_cond_broadcast(&crew->changed);
        }
    }
    pthread_mutex_unlock(&crew->mutex);
    return NULL;
}

static bool crew_start(struct meta_crew *crew) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // inherited by the new threads: only the program's threads handle signals
    bool ok = true;
    for (int j = 1; j < crew->n && ok && !crew->is_single_threaded; j++) {
        crew->workers[j] = (struct worker){.crew = crew, .j = j};
        ok = pthread_create(&crew->workers[j].thread, NULL, worker_run, &crew->workers[j]) == 0;
        crew->n_started += ok;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

struct meta_crew *meta_crew_new(ggml_backend_t *backends, int n, const struct meta_comm *comm) {
    struct meta_crew *crew = berth_calloc(1, sizeof *crew + (size_t) n * sizeof crew->workers[0]);
    if (crew == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for %d threads", n);
        return NULL;
    }
    crew->backends = backends;
    crew->n = n;
    crew->comm = *comm;
    int n_sync = 0;
    for (int j = 0; j < n; j++) {
        struct ggml_backend_dev_props props = {0};
        ggml_backend_dev_get_props(ggml_backend_get_device(backends[j]), &props);
        crew->is_async[j] = props.caps.async;
        n_sync += !props.caps.async;
    }
    crew->is_single_threaded = n_sync <= 1;
    crew->staging = berth_calloc((size_t) n, sizeof crew->staging[0]);
    pthread_mutex_init(&crew->mutex, NULL);
    pthread_cond_init(&crew->changed, NULL);
    if (crew->staging == NULL || !crew_start(crew)) {
        berth_fail(GGML_STATUS_FAILED, "started only %d of %d threads", crew->n_started, n - 1);
        meta_crew_free(crew);
        return NULL;
    }
    return crew;
}

void meta_crew_free(struct meta_crew *crew) {
    if (crew == NULL) {
        return;
    }
    pthread_mutex_lock(&crew->mutex);
    crew->is_stopping = true;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->mutex);
    for (int j = 1; j <= crew->n_started; j++) {
        pthread_join(crew->workers[j].thread, NULL);
    }
    pthread_cond_destroy(&crew->changed);
    pthread_mutex_destroy(&crew->mutex);
    for (int j = 0; crew->staging != NULL && j < crew->n; j++) {
        berth_free(crew->staging[j].bytes);
    }
    berth_free(crew->staging);
    berth_free(crew);
}

bool meta_crew_reserve(struct meta_crew *crew, size_t size) {
    bool ok = true;
    for (int j = 0; j < crew->n && ok; j++) {
        ok = berth_grow(&crew->staging[j].bytes, &crew->staging[j].size, size, 1);
    }
    return ok;
}

static void run_on_threads(struct meta_crew *crew, struct meta_program *program) {
    pthread_mutex_lock(&crew->mutex);
    crew->program = program;
    crew->n_busy = crew->n - 1;
    crew->run_number++;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->mutex);
    run_part(crew, program, 0);
    pthread_mutex_lock(&crew->mutex);
    while (crew->n_busy > 0) {
        pthread_cond_wait(&crew->changed, &crew->mutex);
    }
    pthread_mutex_unlock(&crew->mutex);
}

enum ggml_status meta_crew_run(struct meta_crew *crew, struct meta_program *program) {
    crew->status = GGML_STATUS_SUCCESS; // no worker is running
    crew->gate_status = GGML_STATUS_SUCCESS;
    (crew->is_single_threaded ? run_on_caller : run_on_threads)(crew, program);
    if (crew->status != GGML_STATUS_SUCCESS) {
        berth_set_error("%s", crew->error);
    }
    return crew->status;
}
