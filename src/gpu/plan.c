// SPDX-License-Identifier: MIT
// plan.c: makes the plan of a graph, which is a list of steps; a step is one node or one fusion. A plan is reused for graphs
// whose tensors have the same data addresses and properties. Invariants: snapshots[] holds the nodes in order, each followed by
// its sources. If n_snapshots of a plan is 0, the plan is free.

#include "gpu/plan.h"

#include <stdio.h>
#include <string.h>

// Makes an array large enough for n elements. If it enlarges the array, the old contents are discarded. Returns false if memory
// is exhausted.
static bool array_grow(void **p, size_t *cap, size_t n, size_t elem_size) {
    if (n <= *cap) {
        return true;
    }
    const size_t n_new = n + n / 2;
    void *q = shim_malloc(n_new * elem_size);
    if (q == NULL) {
        return false;
    }
    shim_free(*p);
    *p = q;
    *cap = n_new;
    return true;
}

// ---- comparison of a graph with a plan ----

// Returns the number of sources, including NULL sources before the last one.
static int count_src(const struct ggml_tensor *t) {
    int n = GGML_MAX_SRC;
    while (n > 0 && t->src[n - 1] == NULL) {
        n--;
    }
    return n;
}

static size_t count_snapshots(const struct ggml_cgraph *graph) {
    size_t n = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        n += 1 + (size_t) count_src(graph->nodes[i]);
    }
    return n;
}

static void snapshot_set(struct gpu_snapshot *s, const struct ggml_tensor *t, bool is_node) {
    *s = (struct gpu_snapshot){.tensor = t};
    if (t == NULL) {
        return;
    }
    s->data = t->data;
    s->type = (int32_t) t->type;
    memcpy(s->ne, t->ne, sizeof s->ne);
    memcpy(s->nb, t->nb, sizeof s->nb);
    if (is_node) {
        memcpy(s->op_params, t->op_params, sizeof s->op_params);
        s->op = (int32_t) t->op;
        s->flags = t->flags;
        s->n_src = count_src(t);
    }
}

// Compares the properties that nodes and sources have in common.
static bool snapshot_equals(const struct gpu_snapshot *s, const struct ggml_tensor *t) {
    return s->data == t->data && s->type == (int32_t) t->type && memcmp(s->ne, t->ne, sizeof s->ne) == 0 &&
           memcmp(s->nb, t->nb, sizeof s->nb) == 0;
}

// Returns whether the plan is valid for the graph. This comparison runs for every token, over about a thousand nodes, so it must
// be fast. A source that is also a node was compared at that node. It is not compared again if all nodes so far are the same
// ggml_tensor structs as in the plan.
static bool plan_matches(const struct gpu_plan *plan, const struct ggml_cgraph *graph) {
    const struct gpu_snapshot *s = plan->snapshots, *end = s + plan->n_snapshots;
    bool are_same_nodes = true; // all nodes so far are the same ggml_tensor structs as in the plan
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        if (s == end || s->op != (int32_t) node->op || s->flags != node->flags || !snapshot_equals(s, node) ||
            memcmp(s->op_params, node->op_params, sizeof s->op_params) != 0) {
            return false;
        }
        const int n_src = s->n_src;
        are_same_nodes &= s->tensor == node;
        s++;
        for (int j = 0; j < n_src; j++, s++) {
            const struct ggml_tensor *src = node->src[j];
            const bool is_known = s->tensor == src && (src == NULL || (s->is_inner && are_same_nodes));
            if (!is_known && (src == NULL || s->tensor == NULL || !snapshot_equals(s, src))) {
                return false;
            }
        }
        for (int j = n_src; j < GGML_MAX_SRC; j++) { // NULL sources may be before others
            if (node->src[j] != NULL) {
                return false;
            }
        }
    }
    return s == end;
}

