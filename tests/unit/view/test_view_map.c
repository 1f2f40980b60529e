// SPDX-License-Identifier: MIT
// test_view_map.c: the memory map of a plan (view/map.h). An item is a piece of memory in the plan. A chunk is one buffer of a
// pool with a limited buffer size. Tests: addresses of items in several chunks, tensors that use an item one after another, the
// curve of live bytes, both formats, and the curve of a search.

#include "support/check.h"
#include "view/map.h"

static const char saved[] =
    "{\"pools\": [{\"pool\": 0, \"name\": \"CPU\", \"max_chunk\": 100}], \"items\": ["
    "{\"id\": \"a\", \"first\": 0, \"last\": 5, \"size\": 80, \"alignment\": 1, \"pool\": 0, \"offset\": 0, \"tensors\": ["
    "{\"name\": \"x<y\", \"op\": \"MUL_MAT\", \"type\": \"f32\", \"shape\": [20, 1, 1, 1], \"node\": 0},"
    "{\"name\": \"z\", \"op\": \"ADD\", \"type\": \"f32\", \"shape\": [20, 1, 1, 1], \"node\": 3}]},"
    "{\"id\": \"b\", \"first\": 1, \"last\": 2, \"size\": 60, \"alignment\": 1, \"pool\": 0, \"offset\": 100, \"tensors\": []}]}";

static void plan_load(struct view_plan *plan) {
    *plan = (struct view_plan){0};
    assert_int_equal(berth_plan_read_json(saved, sizeof saved - 1, "saved", &plan->set), GGML_STATUS_SUCCESS);
    assert_int_equal(view_plan_buffers(plan), GGML_STATUS_SUCCESS);
}

static void test_view(void **state) {
    (void) state;
    struct view_plan plan;
    struct map_view view;
    plan_load(&plan);
    assert_true(map_view_init(&view, &(struct map_plan){"saved", &plan, plan.set->offsets}));
    assert_int_equal(view.n_items, 2);
    assert_int_equal(view.n_rects, 3);
    assert_int_equal(view.items[1].at, 80); // the second chunk follows the used part of the first
    assert_int_equal(view.peak, 140);
    assert_true(view.has_ops);
    assert_string_equal(view.rects[0].name, "x<y");
    assert_int_equal(view.rects[0].last, 2); // z reuses the memory from step 3 on
    assert_int_equal(view.rects[1].first, 3);
    assert_int_equal(view.rects[0].family, map_family_of("MUL_MAT"));
    size_t n;
    struct map_live *live = map_view_live(&view, 0, &n);
    assert_non_null(live);
    assert_int_equal(n, 4);
    assert_int_equal(live[1].bytes, 140);
    assert_int_equal(live[2].step, 3);
    assert_int_equal(live[3].bytes, 0);
    free(live);
    map_view_fini(&view);
    view_plan_free(&plan);
}

static char *map_write(bool (*write)(const struct map_view *, size_t, FILE *), const struct map_view *views, size_t n) {
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    assert_true(write(views, n, file));
    fclose(file);
    return text;
}

static void test_formats(void **state) {
    (void) state;
    struct view_plan plan;
    struct map_view views[2];
    plan_load(&plan);
    assert_true(map_view_init(&views[0], &(struct map_plan){"be<fore", &plan, plan.set->offsets}));
    views[1] = views[0];
    views[1].title = "after";
    char *svg = map_write(map_svg_write, views, 2);
    assert_non_null(strstr(svg, "before: be&lt;fore"));
    assert_non_null(strstr(svg, "x&lt;y, MUL_MAT f32"));
    assert_null(strstr(svg, "x<y"));
    char *html = map_write(map_html_write, views, 1);
    assert_non_null(strstr(html, "\"x\\u003cy\""));
    assert_non_null(strstr(html, "\"peak\":140"));
    free(svg);
    free(html);
    map_view_fini(&views[0]);
    view_plan_free(&plan);
}

// The curve of a search: one plot per buffer that was planned, steps of the peak and of the bound.
static void test_curve(void **state) {
    (void) state;
    struct view_point points[] = {{1000, 150, 90}, {10000, 120, 90}, {100000, 110, 100}};
    struct view_buffer buffers[] = {{.pool = 3, .curve = points, .n_curve = 3}, {.pool = 4}};
    const struct view_plan plan = {.buffers = buffers, .n_buffers = 2};
    char *svg = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&svg, &size);
    assert_non_null(file);
    assert_true(map_curve_write(&plan, file));
    fclose(file);
    assert_non_null(strstr(svg, "Buffer 3: peak 0.00 MiB, 10% above the bound"));
    assert_null(strstr(svg, "Buffer 4"));
    // 1 ms is the left edge, 100 ms the right edge. The grid is from -10% to 50%.
    assert_non_null(strstr(svg, "<path class=\"m\" d=\"M64.0 48.0H470.0V160.0H876.0V197.3\"/>"));
    assert_non_null(strstr(svg, "<path class=\"b\" d=\"M64.0 272.0H470.0V272.0H876.0V234.7\"/>"));
    assert_non_null(strstr(svg, ">10 ms</text>"));
    free(svg);
}

// A stream that fails is reported.
static void test_full(void **state) {
    (void) state;
    struct view_plan plan;
    struct map_view view;
    plan_load(&plan);
    assert_true(map_view_init(&view, &(struct map_plan){"saved", &plan, plan.set->offsets}));
    FILE *full = fopen("/dev/full", "w");
    if (full != NULL) {
        setvbuf(full, NULL, _IONBF, 0);
        assert_false(map_svg_write(&view, 1, full));
        fclose(full);
    }
    map_view_fini(&view);
    view_plan_free(&plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_view), cmocka_unit_test(test_formats), cmocka_unit_test(test_curve), cmocka_unit_test(test_full)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
