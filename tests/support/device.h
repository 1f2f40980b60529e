// SPDX-License-Identifier: MIT
// device.h: a device for tests. It computes on the CPU in its own memory. Outside the device's calls, this memory is inaccessible
// (mprotect), so a program that forgets a copy crashes. struct device contains the settings. Without device_start, the device can
// be used for planning. It allocates with malloc, so that injected allocation failures do not affect it.
#pragma once

#include "ggml-cpu.h"
#include "support/device_queue.h"

// ---- backend ----

static inline void device_backend_free(ggml_backend_t backend) {
    device_stream_stop(device_stream_of(backend));
    free(backend);
}

static inline const char *device_backend_name(ggml_backend_t backend) {
    return ((struct device *) backend->context)->name;
}

static inline void device_synchronize(ggml_backend_t backend) {
    struct device *dev = backend->context;
    atomic_fetch_add(&dev->n_waits, 1);
    struct device_stream *stream = device_stream_of(backend);
    pthread_mutex_lock(&stream->lock);
    while (stream->n_pending > 0) {
        pthread_cond_wait(&stream->changed, &stream->lock);
    }
    pthread_mutex_unlock(&stream->lock);
}

static inline enum ggml_status device_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    struct device *dev = backend->context;
    atomic_fetch_add(&dev->n_computes, 1);
    if (!dev->is_async) {
        return device_compute_now(dev, graph->nodes, graph->n_nodes);
    }
    // The caller may change the tensors as soon as this function returns.
    struct device_job *job = device_job_new(DEVICE_COMPUTE);
    const size_t n = (size_t) graph->n_nodes;
    job->tensors = calloc(n * (1 + GGML_MAX_SRC) + 1, sizeof *job->tensors);
    job->nodes = calloc(n + 1, sizeof *job->nodes);
    job->n_nodes = graph->n_nodes;
    struct ggml_tensor *to = job->tensors;
    for (size_t i = 0; i < n; i++) {
        job->nodes[i] = to++;
        *job->nodes[i] = *graph->nodes[i];
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            if (graph->nodes[i]->src[k] != NULL) {
                job->nodes[i]->src[k] = to;
                *to++ = *graph->nodes[i]->src[k];
            }
        }
    }
    device_push(backend, job);
    return GGML_STATUS_SUCCESS;
}

static inline bool device_copy_async(
    ggml_backend_t from, ggml_backend_t to, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    if (from->iface.graph_compute != device_compute || to->iface.graph_compute != device_compute) {
        return false;
    }
    struct device *a = from->context, *b = to->context;
    ggml_backend_buffer_t held = berth_tensor_buffer(src);
    if (!a->is_async || !a->copies_async || a == b || held->buft != &a->buft || berth_tensor_buffer(dst)->buft != &b->buft) {
        return false;
    }
    struct device_event *event = calloc(1, sizeof *event);
    struct device_job *copy = device_job_new(DEVICE_COPY), *wait = device_job_new(DEVICE_WAIT);
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->changed, NULL);
    atomic_fetch_add(&b->n_async_copies, 1);
    copy->src = *src;
    copy->dst = *dst;
    copy->other = b;
    copy->event = event;
    wait->event = event;
    wait->other = a; // not NULL: device_thread frees the event after this job
    wait->count = 1;
    device_push(from, copy);
    device_push(to, wait);
    return true;
}

// ---- device ----

static inline const char *device_dev_name(ggml_backend_dev_t dev) {
    return ((struct device *) dev->context)->name;
}

static inline enum ggml_backend_dev_type device_dev_type(ggml_backend_dev_t dev) {
    (void) dev;
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static inline void device_dev_memory(ggml_backend_dev_t dev, size_t *n_free, size_t *n_total) {
    const struct device *d = dev->context;
    *n_free = d->n_free;
    *n_total = d->n_total;
}

static inline void device_dev_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
    const struct device *d = dev->context;
    props->name = props->description = d->name;
    device_dev_memory(dev, &props->memory_free, &props->memory_total);
    props->type = GGML_BACKEND_DEVICE_TYPE_GPU;
    props->caps.async = d->is_async;
    props->caps.events = d->has_events;
}