// Returns the size of the hash table of nodes: a power of two, at least twice the number of nodes.
static size_t count_slots(const struct ggml_cgraph *graph) {
    size_t n = 64;
    while (n < 2 * (size_t) graph->n_nodes) {
        n *= 2;
    }
    return n;
}

// Fills plan->snapshots. slots: memory for a hash table of the nodes. The caller has allocated both.
static void plan_keep_graph(struct gpu_plan *plan, const struct ggml_tensor **slots, const struct ggml_cgraph *graph) {
    const size_t n_slots = count_slots(graph);
    size_t at = 0;
    memset(slots, 0, n_slots * sizeof *slots);
#define SLOT(t) (((uintptr_t) (t) >> 4) * 0x9E3779B97F4A7C15u >> 20 & (n_slots - 1))
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        snapshot_set(&plan->snapshots[at++], node, true);
        for (int j = 0; j < count_src(node); j++) {
            struct gpu_snapshot *s = &plan->snapshots[at++];
            snapshot_set(s, node->src[j], false);
            size_t k = SLOT(node->src[j]);
            while (slots[k] != NULL && slots[k] != node->src[j]) {
                k = (k + 1) & (n_slots - 1);
            }
            s->is_inner = node->src[j] != NULL && slots[k] == node->src[j];
        }
        size_t k = SLOT(node);
        while (slots[k] != NULL && slots[k] != node) {
            k = (k + 1) & (n_slots - 1);
        }
        slots[k] = node;
    }
#undef SLOT
}

// ---- steps ----

static const char *why_unreachable(struct gpu_device *dev, const struct ggml_tensor *t) {
    if (ggml_nelements(t) == 0) {
        return NULL;
    }
    if (t->data == NULL || gpu_buffer_of(t) == NULL) {
        return "has no memory";
    }
    return dev->i->why_unreachable(dev, t);
}

static enum ggml_status node_check(struct gpu_device *dev, const struct ggml_tensor *node) {
    if (!gpu_supports_op(dev, node)) {
        return shim_error(GGML_STATUS_FAILED, "%s: %s '%s' is not supported", dev->name, ggml_op_desc(node), node->name);
    }
    const char *why = why_unreachable(dev, node);
    if (why != NULL) {
        return shim_error(GGML_STATUS_FAILED, "%s: the result of %s '%s' %s", dev->name, ggml_op_desc(node), node->name, why);
    }
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        why = node->src[i] != NULL ? why_unreachable(dev, node->src[i]) : NULL;
        if (why != NULL) {
            return shim_error(
                GGML_STATUS_FAILED, "%s: source %d of %s '%s' %s", dev->name, i, ggml_op_desc(node), node->name, why);
        }
    }
    return GGML_STATUS_SUCCESS;
}

static bool is_computed(const struct ggml_tensor *node, const struct gpu_op_row *row) {
    return row->run != NULL && ggml_nelements(node) > 0 && (node->flags & GGML_TENSOR_FLAG_COMPUTE) != 0;
}

// Returns the first fusion that starts at node i, and its number of nodes in *n. If none applies, returns NULL and sets *n to 1.
static const struct gpu_fusion *fusion_at(const struct gpu_plans *b, const struct ggml_cgraph *graph, int i, int *n) {
    for (const struct gpu_fusion *const *f = b->dev->fusions; !b->no_fusion && *f != NULL; f++) {
        *n = (*f)->match(b->dev, graph, i);
        if (*n > 1) {
            return *f;
        }
    }
    *n = 1;
    return NULL;
}

static enum ggml_status plan_make_steps(struct gpu_plans *b, struct gpu_plan *plan, const struct ggml_cgraph *graph) {
    plan->n_steps = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        const struct gpu_op_row *row = gpu_op_row(b->dev, node->op);
        if (row != NULL && row->run == NULL) {
            continue;
        }
        const enum ggml_status status = node_check(b->dev, node);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    plan->work_size = gpu_graph_work_size(b, graph);
    for (int i = 0, n = 1; i < graph->n_nodes; i += n) {
        const struct ggml_tensor *node = graph->nodes[i];
        const struct gpu_op_row *row = gpu_op_row(b->dev, node->op);
        n = 1;
        if (!is_computed(node, row)) {
            continue;
        }
        const struct gpu_fusion *fusion = fusion_at(b, graph, i, &n);
        plan->steps[plan->n_steps++] =
            (struct gpu_step){.i_node = i, .n_nodes = n, .row = fusion != NULL ? NULL : row, .fusion = fusion};
    }
    return GGML_STATUS_SUCCESS;
}

