// SPDX-License-Identifier: MIT
// test_alloc_late.c: late leafs, which a node overwrites before any node reads them, share memory with each other and with nothing
// else that the host may write. Leafs that are overwritten in part, or read before, have separate memory.

#include "support/cpu.h"

#include "core/graph.h"
#include "ggml-alloc.h"

enum { N = 64, N_COPIES = 32 };
#define SIZE (N * sizeof(float))

struct copies {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *x, *leafs[N_COPIES], *copies[N_COPIES], *y;
};

// Copies x to a leaf, that leaf to the next leaf, and so on. y is the last copy.
static struct copies copies_new(void) {
    struct copies k = {.ctx = ggml_init((struct ggml_init_params){.mem_size = 256 * 1024, .no_alloc = true})};
    k.graph = ggml_new_graph_custom(k.ctx, 128, false);
    k.x = k.y = ggml_set_name(ggml_new_tensor_1d(k.ctx, GGML_TYPE_F32, N), "x");
    for (int i = 0; i < N_COPIES; i++) {
        k.leafs[i] = ggml_format_name(ggml_new_tensor_1d(k.ctx, GGML_TYPE_F32, N), "leaf %d", i);
        k.copies[i] = k.y = ggml_cpy(k.ctx, k.y, k.leafs[i]);
    }
    ggml_build_forward_expand(k.graph, k.y);
    return k;
}

static void set(struct ggml_tensor *t, float value) {
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        ((float *) t->data)[i] = value;
    }
}

static void compute(ggml_gallocr_t galloc, struct ggml_cgraph *graph) {
    if (!berth_gallocr_verify(galloc, graph) ||
        berth_gallocr_compute_checked(galloc, graph, cpu, ggml_backend_graph_compute) != GGML_STATUS_SUCCESS) {
        fail_msg("%s", berth_last_error());
    }
}

static float first_of(const struct ggml_tensor *t) {
    return ((const float *) t->data)[0];
}

// ---- late leafs ----

// The host may write all leafs in any order. Nodes still read the correct values, although leafs share memory.
static void copies_share_memory(void **state) {
    (void) state;
    struct copies k = copies_new();
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    assert_true(ggml_gallocr_reserve(galloc, k.graph));
    assert_int_equal(ggml_gallocr_get_buffer_size(galloc, 0), 3 * SIZE); // x, and two items that alternate
    for (int t = 0; t < 3; t++) {
        assert_true(ggml_gallocr_alloc_graph(galloc, k.graph));
        set(k.x, (float) (t + 1));
        for (int i = 0; i < N_COPIES; i++) {
            set(k.leafs[i], -1);
        }
        compute(galloc, k.graph);
        assert_float_equal(first_of(k.y), t + 1, 0);
    }
    ggml_gallocr_free(galloc);
    ggml_free(k.ctx);
}

// A leaf that is listed twice has one address and can still share it.
static void leaf_is_listed_twice(void **state) {
    (void) state;
    struct copies k = copies_new();
    k.graph->leafs[k.graph->n_leafs++] = k.leafs[3];
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    assert_true(ggml_gallocr_alloc_graph(galloc, k.graph));
    assert_int_equal(ggml_gallocr_get_buffer_size(galloc, 0), 3 * SIZE);
    set(k.x, 5);
    compute(galloc, k.graph);
    assert_float_equal(first_of(k.y), 5, 0);
    ggml_gallocr_free(galloc);
    ggml_free(k.ctx);
}

// Half of the leafs are read at the end and keep their memory until then.
static void leafs_that_live_on(void **state) {
    (void) state;
    struct copies k = copies_new();
    struct ggml_tensor *y = k.y;
    for (int i = 0; i < N_COPIES; i += 2) {
        y = ggml_add(k.ctx, y, k.leafs[i]);
    }
    ggml_build_forward_expand(k.graph, y);
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    assert_true(ggml_gallocr_alloc_graph(galloc, k.graph));
    assert_in_range(ggml_gallocr_get_buffer_size(galloc, 0), (N_COPIES / 2 + 1) * SIZE, (N_COPIES / 2 + 4) * SIZE);
    set(k.x, 1);
    compute(galloc, k.graph);
    assert_float_equal(first_of(y), N_COPIES / 2 + 1, 0);
    ggml_gallocr_free(galloc);
    ggml_free(k.ctx);
}

