// SPDX-License-Identifier: MIT
// map_svg.c: writes the memory map as SVG: one panel per buffer of each plan. All panels have the same time axis. Compared plans
// have the same scale of addresses. A curve below each map shows the live bytes.

#include "base/base.h"
#include "base/min.h"
#include "view/map.h"

#include "berth-budget-graph.h"

#include <inttypes.h>
#include <string.h>

#define LEFT 92.0
#define WIDTH 1000.0
#define RIGHT 20.0
#define HEAD 78.0    // title and legend
#define PANEL 400.0  // height of a map if there is only one
#define PANELS 260.0 // height of each of several maps
#define LIVE 56.0    // height of the curve of live bytes
#define DROP 16.0    // distance from the map to the curve
#define GAP 30.0     // between panels, for their captions

struct scale {
    int64_t first;     // step at the left edge
    double x_step;     // width of a step
    double y0, y_byte; // y of an address: y0 - address * y_byte
    double height;     // of the map
};

// Steps range from -2^62 to 2^62, so the difference may exceed INT64_MAX.
static double steps_between(int64_t from, int64_t to) {
    return (double) ((uint64_t) to - (uint64_t) from);
}

static double step_x(const struct scale *s, int64_t step) {
    return LEFT + steps_between(s->first, step) * s->x_step;
}

// ---- text ----

static void write_text(FILE *file, const char *text) {
    for (const unsigned char *p = (const unsigned char *) text; *p != '\0'; p++) {
        switch (*p) {
            case '<': fputs("&lt;", file); break;
            case '>': fputs("&gt;", file); break;
            case '&': fputs("&amp;", file); break;
            case '"': fputs("&quot;", file); break;
            default: // names may contain any byte, XML may not
                fputc(*p >= 0x20 && *p < 0x7f ? *p : '?', file);
        }
    }
}

// Formats bytes, such as "2.03 MiB". `like` determines the unit.
static const char *bytes_like(double size, double like, char text[32]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = 0;
    for (; like >= 1024 && unit < 6; unit++) {
        like /= 1024;
        size /= 1024;
    }
    snprintf(text, 32, size == (double) (int64_t) size ? "%.0f %s" : "%.2f %s", size, units[unit]);
    return text;
}

static const char *bytes_text(uint64_t size, char text[32]) {
    return bytes_like((double) size, (double) size, text);
}

// Returns the smallest of 1, 2, 5, 10, 20, ... that divides span into at most n_max pieces. by_two: of 1, 2, 4, 8, ...
static double nice_step(double span, double n_max, bool by_two) {
    static const double tens[] = {1, 2, 5};
    for (double unit = 1;; unit *= by_two ? 2 : 10) {
        for (int i = 0; i < (by_two ? 1 : 3); i++) {
            if (span / (unit * tens[i]) <= n_max) {
                return unit * tens[i];
            }
        }
    }
}

// ---- parts ----

static void write_style(FILE *file) {
    fputs(
        "<style>\n"
        "text{font:11px system-ui,Helvetica,Arial,sans-serif;fill:#5b6570}.t{font-size:17px;font-weight:600;fill:#1c2329}\n"
        ".c{font-size:12px;font-weight:600;fill:#1c2329}.bg{fill:#fff}.g{stroke:#8b95a0;stroke-opacity:.22}.n{fill:#fff;pointer-"
        "events:none}\n"
        ".peak{stroke:#c4342b;stroke-width:1.5}.bound{stroke:#1c2329;stroke-width:1.5;stroke-dasharray:6 4}\n"
        ".lp{fill:#c4342b;font-weight:600}.lb{fill:#1c2329;font-weight:600}.live{fill:#3b6fb6;fill-opacity:.22;stroke:#3b6fb6}\n"
        ".again{fill:url(#again);pointer-events:none}.moved{fill:url(#moved);pointer-events:none}.h{paint-order:stroke;stroke:#"
        "fff;stroke-width:3px}.r{stroke:#fff;stroke-"
        "width:.6}\n",
        file);
    for (int f = 0; f < map_n_families; f++) {
        fprintf(file, ".f%d{fill:%s}", f, map_families[f].light);
    }
    fputs("\n@media(prefers-color-scheme:dark){text{fill:#9aa5b1}.t,.c,.lb{fill:#e6ebf0}.bg{fill:#12161b}.n{fill:#0c1014}.h{"
          "stroke:#12161b}\n"
          ".r{stroke:#12161b}.peak{stroke:#ff7a6e}.lp{fill:#ff7a6e}.bound{stroke:#e6ebf0}.live{fill:#5b8fd6;stroke:#5b8fd6}\n",
        file);
    for (int f = 0; f < map_n_families; f++) {
        fprintf(file, ".f%d{fill:%s}", f, map_families[f].dark);
    }
    fputs("}\n</style>\n<defs><pattern id=\"again\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
          "patternTransform=\"rotate(45)\"><path d=\"M0 0V5\" stroke=\"#fff\" stroke-width=\"2.4\" stroke-opacity=\".75\"/>"
          "</pattern><pattern id=\"moved\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><circle cx=\"3\" cy=\"3\" "
          "r=\"1.5\" fill=\"#fff\" fill-opacity=\".85\"/></pattern></defs>\n",
        file);
}