size_t gpu_graph_work_size(const struct gpu_plans *b, const struct ggml_cgraph *graph) {
    size_t size = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        const struct gpu_op_row *row = gpu_op_row(b->dev, node->op);
        if (row != NULL && row->work_size != NULL && ggml_nelements(node) > 0 && gpu_supports_op(b->dev, node)) {
            size = max_size(size, row->work_size(b->dev, node));
        }
    }
    return size;
}

// ---- the plans of a backend ----

void gpu_plans_fini(struct gpu_plans *b) {
    for (int i = 0; i < GPU_MAX_PLANS; i++) {
        shim_free(b->plans[i].snapshots);
        shim_free(b->plans[i].steps);
        b->plans[i] = (struct gpu_plan){0};
    }
    shim_free(b->slots);
    b->slots = NULL;
}

static bool report_no_memory(const struct gpu_plans *b, const struct ggml_cgraph *graph, size_t n_snapshots) {
    shim_error(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for the plan of a graph of %d nodes (%zu bytes)", b->dev->name,
        graph->n_nodes, n_snapshots * sizeof(struct gpu_snapshot) + (size_t) graph->n_nodes * sizeof(struct gpu_step));
    return false;
}

static bool plan_has_room(const struct gpu_plan *plan, const struct ggml_cgraph *graph, size_t n_snapshots) {
    return plan->snapshots_cap >= n_snapshots && plan->steps_cap >= (size_t) graph->n_nodes;
}

static bool plan_make_room(struct gpu_plan *plan, const struct ggml_cgraph *graph, size_t n_snapshots) {
    plan->n_snapshots = 0; // the old contents are discarded
    plan->n_steps = 0;
    return array_grow((void **) &plan->snapshots, &plan->snapshots_cap, n_snapshots, sizeof *plan->snapshots) &&
           array_grow((void **) &plan->steps, &plan->steps_cap, (size_t) graph->n_nodes, sizeof *plan->steps);
}

bool gpu_plan_reserve(struct gpu_plans *b, const struct ggml_cgraph *graph) {
    struct gpu_plan *plan = &b->plans[b->n_reserved % GPU_MAX_PLANS];
    const size_t n_snapshots = count_snapshots(graph);
    if (!array_grow((void **) &b->slots, &b->slots_cap, count_slots(graph), sizeof *b->slots) ||
        (!plan_has_room(plan, graph, n_snapshots) && !plan_make_room(plan, graph, n_snapshots))) {
        return report_no_memory(b, graph, n_snapshots);
    }
    b->n_reserved++;
    return true;
}

// Returns a plan whose contents can be replaced: the least recently used plan, enlarged if necessary. If that plan cannot be
// enlarged, returns the least recently used plan that is large enough, or NULL if there is none.
static struct gpu_plan *plan_evict(struct gpu_plans *b, const struct ggml_cgraph *graph, size_t n_snapshots) {
    struct gpu_plan *oldest = &b->plans[0], *roomy = NULL;
    for (int i = 0; i < GPU_MAX_PLANS; i++) {
        struct gpu_plan *plan = &b->plans[i];
        if (plan->last_used < oldest->last_used) {
            oldest = plan;
        }
        if (plan_has_room(plan, graph, n_snapshots) && (roomy == NULL || plan->last_used < roomy->last_used)) {
            roomy = plan;
        }
    }
    return plan_make_room(oldest, graph, n_snapshots) ? oldest : roomy;
}

