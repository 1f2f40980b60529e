// SPDX-License-Identifier: MIT
// launch.c: records launches of kernels. The arguments of a launch are in memory that the device reads. The push constants hold
// their address and the size of the grid. A grid that is larger than a dispatch may be is divided among several dispatches; the
// index of a workgroup continues from one to the next (vkCmdDispatchBase).

#include "vulkan/backend.h"

#include <string.h>

#define ARGS_ALIGNMENT 64

struct push_constants {
    uint64_t args, tables;
    uint32_t grid[3], pad;
};

static void grid_dispatch(struct vulkan_device *dev, VkCommandBuffer commands, const uint32_t grid[3]) {
    const uint32_t *most = dev->traits.grid_max;
    for (uint32_t z = 0; z < grid[2]; z += min_u32(grid[2] - z, most[2])) {
        for (uint32_t y = 0; y < grid[1]; y += min_u32(grid[1] - y, most[1])) {
            for (uint32_t x = 0; x < grid[0]; x += min_u32(grid[0] - x, most[0])) {
                dev->vk.CmdDispatchBase(commands, x, y, z, min_u32(grid[0] - x, most[0]), min_u32(grid[1] - y, most[1]),
                    min_u32(grid[2] - z, most[2]));
            }
        }
    }
}

// Every kernel waits for all earlier ones.
static void barrier_record(struct vulkan_device *dev, VkCommandBuffer commands) {
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT};
    dev->vk.CmdPipelineBarrier(
        commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1, &barrier, 0, NULL, 0, NULL);
}

enum ggml_status vulkan_launch(struct gpu_run *run, const char *kernel, struct gpu_dims dims, const void *arg, size_t arg_size) {
    struct vulkan_run *r = (struct vulkan_run *) run;
    struct vulkan_device *dev = vulkan_of(run->dev);
    while (dims.block[0] > dev->traits.block_max) { // all kernels with large workgroups loop over their elements
        dims.block[0] /= 2;
    }
    const VkPipeline pipeline = vulkan_pipeline_get(dev, kernel, &dims);
    if (pipeline == VK_NULL_HANDLE) {
        return GGML_STATUS_FAILED;
    }
    const size_t at = r->args_used;
    r->args_used += (arg_size + ARGS_ALIGNMENT - 1) / ARGS_ALIGNMENT * ARGS_ALIGNMENT;
    if (r->commands == VK_NULL_HANDLE) {
        return GGML_STATUS_SUCCESS;
    }
    if (r->args_used > r->args->size) {
        return shim_error(GGML_STATUS_FAILED, "%s: the arguments of kernel %s need %zu bytes, %zu are allocated", run->dev->name,
            kernel, r->args_used, r->args->size);
    }
    memcpy(r->args->host + at, arg, arg_size);
    struct push_constants push = {.args = r->args->address + at, .tables = dev->tables.address};
    for (int i = 0; i < 3; i++) {
        push.grid[i] = dims.grid[i] > 0 ? dims.grid[i] : 1;
    }
    dev->vk.CmdBindPipeline(r->commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    dev->vk.CmdPushConstants(r->commands, dev->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof push, &push);
    grid_dispatch(dev, r->commands, push.grid);
    barrier_record(dev, r->commands);
    return GGML_STATUS_SUCCESS;
}

enum ggml_status vulkan_copy(struct gpu_run *r, void *to, const void *from, size_t size) {
    const struct {
        void *to;
        const void *from;
        uint64_t size;
    } args = {to, from, size};
    if (size == 0) {
        return GGML_STATUS_SUCCESS;
    }
    const struct gpu_dims dims = {.grid = {(unsigned) min_size((size / 4 + 255) / 256 + 1, 4096)}, .block = {256}};
    return gpu_launch(r, "copy_bytes", dims, &args);
}
