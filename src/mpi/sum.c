// SPDX-License-Identifier: MIT
// sum.c: sums, broadcasts and barriers. MPI's own collectives are not used, because they would wait forever for a dead rank.
// In a sum, each of the n members adds one share of the vector and sends the result to the others (reduce-scatter, then
// all-gather). Each member sends and receives 2 (n - 1) / n times the size of the vector. A short vector is instead sent
// completely to all members, and each member adds all of it. Parts are added in member order, so all members get the same bits.

#include "mpi/message_queue.h"

#include "base/min.h"

#include <string.h>

#define SHORT_SIZE ((size_t) 32 << 10) // bytes up to which a vector is short
#define SHARE_SIZE (16 * MPI_PIECE)    // largest share of a member per round, bytes

static bool part_send(struct mpi_group *g, int to, const void *data, size_t size) {
    const struct mpi_head head = {.kind = MPI_PART, .id = g->number, .a = g->n_done, .b = size};
    return mpi_queue_send(g->queue, g->ranks[to], &head, data, size) == GGML_STATUS_SUCCESS;
}

// Waits for a part of exactly this size. On failure returns NULL with an error.
static struct mpi_queue_item *part_take(struct mpi_group *g, int from, size_t size, const void **data) {
    struct mpi_queue_item *item = mpi_queue_take(g->queue, g->ranks[from], MPI_PART, g->number);
    if (item == NULL) {
        return NULL;
    }
    const struct mpi_head *head = mpi_head_of(item);
    size_t got;
    *data = mpi_body_of(item, &got);
    if (got != size || head->a != g->n_done) {
        shim_error(GGML_STATUS_FAILED, "MPI: rank %d sent %zu bytes for call %llu; %zu bytes for call %llu were expected",
            g->ranks[from], got, (unsigned long long) head->a, size, (unsigned long long) g->n_done);
        mpi_item_free(item);
        return NULL;
    }
    return item;
}

// If the call failed (ok is false), sends an empty part to the other members, which would otherwise wait for this member. An
// empty part makes a sum or a broadcast of the others fail, and ends a barrier. The group cannot be used afterwards.
static bool call_end(struct mpi_group *g, bool ok) {
    for (int i = 0; !ok && i < g->n; i++) {
        if (i != g->me && !mpi_queue_is_lost(g->queue, g->ranks[i])) {
            (void) !part_send(g, i, NULL, 0);
        }
    }
    return ok;
}

void mpi_group_fail(struct mpi_group *g) {
    g->n_done++;
    (void) call_end(g, false);
}

static size_t piece_of(size_t size, size_t at) {
    return min_size(size - at, MPI_PIECE);
}

static bool send_pieces(struct mpi_group *g, int to, const void *data, size_t size) {
    bool ok = true;
    for (size_t at = 0; ok && at < size; at += MPI_PIECE) {
        ok = part_send(g, to, (const char *) data + at, piece_of(size, at));
    }
    return ok;
}

static bool take_pieces(struct mpi_group *g, int from, void *data, size_t size) {
    bool ok = true;
    for (size_t at = 0; ok && at < size; at += MPI_PIECE) {
        const void *bytes;
        struct mpi_queue_item *item = part_take(g, from, piece_of(size, at), &bytes);
        ok = item != NULL;
        if (ok) {
            memcpy((char *) data + at, bytes, piece_of(size, at));
        }
        mpi_item_free(item);
    }
    return ok;
}

// Adds the parts of all members in member order. data is this member's part and receives the sum. All parts have n floats, which
// fit into one piece.
static bool add_piece(struct mpi_group *g, float *data, size_t n) {
    float *sum = shim_calloc(n, sizeof *sum);
    bool ok = sum != NULL;
    if (!ok) {
        shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for a sum of %zu elements", n);
    }
    for (int i = 0; ok && i < g->n; i++) {
        const void *bytes = data;
        struct mpi_queue_item *item = i != g->me ? part_take(g, i, n * sizeof *sum, &bytes) : NULL;
        ok = i == g->me || item != NULL;
        if (ok && i == 0) {
            memcpy(sum, bytes, n * sizeof *sum);
        } else if (ok) {
            const float *part = bytes; // aligned: the header has 32 bytes
            for (size_t k = 0; k < n; k++) {
                sum[k] += part[k];
            }
        }
        mpi_item_free(item);
    }
    if (ok) {
        memcpy(data, sum, n * sizeof *sum);
    }
    shim_free(sum);
    return ok;
}

