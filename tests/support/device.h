// SPDX-License-Identifier: MIT
// device.h: devices for tests of the scheduler. Each computes on the CPU, but with memory of its own that nobody else may touch:
// outside the device's own calls its buffers are protected, so that a missing copy is a fault and not luck.
// To be set: which ops and types it supports, its largest buffer, whether it works in a thread of its own with random delays,
// and what fails when. Uses the C library's memory only: failures that tests inject into Berth's do not hit the device.
#pragma once

#include "backend/backend.h"
#include "core/graph.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct device;

struct device_buffer {
    struct device_buffer *next;
    struct device *dev;
    char *base;
    size_t size;
};

struct device_event {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t n_recorded, n_done; // records asked for, and those that were reached
};

enum device_job_kind { DEVICE_COMPUTE, DEVICE_COPY, DEVICE_RECORD, DEVICE_WAIT };

struct device_job {
    struct device_job *next;
    enum device_job_kind kind;
    struct ggml_tensor *tensors; // compute: the nodes and their sources, as they were when the job was given
    struct ggml_tensor **nodes;
    int n_nodes;
    struct ggml_tensor src, dst; // copy
    struct device *other;        // copy: who owns dst
    struct device_event *event;
    uint64_t count; // of the event
};

struct device {
    struct ggml_backend_device dev;
    struct ggml_backend_buffer_type buft;
    struct ggml_backend backend;
    ggml_guid guid;
    char name[16];
    // to be set before use
    bool (*supports)(const struct device *dev, const struct ggml_tensor *op); // NULL: all that the CPU does
    uint64_t seed;                                                            // for supports and delays
    size_t max_size;                                                          // of a buffer, 0: any
    bool is_async;                                                            // computes in a thread of its own
    bool has_events;                                                          // with is_async
    bool copies_async;        // with is_async: cpy_tensor_async to other such devices
    bool reads_host;          // uses host memory as it is
    bool is_open;             // no protection: the memory is plain
    int offload_batch;        // wants ops with at least that many rows, 0: none
    int delay_us;             // at most, before each job
    atomic_int fail_alloc_at; // the n-th buffer from now on
    atomic_int fail_compute_at;
    atomic_int fail_set_at;  // the n-th write into its memory
    atomic_int fail_copy_at; // the n-th cpy_tensor_async from it
    // counts
    atomic_int n_computes, n_sets, n_gets, n_async_copies, n_buffers;
    atomic_size_t n_bytes; // of its buffers alive
    // own
    ggml_backend_t cpu;
    pthread_mutex_t lock; // of the buffers and inside
    struct device_buffer *buffers;
    int inside; // calls that may touch the memory
    pthread_t thread;
    pthread_mutex_t queue_lock;
    pthread_cond_t queue_changed;
    struct device_job *first, **last;
    int n_pending; // jobs not yet over
    bool ends, runs;
};

// ---- memory ----

static inline void device_protect(struct device_buffer *buffer, bool open) {
    if (mprotect(buffer->base, buffer->size, open || buffer->dev->is_open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
        abort();
    }
}

static inline void device_enter(struct device *dev) {
    pthread_mutex_lock(&dev->lock);
    if (dev->inside++ == 0) {
        for (struct device_buffer *b = dev->buffers; b != NULL && !dev->is_open; b = b->next) {
            device_protect(b, true);
        }
    }
    pthread_mutex_unlock(&dev->lock);
}

static inline void device_leave(struct device *dev) {
    pthread_mutex_lock(&dev->lock);
    if (--dev->inside == 0) {
        for (struct device_buffer *b = dev->buffers; b != NULL && !dev->is_open; b = b->next) {
            device_protect(b, false);
        }
    }
    pthread_mutex_unlock(&dev->lock);
}

static inline bool device_fails(atomic_int *at) {
    return atomic_load(at) > 0 && atomic_fetch_sub(at, 1) == 1;
}

static inline void device_buffer_free(ggml_backend_buffer_t buffer) {
    struct device_buffer *b = buffer->context;
    pthread_mutex_lock(&b->dev->lock);
    struct device_buffer **at = &b->dev->buffers;
    while (*at != b) {
        at = &(*at)->next;
    }
    *at = b->next;
    pthread_mutex_unlock(&b->dev->lock);
    atomic_fetch_sub(&b->dev->n_bytes, b->size);
    atomic_fetch_sub(&b->dev->n_buffers, 1);
    munmap(b->base, b->size);
    free(b);
}

static inline void *device_base(ggml_backend_buffer_t buffer) {
    return ((struct device_buffer *) buffer->context)->base;
}

static inline struct device *device_of(ggml_backend_buffer_t buffer) {
    return ((struct device_buffer *) buffer->context)->dev;
}

static inline void device_memset(
    ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset, size_t size) {
    device_enter(device_of(buffer));
    memset((char *) tensor->data + offset, value, size);
    device_leave(device_of(buffer));
}

static inline void device_set(
    ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    struct device *dev = device_of(buffer);
    atomic_fetch_add(&dev->n_sets, 1);
    if (device_fails(&dev->fail_set_at)) {
        berth_backend_fail(&dev->backend, "%s refuses a write to %s", dev->name, tensor->name);
        return;
    }
    device_enter(dev);
    memcpy((char *) tensor->data + offset, data, size);
    device_leave(dev);
}

static inline void device_get(
    ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    struct device *dev = device_of(buffer);
    atomic_fetch_add(&dev->n_gets, 1);
    device_enter(dev);
    memcpy(data, (const char *) tensor->data + offset, size);
    device_leave(dev);
}

static inline void device_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    struct device_buffer *b = buffer->context;
    device_enter(b->dev);
    memset(b->base, value, b->size);
    device_leave(b->dev);
}

