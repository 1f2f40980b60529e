// SPDX-License-Identifier: MIT
// test_json.c: the JSON writer: commas, lines, nesting, escapes, UTF-8, numbers that JSON does not have, and a stream that runs out
// of memory. The reader: ranges of integers and failures. test_plan_io.c tests more of the reader.

#include "support/check.h"

#include "base/json.h"

#include <inttypes.h>
#include <math.h>

static const char *const volatile texts[] = {"q\"\\\n", NULL};

static void list_write(struct berth_json_writer *w) {
    berth_json_begin(w, NULL, '{');
    berth_json_printf(w, "'a': %d", -1);
    berth_json_line(w, 2);
    berth_json_begin(w, "list", '[');
    for (int i = 0; i < 2; i++) {
        berth_json_line(w, 4);
        berth_json_begin(w, NULL, '{');
        berth_json_printf(w, "'i': %d, 'text': %s", i, texts[i]);
        berth_json_begin(w, "none", '[');
        berth_json_end(w);
        berth_json_end(w);
    }
    berth_json_line(w, 2);
    berth_json_end(w);
    berth_json_put_key(w, "raw \"key\"");
    fputs("[1]", w->file);
    berth_json_printf(w, "'z': %c", false);
    berth_json_end(w);
}

static void nesting(void **state) {
    (void) state;
    struct berth_stream s;
    assert_true(berth_stream_open(&s));
    struct berth_json_writer w = {.file = s.file};
    list_write(&w);
    assert_true(berth_stream_close(&s));
    assert_string_equal(s.text, "{\"a\": -1,\n  \"list\": [\n    {\"i\": 0, \"text\": \"q\\\"\\\\\\n\", \"none\": []},\n"
                                "    {\"i\": 1, \"text\": null, \"none\": []}\n  ], \"raw \\\"key\\\"\": [1], \"z\": false}");
    berth_stream_fini(&s);
}

static void assert_written(const char *text, const char *want) {
    struct berth_stream s;
    assert_true(berth_stream_open(&s));
    berth_json_write_string(text, s.file);
    assert_true(berth_stream_close(&s));
    assert_string_equal(s.text, want);
    berth_stream_fini(&s);
}

static void numbers(void **state) {
    (void) state;
    struct berth_stream s;
    assert_true(berth_stream_open(&s));
    struct berth_json_writer w = {.file = s.file};
    berth_json_begin(&w, NULL, '[');
    berth_json_printf(
        &w, "%" PRId64 ", %" PRIu64 ", %lld, %llu, %zu, %i, %u", INT64_MIN, UINT64_MAX, -2LL, 3ULL, SIZE_MAX, 4, 5U);
    berth_json_printf(&w, "%.3f, %g, %.2f, %.6g, %.0f", 0.5, 1e30, (double) NAN, (double) INFINITY, -(double) INFINITY);
    berth_json_printf(&w, "%c, %c, %s", true, false, "\xff\x7f");
    berth_json_end(&w);
    assert_true(berth_stream_close(&s));
    assert_string_equal(s.text,
        "[-9223372036854775808, 18446744073709551615, -2, 3, 18446744073709551615, 4, 5, 0.500, 1e+30, null, "
        "null, null, true, false, \"\\ufffd\\u007f\"]");
    berth_stream_fini(&s);
}

// The first and last sequences of each length, of the surrogates and of the code points.
static void only_utf8_is_written(void **state) {
    (void) state;
    static const char *const same[] = {"~", "\xc2\xa0", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "x\xc3\xbcy"};
    static const char *const invalid[] = {"\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3", "\xe1\x80", "\xf1\x80\x80"};
    static const char *const controls[][2] = {
        {"\x01\x1f\x7f", "\"\\u0001\\u001f\\u007f\""}, {"\xc2\x80\xc2\x9f", "\"\\u0080\\u009f\""}};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        char want[16];
        snprintf(want, sizeof want, "\"%s\"", same[i]);
        assert_written(same[i], want);
    }
    for (size_t i = 0; i < sizeof invalid / sizeof invalid[0]; i++) {
        char want[64] = "\"";
        for (size_t k = 0; k < strlen(invalid[i]); k++) {
            strcat(want, "\\ufffd");
        }
        assert_written(invalid[i], strcat(want, "\""));
    }
    for (size_t i = 0; i < sizeof controls / sizeof controls[0]; i++) {
        assert_written(controls[i][0], controls[i][1]);
    }
}

