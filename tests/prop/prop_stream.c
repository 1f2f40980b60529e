// SPDX-License-Identifier: MIT
// prop_stream.c: streamed weights with random sizes, memory and graphs, on a reader that only counts. Plans never exceed the memory.
// When a wait returns, the weights are loaded. The window is never exceeded. Only weights that were used are dropped, never between
// two passes. A failed load is seen by all threads. BERTH_SEED=n repeats a run.

#include "support/check.h"

#include "backend/stream.h"

#include <errno.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N_MAX 40

static struct check_rng rng;

static uint64_t roll(uint64_t n) {
    return check_rng_below(&rng, n);
}

// ---- plans ----

static void plans_keep_the_memory(void **state) {
    (void) state;
    for (int round = 0; round < check_cases(20000); round++) {
        struct stream_weight w[N_MAX];
        const size_t n = roll(N_MAX) + 1;
        const uint64_t left = roll(4) == 0 ? roll(20) : roll(20000), size_max = 1 + roll(2000);
        uint64_t all = 0;
        for (size_t i = 0; i < n; i++) {
            w[i] = (struct stream_weight){.at = i * 5000, .size = roll(size_max)};
            all += w[i].size;
        }
        struct stream_plan plan;
        stream_plan_make(w, n, left, &plan);
        uint64_t size[3] = {0}, largest = 0;
        for (size_t i = 0; i < n; i++) {
            size[w[i].place] += w[i].size;
            if (w[i].place == STREAM_STREAMED && w[i].size > largest) {
                largest = w[i].size;
            }
            assert_true(w[i].place != STREAM_PAGED || w[i].size > left / 2);
        }
        assert_int_equal(size[STREAM_RESIDENT], plan.resident);
        assert_int_equal(size[STREAM_STREAMED], plan.streamed);
        assert_int_equal(size[STREAM_PAGED], plan.paged);
        assert_true(plan.resident + plan.window <= left);
        assert_true(largest <= plan.window);
        assert_true(all > left || plan.resident == all);
        // little memory remains unused: less than the smallest streamed weight
        for (size_t i = 0; i < n; i++) {
            assert_true(w[i].place != STREAM_STREAMED || plan.resident + plan.window + w[i].size > left);
        }
    }
}

// ---- passes ----

enum { ABSENT, REQUESTED, LOADED };

