// SPDX-License-Identifier: MIT
// buffer.c: memory of another rank. Addresses cannot be dereferenced; they encode the offset in the buffer.
// No two buffers share an address. A write does not wait for the rank; a read waits.

#include "mpi/remote.h"

#include "base/min.h"

#include <stdatomic.h>
#include <string.h>

#define ADDRESS_FIRST ((uintptr_t) 1 << 45) // far from addresses that systems use
#define ADDRESS_STEP ((uintptr_t) 1 << 21)
#define CACHED_SIZE ((size_t) 32 << 10) // smaller weights are sent without asking the worker's cache

struct buffer {
    struct mpi_device *dev;
    uint32_t number;
    void *base;
};

static atomic_uintptr_t next_address = ADDRESS_FIRST;

// ---- buffer numbers ----

// Returns false if out of memory.
static bool id_take(struct mpi_remote *r, uint32_t *number) {
    pthread_mutex_lock(&r->lock);
    const bool ok = mpi_id_pool_take(&r->buffers, number);
    pthread_mutex_unlock(&r->lock);
    return ok;
}

// Frees the buffer at the worker. The worker then forgets all its graphs, so the graph cache is cleared too. The lock is held
// during both, so that no thread can run a forgotten graph in between.
static void id_give_back(struct mpi_remote *r, uint32_t number, bool had_memory) {
    pthread_mutex_lock(&r->lock);
    if (had_memory && !mpi_queue_is_lost(r->queue, r->rank)) {
        (void) !mpi_remote_send(r, &(struct mpi_head){.kind = MPI_BUFFER_FREE, .id = number}, NULL, 0);
    }
    if (had_memory) {
        mpi_graph_cache_forget(&r->graph_cache);
    }
    mpi_id_pool_give_back(&r->buffers, number);
    pthread_mutex_unlock(&r->lock);
}

// ---- data ----

static bool is_in_worker_cache(const struct mpi_place *to, const void *bytes, size_t size) {
    struct mpi_remote *r = to->dev->remote;
    uint8_t hash[16];
    const uint32_t ticket = mpi_remote_ticket(r);
    mpi_hash(bytes, size, hash);
    struct mpi_queue_item *item =
        mpi_remote_ask(r, ticket, &(struct mpi_head){MPI_SET_CACHED, to->buffer, to->offset, size, ticket}, hash, sizeof hash);
    const bool is_hit = item != NULL && mpi_head_of(item)->a != 0;
    mpi_item_free(item);
    return is_hit;
}

void mpi_buffer_write(const struct mpi_place *to, const void *bytes, size_t size, bool is_weight) {
    const bool uses_cache = is_weight && to->dev->info.has_cache && size >= CACHED_SIZE;
    if (size == 0 || (uses_cache && is_in_worker_cache(to, bytes, size))) {
        return;
    }
    for (size_t at = 0; at < size; at += MPI_PIECE) {
        const size_t n = min_size(size - at, MPI_PIECE);
        const bool is_last = uses_cache && at + n == size;
        const struct mpi_head head = {MPI_SET, to->buffer, to->offset + at, is_last, 0};
        if (mpi_remote_send(to->dev->remote, &head, (const char *) bytes + at, n) != GGML_STATUS_SUCCESS) {
            mpi_remote_defer_error(to->dev->remote, "cannot send %zu bytes", size - at);
            return;
        }
    }
}

void mpi_buffer_read(const struct mpi_place *from, void *bytes, size_t size) {
    struct mpi_remote *r = from->dev->remote;
    if (size == 0) {
        return;
    }
    const uint32_t ticket = mpi_remote_ticket(r);
    const struct mpi_head head = {MPI_GET, from->buffer, from->offset, size, ticket};
    if (mpi_remote_send(r, &head, NULL, 0) == GGML_STATUS_SUCCESS) {
        mpi_remote_take(r, ticket, bytes, size);
    } else {
        mpi_remote_unread(r, bytes, size, size);
    }
}

// ---- ggml's function table ----

static void buffer_free(ggml_backend_buffer_t buffer) {
    struct buffer *b = buffer->context;
    id_give_back(b->dev->remote, b->number, true);
    shim_free(b);
}

