// SPDX-License-Identifier: MIT
// ggml-vulkan.h: the Vulkan backend.
//
// General rules:
//   - Devices are numbered from 0, in the order of the Vulkan driver. Devices that lack a required feature have no number.
//   - Sizes are in bytes.
//   - Any thread may call the functions of this header. Use one backend from one thread at a time.
//   - Without a Vulkan driver there are 0 devices.
#pragma once

#include "ggml-backend.h"
#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

// The name of the registry. Devices are named "Vulkan0", "Vulkan1" and so on.
#define GGML_VK_NAME "Vulkan"
// The largest number of devices.
#define GGML_VK_MAX_DEVICES 16

// Creates a backend on the device. Free it with ggml_backend_free. Returns NULL, with an error, if there is no such device.
GGML_BACKEND_API ggml_backend_t ggml_backend_vk_init(size_t dev_num);

// Returns whether the backend is a Vulkan backend of this library.
GGML_BACKEND_API bool ggml_backend_is_vk(ggml_backend_t backend);

// Returns the number of devices.
GGML_BACKEND_API int ggml_backend_vk_get_device_count(void);

// Stores the device's name as text, cut to description_size bytes with the final 0. Stores "" if there is no such device.
GGML_BACKEND_API void ggml_backend_vk_get_device_description(int device, char *description, size_t description_size);

// Stores the free and the total bytes of the device's memory. Either pointer may be NULL. Both are 0 if there is no such device.
GGML_BACKEND_API void ggml_backend_vk_get_device_memory(int device, size_t *free, size_t *total);

// Returns the buffer type of the device's memory. It belongs to the library. Returns NULL if there is no such device.
GGML_BACKEND_API ggml_backend_buffer_type_t ggml_backend_vk_buffer_type(size_t dev_num);

// Returns the buffer type of host memory for copies to the device, which is plain host memory.
GGML_BACKEND_API ggml_backend_buffer_type_t ggml_backend_vk_host_buffer_type(void);

// Returns the registry of the Vulkan backend. It belongs to the library and is never NULL.
GGML_BACKEND_API ggml_backend_reg_t ggml_backend_vk_reg(void);

#ifdef __cplusplus
}
#endif
