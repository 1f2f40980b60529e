// SPDX-License-Identifier: MIT
// launch.c: finds kernels by name, and launches kernels and copies on the stream of a run.

#include "cuda/device.h"

#include <string.h>

// ---- kernels ----

static uint32_t name_hash(const char *name) {
    uint32_t h = 2166136261u;
    for (; *name != '\0'; name++) {
        h = (h ^ (unsigned char) *name) * 16777619u;
    }
    return h;
}

// Loads a kernel into the device's memory. Otherwise its first launch would allocate memory. Drivers before CUDA 12.4 load a kernel
// when one of its attributes is queried.
static CUresult function_load(const struct cuda_driver *cu, CUfunction function) {
    int n_regs;
    return cu->FuncLoad != NULL ? cu->FuncLoad(function) : cu->FuncGetAttribute(&n_regs, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
}

// Finds a kernel in the modules and loads it.
static CUresult kernel_look_up(struct cuda_device *dev, const char *name, CUfunction *function) {
    CUresult rc = CUDA_ERROR_NOT_FOUND;
    for (int i = 0; i < dev->n_modules && rc == CUDA_ERROR_NOT_FOUND; i++) {
        rc = dev->cu->ModuleGetFunction(function, dev->modules[i], name);
    }
    return rc == CUDA_SUCCESS ? function_load(dev->cu, *function) : rc;
}

// Loads all kernels of a module. Raises *local_size to the largest local memory of a thread, in bytes.
static CUresult module_load(const struct cuda_driver *cu, CUmodule module, int *local_size) {
    unsigned n = 0;
    CUresult rc = cu->ModuleGetFunctionCount(&n, module);
    if (rc != CUDA_SUCCESS || n == 0) {
        return rc;
    }
    CUfunction *functions = shim_calloc(n, sizeof *functions);
    if (functions == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    rc = cu->ModuleEnumerateFunctions(functions, n, module);
    for (unsigned i = 0; i < n && rc == CUDA_SUCCESS; i++) {
        int size = 0;
        rc = function_load(cu, functions[i]);
        if (rc == CUDA_SUCCESS) {
            rc = cu->FuncGetAttribute(&size, CU_FUNC_ATTRIBUTE_LOCAL_SIZE, functions[i]);
        }
        if (size > *local_size) {
            *local_size = size;
        }
    }
    shim_free(functions);
    return rc;
}

// The driver allocates local memory for all threads of the device, by default 1 KiB per thread. The first launch of a kernel that
// needs more would allocate memory, so this is done now. The limit is never lowered, because other code of the process shares it.
static CUresult local_memory_take(const struct cuda_driver *cu, size_t size) {
    size_t now = 0;
    const bool can = cu->CtxGetLimit != NULL && cu->CtxSetLimit != NULL;
    const CUresult rc = can ? cu->CtxGetLimit(&now, CU_LIMIT_STACK_SIZE) : CUDA_SUCCESS;
    return can && rc == CUDA_SUCCESS && now < size ? cu->CtxSetLimit(CU_LIMIT_STACK_SIZE, size) : rc;
}

enum ggml_status cuda_kernels_load(struct cuda_device *dev) {
    CUresult rc = CUDA_SUCCESS;
    pthread_mutex_lock(&dev->gpu.lock);
    if (!dev->has_kernels && dev->cu->ModuleGetFunctionCount != NULL && dev->cu->ModuleEnumerateFunctions != NULL) {
        int local_size = 0;
        for (int i = 0; i < dev->n_modules && rc == CUDA_SUCCESS; i++) {
            rc = module_load(dev->cu, dev->modules[i], &local_size);
        }
        if (rc == CUDA_SUCCESS) {
            rc = local_memory_take(dev->cu, (size_t) local_size);
        }
        dev->has_kernels = rc == CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&dev->gpu.lock);
    return rc == CUDA_SUCCESS ? GGML_STATUS_SUCCESS : cuda_fail(dev, rc, "loading the kernels");
}

struct cuda_kernel *cuda_kernel_find(struct cuda_device *dev, const char *name) {
    CUresult rc = CUDA_SUCCESS;
    pthread_mutex_lock(&dev->gpu.lock);
    uint32_t at = name_hash(name) & (CUDA_KERNEL_SLOTS - 1);
    for (int n = 0; dev->kernels[at].name != NULL && strcmp(dev->kernels[at].name, name) != 0; n++) {
        at = (at + 1) & (CUDA_KERNEL_SLOTS - 1);
        if (n == CUDA_KERNEL_SLOTS - 1) {
            rc = CUDA_ERROR_OUT_OF_MEMORY;
            break;
        }
    }
    struct cuda_kernel *k = &dev->kernels[at];
    if (rc == CUDA_SUCCESS && k->name == NULL) {
        CUfunction function = NULL;
        rc = kernel_look_up(dev, name, &function);
        if (rc == CUDA_SUCCESS) {
            *k = (struct cuda_kernel){.name = name, .function = function, .shared_size = 48 * 1024};
        }
    }
    pthread_mutex_unlock(&dev->gpu.lock);
    if (rc != CUDA_SUCCESS) {
        cuda_fail(dev, rc, "loading kernel %s", name);
        return NULL;
    }
    return k;
}

// Allows a kernel to use `size` bytes of dynamic shared memory. The driver allows 48 KiB for every kernel, so smaller sizes need
// no driver call.
static enum ggml_status kernel_allow_shared(struct cuda_device *dev, struct cuda_kernel *k, size_t size) {
    if (size <= k->shared_size) {
        return GGML_STATUS_SUCCESS;
    }
    pthread_mutex_lock(&dev->gpu.lock);
    const CUresult rc = dev->cu->FuncSetAttribute(k->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED, (int) size);
    if (rc == CUDA_SUCCESS) {
        k->shared_size = size;
    }
    pthread_mutex_unlock(&dev->gpu.lock);
    return rc == CUDA_SUCCESS ? GGML_STATUS_SUCCESS
                              : cuda_fail(dev, rc, "raising the shared memory limit to %zu bytes for kernel %s", size, k->name);
}

// ---- launches ----

static unsigned at_least_1(unsigned n) {
    return n > 0 ? n : 1;
}

static CUresult function_launch(
    const struct cuda_driver *cu, CUfunction function, const struct gpu_dims *d, CUstream stream, bool overlap, void **args) {
    CUlaunchAttribute attrs[2];
    unsigned n_attrs = 0;
    memset(attrs, 0, sizeof attrs);
    if (overlap) {
        attrs[n_attrs].id = CU_LAUNCH_PROGRAMMATIC_SERIALIZATION;
        attrs[n_attrs++].value.programmatic = 1;
    }
    if (d->cluster > 1) {
        attrs[n_attrs].id = CU_LAUNCH_CLUSTER_DIMENSION;
        attrs[n_attrs].value.cluster[0] = d->cluster;
        attrs[n_attrs].value.cluster[1] = attrs[n_attrs].value.cluster[2] = 1;
        n_attrs++;
    }
    const unsigned gx = at_least_1(d->grid[0]), gy = at_least_1(d->grid[1]), gz = at_least_1(d->grid[2]);
    const unsigned bx = at_least_1(d->block[0]), by = at_least_1(d->block[1]), bz = at_least_1(d->block[2]);
    if (n_attrs == 0 || cu->LaunchKernelEx == NULL) {
        return cu->LaunchKernel(function, gx, gy, gz, bx, by, bz, d->shared_size, stream, args, NULL);
    }
    const CUlaunchConfig config = {.grid = {gx, gy, gz},
        .block = {bx, by, bz},
        .shared_size = d->shared_size,
        .stream = stream,
        .attrs = attrs,
        .n_attrs = n_attrs};
    return cu->LaunchKernelEx(&config, function, args, NULL);
}

enum ggml_status cuda_launch(struct gpu_run *run, const char *kernel, struct gpu_dims dims, const void *arg, size_t arg_size) {
    struct cuda_run *r = (struct cuda_run *) run;
    struct cuda_device *dev = cuda_of(run->dev);
    struct cuda_kernel *k = cuda_kernel_find(dev, kernel);
    (void) arg_size; // the driver knows it from the kernel
    if (k == NULL) {
        return GGML_STATUS_FAILED;
    }
    const enum ggml_status status = kernel_allow_shared(dev, k, dims.shared_size);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    void *args[] = {(void *) (uintptr_t) arg};
    const bool overlap = dims.overlap && dev->traits.can_overlap && !r->has_gap;
    const CUresult rc = function_launch(dev->cu, k->function, &dims, r->stream, overlap, args);
    r->has_gap = false;
    r->n_launches++;
    r->has_clusters |= dims.cluster > 1;
    return rc == CUDA_SUCCESS
               ? GGML_STATUS_SUCCESS
               : cuda_fail(dev, rc, "launching kernel %s, grid %u x %u x %u, block %u x %u, %u bytes shared", kernel,
                     dims.grid[0], dims.grid[1], dims.grid[2], dims.block[0], dims.block[1], dims.shared_size);
}

enum ggml_status cuda_copy_bytes(struct gpu_run *run, void *to, const void *from, size_t size) {
    struct cuda_run *r = (struct cuda_run *) run;
    struct cuda_device *dev = cuda_of(run->dev);
    r->has_gap = true;
    const CUresult rc = size > 0 ? dev->cu->MemcpyDtoDAsync(cuda_ptr(to), cuda_ptr(from), size, r->stream) : CUDA_SUCCESS;
    return rc == CUDA_SUCCESS ? GGML_STATUS_SUCCESS : cuda_fail(dev, rc, "copying %zu bytes", size);
}
