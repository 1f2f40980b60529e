// SPDX-License-Identifier: MIT
// prop_graph.c: random graphs keep the invariants: sources come before their users, no tensor occurs twice, no source is missing,
// use counts are correct. A deep graph needs little stack. If a graph is too small, building fails with a message. BERTH_SEED=N
// repeats a run.
#include "support/check.h"

#include "core/graph.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define N_CASES check_cases(400)
#define MAX_TENSORS 2000

static uint64_t seed;
static struct check_rng rng;

static int below(int n) {
    return (int) check_rng_below(&rng, (uint64_t) n);
}

static struct ggml_context *new_context(size_t n_tensors, size_t graph_size) {
    return ggml_init((struct ggml_init_params){
        n_tensors * ggml_tensor_overhead() + 4 * ggml_graph_overhead_custom(graph_size, false) + 1024, NULL, true});
}

// ---- random nets ----

struct net {
    struct ggml_tensor *tensors[MAX_TENSORS];
    int n;
};

static struct ggml_tensor *pick_recent(const struct net *net) {
    const int back = below(4) > 0 ? below(net->n < 6 ? net->n : 6) : below(net->n);
    return net->tensors[net->n - 1 - back];
}

static void no_work(struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b,
    const struct ggml_tensor *c, int ith, int nth, void *user) {
    (void) dst, (void) a, (void) b, (void) c, (void) ith, (void) nth, (void) user;
}

static struct ggml_tensor *random_op(struct ggml_context *ctx, const struct net *net) {
    struct ggml_tensor *a = pick_recent(net);
    switch (below(9)) {
        case 0: return ggml_add(ctx, a, pick_recent(net));
        case 1: return ggml_mul(ctx, a, pick_recent(net));
        case 2: return ggml_mul_mat(ctx, a, pick_recent(net));
        case 3: return ggml_silu(ctx, a);
        case 4: return ggml_reshape_2d(ctx, a, 8, 8);
        case 5: return ggml_view_tensor(ctx, a);
        case 6: return ggml_cpy(ctx, a, pick_recent(net));
        case 7: return ggml_add_inplace(ctx, a, pick_recent(net));
        default: return ggml_map_custom3(ctx, a, pick_recent(net), pick_recent(net), no_work, 1, NULL);
    }
}

static void random_net(struct ggml_context *ctx, struct net *net, int n) {
    net->n = 0;
    while (net->n < n) {
        struct ggml_tensor *t;
        if (net->n == 0 || below(6) == 0) {
            t = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8, 8);
            if (below(3) == 0) {
                ggml_set_param(t);
            }
        } else {
            t = random_op(ctx, net);
        }
        net->tensors[net->n++] = t;
    }
}

// ---- the invariants ----

static size_t slot_of(const struct ggml_cgraph *g, const struct ggml_tensor *t) {
    const size_t slot = berth_hash_find(&g->visited_hash_set, t);
    return slot != BERTH_HASH_NONE && berth_bit_get(g->visited_hash_set.used, slot) ? slot : BERTH_HASH_NONE;
}

// seen, uses: indexed by slot of the graph's hash set.
static void check_member(const struct ggml_cgraph *g, const struct ggml_tensor *t, bool *seen, int32_t *uses) {
    const size_t slot = slot_of(g, t);
    assert_int_not_equal(slot, BERTH_HASH_NONE);
    assert_false(seen[slot]);
    seen[slot] = true;
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (t->src[i] != NULL) {
            const size_t src = slot_of(g, t->src[i]);
            assert_int_not_equal(src, BERTH_HASH_NONE);
            assert_true(seen[src]);
            uses[src]++;
        }
    }
}

static bool is_leaf(const struct ggml_tensor *t) {
    return t->op == GGML_OP_NONE && (t->flags & GGML_TENSOR_FLAG_PARAM) == 0;
}

static void check_graph(const struct ggml_cgraph *g) {
    const size_t n = g->visited_hash_set.size;
    bool *seen = calloc(n, sizeof(*seen));
    int32_t *uses = calloc(n, sizeof(*uses));
    assert_non_null(seen);
    assert_non_null(uses);
    assert_true(g->n_nodes <= g->size && g->n_leafs <= g->size);
    for (int i = 0; i < g->n_leafs; i++) {
        assert_true(is_leaf(g->leafs[i]));
        check_member(g, g->leafs[i], seen, uses);
    }
    for (int i = 0; i < g->n_nodes; i++) {
        assert_false(is_leaf(g->nodes[i]));
        check_member(g, g->nodes[i], seen, uses);
    }
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(berth_bit_get(g->visited_hash_set.used, i), seen[i]);
        if (seen[i]) {
            assert_int_equal(g->use_counts[i], uses[i]);
        }
    }
    free(seen);
    free(uses);
}

