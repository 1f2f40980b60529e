// SPDX-License-Identifier: MIT
// copier.c: who makes the moves of a graph beside its nodes (moves.c). For a device that works by itself and has events: another
// backend of it, with a queue of its own; for two such devices of one kind, another backend of each. For the host: a thread that
// copies from memory to memory, so that pages of a mapped file are waited for there and not where it is computed. All memory is
// taken when a graph is split; giving and awaiting take none.

#include "sched/sched.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

// ---- a thread ----

struct copier_job {
    void *dst;
    const void *src;
    size_t size;
};

struct copier_thread {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct copier_job *jobs; // [jobs_cap] of the graph at hand
    size_t jobs_cap;
    int32_t n_given, n_over;
    bool ends;
    pid_t process; // a forked one does not have the thread
};

static void *copier_run(void *arg) {
    struct copier_thread *t = arg;
    pthread_mutex_lock(&t->mutex);
    for (;;) {
        while (t->n_over == t->n_given && !t->ends) {
            pthread_cond_wait(&t->changed, &t->mutex);
        }
        if (t->n_over == t->n_given) {
            break;
        }
        const struct copier_job job = t->jobs[t->n_over];
        pthread_mutex_unlock(&t->mutex);
        if (job.dst != job.src) {
            memcpy(job.dst, job.src, job.size);
        }
        pthread_mutex_lock(&t->mutex);
        t->n_over++;
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

static struct copier_thread *thread_new(void) {
    struct copier_thread *t = berth_calloc(1, sizeof *t);
    sigset_t all, before;
    if (t == NULL) {
        return NULL;
    }
    t->process = getpid();
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->changed, NULL);
    sigfillset(&all); // signals are the program's threads' to take, but for what a cut file raises in this one
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const bool ok = pthread_create(&t->thread, NULL, copier_run, t) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!ok) {
        pthread_mutex_destroy(&t->mutex);
        pthread_cond_destroy(&t->changed);
        berth_free(t);
        return NULL;
    }
    return t;
}

static void thread_free(struct copier_thread *t) {
    if (t == NULL) {
        return;
    }
    if (t->process == getpid()) { // else its mutex may be held for ever
        pthread_mutex_lock(&t->mutex);
        t->ends = true;
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->mutex);
        pthread_join(t->thread, NULL);
        pthread_mutex_destroy(&t->mutex);
        pthread_cond_destroy(&t->changed);
    }
    berth_free(t->jobs);
    berth_free(t);
}

// Job i of the graph at hand; the first one follows when all of the graph before are over.
static void thread_give(struct copier_thread *t, int32_t i, const struct copier_job *job) {
    pthread_mutex_lock(&t->mutex);
    if (i == 0) {
        t->n_given = t->n_over = 0;
    }
    t->jobs[i] = *job;
    t->n_given = i + 1;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
}

static void thread_await(struct copier_thread *t, int32_t n) {
    pthread_mutex_lock(&t->mutex);
    while (t->n_over < n) {
        pthread_cond_wait(&t->changed, &t->mutex);
    }
    pthread_mutex_unlock(&t->mutex);
}

// ---- a queue ----

static bool is_host(ggml_backend_buffer_type_t buft) {
    return ggml_backend_buft_is_host(buft);
}

// A device without memory of the host's own reads and writes it when it is asked to, not when the queue comes there.
static bool has_queue(ggml_backend_t backend, ggml_backend_buffer_type_t other) {
    const struct ggml_backend_i *iface = &backend->iface;
    return backend->device != NULL && backend->device->iface.init_backend != NULL &&
           backend->device->iface.get_host_buffer_type != NULL && iface->synchronize != NULL && iface->event_record != NULL &&
           iface->event_wait != NULL && iface->set_tensor_async != NULL && iface->get_tensor_async != NULL && is_host(other);
}

static bool queue_open(struct sched_copier *copier, ggml_backend_t own) {
    copier->ready = ggml_backend_event_new(own->device);
    copier->queues[0] = copier->ready != NULL ? ggml_backend_dev_init(own->device, NULL) : NULL;
    return copier->queues[0] != NULL && has_queue(copier->queues[0], ggml_backend_cpu_buffer_type());
}

