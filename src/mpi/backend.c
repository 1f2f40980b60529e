// SPDX-License-Identifier: MIT
// backend.c: the backend of a device on another rank. Commands are sent without waiting for the rank.
// synchronize waits for the rank and reports failures. ggml's own base library has no function for such reports; with it, the
// next compute reports the failure. A graph is sent as bytes. If the rank already has a graph with equal bytes, only its number
// is sent.

#include "mpi/remote.h"

#include "backend/backend.h"
#include "core/graph.h"

#pragma weak berth_backend_fail

static ggml_guid mpi_guid = {0xb1, 0x27, 0x3e, 0x5c, 0x90, 0x44, 0x4f, 0x0e, 0x8d, 0x1b, 0x62, 0x65, 0x72, 0x74, 0x68, 0x03};

// A read that has been requested. Its bytes arrive with the answer to the ticket.
struct pending {
    uint32_t ticket;
    void *data;
    size_t size;
    struct pending *next;
};

struct backend {
    struct mpi_device *dev;
    struct pending *first, **end; // list of reads; used by one thread only
};

static struct backend *backend_of(ggml_backend_t backend) {
    return backend->context;
}

bool mpi_backend_is(ggml_backend_t backend) {
    return backend != NULL && backend->guid == &mpi_guid;
}

static const char *backend_name(ggml_backend_t backend) {
    return backend_of(backend)->dev->name;
}

// ---- data ----

static void backend_set(ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    const struct mpi_place to = mpi_tensor_place(tensor, offset);
    if (to.dev == NULL) {
        mpi_remote_defer_error(backend_of(backend)->dev->remote, "tensor '%s' is not in memory of an MPI device", tensor->name);
        return;
    }
    mpi_buffer_write(&to, data, size, false);
}

static void pending_take_all(struct backend *b, bool is_needed) {
    for (struct pending *p = b->first, *next; p != NULL; p = next) {
        next = p->next;
        mpi_remote_take(b->dev->remote, p->ticket, is_needed ? p->data : NULL, p->size);
        shim_free(p);
    }
    b->first = NULL;
    b->end = &b->first;
}

static void backend_get(ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    struct backend *b = backend_of(backend);
    struct mpi_remote *r = b->dev->remote;
    const struct mpi_place from = mpi_tensor_place(tensor, offset);
    struct pending *p = from.dev == b->dev && size > 0 ? shim_malloc(sizeof *p) : NULL;
    if (p == NULL) {
        if (from.dev != NULL) { // out of memory, or another device: reads synchronously
            mpi_buffer_read(&from, data, size);
        } else {
            mpi_remote_defer_error(r, "tensor '%s' is not in memory of an MPI device", tensor->name);
        }
        return;
    }
    *p = (struct pending){.ticket = mpi_remote_ticket(r), .data = data, .size = size};
    if (mpi_remote_send(r, &(struct mpi_head){MPI_GET, from.buffer, from.offset, size, p->ticket}, NULL, 0) !=
        GGML_STATUS_SUCCESS) {
        mpi_remote_defer_error(r, "cannot request %zu bytes", size);
        memset(data, 0, size);
        shim_free(p);
        return;
    }
    *b->end = p;
    b->end = &p->next;
}

// Copies between ranks, or from host memory of the CPU backend. A copy from the CPU backend needs no wait, because the CPU
// backend computes synchronously.
static bool backend_copy(ggml_backend_t from, ggml_backend_t to, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    if (!mpi_backend_is(to)) {
        return false;
    }
    if (mpi_buffer_copy(src, dst)) {
        return true;
    }
    ggml_backend_buffer_t in = src->view_src != NULL ? src->view_src->buffer : src->buffer;
    const bool is_ready = from->device != NULL && ggml_backend_dev_type(from->device) == GGML_BACKEND_DEVICE_TYPE_CPU;
    if (!is_ready || !ggml_backend_buffer_is_host(in) || !ggml_is_contiguous(src) || !ggml_is_contiguous(dst)) {
        return false;
    }
    backend_set(to, dst, src->data, 0, ggml_nbytes(src));
    return true;
}

static void backend_sync(ggml_backend_t backend) {
    struct backend *b = backend_of(backend);
    struct mpi_remote *r = b->dev->remote;
    pending_take_all(b, true);
    mpi_remote_sync(r);
    if (berth_backend_fail == NULL) {
        return; // the next compute reports the failure
    }
    char text[MPI_FAILURE_SIZE];
    mpi_remote_failure(r, text);
    if (text[0] != '\0') {
        berth_backend_fail(backend, "%s", text);
    }
}

static void backend_free(ggml_backend_t backend) {
    struct backend *b = backend_of(backend);
    pending_take_all(b, false);
    shim_free(b);
    shim_free(backend);
}