static void random_graphs_keep_the_invariants(void **unused) {
    (void) unused;
    static struct net net;
    for (int c = 0; c < N_CASES; c++) {
        rng = check_rng_new(seed + (uint64_t) c);
        const int n = 1 + below(c % 20 == 0 ? MAX_TENSORS : 60);
        struct ggml_context *ctx = new_context((size_t) n, (size_t) n);
        assert_non_null(ctx);
        random_net(ctx, &net, n);
        struct ggml_cgraph *g = ggml_new_graph_custom(ctx, (size_t) n, false);
        for (int k = 1 + below(5); k > 0; k--) {
            struct ggml_tensor *root = net.tensors[below(n)];
            ggml_build_forward_expand(g, root);
            assert_int_not_equal(slot_of(g, root), BERTH_HASH_NONE);
            check_graph(g);
            const int n_nodes = g->n_nodes, n_leafs = g->n_leafs;
            ggml_build_forward_expand(g, root); // a second call adds nothing
            assert_int_equal(g->n_nodes, n_nodes);
            assert_int_equal(g->n_leafs, n_leafs);
        }
        assert_int_equal(berth_graph_check(g), GGML_STATUS_SUCCESS);
        struct ggml_cgraph *copy = ggml_graph_dup(ctx, g, false);
        assert_non_null(copy);
        check_graph(copy);
        assert_int_equal(copy->n_nodes, g->n_nodes);
        assert_memory_equal(copy->nodes, g->nodes, (size_t) g->n_nodes * sizeof(*g->nodes));
        ggml_free(ctx);
    }
}

// ---- full graphs ----

static void full_graphs_fail_with_a_message(void **unused) {
    (void) unused;
    static struct net net;
    for (int c = 0; c < N_CASES; c++) {
        rng = check_rng_new(seed + (uint64_t) c);
        const int n = 2 + below(80);
        struct ggml_context *ctx = new_context((size_t) n, (size_t) n);
        assert_non_null(ctx);
        random_net(ctx, &net, n);
        struct ggml_cgraph *g = ggml_new_graph_custom(ctx, (size_t) n, false);
        for (int i = 0; i < n; i++) {
            ggml_build_forward_expand(g, net.tensors[i]);
        }
        assert_int_equal(berth_graph_check(g), GGML_STATUS_SUCCESS);
        const int need = g->n_nodes > g->n_leafs ? g->n_nodes : g->n_leafs;
        const int size = 1 + below(need);
        struct ggml_cgraph *narrow = ggml_new_graph_custom(ctx, (size_t) size, false);
        assert_non_null(narrow);
        berth_clear_error();
        for (int i = 0; i < n; i++) {
            ggml_build_forward_expand(narrow, net.tensors[i]);
            assert_true(narrow->n_nodes <= narrow->size && narrow->n_leafs <= narrow->size);
        }
        if (size < need) {
            assert_int_equal(berth_graph_check(narrow), GGML_STATUS_FAILED);
            assert_true(strlen(berth_last_error()) > 0);
        } else {
            assert_int_equal(berth_graph_check(narrow), GGML_STATUS_SUCCESS);
            check_graph(narrow);
        }
        ggml_graph_clear(narrow); // a cleared graph is valid
        assert_int_equal(berth_graph_check(narrow), GGML_STATUS_SUCCESS);
        ggml_free(ctx);
    }
}

// ---- depth ----

#define CHAIN 1000000
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define STACK_SIZE ((size_t) 1 << 20) // sanitizers use larger stack frames; a million nested calls would still not fit
#else
#    define STACK_SIZE ((size_t) 64 << 10)
#endif

static void *build_chain(void *result) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){
        (CHAIN + 1) * ggml_tensor_overhead() + ggml_graph_overhead_custom(CHAIN + 1, false) + 1024, NULL, true});
    if (ctx == NULL) {
        return NULL;
    }
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    for (int i = 0; i < CHAIN; i++) {
        t = ggml_sqr(ctx, t);
    }
    struct ggml_cgraph *g = ggml_new_graph_custom(ctx, CHAIN + 1, false);
    ggml_build_forward_expand(g, t);
    bool ok = g != NULL && berth_graph_check(g) == GGML_STATUS_SUCCESS && g->n_nodes == CHAIN && g->n_leafs == 1;
    for (int i = 0; ok && i < CHAIN; i++) {
        ok = g->nodes[i]->src[0] == (i == 0 ? g->leafs[0] : g->nodes[i - 1]);
    }
    *(bool *) result = ok;
    ggml_free(ctx);
    return NULL;
}

static void a_chain_of_a_million_nodes_needs_no_deep_stack(void **unused) {
    (void) unused;
    const long least = sysconf(_SC_THREAD_STACK_MIN);
    const size_t size = least > 0 && (size_t) least > STACK_SIZE ? (size_t) least : STACK_SIZE;
    pthread_attr_t attr;
    pthread_t thread;
    bool ok = false;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, size), 0);
    assert_int_equal(pthread_create(&thread, &attr, build_chain, &ok), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
    assert_true(ok);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_keep_the_invariants),
        cmocka_unit_test(full_graphs_fail_with_a_message),
        cmocka_unit_test(a_chain_of_a_million_nodes_needs_no_deep_stack),
    };
    check_quiet();
    seed = check_seed((uint64_t) time(NULL));
    return cmocka_run_group_tests_name("prop_graph", tests, NULL, NULL);
}
