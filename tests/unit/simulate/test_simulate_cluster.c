// SPDX-License-Identifier: MIT
// test_simulate_cluster.c: reads and writes clusters (simulate/file.c), and predicts the shipped model on a cluster of two devices
// (simulate/predict.c): results that follow from arithmetic, errors, and each allocation failing once.

#include "support/check.h"

#include "base/base.h"
#include "simulate/cluster.h"

#include <string.h>

#define MODEL "tests/data/tales-3m-q8_0.gguf"

// Three hosts with one CPU each: "here", and two hosts of the kind "there" ("count": 2).
static const char two_hosts[] =
    "{\"hosts\": [{\"name\": \"here\", \"together\": 0.5, \"devices\": [{\"memory\": 1000000000, \"bandwidth\": 3.5e7, "
    "\"flops\": 1e18, \"threads\": 3, \"alignment\": 128, \"read\": {\"q8_0\": 7e7}, \"product\": {\"f16\": 2e9}}]}, "
    "{\"name\": \"there\", \"count\": 2, \"devices\": [{\"name\": \"MPI1:CPU\", \"memory\": 1000000000, \"bandwidth\": 3.5e7, "
    "\"flops\": 1e18}]}], \"links\": [{\"between\": [\"here\", \"there\"], \"latency\": 0.25, \"bandwidth\": 1e18}, "
    "{\"latency\": 0.5, \"bandwidth\": 1e17}]}";

static bool text_read(struct cluster *c, const char *text, struct model_error *error) {
    return cluster_read(c, text, strlen(text), "m.json", error);
}

static void check_two_hosts(const struct cluster *c) {
    assert_int_equal(c->n_hosts, 3);
    assert_int_equal(c->n_devices, 3);
    assert_int_equal(c->n_links, 2);
    assert_string_equal(c->hosts[2].name, "there2");
    assert_true(c->hosts[0].together == 0.5 && c->hosts[1].together == 1);
    assert_string_equal(c->devices[0].name, "CPU");
    assert_int_equal(c->devices[0].threads, 3);
    assert_int_equal(c->devices[0].alignment, 128);
    assert_true(c->devices[0].read[GGML_TYPE_Q8_0] == 7e7 && c->devices[0].product[GGML_TYPE_F16] == 2e9);
    assert_int_equal(c->devices[2].host, 2);
    assert_true(cluster_is_cpu(&c->devices[2]));
    assert_true(cluster_link_of(c, 0, 1).latency == 0.25);
    assert_true(cluster_link_of(c, 2, 1).latency == 0.5); // the link without "between" is for all other pairs
}

static void test_round_trip(void **state) {
    (void) state;
    struct model_error error = {""};
    struct cluster c, again;
    struct berth_stream s;
    assert_true(text_read(&c, two_hosts, &error));
    check_two_hosts(&c);
    assert_true(berth_stream_open(&s));
    cluster_write(&c, s.file);
    assert_true(berth_stream_close(&s));
    if (!text_read(&again, s.text, &error)) {
        fail_msg("%s", error.text);
    }
    check_two_hosts(&again);
    berth_stream_fini(&s);
    cluster_fini(&again);
    cluster_fini(&c);
}

static void test_wrong_files(void **state) {
    (void) state;
#define ONE "{\"memory\": 1, \"bandwidth\": 1, \"flops\": 1}"
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"", "m.json:1:1: "},
        {"{}", "m.json: the first device of the first host must be the program"},
        {"{\"hosts\": [{\"devices\": [{\"memory\": 1}]}]}", "a device requires \"memory\""},
        {"{\"hosts\": [{\"name\": \"a\"}]}", "a host requires \"devices\""},
        {"{\"hosts\": [{\"count\": 1025, \"devices\": [" ONE "]}]}", "1024"},
        {"{\"hosts\": [{\"count\": 1024, \"devices\": [" ONE ", " ONE "]}]}", "too many devices"},
        {"{\"hosts\": [{\"devices\": [" ONE "]}, {\"name\": \"b\", \"devices\": [" ONE "]}]}",
            "missing link between hosts 'host1' and 'b'"},
        {"{\"links\": [{\"between\": [\"a\", \"b\"]}]}", "unknown host"},
        {"{\"hosts\": [{\"name\": \"a\", \"devices\": [" ONE "]}], \"links\": [{\"between\": [\"a\"]}]}",
            "the names of two hosts"},
        {"{\"hosts\": [{\"devices\": [{\"read\": {\"q9\": 1}}]}]}", "unknown tensor type"},
        {"{\"hosts\": [{\"devices\": [{\"alignment\": 3}]}]}", "power of two"},
        {"{\"hosts\": [{\"devices\": [" ONE "]}]} x", "text after the end"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_error error = {""};
        struct cluster c;
        assert_false(text_read(&c, rows[i].text, &error));
        if (strstr(error.text, rows[i].why) == NULL) {
            fail_msg("%s: '%s', expected '%s'", rows[i].text, error.text, rows[i].why);
        }
        assert_null(c.devices);
    }
}

