// SPDX-License-Identifier: MIT
// device.h: one GPU: its context, its kernels, its failures, and its faces towards ggml. Devices are made once, when the registry
// is first asked, and live as long as the process; a context is taken when memory or a backend is first asked for.
#pragma once

#include "cuda/cuda.h"

#include <pthread.h>
#include <stdatomic.h>

#define CUDA_MAX_DEVICES 16
#define CUDA_MAX_MODULES 64
#define CUDA_KERNEL_SLOTS 2048 // more than twice as many as there are kernels; a power of two

// ---- the kernels' image: one module a .cu file, made by the build (or by a test) ----

struct cuda_image {
    const char *name;
    const void *data; // a fat binary, which knows its own length
};
extern const struct cuda_image cuda_images[]; // ended by a NULL name

struct cuda_kernel {
    const char *name; // NULL: a free slot
    CUfunction function;
    size_t shared_size; // dynamic shared memory it has been allowed so far
};

struct cuda_device {
    const struct cuda_driver *cu;
    CUdevice number; // the driver's
    struct cuda_traits traits;
    char name[16];         // "CUDA0"
    char description[160]; // the product's name
    char pci[24];          // "0000:01:00.0"
    struct ggml_backend_device ggml;
    struct ggml_backend_buffer_type buft;

    atomic_bool is_lost;
    atomic_bool has_failed; // a set or get has, and no compute has told so yet
    atomic_size_t n_allocs; // calls that took device memory: tests count them

    pthread_mutex_t lock; // of all below
    CUcontext ctx;        // NULL until needed
    CUstream stream;      // for buffers' own copies
    CUmodule modules[CUDA_MAX_MODULES];
    int n_modules;
    bool has_kernels;     // all of them are on the device (cuda_kernels_load)
    unsigned peers;       // bit i: memory of device i is within reach of kernels and copies
    char lost_text[256];  // why it is lost
    char arena_text[256]; // why an arena could not be had while a graph was reserved: "" if none
    struct cuda_kernel kernels[CUDA_KERNEL_SLOTS];
};

// The devices; *n is how many. Made on the first call.
struct cuda_device *cuda_devices(int *n);
static inline struct cuda_device *cuda_device_of(ggml_backend_dev_t dev) {
    return dev->context;
}
// For tests: forgets all of them.
void cuda_devices_reset(void);

// Makes the device's context the calling thread's, and takes it first if nobody has. An error if it is lost.
enum ggml_status cuda_device_enter(struct cuda_device *dev) BERTH_MUST_USE;
// Likewise to give something back: even where the driver says no, what follows is tried. False: all is gone with the device.
bool cuda_device_enter_to_free(struct cuda_device *dev);
// A call that returns nothing has failed: the next compute says so.
static inline void cuda_device_defer_error(struct cuda_device *dev) {
    atomic_store(&dev->has_failed, true);
}
// cuda_device_enter for calls that return nothing: a failure is kept for the next compute.
static inline bool cuda_device_enter_or_defer(struct cuda_device *dev) {
    if (cuda_device_enter(dev) == GGML_STATUS_SUCCESS) {
        return true;
    }
    cuda_device_defer_error(dev);
    return false;
}
// The context, the modules and all of it go back to the driver. For tests.
void cuda_device_close(struct cuda_device *dev);

// The kernel of that name. NULL: none has it, or the driver cannot load it; the last error says so.
// Brings all kernels to the device, once: later launches take no memory for them.
enum ggml_status cuda_kernels_load(struct cuda_device *dev) BERTH_MUST_USE;
struct cuda_kernel *cuda_kernel_find(struct cuda_device *dev, const char *name) BERTH_MUST_USE;

// ---- memory (buffer.c, host_buffer.c) ----

// Device memory, counted. The context is current. NULL: the last error has the device, bytes asked and bytes free.
void *cuda_memory_take(struct cuda_device *dev, size_t size, const char *what) BERTH_MUST_USE;
void cuda_memory_give_back(struct cuda_device *dev, void *p);
static inline CUdeviceptr cuda_ptr(const void *p) {
    return (CUdeviceptr) (uintptr_t) p;
}

// Pieces of `size` bytes each: of the host at `from`, to the device, or of the device, to the host at `to`.
struct cuda_pieces {
    CUdeviceptr at;
    const void *from; // NULL: to the host
    void *to;
    size_t size, n, device_step, host_step;
};
CUresult cuda_pieces_copy(struct cuda_device *dev, CUstream stream, const struct cuda_pieces *p);

void cuda_buft_init(struct cuda_device *dev);
void cuda_host_buft_init(struct cuda_device *devices, int n); // host memory is pinned for all of them
// A device whose context is current then, NULL: none is left.
struct cuda_device *cuda_device_enter_any(void);
ggml_backend_buffer_type_t cuda_host_buft(void);
ggml_backend_buffer_t cuda_buffer_from_host(struct cuda_device *dev, void *ptr, size_t size);
// The device whose memory a buffer is, NULL for other kinds of buffers.
struct cuda_device *cuda_buffer_device(ggml_backend_buffer_t buffer);
// Whether a copy from `from` to `to` goes straight between them. Asks once a pair. `to`'s context becomes current.
bool cuda_peer_reach(struct cuda_device *to, struct cuda_device *from);

// ---- faces ----

ggml_backend_t cuda_backend_new(struct cuda_device *dev);
extern struct ggml_backend_reg cuda_reg;
extern const struct ggml_backend_device_i cuda_device_iface;
ggml_backend_event_t cuda_event_new(ggml_backend_dev_t dev);
void cuda_event_free(ggml_backend_dev_t dev, ggml_backend_event_t event);
void cuda_event_wait_host(ggml_backend_dev_t dev, ggml_backend_event_t event);
