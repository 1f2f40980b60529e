// SPDX-License-Identifier: MIT
// sizing.h: what each device needs of the pieces of memory that a plan has.
#pragma once

#include "alloc/lifetime.h"
#include "meta/meta.h"

struct meta_sizing {
    const struct meta_device *device;
    struct record *rec; // of the graph; its pieces are the items
    const struct lifetimes *lives;
    const struct berth_layout_params *params;
    uint64_t *sizes; // [n * n_items], zeroed: bytes of item i on device j at j * n_items + i
};

// Fills sizes for the items of the pool.
enum ggml_status meta_sizing_run(struct meta_sizing *s) BERTH_MUST_USE;
