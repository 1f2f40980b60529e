// SPDX-License-Identifier: MIT
// backend.h: one backend of a device: a command pool, an arena for work memory, and the plans of its last graphs with the commands
// that were recorded for them.
#pragma once

#include "gpu/plan.h"
#include "vulkan/device.h"

// What this backend records for a plan.
struct vulkan_record {
    VkCommandBuffer commands;  // VK_NULL_HANDLE until first needed
    struct vulkan_memory args; // the arguments of the launches, one after another
    uint64_t last_value;       // value of vulkan_backend.done after the last submission of the commands
};

struct vulkan_backend {
    struct vulkan_device *dev;
    VkCommandPool pool;
    VkSemaphore done;           // timeline semaphore
    uint64_t n_done;            // the value that `done` has after the last submission
    struct vulkan_memory arena; // work memory of one step at a time; address 0: none
    struct gpu_plans plans;
    struct vulkan_record records[GPU_MAX_PLANS]; // by index of the plan
    size_t args_size;                            // bytes of arguments that the largest reserved graph requires
};

// One recording of a graph, or a pass that only creates pipelines and counts the bytes of the arguments.
struct vulkan_run {
    struct gpu_run gpu;       // first member: op drivers receive its address
    VkCommandBuffer commands; // VK_NULL_HANDLE: nothing is recorded
    struct vulkan_memory *args;
    size_t args_used; // bytes
};

// ---- functions of struct gpu_device_i (launch.c) ----

enum ggml_status vulkan_launch(struct gpu_run *r, const char *kernel, struct gpu_dims dims, const void *arg, size_t arg_size);
enum ggml_status vulkan_copy(struct gpu_run *r, void *to, const void *from, size_t size);

// ---- compute.c ----

enum ggml_status vulkan_compute(struct vulkan_backend *b, const struct ggml_cgraph *graph) BERTH_MUST_USE;
bool vulkan_arena_grow(struct vulkan_backend *b, size_t size) BERTH_MUST_USE;
// Creates the pipelines of a plan's steps, or of all nodes one by one if plan is NULL. Stores the bytes of the arguments.
enum ggml_status vulkan_plan_prepare(
    struct vulkan_backend *b, const struct gpu_plan *plan, const struct ggml_cgraph *graph, size_t *args_size) BERTH_MUST_USE;
VkResult vulkan_backend_wait(struct vulkan_backend *b);

// ---- reserve.c ----

// Allocates work memory, arguments, pipelines and a plan, so that a compute allocates no host or device memory.
enum ggml_status vulkan_backend_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph);
size_t vulkan_backend_reserve_size(ggml_backend_t backend, const struct ggml_cgraph *graph);

size_t vulkan_backend_explain(ggml_backend_t backend, char *buf, size_t size);
size_t vulkan_backend_n_allocs(ggml_backend_t backend);
