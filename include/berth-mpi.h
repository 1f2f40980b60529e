// SPDX-License-Identifier: MIT
// berth-mpi.h: functions of libggml-mpi.so, which is loaded at run time. docs/user/cluster.md is the guide.
//
// ggml_backend_reg_get_proc_address of the registry "MPI" returns the addresses of the objects and functions below by their
// names. In a process that mpirun did not start, "berth_mpi_world" is NULL and the counters of "berth_mpi_traffic" are 0.
#pragma once

#include "ggml-backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// "berth_mpi_world": the ranks of a program that runs on every rank (`mpirun -n 4 berth train`). Workers (`berth worker`) are not
// counted. Every rank must call the functions in the same order, one thread at a time. They return false, and set the last error,
// if a rank is lost or memory runs out.
struct berth_mpi_world {
    int rank, n_ranks; // number of this rank, from 0, and number of ranks
    // Replaces n values by their sums over all ranks. Every rank gets the same bits.
    bool (*sum_f32)(float *data, int64_t n);
    // Copies size bytes from rank root to all ranks.
    bool (*broadcast)(void *data, size_t size, int root);
    // Waits until all ranks have called it.
    bool (*barrier)(void);
    // Returns the name of the machine that a rank runs on.
    const char *(*host)(int rank);
};

// Arguments of "berth_mpi_serve".
struct berth_mpi_serve_params {
    ggml_backend_dev_t *devices; // devices to serve
    int64_t n_devices;           // number of devices
    int n_threads;               // threads of a CPU device; 0: as many as it has cores
    size_t memory_limit;         // the most bytes that each device reports and provides; 0: all it has
    const char *cache;           // existing folder in which received weights are kept; NULL: they are not kept
};

// "berth_mpi_serve": serves devices to the program until the program ends. `berth worker` calls it. BERTH_MPI_ROLE must be
// "worker" in the environment when the library is loaded. Returns false on failure.
typedef bool (*berth_mpi_serve_t)(const struct berth_mpi_serve_params *params);

// The messages and bytes that this rank has sent and received. Signs of life between ranks are not counted.
struct berth_mpi_traffic {
    int64_t n_sent, n_received;                  // messages
    uint64_t sent_size, received_size;           // bytes, message headers included
    uint64_t sent_data_size, received_data_size; // bytes of these that are tensor data
};

// "berth_mpi_traffic": stores the counters of this rank.
typedef void (*berth_mpi_traffic_t)(struct berth_mpi_traffic *traffic);

#ifdef __cplusplus
}
#endif
