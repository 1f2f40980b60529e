// SPDX-License-Identifier: MIT
// plot.c: the frame of a plot (plot.h).

#include "plot/plot.h"

#include <math.h>

void plot_begin(FILE *file, double height, const char *label) {
    fprintf(file,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n"
        "<style>text{font:11px system-ui,Helvetica,Arial,sans-serif;fill:#5b6570}.t{font-size:15px;font-weight:600;fill:#1c2329}"
        ".bg{fill:#fff}.g{stroke:#8b95a0;stroke-opacity:.22}.e{fill:none;stroke:#3b6fb6;stroke-opacity:.35}"
        ".m{fill:none;stroke:#3b6fb6;stroke-width:2}.b{fill:none;stroke:#c4342b;stroke-dasharray:5 3}.v{fill:#c4342b}"
        "@media(prefers-color-scheme:dark){text{fill:#9aa5b1}.t{fill:#e6ebf0}.bg{fill:#12161b}.e,.m{stroke:#5b8fd6}"
        ".b{stroke:#ff7a6e}.v{fill:#ff7a6e}}"
        "</style>\n<rect class=\"bg\" width=\"%.0f\" height=\"%.0f\"/>\n",
        PLOT_WIDTH, height, label, PLOT_WIDTH, height);
}

void plot_end(FILE *file) {
    fputs("</svg>\n", file);
}

void plot_title(FILE *file, const struct plot *p, const char *title) {
    fprintf(file, "<text class=\"t\" x=\"%.0f\" y=\"%.0f\">%s</text>\n", PLOT_LEFT, p->top + 26, title);
}

void plot_key(FILE *file, const struct plot *p, double n_from_right, const char *line_class, const char *text) {
    const double x = PLOT_WIDTH - PLOT_RIGHT - n_from_right;
    fprintf(file, "<path class=\"%s\" d=\"M%.0f %.0fh24\"/><text x=\"%.0f\" y=\"%.0f\">%s</text>\n", line_class, x, p->top + 22,
        x + 30, p->top + 26, text);
}

double plot_x(const struct plot *p, double x) {
    const double part = p->last > p->first ? (x - p->first) / (p->last - p->first) : 0.5;
    return PLOT_LEFT + (PLOT_WIDTH - PLOT_LEFT - PLOT_RIGHT) * part;
}

double plot_y(const struct plot *p, double y) {
    return p->top + PLOT_TOP + (p->height - PLOT_TOP - PLOT_BOTTOM) * (p->highest - y) / (p->highest - p->lowest);
}

double plot_step(double span, double n) {
    static const double ones[] = {1, 2, 5};
    for (double unit = 1e-9;; unit *= 10) {
        for (int i = 0; i < 3; i++) {
            if (span / (unit * ones[i]) <= n || unit > 1e30) {
                return unit * ones[i];
            }
        }
    }
}

void plot_range(struct plot *p, double lowest, double highest) {
    const double step = plot_step(fmax(highest - lowest, 1e-3), 8);
    p->lowest = step * floor(lowest / step);
    p->highest = fmax(step * ceil(highest / step), p->lowest + step);
}

void plot_grid(FILE *file, const struct plot *p) {
    const double step = plot_step(p->highest - p->lowest, 8);
    for (double y = p->lowest; y <= p->highest + step / 2; y += step) {
        const double shown = fabs(y) < step / 2 ? 0 : y;
        fprintf(file, "<path class=\"g\" d=\"M%.0f %.1fH%.0f\"/><text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
            PLOT_LEFT, plot_y(p, y), PLOT_WIDTH - PLOT_RIGHT, PLOT_LEFT - 8, plot_y(p, y) + 4, shown);
    }
}

void plot_tick(FILE *file, const struct plot *p, double x, const char *text) {
    const double low = p->top + p->height - PLOT_BOTTOM;
    fprintf(file, "<path class=\"g\" d=\"M%.1f %.0fV%.0f\"/><text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n",
        plot_x(p, x), p->top + PLOT_TOP, low, plot_x(p, x), low + 18, text);
}

void plot_name_x(FILE *file, const struct plot *p, const char *name) {
    fprintf(file, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>\n", (PLOT_LEFT + PLOT_WIDTH - PLOT_RIGHT) / 2,
        p->top + p->height - 8, name);
}
