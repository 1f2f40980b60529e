// SPDX-License-Identifier: MIT
// test_sched_oracle.c: compares the eval callback with the reference's: the nodes for which it is called, the nodes that are
// computed before a result is shown, and the effect of returning false. It also compares whether many inputs end a split, and which
// device runs an op that reads a weight or a view of a weight. Both schedulers get the same graph over devices (device_plain.h)
// that only record the nodes that they compute. It is skipped with a message without the reference's libraries or under a
// sanitizer.

#include "support/check.h"
#include "support/device_plain.h"
#include "support/oracle.h"

#include "core/graph.h"
#include "ggml-backend-impl.h"
#include "ggml-backend.h"

enum { N_DEVICES = 2, N_NODES = 12 };

#define FUNCTIONS(X) \
    X(ggml_init) \
    X(ggml_free) \
    X(ggml_new_tensor_1d) \
    X(ggml_view_1d) \
    X(ggml_view_tensor) \
    X(ggml_scale) \
    X(ggml_add) \
    X(ggml_set_name) \
    X(ggml_set_input) \
    X(ggml_set_output) \
    X(ggml_new_graph) \
    X(ggml_build_forward_expand) \
    X(ggml_backend_buffer_init) \
    X(ggml_backend_buffer_free) \
    X(ggml_backend_buffer_get_base) \
    X(ggml_backend_buffer_set_usage) \
    X(ggml_backend_buft_alloc_buffer) \
    X(ggml_backend_tensor_alloc) \
    X(ggml_backend_view_init) \
    X(ggml_backend_sched_new) \
    X(ggml_backend_sched_free) \
    X(ggml_backend_sched_alloc_graph) \
    X(ggml_backend_sched_set_tensor_backend) \
    X(ggml_backend_sched_get_tensor_backend) \
    X(ggml_backend_sched_set_eval_callback) \
    X(ggml_backend_sched_graph_compute) \
    X(ggml_backend_sched_get_n_splits)

struct side {
#define X(f) __typeof__(f) *f;
    FUNCTIONS(X)
#undef X
    struct plain_device devices[N_DEVICES];
    char story[4096];  // the events in order. ?name: the callback was asked about the node; name: computed; !name: shown
    unsigned selected; // bit i: the callback answers the i-th question with true
    int stop_at;       // the callback returns false for the n-th shown node; 0: for none
    int n_asked, n_shown;
};

static struct side own, reference;

static void note(struct side *s, const char *mark, const char *name) {
    const size_t n = strlen(s->story);
    snprintf(s->story + n, sizeof s->story - n, "%s%s ", mark, name);
}

// ---- run ----

static enum ggml_status on_compute(void *user, struct ggml_cgraph *graph) {
    for (int i = 0; i < graph->n_nodes; i++) {
        note(user, "", graph->nodes[i]->name);
    }
    return GGML_STATUS_SUCCESS;
}

static ggml_backend_t device_open(struct side *s, int d) {
    plain_device_init(&s->devices[d], s->ggml_backend_buffer_init, d == N_DEVICES - 1);
    s->devices[d].compute = on_compute;
    s->devices[d].user = s;
    return &s->devices[d].backend;
}

static bool on_eval(struct ggml_tensor *t, bool ask, void *user) {
    struct side *s = user;
    note(s, ask ? "?" : "!", t->name);
    return ask ? (s->selected >> s->n_asked++ & 1) != 0 : ++s->n_shown != s->stop_at;
}

// Computes a chain of nodes, one of which is a view. `places` has one digit per node: the index of its device.
static void run(struct side *s, const char *places, unsigned selected, int stop_at, int n_splits) {
    ggml_backend_t backends[N_DEVICES];
    s->story[0] = '\0';
    s->selected = selected;
    s->stop_at = stop_at;
    s->n_asked = s->n_shown = 0;
    for (int d = 0; d < N_DEVICES; d++) {
        backends[d] = device_open(s, d);
    }
    struct ggml_context *ctx = s->ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_cgraph *graph = s->ggml_new_graph(ctx);
    ggml_backend_sched_t sched = s->ggml_backend_sched_new(backends, NULL, N_DEVICES, 64, false, false);
    struct ggml_tensor *t = s->ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 8);
    s->ggml_set_input(t);
    for (int i = 0; i < N_NODES; i++) {
        const char name[2] = {(char) ('a' + i), '\0'};
        t = i == 5 ? s->ggml_view_1d(ctx, t, 8, 0) : s->ggml_scale(ctx, t, 2.0f);
        s->ggml_set_name(t, name);
        s->ggml_backend_sched_set_tensor_backend(sched, t, backends[places[i] - '0']);
    }
    s->ggml_set_output(t);
    s->ggml_build_forward_expand(graph, t);
    s->ggml_backend_sched_set_eval_callback(sched, on_eval, s);
    assert_true(s->ggml_backend_sched_alloc_graph(sched, graph));
    assert_int_equal(s->ggml_backend_sched_get_n_splits(sched), n_splits);
    assert_int_equal(s->ggml_backend_sched_graph_compute(sched, graph), GGML_STATUS_SUCCESS);
    s->ggml_backend_sched_free(sched);
    s->ggml_free(ctx);
}

