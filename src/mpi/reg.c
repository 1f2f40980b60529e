// SPDX-License-Identifier: MIT
// reg.c: the registry entry "MPI": devices of other ranks, and the functions of berth-mpi.h.
// In a worker or without mpirun, there are no devices. Without mpirun, no thread is started.

#include "mpi/remote.h"

#include "mpi/worker.h"

#include <string.h>

static struct mpi_world *world_get(void) {
    return mpi_process_has_mpirun() && !mpi_process_is_worker() ? mpi_process_world(NULL, 0) : NULL;
}

static const char *reg_name(ggml_backend_reg_t reg) {
    (void) reg;
    return "MPI";
}

// ---- devices ----

static pthread_once_t devices_once = PTHREAD_ONCE_INIT;
static struct mpi_remote *remotes;
static struct mpi_device *devices;
static size_t n_devices;

bool mpi_devices_list(struct mpi_world *w, struct mpi_remote **remotes_out, struct mpi_device **devices_out, size_t *n_out) {
    size_t n = 0;
    for (int i = 0; i < w->queue.transport.size; i++) {
        n += w->program_rank == w->queue.transport.rank && w->members[i].is_worker ? w->members[i].n_devices : 0;
    }
    struct mpi_remote *r = n > 0 ? shim_calloc((size_t) w->queue.transport.size, sizeof *r) : NULL;
    struct mpi_device *d = n > 0 ? shim_calloc(n, sizeof *d) : NULL;
    *n_out = 0;
    if (n > 0 && (r == NULL || d == NULL)) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for %zu devices", n);
        shim_free(r);
        shim_free(d);
        return false;
    }
    for (int i = 0; n > 0 && i < w->queue.transport.size; i++) {
        const struct mpi_member *m = &w->members[i];
        for (size_t k = 0; mpi_remote_init(&r[i], &w->queue, i) && m->is_worker && k < m->n_devices; k++) {
            mpi_device_init(&d[*n_out], &r[i], &m->devices[k], (uint32_t) k, w->queue.peers[i].host);
            d[(*n_out)++].ggml.reg = &mpi_reg;
        }
    }
    *remotes_out = r;
    *devices_out = d;
    return true;
}

static void devices_make(void) {
    struct mpi_world *w = world_get(); // joins the world; waits for all ranks
    if (w != NULL) {
        (void) !mpi_devices_list(w, &remotes, &devices, &n_devices);
    }
}

static size_t reg_device_count(ggml_backend_reg_t reg) {
    (void) reg;
    if (mpi_process_is_joining()) {
        return 0; // a log callback queries devices during the join: pthread_once would deadlock
    }
    pthread_once(&devices_once, devices_make);
    mpi_process_report();
    return n_devices;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
    return index < reg_device_count(reg) ? &devices[index].ggml : NULL;
}

// ---- communication between programs ----

static bool world_sum(float *data, int64_t n) {
    struct mpi_world *w = world_get();
    return w != NULL && n >= 0 && mpi_group_sum(&w->programs, data, (size_t) n);
}

static bool world_broadcast(void *data, size_t size, int root) {
    struct mpi_world *w = world_get();
    return w != NULL && mpi_group_broadcast(&w->programs, data, size, root);
}

static bool world_barrier(void) {
    struct mpi_world *w = world_get();
    return w != NULL && mpi_group_barrier(&w->programs);
}

static const char *world_host(int rank) {
    struct mpi_world *w = world_get();
    return w != NULL && rank >= 0 && rank < w->programs.n ? w->queue.peers[w->programs.ranks[rank]].host : "";
}

static void *world_address(void) {
    static struct berth_mpi_world info;
    const struct mpi_world *w = world_get();
    mpi_process_report();
    if (w == NULL) {
        return NULL;
    }
    info = (struct berth_mpi_world){.rank = w->programs.me,
        .n_ranks = w->programs.n,
        .sum_f32 = world_sum,
        .broadcast = world_broadcast,
        .barrier = world_barrier,
        .host = world_host};
    return &info;
}

// ---- functions by name ----

static void traffic_get(struct berth_mpi_traffic *out) {
    struct mpi_world *w = world_get();
    *out = (struct berth_mpi_traffic){0};
    mpi_process_report();
    if (w != NULL) {
        mpi_queue_traffic(&w->queue, out);
    }
}

static const struct shim_proc procs[] = {
    {"ggml_backend_comm_init", (shim_proc_t) mpi_comm_init},
    {"ggml_backend_comm_free", (shim_proc_t) mpi_comm_free},
    {"ggml_backend_comm_allreduce_tensor", (shim_proc_t) mpi_comm_allreduce},
    {"berth_comm_sum_ask", (shim_proc_t) mpi_comm_ask},
    {"berth_comm_sum_join", (shim_proc_t) mpi_comm_join},
    {"berth_mpi_serve", (shim_proc_t) mpi_serve},
    {"berth_mpi_traffic", (shim_proc_t) traffic_get},
};

static void *reg_proc_address(ggml_backend_reg_t reg, const char *name) {
    (void) reg;
    if (name != NULL && strcmp(name, "berth_mpi_world") == 0) {
        return world_address();
    }
    return shim_proc_find(procs, sizeof procs / sizeof procs[0], name);
}

struct ggml_backend_reg mpi_reg = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface =
        {
            .get_name = reg_name,
            .get_device_count = reg_device_count,
            .get_device = reg_device,
            .get_proc_address = reg_proc_address,
        },
};
