// SPDX-License-Identifier: MIT
// world.h: the ranks that were started together: who is who, the threads that keep a rank alive for the others, and how all end.
// A rank is a program, which is the default, or a worker, which serves devices to the first program.
#pragma once

#include "mpi/message_queue.h"

#include <stdatomic.h>

#define MPI_MAGIC 0x42455254u // "BERT" to whoever reads it as text

// What a worker tells of a device. Fixed size, no pointers: it goes over the wire as it is.
struct mpi_device_info {
    char name[64], description[128];
    uint32_t type;            // enum ggml_backend_dev_type at the worker
    uint32_t is_plain;        // a tensor takes ggml_nbytes() there
    uint32_t has_cache, zero; // weights may be known there already
    uint64_t memory_free, memory_total, alignment, max_size;
};

struct mpi_hello {
    uint32_t magic, version;
    uint32_t is_worker, n_devices; // that many infos follow
    int32_t pid;
    char release[32]; // of Berth
    char host[64];
    char place[96]; // machine and its processes' names: pids of ranks with the same one mean the same
};

// A rank as the others know it.
struct mpi_member {
    bool is_worker;
    size_t n_devices;
    struct mpi_device_info *devices;
};

struct mpi_world {
    struct mpi_queue queue;
    bool is_worker;
    bool ends_if_held;           // the process, where MPI does not let its thread go
    struct mpi_member *members;  // [queue.t.size]; of a rank that is lost: nothing
    struct mpi_group programs;   // this rank among the programs; me < 0: it is a worker
    int program;                 // the rank that workers serve; -1: there is none
    pthread_t tender;            // the thread that runs mpi_queue_progress
    bool has_tender, stop;       // stop: under queue.lock
    bool all_left;               // nobody was lost: mpi_world_part
    atomic_bool exit_when_alone; // ends the process, some time after the program is lost
};

// Joins over an open transport, which becomes the world's. False with an error. Ranks that are lost or of another version are
// left out.
bool mpi_world_init(struct mpi_world *w, const struct mpi_transport *t, bool is_worker, const struct mpi_device_info *devices,
    size_t n_devices) BERTH_MUST_USE;
// Warns of each rank that is left out.
void mpi_world_report_left_out(struct mpi_world *w);
// Says good-bye and waits for all others that live to do the same.
void mpi_world_part(struct mpi_world *w);
// Says good-bye, and waits for nobody: MPI is left as it is.
void mpi_world_abandon(struct mpi_world *w);
// After mpi_world_part: ends MPI in order if all did. Who still has something of another rank's may free it afterwards.
void mpi_world_end(struct mpi_world *w);
void mpi_world_fini(struct mpi_world *w); // the same, and nothing of the world is left

// ---- of this process (process.c) ----

bool mpi_process_has_mpirun(void);
bool mpi_process_is_worker(void);
// The one world of this process; joins at the first call. NULL: no mpirun, or it failed, or this thread is joining.
struct mpi_world *mpi_process_world(const struct mpi_device_info *devices, size_t n_devices);
bool mpi_process_is_joining(void); // this thread is
// Once, what there is to tell of joining: the error, or who is left out. To be called without a lock, after mpi_process_world.
void mpi_process_report(void);