static void *buffer_base(ggml_backend_buffer_t buffer) {
    return ((struct buffer *) buffer->context)->base;
}

static struct mpi_place place_in(ggml_backend_buffer_t buffer, const struct ggml_tensor *t, size_t offset) {
    const struct buffer *b = buffer->context;
    return (struct mpi_place){b->dev, b->number, (uint64_t) ((uintptr_t) t->data - (uintptr_t) b->base) + offset};
}

static void bytes_fill(const struct mpi_place *at, size_t size, uint8_t value, const char *done) {
    const struct mpi_head head = {MPI_MEMSET, at->buffer, at->offset, size, value};
    if (mpi_remote_send(at->dev->remote, &head, NULL, 0) != GGML_STATUS_SUCCESS) {
        mpi_remote_defer_error(at->dev->remote, "%zu bytes cannot be %s", size, done);
    }
}

static void buffer_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset, size_t size) {
    const struct mpi_place at = place_in(buffer, tensor, offset);
    bytes_fill(&at, size, value, "set");
}

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    const struct buffer *b = buffer->context;
    bytes_fill(&(struct mpi_place){b->dev, b->number, 0}, buffer->size, value, "cleared");
}

static void buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    const struct mpi_place to = place_in(buffer, tensor, offset);
    mpi_buffer_write(&to, data, size, buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
}

// buffer_set_2d combines adjacent pieces up to this number of bytes, because single pieces may be too short for the worker's
// cache.
#define COMBINED_SIZE ((size_t) 4 << 20)

static void buffer_set_2d(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size,
    size_t n, size_t to_step, size_t from_step) {
    const size_t per_message = size > 0 && size < COMBINED_SIZE ? COMBINED_SIZE / size : 1, each = min_size(per_message, n);
    char *dense = to_step == size && each > 1 ? shim_malloc(each * size) : NULL;
    for (size_t i = 0; i < n; i += dense != NULL ? each : 1) {
        const char *piece = (const char *) data + i * from_step;
        const size_t n_now = dense == NULL ? 1 : min_size(n - i, each);
        for (size_t j = 0; dense != NULL && j < n_now; j++) {
            memcpy(dense + j * size, piece + j * from_step, size);
        }
        buffer_set(buffer, tensor, dense != NULL ? dense : piece, offset + i * to_step, n_now * size);
    }
    shim_free(dense);
}

static void buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    const struct mpi_place from = place_in(buffer, tensor, offset);
    mpi_buffer_read(&from, data, size);
}

static bool buffer_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    (void) buffer;
    return mpi_buffer_copy(src, dst);
}

static const struct ggml_backend_buffer_i buffer_iface = {
    .free_buffer = buffer_free,
    .get_base = buffer_base,
    .memset_tensor = buffer_memset,
    .set_tensor = buffer_set,
    .get_tensor = buffer_get,
    .set_tensor_2d = buffer_set_2d,
    .cpy_tensor = buffer_copy,
    .clear = buffer_clear,
};

struct mpi_place mpi_tensor_place(const struct ggml_tensor *t, size_t offset) {
    ggml_backend_buffer_t in = t->view_src != NULL ? t->view_src->buffer : t->buffer;
    return in != NULL && in->iface.get_base == buffer_base ? place_in(in, t, offset) : (struct mpi_place){0};
}

// Returns FAILED if one of the ranks is lost.
static enum ggml_status copy_send(const struct mpi_place *from, const struct mpi_place *to, size_t size) {
    struct mpi_remote *a = from->dev->remote, *b = to->dev->remote;
    if (a == b) {
        const struct mpi_wire_from source = {.buffer = from->buffer, .offset = from->offset};
        return mpi_remote_send(b, &(struct mpi_head){MPI_COPY, to->buffer, to->offset, size, 0}, &source, sizeof source);
    }
    const uint32_t ticket = mpi_remote_ticket(a), rank_a = (uint32_t) a->rank, rank_b = (uint32_t) b->rank;
    const struct mpi_head out = {MPI_COPY_OUT, from->buffer, from->offset, size, ticket},
                          in = {MPI_COPY_IN, to->buffer, to->offset, size, ticket};
    const enum ggml_status status = mpi_remote_send(a, &out, &rank_b, sizeof rank_b);
    return status == GGML_STATUS_SUCCESS ? mpi_remote_send(b, &in, &rank_a, sizeof rank_a) : status;
}

