// SPDX-License-Identifier: MIT
// test_sched_explain.c: reports of the scheduler: explain, debug output, timeline, strict mode, memory limits, graph uids.

#include "support/device_net.h"

// ---- explain ----

static void it_explains_itself(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 2), *a = named(ggml_mul_mat(n->ctx, n->w[0], x), "a \"quoted\" \xc3\xa9\xff");
    assert_int_equal(berth_sched_explain_text(n->sched, stdout), GGML_STATUS_FAILED);
    split(n, named(ggml_mul_mat(n->ctx, n->w[1], a), "b"));
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_int_equal(berth_sched_explain_text(n->sched, file), GGML_STATUS_SUCCESS);
    fclose(file);
    assert_non_null(strstr(text, "split 0: first, 1 node, 1 input, 512 bytes\n  input x from CPU: 512 bytes\n"));
    assert_non_null(strstr(text, "b (MUL_MAT, f32 [64, 2, 1, 1]): second, weight\n"));
    free(text);
    file = open_memstream(&text, &size);
    assert_int_equal(berth_sched_explain_json(n->sched, file), GGML_STATUS_SUCCESS);
    fclose(file);
    assert_non_null(strstr(text, "\"backends\": [{\"name\": \"first\", "));
    assert_non_null(strstr(text, "{\"name\": \"a \\\"quoted\\\" \xc3\xa9\\ufffd\", \"op\": \"MUL_MAT\", \"type\": \"f32\", "
                                 "\"ne\": [64, 2, 1, 1], \"backend\": \"first\", "
                                 "\"reason\": \"weight\", \"bytes\": 512}"));
    assert_non_null(strstr(
        text, "\"inputs\": [{\"name\": \"x\", \"from\": \"CPU\", \"bytes\": 512, \"early\": false, \"resident\": false}]"));
    free(text);
}

static char *explained(struct net *n, bool json) {
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_int_equal(
        json ? berth_sched_explain_json(n->sched, file) : berth_sched_explain_text(n->sched, file), GGML_STATUS_SUCCESS);
    fclose(file);
    return text;
}

// The text says "1 copy" or "3 copies", and names the backend that refused an op.
static void it_counts_copies_and_names_refusing_backends(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 2), *a = ggml_mul_mat(n->ctx, n->w[0], x);
    split(n, a);
    char *text = explained(n, false);
    assert_non_null(strstr(text, "graph: 1 node, 1 split, 1 copy, 1 in flight\n"));
    free(text);
    n->dev[0].supports = no_tanh;
    struct ggml_tensor *more = named(input(n, 2), "more"), *b = named(ggml_tanh(n->ctx, ggml_add(n->ctx, a, more)), "b");
    split(n, b);
    text = explained(n, false);
    assert_non_null(strstr(text, "graph: 3 nodes, 2 splits, 3 copies, 1 in flight\n"));
    free(text);
    text = explained(n, true);
    assert_non_null(
        strstr(text, "\"inputs\": [{\"name\": \"x\", \"from\": \"CPU\", \"bytes\": 512, \"early\": false, \"resident\": false}, "
                     "{\"name\": \"more\", \"from\": \"CPU\", \"bytes\": 512, \"early\": false, \"resident\": false}]"));
    assert_non_null(strstr(text, "\"backend\": \"second\", \"reason\": \"fallback: op not supported\", "
                                 "\"refused_by\": \"first\", \"bytes\": 512}"));
    free(text);
    n->dev[1].supports = no_tanh; // of several backends that refuse, the first is named
    ggml_backend_sched_free(n->sched);
    n->sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, false, true);
    split(n, b);
    text = explained(n, true);
    assert_non_null(strstr(text, "\"backend\": \"CPU\", \"reason\": \"fallback: op not supported\", "
                                 "\"refused_by\": \"first\", \"bytes\": 512}"));
    free(text);
}

