// SPDX-License-Identifier: MIT
// device_plain.h: a device that works with Berth and with the reference. It has ordinary memory, supports all ops and computes
// nothing. Its only library call, ggml_backend_buffer_init, is passed to plain_device_init.
#pragma once

#include "ggml-backend-impl.h"
#include "ggml-backend.h"

#include <stdlib.h>
#include <string.h>

struct plain_device {
    struct ggml_backend_device dev;
    struct ggml_backend_buffer_type buft;
    struct ggml_backend backend;
    __typeof__(ggml_backend_buffer_init) *buffer_init;
    enum ggml_status (*compute)(void *user, struct ggml_cgraph *graph); // NULL: computes nothing
    void *user;
    bool is_host;
};

static inline const char *plain_buft_name(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return "Plain";
}

static inline void plain_buffer_free(ggml_backend_buffer_t buffer) {
    free(buffer->context);
}

static inline void *plain_buffer_base(ggml_backend_buffer_t buffer) {
    return (void *) (((uintptr_t) buffer->context + 63) / 64 * 64);
}

static inline void plain_buffer_set(
    ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    (void) buffer;
    memcpy((char *) tensor->data + offset, data, size);
}

static inline void plain_buffer_get(
    ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    (void) buffer;
    memcpy(data, (const char *) tensor->data + offset, size);
}

static inline ggml_backend_buffer_t plain_buft_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    struct plain_device *d = buft->context;
    void *memory = calloc(1, size + 64);

    const struct ggml_backend_buffer_i iface = {.free_buffer = plain_buffer_free,
        .get_base = plain_buffer_base,
        .set_tensor = plain_buffer_set,
        .get_tensor = plain_buffer_get};
    return memory != NULL ? d->buffer_init(buft, iface, memory, size) : NULL;
}

static inline size_t plain_buft_alignment(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return 32;
}

static inline bool plain_buft_is_host(ggml_backend_buffer_type_t buft) {
    return ((struct plain_device *) buft->context)->is_host;
}

static inline const char *plain_dev_name(ggml_backend_dev_t dev) {
    (void) dev;
    return "Plain";
}

static inline enum ggml_backend_dev_type plain_dev_type(ggml_backend_dev_t dev) {
    return ((struct plain_device *) dev->context)->is_host ? GGML_BACKEND_DEVICE_TYPE_CPU : GGML_BACKEND_DEVICE_TYPE_GPU;
}

static inline ggml_backend_buffer_type_t plain_dev_buft(ggml_backend_dev_t dev) {
    return &((struct plain_device *) dev->context)->buft;
}

static inline bool plain_dev_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    (void) dev;
    (void) op;
    return true;
}

static inline bool plain_dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    return buft == plain_dev_buft(dev);
}

static inline const char *plain_name(ggml_backend_t backend) {
    (void) backend;
    return "Plain";
}

static inline enum ggml_status plain_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    const struct plain_device *d = backend->context;
    return d->compute != NULL ? d->compute(d->user, graph) : GGML_STATUS_SUCCESS;
}

static inline void plain_device_init(struct plain_device *d, __typeof__(ggml_backend_buffer_init) *buffer_init, bool is_host) {
    *d = (struct plain_device){
        .buffer_init = buffer_init,
        .is_host = is_host,
        .dev = {.context = d,
            .iface = {.get_name = plain_dev_name,
                .get_type = plain_dev_type,
                .get_buffer_type = plain_dev_buft,
                .supports_op = plain_dev_supports_op,
                .supports_buft = plain_dev_supports_buft}},
        .buft = {.context = d,
            .device = &d->dev,
            .iface = {.get_name = plain_buft_name,
                .alloc_buffer = plain_buft_alloc,
                .get_alignment = plain_buft_alignment,
                .is_host = plain_buft_is_host}},
        .backend = {.context = d, .device = &d->dev, .iface = {.get_name = plain_name, .graph_compute = plain_compute}},
    };
}