// The copy runs after all commands that both ranks have received so far.
bool mpi_buffer_copy(const struct ggml_tensor *src, struct ggml_tensor *dst) {
    const struct mpi_place from = mpi_tensor_place(src, 0), to = mpi_tensor_place(dst, 0);
    const size_t size = ggml_nbytes(src);
    if (from.dev == NULL || to.dev == NULL || ggml_nbytes(dst) != size || !ggml_is_contiguous(src) || !ggml_is_contiguous(dst)) {
        return false;
    }
    if (copy_send(&from, &to, size) != GGML_STATUS_SUCCESS) {
        mpi_remote_defer_error(to.dev->remote, "cannot request a copy of %zu bytes from rank %d", size, from.dev->remote->rank);
    }
    return true;
}

// ---- buffer type ----

static const char *buft_name(ggml_backend_buffer_type_t buft) {
    return ((struct mpi_device *) buft->context)->name;
}

// Allocates the memory at the worker. On failure returns false with an error.
static bool memory_take(struct mpi_device *d, uint32_t number, size_t size) {
    const uint32_t ticket = mpi_remote_ticket(d->remote);
    struct mpi_queue_item *item =
        mpi_remote_ask(d->remote, ticket, &(struct mpi_head){MPI_BUFFER_NEW, number, d->index, size, ticket}, NULL, 0);
    const bool ok = item != NULL && mpi_head_of(item)->a != 0;
    if (item != NULL && !ok) {
        size_t n;
        const char *text = mpi_body_of(item, &n);
        shim_error(GGML_STATUS_ALLOC_FAILED, "%s: cannot allocate a buffer of %zu bytes: %.*s", d->name, size,
            (int) min_size(n, 200), text);
    }
    mpi_item_free(item);
    return ok;
}

static ggml_backend_buffer_t buft_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    struct mpi_device *d = buft->context;
    struct buffer *b = shim_calloc(1, sizeof *b);
    uint32_t number = 0;
    if (b == NULL || !id_take(d->remote, &number)) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for a buffer", d->name);
        shim_free(b);
        return NULL;
    }
    if (!memory_take(d, number, size)) {
        id_give_back(d->remote, number, false);
        shim_free(b);
        return NULL;
    }
    const uintptr_t room = (size / ADDRESS_STEP + 2) * ADDRESS_STEP;
    *b = (struct buffer){.dev = d, .number = number, .base = (void *) atomic_fetch_add(&next_address, room)};
    ggml_backend_buffer_t buffer = ggml_backend_buffer_init(buft, buffer_iface, b, size);
    if (buffer == NULL) {
        struct ggml_backend_buffer partial = {.context = b};
        buffer_free(&partial);
    }
    return buffer;
}

static size_t buft_alignment(ggml_backend_buffer_type_t buft) {
    return (size_t) ((struct mpi_device *) buft->context)->info.alignment;
}

static size_t buft_max_size(ggml_backend_buffer_type_t buft) {
    return (size_t) ((struct mpi_device *) buft->context)->info.max_size;
}

static size_t buft_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor) {
    struct mpi_device *d = buft->context;
    size_t size = ggml_nbytes(tensor);
    if (!d->info.has_plain_sizes) {
        size_t there;
        (void) mpi_device_ask(d, tensor, &there);
        size = max_size(there, size);
    }
    return size;
}

void mpi_buft_init(struct mpi_device *d) {
    d->buft = (struct ggml_backend_buffer_type){
        .iface =
            {
                .get_name = buft_name,
                .alloc_buffer = buft_alloc,
                .get_alignment = buft_alignment,
                .get_max_size = buft_max_size,
                .get_alloc_size = buft_alloc_size,
            },
        .device = &d->ggml,
        .context = d,
    };
}