static inline const char *device_buft_name(ggml_backend_buffer_type_t buft) {
    return ((struct device *) buft->context)->name;
}

static inline ggml_backend_buffer_t device_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    struct device *dev                       = buft->context;
    const struct ggml_backend_buffer_i iface = {
        .free_buffer   = device_buffer_free,
        .get_base      = device_base,
        .memset_tensor = device_memset,
        .set_tensor    = device_set,
        .get_tensor    = device_get,
        .clear         = device_clear,
    };
    if (device_fails(&dev->fail_alloc_at) || (dev->max_size > 0 && size > dev->max_size)) {
        return NULL;
    }
    struct device_buffer *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return NULL;
    }
    b->dev                       = dev;
    b->size                      = (size + 65535) / 65536 * 65536;
    b->base                      = mmap(NULL, b->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ggml_backend_buffer_t buffer = b->base != MAP_FAILED ? ggml_backend_buffer_init(buft, iface, b, size) : NULL;
    if (buffer == NULL) {
        if (b->base != MAP_FAILED) {
            munmap(b->base, b->size);
        }
        free(b);
        return NULL;
    }
    atomic_fetch_add(&dev->n_buffers, 1);
    atomic_fetch_add(&dev->n_bytes, b->size);
    pthread_mutex_lock(&dev->lock);
    b->next      = dev->buffers;
    dev->buffers = b;
    device_protect(b, dev->inside > 0);
    pthread_mutex_unlock(&dev->lock);
    return buffer;
}

static inline size_t device_alignment(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return 32;
}

static inline size_t device_max_size(ggml_backend_buffer_type_t buft) {
    const struct device *dev = buft->context;
    return dev->max_size > 0 ? dev->max_size : SIZE_MAX;
}

static inline bool device_buft_is_host(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return false;
}

// ---- jobs ----

static inline enum ggml_status device_compute_now(struct device *dev, struct ggml_tensor **nodes, int n_nodes) {
    if (device_fails(&dev->fail_compute_at)) {
        return GGML_STATUS_FAILED;
    }
    struct ggml_cgraph graph = {.size = n_nodes, .n_nodes = n_nodes, .nodes = nodes};
    device_enter(dev);
    const enum ggml_status status = dev->cpu->iface.graph_compute(dev->cpu, &graph);
    device_leave(dev);
    return status;
}

static inline void device_event_reach(struct device_event *event, uint64_t count) {
    pthread_mutex_lock(&event->lock);
    event->n_done = event->n_done > count ? event->n_done : count;
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
}

static inline void device_event_await(struct device_event *event, uint64_t count) {
    pthread_mutex_lock(&event->lock);
    while (event->n_done < count) {
        pthread_cond_wait(&event->changed, &event->lock);
    }
    pthread_mutex_unlock(&event->lock);
}

static inline void device_job_run(struct device *dev, struct device_job *job, uint64_t *rng) {
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    if (dev->delay_us > 0) {
        usleep((useconds_t) ((*rng >> 33) % (uint64_t) dev->delay_us));
    }
    switch (job->kind) {
        case DEVICE_COMPUTE:
            if (device_compute_now(dev, job->nodes, job->n_nodes) != GGML_STATUS_SUCCESS) {
                berth_backend_fail(&dev->backend, "%s failed in its thread", dev->name);
            }
            break;
        case DEVICE_COPY:
            if (device_fails(&dev->fail_copy_at)) {
                berth_backend_fail(&dev->backend, "%s lost a copy of %s", dev->name, job->src.name);
            } else {
                device_enter(dev);
                device_enter(job->other);
                memcpy(job->dst.data, job->src.data, ggml_nbytes(&job->src));
                device_leave(job->other);
                device_leave(dev);
            }
            device_event_reach(job->event, 1);
            break;
        case DEVICE_RECORD: device_event_reach(job->event, job->count); break;
        case DEVICE_WAIT: device_event_await(job->event, job->count); break;
    }
}

