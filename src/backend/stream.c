// SPDX-License-Identifier: MIT
// stream.c: one thread, the reader, reads the uses of a graph's weights in their order and drops them after use. It requests as many
// uses as fit the window, so that the disk is always busy, and then waits for the first of them. The graph waits until the weights
// of a node are loaded. Neither a tensor nor a file is used here; struct stream_io loads and drops.
//
//     uses       0    1    2    3    4    5    6    7    8    9   | 0    1   ...  (the next pass)
//                     ^dropped  ^done     ^loaded        ^requested
//                     |------ window_used, at most window ------|
//
// The reader loads resident weights too, in their turn. This takes little time if they are in memory, and reads them again if the
// system has dropped them.
//
// Every wait ends: the reader reads what the graph waits for, even if the uses of one node exceed the window.

#include "backend/stream.h"

#include "base/min.h"

#include <signal.h>

// ---- the reader; the functions are called with the lock held ----

static uint64_t position_loaded(const struct stream *s) {
    return atomic_load_explicit(&s->loaded, memory_order_relaxed);
}

static const struct stream_use *use_at(const struct stream *s, uint64_t position) {
    return &s->uses[position % s->n];
}

static bool can_read(const struct stream *s) {
    return s->n > 0 && s->error == 0 && (s->is_running || s->is_repeated);
}

static bool can_request(const struct stream *s) {
    // A use of the next pass is read only after the same use of this pass has been dropped.
    const uint64_t end = s->is_repeated ? s->dropped + s->n : s->begin + s->n;
    if (!can_read(s) || s->requested >= end) {
        return false;
    }
    const struct stream_use *use = use_at(s, s->requested);
    const bool fits = s->window_used <= s->window && use->size <= s->window - s->window_used;
    return !use->is_streamed || fits || s->requested < s->wanted;
}

static bool can_load(const struct stream *s) {
    return can_read(s) && position_loaded(s) < s->requested;
}

static void use_request(struct stream *s) {
    const struct stream_use use = *use_at(s, s->requested++);
    if (use.is_streamed) {
        s->window_used += use.size;
    }
    s->is_busy = true;
    pthread_mutex_unlock(&s->lock);
    s->io.request(&use);
    pthread_mutex_lock(&s->lock);
    s->is_busy = false;
}

static void use_load(struct stream *s) {
    const struct stream_use use = *use_at(s, position_loaded(s));
    s->is_busy = true;
    pthread_mutex_unlock(&s->lock);
    const int error = s->io.load(&use);
    pthread_mutex_lock(&s->lock);
    s->is_busy = false;
    if (error == 0) {
        atomic_fetch_add_explicit(&s->loaded, 1, memory_order_release);
    } else {
        s->error = error;
    }
}

static void use_drop(struct stream *s) {
    const struct stream_use use = *use_at(s, s->dropped);
    if (use.is_streamed) {
        s->is_busy = true;
        pthread_mutex_unlock(&s->lock);
        s->io.drop(&use);
        pthread_mutex_lock(&s->lock);
        s->is_busy = false;
        s->window_used -= use.size;
    }
    s->dropped++;
}

