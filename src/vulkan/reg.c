// SPDX-License-Identifier: MIT
// reg.c: lists the devices of this machine, and defines the registry entry "Vulkan" and the functions of ggml-vulkan.h.

#include "vulkan/backend.h"

#include "ggml-vulkan.h"

#include <stdio.h>
#include <string.h>

static struct vulkan_device *devices;
static int n_devices;
static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_listed;

static const char *why_unreachable(struct gpu_device *dev, const struct ggml_tensor *t) {
    const struct vulkan_device *at = vulkan_buffer_device(gpu_buffer_of(t));
    if (at == vulkan_of(dev)) {
        return NULL;
    }
    return at != NULL ? "is in the memory of another device, which this device cannot access"
                      : "is in host memory, which this device cannot access";
}

const struct gpu_device_i vulkan_gpu_iface = {.launch = vulkan_launch, .copy = vulkan_copy, .why_unreachable = why_unreachable};

// Adds a device to the list if Berth can use it.
static void device_add(const struct vulkan_driver *driver, VkPhysicalDevice physical) {
    struct vulkan_device *dev = &devices[n_devices];
    dev->driver = driver;
    dev->physical = physical;
    if (!vulkan_device_describe(dev)) {
        memset(dev, 0, sizeof *dev);
        return;
    }
    snprintf(dev->name, sizeof dev->name, "%s%d", GGML_VK_NAME, n_devices);
    dev->gpu = (struct gpu_device){.i = &vulkan_gpu_iface,
        .name = dev->name,
        .description = dev->description,
        .memory_limit = gpu_memory_limit(dev->name),
        .n_units = 16, // Vulkan does not tell it; only the number of workgroups of looping kernels depends on it
        .rows = vulkan_op_rows(),
        .fusions = vulkan_fusions};
    pthread_mutex_init(&dev->gpu.lock, NULL);
    dev->gpu.ggml = (struct ggml_backend_device){.iface = vulkan_device_iface, .reg = &vulkan_reg, .context = dev};
    vulkan_buft_init(dev);
    n_devices++;
}

static void devices_list(void) {
    const char *why = "";
    const struct vulkan_driver *driver = vulkan_driver(&why);
    if (driver == NULL) {
        shim_log(GGML_LOG_LEVEL_DEBUG, "Vulkan: no device: %s", why);
        return;
    }
    VkPhysicalDevice all[VULKAN_MAX_DEVICES];
    uint32_t n = VULKAN_MAX_DEVICES;
    const VkResult rc = driver->EnumeratePhysicalDevices(driver->instance, &n, all);
    if (rc < VK_SUCCESS || n == 0) {
        shim_log(
            GGML_LOG_LEVEL_DEBUG, "Vulkan: no device: %s", rc < VK_SUCCESS ? vulkan_error_text(rc) : "the driver lists none");
        return;
    }
    devices = shim_calloc(VULKAN_MAX_DEVICES, sizeof *devices);
    if (devices == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "Vulkan: out of memory for the list of %u devices", n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        device_add(driver, all[i]);
    }
}

struct vulkan_device *vulkan_devices(int *n) {
    pthread_mutex_lock(&devices_lock);
    if (!is_listed) {
        devices_list();
        is_listed = true;
    }
    *n = n_devices;
    struct vulkan_device *first = devices;
    pthread_mutex_unlock(&devices_lock);
    return first;
}

void vulkan_devices_reset(void) {
    pthread_mutex_lock(&devices_lock);
    for (int i = 0; i < n_devices; i++) {
        vulkan_device_close(&devices[i]);
        pthread_mutex_destroy(&devices[i].gpu.lock);
    }
    shim_free(devices);
    devices = NULL;
    n_devices = 0;
    is_listed = false;
    vulkan_driver_reset();
    pthread_mutex_unlock(&devices_lock);
}

// ---- the registry entry ----

static const char *reg_name(ggml_backend_reg_t reg) {
    (void) reg;
    return GGML_VK_NAME;
}

static size_t reg_device_count(ggml_backend_reg_t reg) {
    (void) reg;
    return (size_t) ggml_backend_vk_get_device_count();
}

static struct vulkan_device *device_at(size_t index) {
    int n;
    struct vulkan_device *all = vulkan_devices(&n);
    return index < (size_t) n ? &all[index] : NULL;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index) {
    (void) reg;
    struct vulkan_device *dev = device_at(index);
    return dev != NULL ? &dev->gpu.ggml : NULL;
}

static struct ggml_backend_feature *reg_features(ggml_backend_reg_t reg) {
    (void) reg;
    static struct ggml_backend_feature features[] = {{"BERTH", BERTH_VERSION}, {NULL, NULL}};
    return features;
}

static const struct shim_proc procs[] = {
    {"ggml_backend_get_features", (shim_proc_t) reg_features},
    {"berth_backend_reserve", (shim_proc_t) vulkan_backend_reserve},
    {"berth_backend_reserve_size", (shim_proc_t) vulkan_backend_reserve_size},
    {"berth_backend_explain", (shim_proc_t) vulkan_backend_explain},
    {"berth_backend_n_allocs", (shim_proc_t) vulkan_backend_n_allocs},
};

static void *reg_proc_address(ggml_backend_reg_t reg, const char *name) {
    (void) reg;
    return shim_proc_find(procs, sizeof procs / sizeof procs[0], name);
}

struct ggml_backend_reg vulkan_reg = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface =
        {
            .get_name = reg_name,
            .get_device_count = reg_device_count,
            .get_device = reg_device,
            .get_proc_address = reg_proc_address,
        },
};

ggml_backend_reg_t ggml_backend_vk_reg(void) {
    return &vulkan_reg;
}

// ---- ggml-vulkan.h ----

int ggml_backend_vk_get_device_count(void) {
    int n;
    vulkan_devices(&n);
    return n;
}

ggml_backend_t ggml_backend_vk_init(size_t dev_num) {
    struct vulkan_device *dev = device_at(dev_num);
    if (dev == NULL) {
        shim_error(GGML_STATUS_FAILED, "Vulkan: device %zu does not exist: this machine has %d", dev_num,
            ggml_backend_vk_get_device_count());
        return NULL;
    }
    return vulkan_backend_new(dev);
}

ggml_backend_buffer_type_t ggml_backend_vk_buffer_type(size_t dev_num) {
    struct vulkan_device *dev = device_at(dev_num);
    return dev != NULL ? &dev->gpu.buft : NULL;
}

ggml_backend_buffer_type_t ggml_backend_vk_host_buffer_type(void) {
    return ggml_backend_cpu_buffer_type();
}

void ggml_backend_vk_get_device_description(int device, char *description, size_t description_size) {
    const struct vulkan_device *dev = device >= 0 ? device_at((size_t) device) : NULL;
    gpu_description_copy(dev != NULL ? &dev->gpu : NULL, description, description_size);
}

void ggml_backend_vk_get_device_memory(int device, size_t *free, size_t *total) {
    struct vulkan_device *dev = device >= 0 ? device_at((size_t) device) : NULL;
    gpu_memory_query(dev != NULL ? &dev->gpu : NULL, free, total);
}
