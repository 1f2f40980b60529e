// SPDX-License-Identifier: MIT
// driver.c: loads Vulkan on first use and creates the instance. The library is the loader (libvulkan.so.1), or a driver that
// BERTH_VULKAN_DRIVER names, for machines without a loader and for tests. It is never closed, because drivers run threads.

#include "vulkan/driver.h"

#include "base/shim/shim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vulkan_driver table; // instance is VK_NULL_HANDLE: not loaded
static bool was_tried;
static char reason[256];

// Returns vkGetInstanceProcAddr of the library. A driver without a loader exports vk_icdGetInstanceProcAddr, and requires that the
// version of the interface between loader and driver is negotiated first.
static PFN_vkGetInstanceProcAddr entry_of(void *lib) {
    PFN_vkGetInstanceProcAddr entry = NULL;
    VkResult (*negotiate)(uint32_t * version) = NULL;
    void *symbol = dlsym(lib, "vkGetInstanceProcAddr");
    if (symbol != NULL) {
        memcpy(&entry, &symbol, sizeof entry);
        return entry;
    }
    symbol = dlsym(lib, "vk_icdNegotiateLoaderICDInterfaceVersion");
    memcpy(&negotiate, &symbol, sizeof negotiate);
    uint32_t version = 5;
    if (negotiate != NULL && negotiate(&version) != VK_SUCCESS) {
        return NULL;
    }
    symbol = dlsym(lib, "vk_icdGetInstanceProcAddr");
    memcpy(&entry, &symbol, sizeof entry);
    return entry;
}

static bool instance_create(PFN_vkGetInstanceProcAddr entry) {
    const PFN_vkCreateInstance create = (PFN_vkCreateInstance) entry(VK_NULL_HANDLE, "vkCreateInstance");
    if (create == NULL) {
        snprintf(reason, sizeof reason, "the library has no vkCreateInstance");
        return false;
    }
    const VkApplicationInfo app = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pApplicationName = "berth", .apiVersion = VK_API_VERSION_1_2};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
    const VkResult rc = create(&info, NULL, &table.instance);
    if (rc != VK_SUCCESS) {
        table.instance = VK_NULL_HANDLE;
        snprintf(reason, sizeof reason, "vkCreateInstance: %s (%d)", vulkan_error_text(rc), rc);
        return false;
    }
    const char *missing = NULL;
#define LOAD(name) \
    table.name = (PFN_vk##name) entry(table.instance, "vk" #name); \
    if (table.name == NULL) { \
        missing = "vk" #name; \
    }
    VULKAN_INSTANCE_FUNCTIONS(LOAD)
#undef LOAD
    if (missing != NULL) {
        snprintf(reason, sizeof reason, "the driver lacks %s: Vulkan 1.2 is required", missing);
        if (table.DestroyInstance != NULL) {
            table.DestroyInstance(table.instance, NULL);
        }
        table.instance = VK_NULL_HANDLE;
    }
    return missing == NULL;
}

static void driver_load(void) {
    const char *path = secure_getenv("BERTH_VULKAN_DRIVER");
    if (path == NULL || path[0] == '\0') {
        path = "libvulkan.so.1";
    }
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL) {
        const char *text = dlerror();
        snprintf(reason, sizeof reason, "cannot load Vulkan: %s", text != NULL ? text : path);
        return;
    }
    const PFN_vkGetInstanceProcAddr entry = entry_of(lib);
    if (entry == NULL) {
        snprintf(reason, sizeof reason, "%s exports no vkGetInstanceProcAddr", path);
        return;
    }
    if (!instance_create(entry)) {
        shim_log(GGML_LOG_LEVEL_DEBUG, "Vulkan: %s", reason);
    }
}

const struct vulkan_driver *vulkan_driver(const char **why) {
    pthread_mutex_lock(&lock);
    if (!was_tried) {
        driver_load();
        was_tried = true;
    }
    const struct vulkan_driver *driver = table.instance != VK_NULL_HANDLE ? &table : NULL;
    pthread_mutex_unlock(&lock);
    if (why != NULL) {
        *why = reason;
    }
    return driver;
}

bool vulkan_api_load(const struct vulkan_driver *driver, VkDevice device, struct vulkan_api *api, const char **missing) {
    *missing = NULL;
#define LOAD(name) \
    api->name = (PFN_vk##name) driver->GetDeviceProcAddr(device, "vk" #name); \
    if (api->name == NULL) { \
        *missing = "vk" #name; \
    }
    VULKAN_DEVICE_FUNCTIONS(LOAD)
#undef LOAD
    return *missing == NULL;
}

void vulkan_driver_reset(void) {
    pthread_mutex_lock(&lock);
    if (table.instance != VK_NULL_HANDLE) {
        table.DestroyInstance(table.instance, NULL);
    }
    memset(&table, 0, sizeof table);
    was_tried = false;
    reason[0] = '\0';
    pthread_mutex_unlock(&lock);
}
