// SPDX-License-Identifier: MIT
// test_mpi.c: ranks as threads of this process: messages, sums, a program with two workers, commands that workers reject, and each
// allocation failing. tests/mpi tests MPI itself.

#include "mpi/remote.h"
#include "mpi/worker.h"
#include "support/check.h"
#include "support/mpi_loop.h"

#include "ggml-alloc.h"
#include "ggml-cpu.h"

#include <unistd.h>

#define MAX_RANKS 4

// One rank, which is a thread of this process.
struct rank {
    struct mpi_loop *loop;
    int rank;
    void (*run)(struct mpi_world *w); // what the rank runs, unless it is a worker
    bool is_worker, joined;
    size_t limit; // bytes of memory that a worker may use
};

// ---- a device that hangs ----

static atomic_bool hangs;
static bool with_hanging; // the workers use the device that hangs
static struct ggml_backend_device hanging;

static enum ggml_status hanging_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    (void) backend;
    (void) graph;
    while (atomic_load(&hangs)) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return GGML_STATUS_SUCCESS;
}

static ggml_backend_t hanging_init(ggml_backend_dev_t dev, const char *params) {
    ggml_backend_t backend = ggml_backend_cpu_init();
    (void) dev;
    (void) params;
    backend->iface.graph_compute = hanging_compute;
    return backend;
}

static ggml_backend_dev_t worker_device(void) {
    return with_hanging ? &hanging : ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
}

static void transport_open(struct mpi_loop *loop, int rank, struct mpi_transport *t) {
    *t = (struct mpi_transport){.alloc = shim_malloc, .release = shim_free};
    assert_true(mpi_loop_open(loop, rank, t));
}

static void *rank_thread(void *arg) {
    struct rank *r = arg;
    struct mpi_transport t;
    static _Thread_local struct mpi_world w;
    transport_open(r->loop, r->rank, &t);
    ggml_backend_dev_t cpu = worker_device();
    const struct berth_mpi_serve_params params = {.devices = &cpu, .n_devices = 1, .n_threads = 1, .memory_limit = r->limit};
    struct mpi_device_info *infos = r->is_worker ? mpi_serve_infos(&params) : NULL;
    r->joined = mpi_world_init(&w, &t, r->is_worker, infos, r->is_worker ? 1 : 0);
    shim_free(infos);
    if (r->joined) {
        if (r->is_worker) {
            mpi_serve_world(&w, &params);
        } else {
            r->run(&w);
        }
        mpi_world_leave(&w);
        mpi_world_fini(&w);
    }
    return NULL;
}

// Runs n ranks until all have ended. The first n_programs ranks run `run`, the other ranks are workers. limit: bytes of memory
// that a worker may use.
static void ranks_run(int n, int n_programs, size_t limit, void (*run)(struct mpi_world *w)) {
    struct mpi_loop *loop = mpi_loop_new(n);
    struct rank ranks[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    assert_non_null(loop);
    check_quiet();
    setenv("BERTH_MPI_TIMEOUT", "20", 1);
    for (int i = 0; i < n; i++) {
        ranks[i] = (struct rank){.loop = loop, .rank = i, .run = run, .is_worker = i >= n_programs, .limit = limit};
        if (i > 0) {
            assert_int_equal(pthread_create(&threads[i], NULL, rank_thread, &ranks[i]), 0);
        }
    }
    rank_thread(&ranks[0]); // in this thread, because asserts work only here
    for (int i = 0; i < n; i++) {
        if (i > 0) {
            pthread_join(threads[i], NULL);
        }
        assert_true(ranks[i].joined);
    }
    mpi_loop_free(loop);
}

// ---- MPI_BYE ----

// A rank sends nothing after MPI_BYE, not even MPI_ALIVE. MPI cannot end properly while a message is not delivered.
static void test_nothing_follows_a_bye(void **state) {
    (void) state;
    static const uint32_t kinds[] = {MPI_ALIVE, MPI_BYE};
    struct mpi_loop *loop = mpi_loop_new(2);
    struct mpi_transport mine, other;
    struct mpi_queue queue;
    struct mpi_message message;
    transport_open(loop, 0, &mine);
    transport_open(loop, 1, &other);
    assert_true(mpi_queue_init(&queue, &mine));
    queue.peers[1].has_hello = true;
    queue.peers[1].alive_sent = 0;
    mpi_queue_progress(&queue);
    mpi_queue_bye(&queue);
    queue.peers[1].alive_sent = 0;
    mpi_queue_progress(&queue);
    for (int i = 0; i < 2; i++) {
        assert_true(other.receive(&other, &message));
        assert_int_equal(((const struct mpi_head *) message.bytes)->kind, kinds[i]);
        shim_free(message.bytes);
    }
    assert_false(other.receive(&other, &message));
    mpi_queue_fini(&queue, true);
    other.close(&other, true);
    mpi_loop_free(loop);
}

// ---- messages that no thread requests ----

static const struct mpi_head part = {.kind = MPI_PART}, answer = {.kind = MPI_ANSWER, .id = 1};

// Sends a message of `size` bytes with undefined content.
static void message_send(struct mpi_transport *from, const struct mpi_head *head, size_t size) {
    char *bytes = shim_malloc(size);
    assert_non_null(bytes);
    memcpy(bytes, head, sizeof *head);
    assert_true(from->send(from, 0, bytes, size));
}

// Sends rank 0 one message more than its queue keeps while no thread waits. The last message stays in the transport. Both ranks are
// in this process.
static void queue_fill(struct mpi_loop *loop, struct mpi_transport *other, struct mpi_queue *queue) {
    struct mpi_transport mine;
    check_quiet();
    setenv("BERTH_MPI_TIMEOUT", "0.5", 1);
    setenv("BERTH_MPI_STALL", "0.5", 1);
    transport_open(loop, 0, &mine);
    transport_open(loop, 1, other);
    assert_true(mpi_queue_init(queue, &mine));
    for (int i = 0; i < 9; i++) {
        message_send(other, &part, MPI_PIECE);
    }
    mpi_queue_progress(queue);
    alarm(60); // ends a wait that would not end
}

static void queue_end(struct mpi_loop *loop, struct mpi_queue *queue) {
    alarm(0);
    mpi_queue_fini(queue, false);
    mpi_loop_free(loop);
    unsetenv("BERTH_MPI_STALL");
}

static void progress_for(struct mpi_queue *queue, int64_t time) {
    for (const int64_t end = mpi_now() + time; mpi_now() < end;) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        mpi_queue_progress(queue);
    }
}

// Messages for which no thread waits stay in the transport. A rank with messages there does not count as silent. A thread that
// waits for a later message gets it after them.
static void test_silence_before_messages_is_excused(void **state) {
    (void) state;
    struct mpi_loop *loop = mpi_loop_new(2);
    struct mpi_transport other;
    struct mpi_queue queue;
    queue_fill(loop, &other, &queue);
    message_send(&other, &answer, sizeof answer);
    progress_for(&queue, 5 * MPI_SECOND / 2);
    assert_true(queue.kept_size < 9 * MPI_PIECE);
    assert_false(mpi_queue_is_lost(&queue, 1));
    struct mpi_queue_item *item = mpi_queue_take(&queue, 1, MPI_ANSWER, 1);
    assert_non_null(item);
    mpi_item_free(item);
    queue_end(loop, &queue);
}

struct tending {
    struct mpi_queue *queue;
    atomic_bool stop;
};

static void *progress_thread(void *arg) {
    struct tending *t = arg;
    while (!atomic_load(&t->stop)) {
        progress_for(t->queue, MPI_SECOND / 100);
    }
    return NULL;
}

