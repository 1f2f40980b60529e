// SPDX-License-Identifier: MIT
// device.c: ggml's functions for devices, registries and events. They call the function tables of the backends. src/registry
// finds and loads backends.

#include "backend/backend.h"

#include <string.h>

// ---- devices ----

const char *ggml_backend_dev_name(ggml_backend_dev_t device) {
    return device != NULL && device->iface.get_name != NULL ? device->iface.get_name(device) : NULL;
}

const char *ggml_backend_dev_description(ggml_backend_dev_t device) {
    return device != NULL && device->iface.get_description != NULL ? device->iface.get_description(device) : NULL;
}

void ggml_backend_dev_memory(ggml_backend_dev_t device, size_t *free, size_t *total) {
    size_t mem_free = 0, mem_total = 0;
    if (device != NULL && device->iface.get_memory != NULL) {
        device->iface.get_memory(device, &mem_free, &mem_total);
    }
    if (free != NULL) {
        *free = mem_free;
    }
    if (total != NULL) {
        *total = mem_total;
    }
}

enum ggml_backend_dev_type ggml_backend_dev_type(ggml_backend_dev_t device) {
    return device != NULL && device->iface.get_type != NULL ? device->iface.get_type(device) : GGML_BACKEND_DEVICE_TYPE_CPU;
}

void ggml_backend_dev_get_props(ggml_backend_dev_t device, struct ggml_backend_dev_props *props) {
    if (props == NULL) {
        return;
    }
    memset(props, 0, sizeof *props); // libraries of older releases fill fewer fields; the remaining fields are 0
    if (device != NULL && device->iface.get_props != NULL) {
        device->iface.get_props(device, props);
    }
}

ggml_backend_reg_t ggml_backend_dev_backend_reg(ggml_backend_dev_t device) {
    return device != NULL ? device->reg : NULL;
}

ggml_backend_t ggml_backend_dev_init(ggml_backend_dev_t device, const char *params) {
    if (device == NULL || device->iface.init_backend == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "ggml_backend_dev_init: %s",
            device == NULL ? "the device is NULL" : "the device cannot create a backend");
    }
    return device->iface.init_backend(device, params);
}

ggml_backend_buffer_type_t ggml_backend_dev_buffer_type(ggml_backend_dev_t device) {
    return device != NULL && device->iface.get_buffer_type != NULL ? device->iface.get_buffer_type(device) : NULL;
}

// Returns the type of host memory that the device accesses fast; NULL if the device has no such type.
ggml_backend_buffer_type_t ggml_backend_dev_host_buffer_type(ggml_backend_dev_t device) {
    return device != NULL && device->iface.get_host_buffer_type != NULL ? device->iface.get_host_buffer_type(device) : NULL;
}

ggml_backend_buffer_t ggml_backend_dev_buffer_from_host_ptr(
    ggml_backend_dev_t device, void *ptr, size_t size, size_t max_tensor_size) {
    if (device == NULL || ptr == NULL || device->iface.buffer_from_host_ptr == NULL) {
        const char *why = ptr == NULL ? "the pointer is NULL" : "the device cannot use host memory";
        return BERTH_FAIL_NULL(
            GGML_STATUS_FAILED, "ggml_backend_dev_buffer_from_host_ptr: %s", device == NULL ? "the device is NULL" : why);
    }
    return device->iface.buffer_from_host_ptr(device, ptr, size, max_tensor_size);
}

bool ggml_backend_dev_supports_op(ggml_backend_dev_t device, const struct ggml_tensor *op) {
    return device != NULL && op != NULL && device->iface.supports_op != NULL && device->iface.supports_op(device, op);
}

bool ggml_backend_dev_supports_buft(ggml_backend_dev_t device, ggml_backend_buffer_type_t buft) {
    return device != NULL && buft != NULL && device->iface.supports_buft != NULL && device->iface.supports_buft(device, buft);
}

bool ggml_backend_dev_offload_op(ggml_backend_dev_t device, const struct ggml_tensor *op) {
    return device != NULL && op != NULL && device->iface.offload_op != NULL && device->iface.offload_op(device, op);
}

// ---- registries: all devices of one backend library ----

const char *ggml_backend_reg_name(ggml_backend_reg_t reg) {
    return reg != NULL && reg->iface.get_name != NULL ? reg->iface.get_name(reg) : NULL;
}

size_t ggml_backend_reg_dev_count(ggml_backend_reg_t reg) {
    return reg != NULL && reg->iface.get_device_count != NULL ? reg->iface.get_device_count(reg) : 0;
}

ggml_backend_dev_t ggml_backend_reg_dev_get(ggml_backend_reg_t reg, size_t index) {
    const size_t n = ggml_backend_reg_dev_count(reg);
    if (index >= n || reg->iface.get_device == NULL) {
        return BERTH_FAIL_NULL(
            GGML_STATUS_FAILED, "ggml_backend_reg_dev_get: there is no device %zu, the registry has %zu", index, n);
    }
    return reg->iface.get_device(reg, index);
}

void *ggml_backend_reg_get_proc_address(ggml_backend_reg_t reg, const char *name) {
    return reg != NULL && name != NULL && reg->iface.get_proc_address != NULL ? reg->iface.get_proc_address(reg, name) : NULL;
}

// ---- events: a point in the work of a backend for which another backend or the host waits ----

// Returns NULL without an error if the device has no events; callers then synchronize.
ggml_backend_event_t ggml_backend_event_new(ggml_backend_dev_t device) {
    return device != NULL && device->iface.event_new != NULL ? device->iface.event_new(device) : NULL;
}

void ggml_backend_event_free(ggml_backend_event_t event) {
    if (event != NULL && event->device != NULL && event->device->iface.event_free != NULL) {
        event->device->iface.event_free(event->device, event);
    }
}

static void event_reject(const char *func, ggml_backend_event_t event, ggml_backend_t backend) {
    const char *why = backend == NULL ? "the backend is NULL" : "the backend has no events";
    berth_backend_fail(backend, "%s: %s", func, event == NULL ? "the event is NULL" : why);
}

void ggml_backend_event_record(ggml_backend_event_t event, ggml_backend_t backend) {
    if (event == NULL || backend == NULL || backend->iface.event_record == NULL) {
        event_reject("ggml_backend_event_record", event, backend);
        return;
    }
    backend->iface.event_record(backend, event);
}

void ggml_backend_event_synchronize(ggml_backend_event_t event) {
    if (event == NULL || event->device == NULL || event->device->iface.event_synchronize == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_event_synchronize: %s",
            event == NULL ? "the event is NULL" : "the device has no events");
        return;
    }
    event->device->iface.event_synchronize(event->device, event);
}

void ggml_backend_event_wait(ggml_backend_t backend, ggml_backend_event_t event) {
    if (event == NULL || backend == NULL || backend->iface.event_wait == NULL) {
        event_reject("ggml_backend_event_wait", event, backend);
        return;
    }
    backend->iface.event_wait(backend, event);
}
