// SPDX-License-Identifier: MIT
// reserve.c: prepares a backend for a graph that has no addresses yet. Op drivers choose kernels by the alignment of addresses, and
// fusions by their overlap. So tensors get provisional addresses while the plan is made: all disjoint, as in a graph that reuses
// no memory. Then the steps of this plan, and all nodes one by one, are run without recording. This creates the pipelines of all
// kernels that any addresses can lead to.

#include "vulkan/backend.h"

#include <string.h>

#define FIRST ((uintptr_t) 1 << 32) // provisional addresses are at least FIRST and less than LAST
#define LAST ((uintptr_t) 1 << 46)

// Gives an address to a tensor without one. A view gets the address that follows from its source.
static void address_set(struct ggml_tensor *t, uintptr_t *next) {
    if (t == NULL || t->data != NULL) {
        return;
    }
    if (t->view_src != NULL) {
        address_set(t->view_src, next);
        t->data = (char *) t->view_src->data + t->view_offs;
        return;
    }
    t->data = (void *) *next;
    *next += (ggml_nbytes(t) + 4096) / 4096 * 4096 + 4096;
}

static void address_reset(struct ggml_tensor *t) {
    if (t != NULL && (uintptr_t) t->data >= FIRST && (uintptr_t) t->data < LAST && (t->buffer == NULL || t->view_src != NULL)) {
        const struct ggml_tensor *root = t->view_src != NULL ? t->view_src : t;
        if (root->buffer == NULL) {
            t->data = NULL;
        }
    }
}

static void addresses_set(const struct ggml_cgraph *graph) {
    uintptr_t next = FIRST;
    for (int i = 0; i < graph->n_nodes; i++) {
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            address_set(graph->nodes[i]->src[j], &next);
        }
        address_set(graph->nodes[i], &next);
    }
}

static void addresses_reset(const struct ggml_cgraph *graph) {
    for (int i = 0; i < graph->n_nodes; i++) {
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            struct ggml_tensor *src = graph->nodes[i]->src[j];
            address_reset(src);
            address_reset(src != NULL ? src->view_src : NULL);
        }
        address_reset(graph->nodes[i]);
        address_reset(graph->nodes[i]->view_src);
    }
}

// Creates the pipelines that the steps of the graph need with provisional addresses. Stores the bytes of their arguments.
static enum ggml_status pipelines_reserve(struct vulkan_backend *b, const struct ggml_cgraph *graph, size_t *args_size) {
    size_t fused = 0, single = 0;
    addresses_set(graph);
    enum ggml_status status = vulkan_plan_prepare(b, NULL, graph, &single);
    const struct gpu_fusion *const *f = b->dev->gpu.fusions;
    struct gpu_step step = {.n_nodes = 1};
    struct gpu_plan plan = {.steps = &step, .n_steps = 1};
    for (; !b->plans.no_fusion && *f != NULL && status == GGML_STATUS_SUCCESS; f++) {
        for (int i = 0; i < graph->n_nodes && status == GGML_STATUS_SUCCESS; i++) {
            const int n = (*f)->match(&b->dev->gpu, graph, i);
            if (n > 1) {
                size_t size = 0;
                step = (struct gpu_step){.i_node = i, .n_nodes = n, .fusion = *f};
                status = vulkan_plan_prepare(b, &plan, graph, &size);
                fused += size;
            }
        }
    }
    addresses_reset(graph);
    *args_size = single + fused;
    return status;
}

enum ggml_status vulkan_backend_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    struct vulkan_backend *b = backend->context;
    enum ggml_status status = vulkan_device_enter(b->dev);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (!gpu_plan_reserve(&b->plans, graph) || !vulkan_arena_grow(b, gpu_graph_work_size(&b->plans, graph))) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    size_t args_size = 0;
    status = pipelines_reserve(b, graph, &args_size);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    b->args_size = max_size(b->args_size, args_size);
    for (size_t i = 0; i < min_size(b->plans.n_reserved, GPU_MAX_PLANS); i++) {
        struct vulkan_record *record = &b->records[i];
        if (record->args.size >= b->args_size || b->args_size == 0) {
            continue;
        }
        const VkResult rc = vulkan_backend_wait(b);
        if (rc != VK_SUCCESS) {
            return vulkan_fail(b->dev, rc, "waiting before enlarging the memory of arguments");
        }
        vulkan_memory_give_back(b->dev, &record->args);
        b->plans.plans[i].n_runs = 0; // recorded commands contain the address of the arguments
        if (!vulkan_memory_take(b->dev, &record->args, b->args_size, VULKAN_HOST_MEMORY, "the arguments of kernels")) {
            return GGML_STATUS_ALLOC_FAILED;
        }
    }
    return GGML_STATUS_SUCCESS;
}

size_t vulkan_backend_reserve_size(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    return gpu_graph_work_size(&((struct vulkan_backend *) backend->context)->plans, graph);
}
