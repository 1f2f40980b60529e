// SPDX-License-Identifier: MIT
// buffer.c: memory of another rank. Its addresses are numbers that mean nothing here but where a tensor lies in its buffer; no
// two buffers share one. Writing copies and returns; reading waits.

#include "mpi/remote.h"

#include "base/min.h"

#include <stdatomic.h>
#include <string.h>

#define ADDRESS_FIRST ((uintptr_t) 1 << 45) // far from what systems give
#define ADDRESS_STEP ((uintptr_t) 1 << 21)
#define KNOWN_SIZE ((size_t) 32 << 10) // weights of fewer bytes are sent without asking whether they are known

struct buffer {
    struct mpi_device *dev;
    uint32_t number;
    void *base;
};

static atomic_uintptr_t next_address = ADDRESS_FIRST;

// ---- numbers ----

// False: out of memory.
static bool number_take(struct mpi_remote *r, uint32_t *number) {
    pthread_mutex_lock(&r->lock);
    const bool ok = mpi_numbers_take(&r->buffers, number);
    pthread_mutex_unlock(&r->lock);
    return ok;
}

// The worker forgets its graphs with a buffer's memory, and so do we: at once, since another thread must not ask for one of them
// in between.
static void number_give_back(struct mpi_remote *r, uint32_t number, bool had_memory) {
    pthread_mutex_lock(&r->lock);
    if (had_memory && !mpi_mail_is_lost(r->mail, r->rank)) {
        (void) !mpi_remote_send(r, MPI_BUFFER_FREE, number, (uint64_t[3]){0}, NULL, 0);
    }
    if (had_memory) {
        mpi_known_forget(&r->known);
    }
    mpi_numbers_give_back(&r->buffers, number);
    pthread_mutex_unlock(&r->lock);
}

// ---- bytes ----

// Whether the worker had these bytes in its cache.
static bool is_known(struct mpi_device *d, uint32_t buffer, uint64_t offset, const void *bytes, size_t size) {
    struct mpi_remote *r = d->remote;
    uint8_t hash[16];
    const uint32_t ticket = mpi_remote_ticket(r);
    mpi_hash(bytes, size, hash);
    struct mpi_mail_item *item =
        mpi_remote_ask(r, ticket, MPI_SET_KNOWN, buffer, (uint64_t[3]){offset, size, ticket}, hash, sizeof hash);
    const bool known = item != NULL && mpi_head_of(item)->a != 0;
    mpi_item_free(item);
    return known;
}

void mpi_buffer_write(struct mpi_device *d, uint32_t buffer, uint64_t offset, const void *bytes, size_t size, bool is_weight) {
    const bool asks = is_weight && d->info.has_cache && size >= KNOWN_SIZE;
    if (size == 0 || (asks && is_known(d, buffer, offset, bytes, size))) {
        return;
    }
    for (size_t at = 0; at < size; at += MPI_PIECE) {
        const size_t n = min_size(size - at, MPI_PIECE);
        const bool keeps = asks && at + n == size;
        const uint64_t abc[3] = {offset + at, keeps, 0};
        if (mpi_remote_send(d->remote, MPI_SET, buffer, abc, (const char *) bytes + at, n) != GGML_STATUS_SUCCESS) {
            mpi_remote_keep(d->remote, "%zu bytes could not be sent", size - at);
            return;
        }
    }
}

void mpi_buffer_read(struct mpi_device *d, uint32_t buffer, uint64_t offset, void *bytes, size_t size) {
    struct mpi_remote *r = d->remote;
    const uint32_t ticket = mpi_remote_ticket(r);
    size_t at = 0;
    if (size == 0) {
        return;
    }
    bool ok = mpi_remote_send(r, MPI_GET, buffer, (uint64_t[3]){offset, size, ticket}, NULL, 0) == GGML_STATUS_SUCCESS;
    while (ok && at < size) {
        struct mpi_mail_item *item = mpi_mail_take(r->mail, r->rank, MPI_ANSWER, ticket);
        size_t n = 0;
        const void *piece = item != NULL ? mpi_body_of(item, &n) : NULL;
        ok = n > 0 && n <= size - at;
        if (ok) {
            memcpy((char *) bytes + at, piece, n);
            at += n;
        }
        mpi_item_free(item);
    }
    if (!ok) {
        memset((char *) bytes + at, 0, size - at);
        mpi_remote_keep(r, "%zu of %zu bytes could not be read", size - at, size);
    }
}

// ---- ggml's table ----

static void buffer_free(ggml_backend_buffer_t buffer) {
    struct buffer *b = buffer->context;
    number_give_back(b->dev->remote, b->number, true);
    shim_free(b);
}

static void *buffer_base(ggml_backend_buffer_t buffer) {
    return ((struct buffer *) buffer->context)->base;
}

static uint64_t offset_of(const struct buffer *b, const struct ggml_tensor *t, size_t offset) {
    return (uint64_t) ((uintptr_t) t->data - (uintptr_t) b->base) + offset;
}

static void buffer_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset, size_t size) {
    struct buffer *b = buffer->context;
    if (mpi_remote_send(b->dev->remote, MPI_MEMSET, b->number, (uint64_t[3]){offset_of(b, tensor, offset), size, value}, NULL,
            0) != GGML_STATUS_SUCCESS) {
        mpi_remote_keep(b->dev->remote, "%zu bytes could not be set", size);
    }
}

static void buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    struct buffer *b = buffer->context;
    mpi_buffer_write(
        b->dev, b->number, offset_of(b, tensor, offset), data, size, buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
}

