// SPDX-License-Identifier: MIT
// speed_test.h: measures the speed of graphs on a device (speed_test.c).
#pragma once

#include "ggml-backend.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPEED_TEST_PIECES 64

// A test consists of pieces, which are graphs that are computed in turn. While the other pieces run, the weights of a piece leave
// the processor's caches.
struct speed_test {
    struct ggml_context *ctx; // all tensors; freed by the caller
    struct ggml_cgraph *pieces[SPEED_TEST_PIECES];
    int64_t best[SPEED_TEST_PIECES]; // microseconds, shortest time of each piece
    int n_pieces;
    struct ggml_cgraph *sweep;                               // untimed graph that evicts weights after all pieces; or NULL
    bool (*fill)(const struct speed_test *test, void *user); // sets what must not be zero; or NULL. False: failed
    void *fill_user;
};

// Prepares a test of at most n_nodes nodes with at most three sources each. False: out of memory.
bool speed_test_init(struct speed_test *test, size_t n_nodes);
struct ggml_cgraph *speed_test_piece(struct speed_test *test, size_t n_nodes);
struct ggml_cgraph *speed_test_sweep(struct speed_test *test, size_t n_nodes);
// Fills the tensors with zeros, then calls fill. Returns the sum over all pieces of (shortest time of the piece - start), in seconds. start:
// seconds that the start of any graph takes. 0: the device does not support an op.
double speed_test_run(struct speed_test *test, ggml_backend_t backend, double start);
// Returns the mean seconds of one run of all pieces. Unlike the shortest time, the mean includes interference by other processes.
// The pieces should take much longer than `start`.
double speed_test_mean(struct speed_test *test, ggml_backend_t backend, double start);
// Returns the seconds of a graph that is a chain of n small ops on a vector; see speed_test_run.
double speed_test_chain(ggml_backend_t backend, int n, int64_t width);