// Copies to other devices of its kind by itself, and waits for events of theirs? Memory of the host's own tells of queues, too: a
// rank of MPI does all in one.
static bool may_pair(ggml_backend_t backend, ggml_backend_buffer_type_t buft) {
    const struct ggml_backend_i *iface = &backend->iface;
    return backend->device != NULL && backend->device->iface.init_backend != NULL && backend->device->iface.event_new != NULL &&
           backend->device->iface.get_host_buffer_type != NULL && iface->synchronize != NULL && iface->event_record != NULL &&
           iface->event_wait != NULL && iface->cpy_tensor_async != NULL && buft->device == backend->device && !is_host(buft);
}

static bool is_pair(const struct ggml_backend_sched *sched, int own, int other) {
    ggml_backend_t a = sched->backends[own], b = sched->backends[other];
    return may_pair(a, sched->bufts[own]) && may_pair(b, sched->bufts[other]) && a->device != b->device &&
           a->device->iface.event_new == b->device->iface.event_new && a->iface.cpy_tensor_async == b->iface.cpy_tensor_async;
}

static bool pair_open(struct sched_copier *copier, ggml_backend_t own, ggml_backend_t other) {
    copier->ready = ggml_backend_event_new(own->device);
    copier->sent = copier->ready != NULL ? ggml_backend_event_new(other->device) : NULL;
    copier->queues[0] = copier->sent != NULL ? ggml_backend_dev_init(own->device, NULL) : NULL;
    copier->queues[1] = copier->queues[0] != NULL ? ggml_backend_dev_init(other->device, NULL) : NULL;
    return copier->queues[1] != NULL;
}

// Where the one that receives does not take it so, through the memory that was reserved for that, after all that comes before.
static void pair_send(struct ggml_backend_sched *sched, ggml_backend_t from, ggml_backend_t to, const struct ggml_tensor *src,
    struct ggml_tensor *dst) {
    if (!to->iface.cpy_tensor_async(from, to, src, dst)) {
        berth_backend_wait(from);
        berth_backend_wait(to);
        (void) berth_tensor_copy(
            "scheduler", to, src, dst, &sched->staging); // a failure is the backend's, told by its next compute
    }
}

// Each queue copies what lies on its own device, and the one that receives waits. Both wait for the own backend, and the own
// queue for what it sent, so that copies keep their order and the end of each can be seen on the own device.
static void pair_copy(
    struct ggml_backend_sched *sched, enum berth_move kind, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    struct sched_copier *copier = &sched->copier;
    ggml_backend_t near = copier->queues[0], far = copier->queues[1];
    if (kind == BERTH_MOVE_OUT) {
        pair_send(sched, near, far, src, dst);
        ggml_backend_event_record(copier->sent, far);
        ggml_backend_event_wait(near, copier->sent);
    } else {
        ggml_backend_event_wait(far, copier->ready);
        pair_send(sched, far, near, src, dst);
    }
}

// ---- both ----

bool sched_copier_is_here(const struct sched_copier *copier) {
    return copier->thread == NULL || copier->thread->process == getpid();
}

void sched_copier_close(struct ggml_backend_sched *sched) {
    struct sched_copier *copier = &sched->copier;
    sched_copier_drain(sched);
    for (size_t i = 0; i < copier->n_events; i++) {
        ggml_backend_event_free(copier->events[i]);
    }
    ggml_backend_event_free(copier->ready);
    ggml_backend_event_free(copier->sent);
    ggml_backend_free(copier->queues[0]);
    ggml_backend_free(copier->queues[1]);
    thread_free(copier->thread);
    berth_free(copier->events);
    *copier = (struct sched_copier){0};
}

