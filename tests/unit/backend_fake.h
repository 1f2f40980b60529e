// SPDX-License-Identifier: MIT
// backend_fake.h: a device for tests: memory the host may not touch (addresses are real, but is_host says no), a largest
// buffer size, async copies, events and a plan, each to be switched off or made to fail. Computes ADD of floats.
#pragma once

#include "base/base.h"
#include "core/op.h"
#include "ggml-backend-impl.h"

#include <string.h>

struct fake {
    size_t max_size;      // of a buffer, 0 = any
    size_t alloc_pad;     // bytes a tensor takes beyond its own
    bool no_get;          // buffers cannot be read
    bool is_host;         // the host may touch the memory after all
    bool copies_itself;   // the buffer has cpy_tensor
    int fail_init_tensor; // the n-th init_tensor from now on fails
    // counts
    int n_set, n_get, n_set_2d, n_async, n_copy, n_wait, n_compute, n_init, n_reset, n_events;
};

static struct fake fake;
static struct ggml_backend_device fake_device;

static const char *fake_buft_name(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return "Fake";
}

static void fake_buffer_free(ggml_backend_buffer_t buffer) {
    berth_aligned_free(buffer->context);
}

static void *fake_base(ggml_backend_buffer_t buffer) {
    return buffer->context;
}

static enum ggml_status fake_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor) {
    (void) buffer;
    (void) tensor;
    fake.n_init++;
    return fake.fail_init_tensor > 0 && --fake.fail_init_tensor == 0 ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_SUCCESS;
}

static void fake_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset, size_t size) {
    (void) buffer;
    memset((char *) tensor->data + offset, value, size);
}

static void fake_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    (void) buffer;
    fake.n_set++;
    memcpy((char *) tensor->data + offset, data, size);
}

static void fake_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    (void) buffer;
    fake.n_get++;
    memcpy(data, (const char *) tensor->data + offset, size);
}

static void fake_set_2d(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size,
    size_t n, size_t stride, size_t stride_data) {
    (void) buffer;
    fake.n_set_2d++;
    for (size_t i = 0; i < n; i++) {
        memcpy((char *) tensor->data + offset + i * stride, (const char *) data + i * stride_data, size);
    }
}

static bool fake_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    (void) buffer;
    fake.n_copy++;
    memcpy(dst->data, src->data, ggml_nbytes(src));
    return true;
}

static void fake_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    memset(buffer->context, value, buffer->size);
}

static void fake_reset(ggml_backend_buffer_t buffer) {
    (void) buffer;
    fake.n_reset++;
}

static ggml_backend_buffer_t fake_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    const struct ggml_backend_buffer_i iface = {
        .free_buffer   = fake_buffer_free,
        .get_base      = fake_base,
        .init_tensor   = fake_init_tensor,
        .memset_tensor = fake_memset,
        .set_tensor    = fake_set,
        .get_tensor    = fake.no_get ? NULL : fake_get,
        .set_tensor_2d = fake_set_2d,
        .cpy_tensor    = fake.copies_itself ? fake_copy : NULL,
        .clear         = fake_clear,
        .reset         = fake_reset,
    };
    if (fake.max_size > 0 && size > fake.max_size) {
        return NULL;
    }
    void *memory                 = berth_aligned_alloc(64, size);
    ggml_backend_buffer_t buffer = memory != NULL ? ggml_backend_buffer_init(buft, iface, memory, size) : NULL;
    if (buffer == NULL) {
        berth_aligned_free(memory);
    }
    return buffer;
}

static size_t fake_alignment(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return 64;
}

static size_t fake_max_size(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return fake.max_size > 0 ? fake.max_size : SIZE_MAX;
}

static size_t fake_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor) {
    (void) buft;
    return ggml_nbytes(tensor) + fake.alloc_pad;
}

static bool fake_is_host(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return fake.is_host;
}

static struct ggml_backend_buffer_type fake_buft = {
    .iface =
        {
            .get_name       = fake_buft_name,
            .alloc_buffer   = fake_alloc,
            .get_alignment  = fake_alignment,
            .get_max_size   = fake_max_size,
            .get_alloc_size = fake_alloc_size,
            .is_host        = fake_is_host,
        },
    .device = &fake_device,
};

// ---- backend ----

static const char *fake_name(ggml_backend_t backend) {
    (void) backend;
    return "Fake";
}

static void fake_free(ggml_backend_t backend) {
    berth_free(backend);
}

static void fake_set_async(ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    (void) backend;
    fake.n_async++;
    memcpy((char *) tensor->data + offset, data, size);
}