// Patterns that mark values which are recomputed or spilled because of a memory limit.
static const struct { const char *class, *text; } marks[] = {{"again", "recomputed"}, {"moved", "spilled"}};
enum { N_MARKS = sizeof marks / sizeof *marks };

static bool has_mark(const struct map_rect *r, int mark) {
    return mark == 0
               ? berth_ends_with(r->name, BERTH_BUDGET_SUFFIX_RECOMPUTED)
               : berth_ends_with(r->name, BERTH_BUDGET_SUFFIX_SPILLED) || berth_ends_with(r->name, BERTH_BUDGET_SUFFIX_RESTORED);
}

// Returns true if the rectangle needs entry i of the legend. i: a family of ops; from map_n_families on, a mark.
static bool has_legend(const struct map_view *view, const struct map_rect *r, int i) {
    return i < map_n_families ? view->has_ops && r->family == i : has_mark(r, i - map_n_families);
}

static void write_legend(FILE *file, const struct map_view *views, size_t n_views) {
    double x = LEFT;
    for (int f = 0; f < map_n_families + N_MARKS; f++) {
        bool is_there = false;
        for (size_t v = 0; v < n_views && !is_there; v++) {
            for (size_t i = 0; i < views[v].n_rects && !is_there; i++) {
                is_there = has_legend(&views[v], &views[v].rects[i], f);
            }
        }
        if (!is_there) {
            continue;
        }
        const bool is_mark = f >= map_n_families;
        const char *text = is_mark ? marks[f - map_n_families].text : map_families[f].name;
        fprintf(file, "<rect class=\"f%d\" x=\"%.0f\" y=\"56\" width=\"11\" height=\"11\" rx=\"2\"/>", is_mark ? 0 : f, x);
        if (is_mark) {
            fprintf(
                file, "<rect class=\"%s\" x=\"%.0f\" y=\"56\" width=\"11\" height=\"11\"/>", marks[f - map_n_families].class, x);
        }
        fprintf(file, "<text x=\"%.0f\" y=\"66\">%s</text>\n", x + 16, text);
        x += 38 + 5.6 * (double) strlen(text);
    }
}