// The events of a timeline are between its start and its end, `us` later. Returns their number.
static int timeline_check(const char *text, double us) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, "\"ts\": ")) != NULL; at++) {
        double start, duration = 0;
        n += sscanf(at, "\"ts\": %lf, \"dur\": %lf", &start, &duration) == 2;
        assert_true(start >= 0 && duration >= 0 && start + duration <= us);
    }
    return n;
}

// A graph of views has one split, although nothing is computed.
static void it_explains_views(void **state) {
    struct net *n = *state;
    split(n, ggml_view_1d(n->ctx, n->w[0], N, 0));
    char *text = explained(n, false);
    assert_non_null(strstr(text, "split 0: first, 1 node"));
    free(text);
}

static void it_draws_a_timeline(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 2), *b = ggml_mul_mat(n->ctx, n->w[1], ggml_mul_mat(n->ctx, n->w[0], x));
    ggml_set_output(b);
    ggml_build_forward_expand(n->graph, b);
    const int64_t start_us = ggml_time_us();
    assert_int_equal(berth_sched_trace_start(n->sched), GGML_STATUS_SUCCESS);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    fill(x, 1.0f);
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_int_equal(berth_sched_trace_stop(n->sched, file), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_sched_trace_stop(n->sched, file), GGML_STATUS_FAILED);
    fclose(file);
    assert_int_equal(timeline_check(text, (double) (ggml_time_us() - start_us + 1)), 6); // two copies, splits and ops
    assert_non_null(strstr(text, "\"traceEvents\": ["));
    assert_non_null(strstr(text, "\"name\": \"copy x\", \"args\": {\"split\": 0, \"nodes\": 1, \"bytes\": 512}"));
    assert_non_null(strstr(text, "\"name\": \"split 1\""));
    // A 64 x 64 matrix and two vectors, all f32.
    assert_non_null(strstr(text, "\"op\": \"MUL_MAT\", \"device\": \"first\", \"split\": 0, \"read\": 16896, \"written\": 512, "
                                 "\"flops\": 16384, \"GB/s\": "));
    assert_non_null(strstr(text, "\"name\": \"compute memory in use, first\", \"args\": {\"bytes\": 512}"));
    assert_non_null(strstr(text, "\"name\": \"compute memory in use, second\", \"args\": {\"bytes\": 512}"));
    free(text);
}

