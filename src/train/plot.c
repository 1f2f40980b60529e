// SPDX-License-Identifier: MIT
// plot.c: draws the losses of a run as SVG. The thin line is the loss of each step, the thick line its running mean. Points
// are validation losses.

#include "plot/plot.h"
#include "train/train.h"

#include <inttypes.h>
#include <math.h>

#define HEIGHT 420.0
#define MAX_POINTS 2000 // points of a line

static struct plot frame_of(const struct trainer *t) {
    struct plot p = {.height = HEIGHT, .first = 1, .last = (double) t->n_done};
    double lowest = INFINITY, highest = -INFINITY;
    for (int64_t i = 0; i < t->n_done; i++) {
        lowest = fmin(lowest, (double) t->losses[i]);
        highest = fmax(highest, (double) t->losses[i]);
    }
    for (size_t i = 0; i < t->n_evaluations; i++) {
        lowest = fmin(lowest, (double) t->evaluations[i].loss);
        highest = fmax(highest, (double) t->evaluations[i].loss);
    }
    if (lowest <= highest) {
        plot_range(&p, lowest, highest);
    } else {
        plot_range(&p, 0, 1);
    }
    return p;
}

static void write_frame(FILE *file, const struct trainer *t, const struct plot *p) {
    char text[96];
    snprintf(
        text, sizeof text, "Loss over %" PRId64 " steps of %" PRId64 " tokens", t->n_done, t->params.n_seq * t->params.n_ctx);
    plot_begin(file, HEIGHT, "losses of a training run");
    plot_title(file, p, text);
    plot_key(file, p, 260, "m", "running mean");
    if (t->n_evaluations > 0) {
        fprintf(file, "<circle class=\"v\" cx=\"%.0f\" cy=\"22\" r=\"4\"/><text x=\"%.0f\" y=\"26\">validation</text>\n",
            PLOT_WIDTH - PLOT_RIGHT - 110, PLOT_WIDTH - PLOT_RIGHT - 100);
    }
    plot_grid(file, p);
    const double step = fmax(plot_step(p->last, 10), 1);
    for (double x = step; x <= p->last; x += step) {
        snprintf(text, sizeof text, "%.0f", x);
        plot_tick(file, p, x, text);
    }
    plot_name_x(file, p, "step");
}

// Draws the losses, or their running mean if is_mean is set. The running mean has a time constant of a fortieth of the run, so
// long and short runs look equally smooth.
static void write_line(FILE *file, const struct trainer *t, const struct plot *p, bool is_mean) {
    const int64_t every = t->n_done / MAX_POINTS + 1;
    const double keep = exp(-1 / fmax((double) t->n_done / 40, 1));
    double mean = 0, weight = 0;
    fprintf(file, "<path class=\"%s\" d=\"", is_mean ? "m" : "e");
    for (int64_t i = 0; i < t->n_done; i++) {
        mean = keep * mean + (1 - keep) * (double) t->losses[i];
        weight = keep * weight + (1 - keep);
        if (i % every == 0 || i + 1 == t->n_done) {
            fprintf(file, "%s%.1f %.1f", i == 0 ? "M" : "L", plot_x(p, (double) i + 1),
                plot_y(p, is_mean ? mean / weight : (double) t->losses[i]));
        }
    }
    fputs("\"/>\n", file);
}

bool train_plot_write(const struct trainer *t, FILE *file) {
    const struct plot p = frame_of(t);
    write_frame(file, t, &p);
    write_line(file, t, &p, false);
    write_line(file, t, &p, true);
    for (size_t i = 0; i < t->n_evaluations; i++) {
        fprintf(file, "<circle class=\"v\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>step %" PRId64 ": %.4f</title></circle>\n",
            plot_x(&p, fmax((double) t->evaluations[i].step, 1)), plot_y(&p, (double) t->evaluations[i].loss),
            t->evaluations[i].step, (double) t->evaluations[i].loss);
    }
    plot_end(file);
    return !ferror(file);
}