// Waits for an answer of rank 1, which sends none, while another thread progresses the queue. Asserts that the wait fails before
// `time` has passed, with an error that contains `text`.
static void lost_within(struct mpi_queue *queue, int64_t time, const char *text) {
    struct tending tending = {.queue = queue};
    pthread_t thread;
    const int64_t start = mpi_now();
    assert_int_equal(pthread_create(&thread, NULL, progress_thread, &tending), 0);
    assert_null(mpi_queue_take(queue, 1, MPI_ANSWER, 1));
    assert_true(mpi_now() - start < time);
    atomic_store(&tending.stop, true);
    pthread_join(thread, NULL);
    if (strstr(berth_last_error(), text) == NULL) {
        fail_msg("not '%s': %s", text, berth_last_error());
    }
}

// A rank that freezes after it has sent much is detected by a thread that waits for it.
static void test_silence_after_messages_is_found(void **state) {
    (void) state;
    struct mpi_loop *loop = mpi_loop_new(2);
    struct mpi_transport other;
    struct mpi_queue queue;
    queue_fill(loop, &other, &queue);
    progress_for(&queue, 3 * MPI_SECOND / 2);
    lost_within(&queue, 5 * MPI_SECOND, "it has sent nothing for");
    queue_end(loop, &queue);
}

// More messages arrive than the queue keeps, even for a waiting thread. The wait ends, and the error names the cause.
static void test_full_queue_ends(void **state) {
    (void) state;
    struct mpi_loop *loop = mpi_loop_new(2);
    struct mpi_transport other;
    struct mpi_queue queue;
    queue_fill(loop, &other, &queue);
    message_send(&other, &part, MPI_MESSAGE_MAX);
    message_send(&other, &answer, sizeof answer);
    lost_within(&queue, 5 * MPI_SECOND, "bytes of messages are not requested");
    queue_end(loop, &queue);
}

// If the queue is full, only the rank for which a thread waited is lost. Messages to other ranks can be sent immediately.
static void test_full_queue_spares_others(void **state) {
    (void) state;
    struct mpi_loop *loop = mpi_loop_new(3);
    struct mpi_transport other;
    struct mpi_queue queue;
    queue_fill(loop, &other, &queue);
    message_send(&other, &part, MPI_MESSAGE_MAX);
    lost_within(&queue, 5 * MPI_SECOND, "bytes of messages are not requested");
    assert_int_equal(mpi_queue_send(&queue, 2, &answer, NULL, 0), GGML_STATUS_SUCCESS);
    queue_end(loop, &queue);
}

// If the transport or the queue has no memory for a message, the sender is lost immediately. Otherwise a later message would be
// taken for the missing one.
static void gap_found(bool is_transport, const char *why, const char *text) {
    struct mpi_loop *loop = mpi_loop_new(2);
    struct mpi_transport mine, other;
    struct mpi_queue queue;
    check_quiet();
    setenv("BERTH_MPI_TIMEOUT", "20", 1);
    transport_open(loop, 0, &mine);
    transport_open(loop, 1, &other);
    assert_true(mpi_queue_init(&queue, &mine));
    if (is_transport) {
        queue.transport.why = why;
        assert_true(other.send(&other, 0, NULL, 1000));
    } else {
        message_send(&other, &answer, 1000);
        berth_alloc_fail_at(1);
    }
    mpi_queue_progress(&queue);
    berth_alloc_fail_at(0);
    message_send(&other, &answer, sizeof answer);
    alarm(60);
    lost_within(&queue, 5 * MPI_SECOND, text);
    assert_int_equal(queue.kept_size, 0);
    queue_end(loop, &queue);
}

static void test_gap_is_found(void **state) {
    (void) state;
    gap_found(true, NULL, "memory ran out for a message of 1000 bytes from it");
    gap_found(true, "no luck", "a message of 1000 bytes from it could not be received: no luck");
    gap_found(false, NULL, "memory ran out for a message of 1000 bytes from it");
}

static bool refuse(struct mpi_transport *t, int to, void *bytes, size_t size) {
    (void) to;
    (void) bytes;
    (void) size;
    t->why = "no luck";
    return false;
}

// A transport failure is not an out-of-memory error: the rank that cannot be reached is lost.
static void test_send_failure_is_reported(void **state) {
    (void) state;
    struct mpi_loop *loop = mpi_loop_new(2);
    struct mpi_transport mine;
    struct mpi_queue queue;
    check_quiet();
    transport_open(loop, 0, &mine);
    mine.send = refuse;
    assert_true(mpi_queue_init(&queue, &mine));
    assert_int_equal(mpi_queue_send(&queue, 1, &answer, NULL, 0), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "could not be sent to it: no luck"));
    assert_true(mpi_queue_is_lost(&queue, 1));
    queue_end(loop, &queue);
}

static atomic_bool must_block, is_receiving;

static bool receive_held(struct mpi_transport *t, struct mpi_message *out) {
    (void) t;
    (void) out;
    atomic_store(&is_receiving, true);
    while (atomic_load(&must_block)) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

static void *progress_once(void *queue) {
    mpi_queue_progress(queue);
    return NULL;
}

// A thread that the transport blocks does not block others: every call that needs another rank fails.
static void test_blocked_thread_is_detected(void **state) {
    (void) state;
    struct mpi_loop *loop = mpi_loop_new(2);
    struct mpi_transport mine;
    struct mpi_queue queue;
    pthread_t thread;
    check_quiet();
    setenv("BERTH_MPI_TIMEOUT", "0.5", 1);
    transport_open(loop, 0, &mine);
    mine.receive = receive_held;
    atomic_store(&must_block, true);
    assert_true(mpi_queue_init(&queue, &mine));
    alarm(60); // ends a wait that would not end
    assert_int_equal(pthread_create(&thread, NULL, progress_once, &queue), 0);
    while (!atomic_load(&is_receiving)) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_false(mpi_queue_is_lost(&queue, 1));
    const int64_t start = mpi_now();
    assert_null(mpi_queue_take(&queue, 1, MPI_ANSWER, 1));
    assert_non_null(strstr(berth_last_error(), "an MPI call has not returned for"));
    assert_int_equal(mpi_queue_send(&queue, 1, &answer, NULL, 0), GGML_STATUS_FAILED);
    mpi_queue_bye(&queue);
    assert_true(mpi_queue_is_lost(&queue, 1) && mpi_now() - start < 10 * MPI_SECOND);
    assert_true(mpi_queue_inside_ns(&queue) > MPI_SECOND / 2);
    atomic_store(&must_block, false);
    pthread_join(thread, NULL);
    assert_int_equal(mpi_queue_inside_ns(&queue), 0);
    queue_end(loop, &queue);
}

// Rank 1 joins, sends much, and then sends MPI_BYE or nothing.
static bool leaves_after_messages(bool has_bye) {
    static const struct mpi_head head = {.kind = MPI_HELLO}, bye = {.kind = MPI_BYE};
    const struct mpi_hello hello = {
        .magic = MPI_MAGIC, .version = MPI_WIRE_VERSION, .release = BERTH_VERSION, .host = "elsewhere"};
    struct mpi_loop *loop = mpi_loop_new(2);
    struct mpi_transport here, there;
    struct mpi_world w;
    char *bytes = shim_malloc(sizeof head + sizeof hello);
    check_quiet();
    setenv("BERTH_MPI_TIMEOUT", "0.5", 1);
    transport_open(loop, 0, &here);
    transport_open(loop, 1, &there);
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, &hello, sizeof hello);
    assert_true(there.send(&there, 0, bytes, sizeof head + sizeof hello));
    assert_true(mpi_world_init(&w, &here, false, NULL, 0));
    assert_false(mpi_queue_is_lost(&w.queue, 1));
    for (int i = 0; i < 40; i++) {
        message_send(&there, &part, MPI_PIECE);
    }
    if (has_bye) {
        message_send(&there, &bye, sizeof bye);
    }
    alarm(60);
    const int64_t start = mpi_now();
    mpi_world_leave(&w);
    alarm(0);
    assert_true(mpi_now() - start < 5 * MPI_SECOND);
    assert_int_equal(w.queue.kept_size, 0);
    const bool all_departed = w.all_departed;
    mpi_world_fini(&w);
    mpi_loop_free(loop);
    return all_departed;
}