// For tables and experts, only the selected rows count as read. For SET_ROWS, only the written rows count as written.
static void a_timeline_counts_selected_rows(void **state) {
    struct net *n = *state;
    struct ggml_tensor *x = input(n, 2);
    struct ggml_tensor *many = ggml_new_tensor_3d(n->ctx, GGML_TYPE_F32, N, N, 8);
    struct ggml_tensor *few = ggml_new_tensor_2d(n->ctx, GGML_TYPE_I32, 2, 1),
                       *all = ggml_new_tensor_2d(n->ctx, GGML_TYPE_I32, 8, 1);
    struct ggml_tensor *b = ggml_new_tensor_3d(n->ctx, GGML_TYPE_F32, N, 1, 1);
    struct ggml_tensor *table = ggml_new_tensor_2d(n->ctx, GGML_TYPE_F32, N, 10),
                       *rows = ggml_new_tensor_1d(n->ctx, GGML_TYPE_I64, 2);
    struct ggml_tensor *keys = ggml_new_tensor_2d(n->ctx, GGML_TYPE_F16, N, 4),
                       *values = ggml_new_tensor_2d(n->ctx, GGML_TYPE_F16, N, 4);
    struct ggml_tensor *ins[] = {many, few, all, b, table, rows, keys, values};
    struct ggml_tensor *outs[] = {ggml_mul_mat_id(n->ctx, many, b, few), ggml_mul_mat_id(n->ctx, many, b, all),
        ggml_set_rows(n->ctx, table, x, rows), ggml_flash_attn_ext(n->ctx, x, keys, values, NULL, 1.0f, 0.0f, 0.0f),
        ggml_get_rows(n->ctx, table, few), ggml_out_prod(n->ctx, x, x)};
    for (size_t i = 0; i < sizeof ins / sizeof ins[0]; i++) {
        ggml_set_input(ins[i]);
    }
    for (size_t i = 0; i < sizeof outs / sizeof outs[0]; i++) {
        assert_false(berth_is_poison(outs[i]));
        ggml_set_output(outs[i]);
        ggml_build_forward_expand(n->graph, outs[i]);
    }
    assert_int_equal(berth_sched_trace_start(n->sched), GGML_STATUS_SUCCESS);
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    fill(x, 1.0f);
    for (size_t i = 0; i < sizeof ins / sizeof ins[0]; i++) {
        ggml_backend_tensor_memset(ins[i], 0, 0, ggml_nbytes(ins[i]));
    }
    assert_int_equal(ggml_backend_sched_graph_compute(n->sched, n->graph), GGML_STATUS_SUCCESS);
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_int_equal(berth_sched_trace_stop(n->sched, file), GGML_STATUS_SUCCESS);
    fclose(file);
    static const struct {
        const char *op, *counts;
    } expected[] = {
        {"MUL_MAT_ID", "\"read\": 33032, \"written\": 512, \"flops\": 16384,"},   // two of eight experts, b, two indices
        {"MUL_MAT_ID", "\"read\": 131360, \"written\": 2048, \"flops\": 65536,"}, // all experts
        {"SET_ROWS", "\"read\": 528, \"written\": 512, "},                        // two rows of ten
        {"FLASH_ATTN_EXT", "\"read\": 1536, \"written\": 512, \"flops\": 2048,"},
        {"GET_ROWS", "\"read\": 520, \"written\": 512, \"flops\": 0,"},
        {"OUT_PROD", "\"read\": 512, \"written\": 16384, \"flops\": 16384,"}, // x is read once
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        char op[64];
        bool is_there = false;
        snprintf(op, sizeof op, "\"op\": \"%s\"", expected[i].op);
        for (const char *at = text; (at = strstr(at, op)) != NULL && !is_there; at++) {
            const char *counts = strstr(at, "\"read\"");
            is_there = counts != NULL && strncmp(counts, expected[i].counts, strlen(expected[i].counts)) == 0;
        }
        if (!is_there) {
            fail_msg("no %s with %s in %s", expected[i].op, expected[i].counts, text);
        }
    }
    free(text);
}

// ---- saved plans ----

static char *saved(struct net *n) {
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (berth_sched_save(n->sched, file) != GGML_STATUS_SUCCESS) {
        fclose(file);
        free(text);
        return NULL;
    }
    fclose(file);
    return text;
}

static void split_other(struct net *n, int rows) {
    struct ggml_cgraph *graph = ggml_new_graph(n->ctx);
    ggml_build_forward_expand(graph, ggml_mul_mat(n->ctx, n->w[0], input(n, rows)));
    assert_int_equal(berth_sched_split(n->sched, graph), GGML_STATUS_SUCCESS);
}

