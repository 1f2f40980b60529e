// SPDX-License-Identifier: MIT
// map_html.c: writes the memory map as one HTML file: the page of src/view/page, and the plans as JSON, which the page's scripts
// draw.

#include "base/base.h"
#include "base/json.h"
#include "view/map.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

// The files of src/view/page; cmake/embed.cmake compiles them into the program.
extern const char map_page_html[], map_page_css[], map_page_model_js[], map_page_draw_js[], map_page_main_js[];

// ---- data: one array per column ----

#define COLUMN(file, key, n, format, value) \
    do { \
        fputs("\"" key "\":[", file); \
        for (size_t i = 0; i < (n); i++) { \
            fprintf(file, i > 0 ? "," format : format, value); \
        } \
        fputs("],\n", file); \
    } while (0)

// field: byte offset of the text in struct map_rect.
static void write_texts(FILE *file, const char *key, const struct map_view *view, size_t field) {
    fprintf(file, "\"%s\":[", key);
    for (size_t i = 0; i < view->n_rects; i++) {
        const char *text;
        memcpy(&text, (const char *) &view->rects[i] + field, sizeof text);
        fputs(i > 0 ? "," : "", file);
        berth_json_write_string(text, file);
    }
    fputs("],\n", file);
}

static void write_buffers(FILE *file, const struct map_view *view) {
    fputs("\"buffers\":[", file);
    for (size_t b = 0; b < view->n_buffers; b++) {
        const struct map_buffer *buffer = &view->buffers[b];
        fputs(b > 0 ? ",\n{\"name\":" : "{\"name\":", file);
        berth_json_write_string(buffer->name, file);
        fprintf(file, ",\"items\":%zu,\"peak\":%" PRIu64 ",\"bound\":%" PRIu64 ",\"boundStep\":%" PRId64 "}", buffer->n_items,
            buffer->peak, buffer->bound, buffer->bound_step);
    }
    fputs("],\n", file);
}

static void write_view(FILE *file, const struct map_view *view) {
    const struct map_item *items = view->items;
    const struct map_rect *rects = view->rects;
    fputs("{\"title\":", file);
    berth_json_write_string(view->title, file);
    fprintf(file, ",\"first\":%" PRId64 ",\"last\":%" PRId64 ",\"peak\":%" PRIu64 ",\"bound\":%" PRIu64 ",\"hasOps\":%s,\n",
        view->first, view->last, view->peak, view->bound, view->has_ops ? "true" : "false");
    write_buffers(file, view);
    fputs("\"items\":{\n", file);
    COLUMN(file, "first", view->n_items, "%" PRId64, items[i].first);
    COLUMN(file, "last", view->n_items, "%" PRId64, items[i].last);
    COLUMN(file, "size", view->n_items, "%" PRIu64, items[i].size);
    COLUMN(file, "at", view->n_items, "%" PRIu64, items[i].at);
    COLUMN(file, "align", view->n_items, "%" PRIu64, items[i].align);
    COLUMN(file, "buffer", view->n_items, "%zu", items[i].buffer);
    COLUMN(file, "fixed", view->n_items, "%d", items[i].is_fixed);
    fputs("\"n\":", file);
    fprintf(file, "%zu},\n\"tensors\":{\n", view->n_items);
    write_texts(file, "name", view, offsetof(struct map_rect, name));
    write_texts(file, "op", view, offsetof(struct map_rect, op));
    write_texts(file, "type", view, offsetof(struct map_rect, type));
    write_texts(file, "uses", view, offsetof(struct map_rect, uses));
    COLUMN(file, "item", view->n_rects, "%zu", rects[i].item);
    COLUMN(file, "first", view->n_rects, "%" PRId64, rects[i].first);
    COLUMN(file, "last", view->n_rects, "%" PRId64, rects[i].last);
    COLUMN(file, "family", view->n_rects, "%d", rects[i].family);
    fputs("\"shape\":[", file);
    for (size_t i = 0; i < view->n_rects; i++) {
        const int64_t *ne = rects[i].ne;
        fprintf(file, "%s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]", i > 0 ? "," : "", ne[0], ne[1], ne[2], ne[3]);
    }
    fprintf(file, "],\n\"n\":%zu}}\n", view->n_rects);
}

static void write_data(FILE *file, const struct map_view *views, size_t n_views) {
    fputs("{\"families\":[", file);
    for (int f = 0; f < map_n_families; f++) {
        fprintf(file, "%s{\"name\":\"%s\",\"light\":\"%s\",\"dark\":\"%s\"}", f > 0 ? "," : "", map_families[f].name,
            map_families[f].light, map_families[f].dark);
    }
    fputs("],\n\"plans\":[\n", file);
    for (size_t i = 0; i < n_views; i++) {
        fputs(i > 0 ? "," : "", file);
        write_view(file, &views[i]);
    }
    fputs("]}", file);
}

// Escapes every '<', so that a name cannot end the script element. Only strings contain '<'.
static bool write_safely(FILE *file, const struct map_view *views, size_t n_views) {
    struct berth_stream data;
    if (!berth_stream_open(&data)) {
        return false;
    }
    write_data(data.file, views, n_views);
    if (!berth_stream_close(&data)) {
        return false;
    }
    for (size_t i = 0; i < data.size;) {
        const char *bracket = memchr(data.text + i, '<', data.size - i);
        const size_t n = bracket != NULL ? (size_t) (bracket - data.text) - i : data.size - i;
        fwrite(data.text + i, 1, n, file);
        fputs(bracket != NULL ? "\\u003c" : "", file);
        i += n + (bracket != NULL);
    }
    berth_stream_fini(&data);
    return true;
}

// ---- page: the marks @TITLE@, @STYLE@, @SCRIPT@ and @DATA@ in the HTML are replaced ----

static void write_title(FILE *file, const struct map_view *views, size_t n_views) {
    for (const char *p = views[n_views - 1].title; *p != '\0'; p++) {
        const bool is_plain = (unsigned char) *p >= 0x20 && *p != 0x7f && strchr("<>&\"", *p) == NULL;
        fputc(is_plain ? *p : '_', file);
    }
}

static bool is_mark(const char *text, size_t n, const char *mark) {
    return n == strlen(mark) && memcmp(text, mark, n) == 0;
}

bool map_html_write(const struct map_view *views, size_t n_views, FILE *file) {
    bool ok = true;
    const char *p = map_page_html;
    for (const char *mark; (mark = strchr(p, '@')) != NULL;) {
        const char *end = strchr(mark + 1, '@');
        const size_t n = end != NULL ? (size_t) (end - mark) + 1 : 1;
        fwrite(p, 1, (size_t) (mark - p), file);
        if (is_mark(mark, n, "@TITLE@")) {
            write_title(file, views, n_views);
        } else if (is_mark(mark, n, "@STYLE@")) {
            fputs(map_page_css, file);
        } else if (is_mark(mark, n, "@SCRIPT@")) {
            fputs(map_page_model_js, file);
            fputs(map_page_draw_js, file);
            fputs(map_page_main_js, file);
        } else if (is_mark(mark, n, "@DATA@")) {
            ok = write_safely(file, views, n_views) && ok;
        }
        p = mark + n;
    }
    fputs(p, file);
    return ok && !ferror(file);
}
