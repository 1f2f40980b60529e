// SPDX-License-Identifier: MIT
// gpu.c: the VkDevice of a device: properties, creation, submission.
//
// Invariant: device, queue, layout, pool, copy_commands, copy_done and staging are either all valid or all absent.

#include "vulkan/device.h"

#include "quant/grids.h"

#include <stdio.h>
#include <string.h>

#define STAGING_SIZE ((size_t) 4 << 20)

// ---- properties ----

// The features that Berth reads, chained so that the driver fills all of them.
struct features {
    VkPhysicalDeviceFeatures2 core;
    VkPhysicalDeviceVulkan11Features v11;
    VkPhysicalDeviceVulkan12Features v12;
};

static void features_init(struct features *f) {
    memset(f, 0, sizeof *f);
    f->core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    f->core.pNext = &f->v11;
    f->v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
    f->v11.pNext = &f->v12;
    f->v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
}

// Returns the name of a required feature that the device lacks; NULL: it has all.
static const char *missing_feature(const struct features *f) {
    const struct {
        VkBool32 has;
        const char *name;
    } required[] = {
        {f->v12.bufferDeviceAddress, "bufferDeviceAddress"},
        {f->v12.scalarBlockLayout, "scalarBlockLayout"},
        {f->v12.timelineSemaphore, "timelineSemaphore"},
        {f->v12.storageBuffer8BitAccess, "storageBuffer8BitAccess"},
        {f->v11.storageBuffer16BitAccess, "storageBuffer16BitAccess"},
        {f->core.features.shaderInt64, "shaderInt64"},
    };
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
        if (!required[i].has) {
            return required[i].name;
        }
    }
    return NULL;
}

// Returns whether the device has a queue for compute, and stores its family.
static bool family_find(struct vulkan_device *dev) {
    VkQueueFamilyProperties families[32];
    uint32_t n = 32;
    dev->driver->GetPhysicalDeviceQueueFamilyProperties(dev->physical, &n, families);
    for (uint32_t i = 0; i < n; i++) {
        if ((families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) != 0 && families[i].queueCount > 0) {
            dev->family = i;
            return true;
        }
    }
    return false;
}

static bool has_extension(const struct vulkan_device *dev, const char *name) {
    uint32_t n = 0;
    if (dev->driver->EnumerateDeviceExtensionProperties(dev->physical, NULL, &n, NULL) != VK_SUCCESS || n == 0) {
        return false;
    }
    VkExtensionProperties *all = shim_calloc(n, sizeof *all);
    bool found = false;
    if (all != NULL && dev->driver->EnumerateDeviceExtensionProperties(dev->physical, NULL, &n, all) >= VK_SUCCESS) {
        for (uint32_t i = 0; i < n && !found; i++) {
            found = strcmp(all[i].extensionName, name) == 0;
        }
    }
    shim_free(all);
    return found;
}

static void pci_read(struct vulkan_device *dev) {
    VkPhysicalDevicePCIBusInfoPropertiesEXT pci = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &pci};
    if (has_extension(dev, VK_EXT_PCI_BUS_INFO_EXTENSION_NAME)) {
        dev->driver->GetPhysicalDeviceProperties2(dev->physical, &p);
        snprintf(dev->pci, sizeof dev->pci, "%04x:%02x:%02x.%x", pci.pciDomain & 0xffff, pci.pciBus & 0xff, pci.pciDevice & 0xff,
            pci.pciFunction & 0xf);
    }
}

static void traits_read(struct vulkan_device *dev, const VkPhysicalDeviceProperties *p, uint32_t subgroup, uint64_t max_size) {
    const VkPhysicalDeviceLimits *l = &p->limits;
    const bool shares = p->deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU || p->deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    dev->traits = (struct vulkan_traits){
        .subgroup = subgroup,
        .shared_max = l->maxComputeSharedMemorySize,
        .block_max = l->maxComputeWorkGroupInvocations,
        .grid_max = {l->maxComputeWorkGroupCount[0], l->maxComputeWorkGroupCount[1], l->maxComputeWorkGroupCount[2]},
        .allocation_max = max_size,
        .is_integrated = shares,
        .has_mapped = shares && !gpu_env_is_set("BERTH_VULKAN_STAGING"),
    };
}