// In a saved plan, a copy is a separate step before the nodes that read the copy. The last plan can be saved as long as its graph
// is cached.
static void a_plan_is_saved_with_its_copies(void **state) {
    struct net *n = *state;
    struct ggml_tensor *a = named(ggml_mul_mat(n->ctx, n->w[0], input(n, 2)), "a");
    ggml_build_forward_expand(n->graph, named(ggml_mul_mat(n->ctx, n->w[1], a), "b"));
    assert_true(ggml_backend_sched_alloc_graph(n->sched, n->graph));
    char *text = saved(n);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"nodes\": 4,"));
    const char *rows[] = {"\"name\": \"first#x#0\", \"op\": \"NONE\", \"type\": \"f32\", \"shape\": [64, 2, 1, 1], \"node\": 0",
        "\"name\": \"a\", \"op\": \"MUL_MAT\", \"type\": \"f32\", \"shape\": [64, 2, 1, 1], \"node\": 1",
        "\"name\": \"second#a#0\", \"op\": \"NONE\", \"type\": \"f32\", \"shape\": [64, 2, 1, 1], \"node\": 2",
        "\"name\": \"b\", \"op\": \"MUL_MAT\", \"type\": \"f32\", \"shape\": [64, 2, 1, 1], \"node\": 3"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_non_null(strstr(text, rows[i]));
    }
    ggml_backend_sched_reset(n->sched);
    split_other(n, 3);
    char *again = saved(n);
    assert_string_equal(again, text);
    free(again);
    free(text);
    split_other(n, 4);
    assert_null(saved(n));
}

// ---- debug output ----

static char lines[1 << 16];

static void keep_lines(enum ggml_log_level level, const char *text, void *user) {
    (void) level;
    (void) user;
    strncat(lines, text, sizeof lines - strlen(lines) - 1);
}

static ggml_backend_sched_t sched_with(struct net *n, const char *variable, const char *value, bool parallel) {
    setenv(variable, value, 1);
    ggml_backend_sched_t sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, parallel, false);
    unsetenv(variable);
    return sched;
}

static void debug_output_has_two_levels(void **state) {
    struct net *n = *state;
    n->dev[0].supports = no_tanh;
    struct ggml_tensor *a = ggml_mul_mat(n->ctx, n->w[0], input(n, 2)), *b = named(ggml_tanh(n->ctx, a), "b");
    ggml_build_forward_expand(n->graph, b);
    for (int level = 0; level < 3; level++) {
        const char digit[] = {(char) ('0' + level), '\0'};
        lines[0] = '\0';
        ggml_log_set(keep_lines, NULL);
        ggml_backend_sched_t sched = sched_with(n, "GGML_SCHED_DEBUG", digit, false);
        assert_int_equal(berth_sched_split(sched, n->graph), GGML_STATUS_SUCCESS);
        check_quiet();
        assert_true((strstr(lines, "split 0: first, 1 node, 1 input, 512 bytes\n  input x from CPU: 512 bytes\n") != NULL) ==
                    (level > 0));
        const char *node = strstr(lines, "b (TANH, f32 [64, 2, 1, 1]): second, fallback: op not supported (not by first)\n");
        assert_true((node != NULL) == (level > 1));
        ggml_backend_sched_free(sched);
    }
}

// ---- strict mode ----

static void strict_mode_refuses_each_kind_of_fallback(void **state) {
    struct net *n = *state;
    struct ggml_tensor *a = ggml_mul_mat(n->ctx, n->w[0], input(n, 2)), *b = named(ggml_tanh(n->ctx, a), "b");
    ggml_build_forward_expand(n->graph, b);
    ggml_backend_sched_t sched = sched_with(n, "BERTH_SCHED_STRICT", "1", false);
    assert_true(ggml_backend_sched_alloc_graph(sched, n->graph)); // no fallback
    n->dev[0].supports = no_tanh;
    berth_sched_set_strict(sched, false);
    assert_true(ggml_backend_sched_alloc_graph(sched, n->graph));
    berth_sched_set_strict(sched, true);
    assert_int_equal(ggml_backend_sched_graph_compute(sched, n->graph), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "b (TANH) would run on second: fallback: op not supported by first"));
    assert_false(ggml_backend_sched_reserve(sched, n->graph));

    // The device supports the op of a, but not the TANH that overwrites a in place. So a runs on another device, and the reason is
    // its memory.
    ggml_free(n->ctx);
    graph_new(n);
    a = named(ggml_sqr(n->ctx, ggml_mul_mat(n->ctx, n->w[0], input(n, 2))), "a");
    struct ggml_tensor *into = ggml_tanh_inplace(n->ctx, a);
    ggml_build_forward_expand(n->graph, into);
    assert_int_equal(berth_sched_split(sched, n->graph), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "fallback: buffer not supported"));
    berth_sched_set_strict(sched, false);
    assert_int_equal(berth_sched_split(sched, n->graph), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_sched_reason(sched, a), BERTH_SCHED_FALLBACK_BUFFER);
    ggml_backend_sched_free(sched);
}