// There are more leafs than the allocator searches (WINDOW in late.c), and all are alive until the end.
static void many_leafs(void **state) {
    (void) state;
    enum { MANY = 1000 };
    struct ggml_context *ctx =
        ggml_init((struct ggml_init_params){.mem_size = 4 * MANY * ggml_tensor_overhead() + 1024 * 1024, .no_alloc = true});
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 4 * MANY, false);
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N), *y = NULL, *copies[MANY];
    for (int i = 0; i < MANY; i++) {
        copies[i] = ggml_cpy(ctx, x, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N));
        ggml_build_forward_expand(graph, copies[i]);
    }
    for (int i = 0; i < MANY; i++) {
        y = y != NULL ? ggml_add(ctx, y, copies[i]) : copies[i];
    }
    ggml_build_forward_expand(graph, y);
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    assert_true(berth_gallocr_verify(galloc, graph));
    set(x, 1);
    assert_int_equal(ggml_backend_graph_compute(cpu, graph), GGML_STATUS_SUCCESS);
    assert_float_equal(first_of(y), MANY, 0);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
}

// ---- leafs that are not late ----

// Leaf b and the copy into it. WHOLE: the copy overwrites b completely, so b is a late leaf. In all other cases b is not a late
// leaf. PART, WITH_GAPS: the copy overwrites two of four elements. READ_BEFORE: a node reads b before the copy. INPUT: b is an
// input. NOT_COMPUTED: the copy has no COMPUTE flag.
enum how { WHOLE, PART, WITH_GAPS, READ_BEFORE, INPUT, NOT_COMPUTED, N_HOW };

// Leaf a is dead before leaf b is written. Returns true if a and b share memory.
static bool do_share(enum how how) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 64 * 1024, .no_alloc = true});
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 32, false);
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4), *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    struct ggml_tensor *b = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4), *from = x, *to = b, *before = NULL;
    struct ggml_tensor *sum = ggml_sum(ctx, ggml_cpy(ctx, x, a));
    if (how == PART) {
        from = ggml_view_1d(ctx, x, 2, 0);
        to = ggml_view_1d(ctx, b, 2, 0);
    } else if (how == WITH_GAPS) { // spans all bytes, but writes only two of four elements
        from = ggml_reshape_3d(ctx, x, 1, 2, 2);
        to = ggml_view_3d(ctx, b, 1, 2, 2, 3 * sizeof(float), 0, 0);
    } else if (how == READ_BEFORE) {
        before = ggml_sum(ctx, b);
        ggml_build_forward_expand(graph, before);
    } else if (how == INPUT) {
        ggml_set_input(b);
    }
    ggml_build_forward_expand(graph, sum);
    struct ggml_tensor *copy = ggml_cpy(ctx, from, to);
    ggml_build_forward_expand(graph, copy);
    struct ggml_tensor *y = ggml_sum(ctx, b);
    ggml_build_forward_expand(graph, y);
    if (how == NOT_COMPUTED) {
        copy->flags &= ~GGML_TENSOR_FLAG_COMPUTE;
    }
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    assert_true(ggml_gallocr_alloc_graph(galloc, graph));
    const bool is_shared = a->data == b->data;
    set(x, 1);
    set(b, 10); // after x: if b shared memory with x, this would overwrite x
    assert_true(berth_gallocr_verify(galloc, graph));
    assert_int_equal(ggml_backend_graph_compute(cpu, graph), GGML_STATUS_SUCCESS);
    const float answers[] = {[WHOLE] = 4, [PART] = 22, [WITH_GAPS] = 22, [READ_BEFORE] = 4, [INPUT] = 4, [NOT_COMPUTED] = 40};
    assert_float_equal(first_of(y), answers[how], 0);
    assert_float_equal(first_of(sum), 4, 0);
    assert_true(before == NULL || first_of(before) == 40);
    ggml_gallocr_free(galloc);
    ggml_free(ctx);
    return is_shared;
}