bool vulkan_device_describe(struct vulkan_device *dev) {
    VkPhysicalDeviceVulkan12Properties v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
    VkPhysicalDeviceVulkan11Properties v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &v12};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &v11};
    struct features f;
    features_init(&f);
    dev->driver->GetPhysicalDeviceProperties2(dev->physical, &p);
    snprintf(dev->description, sizeof dev->description, "%s", p.properties.deviceName);
    memcpy(dev->uuid, v11.deviceUUID, sizeof dev->uuid);
    if (p.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU && !gpu_env_is_set("BERTH_VULKAN_CPU")) {
        shim_log(GGML_LOG_LEVEL_DEBUG, "Vulkan: %s is not used: it computes on the CPU. BERTH_VULKAN_CPU=1 lists it",
            dev->description);
        return false;
    }
    if (p.properties.apiVersion < VK_API_VERSION_1_2) {
        shim_log(GGML_LOG_LEVEL_WARN, "Vulkan: %s is not used: it supports Vulkan %u.%u, and 1.2 is required", dev->description,
            VK_API_VERSION_MAJOR(p.properties.apiVersion), VK_API_VERSION_MINOR(p.properties.apiVersion));
        return false;
    }
    dev->driver->GetPhysicalDeviceFeatures2(dev->physical, &f.core);
    const char *missing = missing_feature(&f);
    if (missing != NULL) {
        shim_log(GGML_LOG_LEVEL_WARN, "Vulkan: %s is not used: it lacks %s", dev->description, missing);
        return false;
    }
    if (!family_find(dev)) {
        shim_log(GGML_LOG_LEVEL_WARN, "Vulkan: %s is not used: it has no queue for compute", dev->description);
        return false;
    }
    traits_read(dev, &p.properties, v11.subgroupSize, v11.maxMemoryAllocationSize);
    dev->traits.keeps_denormals = v12.shaderDenormPreserveFloat32;
    dev->traits.keeps_specials = v12.shaderSignedZeroInfNanPreserveFloat32;
    if (dev->traits.block_max < 256 || dev->traits.shared_max < 32768) {
        shim_log(GGML_LOG_LEVEL_WARN,
            "Vulkan: %s is not used: its workgroups have %u invocations and %u bytes, and 256 and 32768 are required",
            dev->description, dev->traits.block_max, dev->traits.shared_max);
        return false;
    }
    pci_read(dev);
    return true;
}

// ---- the VkDevice ----

static VkResult layout_new(struct vulkan_device *dev) {
    const VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = 32};
    const VkPipelineLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO, .pushConstantRangeCount = 1, .pPushConstantRanges = &range};
    return dev->vk.CreatePipelineLayout(dev->device, &info, NULL, &dev->layout);
}

static VkResult pool_new(struct vulkan_device *dev) {
    const VkCommandPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
        .queueFamilyIndex = dev->family};
    VkResult rc = dev->vk.CreateCommandPool(dev->device, &info, NULL, &dev->pool);
    if (rc != VK_SUCCESS) {
        dev->pool = VK_NULL_HANDLE;
        return rc;
    }
    const VkCommandBufferAllocateInfo alloc = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = dev->pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1};
    return dev->vk.AllocateCommandBuffers(dev->device, &alloc, &dev->copy_commands);
}

VkResult vulkan_semaphore_new(struct vulkan_device *dev, VkSemaphore *semaphore) {
    const VkSemaphoreTypeCreateInfo type = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    const VkResult rc = dev->vk.CreateSemaphore(dev->device, &info, NULL, semaphore);
    if (rc != VK_SUCCESS) {
        *semaphore = VK_NULL_HANDLE;
    }
    return rc;
}

// The codebooks, at the offsets that shader/formats.glsl expects.
struct vulkan_tables {
    uint16_t iq2_xxs[256], iq2_xs[512], iq2_s[1024], iq3_xxs[256], iq3_s[512], iq1[2048];
};

static VkResult tables_new(struct vulkan_device *dev) {
    const VkResult rc = vulkan_memory_try(dev, &dev->tables, sizeof(struct vulkan_tables), VULKAN_HOST_MEMORY);
    if (rc != VK_SUCCESS) {
        return rc;
    }
    struct vulkan_tables *t = (struct vulkan_tables *) dev->tables.host;
    memcpy(t->iq2_xxs, grid_iq2_xxs, sizeof t->iq2_xxs);
    memcpy(t->iq2_xs, grid_iq2_xs, sizeof t->iq2_xs);
    memcpy(t->iq2_s, grid_iq2_s, sizeof t->iq2_s);
    memcpy(t->iq3_xxs, grid_iq3_xxs, sizeof t->iq3_xxs);
    memcpy(t->iq3_s, grid_iq3_s, sizeof t->iq3_s);
    memcpy(t->iq1, grid_iq1, sizeof t->iq1);
    return VK_SUCCESS;
}

static VkResult device_create(struct vulkan_device *dev, const char **what) {
    const float priority = 1.0f;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueFamilyIndex = dev->family,
        .queueCount = 1,
        .pQueuePriorities = &priority};
    struct features use;
    features_init(&use);
    use.v12.bufferDeviceAddress = VK_TRUE;
    use.v12.scalarBlockLayout = VK_TRUE;
    use.v12.timelineSemaphore = VK_TRUE;
    use.v12.storageBuffer8BitAccess = VK_TRUE;
    use.v11.storageBuffer16BitAccess = VK_TRUE;
    use.core.features.shaderInt64 = VK_TRUE;
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .pNext = &use.core,
        .queueCreateInfoCount = 1,
        .pQueueCreateInfos = &queue};
    *what = "vkCreateDevice";
    const VkResult rc = dev->driver->CreateDevice(dev->physical, &info, NULL, &dev->device);
    if (rc != VK_SUCCESS) {
        dev->device = VK_NULL_HANDLE;
        return rc;
    }
    if (!vulkan_api_load(dev->driver, dev->device, &dev->vk, what)) {
        if (dev->vk.DestroyDevice != NULL) {
            dev->vk.DestroyDevice(dev->device, NULL);
        }
        dev->device = VK_NULL_HANDLE;
        return VK_ERROR_INCOMPATIBLE_DRIVER;
    }
    dev->vk.GetDeviceQueue(dev->device, dev->family, 0, &dev->queue);
    return VK_SUCCESS;
}

