// SPDX-License-Identifier: MIT
// memory.c: device memory. An allocation is one VkBuffer over the whole of one VkDeviceMemory, and stays mapped if the host can
// access it.

#include "vulkan/device.h"

#include <string.h>

static uint32_t has_all(VkMemoryPropertyFlags flags, VkMemoryPropertyFlags want) {
    return (flags & want) == want;
}

// Returns the index of the best memory type among `allowed`; -1: there is none.
static int type_find(struct vulkan_device *dev, uint32_t allowed, enum vulkan_place place) {
    VkPhysicalDeviceMemoryProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    const VkMemoryPropertyFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    const VkMemoryPropertyFlags cached = host | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    const VkMemoryPropertyFlags in_device[] = {local, 0}, in_mapped[] = {local | cached, local | host, cached, host},
                                in_host[] = {cached, host};
    const VkMemoryPropertyFlags *wants = in_device;
    size_t n_wants = 2;
    if (place == VULKAN_HOST_MEMORY) {
        wants = in_host;
    } else if (dev->traits.has_mapped) {
        wants = in_mapped;
        n_wants = 4;
    }
    dev->driver->GetPhysicalDeviceMemoryProperties2(dev->physical, &p);
    for (size_t w = 0; w < n_wants; w++) {
        for (uint32_t i = 0; i < p.memoryProperties.memoryTypeCount; i++) {
            if ((allowed >> i & 1) != 0 && has_all(p.memoryProperties.memoryTypes[i].propertyFlags, wants[w])) {
                return (int) i;
            }
        }
    }
    return -1;
}

static VkResult memory_bind(struct vulkan_device *dev, struct vulkan_memory *m, enum vulkan_place place) {
    VkMemoryRequirements need;
    dev->vk.GetBufferMemoryRequirements(dev->device, m->buffer, &need);
    const int type = type_find(dev, need.memoryTypeBits, place);
    if (type < 0) {
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    const VkMemoryAllocateFlagsInfo flags = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .pNext = &flags,
        .allocationSize = need.size,
        .memoryTypeIndex = (uint32_t) type};
    VkResult rc = dev->vk.AllocateMemory(dev->device, &info, NULL, &m->memory);
    if (rc != VK_SUCCESS) {
        m->memory = VK_NULL_HANDLE;
        return rc;
    }
    rc = dev->vk.BindBufferMemory(dev->device, m->buffer, m->memory, 0);
    if (rc == VK_SUCCESS && (place == VULKAN_HOST_MEMORY || dev->traits.has_mapped)) {
        void *host = NULL;
        rc = dev->vk.MapMemory(dev->device, m->memory, 0, VK_WHOLE_SIZE, 0, &host);
        m->host = host;
    }
    return rc;
}

static void memory_free(struct vulkan_device *dev, struct vulkan_memory *m) {
    dev->vk.DestroyBuffer(dev->device, m->buffer, NULL);
    if (m->memory != VK_NULL_HANDLE) {
        dev->vk.FreeMemory(dev->device, m->memory, NULL); // also unmaps
    }
    *m = (struct vulkan_memory){0};
}

VkResult vulkan_memory_try(struct vulkan_device *dev, struct vulkan_memory *m, size_t size, enum vulkan_place place) {
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = (size + 15) / 16 * 16,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
                 VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
        .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
    *m = (struct vulkan_memory){.size = size, .is_on_device = place != VULKAN_HOST_MEMORY};
    atomic_fetch_add(&dev->n_allocs, 1);
    if (size == 0 || info.size > dev->traits.allocation_max ||
        (m->is_on_device && gpu_memory_exceeds_limit(&dev->gpu, atomic_load(&dev->used), size))) {
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    VkResult rc = dev->vk.CreateBuffer(dev->device, &info, NULL, &m->buffer);
    if (rc != VK_SUCCESS) {
        *m = (struct vulkan_memory){0};
        return rc;
    }
    rc = memory_bind(dev, m, place);
    if (rc != VK_SUCCESS) {
        memory_free(dev, m);
        return rc;
    }
    const VkBufferDeviceAddressInfo address = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = m->buffer};
    m->address = dev->vk.GetBufferDeviceAddress(dev->device, &address);
    if (m->is_on_device) {
        atomic_fetch_add(&dev->used, size);
    }
    return VK_SUCCESS;
}

bool vulkan_memory_take(
    struct vulkan_device *dev, struct vulkan_memory *m, size_t size, enum vulkan_place place, const char *what) {
    const VkResult rc = vulkan_memory_try(dev, m, size, place);
    if (rc == VK_SUCCESS) {
        return true;
    }
    size_t n_free, n_total;
    vulkan_memory_query(dev, &n_free, &n_total);
    vulkan_fail(dev, rc, "cannot allocate %zu bytes for %s, %zu of %zu free, largest allocation %llu", size, what, n_free,
        n_total, (unsigned long long) dev->traits.allocation_max);
    return false;
}

void vulkan_memory_give_back(struct vulkan_device *dev, struct vulkan_memory *m) {
    if (m->buffer != VK_NULL_HANDLE) {
        if (m->is_on_device) {
            atomic_fetch_sub(&dev->used, m->size);
        }
        memory_free(dev, m);
    }
}

// Vulkan 1.2 tells the size of a heap, and not how much of it other programs use. Only this process' own allocations are
// subtracted.
void vulkan_memory_query(struct vulkan_device *dev, size_t *n_free, size_t *n_total) {
    VkPhysicalDeviceMemoryProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    dev->driver->GetPhysicalDeviceMemoryProperties2(dev->physical, &p);
    *n_total = 0;
    for (uint32_t i = 0; i < p.memoryProperties.memoryHeapCount; i++) {
        const VkMemoryHeap *heap = &p.memoryProperties.memoryHeaps[i];
        if ((heap->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0) {
            *n_total = max_size(*n_total, heap->size);
        }
    }
    const size_t used = atomic_load(&dev->used);
    *n_free = used < *n_total ? *n_total - used : 0;
    gpu_memory_apply_limit(&dev->gpu, used, n_free, n_total);
}