static int group_setup(void **state) {
    (void) state;
    void *base = oracle_load("libggml-base.so");
#define X(f) own.f = f;
    FUNCTIONS(X)
#undef X
    bool all = base != NULL;
#define X(f) all = all && (*(void **) &reference.f = dlsym(base, #f)) != NULL;
    FUNCTIONS(X)
#undef X
    if (!all) {
        reference.ggml_init = NULL;
    }
    return 0;
}

static void need_reference(void) {
    if (reference.ggml_init == NULL) {
        print_message("skipped: %s\n", oracle_why());
        skip();
    }
}

static void compare(const char *places, unsigned selected, int stop_at, int n_splits) {
    run(&own, places, selected, stop_at, n_splits);
    run(&reference, places, selected, stop_at, n_splits);
    assert_string_equal(own.story, reference.story);
}

// ---- tests ----

static void the_same_nodes_are_asked_for_and_shown(void **state) {
    (void) state;
    need_reference();
    struct check_rng rng = check_rng_new(check_seed(1));
    for (int i = 0; i < 200; i++) {
        const unsigned selected = (unsigned) check_rng_next(&rng);
        compare("000000000000", selected, 0, 1);
        compare("111000001111", selected, 0, 3);
        compare("010100001010", selected, 0, 9);
    }
    compare("111000001111", 0, 0, 3); // no node is selected
    compare("111000001111", ~0u, 0, 3);
}

static void false_ends_a_split_at_the_same_node(void **state) {
    (void) state;
    need_reference();
    for (int stop_at = 1; stop_at <= 6; stop_at++) {
        compare("000000000000", 0xAAA, stop_at, 1);
        compare("000000000000", ~0u, stop_at, 1);
    }
}

// The header says that false cancels the graph. The reference ends only the split, and computes the next splits from values that
// were never computed. Berth ends the graph.
static void false_ends_the_graph(void **state) {
    (void) state;
    run(&own, "111000001111", ~0u, 4, 3);
    assert_string_equal(own.story, "?a a !a ?b b !b ?c c !c ?d d !d ");
    need_reference();
    run(&reference, "111000001111", ~0u, 4, 3);
    assert_string_equal(reference.story, "?a a !a ?b b !b ?c c !c ?d d !d ?i i !i ?j j !j ?k k !k ?l l !l ");
}

// Returns the number of splits of a graph with n_inputs inputs. The reference once ended a split after 30 inputs.
static int splits_of(struct side *s, int n_inputs) {
    ggml_backend_t backends[N_DEVICES];
    for (int d = 0; d < N_DEVICES; d++) {
        backends[d] = device_open(s, d);
    }
    struct ggml_context *ctx = s->ggml_init((struct ggml_init_params){.mem_size = 4 << 20, .no_alloc = true});
    struct ggml_cgraph *graph = s->ggml_new_graph(ctx);
    ggml_backend_sched_t sched = s->ggml_backend_sched_new(backends, NULL, N_DEVICES, 2048, false, false);
    struct ggml_tensor *sum = NULL;
    for (int i = 0; i < n_inputs; i++) {
        struct ggml_tensor *x = s->ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 8);
        s->ggml_set_input(x);
        sum = sum == NULL ? x : s->ggml_add(ctx, sum, x);
        if (sum != x) {
            s->ggml_backend_sched_set_tensor_backend(sched, sum, backends[0]);
        }
    }
    s->ggml_set_output(sum);
    s->ggml_build_forward_expand(graph, sum);
    assert_true(s->ggml_backend_sched_alloc_graph(sched, graph));
    const int n = s->ggml_backend_sched_get_n_splits(sched);
    s->ggml_backend_sched_free(sched);
    s->ggml_free(ctx);
    return n;
}