static void test_parting_ends_after_messages(void **state) {
    (void) state;
    assert_true(leaves_after_messages(true));
    assert_false(leaves_after_messages(false));
}

// ---- sums ----

static void sums(struct mpi_world *w) {
    struct mpi_group *g = &w->programs;
    static const size_t sizes[] = {1, 7, 8192, 8193, 300001};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        float *data = malloc(sizes[k] * sizeof *data);
        for (size_t i = 0; i < sizes[k]; i++) {
            data[i] = (float) (i % 97) + (float) g->me;
        }
        assert_true(mpi_group_sum(g, data, sizes[k]));
        for (size_t i = 0; i < sizes[k]; i++) {
            assert_true(data[i] == (float) (i % 97) * (float) g->n + (float) (g->n * (g->n - 1) / 2));
        }
        assert_true(mpi_group_broadcast(g, data, sizes[k] * sizeof *data, g->n - 1));
        free(data);
    }
    assert_true(mpi_group_barrier(g));
}

static void test_sums(void **state) {
    (void) state;
    for (int n = 1; n <= MAX_RANKS; n++) {
        ranks_run(n, n, 0, sums);
    }
}

// A member that cannot take part informs the others, which do not wait for it.
static void sums_without_one(struct mpi_world *w) {
    static const size_t sizes[] = {100, 100000};
    struct mpi_group *g = &w->programs;
    for (size_t k = 0; k < 2; k++) {
        float *data = calloc(sizes[k], sizeof *data);
        if (g->me == 1) {
            mpi_group_fail(g);
        } else {
            assert_false(mpi_group_sum(g, data, sizes[k]));
        }
        free(data);
    }
}

static void test_sums_without_one(void **state) {
    (void) state;
    ranks_run(3, 3, 0, sums_without_one);
}

// ---- a program and its workers ----

struct devices {
    struct mpi_remote *remotes;
    struct mpi_device *list;
    size_t n;
    int n_ranks;
};

static struct devices devices_open(struct mpi_world *w) {
    struct devices d = {.n_ranks = w->queue.transport.size};
    assert_true(mpi_devices_list(w, &d.remotes, &d.list, &d.n));
    return d;
}

static void devices_close(struct devices *d) {
    for (size_t i = 0; i < d->n; i++) {
        mpi_device_fini(&d->list[i]);
    }
    for (int i = 0; i < d->n_ranks; i++) {
        mpi_remote_fini(&d->remotes[i]);
    }
    shim_free(d->remotes);
    shim_free(d->list);
}

static struct ggml_tensor *tensor_on(struct ggml_context *ctx, struct mpi_device *d, int64_t n, ggml_backend_buffer_t *buffer) {
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n);
    *buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, &d->buft);
    assert_non_null(*buffer);
    return t;
}

static struct ggml_context *arena(void) {
    return ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
}

// Set, get, clear, and copies on one rank and between ranks, with more bytes than one message (MPI_PIECE) has.
static void bytes(struct mpi_world *w) {
    enum { N = 700001 };
    struct devices d = devices_open(w);
    assert_int_equal(d.n, 2);
    assert_string_equal(ggml_backend_dev_name(&d.list[1].ggml), "MPI2:CPU");
    size_t n_free, n_total;
    ggml_backend_dev_memory(&d.list[0].ggml, &n_free, &n_total);
    assert_true(n_free > 0 && n_free <= n_total);
    struct ggml_context *ctx[2] = {arena(), arena()};
    ggml_backend_buffer_t buffers[2];
    struct ggml_tensor *t[2];
    float *in = malloc(N * sizeof *in), *out = malloc(N * sizeof *out);
    for (int i = 0; i < N; i++) {
        in[i] = (float) i;
    }
    for (int i = 0; i < 2; i++) {
        t[i] = tensor_on(ctx[i], &d.list[i], N, &buffers[i]);
        ggml_backend_buffer_clear(buffers[i], 0);
    }
    ggml_backend_tensor_set(t[0], in, 0, N * sizeof *in);
    ggml_backend_tensor_copy(t[0], t[1]); // between ranks
    ggml_backend_tensor_get(t[1], out, 0, N * sizeof *out);
    assert_memory_equal(in, out, N * sizeof *in);
    ggml_backend_tensor_memset(t[1], 0, 40, 8);
    ggml_backend_tensor_get(t[1], out, 0, 64);
    assert_true(out[9] == 9 && out[10] == 0 && out[11] == 0 && out[12] == 12);
    assert_null(ggml_backend_buft_alloc_buffer(&d.list[0].buft, (size_t) 64 << 20)); // more than its limit
    for (int i = 0; i < 2; i++) {
        ggml_backend_buffer_free(buffers[i]);
        ggml_free(ctx[i]);
    }
    free(in);
    free(out);
    devices_close(&d);
}

static void test_bytes(void **state) {
    (void) state;
    ranks_run(3, 1, 16 << 20, bytes);
}

// Tests asynchronous calls, a graph that is sent once, events between ranks, and sums over ranks.
static void computes(struct mpi_world *w) {
    enum { N = 64 };
    struct devices d = devices_open(w);
    struct ggml_context *ctx[2] = {arena(), arena()};
    ggml_backend_t backends[2];
    ggml_backend_buffer_t buffers[2];
    struct ggml_tensor *x[2], *y[2];
    struct ggml_cgraph *graph[2];
    float in[N], out[2][N];
    for (int i = 0; i < 2; i++) {
        backends[i] = ggml_backend_dev_init(&d.list[i].ggml, NULL);
        assert_non_null(backends[i]);
        x[i] = ggml_new_tensor_1d(ctx[i], GGML_TYPE_F32, N);
        y[i] = ggml_add(ctx[i], ggml_scale(ctx[i], x[i], (float) (i + 2)), x[i]);
        graph[i] = ggml_new_graph_custom(ctx[i], 8, false);
        ggml_build_forward_expand(graph[i], y[i]);
        assert_true(ggml_backend_dev_supports_op(&d.list[i].ggml, y[i]));
        buffers[i] = ggml_backend_alloc_ctx_tensors_from_buft(ctx[i], &d.list[i].buft);
        assert_non_null(buffers[i]);
    }
    ggml_backend_event_t event = ggml_backend_event_new(&d.list[0].ggml);
    void *comm = mpi_comm_init(backends, 2);
    assert_non_null(comm);
    struct berth_mpi_traffic before, after;
    for (int step = 0; step < 20; step++) {
        mpi_queue_traffic(&w->queue, &before);
        for (int i = 0; i < N; i++) {
            in[i] = (float) (i + step);
        }
        for (int i = 0; i < 2; i++) {
            ggml_backend_tensor_set_async(backends[i], x[i], in, 0, sizeof in);
            assert_int_equal(ggml_backend_graph_compute_async(backends[i], graph[i]), GGML_STATUS_SUCCESS);
        }
        ggml_backend_event_record(event, backends[0]);
        ggml_backend_event_wait(backends[1], event);
        assert_true(mpi_comm_allreduce(comm, y));
        for (int i = 0; i < 2; i++) {
            ggml_backend_tensor_get_async(backends[i], y[i], out[i], 0, sizeof out[i]);
        }
        for (int i = 0; i < 2; i++) {
            ggml_backend_synchronize(backends[i]);
        }
        for (int i = 0; i < N; i++) {
            assert_true(out[0][i] == 7 * in[i] && out[1][i] == out[0][i]);
        }
        mpi_queue_traffic(&w->queue, &after);
        assert_true(step == 0 || after.sent_size - before.sent_size < 2 * (sizeof in + 512));
    }
    mpi_comm_free(comm);
    ggml_backend_event_synchronize(event);
    ggml_backend_event_free(event);
    for (int i = 0; i < 2; i++) {
        ggml_backend_buffer_free(buffers[i]);
        ggml_backend_free(backends[i]);
        ggml_free(ctx[i]);
    }
    devices_close(&d);
}

