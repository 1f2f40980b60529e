// SPDX-License-Identifier: MIT
// test_plan_io.c: plans as CSV and JSON. Checks which texts are read, which are refused, and with which message. Checks that
// written plans can be read back, and that neither truncation at any byte nor a failing allocation causes a crash or a leak.

#include "base/json.h"
#include "berth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static struct berth_plan_set *csv(const char *text) {
    struct berth_plan_set *set = NULL;
    assert_int_equal(berth_plan_read_csv(text, strlen(text), "t", &set), GGML_STATUS_SUCCESS);
    assert_non_null(set);
    return set;
}

static struct berth_plan_set *json(const char *text) {
    struct berth_plan_set *set = NULL;
    assert_int_equal(berth_plan_read_json(text, strlen(text), "t", &set), GGML_STATUS_SUCCESS);
    assert_non_null(set);
    return set;
}

static void csv_refused(const char *text, const char *message) {
    struct berth_plan_set *set = (void *) 1;
    assert_int_equal(berth_plan_read_csv(text, strlen(text), "t", &set), GGML_STATUS_FAILED);
    assert_null(set);
    if (strstr(berth_last_error(), message) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", berth_last_error(), message);
    }
}

static void json_refused(const char *text, const char *message) {
    struct berth_plan_set *set = (void *) 1;
    assert_int_equal(berth_plan_read_json(text, strlen(text), "t", &set), GGML_STATUS_FAILED);
    assert_null(set);
    if (strstr(berth_last_error(), message) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", berth_last_error(), message);
    }
}

static void csv_plain(void **state) {
    (void) state;
    struct berth_plan_set *set = csv("id,lower,upper,size\na,0,2,10\n17,1,2,4611686018427387904\n");
    assert_int_equal(set->n_items, 2);
    assert_string_equal(set->ids[0], "a");
    assert_string_equal(set->ids[1], "17");
    assert_int_equal(set->items[0].first, 0);
    assert_int_equal(set->items[0].last, 1);
    assert_int_equal(set->items[0].size, 10);
    assert_int_equal(set->items[0].align, 1);
    assert_false(set->items[0].is_fixed);
    assert_int_equal(set->items[0].alias, 0);
    assert_true(set->items[1].size == (uint64_t) 1 << 62);
    assert_false(set->has_offsets);
    assert_true(set->offsets[0] == BERTH_PLAN_ANY);
    berth_plan_set_free(set);
}

static void csv_columns_in_any_order(void **state) {
    (void) state;
    struct berth_plan_set *set =
        csv("\xef\xbb\xbfsize,note,UPPER , lower,offset,pool,alignment,alias,fixed,id\r\n8,x,5,-3,64,2,32,7,,\"a \"\"b\"\", "
            "c\"\r\n\r\n0,,1,0,0,,,,12,z\r\n");
    assert_int_equal(set->n_items, 2);
    assert_string_equal(set->ids[0], "a \"b\", c");
    assert_int_equal(set->items[0].first, -3);
    assert_int_equal(set->items[0].last, 4);
    assert_int_equal(set->items[0].align, 32);
    assert_int_equal(set->items[0].pool, 2);
    assert_int_equal(set->items[0].alias, 7 + 1); // groups in files count from 0
    assert_false(set->items[0].is_fixed);
    assert_true(set->items[1].is_fixed && set->items[1].fixed == 12);
    assert_int_equal(set->items[1].align, 1);
    assert_true(set->has_offsets);
    assert_int_equal(set->offsets[0], 64);
    berth_plan_set_free(set);
}

static void csv_line_ends(void **state) {
    (void) state;
    static const char *const texts[] = {"id,lower,upper,size\r1,0,1,5\r2,0,1,6", "id,lower,upper,size\r\n1,0,1,5\r\n2,0,1,6\r\n",
        "id,lower,upper,size\n\n1,0,1,5\n\n\n2,0,1,6\n\n"};
    for (size_t i = 0; i < 3; i++) {
        struct berth_plan_set *set = csv(texts[i]);
        assert_int_equal(set->n_items, 2);
        assert_int_equal(set->items[1].size, 6);
        berth_plan_set_free(set);
    }
    struct berth_plan_set *set = csv("id,lower,upper,size");
    assert_int_equal(set->n_items, 0);
    berth_plan_set_free(set);
}

