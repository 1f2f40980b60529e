// SPDX-License-Identifier: MIT
// remote.c: a worker's rank as the program sees it: requests, deferred failures, and the cache of sent graphs.
// A ticket is the id by which an answer is matched to its request.

#include "mpi/remote.h"

#include "base/min.h"
#include "base/siphash.h"

#include <string.h>

bool mpi_remote_init(struct mpi_remote *r, struct mpi_queue *queue, int rank) {
    *r = (struct mpi_remote){.queue = queue, .rank = rank};
    return pthread_mutex_init(&r->lock, NULL) == 0;
}

void mpi_remote_fini(struct mpi_remote *r) {
    mpi_graph_cache_fini(&r->graph_cache);
    mpi_wire_fini(&r->writing);
    shim_free(r->buffers.taken);
    pthread_mutex_destroy(&r->lock);
}

uint32_t mpi_remote_ticket(struct mpi_remote *r) {
    pthread_mutex_lock(&r->lock);
    const uint32_t ticket = ++r->n_tickets;
    pthread_mutex_unlock(&r->lock);
    return ticket;
}

enum ggml_status mpi_remote_send(struct mpi_remote *r, const struct mpi_head *head, const void *body, size_t size) {
    if (head->kind != MPI_SYNC && head->kind != MPI_ASK && head->kind != MPI_ASK_MEMORY) {
        atomic_fetch_add(&r->n_sent, 1);
    }
    return mpi_queue_send(r->queue, r->rank, head, body, size);
}

