// SPDX-License-Identifier: MIT
// reg.c: lists the devices of this machine, and defines the registry entry "CUDA" and the functions of ggml-cuda.h.

#include "cuda/backend.h"
#include "cuda/device.h"

#include "ggml-cuda.h"

#include <stdlib.h>
#include <string.h>

// ---- the devices ----

static struct cuda_device *devices;
static int n_devices;
static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_listed;

static int device_attribute(const struct cuda_driver *cu, CUdevice number, int which) {
    int value = 0;
    return cu->DeviceGetAttribute(&value, which, number) == CUDA_SUCCESS ? value : 0;
}

// Returns false if the driver does not describe the device or Berth does not support the device.
static bool device_describe(struct cuda_device *dev, const struct cuda_driver *cu, int ordinal) {
    CUdevice number;
    if (cu->DeviceGet(&number, ordinal) != CUDA_SUCCESS ||
        cu->DeviceGetName(dev->description, (int) sizeof dev->description, number) != CUDA_SUCCESS) {
        return false;
    }
    const int major = device_attribute(cu, number, CU_ATTRIBUTE_COMPUTE_MAJOR),
              minor = device_attribute(cu, number, CU_ATTRIBUTE_COMPUTE_MINOR);
    dev->cu = cu;
    dev->number = number;
    dev->traits = (struct cuda_traits){
        .cc = major * 10 + minor,
        .n_sm = device_attribute(cu, number, CU_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        .shared_max = (size_t) device_attribute(cu, number, CU_ATTRIBUTE_MAX_SHARED_PER_BLOCK_OPTIN),
        .l2_size = (size_t) device_attribute(cu, number, CU_ATTRIBUTE_L2_CACHE_SIZE),
        .integrated = device_attribute(cu, number, CU_ATTRIBUTE_INTEGRATED) != 0,
    };
    dev->traits.has_kernels_90a = dev->traits.cc == 90 && cuda_has_90a;
    const bool can_wait = dev->traits.has_kernels_90a || (dev->traits.cc >= 90 && cuda_newest_arch >= 90);
    dev->traits.can_overlap = can_wait && cu->LaunchKernelEx != NULL;
    snprintf(dev->pci, sizeof dev->pci, "%04x:%02x:%02x.0",
        (unsigned) device_attribute(cu, number, CU_ATTRIBUTE_PCI_DOMAIN_ID) & 0xffff,
        (unsigned) device_attribute(cu, number, CU_ATTRIBUTE_PCI_BUS_ID) & 0xff,
        (unsigned) device_attribute(cu, number, CU_ATTRIBUTE_PCI_DEVICE_ID) & 0xff);
    if (dev->traits.cc < 80) {
        shim_log(GGML_LOG_LEVEL_WARN, "CUDA: %s is not used: its compute capability is %d.%d, and at least 8.0 is required",
            dev->description, major, minor);
        return false;
    }
    return true;
}

static void devices_list(void) {
    const char *why = "";
    const struct cuda_driver *cu = cuda_driver(&why);
    int n = 0;
    const CUresult rc = cu != NULL ? cu->DeviceGetCount(&n) : CUDA_SUCCESS;
    char text[192];
    if (rc != CUDA_SUCCESS) {
        why = cuda_error_text(cu, rc, text, sizeof text);
    } else if (cu != NULL && n <= 0) {
        why = "the driver lists no device";
    }
    if (cu == NULL || rc != CUDA_SUCCESS || n <= 0) {
        shim_log(GGML_LOG_LEVEL_DEBUG, "CUDA: no device: %s", why);
        return;
    }
    devices = shim_calloc(CUDA_MAX_DEVICES, sizeof *devices);
    if (devices == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "CUDA: out of memory for the list of %d devices", n);
        return;
    }
    for (int i = 0; i < n && n_devices < CUDA_MAX_DEVICES; i++) {
        struct cuda_device *dev = &devices[n_devices];
        if (!device_describe(dev, cu, i)) {
            memset(dev, 0, sizeof *dev);
            continue;
        }
        dev->traits.index = n_devices;
        dev->gpu = (struct gpu_device){.i = &cuda_gpu_iface,
            .name = dev->name,
            .description = dev->description,
            .n_units = dev->traits.n_sm,
            .has_superblocks = true,
            .rows = cuda_op_rows(),
            .fusions = cuda_fusions};
        snprintf(dev->name, sizeof dev->name, "CUDA%d", n_devices);
        dev->gpu.memory_limit = gpu_memory_limit(dev->name);
        pthread_mutex_init(&dev->gpu.lock, NULL);
        dev->gpu.ggml = (struct ggml_backend_device){.iface = cuda_device_iface, .reg = &cuda_reg, .context = dev};
        cuda_buft_init(dev);
        n_devices++;
    }
}

struct cuda_device *cuda_devices(int *n) {
    pthread_mutex_lock(&devices_lock);
    if (!is_listed) {
        devices_list();
        cuda_host_buft_init(devices, n_devices);
        is_listed = true;
    }
    *n = n_devices;
    struct cuda_device *first = devices;
    pthread_mutex_unlock(&devices_lock);
    return first;
}

void cuda_devices_reset(void) {
    pthread_mutex_lock(&devices_lock);
    for (int i = 0; i < n_devices; i++) {
        cuda_device_close(&devices[i]);
        pthread_mutex_destroy(&devices[i].gpu.lock);
    }
    shim_free(devices);
    devices = NULL;
    n_devices = 0;
    cuda_host_buft_init(NULL, 0);
    is_listed = false;
    pthread_mutex_unlock(&devices_lock);
}