static void *reader_main(void *arg) {
    struct stream *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->must_stop) {
        if (s->dropped < s->done) {
            use_drop(s);
        } else if (can_request(s)) {
            use_request(s);
        } else if (can_load(s)) {
            use_load(s);
        } else {
            pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        // stream_wait waits until all uses before `wanted` are loaded. reader_wait and stream_end are called only after that.
        if (position_loaded(s) >= s->wanted || s->error != 0) {
            pthread_cond_broadcast(&s->ready);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static bool reader_start(struct stream *s) {
    if (s->has_reader) {
        return true;
    }
    sigset_t previous, blocked;
    sigfillset(&blocked);
    pthread_sigmask(SIG_BLOCK, &blocked, &previous); // the program's signals are for its own threads
    const int error = pthread_create(&s->reader, NULL, reader_main, s);
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
    s->has_reader = error == 0;
    return s->has_reader;
}

// ---- passes ----

// Waits until the reader holds no use. The reader then starts no load, unless the state allows one.
static void reader_wait(struct stream *s) {
    while (s->has_reader && (s->is_busy || s->dropped < s->done)) {
        pthread_cond_wait(&s->ready, &s->lock);
    }
}

static void list_forget(struct stream *s) {
    s->is_repeated = false;
    reader_wait(s);
    s->n = 0;
    s->begin = s->done = s->dropped = s->requested = s->wanted = s->window_used = 0;
    s->error = 0;
    atomic_store_explicit(&s->loaded, 0, memory_order_relaxed);
}

static bool is_same_list(const struct stream *s, const struct stream_use *uses, size_t n) {
    for (size_t i = 0; i < n && n == s->n; i++) {
        if (uses[i].at != s->uses[i].at || uses[i].size != s->uses[i].size || uses[i].is_streamed != s->uses[i].is_streamed) {
            return false;
        }
    }
    return n == s->n;
}

bool stream_init(struct stream *s, const struct stream_io *io) {
    *s = (struct stream){.io = *io};
    return pthread_mutex_init(&s->lock, NULL) == 0 && pthread_cond_init(&s->work, NULL) == 0 &&
           pthread_cond_init(&s->ready, NULL) == 0;
}

void stream_fini(struct stream *s) {
    if (s->has_reader) {
        pthread_mutex_lock(&s->lock);
        s->must_stop = true;
        pthread_cond_signal(&s->work);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->reader, NULL);
    }
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->ready);
    pthread_mutex_destroy(&s->lock);
    berth_free(s->uses);
    *s = (struct stream){0};
}

bool stream_begin(struct stream *s, const struct stream_use *uses, size_t n, uint64_t window) {
    pthread_mutex_lock(&s->lock);
    const bool is_same = s->error == 0 && is_same_list(s, uses, n);
    s->window = window;
    if (!is_same) {
        list_forget(s);
    }
    const bool is_ready = reader_start(s) && (is_same || BERTH_GROW(&s->uses, &s->n_cap, n));
    if (is_ready) {
        if (!is_same && n > 0) {
            memcpy(s->uses, uses, n * sizeof *uses);
        }
        s->n = n;
        s->is_repeated = is_same;
        s->is_running = true;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    return is_ready;
}

int stream_wait(struct stream *s, size_t n) {
    // `begin` and `n` change only between passes.
    const uint64_t position = s->begin + n;
    if (atomic_load_explicit(&s->loaded, memory_order_acquire) >= position) {
        return 0;
    }
    pthread_mutex_lock(&s->lock);
    if (position > s->wanted) {
        s->wanted = position;
        pthread_cond_signal(&s->work);
    }
    while (position_loaded(s) < position && s->error == 0) {
        pthread_cond_wait(&s->ready, &s->lock);
    }
    const int error = position_loaded(s) >= position ? 0 : s->error;
    pthread_mutex_unlock(&s->lock);
    return error;
}

void stream_done(struct stream *s, size_t n) {
    pthread_mutex_lock(&s->lock);
    const uint64_t position = min_u64(s->begin + n, position_loaded(s)); // after a failed load, the graph ends early
    if (position > s->done) {
        s->done = position;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
}

void stream_end(struct stream *s) {
    pthread_mutex_lock(&s->lock);
    s->is_running = false;
    if (s->done == s->begin + s->n) {
        while (s->has_reader && s->dropped < s->done) {
            pthread_cond_wait(&s->ready, &s->lock);
        }
        s->begin = s->done;
    } else { // the graph has ended early
        list_forget(s);
    }
    pthread_mutex_unlock(&s->lock);
}

void stream_forget(struct stream *s) {
    pthread_mutex_lock(&s->lock);
    if (!s->is_running) {
        list_forget(s);
    }
    pthread_mutex_unlock(&s->lock);
}

void stream_restart_after_fork(struct stream *s) {
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->ready, NULL);
    s->has_reader = s->is_busy = s->is_running = false;
    s->done = s->dropped;
    list_forget(s);
}
