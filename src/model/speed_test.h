// SPDX-License-Identifier: MIT
// speed_test.h: graphs that are timed on a device (speed_test.c).
#pragma once

#include "ggml-backend.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPEED_TEST_PIECES 64

// Graphs that are computed in turn, so that the first one's weights have left the caches when it comes again.
struct speed_test {
    struct ggml_context *ctx; // of all tensors; the caller frees it
    struct ggml_cgraph *pieces[SPEED_TEST_PIECES];
    int64_t best[SPEED_TEST_PIECES]; // microseconds
    int n_pieces;
    struct ggml_cgraph *sweep; // NULL, or computed behind all of them, untimed: what else drives their weights out
};

// For so many nodes of at most three sources each. False: out of memory.
bool speed_test_init(struct speed_test *test, size_t n_nodes);
struct ggml_cgraph *speed_test_piece(struct speed_test *test, size_t n_nodes);
struct ggml_cgraph *speed_test_sweep(struct speed_test *test, size_t n_nodes);
// The seconds that all pieces take with zeros in their tensors, each at its best and less `start`, which any graph takes; 0: the
// device cannot.
double speed_test_run(struct speed_test *test, ggml_backend_t backend, double start);
// The same on average of some tenths of a second, with all that others do meanwhile: what a longer run has as well. For pieces
// that take much longer than `start`.
double speed_test_mean(struct speed_test *test, ggml_backend_t backend, double start);
// The same of a chain of n small ops on a vector, as one graph.
double speed_test_chain(ggml_backend_t backend, int n, int64_t width);
