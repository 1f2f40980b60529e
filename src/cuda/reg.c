// SPDX-License-Identifier: MIT
// reg.c: the registry entry "CUDA" and the functions of ggml-cuda.h.

#include "cuda/backend.h"
#include "cuda/device.h"

#include "ggml-cuda.h"

#include <string.h>

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
    struct cuda_device *devices = cuda_devices(&n);
    return index >= 0 && index < n ? &devices[index] : NULL;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
    (void) reg;
    struct cuda_device *dev = index < CUDA_MAX_DEVICES ? device_at((int) index) : NULL;
    return dev != NULL ? &dev->ggml : NULL;
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
        shim_error(GGML_STATUS_FAILED, "CUDA: no device %d: there are %d", device, ggml_backend_cuda_get_device_count());
        return NULL;
    }
    return cuda_backend_new(dev);
}

ggml_backend_buffer_type_t ggml_backend_cuda_buffer_type(int device) {
    struct cuda_device *dev = device_at(device);
    return dev != NULL ? &dev->buft : NULL;
}

void ggml_backend_cuda_get_device_description(int device, char *description, size_t description_size) {
    const struct cuda_device *dev = device_at(device);
    if (description != NULL && description_size > 0) {
        snprintf(description, description_size, "%s", dev != NULL ? dev->description : "");
    }
}

void ggml_backend_cuda_get_device_memory(int device, size_t *free, size_t *total) {
    struct cuda_device *dev = device_at(device);
    size_t n_free = 0, n_total = 0;
    if (dev != NULL) {
        dev->ggml.iface.get_memory(&dev->ggml, &n_free, &n_total);
    }
    if (free != NULL) {
        *free = n_free;
    }
    if (total != NULL) {
        *total = n_total;
    }
}
