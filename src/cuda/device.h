// SPDX-License-Identifier: MIT
// device.h: one GPU and the ggml objects that represent it. Devices exist from the first use of the registry until the process
// ends. The context of a device is created when memory or a backend is first requested.
#pragma once

#include "cuda/cuda.h"

#include <pthread.h>
#include <stdatomic.h>

#define CUDA_MAX_DEVICES 16
#define CUDA_MAX_MODULES 64
#define CUDA_KERNEL_SLOTS 2048 // more than twice the number of kernels; a power of two

// ---- the kernels' images: one module per .cu file, embedded by the build (or by a test) ----

struct cuda_image {
    const char *name;
    const void *data; // a fat binary, which contains its own length
};
extern const struct cuda_image cuda_images[]; // the last entry has a NULL name

struct cuda_kernel {
    const char *name; // NULL: the slot is free
    CUfunction function;
    size_t shared_size; // bytes; current limit of dynamic shared memory
};

struct cuda_device {
    struct gpu_device gpu; // first member: op drivers and plans receive its address
    const struct cuda_driver *cu;
    CUdevice number; // the driver's device handle
    struct cuda_traits traits;
    char name[16];         // "CUDA0"
    char description[160]; // product name
    char pci[24];          // "0000:01:00.0"

    atomic_bool is_lost;    // the context is unusable; never reset
    atomic_size_t n_allocs; // calls of cuMemAlloc, and of cuMemHostAlloc for staging; tests count them

    // gpu.lock protects all fields below.
    CUcontext ctx;        // NULL until first needed
    CUstream stream;      // buffers copy on this stream; backends have their own streams
    size_t free_at_start; // bytes of free memory when the context was created
    CUmodule modules[CUDA_MAX_MODULES];
    int n_modules;
    bool has_kernels;    // all kernels are loaded (cuda_kernels_load)
    unsigned peers;      // bit i: kernels and copies can access the memory of device i
    char lost_text[256]; // why the device is lost
    struct cuda_kernel kernels[CUDA_KERNEL_SLOTS];
};

// Returns the devices and stores their number in *n. The first call creates them.
struct cuda_device *cuda_devices(int *n);
static inline struct cuda_device *cuda_device_of(ggml_backend_dev_t dev) {
    return dev->context;
}
// Frees all devices. For tests.
void cuda_devices_reset(void);
extern const struct gpu_device_i cuda_gpu_iface;
static inline struct cuda_device *cuda_of(const struct gpu_device *dev) {
    return (struct cuda_device *) (uintptr_t) dev;
}

// Makes the device's context current for the calling thread; creates it if necessary. Fails if the device is lost.
enum ggml_status cuda_device_enter(struct cuda_device *dev) BERTH_MUST_USE;
// Makes the context current, so that the caller can free resources. Returns false only if the device is lost. The resources of a
// lost device no longer exist.
bool cuda_device_enter_to_free(struct cuda_device *dev);
// Records that a call without a return value has failed. The next compute reports the failure.
static inline void cuda_device_defer_error(struct cuda_device *dev) {
    atomic_store(&dev->gpu.has_failed, true);
}
// Makes the device's context current. If this fails, returns false, and the next compute reports the failure.
static inline bool cuda_device_enter_or_defer(struct cuda_device *dev) {
    if (cuda_device_enter(dev) == GGML_STATUS_SUCCESS) {
        return true;
    }
    cuda_device_defer_error(dev);
    return false;
}
// Releases the context, the modules and all other resources of the device. For tests.
void cuda_device_close(struct cuda_device *dev);

// Loads all kernels onto the device, once, so that later launches allocate no memory for them.
enum ggml_status cuda_kernels_load(struct cuda_device *dev) BERTH_MUST_USE;
// Returns the kernel with this name. Returns NULL and sets the last error if no module has the kernel or the driver cannot load
// it.
struct cuda_kernel *cuda_kernel_find(struct cuda_device *dev, const char *name) BERTH_MUST_USE;

// ---- memory (buffer.c, host_buffer.c) ----

// Allocates device memory. The device's context must be current. If the result is NULL, the last error is set.
void *cuda_memory_take(struct cuda_device *dev, size_t size, const char *what) BERTH_MUST_USE;
void cuda_memory_give_back(struct cuda_device *dev, void *p);
// Returns the bytes in use since the context was created. n_free: bytes that are free now.
static inline size_t cuda_memory_used(const struct cuda_device *dev, size_t n_free) {
    return dev->free_at_start - min_size(n_free, dev->free_at_start);
}
static inline CUdeviceptr cuda_ptr(const void *p) {
    return (CUdeviceptr) (uintptr_t) p;
}

// A copy of n pieces of `size` bytes each, between device memory at `at` and host memory.
struct cuda_pieces {
    CUdeviceptr at;
    const void *from; // source in host memory; NULL: copy to the host
    void *to;         // destination in host memory; NULL: copy to the device
    size_t size, n;
    size_t device_step, host_step; // bytes from one piece to the next
};
CUresult cuda_pieces_copy(struct cuda_device *dev, CUstream stream, const struct cuda_pieces *p);

void cuda_buft_init(struct cuda_device *dev);
void cuda_host_buft_init(struct cuda_device *all, int n); // host memory is pinned for all n devices
// Makes the context of any usable device current and returns that device; NULL: no device is usable.
struct cuda_device *cuda_device_enter_any(void);
ggml_backend_buffer_type_t cuda_host_buft(void);
ggml_backend_buffer_t cuda_buffer_from_host(struct cuda_device *dev, void *ptr, size_t size);
// Returns the device whose memory a buffer is in, or NULL for other kinds of buffers.
struct cuda_device *cuda_buffer_device(ggml_backend_buffer_t buffer);
// Returns whether copies and kernels of `to` can access the memory of `from` directly. Enables the access if it is not enabled
// yet. Makes the context of `to` current if the devices differ.
bool cuda_peer_reach(struct cuda_device *to, struct cuda_device *from);

// ---- ggml objects ----

ggml_backend_t cuda_backend_new(struct cuda_device *dev);
extern struct ggml_backend_reg cuda_reg;
extern const struct ggml_backend_device_i cuda_device_iface;
ggml_backend_event_t cuda_event_new(ggml_backend_dev_t dev);
void cuda_event_free(ggml_backend_dev_t dev, ggml_backend_event_t event);
void cuda_event_wait_host(ggml_backend_dev_t dev, ggml_backend_event_t event);
