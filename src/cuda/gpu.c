// SPDX-License-Identifier: MIT
// gpu.c: the context and the errors of a device.
//
// Invariants: ctx, stream and modules are either all valid or all absent. is_lost is never cleared. lost_text is written before
// is_lost is set.

#include "cuda/device.h"

#include <string.h>

// ---- failures ----

// Returns whether the context returns this error from every later call.
static bool is_fatal(CUresult error) {
    switch (error) {
        case 4:   // the driver is shutting down
        case 46:  // device unavailable
        case 214: // uncorrectable ECC error
        case 220: // NVLink error
        case 700: // illegal address
        case 702: // launch timeout
        case 709: // context destroyed
        case 710: // assert in a kernel
        case 714: // hardware stack error
        case 715: // illegal instruction
        case 716: // misaligned address
        case 717: // invalid address space
        case 718: // invalid program counter
        case 719: // launch failed
        case 999: // unknown
            return true;
        default: return false;
    }
}

enum ggml_status cuda_fail(struct cuda_device *dev, CUresult error, const char *fmt, ...) {
    char what[256], words[192];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    cuda_error_text(dev->cu, error, words, sizeof words);
    if (is_fatal(error)) {
        pthread_mutex_lock(&dev->gpu.lock);
        if (!atomic_load(&dev->is_lost)) {
            snprintf(dev->lost_text, sizeof dev->lost_text, "%.100s: %.140s", what, words);
            atomic_store(&dev->is_lost, true);
        }
        pthread_mutex_unlock(&dev->gpu.lock);
        return shim_error(
            GGML_STATUS_FAILED, "%s: %s: %s; the device is lost until the program restarts", dev->name, what, words);
    }
    return shim_error(
        error == CUDA_ERROR_OUT_OF_MEMORY ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED, "%s: %s: %s", dev->name, what, words);
}

// ---- contexts ----

// The caller holds the device's lock.
static CUresult context_open_locked(struct cuda_device *dev, const char **what) {
    const struct cuda_driver *cu = dev->cu;
    CUcontext ctx = NULL;
    *what = "cuDevicePrimaryCtxRetain";
    CUresult rc = cu->DevicePrimaryCtxRetain(&ctx, dev->number);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    *what = "cuCtxSetCurrent";
    rc = cu->CtxSetCurrent(ctx);
    if (rc == CUDA_SUCCESS) {
        *what = "cuStreamCreate";
        rc = cu->StreamCreate(&dev->stream, CU_STREAM_NON_BLOCKING);
    }
    for (const struct cuda_image *m = cuda_images; rc == CUDA_SUCCESS && m->name != NULL; m++) {
        *what = m->name;
        rc = dev->n_modules < CUDA_MAX_MODULES ? cu->ModuleLoadData(&dev->modules[dev->n_modules], m->data)
                                               : CUDA_ERROR_INVALID_VALUE;
        dev->n_modules += rc == CUDA_SUCCESS;
    }
    if (rc == CUDA_SUCCESS && dev->gpu.memory_limit > 0) {
        size_t n_total;
        *what = "cuMemGetInfo";
        rc = cu->MemGetInfo(&dev->free_at_start, &n_total);
    }
    if (rc == CUDA_SUCCESS) {
        dev->ctx = ctx;
        return rc;
    }
    while (dev->n_modules > 0) {
        cu->ModuleUnload(dev->modules[--dev->n_modules]);
    }
    if (dev->stream != NULL) {
        cu->StreamDestroy(dev->stream);
        dev->stream = NULL;
    }
    cu->DevicePrimaryCtxRelease(dev->number);
    return rc;
}

enum ggml_status cuda_device_enter(struct cuda_device *dev) {
    if (atomic_load(&dev->is_lost)) {
        return shim_error(GGML_STATUS_FAILED, "%s: the device is lost until the program restarts, after this error: %s",
            dev->name, dev->lost_text);
    }
    const char *what = "";
    CUresult rc = CUDA_SUCCESS;
    pthread_mutex_lock(&dev->gpu.lock);
    if (dev->ctx == NULL) {
        rc = context_open_locked(dev, &what);
    }
    const CUcontext ctx = dev->ctx;
    pthread_mutex_unlock(&dev->gpu.lock);
    if (rc == CUDA_SUCCESS) {
        what = "cuCtxSetCurrent";
        rc = dev->cu->CtxSetCurrent(ctx);
    }
    return rc == CUDA_SUCCESS ? GGML_STATUS_SUCCESS : cuda_fail(dev, rc, "%s", what);
}

bool cuda_device_enter_to_free(struct cuda_device *dev) {
    if (atomic_load(&dev->is_lost)) {
        return false;
    }
    const CUresult rc = dev->cu->CtxSetCurrent(dev->ctx);
    if (rc != CUDA_SUCCESS) {
        cuda_fail(dev, rc, "cuCtxSetCurrent");
    }
    return !atomic_load(&dev->is_lost);
}

void cuda_device_close(struct cuda_device *dev) {
    pthread_mutex_lock(&dev->gpu.lock);
    if (dev->ctx != NULL) {
        dev->cu->CtxSetCurrent(dev->ctx);
        while (dev->n_modules > 0) {
            dev->cu->ModuleUnload(dev->modules[--dev->n_modules]);
        }
        dev->cu->StreamDestroy(dev->stream);
        dev->cu->CtxSetCurrent(NULL);
        dev->cu->DevicePrimaryCtxRelease(dev->number);
        dev->ctx = NULL;
        dev->stream = NULL;
        dev->peers = 0;
        dev->has_kernels = false;
        memset(dev->kernels, 0, sizeof dev->kernels);
    }
    pthread_mutex_unlock(&dev->gpu.lock);
}

bool cuda_peer_reach(struct cuda_device *to, struct cuda_device *from) {
    if (to == from) {
        return true;
    }
    if (cuda_device_enter(from) != GGML_STATUS_SUCCESS || cuda_device_enter(to) != GGML_STATUS_SUCCESS) {
        return false;
    }
    const unsigned bit = 1u << from->traits.index;
    pthread_mutex_lock(&to->gpu.lock);
    int can = (to->peers & bit) != 0;
    if (!can && to->cu->DeviceCanAccessPeer(&can, to->number, from->number) == CUDA_SUCCESS && can) {
        const CUresult rc = to->cu->CtxEnablePeerAccess(from->ctx, 0);
        can = rc == CUDA_SUCCESS || rc == CUDA_ERROR_PEER_ALREADY_ENABLED;
        to->peers |= can ? bit : 0;
    }
    pthread_mutex_unlock(&to->gpu.lock);
    return can;
}

const struct cuda_traits *cuda_traits(const struct gpu_device *dev) {
    return &cuda_of(dev)->traits;
}

const struct cuda_driver *cuda_api(const struct gpu_device *dev) {
    return cuda_of(dev)->cu;
}

const char *cuda_why_unreachable(struct gpu_device *dev, const struct ggml_tensor *t) {
    const ggml_backend_buffer_t buffer = t->view_src != NULL ? t->view_src->buffer : t->buffer;
    struct cuda_device *here = cuda_of(dev), *at = cuda_buffer_device(buffer);
    if (at == here || (at != NULL && cuda_peer_reach(here, at)) || buffer->buft == cuda_host_buft()) {
        return NULL;
    }
    return at != NULL ? "is in the memory of another device, which this device cannot access"
                      : "is in host memory, which this device cannot access";
}

const struct gpu_device_i cuda_gpu_iface = {
    .launch = cuda_launch, .copy = cuda_copy_bytes, .why_unreachable = cuda_why_unreachable};
