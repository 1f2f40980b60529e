// SPDX-License-Identifier: MIT
// map.h: the memory map of a plan as a picture: address against time, one rectangle a tensor.
#pragma once

#include "view/plan.h"

#include <stdio.h>

struct map_plan {
    const char *title;            // what was planned
    const struct view_plan *plan; // its set and buffers; bounds of their reports are drawn if they are above what is alive
    const uint64_t *offsets;      // a valid plan
};

// ---- map_view.c: what is drawn ----

// One piece of memory.
struct map_item {
    int64_t first, last; // steps, both included
    uint64_t size;
    uint64_t at; // address in the picture: chunks lie close on each other
    uint64_t align;
    size_t buffer; // index in map_view.buffers
    size_t rect;   // the first of its rectangles
    bool is_fixed;
};

// One tensor: an item, or the part of its life in which this tensor lies there.
struct map_rect {
    size_t item;
    const char *name, *op, *type;
    const char *uses; // the steps that read it, split by blanks
    int64_t ne[4];
    int64_t first, last; // steps in which it is drawn
    int family;          // index in map_families
};

struct map_buffer {
    const char *name;
    const size_t *items; // [n_items] indexes in map_view.items; the plan's
    size_t n_items;
    uint64_t peak, bound;
    int64_t bound_step;
};

struct map_view {
    const char *title;
    struct map_item *items;
    size_t n_items;
    struct map_rect *rects; // in the order of items
    size_t n_rects;
    struct map_buffer *buffers;
    size_t n_buffers;
    int64_t first, last; // steps of all items
    uint64_t peak, bound;
    bool has_ops; // colours say something
};

// False: out of memory, or a plan without a bound, with berth_last_error() set.
bool map_view_init(struct map_view *view, const struct map_plan *plan);
void map_view_fini(struct map_view *view);

// Bytes that are alive from a step on, until the next entry's.
struct map_live {
    int64_t step;
    uint64_t bytes;
};
// The curve of one buffer, NULL without memory; the last entry has 0 bytes.
struct map_live *map_view_live(const struct map_view *view, size_t buffer, size_t *n);

// ---- ops by what they do ----

struct map_family {
    const char *name;
    const char *light, *dark; // colours
};
extern const struct map_family map_families[];
extern const int map_n_families;
int map_family_of(const char *op); // "" is an input

// ---- the two formats; false if the stream fails or memory is short ----

bool map_svg_write(const struct map_view *views, size_t n_views, FILE *file);
bool map_html_write(const struct map_view *views, size_t n_views, FILE *file);
