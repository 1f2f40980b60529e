// SPDX-License-Identifier: MIT
// plot.h: the frame of a plot as SVG, in light and dark colours: title, axes and grid. Callers draw the lines: class "m" is the main
// line, "e" a faint one, "b" a bound, "v" a mark.
#pragma once

#include <stdio.h>

#define PLOT_WIDTH 900.0
#define PLOT_LEFT 64.0
#define PLOT_RIGHT 24.0
#define PLOT_TOP 48.0
#define PLOT_BOTTOM 48.0

// A frame of the picture, `top` units below its upper edge.
struct plot {
    double top, height;
    double first, last;     // values at the left and right edge
    double lowest, highest; // values at the lower and upper edge
};

void plot_begin(FILE *file, double height, const char *label);
void plot_end(FILE *file);
void plot_title(FILE *file, const struct plot *p, const char *title);
// Writes an entry of the legend, n_from_right units left of the right edge: a line of the class.
void plot_key(FILE *file, const struct plot *p, double n_from_right, const char *line_class, const char *text);

double plot_x(const struct plot *p, double x);
double plot_y(const struct plot *p, double y);
// Returns the smallest of ..., 0.1, 0.2, 0.5, 1, 2, 5, ... that divides span into at most n pieces.
double plot_step(double span, double n);
// Sets the lower and upper edge, so that all values from lowest to highest are inside and a line of the grid is at both edges.
void plot_range(struct plot *p, double lowest, double highest);
// Draws the lines of the grid for y and their numbers.
void plot_grid(FILE *file, const struct plot *p);
// Draws a line of the grid for x, and the text below it.
void plot_tick(FILE *file, const struct plot *p, double x, const char *text);
void plot_name_x(FILE *file, const struct plot *p, const char *name);