static struct {
    pthread_mutex_t lock;
    int state[N_MAX];
    bool is_used[N_MAX]; // by the running pass
    bool is_running;
    uint64_t in_window, window;
    size_t n_wanted; // the graph waits for the first uses
    int fails_after; // loads until one fails; negative: none
    bool is_wrong;
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void expect(bool is_right) {
    world.is_wrong = world.is_wrong || !is_right;
}

static void world_request(const struct stream_use *use) {
    pthread_mutex_lock(&world.lock);
    if (use->is_streamed) {
        expect(use->at < world.n_wanted || world.in_window + use->size <= world.window);
        expect(world.state[use->at] == ABSENT);
        world.in_window += use->size;
        world.state[use->at] = REQUESTED;
    }
    pthread_mutex_unlock(&world.lock);
}

static int world_load(const struct stream_use *use) {
    pthread_mutex_lock(&world.lock);
    const bool fails = world.fails_after == 0;
    world.fails_after -= world.fails_after >= 0;
    expect(!use->is_streamed || world.state[use->at] == REQUESTED);
    if (!fails) {
        world.state[use->at] = LOADED;
    }
    pthread_mutex_unlock(&world.lock);
    if (use->size % 16 == 0) {
        sched_yield();
    }
    return fails ? EIO : 0;
}

static void world_drop(const struct stream_use *use) {
    pthread_mutex_lock(&world.lock);
    expect(use->is_streamed && world.is_running && world.is_used[use->at] && world.state[use->at] == LOADED);
    world.state[use->at] = ABSENT;
    world.in_window -= use->size;
    pthread_mutex_unlock(&world.lock);
}

static const struct stream_io io = {world_request, world_load, world_drop};

static void world_running_set(bool is_running) {
    pthread_mutex_lock(&world.lock);
    world.is_running = is_running;
    memset(world.is_used, 0, sizeof world.is_used);
    pthread_mutex_unlock(&world.lock);
}

static bool world_is_right(void) {
    pthread_mutex_lock(&world.lock);
    const bool is_right = !world.is_wrong;
    pthread_mutex_unlock(&world.lock);
    return is_right;
}

static void use_check(size_t i) {
    pthread_mutex_lock(&world.lock);
    expect(world.state[i] == LOADED && world.is_running);
    world.is_used[i] = true;
    pthread_mutex_unlock(&world.lock);
}

// A second thread of the graph, which waits for the same uses.
struct helper {
    struct stream *stream;
    size_t n;
    int error;
};

static void *helper_main(void *arg) {
    struct helper *h = arg;
    h->error = stream_wait(h->stream, h->n);
    return NULL;
}

// Returns false if a load failed.
static bool pass_run(struct stream *s, const struct stream_use *uses, size_t n, size_t n_stop) {
    for (size_t i = 0; i < n_stop;) {
        const size_t step = 1 + roll(2) * (i + 1 < n_stop); // a node uses one or two weights
        pthread_mutex_lock(&world.lock);
        world.n_wanted = i + step;
        pthread_mutex_unlock(&world.lock);
        const bool has_helper = roll(8) == 0;
        struct helper helper = {.stream = s, .n = i + step};
        pthread_t thread;
        if (has_helper) {
            assert_int_equal(pthread_create(&thread, NULL, helper_main, &helper), 0);
        }
        const int error = stream_wait(s, i + step);
        if (has_helper) {
            pthread_join(thread, NULL);
            assert_int_equal(helper.error, error);
        }
        if (error != 0) {
            assert_int_equal(error, EIO);
            return false;
        }
        for (size_t k = 0; k < step; k++) {
            use_check(uses[i + k].at);
        }
        i += step;
        if (i < n_stop || n_stop == n) {
            stream_done(s, i);
        }
    }
    return true;
}

static void list_make(struct stream_use *uses, size_t n, uint64_t *window) {
    *window = 0;
    for (size_t i = 0; i < n; i++) {
        uses[i] = (struct stream_use){.at = i, .size = 1 + roll(100), .is_streamed = roll(3) > 0};
        if (uses[i].is_streamed && uses[i].size > *window) {
            *window = uses[i].size;
        }
    }
    *window += roll(300);
}

// What was read ahead before stays in the system's cache. It is not counted any more.
static void world_reset(uint64_t window) {
    pthread_mutex_lock(&world.lock);
    memset(world.state, 0, sizeof world.state);
    world.in_window = 0;
    world.window = window;
    world.fails_after = -1;
    pthread_mutex_unlock(&world.lock);
}

static void passes_wait_for_their_weights(void **state) {
    (void) state;
    struct stream s;
    assert_true(stream_init(&s, &io));
    for (int list = 0; list < check_cases(60); list++) {
        struct stream_use uses[N_MAX];
        const size_t n = 1 + roll(N_MAX);
        uint64_t window;
        list_make(uses, n, &window);
        stream_forget(&s);
        world_reset(window);
        for (int pass = 0; pass < 8; pass++) {
            const bool is_cut = roll(10) == 0;
            const bool fails = roll(10) == 0;
            if (fails) {
                pthread_mutex_lock(&world.lock);
                world.fails_after = (int) roll(n);
                pthread_mutex_unlock(&world.lock);
            }
            world_running_set(true);
            assert_true(stream_begin(&s, uses, n, window));
            const bool is_complete = pass_run(&s, uses, n, is_cut ? roll(n) : n) && !is_cut;
            stream_end(&s);
            world_running_set(false);
            assert_true(world_is_right());
            if (!is_complete || fails) { // the load of the next pass may have failed
                stream_forget(&s);
                world_reset(window);
            }
        }
    }
    stream_fini(&s);
}

static void empty_lists(void **state) {
    (void) state;
    struct stream s;
    assert_true(stream_init(&s, &io));
    for (int i = 0; i < 3; i++) {
        assert_true(stream_begin(&s, NULL, 0, 0));
        assert_int_equal(stream_wait(&s, 0), 0);
        stream_done(&s, 0);
        stream_end(&s);
    }
    stream_fini(&s);
}

static void failing_allocations(void **state) {
    (void) state;
    const struct stream_use use = {.at = 0, .size = 1};
    struct stream s;
    assert_true(stream_init(&s, &io));
    world_reset(1);
    berth_alloc_fail_at(1);
    assert_false(stream_begin(&s, &use, 1, 1));
    berth_alloc_fail_at(0);
    world_running_set(true);
    assert_true(stream_begin(&s, &use, 1, 1));
    assert_true(pass_run(&s, &use, 1, 1));
    stream_end(&s);
    world_running_set(false);
    stream_fini(&s);
}

#ifndef __SANITIZE_THREAD__
// The child of a fork has no reader, and starts its own.
static void child_of_a_fork(void **state) {
    (void) state;
    const struct stream_use uses[] = {{.at = 0, .size = 1, .is_streamed = true}, {.at = 1, .size = 1, .is_streamed = true}};
    struct stream s;
    assert_true(stream_init(&s, &io));
    world_reset(1);
    for (int i = 0; i < 3; i++) {
        world_running_set(true);
        assert_true(stream_begin(&s, uses, 2, 1));
        assert_true(pass_run(&s, uses, 2, 2));
        stream_end(&s);
        world_running_set(false);
    }
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pthread_mutex_init(&world.lock, NULL);
        stream_restart_after_fork(&s);
        world_reset(1);
        world_running_set(true);
        bool is_right = stream_begin(&s, uses, 2, 1) && stream_wait(&s, 1) == 0 && world.state[0] == LOADED;
        use_check(0);
        stream_done(&s, 1);
        is_right = is_right && stream_wait(&s, 2) == 0 && world_is_right();
        stream_end(&s);
        stream_fini(&s);
        _exit(is_right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    stream_fini(&s);
}
#endif

int main(void) {
    rng = check_rng_new(check_seed((uint64_t) time(NULL)));
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_keep_the_memory),
        cmocka_unit_test(passes_wait_for_their_weights),
        cmocka_unit_test(empty_lists),
        cmocka_unit_test(failing_allocations),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(child_of_a_fork),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