static void test_computes(void **state) {
    (void) state;
    ranks_run(3, 1, 0, computes);
}

// ---- two threads of a program ----

static void *makes_and_frees(void *arg) {
    struct mpi_device *d = arg;
    for (int i = 0; i < 5000; i++) {
        ggml_backend_buffer_free(ggml_backend_buft_alloc_buffer(&d->buft, 4096));
    }
    return NULL;
}

// If a thread frees a buffer, the worker drops its cached graphs. A step that another thread computes at the same time is not
// disturbed.
static void threads_are_independent(struct mpi_world *w) {
    enum { N = 64 };
    struct devices d = devices_open(w);
    struct ggml_context *ctx = arena();
    ggml_backend_t backend = ggml_backend_dev_init(&d.list[0].ggml, NULL);
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N), *y = ggml_scale(ctx, x, 2.0f);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 8, false);
    ggml_build_forward_expand(graph, y);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, &d.list[0].buft);
    assert_true(backend != NULL && buffer != NULL);
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, makes_and_frees, &d.list[0]), 0);
    for (int step = 0; step < 5000; step++) {
        float in[N], out[N];
        for (int i = 0; i < N; i++) {
            in[i] = (float) (i + step);
        }
        ggml_backend_tensor_set_async(backend, x, in, 0, sizeof in);
        assert_int_equal(ggml_backend_graph_compute_async(backend, graph), GGML_STATUS_SUCCESS);
        ggml_backend_tensor_get_async(backend, y, out, 0, sizeof out);
        ggml_backend_synchronize(backend);
        assert_true(out[0] == 2 * in[0] && out[N - 1] == 2 * in[N - 1]);
    }
    pthread_join(other, NULL);
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_free(ctx);
    devices_close(&d);
}

static void test_threads_are_independent(void **state) {
    (void) state;
    ranks_run(2, 1, 0, threads_are_independent);
}

// ---- a part of every tensor on each rank ----

enum { WIDTH = 48, INNER = 96, N_LAYERS = 40 }; // two graphs per layer and rank: many cached graphs

static struct ggml_backend_meta_split_state share(const struct ggml_tensor *t, void *user) {
    const int n = *(int *) user, axis = t->name[0] == 'u' ? 1 : 0;
    struct ggml_backend_meta_split_state state = {.axis = GGML_BACKEND_SPLIT_AXIS_MIRRORED, .n_segments = 1, .nr = {1}};
    if (t->name[0] == 'u' || t->name[0] == 'd') {
        state.axis = (enum ggml_backend_meta_split_axis) axis;
        for (int j = 0; j < n; j++) {
            state.ne[j] = INNER / n;
        }
    }
    return state;
}

struct net {
    struct ggml_context *weights, *ctx;
    struct ggml_tensor *x, *y;
    struct ggml_cgraph *graph;
    ggml_backend_buffer_t buffer;
    ggml_gallocr_t alloc;
};

static struct ggml_tensor *weight(struct net *net, const char *name, int64_t ne0, int64_t ne1) {
    struct ggml_tensor *t = ggml_new_tensor_2d(net->weights, GGML_TYPE_F32, ne0, ne1);
    ggml_set_name(t, name);
    return t;
}

static struct net net_new(ggml_backend_dev_t dev) {
    struct net net = {.weights = ggml_init((struct ggml_init_params){.mem_size = 1 << 18, .no_alloc = true}),
        .ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 18, .no_alloc = true})};
    net.x = weight(&net, "x", WIDTH, 3);
    net.y = net.x;
    for (int i = 0; i < N_LAYERS; i++) {
        struct ggml_tensor *up = weight(&net, "up", WIDTH, INNER), *down = weight(&net, "down", INNER, WIDTH);
        struct ggml_tensor *h = ggml_relu(net.ctx, ggml_mul_mat(net.ctx, up, ggml_rms_norm(net.ctx, net.y, 1e-5f)));
        net.y = ggml_add(net.ctx, net.y, ggml_mul_mat(net.ctx, down, h));
    }
    net.graph = ggml_new_graph_custom(net.ctx, 512, false);
    ggml_build_forward_expand(net.graph, net.y);
    net.buffer = ggml_backend_alloc_ctx_tensors_from_buft(net.weights, ggml_backend_dev_buffer_type(dev));
    net.alloc = ggml_gallocr_new(ggml_backend_dev_buffer_type(dev));
    assert_true(net.buffer != NULL && ggml_gallocr_alloc_graph(net.alloc, net.graph));
    struct check_rng rng = check_rng_new(5);
    for (struct ggml_tensor *t = ggml_get_first_tensor(net.weights); t != NULL; t = ggml_get_next_tensor(net.weights, t)) {
        float *data = malloc(ggml_nbytes(t));
        for (int64_t i = 0; i < ggml_nelements(t); i++) {
            data[i] = (float) ((int) check_rng_below(&rng, 200) - 100) / 1000;
        }
        ggml_backend_tensor_set(t, data, 0, ggml_nbytes(t));
        free(data);
    }
    return net;
}

static void net_free(struct net *net) {
    ggml_gallocr_free(net->alloc);
    ggml_backend_buffer_free(net->buffer);
    ggml_free(net->ctx);
    ggml_free(net->weights);
}

// The CPUs of this rank and of the workers form a composite device. The sums equal those of one device, and after the first step no
// graph is sent.
static void shares(struct mpi_world *w) {
    static int n_shares;
    struct devices d = devices_open(w);
    ggml_backend_dev_t parts[3] = {
        ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0), &d.list[0].ggml, d.n > 1 ? &d.list[1].ggml : NULL};
    n_shares = (int) d.n + 1;
    ggml_backend_dev_t dev = ggml_backend_meta_device(parts, (size_t) n_shares, share, &n_shares);
    ggml_backend_t one = ggml_backend_dev_init(parts[0], NULL), several = ggml_backend_dev_init(dev, NULL);
    assert_true(one != NULL && several != NULL);
    struct net a = net_new(parts[0]), b = net_new(dev);
    float want[3 * WIDTH], got[3 * WIDTH];
    assert_int_equal(ggml_backend_graph_compute(one, a.graph), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_get(a.y, want, 0, sizeof want);
    for (int step = 0; step < 3; step++) {
        struct berth_mpi_traffic before, after;
        mpi_queue_traffic(&w->queue, &before);
        assert_int_equal(ggml_backend_graph_compute(several, b.graph), GGML_STATUS_SUCCESS);
        mpi_queue_traffic(&w->queue, &after);
        const size_t sums = N_LAYERS * d.n * sizeof want, sent = after.sent_size - before.sent_size;
        if (step > 0 && sent - sums > 4 * sizeof(struct mpi_head) * d.n * (N_LAYERS + 2)) {
            fail_msg("step %d sent %zu bytes, %zu of them for sums", step, sent, sums);
        }
        ggml_backend_tensor_get(b.y, got, 0, sizeof got);
        for (size_t i = 0; i < sizeof got / sizeof got[0]; i++) {
            assert_true(got[i] - want[i] < 1e-4f && want[i] - got[i] < 1e-4f);
        }
    }
    net_free(&a);
    net_free(&b);
    ggml_backend_free(one);
    ggml_backend_free(several);
    devices_close(&d);
}