// ---- graphs ----

static bool place_of(const void *user, const struct ggml_tensor *t, uint32_t *buffer, uint64_t *offset) {
    const struct mpi_place at = mpi_tensor_place(t, 0);
    *buffer = at.buffer;
    *offset = at.offset;
    return at.dev == user;
}

static enum ggml_status backend_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    struct mpi_device *d = backend_of(backend)->dev;
    struct mpi_remote *r = d->remote;
    enum ggml_status status = mpi_remote_report(r);
    if (status != GGML_STATUS_SUCCESS || graph->n_nodes == 0) {
        return status;
    }
    pthread_mutex_lock(&r->lock); // held until MPI_RUN is sent, so that the number still names this graph
    status = mpi_wire_write(&r->writing, graph->nodes, graph->n_nodes, place_of, d);
    if (status == GGML_STATUS_SUCCESS) {
        uint32_t number = 0;
        status = mpi_graph_cache_number(r, d->index, &number);
        if (status == GGML_STATUS_SUCCESS) {
            status = mpi_remote_send(r, &(struct mpi_head){.kind = MPI_RUN, .id = number}, NULL, 0);
        }
    }
    pthread_mutex_unlock(&r->lock);
    return status;
}

// ---- events: a rank executes all its commands in order, so only a wait between two different ranks needs a message ----

struct event {
    struct mpi_remote *recorded; // NULL: not recorded yet
};

ggml_backend_event_t mpi_event_new(ggml_backend_dev_t dev) {
    struct {
        struct ggml_backend_event event;
        struct event own;
    } *e = shim_calloc(1, sizeof *e);
    if (e == NULL) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for an event", ggml_backend_dev_name(dev));
        return NULL;
    }
    e->event = (struct ggml_backend_event){.device = dev, .context = &e->own};
    return &e->event;
}

void mpi_event_free(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    (void) dev;
    shim_free(event);
}

void mpi_event_wait_host(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    (void) dev;
    struct event *e = event->context;
    if (e->recorded != NULL) {
        mpi_remote_sync(e->recorded);
    }
}

static void backend_record(ggml_backend_t backend, ggml_backend_event_t event) {
    if (event->device != NULL && event->device->iface.event_new == mpi_event_new) {
        ((struct event *) event->context)->recorded = backend_of(backend)->dev->remote;
    }
}

// Also waits for work that the other rank received after the event was recorded.
static void backend_wait(ggml_backend_t backend, ggml_backend_event_t event) {
    struct mpi_remote *me = backend_of(backend)->dev->remote;
    if (event->device == NULL || event->device->iface.event_new != mpi_event_new) {
        ggml_backend_event_synchronize(event);
        return;
    }
    struct mpi_remote *other = ((struct event *) event->context)->recorded;
    if (other == NULL || other == me) {
        return;
    }
    const uint32_t ticket = mpi_remote_ticket(other), rank_me = (uint32_t) me->rank, rank_other = (uint32_t) other->rank;
    if (mpi_remote_send(other, &(struct mpi_head){.kind = MPI_SIGNAL, .id = ticket}, &rank_me, sizeof rank_me) !=
            GGML_STATUS_SUCCESS ||
        mpi_remote_send(me, &(struct mpi_head){.kind = MPI_AWAIT, .id = ticket}, &rank_other, sizeof rank_other) !=
            GGML_STATUS_SUCCESS) {
        mpi_remote_defer_error(me, "cannot wait for rank %d", other->rank);
    }
}

// ---- function table ----

ggml_backend_t mpi_backend_new(struct mpi_device *d) {
    struct ggml_backend *backend = shim_calloc(1, sizeof *backend);
    struct backend *b = shim_calloc(1, sizeof *b);
    if (backend == NULL || b == NULL || mpi_queue_is_lost(d->remote->queue, d->remote->rank)) {
        if (backend != NULL && b != NULL) {
            mpi_queue_report_lost(d->remote->queue, d->remote->rank, "a backend");
        } else {
            shim_error(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for a backend", d->name);
        }
        shim_free(backend);
        shim_free(b);
        return NULL;
    }
    *b = (struct backend){.dev = d};
    b->end = &b->first;
    *backend = (struct ggml_backend){
        .guid = &mpi_guid,
        .iface =
            {
                .get_name = backend_name,
                .free = backend_free,
                .set_tensor_async = backend_set,
                .get_tensor_async = backend_get,
                .cpy_tensor_async = backend_copy,
                .synchronize = backend_sync,
                .graph_compute = backend_compute,
                .event_record = backend_record,
                .event_wait = backend_wait,
            },
        .device = &d->ggml,
        .context = b,
    };
    return backend;
}
