// SPDX-License-Identifier: MIT
// again.c: the graph of a session within a limit of bytes: values are not kept until they are wanted again, but computed again
// (berth-budget-graph.h), so that the results are the same bits. What writes the cache, and what reads it afterwards, runs once.
//
// The schedule is found once, for the largest batch, when that is reserved; every later one, with fewer tokens or positions,
// takes the same, and so the memory that is there. A token alone takes less as it is. On one device: over several the limit would
// have to be each one's.

#include "model/model.h"

#include <string.h>

// The schedule that was found, for graphs to come.
static bool steps_keep(struct session *s, const struct berth_budget_result *r) {
    const size_t size = r->n_steps * sizeof *s->steps;
    s->steps = model_alloc_malloc(size > 0 ? size : 1);
    if (s->steps != NULL) {
        memcpy(s->steps, r->steps, size);
        s->n_steps = r->n_steps;
    }
    return s->steps != NULL;
}

// GGML_STATUS_SUCCESS with *out NULL: the limit is not kept. A schedule that is given keeps it: its tensors are no larger.
static enum ggml_status schedule(struct session *s, struct ggml_cgraph **out, struct model_error *error) {
    const struct berth_graph_budget_params params = {.bytes = s->steps == NULL ? s->params.compute : UINT64_MAX,
        .buft = ggml_backend_get_default_buffer_type(s->devices->backend[0]),
        .seed = 1,
        .steps = s->steps,
        .n_steps = s->n_steps};
    const bool is_first = s->steps == NULL;
    const int n_nodes = ggml_graph_n_nodes(s->graph);
    struct berth_budget_result *r = NULL;
    enum ggml_status status = berth_graph_budget(s->graph, &params, &s->again_ctx, out, &r);
    if (status != GGML_STATUS_SUCCESS) {
        model_fail(error, "%s", berth_last_error());
    } else if (is_first) {
        s->again = (struct session_again){.is_kept = *out != NULL,
            .n_again = *out != NULL ? (int64_t) r->n_again : 0,
            .n_nodes = n_nodes,
            .least = r->n_uses > 0 ? r->uses[0].least : 0,
            .slower = *out != NULL && r->cost_once > 0 ? (double) r->cost / (double) r->cost_once : 1};
        if (*out != NULL && !steps_keep(s, r)) {
            model_fail(error, "out of memory for a schedule of %zu steps", r->n_steps);
            status = GGML_STATUS_ALLOC_FAILED;
        }
    }
    berth_budget_free(r);
    return status;
}

bool session_again(struct session *s, int64_t n_tokens, struct model_error *error) {
    struct ggml_cgraph *graph = NULL;
    if (s->devices->n > 1 || (n_tokens == 1 && s->params.n_batch > 1)) {
        return true;
    }
    const bool is_first = s->steps == NULL;
    const enum ggml_status status = schedule(s, &graph, error);
    if (status == GGML_STATUS_SUCCESS && graph != NULL) {
        s->graph = graph;
    }
    // A graph of other ops runs as it was built.
    return status == GGML_STATUS_SUCCESS || (!is_first && status == GGML_STATUS_FAILED);
}