// Frees everything that device_open_locked creates. The caller holds the lock.
static void device_close_locked(struct vulkan_device *dev) {
    if (dev->device == VK_NULL_HANDLE) {
        return;
    }
    dev->vk.DeviceWaitIdle(dev->device);
    vulkan_pipelines_free(dev);
    vulkan_memory_give_back(dev, &dev->staging);
    vulkan_memory_give_back(dev, &dev->tables);
    if (dev->copy_done != VK_NULL_HANDLE) {
        dev->vk.DestroySemaphore(dev->device, dev->copy_done, NULL);
    }
    if (dev->pool != VK_NULL_HANDLE) {
        dev->vk.DestroyCommandPool(dev->device, dev->pool, NULL);
    }
    if (dev->layout != VK_NULL_HANDLE) {
        dev->vk.DestroyPipelineLayout(dev->device, dev->layout, NULL);
    }
    dev->vk.DestroyDevice(dev->device, NULL);
    dev->copy_done = VK_NULL_HANDLE;
    dev->n_copies = 0;
    dev->pool = VK_NULL_HANDLE;
    dev->layout = VK_NULL_HANDLE;
    dev->device = VK_NULL_HANDLE;
}

static VkResult device_open_locked(struct vulkan_device *dev, const char **what) {
    VkResult rc = device_create(dev, what);
    if (rc != VK_SUCCESS) {
        return rc;
    }
    *what = "vkCreatePipelineLayout";
    if ((rc = layout_new(dev)) != VK_SUCCESS) {
        dev->layout = VK_NULL_HANDLE;
        goto fail;
    }
    *what = "creating a command pool";
    if ((rc = pool_new(dev)) != VK_SUCCESS) {
        goto fail;
    }
    *what = "vkCreateSemaphore";
    if ((rc = vulkan_semaphore_new(dev, &dev->copy_done)) != VK_SUCCESS) {
        goto fail;
    }
    *what = "allocating memory for tables";
    if ((rc = tables_new(dev)) != VK_SUCCESS) {
        goto fail;
    }
    if (!dev->traits.has_mapped) {
        *what = "allocating memory for staging";
        if ((rc = vulkan_memory_try(dev, &dev->staging, STAGING_SIZE, VULKAN_HOST_MEMORY)) != VK_SUCCESS) {
            goto fail;
        }
    }
    return VK_SUCCESS;
fail:
    device_close_locked(dev);
    return rc;
}

enum ggml_status vulkan_device_enter(struct vulkan_device *dev) {
    if (atomic_load(&dev->is_lost)) {
        return shim_error(GGML_STATUS_FAILED, "%s: the device is lost until the program restarts", dev->name);
    }
    const char *what = "";
    VkResult rc = VK_SUCCESS;
    pthread_mutex_lock(&dev->gpu.lock);
    if (dev->device == VK_NULL_HANDLE) {
        rc = device_open_locked(dev, &what);
    }
    pthread_mutex_unlock(&dev->gpu.lock);
    return rc == VK_SUCCESS ? GGML_STATUS_SUCCESS : vulkan_fail(dev, rc, "%s", what);
}

void vulkan_device_close(struct vulkan_device *dev) {
    pthread_mutex_lock(&dev->gpu.lock);
    device_close_locked(dev);
    pthread_mutex_unlock(&dev->gpu.lock);
}

// ---- submission ----

VkResult vulkan_submit_locked(struct vulkan_device *dev, VkCommandBuffer commands, VkSemaphore done, uint64_t value) {
    const VkTimelineSemaphoreSubmitInfo timeline = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .signalSemaphoreValueCount = 1,
        .pSignalSemaphoreValues = &value};
    const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .pNext = &timeline,
        .commandBufferCount = commands != VK_NULL_HANDLE,
        .pCommandBuffers = &commands,
        .signalSemaphoreCount = 1,
        .pSignalSemaphores = &done};
    return dev->vk.QueueSubmit(dev->queue, 1, &info, VK_NULL_HANDLE);
}

VkResult vulkan_wait(struct vulkan_device *dev, VkSemaphore semaphore, uint64_t value) {
    const VkSemaphoreWaitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, .semaphoreCount = 1, .pSemaphores = &semaphore, .pValues = &value};
    return dev->vk.WaitSemaphores(dev->device, &info, UINT64_MAX);
}
