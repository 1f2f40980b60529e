// SPDX-License-Identifier: MIT
// plan.c: what a graph becomes: a list of steps, each a node's row or a fusion, made once and used again as long as the graph is
// the same to the last address. Invariant: a plan's seen[] holds its nodes in order, each followed by its sources; a plan without
// any is free.

#include "cuda/backend.h"

#include <string.h>

static bool grow(void **p, size_t *cap, size_t n, size_t elem_size) {
    if (n <= *cap) {
        return true;
    }
    const size_t n_new = n + n / 2;
    void *q            = cuda_malloc(n_new * elem_size);
    if (q == NULL) {
        cuda_error(GGML_STATUS_ALLOC_FAILED, "CUDA: out of memory for the plan of a graph (%zu bytes)", n_new * elem_size);
        return false;
    }
    cuda_free(*p);
    *p   = q;
    *cap = n_new;
    return true;
}

// ---- what the graph is ----

static void see(struct cuda_seen *s, const struct ggml_tensor *t, bool is_node, int n_src) {
    *s = (struct cuda_seen){.data = t->data, .op = is_node ? (int32_t) t->op : -1, .type = (int32_t) t->type, .n_src = n_src};
    memcpy(s->ne, t->ne, sizeof s->ne);
    memcpy(s->nb, t->nb, sizeof s->nb);
    if (is_node) {
        memcpy(s->op_params, t->op_params, sizeof s->op_params);
        s->flags = t->flags;
    }
}

static int count_src(const struct ggml_tensor *t) {
    int n = 0;
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        n = t->src[i] != NULL ? i + 1 : n;
    }
    return n;
}

static size_t count_seen(const struct ggml_cgraph *graph) {
    size_t n = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        n += 1 + (size_t) count_src(graph->nodes[i]);
    }
    return n;
}

// Calls f for each record of the graph in order, until one says no.
static bool walk(const struct ggml_cgraph *graph, bool (*f)(void *arg, size_t i, const struct cuda_seen *s), void *arg) {
    static const struct ggml_tensor none;
    size_t at = 0;
    struct cuda_seen s;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        const int n_src                = count_src(node);
        see(&s, node, true, n_src);
        if (!f(arg, at++, &s)) {
            return false;
        }
        for (int j = 0; j < n_src; j++) {
            see(&s, node->src[j] != NULL ? node->src[j] : &none, false, 0);
            if (!f(arg, at++, &s)) {
                return false;
            }
        }
    }
    return true;
}

static bool is_equal(void *arg, size_t i, const struct cuda_seen *s) {
    const struct cuda_plan *plan = arg;
    return i < plan->n_seen && memcmp(&plan->seen[i], s, sizeof *s) == 0;
}

static bool keep(void *arg, size_t i, const struct cuda_seen *s) {
    struct cuda_plan *plan = arg;
    plan->seen[i]          = *s;
    return true;
}

// A uid stands for the whole graph; the last node is looked at all the same, since a caller may have moved the memory.
static bool is_plan_of(struct cuda_plan *plan, const struct ggml_cgraph *graph, size_t n_seen) {
    if (plan->n_seen == 0 || plan->n_seen != n_seen) {
        return false;
    }
    return walk(graph, is_equal, plan);
}

// ---- steps ----

// Why the device cannot read or write a tensor; NULL: it can.
static const char *out_of_reach(struct cuda_device *dev, const struct ggml_tensor *t) {
    const ggml_backend_buffer_t buffer = t->view_src != NULL ? t->view_src->buffer : t->buffer;
    if (ggml_nelements(t) == 0) {
        return NULL;
    }
    if (t->data == NULL || buffer == NULL) {
        return "has no memory";
    }
    struct cuda_device *at = cuda_buffer_device(buffer);
    if (at == dev || (at != NULL && cuda_peer_reach(dev, at)) || buffer->buft == cuda_host_buft()) {
        return NULL;
    }
    return at != NULL ? "lies in another device's memory, which is not within reach" : "lies in host memory";
}