static void csv_faults_name_the_line(void **state) {
    (void) state;
    csv_refused("", "t:1: the file is empty");
    csv_refused("id,lower,size\n", "t:1: no column 'upper'");
    csv_refused("id,lower,upper,size,size\n", "t:1: column 'size' occurs twice");
    csv_refused("id,lower,upper,size\na,0,1,2\nb,0,x1,2\n", "t:3: upper 'x1' is not an integer");
    csv_refused("id,lower,upper,size\na,0,1,4611686018427387905\n", "t:2: size '4611686018427387905'");
    csv_refused("id,lower,upper,size\na,0,1,99999999999999999999999\n", "t:2: size");
    csv_refused("id,lower,upper,size\na,0,1,-1\n", "t:2: size '-1'");
    csv_refused("id,lower,upper,size\na,0,1,\n", "t:2: size ''");
    csv_refused("id,lower,upper,size\na,0,1\n", "t:2: the row has 3 fields, but the header has 4 columns");
    csv_refused("id,lower,upper,size\na,0,1,2,3\n", "t:2: the row has more fields than the 4 columns");
    csv_refused("id,lower,upper,size\n\"a\nb\",3,3,2\n", "t:2: 'a\nb' ends before it begins: lower 3, upper 3");
    csv_refused("id,lower,upper,size\n\"a,0,1,2\n", "t:2: a quoted field has no closing quote");
    csv_refused("id,lower,upper,size\n\"a\"b,0,1,2\n", "t:2: text after the closing quote");
    csv_refused("id,lower,upper,size,pool\na,0,1,2,2147483648\n", "t:2: pool '2147483648'");
    struct berth_plan_set *set;
    assert_int_equal(berth_plan_read_csv("id,lower,upper,size\na\0b,0,1,2\n", 31, "t", &set), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "t:2: NUL byte found"));
    assert_int_equal(berth_plan_read_csv(NULL, 1, "t", &set), GGML_STATUS_FAILED);
    assert_int_equal(berth_plan_read_csv("x", 1, "t", NULL), GGML_STATUS_FAILED);
}

static const char plan_text[] =
    "{\"peak\": 12, \"bound\": 12, \"proven\": true, \"more\": [1, {\"x\": null}, \"\\ud83d\\ude00\", -1.5e-3, false],\n"
    " \"items\": [\n"
    "  {\"id\": \"caf\\u00e9 \\\"1\\\"\\n\", \"first\": 0, \"last\": 3, \"size\": 4, \"alignment\": 4, \"offset\": 8,\n"
    "   \"tensors\": [{\"name\": \"q\", \"op\": \"MUL_MAT\", \"type\": \"f32\", \"shape\": [1, 2, 3, 4], \"node\": 0, \"uses\": "
    "\"1 3\"}, {\"x\": "
    "1}]},\n"
    "  {\"id\": 42, \"first\": -1, \"last\": 1, \"size\": 8, \"offset\": 0, \"pool\": 1, \"fixed\": 0, \"alias\": 3},\n"
    "  {\"size\": 0, \"last\": 9, \"first\": 9, \"offset\": 0, \"fixed\": null, \"unknown\": {}}\n"
    " ], \"pools\": [{\"pool\": 1, \"name\": \"GPU\", \"max_chunk\": 64, \"peak\": 8}, {}]}\n";

static void json_plain(void **state) {
    (void) state;
    struct berth_plan_set *set = json(plan_text);
    assert_int_equal(set->n_items, 3);
    assert_string_equal(set->ids[0], "caf\xc3\xa9 \"1\"\n");
    assert_string_equal(set->ids[1], "42");
    assert_string_equal(set->ids[2], "");
    assert_int_equal(set->items[0].last, 3);
    assert_int_equal(set->items[0].align, 4);
    assert_int_equal(set->items[1].pool, 1);
    assert_true(set->items[1].is_fixed && set->items[1].fixed == 0);
    assert_int_equal(set->items[1].alias, 3 + 1);
    assert_false(set->items[2].is_fixed);
    assert_true(set->has_offsets && set->has_report && set->proven);
    assert_int_equal(set->peak, 12);
    berth_plan_set_free(set);
}

