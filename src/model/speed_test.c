// SPDX-License-Identifier: MIT
// speed_test.c: measures the speed of graphs ("pieces") on a device. A round computes all pieces once. speed_test_run uses the
// shortest time of each piece, because other processes rarely interfere with a short piece. speed_test_mean uses the mean time of a
// round, which includes interference.

#include "model/speed_test.h"
#include "base/min.h"

#include <limits.h>

#define TEST_US 60000 // microseconds of speed_test_run
#define MAX_ROUNDS 32
#define MEAN_US 200000 // microseconds of speed_test_mean
#define MIN_ROUNDS 4   // smallest number of rounds
#define LONG_ROUNDS 2  // the same if they take four times as long as the test should
#define EXTRA_LEAFS 8  // leafs in addition to 2 per node, for small graphs

bool speed_test_init(struct speed_test *t, size_t n_nodes) {
    const size_t graphs =
        (SPEED_TEST_PIECES + 1) * (ggml_graph_overhead_custom(2 * n_nodes + EXTRA_LEAFS, false) + ggml_tensor_overhead());
    const size_t size = (4 * n_nodes + 8) * ggml_tensor_overhead() + graphs;
    *t = (struct speed_test){.ctx = ggml_init((struct ggml_init_params){.mem_size = size, .no_alloc = true})};
    return t->ctx != NULL;
}

struct ggml_cgraph *speed_test_piece(struct speed_test *t, size_t n_nodes) {
    return t->pieces[t->n_pieces++] = ggml_new_graph_custom(t->ctx, 2 * n_nodes + EXTRA_LEAFS, false);
}

struct ggml_cgraph *speed_test_sweep(struct speed_test *t, size_t n_nodes) {
    return t->sweep = ggml_new_graph_custom(t->ctx, 2 * n_nodes + EXTRA_LEAFS, false);
}

static bool round_run(struct speed_test *t, ggml_backend_t backend) {
    for (int i = 0; i < t->n_pieces; i++) {
        const int64_t start = ggml_time_us();
        if (ggml_backend_graph_compute(backend, t->pieces[i]) != GGML_STATUS_SUCCESS) {
            return false;
        }
        const int64_t us = ggml_time_us() - start;
        if (t->best[i] == 0 || us < t->best[i]) {
            t->best[i] = max_i64(us, 1);
        }
    }
    return t->sweep == NULL || ggml_backend_graph_compute(backend, t->sweep) == GGML_STATUS_SUCCESS;
}

static bool is_supported(const struct speed_test *t, ggml_backend_t backend) {
    for (int i = 0; i < t->n_pieces; i++) {
        for (int k = 0; k < ggml_graph_n_nodes(t->pieces[i]); k++) {
            if (!ggml_backend_supports_op(backend, ggml_graph_node(t->pieces[i], k))) {
                return false;
            }
        }
    }
    return true;
}

// Runs n_first uncounted rounds. Then runs rounds for `us` microseconds, at least MIN_ROUNDS or, if they are long, LONG_ROUNDS,
// and at most `most`. Without t->fill, all tensors are zero. Returns the mean seconds per round; negative: failed, or the device
// does not support an op.
static double rounds_run(struct speed_test *t, ggml_backend_t backend, int n_first, int most, int64_t us) {
    ggml_backend_buffer_t buffer = is_supported(t, backend) ? ggml_backend_alloc_ctx_tensors(t->ctx, backend) : NULL;
    ggml_backend_buffer_clear(buffer, 0); // accepts NULL
    bool ok = buffer != NULL && (t->fill == NULL || t->fill(t, t->fill_user));
    int64_t begin = ggml_time_us();
    int i = -n_first;
    for (; ok &&
           (i < LONG_ROUNDS || (i < MIN_ROUNDS && ggml_time_us() - begin < 4 * us) || (i < most && ggml_time_us() - begin < us));
         i++) {
        if (i == 0) {
            begin = ggml_time_us();
        }
        ok = round_run(t, backend);
    }
    const double seconds = (double) (ggml_time_us() - begin) / 1e6;
    ggml_backend_buffer_free(buffer);
    return ok ? seconds / i : -1;
}

double speed_test_mean(struct speed_test *t, ggml_backend_t backend, double start) {
    const double mean = rounds_run(t, backend, 1, INT_MAX, MEAN_US); // the first round plans its graphs
    return mean < 0 ? 0 : max_f64(mean - t->n_pieces * start, 1e-7);
}

double speed_test_run(struct speed_test *t, ggml_backend_t backend, double start) {
    double sum = 0;
    if (rounds_run(t, backend, 0, MAX_ROUNDS, TEST_US) < 0) {
        return 0;
    }
    for (int i = 0; i < t->n_pieces; i++) {
        sum += max_f64((double) t->best[i] / 1e6 - start, 1e-7);
    }
    return sum;
}

double speed_test_chain(ggml_backend_t backend, int n, int64_t width) {
    struct speed_test test;
    if (!speed_test_init(&test, (size_t) n)) {
        return 0;
    }
    struct ggml_tensor *a = ggml_new_tensor_1d(test.ctx, GGML_TYPE_F32, width), *x = a;
    for (int i = 0; i < n; i++) {
        x = i % 2 == 0 ? ggml_add(test.ctx, x, a) : ggml_rms_norm(test.ctx, x, 1e-5f);
    }
    ggml_build_forward_expand(speed_test_piece(&test, (size_t) n), x);
    const double seconds = speed_test_run(&test, backend, 0);
    ggml_free(test.ctx);
    return seconds;
}
