// SPDX-License-Identifier: MIT
// buffer.c: device memory as ggml buffers, one allocation per buffer. If the host can access the memory (integrated GPUs), data is
// copied directly. Otherwise it is copied through the staging memory of the device, in pieces. set and get return nothing, so
// their failures make the next compute of the device fail.

#include "vulkan/device.h"

#include <string.h>

#define ALIGNMENT 256

struct buffer {
    struct vulkan_device *dev;
    struct vulkan_memory memory;
};

static void buffer_free(ggml_backend_buffer_t buffer) {
    struct buffer *b = buffer->context;
    vulkan_memory_give_back(b->dev, &b->memory);
    shim_free(b);
}

static void *buffer_base(ggml_backend_buffer_t buffer) {
    return (void *) (uintptr_t) ((struct buffer *) buffer->context)->memory.address;
}

// ---- copies by the device ----

// Copies `region` on the queue and waits. The caller holds the lock.
static VkResult region_copy_locked(struct vulkan_device *dev, VkBuffer from, VkBuffer to, const VkBufferCopy *region) {
    const VkCommandBufferBeginInfo begin = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    const VkMemoryBarrier before = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT};
    const VkMemoryBarrier after = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_MEMORY_READ_BIT};
    VkResult rc = dev->vk.BeginCommandBuffer(dev->copy_commands, &begin);
    if (rc != VK_SUCCESS) {
        return rc;
    }
    dev->vk.CmdPipelineBarrier(
        dev->copy_commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &before, 0, NULL, 0, NULL);
    dev->vk.CmdCopyBuffer(dev->copy_commands, from, to, 1, region);
    dev->vk.CmdPipelineBarrier(dev->copy_commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
        VK_PIPELINE_STAGE_HOST_BIT | VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, 0, 1, &after, 0, NULL, 0, NULL);
    rc = dev->vk.EndCommandBuffer(dev->copy_commands);
    if (rc != VK_SUCCESS) {
        return rc;
    }
    rc = vulkan_submit_locked(dev, dev->copy_commands, dev->copy_done, dev->n_copies + 1);
    if (rc != VK_SUCCESS) {
        return rc;
    }
    dev->n_copies++;
    return vulkan_wait(dev, dev->copy_done, dev->n_copies);
}

// A transfer between a buffer and the host. from: NULL, or the source; to: NULL, or the destination. If both are NULL, the bytes
// become `value`.
struct transfer {
    size_t off, size;
    const char *from;
    char *to;
    uint8_t value;
};

static VkResult transfer_staged(struct buffer *b, const struct transfer *t) {
    struct vulkan_device *dev = b->dev;
    VkResult rc = VK_SUCCESS;
    pthread_mutex_lock(&dev->gpu.lock);
    for (size_t done = 0, n = 0; done < t->size && rc == VK_SUCCESS; done += n) {
        n = min_size(t->size - done, dev->staging.size);
        const VkBufferCopy to_device = {.srcOffset = 0, .dstOffset = t->off + done, .size = n};
        const VkBufferCopy to_host = {.srcOffset = t->off + done, .dstOffset = 0, .size = n};
        if (t->to != NULL) {
            rc = region_copy_locked(dev, b->memory.buffer, dev->staging.buffer, &to_host);
            if (rc == VK_SUCCESS) {
                memcpy(t->to + done, dev->staging.host, n);
            }
            continue;
        }
        if (t->from != NULL) {
            memcpy(dev->staging.host, t->from + done, n);
        } else {
            memset(dev->staging.host, t->value, n);
        }
        rc = region_copy_locked(dev, dev->staging.buffer, b->memory.buffer, &to_device);
    }
    pthread_mutex_unlock(&dev->gpu.lock);
    return rc;
}

static void transfer_run(ggml_backend_buffer_t buffer, const struct transfer *t, const char *what) {
    struct buffer *b = buffer->context;
    if (t->size == 0 || !vulkan_device_enter_or_defer(b->dev)) {
        return;
    }
    char *host = b->memory.host;
    if (host == NULL) {
        const VkResult rc = transfer_staged(b, t);
        if (rc != VK_SUCCESS) {
            vulkan_fail(b->dev, rc, "%s, %zu bytes", what, t->size);
            vulkan_device_defer_error(b->dev);
        }
    } else if (t->to != NULL) {
        memcpy(t->to, host + t->off, t->size);
    } else if (t->from != NULL) {
        memcpy(host + t->off, t->from, t->size);
    } else {
        memset(host + t->off, t->value, t->size);
    }
}

