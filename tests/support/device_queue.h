// SPDX-License-Identifier: MIT
// device_queue.h: the jobs and the events of the device for tests (device.h). Jobs of an asynchronous device run in a separate
// thread.
#pragma once

#include "support/device_memory.h"

static inline enum ggml_status device_compute_now(struct device *dev, struct ggml_tensor **nodes, int n_nodes) {
    if (device_fails(&dev->fail_compute_at)) {
        return GGML_STATUS_FAILED;
    }
    if (dev->cpu == NULL) {
        return GGML_STATUS_FAILED;
    }
    struct ggml_cgraph graph = {.size = n_nodes, .n_nodes = n_nodes, .nodes = nodes};
    device_enter(dev);
    pthread_mutex_lock(&dev->compute_lock);
    const enum ggml_status status = dev->cpu->iface.graph_compute(dev->cpu, &graph);
    pthread_mutex_unlock(&dev->compute_lock);
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
                berth_backend_fail(job->backend, "%s failed in its thread", dev->name);
            }
            break;
        case DEVICE_COPY:
            if (device_fails(&dev->fail_copy_at)) {
                berth_backend_fail(job->backend, "%s lost a copy of %s", dev->name, job->src.name);
            } else {
                device_enter(dev);
                device_enter(job->other);
                memcpy(job->dst.data, job->src.data, ggml_nbytes(&job->src));
                device_leave(job->other);
                device_leave(dev);
            }
            if (job->event != NULL) {
                device_event_reach(job->event, 1);
            }
            break;
        case DEVICE_SET:
            usleep((useconds_t) ((size_t) dev->set_us_per_kb * job->size / 1024));
            if (device_fails(&dev->fail_set_at)) {
                berth_backend_fail(job->backend, "%s lost a write to %s", dev->name, job->dst.name);
            } else {
                device_enter(dev);
                memcpy((char *) job->dst.data + job->offset, job->bytes, job->size);
                device_leave(dev);
            }
            atomic_fetch_add(&dev->n_async_sets_done, 1);
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

static inline void device_job_end(struct device_job *job) {
    free(job->tensors);
    free(job->nodes);
    free(job->bytes);
    free(job);
}

static inline void *device_thread(void *arg) {
    struct device_stream *stream = arg;
    uint64_t rng = stream->dev->seed;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (stream->first == NULL && !stream->ends) {
            pthread_cond_wait(&stream->changed, &stream->lock);
        }
        struct device_job *job = stream->first;
        if (job == NULL) {
            break;
        }
        stream->first = job->next;
        stream->last = stream->first == NULL ? &stream->first : stream->last;
        pthread_mutex_unlock(&stream->lock);
        device_job_run(stream->dev, job, &rng);
        if (job->kind == DEVICE_WAIT && job->other != NULL) { // the event of a copy is used only once
            device_event_delete(job->event);
        }
        device_job_end(job);
        pthread_mutex_lock(&stream->lock);
        stream->n_pending--;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

static inline void device_stream_init(struct device_stream *stream, struct device *dev) {
    stream->dev = dev;
    stream->last = &stream->first;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
}

static inline void device_stream_start(struct device_stream *stream) {
    stream->runs = pthread_create(&stream->thread, NULL, device_thread, stream) == 0;
}

static inline void device_stream_stop(struct device_stream *stream) {
    if (stream->runs) {
        pthread_mutex_lock(&stream->lock);
        stream->ends = true;
        pthread_cond_broadcast(&stream->changed);
        pthread_mutex_unlock(&stream->lock);
        pthread_join(stream->thread, NULL);
    }
    pthread_mutex_destroy(&stream->lock);
    pthread_cond_destroy(&stream->changed);
}

static inline void device_backend_free(ggml_backend_t backend);

// An additional backend has its own stream. Other backends, and copies of their structs, use the device's stream.
static inline struct device_stream *device_stream_of(ggml_backend_t backend) {
    struct device *dev = backend->context;
    return backend->iface.free == device_backend_free ? (struct device_stream *) (void *) backend : &dev->stream;
}

// If the device has no thread, runs the job immediately.
static inline void device_push(ggml_backend_t backend, struct device_job *job) {
    struct device_stream *stream = device_stream_of(backend);
    job->backend = backend;
    if (!stream->runs) {
        device_job_run(stream->dev, job, &stream->dev->seed);
        device_job_end(job);
        return;
    }
    pthread_mutex_lock(&stream->lock);
    job->next = NULL;
    *stream->last = job;
    stream->last = &job->next;
    stream->n_pending++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

static inline struct device_job *device_job_new(enum device_job_kind kind) {
    struct device_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        abort();
    }
    job->kind = kind;
    return job;
}

static inline void device_set_async(
    ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    struct device *dev = backend->context;
    struct device_job *job = device_job_new(DEVICE_SET);
    atomic_fetch_add(&dev->n_async_sets, 1);
    job->dst = *tensor;
    job->bytes = malloc(size + 1);
    job->offset = offset;
    job->size = size;
    if (job->bytes == NULL) {
        abort();
    }
    memcpy(job->bytes, data, size);
    device_push(backend, job);
}

static inline void device_event_record(ggml_backend_t backend, ggml_backend_event_t event) {
    struct device *dev = backend->context;
    struct device_event *e = event->context;
    struct device_job *job = device_job_new(DEVICE_RECORD);
    atomic_fetch_add(&dev->n_events, 1);
    pthread_mutex_lock(&e->lock);
    job->count = ++e->n_recorded;
    pthread_mutex_unlock(&e->lock);
    job->event = e;
    device_push(backend, job);
}

static inline void device_event_wait(ggml_backend_t backend, ggml_backend_event_t event) {
    struct device *dev = backend->context;
    struct device_event *e = event->context;
    struct device_job *job = device_job_new(DEVICE_WAIT);
    atomic_fetch_add(&dev->n_events, 1);
    pthread_mutex_lock(&e->lock);
    job->count = e->n_recorded;
    pthread_mutex_unlock(&e->lock);
    job->event = e;
    device_push(backend, job);
}

static inline ggml_backend_event_t device_event_new(ggml_backend_dev_t dev) {
    struct device *d = dev->context;
    if (!d->has_events) {
        return NULL;
    }
    ggml_backend_event_t event = calloc(1, sizeof *event);
    struct device_event *e = calloc(1, sizeof *e);
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
    struct device *d = dev->context;
    struct device_event *e = event->context;
    atomic_fetch_add(&d->n_events, 1);
    pthread_mutex_lock(&e->lock);
    const uint64_t count = e->n_recorded;
    pthread_mutex_unlock(&e->lock);
    device_event_await(e, count);
}
