// SPDX-License-Identifier: MIT
// world.c: a program that every rank runs: sums, broadcasts and barriers among the ranks, with checked results. Exit code 0:
// success. Without mpirun there is no world.
// `world die`: the last rank ends in the middle; the others get an error in time.
// `world freeze`: rank 1 of 3 stops while it sends much; the others lose it, but not each other.
// `world ask`: the log callback queries devices as soon as it is called about a missing rank.
// `world large`: a sum of more bytes than a rank receives before a thread requests them.
// `world late`, with a worker: a buffer at the worker is freed when the process ends, after the ranks have left.

#include "berth-mpi.h"
#include "berth.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) \
    do { \
        if (!(x)) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #x, berth_last_error()); \
            exit(1); \
        } \
    } while (0)

// The summands are integers, so that the order of additions does not matter.
static void check_sum(const struct berth_mpi_world *w, size_t n) {
    float *data = malloc((n + 1) * sizeof *data);
    CHECK(data != NULL);
    data[n] = -7;
    for (size_t i = 0; i < n; i++) {
        data[i] = (float) (i % 1000) + (float) w->rank;
    }
    CHECK(w->sum_f32(data, n));
    for (size_t i = 0; i < n; i++) {
        const float want = (float) (i % 1000) * (float) w->n_ranks + (float) (w->n_ranks * (w->n_ranks - 1) / 2);
        if (data[i] != want) {
            fprintf(stderr, "sum of %zu: number %zu is %g, not %g\n", n, i, (double) data[i], (double) want);
            exit(1);
        }
    }
    CHECK(data[n] == -7);
    free(data);
}

// The sum of fractions must have the same bits on all ranks.
static void check_same(const struct berth_mpi_world *w) {
    float data[1000], first[1000];
    for (int i = 0; i < 1000; i++) {
        data[i] = 1.0f / (float) (i + 1 + 7 * w->rank);
    }
    CHECK(w->sum_f32(data, 1000));
    memcpy(first, data, sizeof data);
    CHECK(w->broadcast(first, sizeof first, 0));
    CHECK(memcmp(first, data, sizeof data) == 0);
}

static int die_in_the_middle(const struct berth_mpi_world *w) {
    float one = 1;
    CHECK(w->barrier());
    if (w->rank == w->n_ranks - 1) {
        _exit(7);
    }
    const time_t before = time(NULL);
    CHECK(!w->sum_f32(&one, 1));
    CHECK(time(NULL) - before < 12);
    CHECK(strstr(berth_last_error(), "is lost") != NULL);
    _exit(0); // without the others there is no orderly end
}

static void stop_self(int number) {
    (void) number;
    raise(SIGSTOP);
}

static int freeze_in_the_middle(const struct berth_mpi_world *w) {
    const size_t size = (size_t) 256 << 20;
    const struct itimerval soon = {.it_value = {.tv_usec = 200000}};
    int pid = (int) getpid(), number = w->rank;
    char *data = calloc(size, 1);
    CHECK(data != NULL && w->n_ranks == 3);
    CHECK(w->broadcast(&pid, sizeof pid, 1));
    if (w->rank == 1) {
        signal(SIGALRM, stop_self);
        setitimer(ITIMER_REAL, &soon, NULL);
    }
    if (w->rank == 0) { // waits until as many bytes as possible are in transit
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    }
    CHECK(!w->broadcast(data, size, 1));
    CHECK(strstr(berth_last_error(), "rank 1") != NULL);
    if (w->rank == 2) {
        w->broadcast(&number, sizeof number, 2); // the lost rank does not receive it
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        _exit(0);
    }
    CHECK(w->broadcast(&number, sizeof number, 2) && number == 2);
    kill(pid, SIGKILL);
    _exit(0);
}

static void no_log(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level;
    (void) text;
    (void) user_data;
}

static bool has_message;

static void ask_log(enum ggml_log_level level, const char *text, void *words) {
    (void) ggml_backend_dev_count();
    has_message = has_message || (level == GGML_LOG_LEVEL_WARN && strstr(text, words) != NULL);
}

