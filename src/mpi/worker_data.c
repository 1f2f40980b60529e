// SPDX-License-Identifier: MIT
// worker_data.c: transfers data into, out of and between the buffers of a worker. Every range is checked before memory is
// accessed.

#include "mpi/worker.h"

#include "base/min.h"

#include <string.h>

void mpi_worker_fail(struct mpi_worker *w, const char *fmt, ...) {
    if (w->failure[0] == '\0') {
        va_list args;
        va_start(args, fmt);
        vsnprintf(w->failure, sizeof w->failure, fmt, args);
        va_end(args);
    }
}

ggml_backend_buffer_t mpi_worker_bytes(struct mpi_worker *w, uint32_t buffer, uint64_t offset, uint64_t size) {
    if (buffer >= w->n_buffers || w->buffers[buffer].buffer == NULL) {
        mpi_worker_fail(w, "there is no buffer %u", buffer);
        return NULL;
    }
    const uint64_t have = ggml_backend_buffer_get_size(w->buffers[buffer].buffer);
    if (offset > have || size > have - offset) {
        mpi_worker_fail(w, "%llu bytes at offset %llu exceed buffer %u, which has %llu bytes", (unsigned long long) size,
            (unsigned long long) offset, buffer, (unsigned long long) have);
        return NULL;
    }
    return w->buffers[buffer].buffer;
}

// Returns a range of a buffer as a tensor, because ggml's functions for data take tensors. size must not be 0, because an empty
// buffer may have no address.
static struct ggml_tensor as_tensor(ggml_backend_buffer_t buffer, uint64_t offset, size_t size) {
    struct ggml_tensor t = {.type = GGML_TYPE_I8, .buffer = buffer, .ne = {(int64_t) size, 1, 1, 1}, .nb = {1, size, size, size}};
    t.data = (char *) ggml_backend_buffer_get_base(buffer) + offset;
    return t;
}

void mpi_worker_write(ggml_backend_buffer_t buffer, uint64_t offset, const void *bytes, size_t size) {
    if (size > 0) {
        struct ggml_tensor t = as_tensor(buffer, offset, size);
        ggml_backend_tensor_set(&t, bytes, 0, size);
    }
}

void mpi_worker_read(ggml_backend_buffer_t buffer, uint64_t offset, void *bytes, size_t size) {
    if (size > 0) {
        const struct ggml_tensor t = as_tensor(buffer, offset, size);
        ggml_backend_tensor_get(&t, bytes, 0, size);
    }
}

// ---- commands of the program ----

// Writes the contents of the last cache miss to the cache, if they have the hash that the program announced.
static void cache_fill(struct mpi_worker *w) {
    uint8_t hash[16];
    const size_t size = (size_t) w->cache_miss.size;
    ggml_backend_buffer_t buffer = mpi_worker_bytes(w, w->cache_miss.buffer, w->cache_miss.offset, size);
    void *bytes = buffer != NULL ? shim_malloc(size) : NULL;
    w->cache_miss.is_open = false;
    if (bytes != NULL) {
        mpi_worker_read(buffer, w->cache_miss.offset, bytes, size);
        mpi_hash(bytes, size, hash);
        if (memcmp(hash, w->cache_miss.hash, sizeof hash) == 0) {
            mpi_cache_write(w->cache, hash, bytes, size);
        }
    }
    shim_free(bytes);
}

void mpi_worker_set(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    ggml_backend_buffer_t buffer = mpi_worker_bytes(w, h->id, h->a, size);
    if (buffer != NULL) {
        mpi_worker_write(buffer, h->a, body, size);
    }
    if (h->b != 0 && w->cache_miss.is_open) {
        cache_fill(w);
    }
}

void mpi_worker_set_cached(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    const struct mpi_head no = {.kind = MPI_ANSWER, .id = (uint32_t) h->c};
    struct mpi_head yes = no;
    yes.a = 1;
    bool is_hit = false;
    w->cache_miss.is_open = false;
    ggml_backend_buffer_t buffer = size == sizeof w->cache_miss.hash ? mpi_worker_bytes(w, h->id, h->a, h->b) : NULL;
    void *bytes = buffer != NULL && w->cache != NULL ? shim_malloc((size_t) h->b) : NULL;
    if (bytes != NULL) {
        is_hit = mpi_cache_read(w->cache, body, bytes, (size_t) h->b);
        if (is_hit) {
            mpi_worker_write(buffer, h->a, bytes, (size_t) h->b);
        } else {
            memcpy(w->cache_miss.hash, body, sizeof w->cache_miss.hash);
            w->cache_miss.buffer = h->id;
            w->cache_miss.offset = h->a;
            w->cache_miss.size = h->b;
            w->cache_miss.is_open = true;
        }
    }
    shim_free(bytes);
    (void) !mpi_queue_send(w->queue, w->program_rank, is_hit ? &yes : &no, NULL, 0);
}

