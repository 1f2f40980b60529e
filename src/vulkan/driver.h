// SPDX-License-Identifier: MIT
// driver.h: the Vulkan functions that Berth calls. driver.c loads them with dlopen, so the library has no link-time dependency.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

// X(name): the function vk<name>.
// clang-format off
#define VULKAN_INSTANCE_FUNCTIONS(X) \
    X(DestroyInstance) X(EnumeratePhysicalDevices) X(GetPhysicalDeviceProperties2) X(GetPhysicalDeviceFeatures2) \
    X(GetPhysicalDeviceMemoryProperties2) X(GetPhysicalDeviceQueueFamilyProperties) X(EnumerateDeviceExtensionProperties) \
    X(CreateDevice) X(GetDeviceProcAddr)
#define VULKAN_DEVICE_FUNCTIONS(X) \
    X(DestroyDevice) X(DeviceWaitIdle) X(GetDeviceQueue) X(QueueSubmit) X(AllocateMemory) X(FreeMemory) X(MapMemory) \
    X(CreateBuffer) X(DestroyBuffer) X(GetBufferMemoryRequirements) X(BindBufferMemory) X(GetBufferDeviceAddress) \
    X(CreateShaderModule) X(DestroyShaderModule) X(CreatePipelineLayout) X(DestroyPipelineLayout) X(CreateComputePipelines) \
    X(DestroyPipeline) X(CreateCommandPool) X(DestroyCommandPool) X(AllocateCommandBuffers) X(BeginCommandBuffer) \
    X(EndCommandBuffer) X(CmdBindPipeline) X(CmdPushConstants) X(CmdDispatchBase) X(CmdPipelineBarrier) X(CmdCopyBuffer) \
    X(CreateSemaphore) X(DestroySemaphore) X(WaitSemaphores)
// clang-format on

#define VULKAN_DECLARE(name) PFN_vk##name name;

// The functions of an instance.
struct vulkan_driver {
    VkInstance instance;
    VULKAN_INSTANCE_FUNCTIONS(VULKAN_DECLARE)
};

// The functions of a device.
struct vulkan_api {
    VULKAN_DEVICE_FUNCTIONS(VULKAN_DECLARE)
};

// Returns the driver. Returns NULL if no driver can be loaded or it lists nothing; *why then says why. The first call loads the
// library and creates the instance.
const struct vulkan_driver *vulkan_driver(const char **why);
// Fills *api with the functions of a device. Returns false if one is missing; *missing is its name.
bool vulkan_api_load(const struct vulkan_driver *driver, VkDevice device, struct vulkan_api *api, const char **missing);
const char *vulkan_error_text(VkResult error);
// Destroys the instance, so that the next vulkan_driver() creates a new one. For tests.
void vulkan_driver_reset(void);