static void fake_get_async(ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    (void) backend;
    fake.n_async++;
    memcpy(data, (const char *) tensor->data + offset, size);
}

static void fake_wait(ggml_backend_t backend) {
    (void) backend;
    fake.n_wait++;
}

static enum ggml_status fake_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    (void) backend;
    fake.n_compute++;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        struct ggml_tensor *node = ggml_graph_node(graph, i);
        if (node->op != GGML_OP_ADD) {
            continue;
        }
        const float *a = node->src[0]->data, *b = node->src[1]->data;
        for (int64_t j = 0; j < ggml_nelements(node); j++) {
            ((float *) node->data)[j] = a[j] + b[j];
        }
    }
    return GGML_STATUS_SUCCESS;
}

static ggml_backend_graph_plan_t fake_plan_create(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    (void) backend;
    const struct ggml_cgraph **plan = berth_malloc(sizeof *plan);
    if (plan != NULL) {
        *plan = graph;
    }
    return plan;
}

static void fake_plan_free(ggml_backend_t backend, ggml_backend_graph_plan_t plan) {
    (void) backend;
    berth_free(plan);
}

static enum ggml_status fake_plan_compute(ggml_backend_t backend, ggml_backend_graph_plan_t plan) {
    return fake_compute(backend, *(struct ggml_cgraph **) plan);
}

static void fake_event_mark(ggml_backend_t backend, ggml_backend_event_t event) {
    (void) backend;
    (void) event;
    fake.n_events++;
}

static ggml_backend_t fake_init(ggml_backend_dev_t device, const char *params) {
    static ggml_guid guid  = {1, 2, 3};
    ggml_backend_t backend = berth_calloc(1, sizeof *backend);
    (void) params;
    if (backend == NULL) {
        return NULL;
    }
    backend->guid   = &guid;
    backend->device = device;
    backend->iface  = (struct ggml_backend_i){
         .get_name           = fake_name,
         .free               = fake_free,
         .set_tensor_async   = fake_set_async,
         .get_tensor_async   = fake_get_async,
         .synchronize        = fake_wait,
         .graph_plan_create  = fake_plan_create,
         .graph_plan_free    = fake_plan_free,
         .graph_plan_compute = fake_plan_compute,
         .graph_compute      = fake_compute,
         .event_record       = fake_event_mark,
         .event_wait         = fake_event_mark,
    };
    return backend;
}

// ---- device and registry ----

static const char *fake_dev_name(ggml_backend_dev_t device) {
    return device->context != NULL ? device->context : "Fake0";
}

static void fake_dev_memory(ggml_backend_dev_t device, size_t *free, size_t *total) {
    (void) device;
    *free  = 5;
    *total = 7;
}

static enum ggml_backend_dev_type fake_dev_type(ggml_backend_dev_t device) {
    (void) device;
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void fake_dev_props(ggml_backend_dev_t device, struct ggml_backend_dev_props *props) {
    props->name        = fake_dev_name(device);
    props->type        = GGML_BACKEND_DEVICE_TYPE_GPU;
    props->caps.events = true;
}

static ggml_backend_buffer_type_t fake_dev_buft(ggml_backend_dev_t device) {
    (void) device;
    return &fake_buft;
}

static bool fake_dev_supports_op(ggml_backend_dev_t device, const struct ggml_tensor *op) {
    (void) device;
    return op->op == GGML_OP_ADD;
}

static bool fake_dev_supports_buft(ggml_backend_dev_t device, ggml_backend_buffer_type_t buft) {
    (void) device;
    return buft == &fake_buft;
}

static ggml_backend_event_t fake_event_new(ggml_backend_dev_t device) {
    ggml_backend_event_t event = berth_malloc(sizeof *event);
    if (event != NULL) {
        *event = (struct ggml_backend_event){.device = device};
    }
    return event;
}

static void fake_event_free(ggml_backend_dev_t device, ggml_backend_event_t event) {
    (void) device;
    berth_free(event);
}

static void fake_event_sync(ggml_backend_dev_t device, ggml_backend_event_t event) {
    (void) device;
    (void) event;
    fake.n_events++;
}

static struct ggml_backend_device fake_device = {
    .iface =
        {
            .get_name          = fake_dev_name,
            .get_memory        = fake_dev_memory,
            .get_type          = fake_dev_type,
            .get_props         = fake_dev_props,
            .init_backend      = fake_init,
            .get_buffer_type   = fake_dev_buft,
            .supports_op       = fake_dev_supports_op,
            .supports_buft     = fake_dev_supports_buft,
            .event_new         = fake_event_new,
            .event_free        = fake_event_free,
            .event_synchronize = fake_event_sync,
        },
};