static inline void device_event_delete(struct device_event *event) {
    pthread_mutex_destroy(&event->lock);
    pthread_cond_destroy(&event->changed);
    free(event);
}

static inline void *device_thread(void *arg) {
    struct device *dev = arg;
    uint64_t rng       = dev->seed;
    pthread_mutex_lock(&dev->queue_lock);
    for (;;) {
        while (dev->first == NULL && !dev->ends) {
            pthread_cond_wait(&dev->queue_changed, &dev->queue_lock);
        }
        struct device_job *job = dev->first;
        if (job == NULL) {
            break;
        }
        dev->first = job->next;
        dev->last  = dev->first == NULL ? &dev->first : dev->last;
        pthread_mutex_unlock(&dev->queue_lock);
        device_job_run(dev, job, &rng);
        if (job->kind == DEVICE_WAIT && job->other != NULL) { // the event of a copy ends with it
            device_event_delete(job->event);
        }
        free(job->tensors);
        free(job->nodes);
        free(job);
        pthread_mutex_lock(&dev->queue_lock);
        dev->n_pending--;
        pthread_cond_broadcast(&dev->queue_changed);
    }
    pthread_mutex_unlock(&dev->queue_lock);
    return NULL;
}

static inline void device_push(struct device *dev, struct device_job *job) {
    pthread_mutex_lock(&dev->queue_lock);
    job->next  = NULL;
    *dev->last = job;
    dev->last  = &job->next;
    dev->n_pending++;
    pthread_cond_broadcast(&dev->queue_changed);
    pthread_mutex_unlock(&dev->queue_lock);
}

static inline struct device_job *device_job_new(enum device_job_kind kind) {
    struct device_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        abort();
    }
    job->kind = kind;
    return job;
}

// ---- backend ----

static inline const char *device_backend_name(ggml_backend_t backend) {
    return ((struct device *) backend->context)->name;
}

static inline void device_synchronize(ggml_backend_t backend) {
    struct device *dev = backend->context;
    pthread_mutex_lock(&dev->queue_lock);
    while (dev->n_pending > 0) {
        pthread_cond_wait(&dev->queue_changed, &dev->queue_lock);
    }
    pthread_mutex_unlock(&dev->queue_lock);
}

static inline enum ggml_status device_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    struct device *dev = backend->context;
    atomic_fetch_add(&dev->n_computes, 1);
    if (!dev->is_async) {
        return device_compute_now(dev, graph->nodes, graph->n_nodes);
    }
    // The graph's tensors are the caller's again when this returns.
    struct device_job *job = device_job_new(DEVICE_COMPUTE);
    const size_t n         = (size_t) graph->n_nodes;
    job->tensors           = calloc(n * (1 + GGML_MAX_SRC) + 1, sizeof *job->tensors);
    job->nodes             = calloc(n + 1, sizeof *job->nodes);
    job->n_nodes           = graph->n_nodes;
    struct ggml_tensor *to = job->tensors;
    for (size_t i = 0; i < n; i++) {
        job->nodes[i]  = to++;
        *job->nodes[i] = *graph->nodes[i];
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            if (graph->nodes[i]->src[k] != NULL) {
                job->nodes[i]->src[k] = to;
                *to++                 = *graph->nodes[i]->src[k];
            }
        }
    }
    device_push(dev, job);
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
    copy->src   = *src;
    copy->dst   = *dst;
    copy->other = b;
    copy->event = event;
    wait->event = event;
    wait->other = a; // says that the event is its own
    wait->count = 1;
    device_push(a, copy);
    device_push(b, wait);
    return true;
}

static inline void device_event_record(ggml_backend_t backend, ggml_backend_event_t event) {
    struct device_event *e = event->context;
    struct device_job *job = device_job_new(DEVICE_RECORD);
    pthread_mutex_lock(&e->lock);
    job->count = ++e->n_recorded;
    pthread_mutex_unlock(&e->lock);
    job->event = e;
    device_push(backend->context, job);
}

static inline void device_event_wait(ggml_backend_t backend, ggml_backend_event_t event) {
    struct device_event *e = event->context;
    struct device_job *job = device_job_new(DEVICE_WAIT);
    pthread_mutex_lock(&e->lock);
    job->count = e->n_recorded;
    pthread_mutex_unlock(&e->lock);
    job->event = e;
    device_push(backend->context, job);
}