static enum ggml_status check_node(struct cuda_device *dev, const struct ggml_tensor *node) {
    if (!cuda_supports_op(dev, node)) {
        return cuda_error(GGML_STATUS_FAILED, "%s: %s '%s' is not supported", dev->name, ggml_op_desc(node), node->name);
    }
    const char *why = out_of_reach(dev, node);
    if (why != NULL) {
        return cuda_error(GGML_STATUS_FAILED, "%s: the result of %s '%s' %s", dev->name, ggml_op_desc(node), node->name, why);
    }
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        why = node->src[i] != NULL ? out_of_reach(dev, node->src[i]) : NULL;
        if (why != NULL) {
            return cuda_error(
                GGML_STATUS_FAILED, "%s: source %d of %s '%s' %s", dev->name, i, ggml_op_desc(node), node->name, why);
        }
    }
    return GGML_STATUS_SUCCESS;
}

static bool is_run(const struct ggml_tensor *node, const struct cuda_op_row *row) {
    return row->run != NULL && ggml_nelements(node) > 0 && (node->flags & GGML_TENSOR_FLAG_COMPUTE) != 0;
}

static const struct cuda_fusion *fusion_at(const struct cuda_backend *b, const struct ggml_cgraph *graph, int i, int *n) {
    for (const struct cuda_fusion *const *f = cuda_fusions(); !b->no_fusion && *f != NULL; f++) {
        *n = (*f)->match(b->dev, graph, i);
        if (*n > 1) {
            return *f;
        }
    }
    return NULL;
}

static enum ggml_status make_steps(struct cuda_backend *b, struct cuda_plan *plan, const struct ggml_cgraph *graph) {
    plan->n_steps = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        const struct cuda_op_row *row  = cuda_op_row(node->op);
        if (row != NULL && row->run == NULL) {
            continue;
        }
        const enum ggml_status status = check_node(b->dev, node);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    plan->work_size = cuda_graph_work_size(b, graph);
    for (int i = 0, n = 1; i < graph->n_nodes; i += n) {
        const struct ggml_tensor *node = graph->nodes[i];
        const struct cuda_op_row *row  = cuda_op_row(node->op);
        n                              = 1;
        if (!is_run(node, row)) {
            continue;
        }
        const struct cuda_fusion *fusion = fusion_at(b, graph, i, &n);
        n                                = fusion != NULL ? n : 1;
        plan->steps[plan->n_steps++] =
            (struct cuda_step){.i_node = i, .n_nodes = n, .row = fusion != NULL ? NULL : row, .fusion = fusion};
    }
    return GGML_STATUS_SUCCESS;
}

size_t cuda_graph_work_size(const struct cuda_backend *b, const struct ggml_cgraph *graph) {
    size_t size = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        const struct cuda_op_row *row  = cuda_op_row(node->op);
        if (row != NULL && row->run != NULL && row->work_size != NULL && cuda_supports_op(b->dev, node)) {
            const size_t want = row->work_size(b->dev, node);
            size              = want > size ? want : size;
        }
    }
    return size;
}

// ---- the plans of a backend ----

void cuda_plan_fini(struct cuda_backend *b, struct cuda_plan *plan) {
    if (plan->exec != NULL && !atomic_load(&b->dev->is_lost)) {
        b->dev->cu->GraphExecDestroy(plan->exec);
    }
    cuda_free(plan->seen);
    cuda_free(plan->steps);
    *plan = (struct cuda_plan){0};
}

struct cuda_plan *cuda_plan_get(struct cuda_backend *b, const struct ggml_cgraph *graph, bool *is_known) {
    const size_t n_seen      = count_seen(graph);
    struct cuda_plan *oldest = &b->plans[0];
    *is_known                = true;
    for (int i = 0; i < CUDA_MAX_PLANS; i++) {
        struct cuda_plan *plan = &b->plans[i];
        if (is_plan_of(plan, graph, n_seen)) {
            plan->last_used = b->clock;
            return plan;
        }
        oldest = plan->last_used < oldest->last_used ? plan : oldest;
    }
    *is_known       = false;
    oldest->n_seen  = 0;
    oldest->n_steps = 0;
    oldest->n_runs  = 0;
    size_t cap      = (size_t) oldest->steps_cap;
    if (!grow((void **) &oldest->seen, &oldest->seen_cap, n_seen, sizeof *oldest->seen) ||
        !grow((void **) &oldest->steps, &cap, (size_t) graph->n_nodes, sizeof *oldest->steps)) {
        return NULL;
    }
    oldest->steps_cap = (int) cap;
    if (make_steps(b, oldest, graph) != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    walk(graph, keep, oldest);
    oldest->n_seen    = n_seen;
    oldest->uid       = graph->uid;
    oldest->last_used = b->clock;
    return oldest;
}
