// SPDX-License-Identifier: MIT
// prop_sched_memory.c: the memory of a scheduler depends on the graphs that it has seen, not on the number and order of calls.
// After the first N_WARM random calls, memory must not grow.

#include "support/device_net.h"

#include <malloc.h>

enum { N_GRAPHS = 30, N_ROUNDS = 10000, N_WARM = 2000, SLACK = 256 << 10 };

static struct ggml_context *ctxs[N_GRAPHS];
static struct ggml_cgraph *graphs[N_GRAPHS];

// Always 0 with a sanitizer, which has its own allocator.
static size_t bytes_in_use(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0;
#else
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#endif
}

// A chain of ops over the weights of the backends. The last op also reads the first result.
static void graph_make(struct net *n, int i, int n_nodes, int n_backends) {
    ctxs[i] = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    graphs[i] = ggml_new_graph_custom(ctxs[i], 512, false);
    struct ggml_tensor *x = ggml_new_tensor_2d(ctxs[i], GGML_TYPE_F32, N, 1 + i % 3), *first = NULL;
    ggml_set_input(x);
    for (int k = 0; k < n_nodes; k++) {
        const int b = 3 - n_backends + (k / 3 + i) % n_backends;
        x = k % 3 == 0 ? ggml_mul_mat(ctxs[i], n->w[b], x) : k % 3 == 1 ? ggml_sqr(ctxs[i], x) : ggml_tanh(ctxs[i], x);
        first = first != NULL ? first : x;
    }
    ggml_build_forward_expand(graphs[i], ggml_add(ctxs[i], x, first));
}

static void graphs_make(struct net *n, int n_backends) {
    for (int i = 0; i < N_GRAPHS; i++) {
        graph_make(n, i, i == 0 ? 1 : 4 * i, n_backends);
    }
}

static void graphs_free(void) {
    for (int i = 0; i < N_GRAPHS; i++) {
        ggml_free(ctxs[i]);
    }
}

static void step(ggml_backend_sched_t sched, struct check_rng *rng) {
    struct ggml_cgraph *graph = graphs[check_rng_below(rng, N_GRAPHS)];
    size_t sizes[3];
    switch (check_rng_below(rng, 8)) {
        case 0:
        case 1: assert_true(ggml_backend_sched_reserve(sched, graph)); break;
        case 2: ggml_backend_sched_reserve_size(sched, graph, sizes); break;
        case 3: assert_int_equal(berth_sched_split(sched, graph), GGML_STATUS_SUCCESS); break;
        case 4:
        case 5: assert_true(ggml_backend_sched_alloc_graph(sched, graph)); break;
        case 6: assert_int_equal(ggml_backend_sched_graph_compute(sched, graph), GGML_STATUS_SUCCESS); break;
        default: ggml_backend_sched_reset(sched); break;
    }
}

static void stays_flat(struct net *n, int n_backends, bool parallel) {
    struct check_rng rng = check_rng_new(check_seed(7));
    ggml_backend_sched_t sched = ggml_backend_sched_new(n->backends + 3 - n_backends, NULL, n_backends, 512, parallel, true);
    assert_non_null(sched);
    graphs_make(n, n_backends);
    size_t warm = 0, most = 0;
    for (int i = 0; i < N_WARM + check_cases(N_ROUNDS); i++) {
        step(sched, &rng);
        const size_t size = bytes_in_use();
        most = size > most ? size : most;
        if (i == N_WARM) {
            warm = most;
        }
    }
    print_message("at most %zu bytes in the first %d rounds, %zu in all rounds\n", warm, N_WARM, most);
    assert_in_range(most, 0, warm + SLACK);
    ggml_backend_sched_free(sched);
    graphs_free();
}

static void one_backend_stays_flat(void **state) {
    stays_flat(*state, 1, false);
}

static void three_backends_stay_flat(void **state) {
    stays_flat(*state, 3, false);
}

static void graphs_in_flight_stay_flat(void **state) {
    stays_flat(*state, 3, true);
}

// After two large graphs, reserving smaller graphs must not increase the memory much.
static void small_reserves_after_large_graphs(void **state) {
    struct net *n = *state;
    ggml_backend_sched_t sched = ggml_backend_sched_new(n->backends, NULL, 3, 512, false, true);
    for (int i = 0; i < N_GRAPHS; i++) {
        graph_make(n, i, i < 2 ? 100 + i : 2 * i, 3);
    }
    assert_true(ggml_backend_sched_alloc_graph(sched, graphs[0]));
    ggml_backend_sched_reset(sched);
    assert_true(ggml_backend_sched_alloc_graph(sched, graphs[1]));
    ggml_backend_sched_reset(sched);
    const size_t before = bytes_in_use();
    for (int i = 0; i < 40; i++) {
        assert_true(ggml_backend_sched_reserve(sched, graphs[2 + i % (N_GRAPHS - 2)]));
    }
    assert_in_range(bytes_in_use(), 0, before + (1 << 20));
    ggml_backend_sched_free(sched);
    graphs_free();
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        NET_TEST(small_reserves_after_large_graphs),
        NET_TEST(one_backend_stays_flat),
        NET_TEST(three_backends_stay_flat),
        NET_TEST(graphs_in_flight_stay_flat),
    };
    return cmocka_run_group_tests_name("prop_sched_memory", tests, NULL, NULL);
}
