// SPDX-License-Identifier: MIT
// fuzz_map.c: reads the input as a plan and draws it as a memory map. There must be no crash, drawing must end, the SVG must be
// plain ASCII, and in the HTML the data must not contain an end tag of its script element.

#include "fuzz/fuzz.h"
#include "view/map.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BUFFERS 8
#define MAX_ITEMS 256

static void check_svg(const char *text, size_t size) {
    static const char end[] = "</svg>\n";
    expect(size > sizeof end && strcmp(text + size - sizeof end + 1, end) == 0, "the picture has no end tag");
    for (size_t i = 0; i < size; i++) {
        expect(text[i] == '\n' || (text[i] >= 0x20 && text[i] < 0x7f), "the picture has bytes that are not ASCII");
    }
}

static void check_html(const char *text) {
    const char *data = strstr(text, "id=\"data\">");
    expect(data != NULL, "the page has no data");
    const char *end = strchr(data, '<');
    expect(end != NULL && strncmp(end, "</script>", 9) == 0 && end[-1] == '}', "the data ends early");
}

static void draw(const struct map_plan *plan) {
    struct map_view views[2];
    if (!map_view_init(&views[0], plan)) {
        return;
    }
    views[1] = views[0];
    for (size_t n = 1; n <= 2; n++) {
        for (int as_html = 0; as_html < 2; as_html++) {
            char *text = NULL;
            size_t size = 0;
            FILE *file = open_memstream(&text, &size);
            if (file != NULL) {
                expect((as_html ? map_html_write : map_svg_write)(views, n, file), "the picture cannot be written");
                fclose(file);
                as_html ? check_html(text) : check_svg(text, size);
            }
            free(text);
        }
    }
    map_view_fini(&views[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct view_plan plan = {0};
    uint64_t offsets[MAX_ITEMS + 1];
    ggml_log_set(quiet, NULL);
    const bool is_json = size > 0 && data[0] == '{';
    const enum ggml_status status =
        (is_json ? berth_plan_read_json : berth_plan_read_csv)((const char *) data, size, "in", &plan.set);
    if (status == GGML_STATUS_SUCCESS && plan.set->n_items <= MAX_ITEMS && view_plan_buffers(&plan) == GGML_STATUS_SUCCESS &&
        plan.n_buffers <= MAX_BUFFERS) {
        const int64_t n = (int64_t) plan.set->n_items;
        if (plan.set->has_offsets && berth_plan_check(plan.set->items, n, NULL, plan.set->offsets, NULL) == GGML_STATUS_SUCCESS) {
            draw(&(struct map_plan){"in", &plan, plan.set->offsets});
        } else if (berth_plan_solve(plan.set->items, n, NULL, offsets, NULL) == GGML_STATUS_SUCCESS) {
            draw(&(struct map_plan){"<in> & \"out\"", &plan, offsets});
        }
    }
    view_plan_free(&plan);
    return 0;
}