// Finds or makes the plan of a graph. Returns NULL and sets the last error if memory is exhausted or an op cannot run.
static struct gpu_plan *plan_get(struct gpu_plans *b, const struct ggml_cgraph *graph) {
    for (int i = 0; i < GPU_MAX_PLANS; i++) {
        struct gpu_plan *plan = &b->plans[i];
        if (plan->n_snapshots > 0 && plan_matches(plan, graph)) {
            plan->last_used = b->clock;
            return plan;
        }
    }
    const size_t n_snapshots = count_snapshots(graph);
    const bool has_slots = array_grow((void **) &b->slots, &b->slots_cap, count_slots(graph), sizeof *b->slots);
    struct gpu_plan *plan = has_slots ? plan_evict(b, graph, n_snapshots) : NULL;
    if (plan == NULL) {
        report_no_memory(b, graph, n_snapshots);
        return NULL;
    }
    plan->n_snapshots = 0;
    plan->n_steps = 0;
    plan->n_runs = 0;
    if (plan_make_steps(b, plan, graph) != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    plan_keep_graph(plan, b->slots, graph);
    plan->n_snapshots = n_snapshots;
    plan->last_used = b->clock;
    return plan;
}

enum ggml_status gpu_compute_begin(struct gpu_plans *b, const struct ggml_cgraph *graph, struct gpu_plan **plan) {
    if (atomic_exchange(&b->dev->has_failed, false)) {
        return shim_error(GGML_STATUS_FAILED, "%s: an earlier copy to or from the device failed", b->dev->name);
    }
    b->clock++;
    *plan = plan_get(b, graph);
    return *plan != NULL ? GGML_STATUS_SUCCESS : GGML_STATUS_FAILED;
}

bool gpu_plans_keep(
    const struct gpu_plans *b, const struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params) {
    if (b->no_fusion || params == NULL || params->add_alloc_dep == NULL) {
        return false;
    }
    gpu_rope_keep(graph, params);
    gpu_ssm_keep(graph, params);
    gpu_moe_keep(graph, params);
    return true;
}

// ---- running ----

// Returns whether a node of a step writes memory of t.
static bool step_writes(const struct ggml_cgraph *graph, const struct gpu_step *step, const struct ggml_tensor *t) {
    for (int i = step->i_node; i < step->i_node + step->n_nodes; i++) {
        const struct ggml_tensor *node = graph->nodes[i];
        if (node != t && gpu_overlap(node, t)) {
            return true;
        }
    }
    return false;
}

enum ggml_status gpu_steps_run(struct gpu_run *r, const struct gpu_plan *plan) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int i = 0; i < plan->n_steps && status == GGML_STATUS_SUCCESS; i++) {
        const struct gpu_step *step = &plan->steps[i];
        r->row = step->row;
        status = step->fusion != NULL ? step->fusion->run(r, r->graph, step->i_node, step->n_nodes)
                                      : step->row->run(r, r->graph->nodes[step->i_node]);
        if (r->kept != NULL && step_writes(r->graph, step, r->kept)) { // for example by an op in place
            r->kept = NULL;
        }
    }
    return status;
}

size_t gpu_plans_explain(const struct gpu_plans *b, char *buf, size_t size) {
    const struct gpu_plan *last = &b->plans[0];
    for (int i = 1; i < GPU_MAX_PLANS; i++) {
        if (b->plans[i].last_used > last->last_used) {
            last = &b->plans[i];
        }
    }
    size_t n = 0;
    buf[0] = '\0';
    for (const struct gpu_fusion *const *f = b->dev->fusions; *f != NULL; f++) {
        int count = 0;
        for (int i = 0; i < last->n_steps; i++) {
            count += last->steps[i].fusion == *f;
        }
        if (count > 0 && n < size) {
            n += (size_t) snprintf(buf + n, size - n, "%s %d\n", (*f)->name, count);
        }
    }
    return n < size ? n : size - 1;
}
