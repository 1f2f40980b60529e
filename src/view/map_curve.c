// SPDX-License-Identifier: MIT
// map_curve.c: draws the curve of a search as SVG: peak and bound over time, one plot per buffer.

#include "plot/plot.h"
#include "view/map.h"

#include <inttypes.h>
#include <math.h>

#define HEIGHT 320.0

// The time axis is logarithmic.
static double time_at(int64_t us) {
    return log10(fmax((double) us, 1));
}

// Values are in percent above the highest bound.
static double percent_of(uint64_t bytes, uint64_t bound) {
    return bound > 0 ? 100 * ((double) bytes / (double) bound - 1) : 0;
}

static struct plot frame_of(const struct view_buffer *b, double top) {
    const uint64_t bound = b->curve[b->n_curve - 1].bound;
    struct plot p = {.top = top, .height = HEIGHT};
    p.last = time_at(b->curve[b->n_curve - 1].us);
    p.first = fmin(time_at(b->curve[0].us), p.last - 1);
    plot_range(&p, percent_of(b->curve[0].bound, bound), percent_of(b->curve[0].peak, bound));
    return p;
}

static void write_times(FILE *file, const struct plot *p) {
    static const char *const names[] = {"1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s", "1000 s"};
    for (int k = (int) ceil(p->first); k <= (int) floor(p->last) && k < (int) (sizeof names / sizeof *names); k++) {
        if (k >= 0) {
            plot_tick(file, p, k, names[k]);
        }
    }
    plot_name_x(file, p, "time of the search");
}

// Draws the steps of the peak or of the bound.
static void write_line(FILE *file, const struct plot *p, const struct view_buffer *b, bool is_peak) {
    const uint64_t bound = b->curve[b->n_curve - 1].bound;
    fprintf(file, "<path class=\"%s\" d=\"", is_peak ? "m" : "b");
    for (size_t k = 0; k < b->n_curve; k++) {
        const double x = plot_x(p, fmax(time_at(b->curve[k].us), p->first));
        const double y = plot_y(p, percent_of(is_peak ? b->curve[k].peak : b->curve[k].bound, bound));
        fprintf(file, k == 0 ? "M%.1f %.1f" : "H%.1fV%.1f", x, y);
    }
    fputs("\"/>\n", file);
}

static void write_buffer(FILE *file, const struct view_buffer *b, double top) {
    const struct view_point *last = &b->curve[b->n_curve - 1];
    const struct plot p = frame_of(b, top);
    char title[160];
    snprintf(title, sizeof title, "Buffer %" PRId32 ": peak %.2f MiB, %.3g%% above the bound", b->pool,
        (double) last->peak / 1048576, percent_of(last->peak, last->bound));
    plot_title(file, &p, title);
    plot_key(file, &p, 270, "m", "peak, % above the bound");
    plot_key(file, &p, 70, "b", "bound");
    plot_grid(file, &p);
    write_times(file, &p);
    write_line(file, &p, b, false);
    write_line(file, &p, b, true);
}

bool map_curve_write(const struct view_plan *plan, FILE *file) {
    size_t n = 0;
    for (size_t k = 0; k < plan->n_buffers; k++) {
        n += plan->buffers[k].n_curve > 0;
    }
    plot_begin(file, HEIGHT * (double) n, "peak over the time of the search");
    n = 0;
    for (size_t k = 0; k < plan->n_buffers; k++) {
        if (plan->buffers[k].n_curve > 0) {
            write_buffer(file, &plan->buffers[k], HEIGHT * (double) n++);
        }
    }
    plot_end(file);
    return !ferror(file);
}