static int ask_in_log_callback(char *words) {
    ggml_log_set(ask_log, words);
    ggml_backend_load_all();
    CHECK(ggml_backend_dev_count() > 0 && has_message);
    _exit(0);
}

static ggml_backend_t late_backend;
static ggml_backend_buffer_t late_buffer;

static void free_late(void) {
    ggml_backend_free(late_backend);
    ggml_backend_buffer_free(late_buffer);
    if (ggml_backend_dev_init(ggml_backend_dev_by_name("MPI1:CPU"), NULL) != NULL) {
        _exit(1); // a device of a rank that has left must not be opened
    }
}

// Exit handlers run in reverse order of registration: free_late runs after the ranks have left.
static int free_at_the_end(void) {
    static float data[1 << 20];
    CHECK(atexit(free_late) == 0);
    ggml_backend_load_all();
    ggml_backend_dev_t dev = ggml_backend_dev_by_name("MPI1:CPU");
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 4096, .no_alloc = true});
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1 << 20);
    CHECK(dev != NULL && t != NULL);
    late_backend = ggml_backend_dev_init(dev, NULL);
    CHECK(late_backend != NULL);
    late_buffer = ggml_backend_alloc_ctx_tensors(ctx, late_backend);
    CHECK(late_buffer != NULL);
    ggml_backend_tensor_get_async(late_backend, t, data, 0, sizeof data); // no thread waits for it
    return 0;
}

// Checks that the signal handlers that MPI installs for crashes are removed. These handlers print the stack. A rank that crashes
// could hang in them instead of ending.
static void check_crashes(void) {
    static const int crashes[] = {SIGABRT, SIGBUS, SIGFPE, SIGSEGV};
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++) {
        struct sigaction now;
        CHECK(sigaction(crashes[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL && (now.sa_flags & SA_SIGINFO) == 0);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "late") == 0) {
        return free_at_the_end();
    }
    if (argc > 2 && strcmp(argv[1], "ask") == 0) {
        return ask_in_log_callback(argv[2]);
    }
    ggml_log_set(no_log, NULL);
    ggml_backend_load_all();
    ggml_backend_reg_t reg = ggml_backend_reg_by_name("MPI");
    CHECK(reg != NULL);
    const struct berth_mpi_world *w = ggml_backend_reg_get_proc_address(reg, "berth_mpi_world");
    CHECK(ggml_backend_reg_dev_count(reg) == 0);
    if (getenv("OMPI_COMM_WORLD_SIZE") == NULL) {
        CHECK(w == NULL);
        return 0;
    }
    CHECK(w != NULL && w->n_ranks == atoi(getenv("OMPI_COMM_WORLD_SIZE")) && w->rank == atoi(getenv("OMPI_COMM_WORLD_RANK")));
    check_crashes();
    CHECK(w->host(w->rank)[0] != '\0' && w->host(-1)[0] == '\0' && w->host(w->n_ranks)[0] == '\0');
    if (argc > 1 && strcmp(argv[1], "die") == 0) {
        return die_in_the_middle(w);
    }
    if (argc > 1 && strcmp(argv[1], "freeze") == 0) {
        return freeze_in_the_middle(w);
    }
    if (argc > 1 && strcmp(argv[1], "large") == 0) {
        check_sum(w, (size_t) 160 << 20);
        return 0;
    }
    for (size_t n = 1; n <= 3000000; n = n * 5 + 1) {
        check_sum(w, n);
    }
    check_sum(w, 0);
    check_same(w);
    CHECK(w->barrier());
    char text[16] = "";
    snprintf(text, sizeof text, "from %d", w->rank);
    CHECK(w->broadcast(text, sizeof text, w->n_ranks - 1));
    CHECK(atoi(text + 5) == w->n_ranks - 1);
    CHECK(!w->broadcast(text, sizeof text, w->n_ranks));
    return 0;
}