// ---- the registry entry ----

static const char *reg_name(ggml_backend_reg_t reg) {
    (void) reg;
    return GGML_CUDA_NAME;
}

static size_t reg_device_count(ggml_backend_reg_t reg) {
    (void) reg;
    return (size_t) ggml_backend_cuda_get_device_count();
}

static struct cuda_device *device_at(int index) {
    int n;
    struct cuda_device *all = cuda_devices(&n);
    return index >= 0 && index < n ? &all[index] : NULL;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
    (void) reg;
    struct cuda_device *dev = index < CUDA_MAX_DEVICES ? device_at((int) index) : NULL;
    return dev != NULL ? &dev->gpu.ggml : NULL;
}

static struct ggml_backend_feature *reg_features(ggml_backend_reg_t reg) {
    (void) reg;
    static struct ggml_backend_feature features[] = {
        {"ARCHS", cuda_archs}, {"USE_GRAPHS", "1"}, {"BERTH", BERTH_VERSION}, {NULL, NULL}};
    return features;
}

static const struct shim_proc procs[] = {
    {"ggml_backend_register_host_buffer", (shim_proc_t) ggml_backend_cuda_register_host_buffer},
    {"ggml_backend_unregister_host_buffer", (shim_proc_t) ggml_backend_cuda_unregister_host_buffer},
    {"ggml_backend_get_features", (shim_proc_t) reg_features},
    {"ggml_backend_comm_init", (shim_proc_t) cuda_comm_init},
    {"ggml_backend_comm_free", (shim_proc_t) cuda_comm_free},
    {"ggml_backend_comm_allreduce_tensor", (shim_proc_t) cuda_comm_allreduce},
    {"berth_backend_reserve", (shim_proc_t) cuda_backend_reserve},
    {"berth_backend_reserve_size", (shim_proc_t) cuda_backend_reserve_size},
    {"berth_backend_reserve_copies", (shim_proc_t) cuda_backend_reserve_copies},
    {"berth_backend_explain", (shim_proc_t) cuda_backend_explain},
    {"berth_backend_n_allocs", (shim_proc_t) cuda_backend_n_allocs},
};

static void *reg_proc_address(ggml_backend_reg_t reg, const char *name) {
    (void) reg;
    return shim_proc_find(procs, sizeof procs / sizeof procs[0], name);
}

struct ggml_backend_reg cuda_reg = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface =
        {
            .get_name = reg_name,
            .get_device_count = reg_device_count,
            .get_device = reg_device,
            .get_proc_address = reg_proc_address,
        },
};

ggml_backend_reg_t ggml_backend_cuda_reg(void) {
    return &cuda_reg;
}

// ---- ggml-cuda.h ----

int ggml_backend_cuda_get_device_count(void) {
    int n;
    cuda_devices(&n);
    return n;
}

ggml_backend_t ggml_backend_cuda_init(int device) {
    struct cuda_device *dev = device_at(device);
    if (dev == NULL) {
        shim_error(GGML_STATUS_FAILED, "CUDA: device %d does not exist: this machine has %d", device,
            ggml_backend_cuda_get_device_count());
        return NULL;
    }
    return cuda_backend_new(dev);
}

ggml_backend_buffer_type_t ggml_backend_cuda_buffer_type(int device) {
    struct cuda_device *dev = device_at(device);
    return dev != NULL ? &dev->gpu.buft : NULL;
}

void ggml_backend_cuda_get_device_description(int device, char *description, size_t description_size) {
    const struct cuda_device *dev = device_at(device);
    gpu_description_copy(dev != NULL ? &dev->gpu : NULL, description, description_size);
}

void ggml_backend_cuda_get_device_memory(int device, size_t *free, size_t *total) {
    struct cuda_device *dev = device_at(device);
    gpu_memory_query(dev != NULL ? &dev->gpu : NULL, free, total);
}

static struct cuda_device *list_and_enter_any(void) {
    return ggml_backend_cuda_get_device_count() > 0 ? cuda_device_enter_any() : NULL;
}

ggml_backend_buffer_type_t ggml_backend_cuda_host_buffer_type(void) {
    int n;
    cuda_devices(&n);
    return cuda_host_buft();
}

bool ggml_backend_cuda_register_host_buffer(void *buffer, size_t size) {
    struct cuda_device *dev =
        buffer != NULL && size > 0 && getenv("GGML_CUDA_REGISTER_HOST") != NULL ? list_and_enter_any() : NULL;
    if (dev == NULL) {
        return false;
    }
    const CUresult rc = dev->cu->MemHostRegister(buffer, size, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_READ_ONLY);
    if (rc != CUDA_SUCCESS) {
        char text[192];
        shim_log(GGML_LOG_LEVEL_WARN, "CUDA: cannot register %zu bytes of host memory: %s", size,
            cuda_error_text(dev->cu, rc, text, sizeof text));
    }
    return rc == CUDA_SUCCESS;
}

void ggml_backend_cuda_unregister_host_buffer(void *buffer) {
    struct cuda_device *dev = buffer != NULL && getenv("GGML_CUDA_REGISTER_HOST") != NULL ? list_and_enter_any() : NULL;
    if (dev != NULL) {
        dev->cu->MemHostUnregister(buffer);
    }
}
