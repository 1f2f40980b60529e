// SPDX-License-Identifier: MIT
// berth-mpi.h: what libggml-mpi.so, which is loaded at run time, answers beyond ggml's API: ggml_backend_reg_get_proc_address of
// the registry "MPI" knows the names below. Without mpirun every answer is NULL and nothing is started. docs/cluster.md
#pragma once

#include "ggml-backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// "berth_mpi_world": the address of one of these, for programs of which every rank runs the same (`mpirun -n 4 berth train`).
// Ranks here are those of the programs alone: workers (`berth worker`) are not counted. All functions are called by every
// program, in the same order, by one thread at a time; false: a rank is lost or memory ran out, with the reason as the last
// error.
struct berth_mpi_world {
    int rank, size;
    bool (*sum_f32)(float *data, size_t n);               // in place; every rank gets the same bits
    bool (*broadcast)(void *data, size_t size, int root); // root's bytes to all
    bool (*barrier)(void);                                // until all are here
    const char *(*host)(int rank);                        // where it runs
};

// "berth_mpi_serve": what `berth worker` calls: serves these devices to the program until it ends. The environment variable
// BERTH_MPI_ROLE was "worker" when the library was loaded.
struct berth_mpi_serve_params {
    ggml_backend_dev_t *devices;
    size_t n_devices;
    int n_threads;       // of a CPU device; 0: as many as it has cores
    size_t memory_limit; // bytes that each device tells and gives at most; 0: what it has
    const char *cache;   // folder for weights that came once, which exists; NULL: none is kept
};
typedef bool (*berth_mpi_serve_t)(const struct berth_mpi_serve_params *params);

// "berth_mpi_traffic": what this rank has sent and received so far, signs of life left out.
struct berth_mpi_traffic {
    uint64_t n_sent, n_received;       // messages
    uint64_t sent_size, received_size; // bytes, heads included
    uint64_t data_sent, data_received; // bytes of them that are tensors' data
};
typedef void (*berth_mpi_traffic_t)(struct berth_mpi_traffic *out);

#ifdef __cplusplus
}
#endif
