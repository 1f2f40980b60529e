// SPDX-License-Identifier: MIT
// standin.h: a simulated libcuda.so.1 for machines without a GPU. It keeps device memory on the host, counts launches, and can
// make any call fail. Tests set BERTH_CUDA_DRIVER to its path, so that the backend loads it. They also load it themselves and
// change the settings of struct standin.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define STANDIN_MAX_DEVICES 8

struct standin {
    // settings, with their defaults
    int n_devices;                 // 1
    int version;                   // 13000
    int init_error;                // error that cuInit returns
    size_t memory;                 // bytes per device: 1 GiB
    int major;                     // major number of the compute capability: 9
    int shared;                    // largest shared memory of a block in bytes: 232,448; a launch with more fails
    long fail_at;                  // n: the n-th call from now on fails; 0: no call fails
    int fail_with;                 // error that the call at fail_at returns
    bool is_late;                  // streams do their copies as late as the driver may
    bool no_pinned;                // host memory cannot be pinned
    bool no_peers;                 // no device can access the memory of another
    int lost[STANDIN_MAX_DEVICES]; // error that all calls of a device return; 0: the device works
    // counts of calls; n_overlaps: launches that may overlap with the previous kernel; n_waits: calls that wait for a stream or an
    // event; n_device_copies: those of n_copies within device memory
    long n_calls, n_launches, n_overlaps, n_graph_launches, n_updates, n_instantiated, n_allocs, n_copies, n_pins, n_waits,
        n_device_copies;
    // objects that exist now
    long n_contexts, n_modules, n_streams, n_events, n_graphs, n_execs, n_buffers, n_pinned, n_registered;
    size_t used[STANDIN_MAX_DEVICES];
    char last_kernel[64];
};

struct standin *standin_state(void);
void standin_drop(void);  // frees all objects that a lost device has left
void standin_reset(void); // sets the settings to their defaults and the counts of calls to 0