// Any bytes, including NUL, can be written as a JSON string. Bytes that are not valid UTF-8 become U+FFFD.
static void json_strings_of_any_bytes(void **state) {
    (void) state;
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    berth_json_write_text("a\0b\xc3\xa9\x1b\xff\"\xe2\x82\xac\xe2\x82", 13, file);
    berth_json_write_text("\xc3\xa9", 1, file);
    berth_json_write_string("", file);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, "\"a\\u0000b\xc3\xa9\\u001b\\ufffd\\\"\xe2\x82\xac\\ufffd\\ufffd\"\"\\ufffd\"\"\"");
    free(text);
}

static void json_faults_name_line_and_column(void **state) {
    (void) state;
    json_refused("", "t:1:1: an object is expected");
    json_refused("{", "t:1:2: ");
    json_refused("{}", "\"items\" is missing");
    json_refused("{\"items\": []} x", "t:1:15: text after the end");
    json_refused("{\"items\": [\n {\"first\": 0,\n  \"last\": 1.5, \"size\": 1}]}", "t:3:11: an integer");
    json_refused("{\"items\": [{\"first\": 0, \"last\": 1}]}", "an item has no \"size\"");
    json_refused("{\"items\": [{\"first\": 0, \"last\": 1, \"size\": null}]}", "an item has no \"size\"");
    json_refused("{\"items\": [{\"first\": 2, \"last\": 1, \"size\": 1}]}", "ends before it begins");
    json_refused("{\"items\": [{\"first\": 0, \"last\": 1, \"size\": 4611686018427387905}]}", "an integer from 0 to");
    json_refused("{\"items\": [,]}", "an object is expected");
    json_refused("{\"items\": [] \"peak\": 1}", "',' or '}' is expected");
    json_refused("{\"items\": [], \"items\": []}", "occurs twice");
    json_refused("{\"items\": [], \"peak\": 01}", "t:1:");
    json_refused("{\"items\": [], \"x\": nul}", "a value is expected");
    json_refused("{\"items\": [], \"x\": \"\\x\"}", "unknown escape");
    json_refused("{\"items\": [], \"x\": \"\\ud800\"}", "surrogate");
    json_refused("{\"items\": [], \"x\": \"\\udc00\"}", "surrogate");
    json_refused("{\"items\": [], \"x\": \"\\u0000\"}", "NUL");
    json_refused("{\"items\": [], \"x\": \"a\nb\"}", "control character");
    json_refused("{\"items\": [], \"x\": \"abc", "inside a string");
    json_refused("{\"items\": [], \"proven\": 1}", "true or false");
    char deep[400];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"x\":", 5);
    deep[sizeof deep - 1] = '\0';
    json_refused(deep, "nested too deeply");
}

static char *slurp(FILE *file, size_t *size) {
    *size = (size_t) ftell(file);
    char *text = malloc(*size + 1);
    assert_non_null(text);
    rewind(file);
    assert_int_equal(fread(text, 1, *size, file), *size);
    text[*size] = '\0';
    return text;
}

static void sets_equal(const struct berth_plan_set *a, const struct berth_plan_set *b) {
    assert_int_equal(a->n_items, b->n_items);
    for (int64_t i = 0; i < a->n_items; i++) {
        assert_string_equal(a->ids[i], b->ids[i]);
        assert_memory_equal(&a->items[i], &b->items[i], sizeof a->items[i]);
        assert_true(a->offsets[i] == b->offsets[i]);
    }
}