static void write_axes(FILE *file, const struct scale *s, const struct map_view *view, uint64_t top, bool with_steps) {
    char text[32];
    const double step = nice_step((double) top, 6, true);
    for (int i = 0; i <= 6 && i * step <= (double) top; i++) {
        const double a = i * step, y = s->y0 - a * s->y_byte;
        fprintf(file, "<path class=\"g\" d=\"M%.0f %.1fH%.0f\"/><text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
            LEFT, y, LEFT + WIDTH, LEFT - 8, y + 4, i == 0 ? "0" : bytes_like(a, (double) top, text));
    }
    const int64_t tick = (int64_t) nice_step(steps_between(view->first, view->last) + 1, 16, false);
    const int64_t rest = view->first % tick; // has the sign of view->first
    for (int64_t k = view->first + (rest > 0 ? tick - rest : -rest); k <= view->last + 1; k += tick) {
        const double x = step_x(s, k);
        fprintf(file, "<path class=\"g\" d=\"M%.1f %.1fV%.1f\"/>", x, s->y0 - s->height, s->y0 + DROP + LIVE);
        if (with_steps) {
            fprintf(
                file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%" PRId64 "</text>\n", x, s->y0 + DROP + LIVE + 16, k);
        }
    }
}

static void write_label(FILE *file, const char *name, double x, double y, double w, double h) {
    const double length = 6.0 * (double) strlen(name) + 6;
    if (h >= 12 && w >= length) {
        fprintf(file, "<text class=\"n\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", x + w / 2, y + h / 2 + 4);
    } else if (w >= 13 && h >= length) {
        fprintf(file, "<text class=\"n\" transform=\"translate(%.1f %.1f)rotate(-90)\" text-anchor=\"middle\">", x + w / 2 + 4,
            y + h / 2);
    } else {
        return;
    }
    write_text(file, name);
    fputs("</text>", file);
}

static void write_rect(FILE *file, const struct scale *s, const struct map_view *view, const struct map_rect *r, size_t i) {
    const struct map_item *item = &view->items[r->item];
    const double x = step_x(s, r->first), w = (steps_between(r->first, r->last) + 1) * s->x_step;
    const double y = s->y0 - ((double) item->at + (double) item->size) * s->y_byte, h = (double) item->size * s->y_byte;
    char text[32];
    // Without ops, the colours only distinguish neighbours.
    const int colour = view->has_ops ? r->family : (int) (i % 10);
    fprintf(file, "<g><title>");
    write_text(file, r->name);
    if (r->op[0] != '\0') {
        fputs(", ", file);
        write_text(file, r->op);
        fputc(' ', file);
        write_text(file, r->type);
        fprintf(file, " [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]", r->ne[0], r->ne[1], r->ne[2], r->ne[3]);
    }
    fprintf(file, ": %s at %" PRIu64 ", steps %" PRId64 " to %" PRId64 "</title>", bytes_text(item->size, text), item->at,
        r->first, r->last);
    // Small rectangles have no borders.
    fprintf(file, "<rect class=\"%sf%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", w >= 4 && h >= 4 ? "r " : "",
        colour, x, y, max_f64(w, 0.4), max_f64(h, 0.4));
    for (int m = 0; m < N_MARKS; m++) {
        if (has_mark(r, m)) {
            fprintf(file, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", marks[m].class, x, y,
                max_f64(w, 0.4), max_f64(h, 0.4));
        }
    }
    write_label(file, r->name, x, y, w, h);
    fputs("</g>\n", file);
}

static void write_lines(FILE *file, const struct scale *s, const struct map_buffer *b) {
    const double peak = s->y0 - (double) b->peak * s->y_byte, bound = s->y0 - (double) b->bound * s->y_byte;
    const double at = LEFT + WIDTH - 6;
    char text[32];
    const bool is_same = b->peak == b->bound;
    fprintf(file, "<path class=\"peak\" d=\"M%.0f %.1fH%.0f\"/>", LEFT, peak, LEFT + WIDTH);
    fprintf(file, "<text class=\"lp h\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">peak %s%s</text>\n", at, peak - 5,
        bytes_text(b->peak, text), is_same ? " = bound: proven optimal" : "");
    if (!is_same) {
        fprintf(file, "<path class=\"bound\" d=\"M%.0f %.1fH%.0f\"/>", LEFT, bound, LEFT + WIDTH);
        fprintf(file, "<text class=\"lb h\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">bound %s</text>\n", at, bound + 13,
            bytes_text(b->bound, text));
    }
}

static bool write_live(FILE *file, const struct scale *s, const struct map_view *view, size_t buffer) {
    size_t n;
    struct map_live *live = map_view_live(view, buffer, &n);
    const double base = s->y0 + DROP + LIVE;
    uint64_t most = 1;
    char text[32];
    if (live == NULL) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        most = max_u64(most, live[i].bytes);
    }
    for (size_t i = 0; i < n; i++) {
        const double x = step_x(s, live[i].step), y = base - (double) live[i].bytes / (double) most * LIVE;
        fprintf(file, i == 0 ? "<path class=\"live\" d=\"M%.1f %.1fV%.1f" : "H%.1fV%.1f", x, i == 0 ? base : y, y);
    }
    fputs(n > 0 ? "Z\"/>\n" : "", file);
    fprintf(file,
        "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">alive</text><text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
        LEFT - 8, base, LEFT - 8, base - LIVE + 8, bytes_text(most, text));
    berth_free(live);
    return true;
}