static bool no_mul(const struct device *dev, const struct ggml_tensor *op) {
    (void) dev;
    return op->op != GGML_OP_MUL;
}

// A weight that must be copied is a fallback, even if the device that runs the op has the higher priority.
static void a_copied_weight_is_a_fallback(void **state) {
    struct net *n = *state;
    n->dev[1].supports = no_mul;
    struct ggml_tensor *a = ggml_mul_mat(n->ctx, n->w[0], input(n, N)), *b = named(ggml_mul(n->ctx, a, n->w[1]), "b");
    split(n, b);
    assert_on(n, b, 0, BERTH_SCHED_FALLBACK_OP);
    berth_sched_set_strict(n->sched, true);
    assert_int_equal(berth_sched_split(n->sched, n->graph), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "b (MUL) would run on first: fallback: op not supported by second"));
}

// ---- memory limits ----

static void limits_reduce_the_graphs_in_flight(void **state) {
    struct net *n = *state;
    ggml_backend_sched_t sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, true, false);
    struct ggml_tensor *x = input(n, 8), *y = ggml_mul_mat(n->ctx, n->w[0], x);
    ggml_set_output(y);
    ggml_build_forward_expand(n->graph, y);
    assert_int_equal(ggml_backend_sched_get_n_copies(sched), 4);
    const size_t one = ggml_nbytes(x);
    size_t sizes[3];
    ggml_backend_sched_reserve_size(sched, n->graph, sizes);
    assert_int_equal(sizes[0], 5 * one); // four slots of x and the result
    assert_int_equal(sizes[2], 4 * one);
    berth_sched_set_memory_limit(sched, n->backends[0], 3 * one);
    assert_true(ggml_backend_sched_alloc_graph(sched, n->graph));
    assert_int_equal(ggml_backend_sched_get_n_copies(sched), 2);
    fill(x, 1.0f);
    assert_int_equal(ggml_backend_sched_graph_compute(sched, n->graph), GGML_STATUS_SUCCESS);
    berth_sched_set_memory_limit(sched, n->backends[0], one);
    assert_false(ggml_backend_sched_alloc_graph(sched, n->graph));
    assert_non_null(strstr(berth_last_error(), "first"));
    berth_sched_set_memory_limit(sched, n->backends[0], 0);
    assert_true(ggml_backend_sched_alloc_graph(sched, n->graph));
    ggml_backend_sched_free(sched);
}

// If a graph cannot be allocated at all, the number of graphs in flight stays. If the graph fits with fewer graphs in flight, one
// log line reports the new number.
static void fewer_graphs_in_flight_are_reported(void **state) {
    struct net *n = *state;
    ggml_backend_sched_t sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, true, false);
    struct ggml_tensor *x = input(n, 8), *y = ggml_mul_mat(n->ctx, n->w[0], x);
    ggml_set_output(y);
    ggml_build_forward_expand(n->graph, y);
    berth_sched_set_memory_limit(sched, n->backends[0], ggml_nbytes(x));
    assert_false(ggml_backend_sched_alloc_graph(sched, n->graph));
    assert_int_equal(ggml_backend_sched_get_n_copies(sched), 4);
    berth_sched_set_memory_limit(sched, n->backends[0], 4 * ggml_nbytes(x));
    lines[0] = '\0';
    ggml_log_set(keep_lines, NULL);
    assert_true(ggml_backend_sched_alloc_graph(sched, n->graph));
    check_quiet();
    assert_string_equal(lines, "scheduler: memory does not suffice for 4 graphs in flight; continuing with 3\n");
    fill(x, 1.0f);
    assert_int_equal(ggml_backend_sched_graph_compute(sched, n->graph), GGML_STATUS_SUCCESS);
    ggml_backend_sched_free(sched);
}