static void tensors_equal(const struct berth_plan_set *a, const struct berth_plan_set *b) {
    assert_int_equal(a->n_tensors, b->n_tensors);
    for (int64_t i = 0; i < a->n_tensors; i++) {
        assert_string_equal(a->tensors[i].uses, b->tensors[i].uses);
        assert_int_equal(a->tensors[i].item, b->tensors[i].item);
        assert_string_equal(a->tensors[i].name, b->tensors[i].name);
        assert_string_equal(a->tensors[i].op, b->tensors[i].op);
        assert_string_equal(a->tensors[i].type, b->tensors[i].type);
        assert_memory_equal(a->tensors[i].ne, b->tensors[i].ne, sizeof a->tensors[i].ne);
        assert_int_equal(a->tensors[i].node, b->tensors[i].node);
    }
    assert_int_equal(a->n_pools, b->n_pools);
    for (int64_t i = 0; i < a->n_pools; i++) {
        assert_int_equal(a->pools[i].pool, b->pools[i].pool);
        assert_string_equal(a->pools[i].name, b->pools[i].name);
        assert_true(a->pools[i].chunk_limit == b->pools[i].chunk_limit);
    }
}

static void tensors_and_pools_of_a_graph(void **state) {
    (void) state;
    struct berth_plan_set *set = json(plan_text);
    assert_int_equal(set->n_tensors, 2);
    assert_int_equal(set->tensors[0].item, 0);
    assert_string_equal(set->tensors[0].op, "MUL_MAT");
    assert_int_equal(set->tensors[0].ne[3], 4);
    assert_int_equal(set->tensors[0].node, 0);
    assert_string_equal(set->tensors[0].uses, "1 3");
    assert_string_equal(set->tensors[1].uses, "");
    assert_string_equal(set->tensors[1].name, "");
    assert_int_equal(set->tensors[1].node, -1);
    assert_int_equal(set->n_pools, 2);
    assert_string_equal(set->pools[0].name, "GPU");
    assert_int_equal(set->pools[0].chunk_limit, 64);
    assert_string_equal(set->pools[1].name, "");
    berth_plan_set_free(set);
    static const char *const wrong[] = {
        "{\"items\": [{\"first\": 0, \"last\": 1, \"size\": 1, \"tensors\": [{\"shape\": [1, 2, 3, 4, 5]}]}]}",
        "{\"items\": [{\"first\": 0, \"last\": 1, \"size\": 1, \"tensors\": {}}]}",
        "{\"items\": [{\"first\": 0, \"last\": 1, \"size\": 1, \"tensors\": [{\"name\": 3}]}]}",
        "{\"items\": [], \"pools\": [{\"pool\": 4294967296}]}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(berth_plan_read_json(wrong[i], strlen(wrong[i]), "t", &set), GGML_STATUS_FAILED);
        assert_null(set);
    }
}

static void written_plans_can_be_read(void **state) {
    (void) state;
    struct berth_plan_set *set = json(plan_text), *reread = NULL;
    const struct berth_plan_report report = {.peak = 12, .bound = 11};
    for (int as_json = 0; as_json < 2; as_json++) {
        FILE *file = tmpfile();
        size_t size;
        assert_non_null(file);
        assert_int_equal(
            as_json ? berth_plan_write_json(set, set->offsets, &report, file) : berth_plan_write_csv(set, set->offsets, file),
            GGML_STATUS_SUCCESS);
        char *text = slurp(file, &size);
        assert_int_equal(as_json ? berth_plan_read_json(text, size, "t", &reread) : berth_plan_read_csv(text, size, "t", &reread),
            GGML_STATUS_SUCCESS);
        sets_equal(set, reread);
        if (as_json) {
            tensors_equal(set, reread);
            assert_true(reread->has_report && !reread->proven && reread->bound == 11);
        }
        berth_plan_set_free(reread);
        free(text);
        fclose(file);
    }
    berth_plan_set_free(set);
    // Bytes that are not UTF-8 still give valid JSON.
    set = csv("id,lower,upper,size\na\xff\xc0z\x01,0,1,2\n");
    FILE *file = tmpfile();
    size_t size;
    assert_int_equal(berth_plan_write_json(set, NULL, NULL, file), GGML_STATUS_SUCCESS);
    char *text = slurp(file, &size);
    assert_non_null(strstr(text, "\"a\\ufffd\\ufffdz\\u0001\""));
    free(text);
    fclose(file);
    berth_plan_set_free(set);
}