void mpi_worker_memset(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    (void) body;
    (void) size;
    ggml_backend_buffer_t buffer = mpi_worker_bytes(w, h->id, h->a, h->b);
    if (buffer != NULL && h->b > 0) {
        struct ggml_tensor t = as_tensor(buffer, h->a, (size_t) h->b);
        ggml_backend_tensor_memset(&t, (uint8_t) h->c, 0, (size_t) h->b);
    }
}

// If the range is not inside the buffer, the answer is one message without data.
void mpi_worker_get(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    (void) body;
    (void) size;
    ggml_backend_buffer_t buffer = mpi_worker_bytes(w, h->id, h->a, h->b);
    const struct mpi_head head = {.kind = MPI_ANSWER, .id = (uint32_t) h->c, .a = buffer != NULL};
    if (buffer == NULL || h->b == 0) {
        (void) !mpi_queue_send(w->queue, w->program_rank, &head, NULL, 0);
        return;
    }
    for (uint64_t at = 0; at < h->b; at += MPI_PIECE) {
        const size_t n = (size_t) min_u64(h->b - at, MPI_PIECE);
        mpi_worker_read(buffer, h->a + at, w->piece, n);
        if (mpi_queue_send(w->queue, w->program_rank, &head, w->piece, n) != GGML_STATUS_SUCCESS) {
            return;
        }
    }
}

// ---- copies ----

void mpi_worker_copy(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    struct mpi_wire_from from = {0};
    if (size != sizeof from) {
        mpi_worker_fail(w, "a copy command has %zu bytes of parameters, which is invalid", size);
        return;
    }
    memcpy(&from, body, sizeof from);
    ggml_backend_buffer_t to = mpi_worker_bytes(w, h->id, h->a, h->b),
                          source = mpi_worker_bytes(w, from.buffer, from.offset, h->b);
    // A copy in pieces would overwrite an overlapping source.
    if (to == NULL || source == NULL || (to == source && from.offset < h->a + h->b && h->a < from.offset + h->b)) {
        mpi_worker_fail(w, "cannot copy %llu bytes to buffer %u: the ranges overlap or are outside their buffers",
            (unsigned long long) h->b, h->id);
        return;
    }
    for (uint64_t at = 0; at < h->b; at += MPI_PIECE) {
        const size_t n = (size_t) min_u64(h->b - at, MPI_PIECE);
        mpi_worker_read(source, from.offset + at, w->piece, n);
        mpi_worker_write(to, h->a + at, w->piece, n);
    }
}

// Reads the other rank of a copy or an event from the body of a command. On failure calls mpi_worker_fail and returns -1.
static int other_of(struct mpi_worker *w, const void *body, size_t size) {
    uint32_t rank = UINT32_MAX;
    memcpy(&rank, body, min_size(size, sizeof rank));
    if (size != sizeof rank || rank >= (uint32_t) w->queue->transport.size || (int) rank == w->queue->transport.rank) {
        mpi_worker_fail(w, "rank %u does not exist or is this rank", rank);
        return -1;
    }
    return (int) rank;
}

// Sends the range to another rank in pieces. Each piece contains the number of bytes in later pieces. If the range is invalid, an
// empty piece ends the copy.
void mpi_worker_copy_out(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    ggml_backend_buffer_t buffer = mpi_worker_bytes(w, h->id, h->a, h->b);
    const int to = other_of(w, body, size);
    struct mpi_head head = {.kind = MPI_TENSOR, .id = (uint32_t) h->c};
    for (uint64_t at = 0; to >= 0 && at < h->b; at += MPI_PIECE) {
        const size_t n = (size_t) min_u64(h->b - at, MPI_PIECE);
        if (buffer == NULL) {
            (void) !mpi_queue_send(w->queue, to, &head, w->piece, 0);
            return;
        }
        head.a = h->b - at - n;
        mpi_worker_read(buffer, h->a + at, w->piece, n);
        if (mpi_queue_send(w->queue, to, &head, w->piece, n) != GGML_STATUS_SUCCESS) {
            mpi_worker_fail(w, "cannot send bytes to rank %d (%s)", to, w->queue->peers[to].host);
            return;
        }
    }
}