// The backend has its own queue of jobs.
static inline ggml_backend_t device_dev_init(ggml_backend_dev_t dev, const char *params) {
    struct device *d = dev->context;
    struct device_stream *stream = calloc(1, sizeof *stream);
    (void) params;
    if (stream == NULL) {
        return NULL;
    }
    stream->backend = d->backend;
    stream->backend.iface.free = device_backend_free;
    device_stream_init(stream, d);
    if (d->is_async) {
        device_stream_start(stream);
    }
    return &stream->backend;
}

static inline ggml_backend_buffer_type_t device_dev_buft(ggml_backend_dev_t dev) {
    return &((struct device *) dev->context)->buft;
}

static inline bool device_supports_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    const struct device *d = dev->context;
    return (d->supports == NULL || d->supports(d, op)) && (d->cpu == NULL || ggml_backend_supports_op(d->cpu, op));
}

static inline bool device_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    const struct device *d = dev->context;
    return buft == &d->buft || (d->reads_host && ggml_backend_buft_is_host(buft));
}

static inline bool device_offload_op(ggml_backend_dev_t dev, const struct ggml_tensor *op) {
    const struct device *d = dev->context;
    return d->offload_batch > 0 && ((op->op == GGML_OP_MUL_MAT && op->ne[1] >= d->offload_batch) ||
                                       (op->op == GGML_OP_MUL_MAT_ID && op->ne[2] >= d->offload_batch));
}

// The caller then sets the other fields and calls device_start.
static inline void device_init(struct device *dev, const char *name) {
    memset(dev, 0, sizeof *dev);
    snprintf(dev->name, sizeof dev->name, "%s", name);
    dev->dev = (struct ggml_backend_device){
        .context = dev,
        .iface =
            {
                .get_name = device_dev_name,
                .get_description = device_dev_name,
                .get_memory = device_dev_memory,
                .get_type = device_dev_type,
                .get_props = device_dev_props,
                .init_backend = device_dev_init,
                .get_buffer_type = device_dev_buft,
                .supports_op = device_supports_op,
                .supports_buft = device_supports_buft,
                .offload_op = device_offload_op,
                .event_new = device_event_new,
                .event_free = device_event_free,
                .event_synchronize = device_event_synchronize,
            },
    };
    dev->backend = (struct ggml_backend){
        .guid = &dev->guid,
        .device = &dev->dev,
        .context = dev,
        .iface = {.get_name = device_backend_name, .graph_compute = device_compute},
    };
    device_memory_init(dev);
    device_stream_init(&dev->stream, dev);
    pthread_mutex_init(&dev->lock, NULL);
    pthread_mutex_init(&dev->compute_lock, NULL);
}

static inline ggml_backend_t device_start(struct device *dev) {
    dev->cpu = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(dev->cpu, 1);
    struct ggml_backend_i *iface = &dev->backend.iface;
    iface->synchronize = dev->is_async ? device_synchronize : NULL;
    iface->cpy_tensor_async = dev->is_async && dev->copies_async ? device_copy_async : NULL;
    iface->set_tensor_async = dev->has_events ? device_set_async : NULL;
    iface->event_record = dev->has_events ? device_event_record : NULL;
    iface->event_wait = dev->has_events ? device_event_wait : NULL;
    if (dev->is_async) {
        device_stream_start(&dev->stream);
    }
    return &dev->backend;
}

static inline void device_stop(struct device *dev) {
    device_stream_stop(&dev->stream);
    ggml_backend_free(dev->cpu);
    pthread_mutex_destroy(&dev->lock);
    pthread_mutex_destroy(&dev->compute_lock);
}