// ---- uids ----

// A backend may reuse data that it derived from a graph while the uid is the same, so the addresses must be the same too.
static struct {
    uint64_t uid;
    const void *data[2];
    int n_same, n_other;
} last_graph;

static enum ggml_status record_uid(ggml_backend_t backend, struct ggml_cgraph *graph) {
    const void *data[] = {graph->nodes[0]->data, graph->nodes[0]->src[1]->data};
    assert_true(graph->uid != 0);
    if (graph->uid == last_graph.uid) {
        assert_ptr_equal(data[0], last_graph.data[0]);
        assert_ptr_equal(data[1], last_graph.data[1]);
        last_graph.n_same++;
    } else {
        last_graph.n_other++;
    }
    last_graph.uid = graph->uid;
    memcpy(last_graph.data, data, sizeof data);
    return device_compute(backend, graph);
}

static void a_uid_stands_for_nodes_and_addresses(void **state) {
    struct net *n = *state;
    n->dev[0].backend.iface.graph_compute = record_uid;
    memset(&last_graph, 0, sizeof last_graph);
    struct ggml_tensor *x = input(n, 2), *y = ggml_mul_mat(n->ctx, n->w[0], x);
    ggml_set_output(y);
    ggml_build_forward_expand(n->graph, y);
    for (int parallel = 0; parallel < 2; parallel++) {
        ggml_backend_sched_t sched = ggml_backend_sched_new(n->backends, NULL, 3, 64, parallel != 0, false);
        for (int run = 0; run < 8; run++) {
            ggml_backend_sched_reset(sched);
            assert_true(ggml_backend_sched_alloc_graph(sched, n->graph));
            fill(x, 1.0f);
            assert_int_equal(ggml_backend_sched_graph_compute(sched, n->graph), GGML_STATUS_SUCCESS);
        }
        assert_true(parallel != 0 || (last_graph.n_same == 7 && last_graph.n_other == 1));
        // Larger buffers give the same graph other addresses.
        struct ggml_cgraph *large = ggml_new_graph(n->ctx);
        struct ggml_tensor *x2 = input(n, 64), *y2 = ggml_mul_mat(n->ctx, n->w[0], x2);
        ggml_build_forward_expand(large, y2);
        ggml_backend_sched_reset(sched);
        assert_true(ggml_backend_sched_alloc_graph(sched, large));
        ggml_backend_sched_reset(sched);
        assert_true(ggml_backend_sched_alloc_graph(sched, n->graph));
        fill(x, 1.0f);
        assert_int_equal(ggml_backend_sched_graph_compute(sched, n->graph), GGML_STATUS_SUCCESS);
        ggml_backend_sched_free(sched);
        x->buffer = y->buffer = NULL;
        x->data = y->data = NULL;
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        NET_TEST(it_explains_itself),
        NET_TEST(it_counts_copies_and_names_refusing_backends),
        NET_TEST(it_explains_views),
        NET_TEST(it_draws_a_timeline),
        NET_TEST(a_timeline_counts_selected_rows),
        NET_TEST(a_plan_is_saved_with_its_copies),
        NET_TEST(debug_output_has_two_levels),
        NET_TEST(strict_mode_refuses_each_kind_of_fallback),
        NET_TEST(a_copied_weight_is_a_fallback),
        NET_TEST(limits_reduce_the_graphs_in_flight),
        NET_TEST(fewer_graphs_in_flight_are_reported),
        NET_TEST(a_uid_stands_for_nodes_and_addresses),
    };
    return cmocka_run_group_tests_name("sched_tell", tests, NULL, NULL);
}