// Receives a range from another rank. All pieces are received, even if they cannot be written, because a later copy would
// otherwise receive them.
void mpi_worker_copy_in(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    ggml_backend_buffer_t buffer = mpi_worker_bytes(w, h->id, h->a, h->b);
    const int from = other_of(w, body, size);
    uint64_t n_received = 0, n_following = UINT64_MAX; // n_following: bytes in later pieces, from the last piece
    while (from >= 0 && h->b > 0 && n_following > 0) {
        struct mpi_queue_item *item = mpi_queue_take(w->queue, from, MPI_TENSOR, (uint32_t) h->c);
        const uint64_t before = n_following;
        size_t n = 0;
        const void *bytes = item != NULL ? mpi_body_of(item, &n) : NULL;
        n_following = item != NULL && mpi_head_of(item)->a < before ? mpi_head_of(item)->a : 0;
        if (buffer != NULL && n_received <= h->b && n <= h->b - n_received) {
            mpi_worker_write(buffer, h->a + n_received, bytes, n);
        }
        n_received += n;
        mpi_item_free(item);
    }
    if (from >= 0 && n_received != h->b) {
        mpi_worker_fail(w, "a copy of %llu bytes from rank %d (%s) ended after %llu bytes", (unsigned long long) h->b, from,
            w->queue->peers[from].host, (unsigned long long) n_received);
    }
}

// ---- events ----

void mpi_worker_signal(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    const int to = other_of(w, body, size);
    const struct mpi_head head = {.kind = MPI_TENSOR, .id = h->id};
    if (to >= 0) {
        (void) !mpi_queue_send(w->queue, to, &head, NULL, 0);
    }
}

void mpi_worker_await(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    const int from = other_of(w, body, size);
    struct mpi_queue_item *item = from >= 0 ? mpi_queue_take(w->queue, from, MPI_TENSOR, h->id) : NULL;
    if (item == NULL && from >= 0) {
        mpi_worker_fail(w, "rank %d (%s) was lost while this rank waited for it", from, w->queue->peers[from].host);
    }
    mpi_item_free(item);
}

// ---- sums ----

void mpi_worker_sum(struct mpi_worker *w, const struct mpi_head *h, const void *body, size_t size) {
    (void) body;
    (void) size;
    const uint64_t n = h->c / 2;
    struct mpi_group *group = h->id < w->n_groups && w->groups[h->id].ranks != NULL ? &w->groups[h->id] : NULL;
    ggml_backend_buffer_t buffer =
        n <= SIZE_MAX / 16 && h->a <= UINT32_MAX ? mpi_worker_bytes(w, (uint32_t) h->a, h->b, 4 * n) : NULL;
    if (group == NULL || buffer == NULL || h->b % sizeof(float) != 0) {
        mpi_worker_fail(w, "cannot add %llu elements in group %u: no such group, or the range is not inside the buffer",
            (unsigned long long) n, h->id);
        if (group != NULL) {
            mpi_group_fail(group);
        }
        return;
    }
    const bool in_place = ggml_backend_buffer_is_host(buffer);
    float *data = in_place ? (float *) ((char *) ggml_backend_buffer_get_base(buffer) + h->b) : shim_malloc((size_t) n * 4);
    if (data == NULL) {
        mpi_worker_fail(w, "out of memory for a sum of %llu elements", (unsigned long long) n);
        mpi_group_fail(group);
        return;
    }
    if ((h->c & 1) != 0) {
        memset(data, 0, (size_t) n * sizeof *data);
    } else if (!in_place) {
        mpi_worker_read(buffer, h->b, data, (size_t) n * sizeof *data);
    }
    if (!mpi_group_sum(group, data, (size_t) n)) {
        mpi_worker_fail(w, "a sum of %llu elements in group %u failed: a rank is lost", (unsigned long long) n, h->id);
    } else if (!in_place) {
        mpi_worker_write(buffer, h->b, data, (size_t) n * sizeof *data);
    }
    if (!in_place) {
        shim_free(data);
    }
}
