// SPDX-License-Identifier: MIT
// test_graph_threads.c: threads that build graphs over shared tensors without names, and processes that fork while another thread
// logs. The thread sanitizer finds errors that the asserts cannot.

#include "support/check.h"

#include "base/base.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// ---- names ----

enum { N_ROUNDS = 300, N_SHARED = 4, N_THREADS = 3 };

struct builder {
    struct ggml_tensor **weights; // [N_SHARED], shared by all threads
    struct ggml_tensor *view;     // view of a weight: an op that several graphs contain
    int n_before;                 // leaves that the thread's graph has before the weights
    pthread_barrier_t *start;
};

static void *build(void *arg) {
    struct builder *b = arg;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    pthread_barrier_wait(b->start);
    for (int i = 0; i < b->n_before; i++) {
        ggml_build_forward_expand(graph, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4));
    }
    for (int i = 0; i < N_SHARED; i++) {
        ggml_build_forward_expand(graph, ggml_add(ctx, b->weights[i], b->view));
        ggml_build_forward_expand(graph, ggml_set_name(ggml_neg(ctx, b->weights[i]), ggml_get_name(b->weights[i])));
    }
    ggml_free(ctx);
    return NULL;
}

// Returns whether the name is "leaf_N" for a possible N, and not a mix of two names.
static bool is_name(const char *name, int n_before) {
    for (int i = 0; i <= n_before + 2 * N_SHARED + 1; i++) {
        char expected[16];
        snprintf(expected, sizeof expected, "leaf_%d", i);
        if (strcmp(name, expected) == 0) {
            return true;
        }
    }
    return false;
}

static void threads_share_weights(void **state) {
    (void) state;
    const int n_before[N_THREADS] = {0, 9, 120};
    for (int round = 0; round < check_cases(N_ROUNDS); round++) {
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
        struct ggml_tensor *weights[N_SHARED];
        for (int i = 0; i < N_SHARED; i++) {
            weights[i] = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
        }
        struct ggml_tensor *view = ggml_view_1d(ctx, weights[0], 4, 0);
        view->name[0] = '\0';
        struct builder builders[N_THREADS];
        pthread_t threads[N_THREADS];
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, N_THREADS);
        for (int i = 0; i < N_THREADS; i++) {
            builders[i] = (struct builder){weights, view, n_before[i], &start};
            assert_int_equal(pthread_create(&threads[i], NULL, build, &builders[i]), 0);
        }
        for (int i = 0; i < N_THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
        for (int i = 0; i < N_SHARED; i++) {
            if (!is_name(weights[i]->name, 120)) {
                fail_msg("round %d: weight %d is named '%s'", round, i, weights[i]->name);
            }
            assert_int_equal(weights[i]->name[GGML_MAX_NAME - 1], 0);
        }
        assert_memory_equal(view->name, "node_", 5);
        pthread_barrier_destroy(&start);
        ggml_free(ctx);
    }
}

// ---- forks ----

static atomic_bool is_over;

static void log_drop(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level, (void) text, (void) user_data;
}

static void *log_always(void *arg) {
    (void) arg;
    while (!atomic_load(&is_over)) {
        berth_log(GGML_LOG_LEVEL_INFO, "a line\n");
        ggml_log_set(log_drop, NULL);
    }
    return NULL;
}

// Returns false if the child did not exit by itself.
static bool child_ends(pid_t child) {
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int ms = 0; ms < 20000; ms++) {
        int status;
        if (waitpid(child, &status, WNOHANG) == child) {
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
        nanosleep(&moment, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return false;
}

static void children_log(void **state) {
    (void) state;
    pthread_t threads[2];
    ggml_log_set(log_drop, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, log_always, NULL), 0);
    }
    int n_hung = 0, n_forks = 0;
    for (; n_forks < 200 && n_hung == 0; n_forks++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            berth_log(GGML_LOG_LEVEL_INFO, "the child's\n");
            ggml_log_set(log_drop, NULL);
            _exit(0);
        }
        n_hung += !child_ends(child);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    if (n_hung > 0) {
        fail_msg("child %d hangs", n_forks);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_weights),
        cmocka_unit_test(children_log),
    };
    return cmocka_run_group_tests_name("graph_threads", tests, NULL, NULL);
}
