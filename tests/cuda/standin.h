// SPDX-License-Identifier: MIT
// standin.h: a libcuda.so.1 for machines without a GPU: memory on the host, launches counted, and every call that can fail made
// to. Tests name it in BERTH_CUDA_DRIVER, open it too, and turn these knobs.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define STANDIN_MAX_DEVICES 8

struct standin {
    // knobs
    int n_devices;                 // 1
    int version;                   // 13000
    int init_error;                // what cuInit answers
    size_t memory;                 // bytes each device has: 1 GiB
    int major;                     // of the compute capability: 9
    int shared;                    // bytes of shared memory a block may have: 232,448; a launch that wants more is refused
    long fail_at;                  // the n-th call from now on fails, 0: none does ...
    int fail_with;                 // ... with this error
    bool no_peers;                 // no device reaches another's memory
    int lost[STANDIN_MAX_DEVICES]; // the error that all calls of a device answer; 0: it is well
    // what was seen
    long n_calls, n_launches, n_overlaps, n_graph_launches, n_updates, n_instantiated, n_allocs, n_copies;
    // what is there
    long n_contexts, n_modules, n_streams, n_events, n_graphs, n_execs, n_buffers, n_pinned, n_registered;
    size_t used[STANDIN_MAX_DEVICES];
    char last_kernel[64];
};

struct standin *standin_state(void);
void standin_drop(void);  // what is still there goes: a lost device has left it
void standin_reset(void); // knobs to their defaults, counts of what was seen to 0