static size_t off_of(ggml_backend_buffer_t buffer, const struct ggml_tensor *t) {
    return (size_t) ((uintptr_t) t->data - ((struct buffer *) buffer->context)->memory.address);
}

static void buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    const struct transfer t = {.off = off_of(buffer, tensor) + offset, .size = size, .from = data};
    transfer_run(buffer, &t, "copying to the device");
}

static void buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    const struct transfer t = {.off = off_of(buffer, tensor) + offset, .size = size, .to = data};
    transfer_run(buffer, &t, "copying from the device");
}

static void buffer_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset, size_t size) {
    const struct transfer t = {.off = off_of(buffer, tensor) + offset, .size = size, .value = value};
    transfer_run(buffer, &t, "setting memory");
}

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    const struct transfer t = {.size = buffer->size, .value = value};
    transfer_run(buffer, &t, "setting memory");
}

static bool buffer_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    const ggml_backend_buffer_t from_buffer = src->view_src != NULL ? src->view_src->buffer : src->buffer;
    struct buffer *to = buffer->context;
    const size_t size = ggml_nbytes(src);
    if (vulkan_buffer_device(from_buffer) != to->dev || !ggml_is_contiguous(src) || !ggml_is_contiguous(dst) ||
        ggml_nbytes(dst) != size || vulkan_device_enter(to->dev) != GGML_STATUS_SUCCESS) {
        return false;
    }
    const struct buffer *from = from_buffer->context;
    const size_t from_off = off_of(from_buffer, src), to_off = off_of(buffer, dst);
    if (size == 0) {
        return true;
    }
    if (from->memory.host != NULL && to->memory.host != NULL) {
        memmove(to->memory.host + to_off, from->memory.host + from_off, size);
        return true;
    }
    const bool overlaps = from == to && from_off < to_off + size && to_off < from_off + size; // vkCmdCopyBuffer forbids this
    if (overlaps) {
        return false;
    }
    const VkBufferCopy region = {.srcOffset = from_off, .dstOffset = to_off, .size = size};
    pthread_mutex_lock(&to->dev->gpu.lock);
    const VkResult rc = region_copy_locked(to->dev, from->memory.buffer, to->memory.buffer, &region);
    pthread_mutex_unlock(&to->dev->gpu.lock);
    if (rc != VK_SUCCESS) {
        vulkan_fail(to->dev, rc, "copying %zu bytes", size);
        vulkan_device_defer_error(to->dev);
    }
    return rc == VK_SUCCESS;
}

static const struct ggml_backend_buffer_i buffer_iface = {
    .free_buffer = buffer_free,
    .get_base = buffer_base,
    .memset_tensor = buffer_memset,
    .set_tensor = buffer_set,
    .get_tensor = buffer_get,
    .cpy_tensor = buffer_copy,
    .clear = buffer_clear,
};

struct vulkan_device *vulkan_buffer_device(ggml_backend_buffer_t buffer) {
    return buffer != NULL && buffer->iface.get_base == buffer_base ? ((struct buffer *) buffer->context)->dev : NULL;
}

// ---- the buffer type ----

static ggml_backend_buffer_t buft_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    struct vulkan_device *dev = buft->context;
    if (vulkan_device_enter(dev) != GGML_STATUS_SUCCESS || !gpu_arena_check(&dev->gpu)) {
        return NULL;
    }
    struct buffer *b = shim_calloc(1, sizeof *b);
    if (b == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for a buffer", dev->name);
        return NULL;
    }
    b->dev = dev;
    if (!vulkan_memory_take(dev, &b->memory, size > 0 ? size : 1, VULKAN_DEVICE_MEMORY, "a buffer")) {
        shim_free(b);
        return NULL;
    }
    ggml_backend_buffer_t buffer = ggml_backend_buffer_init(buft, buffer_iface, b, size);
    if (buffer == NULL) {
        vulkan_memory_give_back(dev, &b->memory);
        shim_free(b);
    }
    return buffer;
}

static size_t buft_alignment(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return ALIGNMENT;
}

static size_t buft_max_size(ggml_backend_buffer_type_t buft) {
    return (size_t) ((struct vulkan_device *) buft->context)->traits.allocation_max / ALIGNMENT * ALIGNMENT;
}

void vulkan_buft_init(struct vulkan_device *dev) {
    dev->gpu.buft = (struct ggml_backend_buffer_type){
        .iface =
            {
                .get_name = gpu_buft_name,
                .alloc_buffer = buft_alloc,
                .get_alignment = buft_alignment,
                .get_max_size = buft_max_size,
                .get_alloc_size = gpu_buft_alloc_size,
            },
        .device = &dev->gpu.ggml,
        .context = dev,
    };
}