struct mpi_queue_item *mpi_remote_ask(
    struct mpi_remote *r, uint32_t ticket, const struct mpi_head *head, const void *body, size_t size) {
    if (mpi_remote_send(r, head, body, size) != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    return mpi_queue_take(r->queue, r->rank, MPI_ANSWER, ticket);
}

void mpi_remote_take(struct mpi_remote *r, uint32_t ticket, void *data, size_t size) {
    for (size_t at = 0; at < size;) {
        struct mpi_queue_item *item = mpi_queue_take(r->queue, r->rank, MPI_ANSWER, ticket);
        size_t n = 0;
        const void *piece = item != NULL ? mpi_body_of(item, &n) : NULL;
        const bool ok = n > 0 && n <= size - at;
        if (data != NULL && ok) {
            memcpy((char *) data + at, piece, n);
        }
        mpi_item_free(item);
        if (!ok) {
            if (data != NULL) {
                mpi_remote_unread(r, (char *) data + at, size - at, size);
            }
            return;
        }
        at += n;
    }
}

void mpi_remote_unread(struct mpi_remote *r, void *data, size_t left, size_t size) {
    memset(data, 0, left);
    mpi_remote_defer_error(r, "cannot read %zu of %zu bytes", left, size);
}

void mpi_remote_defer_error(struct mpi_remote *r, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    pthread_mutex_lock(&r->lock);
    if (r->failure[0] == '\0') {
        const int n = snprintf(r->failure, sizeof r->failure, "MPI: rank %d on %s: ", r->rank, r->queue->peers[r->rank].host);
        vsnprintf(r->failure + n, sizeof r->failure - (size_t) n, fmt, args);
    }
    pthread_mutex_unlock(&r->lock);
    va_end(args);
}

void mpi_remote_failure(struct mpi_remote *r, char text[MPI_FAILURE_SIZE]) {
    pthread_mutex_lock(&r->lock);
    memcpy(text, r->failure, sizeof r->failure);
    r->failure[0] = '\0';
    pthread_mutex_unlock(&r->lock);
}

enum ggml_status mpi_remote_report(struct mpi_remote *r) {
    char text[MPI_FAILURE_SIZE];
    mpi_remote_failure(r, text);
    if (mpi_queue_is_lost(r->queue, r->rank)) {
        return mpi_queue_report_lost(r->queue, r->rank, "computing");
    }
    return text[0] != '\0' ? shim_error(GGML_STATUS_FAILED, "%s", text) : GGML_STATUS_SUCCESS;
}

void mpi_remote_sync(struct mpi_remote *r) {
    const uint64_t n_sent = atomic_load(&r->n_sent);
    uint64_t n_done = atomic_load(&r->n_done);
    if (n_done >= n_sent && !mpi_queue_is_lost(r->queue, r->rank)) {
        return;
    }
    const uint32_t ticket = mpi_remote_ticket(r);
    struct mpi_queue_item *item = mpi_remote_ask(r, ticket, &(struct mpi_head){.kind = MPI_SYNC, .id = ticket}, NULL, 0);
    if (item == NULL) {
        char why[192];
        mpi_queue_why(r->queue, r->rank, why, sizeof why);
        mpi_remote_defer_error(r, "it is lost: %s", why);
    } else if (mpi_head_of(item)->a != 0) {
        size_t size;
        const char *text = mpi_body_of(item, &size);
        mpi_remote_defer_error(r, "%.*s", (int) min_size(size, 200), text);
    }
    // Another thread may have stored a larger value.
    while (n_done < n_sent && !atomic_compare_exchange_weak(&r->n_done, &n_done, n_sent)) {
    }
    mpi_item_free(item);
}

// ---- cache of the graphs that the rank has, by number ----

// If the cache is full, the least recently run graph is dropped. Programs repeat their graphs in the same order, so a search
// starts after the graph that ran last.

#define CACHED_SIZE ((size_t) 64 << 20) // bytes of all graphs; a single larger graph is allowed

static size_t size_of(size_t n) {
    return n * sizeof(struct mpi_wire_tensor);
}

static bool graph_matches(const struct mpi_cached_graph *k, const struct mpi_wire_graph *g, uint32_t device, uint64_t hash) {
    return k->tensors != NULL && k->hash == hash && k->device == device && k->n == g->n &&
           memcmp(k->tensors, g->tensors, size_of(g->n)) == 0;
}

static void graph_drop(struct mpi_graph_cache *graph_cache, struct mpi_cached_graph *k) {
    graph_cache->size -= size_of(k->n);
    shim_free(k->tensors);
    *k = (struct mpi_cached_graph){0};
}

void mpi_graph_cache_forget(struct mpi_graph_cache *graph_cache) {
    for (size_t i = 0; i < graph_cache->n; i++) {
        graph_drop(graph_cache, &graph_cache->graphs[i]);
    }
}

void mpi_graph_cache_fini(struct mpi_graph_cache *graph_cache) {
    mpi_graph_cache_forget(graph_cache);
    shim_free(graph_cache->graphs);
    *graph_cache = (struct mpi_graph_cache){0};
}

// Returns graph_cache->n if the graph is not cached.
static size_t graph_find(
    const struct mpi_graph_cache *graph_cache, const struct mpi_wire_graph *g, uint32_t device, uint64_t hash) {
    for (size_t i = 0; i < graph_cache->n; i++) {
        const size_t at = (graph_cache->next + i) % graph_cache->n;
        if (graph_matches(&graph_cache->graphs[at], g, device, hash)) {
            return at;
        }
    }
    return graph_cache->n;
}

// Drops graphs until `size` bytes fit. Also tells the rank to drop them.
static void cache_make_room(struct mpi_remote *r, size_t size) {
    struct mpi_graph_cache *graph_cache = &r->graph_cache;
    while (graph_cache->size > 0 && graph_cache->size + size > CACHED_SIZE) {
        size_t oldest = graph_cache->n;
        for (size_t i = 0; i < graph_cache->n; i++) {
            const struct mpi_cached_graph *k = &graph_cache->graphs[i];
            if (k->tensors != NULL && (oldest == graph_cache->n || k->last_run < graph_cache->graphs[oldest].last_run)) {
                oldest = i;
            }
        }
        graph_drop(graph_cache, &graph_cache->graphs[oldest]);
        (void) !mpi_remote_send(
            r, &(struct mpi_head){.kind = MPI_GRAPH_FREE, .id = (uint32_t) oldest}, NULL, 0); // the next call reports a lost rank
    }
}

// Returns a free number. Returns graph_cache->n if out of memory.
static size_t number_new(struct mpi_graph_cache *graph_cache) {
    size_t i = 0;
    while (i < graph_cache->n && graph_cache->graphs[i].tensors != NULL) {
        i++;
    }
    if (i < graph_cache->n) {
        return i;
    }
    const size_t n = 2 * graph_cache->n + 16;
    struct mpi_cached_graph *grown = shim_calloc(n, sizeof *grown);
    if (grown == NULL) {
        return graph_cache->n;
    }
    if (graph_cache->n > 0) {
        memcpy(grown, graph_cache->graphs, graph_cache->n * sizeof *grown);
    }
    shim_free(graph_cache->graphs);
    graph_cache->graphs = grown;
    graph_cache->n = n;
    return i;
}

static enum ggml_status graph_add(struct mpi_remote *r, uint32_t device, uint64_t hash, size_t *number) {
    const struct mpi_wire_graph *g = &r->writing;
    const size_t size = size_of(g->n);
    cache_make_room(r, size);
    *number = number_new(&r->graph_cache);
    struct mpi_wire_tensor *tensors = *number < r->graph_cache.n ? shim_malloc(size) : NULL;
    if (tensors == NULL) {
        return shim_error(GGML_STATUS_ALLOC_FAILED, "MPI: out of memory for a graph of %zu tensors", g->n);
    }
    memcpy(tensors, g->tensors, size);
    const enum ggml_status status =
        mpi_remote_send(r, &(struct mpi_head){MPI_GRAPH, (uint32_t) *number, device, 0, 0}, tensors, size);
    if (status != GGML_STATUS_SUCCESS) {
        shim_free(tensors);
        return status;
    }
    r->graph_cache.graphs[*number] = (struct mpi_cached_graph){.hash = hash, .tensors = tensors, .n = g->n, .device = device};
    r->graph_cache.size += size;
    return status;
}

enum ggml_status mpi_graph_cache_number(struct mpi_remote *r, uint32_t device, uint32_t *number) {
    static const struct berth_siphash_key key = {{1, 2}};
    struct mpi_graph_cache *graph_cache = &r->graph_cache;
    const uint64_t hash = berth_siphash_of(&key, r->writing.tensors, size_of(r->writing.n));
    size_t i = graph_find(graph_cache, &r->writing, device, hash);
    if (i == graph_cache->n) {
        const enum ggml_status status = graph_add(r, device, hash, &i);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    graph_cache->graphs[i].last_run = ++graph_cache->n_runs;
    graph_cache->next = i + 1;
    *number = (uint32_t) i;
    return GGML_STATUS_SUCCESS;
}
