// SPDX-License-Identifier: MIT
// berth-alloc.h: what Berth's graph allocator offers beyond ggml-alloc.h: how hard to search, what may share memory, reports
// and checks. Part of berth.h.
#pragma once

#include "berth-plan.h"
#include "ggml-alloc.h"

#ifdef __cplusplus
extern "C" {
#endif

// May node's result take over the memory of its source src[i_src]? Asked only for sources of the same layout that nobody else
// needs any more, and only beyond the ops that ggml itself runs in place.
typedef bool (*berth_inplace_t)(const struct ggml_tensor *node, int i_src, void *user);

struct berth_gallocr_options {
    int64_t budget_us;        // search time of a reserve after the fast path; BERTH_PLAN_BUDGET_US sets the default, else 0
    bool inplace_via_views;   // in place also through a view of the whole source (default: yes)
    bool free_unread;         // inputs and results that nobody in the graph reads give their memory back (default: no)
    berth_inplace_t in_place; // further ops that may run in place, or NULL
    void *in_place_user;
};

BERTH_API struct berth_gallocr_options berth_gallocr_options_default(void);
// Takes effect with the next graph that is planned.
BERTH_API void berth_gallocr_set_options(ggml_gallocr_t galloc, const struct berth_gallocr_options *options);

// ggml_gallocr_reserve_n_size with a status: sizes[i] is what buffer i would need for this graph. Nothing is allocated.
BERTH_API enum ggml_status berth_gallocr_sizes(
    ggml_gallocr_t galloc, struct ggml_cgraph *graph, const int *node_buffer_ids, const int *leaf_buffer_ids, size_t *sizes);

// How good the plan of a buffer is: peak, bound, gap. FAILED if no graph has been planned.
BERTH_API enum ggml_status berth_gallocr_report(ggml_gallocr_t galloc, int buffer_id, struct berth_plan_report *report);

// Do the addresses in this graph respect all lifetimes? For tests of programs: true, or the first two tensors that collide are
// in berth_last_error().
BERTH_API bool berth_gallocr_verify(ggml_gallocr_t galloc, struct ggml_cgraph *graph);

#ifdef __cplusplus
}
#endif