static void full_disk_is_reported(void **state) {
    (void) state;
    struct berth_plan_set *set = json(plan_text);
    FILE *file = fopen("/dev/full", "w");
    if (file == NULL) {
        berth_plan_set_free(set);
        skip();
    }
    assert_int_equal(berth_plan_write_csv(set, NULL, file), GGML_STATUS_FAILED);
    assert_int_equal(berth_plan_write_json(set, NULL, NULL, file), GGML_STATUS_FAILED);
    fclose(file);
    berth_plan_set_free(set);
}

static void file_formats_are_detected(void **state) {
    (void) state;
    struct berth_plan_set *set;
    assert_int_equal(berth_plan_read_file("tests/data/plan/small.csv", &set), GGML_STATUS_SUCCESS);
    assert_true(set->n_items > 5);
    berth_plan_set_free(set);
    assert_int_equal(berth_plan_read_file("tests/data/plan/small.json", &set), GGML_STATUS_SUCCESS);
    assert_true(set->has_report);
    berth_plan_set_free(set);
    assert_int_equal(berth_plan_read_file("/nowhere/at/all", &set), GGML_STATUS_FAILED);
    assert_null(set);
    assert_int_equal(berth_plan_read_file("/", &set), GGML_STATUS_FAILED);
    assert_int_equal(berth_plan_read_file(NULL, &set), GGML_STATUS_FAILED);
    berth_plan_set_free(NULL);
}

static void truncation_at_every_byte(void **state) {
    (void) state;
    static const char text[] = "id,lower,upper,size,alignment,offset\n\"a\"\"b\",0,12,100,4,16\nlong id,3,4,2048,,\n";
    struct berth_plan_set *set;
    for (size_t n = 0; n <= sizeof text - 1; n++) {
        char *copy = malloc(n == 0 ? 1 : n); // exact size, so that a sanitizer detects a read past the end
        memcpy(copy, text, n);
        berth_plan_read_csv(copy, n, "t", &set);
        berth_plan_set_free(set);
        free(copy);
    }
    for (size_t n = 0; n < sizeof plan_text - 2; n++) {
        char *copy = malloc(n == 0 ? 1 : n);
        memcpy(copy, plan_text, n);
        assert_int_equal(berth_plan_read_json(copy, n, "t", &set), GGML_STATUS_FAILED);
        assert_null(set);
        free(copy);
    }
}

static void every_allocation_may_fail(void **state) {
    (void) state;
    static const char text[] = "id,lower,upper,size,offset\n\"a\"\"b\",0,12,100,4\n\"c\",3,4,2048,\nd,1,2,3,4\n";
    for (int as_json = 0; as_json < 2; as_json++) {
        bool done = false;
        for (int n = 1; !done; n++) {
            struct berth_plan_set *set;
            berth_alloc_watch(true);
            berth_alloc_fail_at(n);
            const enum ggml_status status = as_json ? berth_plan_read_json(plan_text, sizeof plan_text - 1, "t", &set)
                                                    : berth_plan_read_csv(text, sizeof text - 1, "t", &set);
            done = berth_alloc_made() < n - 1 || status == GGML_STATUS_SUCCESS;
            berth_alloc_fail_at(0);
            assert_int_equal(status, done ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED);
            berth_plan_set_free(set);
            assert_int_equal(berth_alloc_alive(), 0);
            berth_alloc_watch(false);
            assert_true(n < 1000);
        }
    }
}

static void quiet(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level;
    (void) text;
    (void) user_data;
}

int main(void) {
    ggml_log_set(quiet, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_plain),
        cmocka_unit_test(csv_columns_in_any_order),
        cmocka_unit_test(csv_line_ends),
        cmocka_unit_test(csv_faults_name_the_line),
        cmocka_unit_test(json_plain),
        cmocka_unit_test(json_strings_of_any_bytes),
        cmocka_unit_test(json_faults_name_line_and_column),
        cmocka_unit_test(tensors_and_pools_of_a_graph),
        cmocka_unit_test(written_plans_can_be_read),
        cmocka_unit_test(full_disk_is_reported),
        cmocka_unit_test(file_formats_are_detected),
        cmocka_unit_test(truncation_at_every_byte),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