// Pieces that lie side by side there, as rows of which each rank has a part do, go together: many would be a message each, and
// too short to be looked for in a cache.
#define TOGETHER ((size_t) 4 << 20) // bytes

static void buffer_set_2d(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size,
    size_t n, size_t to_step, size_t from_step) {
    const size_t many = size > 0 && size < TOGETHER ? TOGETHER / size : 1, each = min_size(many, n);
    char *dense = to_step == size && each > 1 ? shim_malloc(each * size) : NULL;
    for (size_t i = 0; i < n; i += dense != NULL ? each : 1) {
        const char *piece = (const char *) data + i * from_step;
        const size_t now = dense == NULL ? 1 : min_size(n - i, each);
        for (size_t j = 0; dense != NULL && j < now; j++) {
            memcpy(dense + j * size, piece + j * from_step, size);
        }
        buffer_set(buffer, tensor, dense != NULL ? dense : piece, offset + i * to_step, now * size);
    }
    shim_free(dense);
}

static void buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    struct buffer *b = buffer->context;
    mpi_buffer_read(b->dev, b->number, offset_of(b, tensor, offset), data, size);
}

static void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    struct buffer *b = buffer->context;
    if (mpi_remote_send(b->dev->remote, MPI_MEMSET, b->number, (uint64_t[3]){0, buffer->size, value}, NULL, 0) !=
        GGML_STATUS_SUCCESS) {
        mpi_remote_keep(b->dev->remote, "%zu bytes could not be cleared", buffer->size);
    }
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

struct mpi_device *mpi_tensor_device(const struct ggml_tensor *t, uint32_t *buffer, uint64_t *offset) {
    ggml_backend_buffer_t in = t->view_src != NULL ? t->view_src->buffer : t->buffer;
    if (in == NULL || in->iface.get_base != buffer_base) {
        return NULL;
    }
    const struct buffer *b = in->context;
    *buffer = b->number;
    *offset = offset_of(b, t, 0);
    return b->dev;
}

// After all that both ranks were given so far.
bool mpi_buffer_copy(const struct ggml_tensor *src, struct ggml_tensor *dst) {
    uint32_t from = 0, to = 0;
    uint64_t from_offset = 0, to_offset = 0;
    struct mpi_device *a = mpi_tensor_device(src, &from, &from_offset), *b = mpi_tensor_device(dst, &to, &to_offset);
    const size_t size = ggml_nbytes(src);
    if (a == NULL || b == NULL || ggml_nbytes(dst) != size || !ggml_is_contiguous(src) || !ggml_is_contiguous(dst)) {
        return false;
    }
    bool ok;
    if (a->remote == b->remote) {
        const struct mpi_wire_from source = {.buffer = from, .offset = from_offset};
        ok = mpi_remote_send(b->remote, MPI_COPY, to, (uint64_t[3]){to_offset, size, 0}, &source, sizeof source) ==
             GGML_STATUS_SUCCESS;
    } else {
        const uint32_t ticket = mpi_remote_ticket(a->remote), rank_a = (uint32_t) a->remote->rank,
                       rank_b = (uint32_t) b->remote->rank;
        ok = mpi_remote_send(a->remote, MPI_COPY_OUT, from, (uint64_t[3]){from_offset, size, ticket}, &rank_b, sizeof rank_b) ==
                 GGML_STATUS_SUCCESS &&
             mpi_remote_send(b->remote, MPI_COPY_IN, to, (uint64_t[3]){to_offset, size, ticket}, &rank_a, sizeof rank_a) ==
                 GGML_STATUS_SUCCESS;
    }
    if (!ok) {
        mpi_remote_keep(b->remote, "a copy of %zu bytes from rank %d could not be asked for", size, a->remote->rank);
    }
    return true;
}

// ---- the buffer type ----

static const char *buft_name(ggml_backend_buffer_type_t buft) {
    return ((struct mpi_device *) buft->context)->name;
}

// Its memory at the worker. False with an error.
static bool memory_take(struct mpi_device *d, uint32_t number, size_t size) {
    const uint32_t ticket = mpi_remote_ticket(d->remote);
    struct mpi_mail_item *item =
        mpi_remote_ask(d->remote, ticket, MPI_BUFFER_NEW, number, (uint64_t[3]){d->index, size, ticket}, NULL, 0);
    const bool ok = item != NULL && mpi_head_of(item)->a != 0;
    if (item != NULL && !ok) {
        size_t n;
        const char *text = mpi_body_of(item, &n);
        shim_error(GGML_STATUS_ALLOC_FAILED, "%s: a buffer of %zu bytes: %.*s", d->name, size, (int) min_size(n, 200), text);
    }
    mpi_item_free(item);
    return ok;
}

static ggml_backend_buffer_t buft_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    struct mpi_device *d = buft->context;
    struct buffer *b = shim_calloc(1, sizeof *b);
    uint32_t number = 0;
    if (b == NULL || !number_take(d->remote, &number)) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for a buffer", d->name);
        shim_free(b);
        return NULL;
    }
    if (!memory_take(d, number, size)) {
        number_give_back(d->remote, number, false);
        shim_free(b);
        return NULL;
    }
    const uintptr_t room = (size / ADDRESS_STEP + 2) * ADDRESS_STEP;
    *b = (struct buffer){.dev = d, .number = number, .base = (void *) atomic_fetch_add(&next_address, room)};
    ggml_backend_buffer_t buffer = ggml_backend_buffer_init(buft, buffer_iface, b, size);
    if (buffer == NULL) {
        struct ggml_backend_buffer unborn = {.context = b};
        buffer_free(&unborn);
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
    if (!d->info.is_plain) {
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
