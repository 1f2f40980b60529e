// SPDX-License-Identifier: MIT
// device_memory.h: the state of the device for tests (device.h), and its buffers.
#pragma once

#include "backend/backend.h"
#include "core/graph.h"
#include "ggml-backend-impl.h"

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
    uint64_t n_recorded, n_done; // number of records that were queued, and number of those that the device has reached
};

enum device_job_kind { DEVICE_COMPUTE, DEVICE_COPY, DEVICE_SET, DEVICE_RECORD, DEVICE_WAIT };

struct device_job {
    struct device_job *next;
    enum device_job_kind kind;
    ggml_backend_t backend;      // backend to which the job was pushed
    struct ggml_tensor *tensors; // DEVICE_COMPUTE: copies of the nodes and their sources
    struct ggml_tensor **nodes;
    int n_nodes;
    struct ggml_tensor src, dst; // DEVICE_COPY. DEVICE_SET: dst
    char *bytes;                 // DEVICE_SET: what is written
    size_t offset, size;         // DEVICE_SET
    struct device *other;        // DEVICE_COPY: owner of dst. DEVICE_WAIT: not NULL: free the event
    struct device_event *event;
    uint64_t count; // DEVICE_RECORD, DEVICE_WAIT: number of the record to reach or to wait for
};

// A queue of jobs and the thread that runs them. Each backend of a device has one stream.
struct device_stream {
    struct ggml_backend backend; // the backend, if it is an additional one (device_dev_init)
    struct device *dev;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct device_job *first, **last;
    int n_pending; // jobs not yet finished
    bool ends, runs;
};

struct device {
    struct ggml_backend_device dev;
    struct ggml_backend_buffer_type buft;
    struct ggml_backend backend;
    ggml_guid guid;
    char name[32];
    struct ggml_backend_buffer_i buffer_iface; // interface of new buffers
    // Settings, to be set before device_start.
    bool (*supports)(const struct device *dev, const struct ggml_tensor *op); // NULL: all ops of the CPU
    uint64_t seed;                                                            // for supports and delays
    size_t max_size;                                                          // largest buffer in bytes, 0: unlimited
    bool is_async;                                                            // computes in its own thread
    bool has_events;          // requires is_async: supports events and set_tensor_async
    bool copies_async;        // requires is_async: supports cpy_tensor_async to other devices for tests
    bool reads_host;          // can use host memory directly
    bool is_open;             // the memory is always accessible
    bool is_paper;            // for planning only: every allocation fails
    size_t align;             // alignment of buffers in bytes
    size_t n_free, n_total;   // bytes that the device reports
    int offload_batch;        // offloads ops with at least this many rows, 0: none
    int delay_us;             // longest delay before each job
    int set_us_per_kb;        // time that a set_tensor_async of 1,024 bytes takes
    atomic_int fail_alloc_at; // n > 0: the n-th call from now on fails
    atomic_int fail_compute_at;
    atomic_int fail_set_at;  // writes into the device's memory, set_tensor_async included
    atomic_int fail_copy_at; // cpy_tensor_async from this device
    // Counters.
    atomic_int n_computes, n_sets, n_gets, n_async_copies, n_async_sets, n_async_sets_done, n_buffers, n_events, n_waits;
    atomic_size_t n_bytes; // bytes of its existing buffers
    // Internal state.
    ggml_backend_t cpu;
    pthread_mutex_t lock; // guards `buffers` and `inside`
    struct device_buffer *buffers;
    int inside;                   // number of device calls in progress; the memory is accessible if it is above 0
    pthread_mutex_t compute_lock; // held by the stream that computes
    struct device_stream stream;
};

// ---- memory ----

static inline void device_protect(struct device_buffer *buffer, bool is_accessible) {
    if (mprotect(buffer->base, buffer->size, is_accessible || buffer->dev->is_open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
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
    struct device *dev = buft->context;
    if (dev->is_paper || device_fails(&dev->fail_alloc_at) || (dev->max_size > 0 && size > dev->max_size)) {
        return NULL;
    }
    struct device_buffer *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return NULL;
    }
    b->dev = dev;
    b->size = (size + 65535) / 65536 * 65536;
    b->base = mmap(NULL, b->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ggml_backend_buffer_t buffer = b->base != MAP_FAILED ? ggml_backend_buffer_init(buft, dev->buffer_iface, b, size) : NULL;
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
    b->next = dev->buffers;
    dev->buffers = b;
    device_protect(b, dev->inside > 0);
    pthread_mutex_unlock(&dev->lock);
    return buffer;
}

static inline size_t device_alignment(ggml_backend_buffer_type_t buft) {
    return ((const struct device *) buft->context)->align;
}

static inline size_t device_max_size(ggml_backend_buffer_type_t buft) {
    const struct device *dev = buft->context;
    return dev->max_size > 0 ? dev->max_size : SIZE_MAX;
}

static inline bool device_buft_is_host(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return false;
}

static inline void device_memory_init(struct device *dev) {
    dev->align = 32;
    dev->buffer_iface = (struct ggml_backend_buffer_i){
        .free_buffer = device_buffer_free,
        .get_base = device_base,
        .memset_tensor = device_memset,
        .set_tensor = device_set,
        .get_tensor = device_get,
        .clear = device_clear,
    };
    dev->buft = (struct ggml_backend_buffer_type){
        .context = dev,
        .device = &dev->dev,
        .iface =
            {
                .get_name = device_buft_name,
                .alloc_buffer = device_alloc,
                .get_alignment = device_alignment,
                .get_max_size = device_max_size,
                .is_host = device_buft_is_host,
            },
    };
}