bool sched_copier_open(struct ggml_backend_sched *sched, int own, int other) {
    struct sched_copier *copier = &sched->copier;
    ggml_backend_t backend = sched->backends[own];
    if (copier->kind != SCHED_COPIER_NONE && copier->own == own && copier->other == other && sched_copier_is_here(copier)) {
        return true;
    }
    sched_copier_close(sched);
    copier->own = own;
    copier->other = other;
    if (has_queue(backend, sched->bufts[other])) {
        copier->kind = SCHED_COPIER_QUEUE;
        if (!queue_open(copier, backend)) {
            sched_copier_close(sched);
        }
    } else if (is_pair(sched, own, other)) {
        copier->kind = SCHED_COPIER_PAIR;
        if (!pair_open(copier, backend, sched->backends[other])) {
            sched_copier_close(sched);
        }
    } else if (backend->iface.synchronize == NULL && sched->backends[other]->iface.synchronize == NULL &&
               is_host(sched->bufts[own]) && is_host(sched->bufts[other])) {
        copier->thread = thread_new();
        copier->kind = copier->thread != NULL ? SCHED_COPIER_THREAD : SCHED_COPIER_NONE;
    }
    return copier->kind != SCHED_COPIER_NONE;
}

bool sched_copier_room(struct ggml_backend_sched *sched, int32_t n_moves) {
    struct sched_copier *copier = &sched->copier;
    const size_t n = (size_t) n_moves;
    if (copier->kind == SCHED_COPIER_THREAD) { // which has nothing to do while a graph is split
        sched_copier_drain(sched);
        if (!berth_grow((void **) &copier->thread->jobs, &copier->thread->jobs_cap, n, sizeof *copier->thread->jobs)) {
            return false;
        }
        copier->n_room = n_moves > copier->n_room ? n_moves : copier->n_room;
        return true;
    }
    if (!berth_grow((void **) &copier->events, &copier->events_cap, n, sizeof *copier->events)) {
        return false;
    }
    while (copier->n_events < n) {
        ggml_backend_event_t event = ggml_backend_event_new(sched->backends[copier->own]->device);
        if (event == NULL) {
            return false;
        }
        copier->events[copier->n_events++] = event;
    }
    copier->n_room = n_moves > copier->n_room ? n_moves : copier->n_room;
    return true;
}

void sched_copier_give(
    struct ggml_backend_sched *sched, enum berth_move kind, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    struct sched_copier *copier = &sched->copier;
    const size_t size = ggml_nbytes(dst);
    const int32_t i = copier->n_given++;
    if (copier->kind == SCHED_COPIER_THREAD) {
        thread_give(copier->thread, i, &(struct copier_job){dst->data, src->data, size});
        return;
    }
    ggml_backend_event_record(copier->ready, sched->backends[copier->own]);
    ggml_backend_event_wait(copier->queues[0], copier->ready);
    if (copier->kind == SCHED_COPIER_PAIR) {
        pair_copy(sched, kind, src, dst);
    } else if (kind == BERTH_MOVE_OUT) {
        ggml_backend_tensor_get_async(copier->queues[0], src, dst->data, 0, size);
    } else {
        ggml_backend_tensor_set_async(copier->queues[0], dst, src->data, 0, size);
    }
    ggml_backend_event_record(copier->events[i], copier->queues[0]);
}

void sched_copier_await(struct ggml_backend_sched *sched, int32_t n) {
    struct sched_copier *copier = &sched->copier;
    if (n > copier->n_over && copier->kind == SCHED_COPIER_THREAD) {
        thread_await(copier->thread, n);
    } else if (n > copier->n_over) {
        ggml_backend_event_wait(sched->backends[copier->own], copier->events[n - 1]);
        sched->in_flight[copier->own] = true;
    }
    copier->n_over = n > copier->n_over ? n : copier->n_over;
}

void sched_copier_drain(struct ggml_backend_sched *sched) {
    struct sched_copier *copier = &sched->copier;
    if (copier->thread != NULL && sched_copier_is_here(copier)) {
        thread_await(copier->thread, copier->n_given);
    }
    berth_backend_wait(copier->queues[0]);
    berth_backend_wait(copier->queues[1]);
    copier->n_over = copier->n_given;
}