static void only_whole_copies_share(void **state) {
    (void) state;
    for (int how = WHOLE; how < N_HOW; how++) {
        assert_int_equal(do_share((enum how) how), how == WHOLE);
    }
}

// The nodes that overwrite the leafs are part of the plan: if one of them does not run, the graph needs another plan.
static void plan_is_not_for_a_graph_that_skips_the_copy(void **state) {
    (void) state;
    struct copies k = copies_new();
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    assert_true(ggml_gallocr_alloc_graph(galloc, k.graph));
    set(k.x, 1);
    compute(galloc, k.graph);
    assert_float_equal(first_of(k.y), 1, 0);
    k.copies[5]->flags &= ~GGML_TENSOR_FLAG_COMPUTE; // now the host's bytes are read
    assert_true(ggml_gallocr_alloc_graph(galloc, k.graph));
    set(k.leafs[5], 7);
    set(k.leafs[3], 8);
    set(k.x, 1);
    compute(galloc, k.graph);
    assert_float_equal(first_of(k.y), 7, 0);
    ggml_gallocr_free(galloc);
    ggml_free(k.ctx);
}

// ---- plans with late leafs: saved plans, failing allocations ----

static void plan_is_saved_and_loaded(void **state) {
    (void) state;
    struct copies k = copies_new();
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    char *text = NULL, name[32];
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    struct berth_plan_set *set;
    assert_true(ggml_gallocr_reserve(galloc, k.graph));
    assert_int_equal(berth_gallocr_save(galloc, k.graph, file), GGML_STATUS_SUCCESS);
    fclose(file);
    for (int i = 0; i < N_COPIES; i++) {
        snprintf(name, sizeof name, "{\"name\": \"leaf %d\"", i);
        assert_non_null(strstr(text, name));
    }
    assert_int_equal(berth_plan_read_json(text, size, "saved", &set), GGML_STATUS_SUCCESS);
    assert_int_equal(set->n_items, 3);
    assert_int_equal(berth_gallocr_load(galloc, k.graph, NULL, NULL, set), GGML_STATUS_SUCCESS);
    assert_true(ggml_gallocr_alloc_graph(galloc, k.graph));
    struct berth_gallocr_live live[4];
    assert_int_equal(berth_gallocr_live(galloc, k.graph, 0, 9, live, 4), 2); // between two copies
    bool is_there = false;
    for (int i = 0; i < 2; i++) {
        is_there = is_there || live[i].tensor == k.leafs[9];
    }
    assert_true(is_there);
    berth_plan_set_free(set);
    free(text);
    ggml_gallocr_free(galloc);
    ggml_free(k.ctx);
}

static void each_allocation_fails(void **state) {
    (void) state;
    struct copies k = copies_new();
    int n_refused = 0;
    for (int64_t n = 0, n_made = 0; n <= n_made; n++) { // n = 0: no allocation fails
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
        const bool ok = galloc != NULL && ggml_gallocr_reserve(galloc, k.graph);
        ggml_gallocr_free(galloc);
        berth_alloc_fail_at(0);
        n_made = n == 0 ? berth_alloc_made() : n_made;
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
        n_refused += !ok;
        assert_true(ok || n > 0);
    }
    assert_true(n_refused > 5);
    ggml_free(k.ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_share_memory),
        cmocka_unit_test(leaf_is_listed_twice),
        cmocka_unit_test(leafs_that_live_on),
        cmocka_unit_test(many_leafs),
        cmocka_unit_test(only_whole_copies_share),
        cmocka_unit_test(plan_is_not_for_a_graph_that_skips_the_copy),
        cmocka_unit_test(plan_is_saved_and_loaded),
        cmocka_unit_test(each_allocation_fails),
    };
    return cmocka_run_group_tests_name("late leafs", tests, cpu_open, cpu_close);
}
