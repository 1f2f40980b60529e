// SPDX-License-Identifier: MIT
// world.h: the world is the set of ranks that were started together.
// A rank is a program (the default) or a worker. A worker serves its devices to the first program.
#pragma once

#include "mpi/message_queue.h"

#include <stdatomic.h>

#define MPI_MAGIC 0x42455254u // "BERT" as text

// Sent as bytes: fixed size, no pointers.
struct mpi_device_info {
    char name[64], description[128];
    uint32_t type;               // enum ggml_backend_dev_type at the worker
    uint32_t has_plain_sizes;    // every tensor requires ggml_nbytes() bytes on the device
    uint32_t has_cache, padding; // has_cache: the worker caches weights on disk
    uint64_t memory_free, memory_total, alignment, max_size;
};

struct mpi_hello {
    uint32_t magic, version;
    uint32_t is_worker, n_devices; // n_devices: number of mpi_device_info that follow
    int32_t pid;
    char release[32]; // version of Berth
    char host[64];
    char pid_namespace[96]; // if two ranks have equal values, each can check the other's process by its pid
};

struct mpi_member {
    bool is_worker;
    size_t n_devices;
    struct mpi_device_info *devices;
};

struct mpi_world {
    struct mpi_queue queue;
    bool is_worker;
    bool ends_if_blocked;           // the process ends if an MPI call does not return
    struct mpi_member *members;     // [queue.transport.size] empty for a lost rank
    struct mpi_group programs;      // group of the programs; me < 0: this rank is a worker
    int program_rank;               // rank that the workers serve; -1: none
    pthread_t progress_thread;      // thread that calls mpi_queue_progress
    bool has_progress_thread, stop; // stop: protected by queue.lock
    bool all_departed;              // set by mpi_world_leave: all ranks have left, and none was lost
    atomic_bool exit_when_alone;    // for workers: the process ends 3 s after the program is lost
};

// Takes ownership of the transport. Lost ranks and ranks of another version are left out. On failure returns false with an error.
bool mpi_world_init(struct mpi_world *w, const struct mpi_transport *t, bool is_worker, const struct mpi_device_info *devices,
    size_t n_devices) BERTH_MUST_USE;
// Logs a warning for each rank that is left out.
void mpi_world_report_left_out(struct mpi_world *w);
// Sends MPI_BYE and waits until all other live ranks have sent theirs.
void mpi_world_leave(struct mpi_world *w);
// Sends MPI_BYE and does not wait. MPI is not finalized.
void mpi_world_abandon(struct mpi_world *w);
// Call after mpi_world_leave. Finalizes MPI if no rank was lost.
// Objects that refer to other ranks, such as buffers, can still be freed afterwards.
void mpi_world_end(struct mpi_world *w);
void mpi_world_fini(struct mpi_world *w); // as mpi_world_end; also frees the world

// ---- the world of this process (process.c) ----

bool mpi_process_has_mpirun(void);
bool mpi_process_is_worker(void);
// Joins at the first call. Returns NULL without mpirun, if joining failed, or in a log callback of the joining thread.
struct mpi_world *mpi_process_world(const struct mpi_device_info *devices, size_t n_devices);
bool mpi_process_is_joining(void); // this thread is joining the world; true only in a log callback
// Reports errors or left-out ranks once. Call after mpi_process_world, without holding a lock.
void mpi_process_report(void);