static void test_shares(void **state) {
    (void) state;
    for (int n = 2; n <= 3; n++) {
        ranks_run(n, 1, 0, shares);
    }
}

// The number of groups is not limited. Two devices of one rank, or only devices of this rank, cannot form a group.
static void groups(struct mpi_world *w) {
    enum { N = 200 };
    struct devices d = devices_open(w);
    ggml_backend_t two[] = {ggml_backend_dev_init(&d.list[0].ggml, NULL), ggml_backend_cpu_init()};
    ggml_backend_t same[] = {two[0], two[0]}, here[] = {two[1], two[1]};
    static void *comms[N];
    for (int i = 0; i < N; i++) {
        comms[i] = mpi_comm_init(two, 2);
        assert_non_null(comms[i]);
    }
    assert_null(mpi_comm_init(same, 2));
    assert_null(mpi_comm_init(here, 2));
    assert_null(mpi_comm_init(here, 1));
    for (int i = 0; i < N; i++) {
        mpi_comm_free(comms[i]);
    }
    mpi_remote_sync(d.list[0].remote);
    assert_int_equal(mpi_remote_report(d.list[0].remote), GGML_STATUS_SUCCESS);
    ggml_backend_free(two[0]);
    ggml_backend_free(two[1]);
    devices_close(&d);
}

static void test_groups(void **state) {
    (void) state;
    ranks_run(2, 1, 0, groups);
}

// ---- commands that workers reject ----

// The worker must reject the command. The next sync reports the failure with the rank of the worker, and the sync after it
// succeeds.
static void refused(struct devices *d, uint32_t kind, uint32_t id, uint64_t a, uint64_t b, uint64_t c, const void *body,
    size_t size, const char *text) {
    struct mpi_remote *r = d->list[0].remote;
    assert_int_equal(mpi_remote_send(r, &(struct mpi_head){kind, id, a, b, c}, body, size), GGML_STATUS_SUCCESS);
    mpi_remote_sync(r);
    if (mpi_remote_report(r) != GGML_STATUS_FAILED || strstr(berth_last_error(), text) == NULL ||
        strstr(berth_last_error(), "rank 1") == NULL) {
        fail_msg("command %u was not refused with '%s': %s", kind, text, berth_last_error());
    }
    mpi_remote_sync(r);
    assert_int_equal(mpi_remote_report(r), GGML_STATUS_SUCCESS);
}

static struct mpi_wire_tensor wire(enum ggml_op op, int64_t ne0, int64_t ne1) {
    struct mpi_wire_tensor t = {.type = GGML_TYPE_F32, .op = (uint32_t) op, .buffer = 1, .ne = {ne0, ne1, 1, 1}};
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        t.nb[i] = i == 0 ? 4 : (uint64_t) t.ne[i - 1] * t.nb[i - 1];
    }
    return t;
}

static void graphs_refused(struct devices *d) {
    struct mpi_wire_tensor g[3] = {wire(GGML_OP_NONE, 8, 8), wire(GGML_OP_NONE, 8, 2), wire(GGML_OP_MUL_MAT, 8, 2)};
    g[2].is_node = 1;
    g[2].src[0] = 1;
    g[2].src[1] = 2;
    const struct {
        const char *text;
        size_t at, size;
        uint64_t value;
    } changes[] = {
        {"unknown type", offsetof(struct mpi_wire_tensor, type), 4, 4},
        {"unknown type", offsetof(struct mpi_wire_tensor, type), 4, UINT32_MAX},
        {"unknown op", offsetof(struct mpi_wire_tensor, op), 4, GGML_OP_COUNT},
        {"violate the rules of its op", offsetof(struct mpi_wire_tensor, op), 4, GGML_OP_MAP_CUSTOM1},
        {"violate the rules of its op", offsetof(struct mpi_wire_tensor, op), 4, GGML_OP_CUSTOM},
        {"source comes after", offsetof(struct mpi_wire_tensor, src), 4, 3},
        {"out of range", offsetof(struct mpi_wire_tensor, ne), 8, UINT64_MAX},
        {"out of range", offsetof(struct mpi_wire_tensor, nb), 8, 3},
        {"not inside its buffer", offsetof(struct mpi_wire_tensor, ne), 8, 100000},
        {"not inside its buffer", offsetof(struct mpi_wire_tensor, nb) + 8, 8, 1 << 20},
        {"violate the rules of its op", offsetof(struct mpi_wire_tensor, ne), 8, 9},
        {"unknown buffer", offsetof(struct mpi_wire_tensor, buffer), 4, 77},
        {"has no memory", offsetof(struct mpi_wire_tensor, buffer), 4, 0},
        {"offset is outside its buffer", offsetof(struct mpi_wire_tensor, offset), 8, 1 << 30},
        {"offset is outside its buffer", offsetof(struct mpi_wire_tensor, offset), 8, 2},
    };
    refused(d, MPI_RUN, 5, 0, 0, 0, NULL, 0, "there is no graph 5");
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct mpi_wire_tensor bad[3];
        memcpy(bad, g, sizeof bad);
        memcpy((char *) &bad[2] + changes[i].at, &changes[i].value, changes[i].size);
        refused(d, MPI_GRAPH, 0, 0, 0, 0, bad, sizeof bad, changes[i].text);
    }
    refused(d, MPI_GRAPH, 0, 0, 0, 0, g, sizeof g - 1, "not a valid graph");
    refused(d, MPI_GRAPH, 0, 9, 0, 0, g, sizeof g, "cannot create graph");
}

// An op with one source. Source and result are in a buffer of 4,096 bytes, each with extents, strides and an offset.
struct placement {
    uint32_t op;
    struct {
        int64_t ne[3];
        uint64_t nb[3], offset;
    } src, node;
};

static void placement_write(const struct placement *placement, struct mpi_wire_tensor *g) {
    g[0] = wire(GGML_OP_NONE, 1, 1);
    g[1] = wire((enum ggml_op) placement->op, 1, 1);
    for (int i = 0; i < 2; i++) {
        g[i].offset = i == 0 ? placement->src.offset : placement->node.offset;
        memcpy(g[i].ne, i == 0 ? placement->src.ne : placement->node.ne, sizeof placement->src.ne);
        memcpy(g[i].nb, i == 0 ? placement->src.nb : placement->node.nb, sizeof placement->src.nb);
        g[i].nb[3] = g[i].nb[2] * (uint64_t) g[i].ne[2];
    }
    g[1].is_node = 1;
    g[1].src[0] = 1;
}

