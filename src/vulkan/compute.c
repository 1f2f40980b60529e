// SPDX-License-Identifier: MIT
// compute.c: records the steps of a graph into a command buffer, once, and submits it. Recorded commands contain the address of the
// arena, so vulkan_arena_grow makes all plans be recorded again.

#include "vulkan/backend.h"

VkResult vulkan_backend_wait(struct vulkan_backend *b) {
    return vulkan_wait(b->dev, b->done, b->n_done);
}

bool vulkan_arena_grow(struct vulkan_backend *b, size_t size) {
    if (size <= b->arena.size) {
        return true;
    }
    const VkResult rc = vulkan_backend_wait(b); // running kernels still use the old arena
    if (rc != VK_SUCCESS) {
        vulkan_fail(b->dev, rc, "waiting before enlarging the work memory");
        return false;
    }
    for (int i = 0; i < GPU_MAX_PLANS; i++) {
        b->plans.plans[i].n_runs = 0;
    }
    const size_t old_size = b->arena.size;
    vulkan_memory_give_back(b->dev, &b->arena);
    if (vulkan_memory_take(b->dev, &b->arena, size, VULKAN_DEVICE_MEMORY, "work memory")) {
        return true;
    }
    // Graphs that fitted before must still fit.
    if (old_size > 0 && vulkan_memory_try(b->dev, &b->arena, old_size, VULKAN_DEVICE_MEMORY) != VK_SUCCESS) {
        b->arena = (struct vulkan_memory){0};
    }
    return false;
}

static struct vulkan_run run_of(struct vulkan_backend *b, const struct ggml_cgraph *graph) {
    return (struct vulkan_run){
        .gpu = {.dev = &b->dev->gpu, .graph = graph, .work = (void *) (uintptr_t) b->arena.address, .work_size = b->arena.size}};
}

// Runs every node with its own row, without fusions.
static enum ggml_status nodes_run(struct gpu_run *r) {
    for (int i = 0; i < r->graph->n_nodes; i++) {
        struct ggml_tensor *node = r->graph->nodes[i];
        r->row = gpu_op_row(r->dev, node->op);
        if (r->row == NULL || r->row->run == NULL || ggml_nelements(node) == 0 || !gpu_supports_op(r->dev, node)) {
            continue;
        }
        const enum ggml_status status = r->row->run(r, node);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status vulkan_plan_prepare(
    struct vulkan_backend *b, const struct gpu_plan *plan, const struct ggml_cgraph *graph, size_t *args_size) {
    struct vulkan_run r = run_of(b, graph);
    const enum ggml_status status = plan != NULL ? gpu_steps_run(&r.gpu, plan) : nodes_run(&r.gpu);
    *args_size = r.args_used;
    return status;
}

static struct vulkan_record *record_of(struct vulkan_backend *b, const struct gpu_plan *plan) {
    return &b->records[plan - b->plans.plans];
}

static VkResult commands_begin(struct vulkan_backend *b, struct vulkan_record *record) {
    const VkCommandBufferAllocateInfo alloc = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = b->pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1};
    const VkCommandBufferBeginInfo begin = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT};
    VkResult rc = VK_SUCCESS;
    if (record->commands == VK_NULL_HANDLE) {
        rc = b->dev->vk.AllocateCommandBuffers(b->dev->device, &alloc, &record->commands);
    }
    if (rc != VK_SUCCESS) {
        record->commands = VK_NULL_HANDLE;
        return rc;
    }
    rc = b->dev->vk.BeginCommandBuffer(record->commands, &begin);
    if (rc == VK_SUCCESS) {
        b->dev->vk.CmdPipelineBarrier(record->commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            0, 1, &barrier, 0, NULL, 0, NULL);
    }
    return rc;
}

static VkResult commands_end(struct vulkan_backend *b, struct vulkan_record *record) {
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT};
    b->dev->vk.CmdPipelineBarrier(record->commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
        VK_PIPELINE_STAGE_HOST_BIT | VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0, 1, &barrier, 0, NULL, 0, NULL);
    return b->dev->vk.EndCommandBuffer(record->commands);
}

static enum ggml_status plan_record(struct vulkan_backend *b, const struct gpu_plan *plan, const struct ggml_cgraph *graph) {
    struct vulkan_record *record = record_of(b, plan);
    size_t args_size = 0;
    enum ggml_status status = vulkan_plan_prepare(b, plan, graph, &args_size);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    VkResult rc = vulkan_wait(b->dev, b->done, record->last_value); // the device still reads the old commands and arguments
    if (rc != VK_SUCCESS) {
        return vulkan_fail(b->dev, rc, "waiting for the last compute of a graph");
    }
    if (args_size > record->args.size) {
        vulkan_memory_give_back(b->dev, &record->args);
        if (!vulkan_memory_take(
                b->dev, &record->args, max_size(args_size, b->args_size), VULKAN_HOST_MEMORY, "the arguments of kernels")) {
            return GGML_STATUS_ALLOC_FAILED;
        }
    }
    rc = commands_begin(b, record);
    if (rc != VK_SUCCESS) {
        return vulkan_fail(b->dev, rc, "starting to record a graph of %d nodes", graph->n_nodes);
    }
    struct vulkan_run r = run_of(b, graph);
    r.commands = record->commands;
    r.args = &record->args;
    status = gpu_steps_run(&r.gpu, plan);
    rc = commands_end(b, record);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    return rc == VK_SUCCESS ? status : vulkan_fail(b->dev, rc, "recording a graph of %d nodes", graph->n_nodes);
}

enum ggml_status vulkan_compute(struct vulkan_backend *b, const struct ggml_cgraph *graph) {
    enum ggml_status status = vulkan_device_enter(b->dev);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    struct gpu_plan *plan;
    status = gpu_compute_begin(&b->plans, graph, &plan);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (!vulkan_arena_grow(b, plan->work_size)) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    if (plan->n_steps == 0) {
        return GGML_STATUS_SUCCESS;
    }
    if (plan->n_runs == 0) {
        status = plan_record(b, plan, graph);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    plan->n_runs++;
    struct vulkan_record *record = record_of(b, plan);
    pthread_mutex_lock(&b->dev->gpu.lock);
    const VkResult rc = vulkan_submit_locked(b->dev, record->commands, b->done, b->n_done + 1);
    pthread_mutex_unlock(&b->dev->gpu.lock);
    if (rc != VK_SUCCESS) {
        return vulkan_fail(b->dev, rc, "submitting a graph of %d nodes", graph->n_nodes);
    }
    b->n_done++;
    record->last_value = b->n_done;
    return GGML_STATUS_SUCCESS;
}
