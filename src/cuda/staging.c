// SPDX-License-Identifier: MIT
// staging.c: copies from pageable host memory to the device through a ring of pinned slots. The driver copies pageable memory with
// one thread, which is slower than the link to the device. Here several threads fill slots while the device reads earlier ones:
//
//     host memory --threads--> | filling: at most N_FILLING pieces | in flight: the other slots | --stream--> device memory
//
// A copy consists of pieces of PIECE_SIZE bytes. Pieces of all copies of a ring are numbered, and piece i is in slot i % N_SLOTS.
// A piece consists of chunks. The caller opens pieces in order, which allows the threads to fill their chunks. Then it queues the
// filled pieces in order. While it waits for a piece, it fills chunks too, so that a ring without threads also works.
//
// Invariants:
//   1. A piece is opened only after the event of its slot, so the device has read the previous piece in the slot. If recording the
//      event failed, the copy with that piece has reported a failure, and its bytes may be wrong.
//   2. n_taken <= n_open. Threads read `from` and write slots only for chunks below n_open.
//   3. When cuda_staging_copy returns, all chunks that were opened are filled.

#include "cuda/staging.h"

#include "base/min.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_SLOTS 8
#define N_FILLING 4
#define PIECE_SIZE ((size_t) 4 << 20)
#define CHUNK_SIZE ((size_t) 512 << 10)
#define RING_SIZE (N_SLOTS * PIECE_SIZE)
#define DEFAULT_THREADS 8

struct cuda_staging {
    struct cuda_device *dev;
    char *ring;              // RING_SIZE bytes of pinned memory
    CUevent events[N_SLOTS]; // recorded after the copy from the slot
    size_t n_pieces;         // pieces of all earlier copies
    pthread_t threads[CUDA_STAGING_MAX_THREADS];
    int n_threads; // without the caller
    pid_t pid;     // the process that started the threads

    pthread_mutex_t lock; // protects all fields below
    pthread_cond_t is_open;
    pthread_cond_t is_filled;
    const char *from; // source of the current copy
    size_t size;
    size_t n_open;          // chunks of the current copy that may be filled
    size_t n_taken;         // chunks of the current copy that a thread fills or has filled
    int n_missing[N_SLOTS]; // chunks of the slot's piece that are not filled yet
    bool is_ending;
};

// ---- chunks ----

// Fills one chunk, without the lock, which the caller holds. Returns false if no chunk is open.
static bool chunk_fill_locked(struct cuda_staging *s) {
    if (s->n_taken == s->n_open) {
        return false;
    }
    const size_t off = s->n_taken * CHUNK_SIZE, slot = (s->n_pieces + off / PIECE_SIZE) % N_SLOTS;
    const char *from = s->from + off;
    const size_t size = min_size(CHUNK_SIZE, s->size - off);
    s->n_taken++;
    pthread_mutex_unlock(&s->lock);
    memcpy(s->ring + slot * PIECE_SIZE + off % PIECE_SIZE, from, size);
    pthread_mutex_lock(&s->lock);
    s->n_missing[slot]--;
    if (s->n_missing[slot] == 0) {
        pthread_cond_signal(&s->is_filled);
    }
    return true;
}

