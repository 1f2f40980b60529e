// SPDX-License-Identifier: MIT
// device.h: one Vulkan device and the ggml objects that represent it. Devices exist from the first use of the registry until the
// process ends. The VkDevice is created when memory or a backend is first requested.
//
// Addresses of tensors are device addresses (bufferDeviceAddress), so shaders have no descriptors, and the limit of a storage
// buffer's range does not limit a tensor. The size of one allocation does (maxMemoryAllocationSize, maxBufferSize).
#pragma once

#include "gpu/gpu.h"
#include "vulkan/driver.h"

#include <pthread.h>
#include <stdatomic.h>

#define VULKAN_MAX_DEVICES 16
#define VULKAN_MAX_PIPELINES 4096 // a power of two

// ---- shaders, embedded by the build ----

struct vulkan_shader {
    const char *name;     // of the kernel; NULL ends the list
    const uint32_t *code; // SPIR-V
    const uint32_t *end;
};
extern const struct vulkan_shader vulkan_shaders[];

struct vulkan_traits {
    uint32_t subgroup;       // invocations per subgroup
    uint32_t shared_max;     // bytes of shared memory per workgroup
    uint32_t block_max;      // invocations per workgroup
    uint32_t grid_max[3];    // workgroups per dispatch
    uint64_t allocation_max; // bytes of one allocation
    bool is_integrated;      // the device uses the host's memory
    bool has_mapped;         // buffers are in memory that the host can access, and need no staging
    bool keeps_denormals;    // shaders can require that f32 numbers below 2^-126 are not flushed to 0
    bool keeps_specials;     // shaders can require that -0, infinities and NaN of f32 are kept
};

// Memory of the device, as one buffer.
struct vulkan_memory {
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint64_t address; // on the device
    char *host;       // address on the host; NULL: the host cannot access the memory
    size_t size;
    bool is_on_device; // counts in vulkan_device.used
};

// A compiled kernel: one shader with one size of workgroup and of shared memory.
struct vulkan_pipeline {
    VkPipeline pipeline; // VK_NULL_HANDLE: the slot is free
    const struct vulkan_shader *shader;
    uint32_t block[3], shared_size;
};

struct vulkan_device {
    struct gpu_device gpu; // first member: op drivers and plans receive its address
    const struct vulkan_driver *driver;
    VkPhysicalDevice physical;
    uint32_t family; // queue family
    struct vulkan_traits traits;
    char name[16];         // "Vulkan0"
    char description[300]; // product name
    char pci[24];          // "0000:01:00.0"; "": unknown
    uint8_t uuid[VK_UUID_SIZE];

    atomic_bool is_lost;    // never reset
    atomic_size_t n_allocs; // allocations of device memory and creations of pipelines; tests count them
    atomic_size_t used;     // bytes of device memory that are allocated

    // gpu.lock protects all fields below, and the queue.
    struct vulkan_api vk;
    VkDevice device; // VK_NULL_HANDLE until first needed
    VkQueue queue;
    VkPipelineLayout layout;
    VkCommandPool pool; // for copies
    VkCommandBuffer copy_commands;
    VkSemaphore copy_done;       // timeline semaphore
    uint64_t n_copies;           // its last value
    struct vulkan_memory tables; // of block formats
    struct vulkan_memory staging;
    struct vulkan_pipeline pipelines[VULKAN_MAX_PIPELINES];
    size_t n_pipelines;
};

// Returns the devices and stores their number in *n. The first call creates them.
struct vulkan_device *vulkan_devices(int *n);
void vulkan_devices_reset(void); // frees all devices. For tests.
static inline struct vulkan_device *vulkan_device_of(ggml_backend_dev_t dev) {
    return dev->context;
}
static inline struct vulkan_device *vulkan_of(const struct gpu_device *dev) {
    return (struct vulkan_device *) (uintptr_t) dev;
}

// Reads the properties of a device. Returns false if Berth cannot use it.
bool vulkan_device_describe(struct vulkan_device *dev);
// Creates the VkDevice if necessary. Fails if the device is lost.
enum ggml_status vulkan_device_enter(struct vulkan_device *dev) BERTH_MUST_USE;
// Makes the next compute report that a call without a return value has failed.
static inline void vulkan_device_defer_error(struct vulkan_device *dev) {
    atomic_store(&dev->gpu.has_failed, true);
}
// Enters the device. If this fails, returns false, and the next compute reports the failure.
static inline bool vulkan_device_enter_or_defer(struct vulkan_device *dev) {
    if (vulkan_device_enter(dev) == GGML_STATUS_SUCCESS) {
        return true;
    }
    vulkan_device_defer_error(dev);
    return false;
}
void vulkan_device_close(struct vulkan_device *dev);
// Sets the last error to the formatted text and the name of `error`. Marks the device as lost if the error says so. Never returns
// GGML_STATUS_SUCCESS.
enum ggml_status vulkan_fail(struct vulkan_device *dev, VkResult error, const char *fmt, ...) BERTH_PRINTF(3, 4);

// ---- memory (memory.c, buffer.c) ----

enum vulkan_place { VULKAN_DEVICE_MEMORY, VULKAN_HOST_MEMORY };
// Allocates memory. Host memory is accessible to the host and the device. Returns false and sets the last error on failure.
bool vulkan_memory_take(
    struct vulkan_device *dev, struct vulkan_memory *m, size_t size, enum vulkan_place place, const char *what) BERTH_MUST_USE;
void vulkan_memory_give_back(struct vulkan_device *dev, struct vulkan_memory *m);
VkResult vulkan_memory_try(struct vulkan_device *dev, struct vulkan_memory *m, size_t size, enum vulkan_place place);
// Returns the bytes that are free and in total.
void vulkan_memory_query(struct vulkan_device *dev, size_t *n_free, size_t *n_total);

void vulkan_buft_init(struct vulkan_device *dev);
// Returns the device whose memory a buffer is in, or NULL for other kinds of buffers.
struct vulkan_device *vulkan_buffer_device(ggml_backend_buffer_t buffer);

// ---- pipelines (pipeline.c) ----

// Returns the pipeline of a kernel. Creates it if necessary. If the result is VK_NULL_HANDLE, the last error is set.
VkPipeline vulkan_pipeline_get(struct vulkan_device *dev, const char *kernel, const struct gpu_dims *dims) BERTH_MUST_USE;
void vulkan_pipelines_free(struct vulkan_device *dev);

// ---- ggml objects ----

ggml_backend_t vulkan_backend_new(struct vulkan_device *dev);
extern struct ggml_backend_reg vulkan_reg;
extern const struct ggml_backend_device_i vulkan_device_iface;
extern const struct gpu_device_i vulkan_gpu_iface;
const struct gpu_op_row *const *vulkan_op_rows(void); // [GGML_OP_COUNT]
extern const struct gpu_fusion *const vulkan_fusions[];

// Submits commands to the queue, or nothing if commands is VK_NULL_HANDLE. The timeline semaphore `done` reaches `value` after they
// and all earlier submissions have finished. The caller holds the lock.
VkResult vulkan_submit_locked(struct vulkan_device *dev, VkCommandBuffer commands, VkSemaphore done, uint64_t value);
VkResult vulkan_wait(struct vulkan_device *dev, VkSemaphore semaphore, uint64_t value);
VkResult vulkan_semaphore_new(struct vulkan_device *dev, VkSemaphore *semaphore);
