// SPDX-License-Identifier: MIT
// plot.c: draws the losses of a run as SVG. The thin line is the loss of each step, the thick line its running mean. Points
// are validation losses.

#include "train/train.h"

#include <inttypes.h>
#include <math.h>

#define WIDTH 900.0
#define HEIGHT 420.0
#define LEFT 64.0
#define RIGHT 24.0
#define TOP 48.0
#define BOTTOM 48.0
#define MAX_POINTS 2000 // points of a line

struct frame {
    double lowest, highest; // losses at the lower and upper edge
    int64_t n_steps;        // from left to right
};

static double x_of(const struct frame *f, double step) {
    return LEFT + (WIDTH - LEFT - RIGHT) * (f->n_steps > 1 ? (step - 1) / (double) (f->n_steps - 1) : 0.5);
}

static double y_of(const struct frame *f, double loss) {
    return TOP + (HEIGHT - TOP - BOTTOM) * (f->highest - loss) / (f->highest - f->lowest);
}

// Returns the smallest of ..., 0.1, 0.2, 0.5, 1, 2, 5, ... that divides span into at most n pieces.
static double nice_step(double span, double n) {
    static const double ones[] = {1, 2, 5};
    for (double unit = 1e-9;; unit *= 10) {
        for (int i = 0; i < 3; i++) {
            if (span / (unit * ones[i]) <= n || unit > 1e30) {
                return unit * ones[i];
            }
        }
    }
}

static struct frame frame_of(const struct trainer *t) {
    struct frame f = {.lowest = INFINITY, .highest = -INFINITY, .n_steps = t->n_done};
    for (int64_t i = 0; i < t->n_done; i++) {
        f.lowest = fmin(f.lowest, (double) t->losses[i]);
        f.highest = fmax(f.highest, (double) t->losses[i]);
    }
    for (size_t i = 0; i < t->n_evaluations; i++) {
        f.lowest = fmin(f.lowest, (double) t->evaluations[i].loss);
        f.highest = fmax(f.highest, (double) t->evaluations[i].loss);
    }
    if (!(f.lowest <= f.highest)) {
        f.lowest = 0;
        f.highest = 1;
    }
    const double step = nice_step(fmax(f.highest - f.lowest, 1e-3), 8);
    f.lowest = step * floor(f.lowest / step);
    f.highest = fmax(step * ceil(f.highest / step), f.lowest + step);
    return f;
}

static void write_head(FILE *file, const struct trainer *t) {
    fprintf(file,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"losses of a training "
        "run\">\n"
        "<style>text{font:11px system-ui,Helvetica,Arial,sans-serif;fill:#5b6570}.t{font-size:15px;font-weight:600;fill:#1c2329}"
        ".bg{fill:#fff}.g{stroke:#8b95a0;stroke-opacity:.22}.e{fill:none;stroke:#3b6fb6;stroke-opacity:.35}"
        ".m{fill:none;stroke:#3b6fb6;stroke-width:2}.v{fill:#c4342b}"
        "@media(prefers-color-scheme:dark){text{fill:#9aa5b1}.t{fill:#e6ebf0}.bg{fill:#12161b}.e,.m{stroke:#5b8fd6}.v{fill:#"
        "ff7a6e}}"
        "</style>\n<rect class=\"bg\" width=\"%.0f\" height=\"%.0f\"/>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
    fprintf(file, "<text class=\"t\" x=\"%.0f\" y=\"26\">Loss over %" PRId64 " steps of %" PRId64 " tokens</text>\n", LEFT,
        t->n_done, t->params.n_seq * t->params.n_ctx);
    fprintf(file, "<path class=\"m\" d=\"M%.0f 22h24\"/><text x=\"%.0f\" y=\"26\">running mean</text>\n", WIDTH - RIGHT - 260,
        WIDTH - RIGHT - 230);
    if (t->n_evaluations > 0) {
        fprintf(file, "<circle class=\"v\" cx=\"%.0f\" cy=\"22\" r=\"4\"/><text x=\"%.0f\" y=\"26\">validation</text>\n",
            WIDTH - RIGHT - 110, WIDTH - RIGHT - 100);
    }
}

static void write_axes(FILE *file, const struct frame *f) {
    const double dy = nice_step(f->highest - f->lowest, 8), dx = fmax(nice_step((double) f->n_steps, 10), 1);
    for (double y = f->lowest; y <= f->highest + dy / 2; y += dy) {
        fprintf(file, "<path class=\"g\" d=\"M%.0f %.1fH%.0f\"/><text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
            LEFT, y_of(f, y), WIDTH - RIGHT, LEFT - 8, y_of(f, y) + 4, y);
    }
    for (double x = dx; x <= (double) f->n_steps; x += dx) {
        fprintf(file, "<path class=\"g\" d=\"M%.1f %.0fV%.0f\"/><text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%.0f</text>\n",
            x_of(f, x), TOP, HEIGHT - BOTTOM, x_of(f, x), HEIGHT - BOTTOM + 18, x);
    }
    fprintf(file, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">step</text>\n", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
}

// Draws the losses, or their running mean if is_mean is set. The running mean has a time constant of a fortieth of the run, so
// long and short runs look equally smooth.
static void write_line(FILE *file, const struct trainer *t, const struct frame *f, bool is_mean) {
    const int64_t every = t->n_done / MAX_POINTS + 1;
    const double keep = exp(-1 / fmax((double) t->n_done / 40, 1));
    double mean = 0, weight = 0;
    fprintf(file, "<path class=\"%s\" d=\"", is_mean ? "m" : "e");
    for (int64_t i = 0; i < t->n_done; i++) {
        mean = keep * mean + (1 - keep) * (double) t->losses[i];
        weight = keep * weight + (1 - keep);
        if (i % every == 0 || i + 1 == t->n_done) {
            fprintf(file, "%s%.1f %.1f", i == 0 ? "M" : "L", x_of(f, (double) i + 1),
                y_of(f, is_mean ? mean / weight : (double) t->losses[i]));
        }
    }
    fputs("\"/>\n", file);
}

bool train_plot_write(const struct trainer *t, FILE *file) {
    const struct frame f = frame_of(t);
    write_head(file, t);
    write_axes(file, &f);
    write_line(file, t, &f, false);
    write_line(file, t, &f, true);
    for (size_t i = 0; i < t->n_evaluations; i++) {
        fprintf(file, "<circle class=\"v\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>step %" PRId64 ": %.4f</title></circle>\n",
            x_of(&f, fmax((double) t->evaluations[i].step, 1)), y_of(&f, (double) t->evaluations[i].loss), t->evaluations[i].step,
            (double) t->evaluations[i].loss);
    }
    fputs("</svg>\n", file);
    return !ferror(file);
}
