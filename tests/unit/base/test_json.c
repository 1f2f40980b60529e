// SPDX-License-Identifier: MIT
// test_json.c: the JSON writer: commas, lines, nesting, escapes, numbers that JSON does not have, and a stream that runs out of
// memory. test_plan_io.c tests the reader.

#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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
        cmocka_unit_test(deep),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