// Every level is closed by the right character, and the reader accepts the result.
static void deep(void **state) {
    (void) state;
    struct berth_stream s;
    assert_true(berth_stream_open(&s));
    struct berth_json_writer w = {.file = s.file};
    for (int i = 0; i < BERTH_JSON_DEPTH_MAX; i++) {
        berth_json_begin(&w, i % 2 == 1 ? "k" : NULL, i % 2 == 1 ? '[' : '{');
    }
    for (int i = 0; i < BERTH_JSON_DEPTH_MAX; i++) {
        berth_json_end(&w);
    }
    assert_true(berth_stream_close(&s));
    struct berth_json r;
    berth_json_init(&r, s.text, s.size, "t");
    assert_true(berth_json_skip(&r));
    assert_true(berth_json_done(&r));
    berth_json_fini(&r);
    berth_stream_fini(&s);
}

static bool int_read(const char *text, int64_t min, int64_t max, int64_t *out) {
    struct berth_json r;
    berth_json_init(&r, text, strlen(text), "t");
    const bool ok = berth_json_int(&r, min, max, out) && berth_json_done(&r);
    berth_json_fini(&r);
    return ok;
}

static void integers_have_a_range(void **state) {
    (void) state;
    check_quiet();
    int64_t x;
    assert_true(int_read("9223372036854775807", 0, INT64_MAX, &x) && x == INT64_MAX);
    assert_true(int_read("-9223372036854775807", INT64_MIN, 0, &x) && x == -INT64_MAX);
    assert_false(int_read("9223372036854775808", INT64_MIN, INT64_MAX, &x));
    assert_false(int_read("92233720368547758070", INT64_MIN, INT64_MAX, &x));
    assert_true(int_read("-3", -3, 3, &x) && x == -3);
    assert_true(int_read("3", -3, 3, &x) && x == 3);
    assert_false(int_read("-4", -3, 3, &x));
    assert_false(int_read("4", -3, 3, &x));
    assert_false(int_read("1.0", -3, 3, &x));
    assert_false(int_read("1e0", -3, 3, &x));
}

static void surrogates_come_in_pairs(void **state) {
    (void) state;
    check_quiet();
    static const struct {
        const char *text, *want; // want: NULL: refused
    } cases[] = {{"\"\\ud800\\udc00\"", "\xf0\x90\x80\x80"}, {"\"\\udbff\\udfff\"", "\xf4\x8f\xbf\xbf"},
        {"\"\\ud7ff\"", "\xed\x9f\xbf"}, {"\"\\ue000\"", "\xee\x80\x80"}, {"\"\\u007f\\u0080\"", "\x7f\xc2\x80"},
        {"\"\\u07ff\\u0800\\uffff\"", "\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"}, {"\"\\ud800\\udbff\"", NULL},
        {"\"\\ud800\\ue000\"", NULL}, {"\"\\ud800\"", NULL}, {"\"\\udc00\"", NULL}, {"\"\\udfff\"", NULL}, {"\"\\u0000\"", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct berth_json r;
        struct berth_json_text text;
        berth_json_init(&r, cases[i].text, strlen(cases[i].text), "t");
        const bool ok = berth_json_string(&r, &text) && berth_json_done(&r);
        assert_int_equal(ok, cases[i].want != NULL);
        assert_true(!ok || berth_json_is(text, cases[i].want));
        berth_json_fini(&r);
    }
}

static void the_first_failure_is_final(void **state) {
    (void) state;
    struct berth_json r;
    struct berth_json_text text;
    int64_t x;
    bool flag;
    berth_json_init(&r, "[1, 2, 3]", 9, "t");
    assert_true(berth_json_array(&r) && berth_json_next(&r) && berth_json_int(&r, 1, 1, &x) && berth_json_next(&r));
    assert_false(berth_json_int(&r, 1, 1, &x));
    assert_string_equal(berth_last_error(), "t:1:5: an integer from 1 to 1 is expected");
    assert_false(berth_json_next(&r) || berth_json_key(&r, &text) || berth_json_array(&r) || berth_json_int(&r, 2, 2, &x) ||
                 berth_json_bool(&r, &flag) || berth_json_null(&r) || berth_json_number_text(&r, &text) || berth_json_skip(&r) ||
                 berth_json_done(&r));
    assert_string_equal(berth_last_error(), "t:1:5: an integer from 1 to 1 is expected");
    berth_json_fini(&r);
}

static void memory_runs_out(void **state) {
    (void) state;
    bool ok = false;
    for (int64_t n = 1; !ok; n++) {
        assert_true(n < 100);
        struct berth_stream s;
        berth_alloc_fail_at(n);
        if (berth_stream_open(&s)) {
            struct berth_json_writer w = {.file = s.file};
            list_write(&w);
            ok = berth_stream_close(&s);
        }
        berth_alloc_fail_at(0);
        assert_true(ok == (s.text != NULL));
        berth_stream_fini(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nesting),
        cmocka_unit_test(numbers),
        cmocka_unit_test(only_utf8_is_written),
        cmocka_unit_test(deep),
        cmocka_unit_test(integers_have_a_range),
        cmocka_unit_test(surrogates_come_in_pairs),
        cmocka_unit_test(the_first_failure_is_final),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