// A split does not end because of many inputs.
static void inputs_end_no_split(void **state) {
    (void) state;
    for (int n_inputs = 29; n_inputs < 300; n_inputs *= 2) {
        assert_int_equal(splits_of(&own, n_inputs), 1);
    }
    need_reference();
    for (int n_inputs = 29; n_inputs < 300; n_inputs *= 2) {
        assert_int_equal(splits_of(&reference, n_inputs), 1);
    }
}

// Between two ops of the first device, an op reads weight memory of the second device. The test finds which device runs that op.
// A_TENSOR_OF_IT is a ggml_view_tensor of the weight, A_VIEW_OF_IT a ggml_view_1d without an address.
enum reads { A_WEIGHT, A_TENSOR_OF_IT, A_VIEW_OF_IT, A_VIEW_WITH_AN_ADDRESS, N_READS };

static int device_of_reader(struct side *s, enum reads reads) {
    ggml_backend_t backends[N_DEVICES];
    for (int d = 0; d < N_DEVICES; d++) {
        backends[d] = device_open(s, d);
    }
    struct ggml_context *ctx = s->ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_cgraph *graph = s->ggml_new_graph(ctx);
    struct ggml_tensor *x = s->ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 8), *w = s->ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 8);
    ggml_backend_buffer_t buffer = s->ggml_backend_buft_alloc_buffer(&s->devices[1].buft, 256);
    s->ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    assert_int_equal(s->ggml_backend_tensor_alloc(buffer, w, s->ggml_backend_buffer_get_base(buffer)), GGML_STATUS_SUCCESS);
    if (reads == A_TENSOR_OF_IT) {
        w = s->ggml_view_tensor(ctx, w);
        assert_int_equal(s->ggml_backend_view_init(w), GGML_STATUS_SUCCESS);
    }
    s->ggml_set_input(x);
    ggml_backend_sched_t sched = s->ggml_backend_sched_new(backends, NULL, N_DEVICES, 64, false, false);
    struct ggml_tensor *before = s->ggml_scale(ctx, x, 2.0f);
    if (reads >= A_VIEW_OF_IT) {
        w = s->ggml_view_1d(ctx, w, 8, 0);
        assert_true(reads == A_VIEW_OF_IT || s->ggml_backend_view_init(w) == GGML_STATUS_SUCCESS);
    }
    struct ggml_tensor *reader = s->ggml_add(ctx, before, w);
    struct ggml_tensor *after = s->ggml_scale(ctx, reader, 2.0f);
    s->ggml_backend_sched_set_tensor_backend(sched, before, backends[0]);
    s->ggml_backend_sched_set_tensor_backend(sched, after, backends[0]);
    s->ggml_set_output(after);
    s->ggml_build_forward_expand(graph, after);
    assert_true(s->ggml_backend_sched_alloc_graph(sched, graph));
    const int device = s->ggml_backend_sched_get_tensor_backend(sched, reader) == backends[1];
    s->ggml_backend_sched_free(sched);
    s->ggml_backend_buffer_free(buffer);
    s->ggml_free(ctx);
    return device;
}

// In the reference, a view of a weight attracts an op once the view has an address, so a repeated graph may be placed differently.
static void a_weight_attracts_ops_and_a_view_of_it_does_not(void **state) {
    (void) state;
    const int devices[N_READS] = {[A_WEIGHT] = 1, [A_TENSOR_OF_IT] = 1, [A_VIEW_OF_IT] = 0, [A_VIEW_WITH_AN_ADDRESS] = 0};
    for (int reads = 0; reads < N_READS; reads++) {
        assert_int_equal(device_of_reader(&own, (enum reads) reads), devices[reads]);
    }
    need_reference();
    for (int reads = 0; reads < N_READS; reads++) {
        const int expected = reads == A_VIEW_WITH_AN_ADDRESS ? 1 : devices[reads];
        assert_int_equal(device_of_reader(&reference, (enum reads) reads), expected);
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_nodes_are_asked_for_and_shown),
        cmocka_unit_test(false_ends_a_split_at_the_same_node),
        cmocka_unit_test(false_ends_the_graph),
        cmocka_unit_test(inputs_end_no_split),
        cmocka_unit_test(a_weight_attracts_ops_and_a_view_of_it_does_not),
    };
    return cmocka_run_group_tests_name("sched_oracle", tests, group_setup, NULL);
}