// A worker accepts a graph in which the elements of a source are between the elements of its result, or are exactly the same
// elements.
static void placements_accepted(struct devices *d) {
    static const struct placement placements[] = {
        // The left and the right columns of a matrix, as source and result or the reverse.
        {GGML_OP_SQR, {{4, 8, 1}, {4, 32, 256}, 0}, {{4, 8, 1}, {4, 32, 256}, 16}},
        {GGML_OP_SQR, {{4, 8, 1}, {4, 32, 256}, 16}, {{4, 8, 1}, {4, 32, 256}, 0}},
        // Source and result have different heads, in memory of [4 elements, 4 heads, 8 tokens]: two and two heads, permuted so that
        // the tokens come first; the same without permutation; one and three heads.
        {GGML_OP_SQR, {{4, 8, 2}, {4, 64, 16}, 0}, {{4, 8, 2}, {4, 64, 16}, 32}},
        {GGML_OP_SQR, {{4, 2, 8}, {4, 16, 64}, 32}, {{4, 2, 8}, {4, 16, 64}, 0}},
        {GGML_OP_REPEAT, {{4, 8, 1}, {4, 64, 16}, 48}, {{4, 8, 3}, {4, 64, 16}, 0}},
        // The source has the last head of each token, the result has the first head of the next token.
        {GGML_OP_SQR, {{4, 7, 1}, {4, 64, 448}, 48}, {{4, 7, 1}, {4, 64, 448}, 64}},
        // The source has the first half of each head, the result has the second half.
        {GGML_OP_SQR, {{2, 4, 8}, {4, 16, 64}, 0}, {{2, 4, 8}, {4, 16, 64}, 8}},
        // The source has the even elements, the result has the odd ones.
        {GGML_OP_SQR, {{8, 4, 1}, {8, 64, 256}, 0}, {{8, 4, 1}, {8, 64, 256}, 4}},
        // In the next three cases, source and result have the same elements. The strides of a single row may differ. In the last
        // case the result begins where the source ends.
        {GGML_OP_SQR, {{8, 8, 1}, {4, 32, 256}, 64}, {{8, 8, 1}, {4, 32, 256}, 64}},
        {GGML_OP_SQR, {{8, 1, 1}, {4, 400, 400}, 64}, {{8, 1, 1}, {4, 32, 32}, 64}},
        {GGML_OP_SQR, {{4, 8, 1}, {4, 32, 256}, 64}, {{4, 8, 1}, {4, 32, 256}, 64}},
        {GGML_OP_SQR, {{8, 8, 1}, {4, 32, 256}, 0}, {{8, 8, 1}, {4, 32, 256}, 256}},
    };
    struct mpi_remote *r = d->list[0].remote;
    for (size_t i = 0; i < sizeof placements / sizeof placements[0]; i++) {
        struct mpi_wire_tensor g[2];
        placement_write(&placements[i], g);
        assert_int_equal(mpi_remote_send(r, &(struct mpi_head){.kind = MPI_GRAPH, .id = 0}, g, sizeof g), GGML_STATUS_SUCCESS);
        assert_int_equal(mpi_remote_send(r, &(struct mpi_head){.kind = MPI_RUN, .id = 0}, NULL, 0), GGML_STATUS_SUCCESS);
        mpi_remote_sync(r);
        if (mpi_remote_report(r) != GGML_STATUS_SUCCESS) {
            fail_msg("case %zu: %s", i, berth_last_error());
        }
    }
}

static void placements_rejected(struct devices *d) {
    static const struct placement placements[] = {
        {GGML_OP_REPEAT, {{8, 1, 1}, {4, 32, 32}, 0}, {{8, 2, 1}, {4, 32, 64}, 4}},
        // Source and result have the same first element, but other elements differ: a repeated row, a transposed matrix, a source
        // with gaps.
        {GGML_OP_REPEAT, {{8, 1, 1}, {4, 32, 32}, 0}, {{8, 2, 1}, {4, 32, 64}, 0}},
        {GGML_OP_SQR, {{8, 8, 1}, {32, 4, 256}, 0}, {{8, 8, 1}, {4, 32, 256}, 0}},
        {GGML_OP_SQR, {{4, 8, 1}, {4, 32, 256}, 0}, {{4, 8, 1}, {4, 16, 128}, 0}},
        // Columns and heads that overlap.
        {GGML_OP_SQR, {{5, 8, 1}, {4, 32, 256}, 0}, {{5, 8, 1}, {4, 32, 256}, 16}},
        {GGML_OP_SQR, {{4, 8, 2}, {4, 64, 16}, 0}, {{4, 8, 2}, {4, 64, 16}, 16}},
        {GGML_OP_SQR, {{4, 8, 2}, {4, 64, 16}, 0}, {{4, 8, 2}, {4, 64, 16}, 48}}, // overlaps the next token
        // Source and result have different strides.
        {GGML_OP_SQR, {{4, 8, 1}, {4, 32, 256}, 0}, {{4, 8, 1}, {4, 48, 384}, 16}},
    };
    for (size_t i = 0; i < sizeof placements / sizeof placements[0]; i++) {
        struct mpi_wire_tensor g[2];
        placement_write(&placements[i], g);
        refused(d, MPI_GRAPH, 0, 0, 0, 0, g, sizeof g, "overlaps other elements of source");
    }
}

static void refuses(struct mpi_world *w) {
    struct devices d = devices_open(w);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(&d.list[0].buft, 4096); // number 0
    assert_non_null(buffer);
    char some[64] = "";
    const uint32_t rank = 7, self = 1;
    refused(&d, MPI_COMMAND_END, 0, 0, 0, 0, NULL, 0, "unknown command");
    refused(&d, UINT32_MAX, 0, 0, 0, 0, NULL, 0, "unknown command");
    refused(&d, MPI_SET, 0, 4090, 0, 0, some, sizeof some, "4096");
    refused(&d, MPI_SET, 0, UINT64_MAX - 8, 0, 0, some, sizeof some, "4096");
    refused(&d, MPI_SET, 3, 0, 0, 0, some, sizeof some, "there is no buffer 3");
    refused(&d, MPI_MEMSET, 0, 1, UINT64_MAX, 0, NULL, 0, "4096");
    refused(&d, MPI_COPY, 0, 0, 8, 0, some, 3, "a copy");
    refused(&d, MPI_COPY_OUT, 0, 0, 8, 1, &rank, sizeof rank, "rank 7");
    refused(&d, MPI_COPY_OUT, 0, 0, 8, 1, &self, sizeof self, "rank 1");
    refused(&d, MPI_COPY_IN, 0, 0, 8, 1, NULL, 0, "does not exist or is this rank");
    refused(&d, MPI_BUFFER_FREE, 9, 0, 0, 0, NULL, 0, "there is no such buffer");
    refused(&d, MPI_GROUP_NEW, 0, 0, 0, 0, &rank, sizeof rank, "group 0");
    refused(&d, MPI_GROUP_NEW, UINT32_MAX, 0, 0, 0, &self, sizeof self, "too large");
    refused(&d, MPI_GROUP_NEW, 1 << 20, 0, 0, 0, &self, sizeof self, "1048576 is too large; it must be less than 1048576");
    refused(&d, MPI_GROUP_SUM, 0, 0, 0, 8, NULL, 0, "cannot add");
    refused(&d, MPI_GROUP_SUM, 0, 0, 0, UINT64_MAX, NULL, 0, "cannot add");
    graphs_refused(&d);
    placements_accepted(&d);
    placements_rejected(&d);
    float out[4] = {1, 1, 1, 1};
    mpi_buffer_read(&(struct mpi_place){&d.list[0], 0, 5000}, out, sizeof out); // bytes that cannot be read are 0
    assert_true(out[0] == 0 && mpi_remote_report(d.list[0].remote) == GGML_STATUS_FAILED);
    ggml_backend_buffer_free(buffer);
    devices_close(&d);
}

static void test_refuses(void **state) {
    (void) state;
    ranks_run(2, 1, 0, refuses);
}

// ---- rejected copies ----

#define COPY_SIZE (2 * MPI_PIECE + 1000)