// ---- device ----

static inline const char *device_dev_name(ggml_backend_dev_t dev) {
    return ((struct device *) dev->context)->name;
}

static inline enum ggml_backend_dev_type device_dev_type(ggml_backend_dev_t dev) {
    (void) dev;
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static inline void device_dev_props(ggml_backend_dev_t dev, struct ggml_backend_dev_props *props) {
    const struct device *d = dev->context;
    props->name            = d->name;
    props->type            = GGML_BACKEND_DEVICE_TYPE_GPU;
    props->caps.async      = d->is_async;
    props->caps.events     = d->has_events;
}

static inline ggml_backend_t device_dev_init(ggml_backend_dev_t dev, const char *params) {
    (void) params;
    return &((struct device *) dev->context)->backend;
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
    return d->offload_batch > 0 && op->op == GGML_OP_MUL_MAT && op->ne[1] >= d->offload_batch;
}

static inline ggml_backend_event_t device_event_new(ggml_backend_dev_t dev) {
    struct device *d = dev->context;
    if (!d->has_events) {
        return NULL;
    }
    ggml_backend_event_t event = calloc(1, sizeof *event);
    struct device_event *e     = calloc(1, sizeof *e);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    *event = (struct ggml_backend_event){.device = dev, .context = e};
    return event;
}

static inline void device_event_free(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    (void) dev;
    device_event_delete(event->context);
    free(event);
}

static inline void device_event_synchronize(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    (void) dev;
    struct device_event *e = event->context;
    pthread_mutex_lock(&e->lock);
    const uint64_t count = e->n_recorded;
    pthread_mutex_unlock(&e->lock);
    device_event_await(e, count);
}

// Zeroes, gives it a name and wires it. Fields that are to be set follow, then device_start.
static inline void device_init(struct device *dev, const char *name) {
    memset(dev, 0, sizeof *dev);
    snprintf(dev->name, sizeof dev->name, "%s", name);
    dev->dev = (struct ggml_backend_device){
        .context = dev,
        .iface =
            {
                .get_name          = device_dev_name,
                .get_description   = device_dev_name,
                .get_type          = device_dev_type,
                .get_props         = device_dev_props,
                .init_backend      = device_dev_init,
                .get_buffer_type   = device_dev_buft,
                .supports_op       = device_supports_op,
                .supports_buft     = device_supports_buft,
                .offload_op        = device_offload_op,
                .event_new         = device_event_new,
                .event_free        = device_event_free,
                .event_synchronize = device_event_synchronize,
            },
    };
    dev->buft = (struct ggml_backend_buffer_type){
        .context = dev,
        .device  = &dev->dev,
        .iface =
            {
                .get_name      = device_buft_name,
                .alloc_buffer  = device_alloc,
                .get_alignment = device_alignment,
                .get_max_size  = device_max_size,
                .is_host       = device_buft_is_host,
            },
    };
    dev->last = &dev->first;
    pthread_mutex_init(&dev->lock, NULL);
    pthread_mutex_init(&dev->queue_lock, NULL);
    pthread_cond_init(&dev->queue_changed, NULL);
}

static inline ggml_backend_t device_start(struct device *dev) {
    dev->cpu = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(dev->cpu, 1);
    dev->backend = (struct ggml_backend){
        .guid    = &dev->guid,
        .device  = &dev->dev,
        .context = dev,
        .iface =
            {
                .get_name         = device_backend_name,
                .graph_compute    = device_compute,
                .synchronize      = dev->is_async ? device_synchronize : NULL,
                .cpy_tensor_async = dev->is_async && dev->copies_async ? device_copy_async : NULL,
                .event_record     = dev->has_events ? device_event_record : NULL,
                .event_wait       = dev->has_events ? device_event_wait : NULL,
            },
    };
    if (dev->is_async) {
        dev->runs = pthread_create(&dev->thread, NULL, device_thread, dev) == 0;
    }
    return &dev->backend;
}

static inline void device_stop(struct device *dev) {
    if (dev->runs) {
        pthread_mutex_lock(&dev->queue_lock);
        dev->ends = true;
        pthread_cond_broadcast(&dev->queue_changed);
        pthread_mutex_unlock(&dev->queue_lock);
        pthread_join(dev->thread, NULL);
    }
    ggml_backend_free(dev->cpu);
    pthread_mutex_destroy(&dev->lock);
    pthread_mutex_destroy(&dev->queue_lock);
    pthread_cond_destroy(&dev->queue_changed);
}
