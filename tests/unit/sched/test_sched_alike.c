// SPDX-License-Identifier: MIT
// test_sched_alike.c: placement of ops among backends that share memory, as a matrix product library shares the CPU's memory; the
// backend of an op whose result already has memory; the weight that decides if the owner of the largest weight cannot run the op.

#include "support/device_net.h"

// The first device uses the CPU's memory.
static void share_memory(struct net *n) {
    ggml_backend_buffer_type_t host = ggml_backend_get_default_buffer_type(n->cpu);
    ggml_backend_buffer_type_t bufts[] = {host, &n->dev[1].buft, host};
    n->dev[0].reads_host = true;
    ggml_backend_sched_free(n->sched);
    n->sched = ggml_backend_sched_new(n->backends, bufts, 3, 64, false, true);
    assert_non_null(n->sched);
}

static void compute(struct net *n, struct ggml_tensor *x, float value) {
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    fill(x, value);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
}

// The first device cannot run one op. The next op is on the first device again. No copy is needed, because the first device uses
// the CPU's memory.
static void ops_return_to_the_first_of_their_memory(void **state) {
    struct net *n = *state;
    n->dev[0].supports = no_tanh;
    share_memory(n);
    struct ggml_tensor *x = input(n, 2), *a = named(ggml_tanh(n->ctx, x), "a"), *b = named(ggml_scale(n->ctx, a, 2.0f), "b");
    split(n, b);
    assert_on(n, a, 2, BERTH_SCHED_FALLBACK_OP);
    assert_ptr_equal(ggml_backend_sched_get_tensor_backend(n->sched, b), n->backends[0]);
    assert_int_equal(ggml_backend_sched_get_n_copies(n->sched), 1);
    compute(n, x, 0.0f);
    assert_true(first_of(b) == 0.0f);
    assert_int_equal(n->dev[0].n_computes, 1);
}

// The CPU owns the weight, so op a runs on the CPU. Op b would follow a to the CPU, but the first device uses the same memory and
// supports b, so b runs on the first device.
static void neighbours_return_to_the_first_of_their_memory(void **state) {
    struct net *n = *state;
    n->dev[0].supports = no_tanh;
    share_memory(n);
    struct ggml_tensor *a = named(ggml_tanh(n->ctx, n->w[2]), "a"), *b = named(ggml_scale(n->ctx, a, 2.0f), "b");
    split(n, b);
    assert_on(n, a, 2, BERTH_SCHED_WEIGHT);
    assert_on(n, b, 0, BERTH_SCHED_EXPANSION);
    assert_int_equal(berth_sched_split(n->sched, n->graph), GGML_STATUS_SUCCESS);
}

static void the_caller_s_choice_stays(void **state) {
    struct net *n = *state;
    share_memory(n);
    struct ggml_tensor *b = named(ggml_scale(n->ctx, input(n, 2), 2.0f), "b");
    ggml_backend_sched_set_tensor_backend(n->sched, b, n->cpu);
    split(n, b);
    assert_on(n, b, 2, BERTH_SCHED_CALLER);
}

// ---- memory that is already placed ----

static bool no_copies(const struct device *dev, const struct ggml_tensor *op) {
    (void) dev;
    return op->op != GGML_OP_CPY;
}

// Only the owner of the memory writes into it. The split fails if the caller chooses another backend, or if the owner does not
// support the op.
static void only_its_owner_writes_into_memory(void **state) {
    struct net *n = *state;
    struct ggml_tensor *copy = named(ggml_cpy(n->ctx, input(n, N), n->w[0]), "copy");
    ggml_build_forward_expand(n->graph, copy);
    ggml_backend_sched_set_tensor_backend(n->sched, copy, n->cpu);
    assert_int_equal(berth_sched_split(n->sched, n->graph), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "copy (CPY) writes into memory of type first"));
    assert_non_null(strstr(berth_last_error(), "which the backend chosen for it cannot use"));
    ggml_backend_sched_reset(n->sched);
    n->dev[0].supports = no_copies;
    assert_int_equal(berth_sched_split(n->sched, n->graph), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "which no backend can use"));
    n->dev[0].supports = NULL;
    assert_int_equal(berth_sched_split(n->sched, n->graph), GGML_STATUS_SUCCESS);
    assert_on(n, copy, 0, BERTH_SCHED_PLACED);
}

// ---- weights ----

static bool no_sums(const struct device *dev, const struct ggml_tensor *op) {
    (void) dev;
    return op->op != GGML_OP_ADD;
}

// The owner of the largest weight cannot add, so the owner of the other weight adds. If neither can, the CPU adds, and the backend
// that refused is reported.
static void the_next_weight_is_followed(void **state) {
    struct net *n = *state;
    n->dev[0].supports = no_sums;
    struct ggml_tensor *bias = weight_of(n, 1, N, 1, 1), *sum = named(ggml_add(n->ctx, n->w[0], bias), "sum");
    split(n, sum);
    assert_on(n, sum, 1, BERTH_SCHED_WEIGHT);
    ggml_backend_sched_free(n->sched);
    n->dev[1].supports = no_sums;
    n->sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, false, true);
    assert_int_equal(berth_sched_split(n->sched, n->graph), GGML_STATUS_SUCCESS);
    assert_on(n, sum, 2, BERTH_SCHED_FALLBACK_OP);
}

// The frequency factors of RoPE are a weight, but a small one. RoPE runs where its data is.
static void frequency_factors_are_not_followed(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = ggml_reshape_3d(n->ctx, ggml_mul_mat(n->ctx, n->w[0], input(n, 2)), N, 1, 2);
    struct ggml_tensor *at = ggml_new_tensor_1d(n->ctx, GGML_TYPE_I32, 2), *factors = weight_of(n, 1, N / 2, 1, 1);
    ggml_set_input(at);
    struct ggml_tensor *rope = ggml_rope_ext(n->ctx, x, at, factors, N, GGML_ROPE_TYPE_NEOX, 0, 1e4f, 1, 0, 1, 32, 1);
    split(n, rope);
    assert_ptr_equal(ggml_backend_sched_get_tensor_backend(n->sched, rope), n->backends[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        NET_TEST(ops_return_to_the_first_of_their_memory),
        NET_TEST(neighbours_return_to_the_first_of_their_memory),
        NET_TEST(the_caller_s_choice_stays),
        NET_TEST(only_its_owner_writes_into_memory),
        NET_TEST(the_next_weight_is_followed),
        NET_TEST(frequency_factors_are_not_followed),
    };
    return cmocka_run_group_tests_name("sched_alike", tests, NULL, NULL);
}