static bool both_predict(const struct cluster *c, struct prediction ways[2], struct model_error *error) {
    const struct model_options options = {.n_ctx = 64, .n_batch = 16};
    for (int w = 0; w < 2; w++) {
        struct model_options o = options;
        o.by_tensor = w == 1;
        if (!cluster_predict(c, MODEL, &o, &ways[w], error)) {
            return false;
        }
    }
    return true;
}

// Makes a cluster of two hosts with one CPU each. Only reading weights takes time.
static void cluster_two_devices(struct cluster *c, uint64_t memory) {
    static const char text[] =
        "{\"hosts\": [{\"devices\": [{\"memory\": %llu, \"bandwidth\": 3.5e7, \"flops\": 1e18}]}, "
        "{\"devices\": [{\"name\": \"MPI1:CPU\", \"memory\": %llu, \"bandwidth\": 3.5e7, \"flops\": 1e18}]}], "
        "\"links\": [{\"latency\": 0, \"bandwidth\": 1e18}]}";
    char file[1024];
    struct model_error error = {""};
    snprintf(file, sizeof file, text, (unsigned long long) memory, (unsigned long long) memory);
    assert_true(text_read(c, file, &error));
}

// By tensors, two devices read half of the weights each at the same time. By layers, only one device works at a time.
static void test_predict(void **state) {
    (void) state;
    struct model_error error = {""};
    struct prediction ways[2];
    struct cluster c;
    cluster_two_devices(&c, 1000000000);
    if (!both_predict(&c, ways, &error)) {
        fail_msg("%s", error.text);
    }
    for (int w = 0; w < 2; w++) {
        assert_true(ways[w].is_known && ways[w].fits);
        assert_int_equal(ways[w].n_ctx, 64);
        assert_int_equal(ways[w].n_batch, 16);
        assert_true(ways[w].prefill > ways[w].decode);
        assert_true(prediction_bytes(&ways[w].devices[1]) > 0);
    }
    assert_true(ways[1].decode > 1.8 * ways[0].decode && ways[1].decode < 2.05 * ways[0].decode);
    prediction_fini(&ways[0]);
    prediction_fini(&ways[1]);
    cluster_fini(&c);

    cluster_two_devices(&c, 1000000); // less than half of the weights
    assert_true(both_predict(&c, ways, &error));
    assert_true(ways[1].is_known && !ways[1].fits && ways[1].full == 0);
    prediction_fini(&ways[0]);
    prediction_fini(&ways[1]);
    c.n_devices = 1;
    assert_true(both_predict(&c, ways, &error));
    assert_false(ways[1].is_known);
    assert_non_null(strstr(ways[1].why, "at least two devices"));
    prediction_fini(&ways[0]);
    prediction_fini(&ways[1]);
    assert_false(cluster_predict(&c, "/nowhere.gguf", &(struct model_options){0}, &ways[0], &error));
    assert_true(error.text[0] != '\0');
    prediction_fini(&ways[0]);
    cluster_fini(&c);
}

// Reads the file and makes both predictions while the at-th allocation fails. Returns false if an error was returned.
static bool all_run(int64_t at) {
    struct model_error error = {""};
    struct prediction ways[2] = {{0}};
    struct cluster c;
    berth_alloc_watch(true);
    berth_alloc_fail_at(at);
    bool ok = text_read(&c, two_hosts, &error);
    if (ok) {
        ok = both_predict(&c, ways, &error) && ways[0].is_known && ways[1].is_known;
        assert_true(ok || error.text[0] != '\0' || ways[0].why[0] != '\0' || ways[1].why[0] != '\0');
        cluster_fini(&c);
    }
    prediction_fini(&ways[0]);
    prediction_fini(&ways[1]);
    if (at == 0) {
        assert_true(ok);
    }
    return ok;
}

static void test_no_memory(void **state) {
    (void) state;
    assert_true(all_run(0));
    const int64_t n = berth_alloc_made();
    int n_failed = 0;
    int n_tried = 0;
    for (int64_t at = 1; at <= n; at += 1 + at / 40, n_tried++) {
        n_failed += !all_run(at);
        berth_alloc_fail_at(0);
    }
    print_message("%d of %d failed allocations caused an error\n", n_failed, n_tried);
    // Without a communicator, a composite device copies instead. So not every failure is an error.
    assert_true(n_tried > 20 && n_failed > n_tried / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_wrong_files),
        cmocka_unit_test(test_predict),
        cmocka_unit_test(test_no_memory),
    };
    ggml_backend_load_all();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