static void *thread_main(void *arg) {
    struct cuda_staging *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->is_ending) {
        if (!chunk_fill_locked(s)) {
            pthread_cond_wait(&s->is_open, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

// ---- copies ----

static size_t slot_of(const struct cuda_staging *s, size_t i_piece) {
    return (s->n_pieces + i_piece) % N_SLOTS;
}

static size_t piece_size(const struct cuda_staging *s, size_t i_piece) {
    return min_size(PIECE_SIZE, s->size - i_piece * PIECE_SIZE);
}

static CUresult piece_open(struct cuda_staging *s, size_t i_piece) {
    const size_t slot = slot_of(s, i_piece), n_chunks = (piece_size(s, i_piece) + CHUNK_SIZE - 1) / CHUNK_SIZE;
    const CUresult rc = s->dev->cu->EventSynchronize(s->events[slot]); // returns at once if the event was never recorded
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    pthread_mutex_lock(&s->lock);
    s->n_missing[slot] = (int) n_chunks;
    s->n_open += n_chunks;
    pthread_cond_broadcast(&s->is_open);
    pthread_mutex_unlock(&s->lock);
    return CUDA_SUCCESS;
}

static void piece_wait(struct cuda_staging *s, size_t i_piece) {
    const size_t slot = slot_of(s, i_piece);
    pthread_mutex_lock(&s->lock);
    while (s->n_missing[slot] > 0) {
        if (!chunk_fill_locked(s)) {
            pthread_cond_wait(&s->is_filled, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
}

static CUresult piece_queue(struct cuda_staging *s, CUstream stream, CUdeviceptr to, size_t i_piece) {
    const struct cuda_driver *cu = s->dev->cu;
    const size_t slot = slot_of(s, i_piece);
    const CUresult rc =
        cu->MemcpyHtoDAsync(to + i_piece * PIECE_SIZE, s->ring + slot * PIECE_SIZE, piece_size(s, i_piece), stream);
    return rc == CUDA_SUCCESS ? cu->EventRecord(s->events[slot], stream) : rc;
}

static void copy_begin(struct cuda_staging *s, const void *from, size_t size) {
    pthread_mutex_lock(&s->lock);
    s->from = from;
    s->size = size;
    s->n_open = s->n_taken = 0;
    pthread_mutex_unlock(&s->lock);
}

CUresult cuda_staging_copy(struct cuda_staging *s, CUstream stream, CUdeviceptr to, const void *from, size_t size) {
    const size_t n = size / PIECE_SIZE + (size % PIECE_SIZE > 0);
    size_t n_opened = 0, n_queued = 0;
    CUresult rc = CUDA_SUCCESS;
    copy_begin(s, from, size);
    while (n_queued < n && rc == CUDA_SUCCESS) {
        if (n_opened < min_size(n, n_queued + N_FILLING)) {
            rc = piece_open(s, n_opened);
            n_opened += rc == CUDA_SUCCESS;
        } else {
            piece_wait(s, n_queued);
            rc = piece_queue(s, stream, to, n_queued);
            n_queued++;
        }
    }
    for (; n_queued < n_opened; n_queued++) {
        piece_wait(s, n_queued);
    }
    s->n_pieces += n_opened;
    return rc;
}

bool cuda_is_pinned(const struct cuda_device *dev, const void *p, size_t size) {
    unsigned type = 0;
    const struct cuda_driver *cu = dev->cu;
    return cu->PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, cuda_ptr(p)) == CUDA_SUCCESS &&
           cu->PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, cuda_ptr(p) + size - 1) == CUDA_SUCCESS;
}

// ---- the ring ----

int cuda_staging_n_threads(const struct cuda_device *dev) {
    if (dev->traits.integrated || getenv("GGML_CUDA_NO_PINNED") != NULL) {
        return 0;
    }
    const char *value = getenv("BERTH_CUDA_STAGING_THREADS");
    if (value != NULL && value[0] != '\0') {
        return (int) clamp_i64(strtol(value, NULL, 10), 0, CUDA_STAGING_MAX_THREADS);
    }
    cpu_set_t set;
    const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int) sysconf(_SC_NPROCESSORS_ONLN);
    return (int) clamp_i64(n, 1, DEFAULT_THREADS);
}

static void threads_start(struct cuda_staging *s, int n_threads) {
    int err = 0;
    sigset_t previous, blocked;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGBUS); // raised by a thread itself, for example if a mapped file is shorter than its mapping
    sigdelset(&blocked, SIGSEGV);
    pthread_sigmask(SIG_BLOCK, &blocked, &previous); // new threads inherit the creator's signal mask
    while (s->n_threads < n_threads && err == 0) {
        err = pthread_create(&s->threads[s->n_threads], NULL, thread_main, s);
        s->n_threads += err == 0;
    }
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
    if (err != 0) {
        shim_log(GGML_LOG_LEVEL_WARN, "%s: cannot start thread %d of %d for copies from host memory: %s", s->dev->name,
            s->n_threads + 1, n_threads, strerror(err));
    }
}

// Allocates the ring and its events. After a failure, cuda_staging_free frees the part that exists.
static CUresult ring_init(struct cuda_staging *s) {
    const struct cuda_driver *cu = s->dev->cu;
    void *p = NULL;
    CUresult rc = cu->MemHostAlloc(&p, RING_SIZE, CU_MEMHOSTALLOC_PORTABLE);
    atomic_fetch_add(&s->dev->n_allocs, 1);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    s->ring = p;
    for (int i = 0; i < N_SLOTS && rc == CUDA_SUCCESS; i++) {
        rc = cu->EventCreate(&s->events[i], CU_EVENT_DISABLE_TIMING);
    }
    return rc;
}

struct cuda_staging *cuda_staging_new(struct cuda_device *dev, int n_threads) {
    struct cuda_staging *s = shim_calloc(1, sizeof *s);
    CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
    if (s != NULL) {
        s->dev = dev;
        s->pid = getpid();
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->is_open, NULL);
        pthread_cond_init(&s->is_filled, NULL);
        rc = ring_init(s);
    }
    if (rc != CUDA_SUCCESS) {
        char text[192];
        shim_log(GGML_LOG_LEVEL_WARN, "%s: cannot pin %zu bytes of host memory, copies to the device will be slower: %s",
            dev->name, RING_SIZE, cuda_error_text(dev->cu, rc, text, sizeof text));
        cuda_staging_free(s, true);
        return NULL;
    }
    threads_start(s, n_threads - 1);
    return s;
}

void cuda_staging_free(struct cuda_staging *s, bool can_free) {
    if (s == NULL) {
        return;
    }
    if (s->pid == getpid()) { // the threads do not exist after a fork
        pthread_mutex_lock(&s->lock);
        s->is_ending = true;
        pthread_cond_broadcast(&s->is_open);
        pthread_mutex_unlock(&s->lock);
        for (int i = 0; i < s->n_threads; i++) {
            pthread_join(s->threads[i], NULL);
        }
        pthread_cond_destroy(&s->is_filled);
        pthread_cond_destroy(&s->is_open);
        pthread_mutex_destroy(&s->lock);
    }
    for (int i = 0; i < N_SLOTS && can_free; i++) {
        if (s->events[i] != NULL) {
            s->dev->cu->EventDestroy(s->events[i]);
        }
    }
    if (can_free && s->ring != NULL) {
        s->dev->cu->MemFreeHost(s->ring);
    }
    shim_free(s);
}