// Copies bytes with value `fill` from buffer 0 of the first worker to buffer `to` of the second. The workers are given out_size and
// in_size as the size. Returns true if the copy succeeded.
static bool copies(struct devices *d, uint8_t fill, uint32_t to, uint64_t out_size, uint64_t in_size) {
    struct mpi_remote *a = d->list[0].remote, *b = d->list[1].remote;
    const uint32_t rank_a = 1, rank_b = 2;
    const uint64_t ticket = 7;
    assert_int_equal(mpi_remote_send(a, &(struct mpi_head){MPI_MEMSET, 0, 0, COPY_SIZE, fill}, NULL, 0), GGML_STATUS_SUCCESS);
    assert_int_equal(mpi_remote_send(a, &(struct mpi_head){MPI_COPY_OUT, 0, 0, out_size, ticket}, &rank_b, sizeof rank_b),
        GGML_STATUS_SUCCESS);
    assert_int_equal(
        mpi_remote_send(b, &(struct mpi_head){MPI_COPY_IN, to, 0, in_size, ticket}, &rank_a, sizeof rank_a), GGML_STATUS_SUCCESS);
    mpi_remote_sync(a);
    mpi_remote_sync(b);
    (void) !mpi_remote_report(a);
    return mpi_remote_report(b) == GGML_STATUS_SUCCESS;
}

// Pieces of a rejected copy must not be received by the next copy.
static void refuses_copies(struct mpi_world *w) {
    struct devices d = devices_open(w);
    ggml_backend_buffer_t pair[] = {
        ggml_backend_buft_alloc_buffer(&d.list[0].buft, COPY_SIZE), ggml_backend_buft_alloc_buffer(&d.list[1].buft, COPY_SIZE)};
    static uint8_t out[COPY_SIZE];
    assert_true(pair[0] != NULL && pair[1] != NULL);
    const struct {
        uint32_t to;
        uint64_t out_size, in_size;
        const char *text;
    } cases[] = {
        {9, COPY_SIZE, COPY_SIZE, "there is no buffer 9"}, {0, COPY_SIZE, COPY_SIZE + 1, "which has"},
        {0, COPY_SIZE, 8, "ended after 525288 bytes"}, {0, COPY_SIZE, MPI_PIECE, "ended after 525288 bytes"},
        {0, 2 * MPI_PIECE, COPY_SIZE, "ended after 524288 bytes"},
        {0, COPY_SIZE + 1, COPY_SIZE, "ended after 0 bytes"}, // nothing is sent
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_false(copies(&d, 1, cases[i].to, cases[i].out_size, cases[i].in_size));
        assert_non_null(strstr(berth_last_error(), cases[i].text));
        assert_true(copies(&d, (uint8_t) (i + 2), 0, COPY_SIZE, COPY_SIZE));
        mpi_buffer_read(&(struct mpi_place){&d.list[1], 0, 0}, out, COPY_SIZE);
        for (size_t k = 0; k < COPY_SIZE; k++) {
            assert_int_equal(out[k], i + 2);
        }
    }
    ggml_backend_buffer_free(pair[0]);
    ggml_backend_buffer_free(pair[1]);
    devices_close(&d);
}

static void test_refuses_copies(void **state) {
    (void) state;
    ranks_run(3, 1, 0, refuses_copies);
}

// ---- lost workers ----

// After the program has lost a worker, every call returns, compute fails, and everything can be freed.
static void is_lost(struct mpi_world *w) {
    struct devices d = devices_open(w);
    ggml_backend_t backend = ggml_backend_dev_init(&d.list[0].ggml, NULL);
    struct ggml_context *ctx = arena();
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4), *y = ggml_sqr(ctx, x);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 8, false);
    ggml_build_forward_expand(graph, y);
    buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, &d.list[0].buft);
    assert_non_null(buffer);
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    mpi_queue_lose(&w->queue, 1, "the test says so");
    float out[4] = {1, 2, 3, 4};
    size_t n_free, n_total;
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "rank 1"));
    assert_non_null(strstr(berth_last_error(), "the test says so"));
    ggml_backend_tensor_set(x, out, 0, sizeof out);
    ggml_backend_tensor_get(y, out, 0, sizeof out);
    assert_true(out[3] == 0);
    ggml_backend_synchronize(backend);
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_FAILED);
    ggml_backend_dev_memory(&d.list[0].ggml, &n_free, &n_total);
    assert_int_equal(n_free, 0);
    assert_null(ggml_backend_buft_alloc_buffer(&d.list[0].buft, 64));
    assert_null(ggml_backend_dev_init(&d.list[0].ggml, NULL));
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_free(ctx);
    devices_close(&d);
    // The worker is still alive and must end, so its rank is marked as not lost.
    pthread_mutex_lock(&w->queue.lock);
    w->queue.peers[1].is_lost = false;
    pthread_mutex_unlock(&w->queue.lock);
}

static void test_is_lost(void **state) {
    (void) state;
    ranks_run(2, 1, 0, is_lost);
}

// Marks rank 1, which does not hang any more, as not lost, so that it receives the message to end.
static void worker_release(struct mpi_world *w) {
    pthread_mutex_lock(&w->queue.lock);
    w->queue.peers[1].is_lost = false;
    w->queue.peers[1].steps_changed = w->queue.peers[1].stuck_since = 0;
    pthread_mutex_unlock(&w->queue.lock);
}

// The worker sends keep-alive messages, but its device hangs, so that it does no steps. The program must count it as lost.
static void is_stuck(struct mpi_world *w) {
    struct devices d = devices_open(w);
    ggml_backend_t backend = ggml_backend_dev_init(&d.list[0].ggml, NULL);
    struct ggml_context *ctx = arena();
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 8, false);
    ggml_build_forward_expand(graph, ggml_sqr(ctx, x));
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, &d.list[0].buft);
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    nanosleep(&(struct timespec){.tv_sec = 2}, NULL); // a worker that waits for commands is not stuck
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    atomic_store(&hangs, true);
    const int64_t start = mpi_now();
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_FAILED);
    assert_true(mpi_now() - start < 6 * MPI_SECOND);
    assert_non_null(strstr(berth_last_error(), "rank 1"));
    assert_non_null(strstr(berth_last_error(), "has been in one op for"));
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_FAILED);
    atomic_store(&hangs, false);
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_free(ctx);
    devices_close(&d);
    worker_release(w);
}

static void test_is_stuck(void **state) {
    (void) state;
    with_hanging = true;
    hanging = *ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
    hanging.iface.init_backend = hanging_init;
    setenv("BERTH_MPI_STALL", "1", 1);
    ranks_run(2, 1, 0, is_stuck);
    unsetenv("BERTH_MPI_STALL");
    with_hanging = false;
}

// A worker that hangs before it receives its first command is detected too.
static ggml_backend_t hanging_init_first(ggml_backend_dev_t dev, const char *params) {
    (void) hanging_compute(NULL, NULL);
    return hanging_init(dev, params);
}

static void is_stuck_early(struct mpi_world *w) {
    const int64_t start = mpi_now();
    alarm(60); // ends a wait that would not end
    assert_null(mpi_queue_take(&w->queue, 1, MPI_ANSWER, 1));
    alarm(0);
    assert_true(mpi_now() - start < 6 * MPI_SECOND);
    assert_non_null(strstr(berth_last_error(), "has been in one op for"));
    atomic_store(&hangs, false);
    worker_release(w);
}

static void test_is_stuck_early(void **state) {
    (void) state;
    with_hanging = true;
    hanging = *ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
    hanging.iface.init_backend = hanging_init_first;
    atomic_store(&hangs, true);
    setenv("BERTH_MPI_STALL", "1", 1);
    ranks_run(2, 1, 0, is_stuck_early);
    unsetenv("BERTH_MPI_STALL");
    with_hanging = false;
}

// ---- ranks with an invalid hello message ----

static char warned[512];

static void log_warning(enum ggml_log_level level, const char *text, void *user) {
    (void) user;
    if (level == GGML_LOG_LEVEL_WARN) {
        snprintf(warned, sizeof warned, "%s", text);
    }
}

