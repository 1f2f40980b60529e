// SPDX-License-Identifier: MIT
// error.c: errors of the driver as texts and statuses.

#include "vulkan/device.h"

#include <stdarg.h>
#include <stdio.h>

const char *vulkan_error_text(VkResult error) {
    switch (error) {
        case VK_ERROR_OUT_OF_HOST_MEMORY: return "VK_ERROR_OUT_OF_HOST_MEMORY";
        case VK_ERROR_OUT_OF_DEVICE_MEMORY: return "VK_ERROR_OUT_OF_DEVICE_MEMORY";
        case VK_ERROR_INITIALIZATION_FAILED: return "VK_ERROR_INITIALIZATION_FAILED";
        case VK_ERROR_DEVICE_LOST: return "VK_ERROR_DEVICE_LOST";
        case VK_ERROR_MEMORY_MAP_FAILED: return "VK_ERROR_MEMORY_MAP_FAILED";
        case VK_ERROR_LAYER_NOT_PRESENT: return "VK_ERROR_LAYER_NOT_PRESENT";
        case VK_ERROR_EXTENSION_NOT_PRESENT: return "VK_ERROR_EXTENSION_NOT_PRESENT";
        case VK_ERROR_FEATURE_NOT_PRESENT: return "VK_ERROR_FEATURE_NOT_PRESENT";
        case VK_ERROR_INCOMPATIBLE_DRIVER: return "VK_ERROR_INCOMPATIBLE_DRIVER";
        case VK_ERROR_TOO_MANY_OBJECTS: return "VK_ERROR_TOO_MANY_OBJECTS";
        case VK_TIMEOUT: return "VK_TIMEOUT";
        default: return "unexpected result";
    }
}

enum ggml_status vulkan_fail(struct vulkan_device *dev, VkResult error, const char *fmt, ...) {
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (error == VK_ERROR_DEVICE_LOST) {
        atomic_store(&dev->is_lost, true);
        return shim_error(
            GGML_STATUS_FAILED, "%s: %s: VK_ERROR_DEVICE_LOST; the device is lost until the program restarts", dev->name, what);
    }
    const bool is_memory = error == VK_ERROR_OUT_OF_DEVICE_MEMORY || error == VK_ERROR_OUT_OF_HOST_MEMORY;
    return shim_error(is_memory ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED, "%s: %s: %s (%d)", dev->name, what,
        vulkan_error_text(error), error);
}
