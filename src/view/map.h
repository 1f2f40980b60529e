// SPDX-License-Identifier: MIT
// map.h: the memory map of a plan as a picture: addresses over time, one rectangle per tensor.
#pragma once

#include "view/plan.h"

#include <stdio.h>

struct map_plan {
    const char *title; // name of the plan
    // Items and buffers of the plan. After a search, the bounds in its reports may be higher than the live bytes.
    const struct view_plan *plan;
    const uint64_t *offsets; // [n_items] valid offsets
};

// ---- map_view.c: the objects that are drawn ----

struct map_item {
    int64_t first, last; // steps, inclusive
    uint64_t size;
    uint64_t at; // address in the picture; chunks follow each other
    uint64_t align;
    size_t buffer; // index in map_view.buffers
    size_t rect;   // index of its first rectangle
    bool is_fixed;
};

// The rectangle of one tensor: the bytes of an item, at the steps during which the tensor occupies the item.
struct map_rect {
    size_t item;
    const char *name, *op, *type;
    const char *uses; // numbers of the steps that read the tensor, separated by blanks
    int64_t ne[4];
    int64_t first, last; // steps that the rectangle covers, inclusive
    int family;          // index in map_families
};

struct map_buffer {
    const char *name;
    const size_t *items; // [n_items] indices into map_view.items; owned by the plan
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
    int64_t first, last; // first and last step of all items
    uint64_t peak, bound;
    bool has_ops; // the plan names ops, so colours distinguish families of ops
};

// False with berth_last_error(): out of memory, or the plan has no bound.
bool map_view_init(struct map_view *view, const struct map_plan *plan);
void map_view_fini(struct map_view *view);

// One entry of the curve of live bytes: `bytes` are alive from this step on, until the step of the next entry.
struct map_live {
    int64_t step;
    uint64_t bytes;
};
// Returns the curve of live bytes of a buffer; its last entry has 0 bytes. NULL: out of memory.
struct map_live *map_view_live(const struct map_view *view, size_t buffer, size_t *n);

// ---- families of ops ----

struct map_family {
    const char *name;
    const char *light, *dark; // colours
};
extern const struct map_family map_families[];
extern const int map_n_families;
int map_family_of(const char *op); // index in map_families; op "" means an input

// ---- the two file formats; both functions return false if writing fails or memory runs out ----

bool map_svg_write(const struct map_view *views, size_t n_views, FILE *file);
bool map_html_write(const struct map_view *views, size_t n_views, FILE *file);

// ---- map_curve.c ----

// Draws peak and bound over the time of the search, for each buffer that was planned. Returns false if writing fails.
bool map_curve_write(const struct view_plan *plan, FILE *file);