// Rank 1 sends this hello message and nothing else. Asserts that the warning about it contains `text`.
static void joins_with_hello(const void *hello, size_t size, const char *text) {
    struct mpi_loop *loop = mpi_loop_new(2);
    struct mpi_transport here, there;
    struct mpi_world w;
    const struct mpi_head head = {.kind = MPI_HELLO};
    char *bytes = shim_malloc(sizeof head + size);
    warned[0] = '\0';
    ggml_log_set(log_warning, NULL);
    transport_open(loop, 0, &here);
    transport_open(loop, 1, &there);
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, hello, size);
    assert_true(there.send(&there, 0, bytes, sizeof head + size));
    assert_true(mpi_world_init(&w, &here, false, NULL, 0));
    assert_string_equal(warned, ""); // the caller reports it after it has released all locks
    mpi_world_report_left_out(&w);
    check_quiet();
    assert_true(strstr(warned, "rank 1 on") != NULL && strstr(warned, text) != NULL);
    assert_true(w.queue.peers[1].is_lost && w.programs.n == 1 && w.members[1].n_devices == 0);
    if (strstr(w.queue.peers[1].why, text) == NULL) {
        fail_msg("not '%s': %s", text, w.queue.peers[1].why);
    }
    mpi_world_leave(&w);
    mpi_world_fini(&w);
    mpi_loop_free(loop);
}

static void test_others_are_left_out(void **state) {
    (void) state;
    struct mpi_hello hello = {
        .magic = MPI_MAGIC, .version = MPI_WIRE_VERSION, .is_worker = 1, .n_devices = 1, .host = "elsewhere"};
    const struct mpi_device_info device = {.name = "CPU", .alignment = 3};
    char bytes[sizeof hello + sizeof device];
    memcpy(bytes + sizeof hello, &device, sizeof device);
#define JOINS(size, text) (memcpy(bytes, &hello, sizeof hello), joins_with_hello(bytes, size, text))
    strcpy(hello.release, BERTH_VERSION);
    JOINS(sizeof bytes, "its list of devices");
    JOINS(sizeof bytes - 1, "lists 1 devices");
    JOINS(10, "is invalid");
    hello.n_devices = UINT32_MAX;
    JOINS(sizeof bytes, "devices in");
    strcpy(hello.release, "7.8.9");
    JOINS(sizeof bytes, "it runs Berth 7.8.9");
    strcpy(hello.release, BERTH_VERSION);
    hello.version = 99;
    JOINS(sizeof bytes, "version 99");
    memset(hello.host, 'x', sizeof hello.host);
    JOINS(sizeof bytes, "is invalid");
    hello.magic = 0;
    JOINS(sizeof bytes, "is invalid");
}

// ---- cache ----

static void test_cache_is_checked(void **state) {
    (void) state;
    char folder[] = "/tmp/berth-test-XXXXXX", path[128];
    uint8_t hash[16];
    char data[1000], back[1000];
    memset(data, 7, sizeof data);
    assert_non_null(mkdtemp(folder));
    mpi_hash(data, sizeof data, hash);
    assert_false(mpi_cache_read(folder, hash, back, sizeof back));
    mpi_cache_write(folder, hash, data, sizeof data);
    assert_true(mpi_cache_read(folder, hash, back, sizeof back));
    assert_memory_equal(data, back, sizeof back);
    assert_false(mpi_cache_read(folder, hash, back, sizeof back - 1));
    assert_false(mpi_cache_read("/nowhere", hash, back, sizeof back));
    hash[0] ^= 1;
    assert_false(mpi_cache_read(folder, hash, back, sizeof back));
    snprintf(path, sizeof path, "rm -r %s", folder);
    assert_int_equal(system(path), 0);
}

// ---- out of memory ----

static bool place_by_row(const void *user, const struct ggml_tensor *t, uint32_t *buffer, uint64_t *offset) {
    const struct ggml_tensor *const *all = user;
    uint64_t i = 0;
    while (all[i] != t) {
        i++;
    }
    *buffer = 0;
    *offset = 64 * i;
    return true;
}

static void do_command(struct mpi_worker *w, const struct mpi_head *head, const void *body, size_t size) {
    char bytes[4096];
    const struct mpi_queue_item item = {.message = {.size = sizeof *head + size, .bytes = bytes}};
    memcpy(bytes, head, sizeof *head);
    memcpy(bytes + sizeof *head, body, size);
    mpi_worker_do(w, &item);
}

// Sends a graph from the program's memory to a worker and reads the result, without threads.
static bool graph_through(struct mpi_loop *loop) {
    struct mpi_transport t = {.alloc = shim_malloc, .release = shim_free};
    struct mpi_queue queue;
    struct mpi_worker w;
    struct mpi_wire_graph wire_graph = {0};
    ggml_backend_dev_t cpu = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
    const struct berth_mpi_serve_params params = {.devices = &cpu, .n_devices = 1, .n_threads = 1};
    if (!mpi_loop_open(loop, 1, &t) || !mpi_queue_init(&queue, &t)) {
        return false;
    }
    struct ggml_context *ctx = arena();
    bool ok = ctx != NULL && mpi_worker_init(&w, &queue, 0, &params);
    if (ok) {
        struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4), *y = ggml_sqr(ctx, x);
        const struct ggml_tensor *all[] = {x, y};
        const float in[4] = {1, 2, 3, 4};
        float out[4] = {0};
        x->data = y->data = out; // any address except NULL
        do_command(&w, &(struct mpi_head){.kind = MPI_BUFFER_NEW, .b = 4096}, in, 0);
        do_command(&w, &(struct mpi_head){.kind = MPI_SET}, in, sizeof in);
        y->flags |= GGML_TENSOR_FLAG_COMPUTE;
        ok = mpi_wire_write(&wire_graph, &y, 1, place_by_row, all) == GGML_STATUS_SUCCESS;
        do_command(&w, &(struct mpi_head){.kind = MPI_GRAPH}, wire_graph.tensors, wire_graph.n * sizeof wire_graph.tensors[0]);
        do_command(&w, &(struct mpi_head){.kind = MPI_RUN}, in, 0);
        ok = ok && w.failure[0] == '\0' && mpi_worker_bytes(&w, 0, 64, sizeof out) != NULL;
        if (ok) {
            mpi_worker_read(w.buffers[0].buffer, 64, out, sizeof out);
            assert_true(out[0] == 1 && out[3] == 16);
        }
        mpi_worker_fini(&w);
    }
    mpi_wire_fini(&wire_graph);
    ggml_free(ctx);
    mpi_queue_fini(&queue, true);
    return ok;
}

static void test_each_allocation_fails(void **state) {
    (void) state;
    check_quiet();
    int64_t n = 0;
    for (bool ok = false; !ok; n++) {
        struct mpi_loop *loop = mpi_loop_new(2);
        berth_alloc_fail_at(n + 1);
        ok = graph_through(loop);
        berth_alloc_fail_at(0);
        mpi_loop_free(loop);
        assert_true(n < 1000);
    }
    assert_true(n > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_follows_a_bye),
        cmocka_unit_test(test_silence_before_messages_is_excused),
        cmocka_unit_test(test_silence_after_messages_is_found),
        cmocka_unit_test(test_full_queue_ends),
        cmocka_unit_test(test_full_queue_spares_others),
        cmocka_unit_test(test_gap_is_found),
        cmocka_unit_test(test_send_failure_is_reported),
        cmocka_unit_test(test_blocked_thread_is_detected),
        cmocka_unit_test(test_parting_ends_after_messages),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_sums_without_one),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_computes),
        cmocka_unit_test(test_threads_are_independent),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_refuses_copies),
        cmocka_unit_test(test_is_lost),
        cmocka_unit_test(test_is_stuck),
        cmocka_unit_test(test_is_stuck_early),
        cmocka_unit_test(test_others_are_left_out),
        cmocka_unit_test(test_cache_is_checked),
        cmocka_unit_test(test_each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