static void write_caption(FILE *file, const struct map_view *views, size_t n_views, size_t v, size_t b, double y) {
    const struct map_view *view = &views[v];
    if (n_views == 1 && view->n_buffers < 2) {
        return;
    }
    fprintf(file, "<text class=\"c\" x=\"%.0f\" y=\"%.1f\">", LEFT, y);
    if (n_views > 1) {
        fputs(v == 0 ? "before: " : "after: ", file);
        write_text(file, view->title);
    }
    if (view->n_buffers > 1) {
        fprintf(file, "%sbuffer %zu ", n_views > 1 ? ", " : "", b);
        write_text(file, view->buffers[b].name);
    }
    fputs("</text>\n", file);
}

// ---- the picture ----

struct panel {
    size_t v, b;
    double y, height;
    bool is_last;
};

static bool write_panel(FILE *file, const struct map_view *views, size_t n_views, const struct panel *p) {
    const struct map_view *view = &views[p->v];
    const size_t b = p->b;
    int64_t first = view->first, last = view->last;
    uint64_t top = 1;
    for (size_t k = 0; k < n_views; k++) { // compared plans have the same scale
        first = min_i64(first, views[k].first);
        last = max_i64(last, views[k].last);
        if (b < views[k].n_buffers) {
            top = max_u64(top, views[k].buffers[b].peak);
        }
    }
    const double x_step = WIDTH / (steps_between(first, last) + 1);
    const struct scale s = {first, x_step, p->y + p->height, (p->height - 14) / (double) top, p->height};
    write_caption(file, views, n_views, p->v, b, p->y - 6);
    write_axes(file, &s, view, top, p->is_last);
    for (size_t k = 0; k < view->buffers[b].n_items && !ferror(file); k++) {
        const size_t i = view->buffers[b].items[k];
        for (size_t r = view->items[i].rect; r < view->n_rects && view->rects[r].item == i && view->items[i].size > 0; r++) {
            write_rect(file, &s, view, &view->rects[r], r);
        }
    }
    write_lines(file, &s, &view->buffers[b]);
    return write_live(file, &s, view, b);
}

static void write_title(FILE *file, const struct map_view *views, size_t n_views) {
    const struct map_view *view = &views[n_views - 1];
    char peak[32], bound[32];
    fprintf(file, "<text class=\"t\" x=\"%.0f\" y=\"28\">", LEFT);
    write_text(file, view->title);
    fprintf(file, "</text>\n<text x=\"%.0f\" y=\"46\">%zu tensors in %zu pieces of memory, peak %s, bound %s", LEFT,
        view->n_rects, view->n_items, bytes_text(view->peak, peak), bytes_text(view->bound, bound));
    if (n_views > 1 && views[0].peak > 0) {
        fprintf(file, "; before: peak %s, %+.2f%%", bytes_text(views[0].peak, peak),
            100 * ((double) view->peak / (double) views[0].peak - 1));
    }
    fputs("</text>\n", file);
}

bool map_svg_write(const struct map_view *views, size_t n_views, FILE *file) {
    size_t n_panels = 0, i_panel = 0;
    bool ok = true;
    for (size_t v = 0; v < n_views; v++) {
        n_panels += views[v].n_buffers;
    }
    const double head = views[n_views - 1].has_ops ? HEAD : HEAD - 20; // without ops there is no legend
    const double panel = n_panels > 1 ? PANELS : PANEL, pitch = panel + DROP + LIVE + GAP;
    const double height = head + GAP / 2 + (double) n_panels * pitch + 16;
    fprintf(file, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\">\n", LEFT + WIDTH + RIGHT, height);
    write_style(file);
    fputs("<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n", file);
    write_title(file, views, n_views);
    write_legend(file, views, n_views);
    for (size_t b = 0; i_panel < n_panels; b++) {
        for (size_t v = 0; v < n_views; v++) {
            if (b < views[v].n_buffers) {
                const double y = head + GAP / 2 + (double) i_panel++ * pitch;
                ok = write_panel(file, views, n_views, &(struct panel){v, b, y, panel, i_panel == n_panels}) && ok;
            }
        }
    }
    fprintf(file, "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"middle\">step</text></svg>\n", LEFT + WIDTH / 2, height - 4);
    return ok && !ferror(file);
}