static bool sum_short(struct mpi_group *g, float *data, size_t n) {
    bool ok = true;
    for (int i = 0; ok && i < g->n; i++) {
        ok = i == g->me || part_send(g, i, data, n * sizeof *data);
    }
    return ok && add_piece(g, data, n);
}

// Member i adds the elements from first_of(i) to first_of(i + 1).
static size_t first_of(const struct mpi_group *g, size_t n, int i) {
    return n / (size_t) g->n * (size_t) i + (n % (size_t) g->n) * (size_t) i / (size_t) g->n;
}

static bool sum_shares(struct mpi_group *g, float *data, size_t n) {
    const size_t first = first_of(g, n, g->me), end = first_of(g, n, g->me + 1), step = MPI_PIECE / sizeof *data;
    bool ok = true;
    for (int i = 0; ok && i < g->n; i++) {
        const size_t from = first_of(g, n, i);
        ok = i == g->me || send_pieces(g, i, data + from, (first_of(g, n, i + 1) - from) * sizeof *data);
    }
    for (size_t at = first; ok && at < end; at += step) {
        ok = add_piece(g, data + at, min_size(end - at, step));
    }
    for (int i = 0; ok && i < g->n; i++) {
        ok = i == g->me || send_pieces(g, i, data + first, (end - first) * sizeof *data);
    }
    for (int i = 0; ok && i < g->n; i++) {
        const size_t from = first_of(g, n, i);
        ok = i == g->me || take_pieces(g, i, data + from, (first_of(g, n, i + 1) - from) * sizeof *data);
    }
    return ok;
}

bool mpi_group_sum(struct mpi_group *g, float *data, size_t n) {
    g->n_done++;
    if (n == 0 || g->n == 1) {
        return true;
    }
    // All members send before they receive, so the queue must hold the shares of all other members for two rounds.
    const size_t kept = MPI_KEPT_MAX / (4 * (size_t) g->n), share = min_size(kept, SHARE_SIZE);
    const size_t step = share / sizeof *data * (size_t) g->n;
    bool ok = n * sizeof *data > SHORT_SIZE || sum_short(g, data, n);
    for (size_t at = 0; ok && n * sizeof *data > SHORT_SIZE && at < n; at += step) {
        ok = sum_shares(g, data + at, min_size(n - at, step));
    }
    return call_end(g, ok);
}

bool mpi_group_broadcast(struct mpi_group *g, void *data, size_t size, int root) {
    g->n_done++;
    if (root < 0 || root >= g->n) {
        shim_error(GGML_STATUS_FAILED, "MPI: broadcast from rank %d, but there are %d ranks", root, g->n);
        return false;
    }
    if (g->me != root) {
        return take_pieces(g, root, data, size); // no call_end: no member waits for this one
    }
    bool ok = true;
    for (int i = 0; ok && i < g->n; i++) {
        ok = i == root || send_pieces(g, i, data, size);
    }
    return call_end(g, ok);
}

bool mpi_group_barrier(struct mpi_group *g) {
    g->n_done++;
    bool ok = true;
    for (int i = 0; ok && i < g->n; i++) {
        ok = i == g->me || part_send(g, i, NULL, 0);
    }
    for (int i = 0; ok && i < g->n; i++) {
        const void *nothing;
        struct mpi_queue_item *item = i != g->me ? part_take(g, i, 0, &nothing) : NULL;
        ok = i == g->me || item != NULL;
        mpi_item_free(item);
    }
    return ok;
}
