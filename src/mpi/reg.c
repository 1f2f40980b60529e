// SPDX-License-Identifier: MIT
// reg.c: the registry entry "MPI": devices of other ranks, and the functions of berth-mpi.h. Without mpirun it lists nothing and
// starts nothing; in a worker it lists nothing.

#include "mpi/reg.h"

#include "mpi/world.h"

#include <string.h>

static struct mpi_world *world(void) {
    return mpi_process_has_mpirun() && !mpi_process_is_worker() ? mpi_process_world(NULL, 0) : NULL;
}

static const char *reg_name(ggml_backend_reg_t reg) {
    (void) reg;
    return "MPI";
}

static size_t reg_device_count(ggml_backend_reg_t reg) {
    (void) reg;
    (void) world(); // ranks wait for each other: all join when they look for devices
    return 0;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
    (void) reg;
    (void) index;
    return NULL;
}

// ---- programs among themselves ----

static bool world_sum(float *data, size_t n) {
    struct mpi_world *w = world();
    return w != NULL && mpi_group_sum(&w->programs, data, n);
}

static bool world_broadcast(void *data, size_t size, int root) {
    struct mpi_world *w = world();
    return w != NULL && mpi_group_broadcast(&w->programs, data, size, root);
}

static bool world_barrier(void) {
    struct mpi_world *w = world();
    return w != NULL && mpi_group_barrier(&w->programs);
}

static const char *world_host(int rank) {
    struct mpi_world *w = world();
    return w != NULL && rank >= 0 && rank < w->programs.n ? w->mail.peers[w->programs.ranks[rank]].host : "";
}

static void *world_address(void) {
    static struct berth_mpi_world told;
    const struct mpi_world *w = world();
    if (w == NULL) {
        return NULL;
    }
    told = (struct berth_mpi_world){.rank = w->programs.me,
        .size                             = w->programs.n,
        .sum_f32                          = world_sum,
        .broadcast                        = world_broadcast,
        .barrier                          = world_barrier,
        .host                             = world_host};
    return &told;
}

// ---- functions by name ----

static void traffic(struct berth_mpi_traffic *out) {
    struct mpi_world *w = world();
    *out                = (struct berth_mpi_traffic){0};
    if (w != NULL) {
        mpi_mail_traffic(&w->mail, out);
    }
}

typedef void (*proc_t)(void);

static const struct {
    const char *name;
    proc_t proc;
} procs[] = {
    {"berth_mpi_traffic", (proc_t) traffic},
};

static void *reg_proc_address(ggml_backend_reg_t reg, const char *name) {
    (void) reg;
    if (name != NULL && strcmp(name, "berth_mpi_world") == 0) {
        return world_address();
    }
    for (size_t i = 0; name != NULL && i < sizeof procs / sizeof procs[0]; i++) {
        if (strcmp(procs[i].name, name) == 0) {
            void *address; // ISO C has no cast from function to object pointers; POSIX systems have the same bits
            memcpy(&address, &procs[i].proc, sizeof address);
            return address;
        }
    }
    return NULL;
}

struct ggml_backend_reg mpi_reg = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface =
        {
            .get_name         = reg_name,
            .get_device_count = reg_device_count,
            .get_device       = reg_device,
            .get_proc_address = reg_proc_address,
        },
};
