// SPDX-License-Identifier: MIT
// event.c: events: a mark in one backend's work that another backend or the host waits for.

#include "backend/backend.h"

// NULL without an error where the device has no events: callers then synchronize.
ggml_backend_event_t ggml_backend_event_new(ggml_backend_dev_t device) {
    return device != NULL && device->iface.event_new != NULL ? device->iface.event_new(device) : NULL;
}

void ggml_backend_event_free(ggml_backend_event_t event) {
    if (event != NULL && event->device != NULL && event->device->iface.event_free != NULL) {
        event->device->iface.event_free(event->device, event);
    }
}

void ggml_backend_event_record(ggml_backend_event_t event, ggml_backend_t backend) {
    if (event == NULL || backend == NULL || backend->iface.event_record == NULL) {
        berth_backend_fail(backend, "ggml_backend_event_record: %s",
            event == NULL     ? "the event is NULL"
            : backend == NULL ? "the backend is NULL"
                              : "the backend has no events");
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
        berth_backend_fail(backend, "ggml_backend_event_wait: %s",
            event == NULL     ? "the event is NULL"
            : backend == NULL ? "the backend is NULL"
                              : "the backend has no events");
        return;
    }
    backend->iface.event_wait(backend, event);
}
