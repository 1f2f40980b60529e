// SPDX-License-Identifier: MIT
// test_train_ranks.c: tests training on several ranks, which are threads here: they learn the same as one rank, and their weights
// are equal to the bit. A rank that differs or is lost ends the run on all ranks.

#include "support/train_sample.h"

#include "base/base.h"

#include <pthread.h>

#define N_RANKS 2

static struct {
    pthread_barrier_t barrier;
    const void *data[N_RANKS];
    int n_sums; // sums before all ranks are lost
} links;
static _Thread_local int own_rank;

static bool links_sum(float *data, int64_t n) {
    float *sum = malloc(n * sizeof *sum);
    links.data[own_rank] = data;
    pthread_barrier_wait(&links.barrier);
    for (int64_t i = 0; i < n; i++) {
        sum[i] = ((const float *) links.data[0])[i] + ((const float *) links.data[1])[i];
    }
    const bool ok = links.n_sums > 0;
    pthread_barrier_wait(&links.barrier);
    if (ok) {
        memcpy(data, sum, n * sizeof *sum);
    } else {
        berth_set_error("a rank is lost");
    }
    if (own_rank == 0) {
        links.n_sums--;
    }
    free(sum);
    pthread_barrier_wait(&links.barrier);
    return ok;
}

static bool links_broadcast(void *data, size_t size, int root) {
    links.data[own_rank] = data;
    pthread_barrier_wait(&links.barrier);
    if (own_rank != root) {
        memcpy(data, links.data[root], size);
    }
    pthread_barrier_wait(&links.barrier);
    return true;
}

struct ranked {
    int rank;
    struct train_params params;
    struct model_devices devices;
    struct model_error error;
    struct run run;
    bool ok;
};

static void *ranked_run(void *user) {
    struct ranked *x = user;
    struct berth_mpi_world world = {.rank = x->rank, .n_ranks = N_RANKS, .sum_f32 = links_sum, .broadcast = links_broadcast};
    own_rank = x->rank;
    x->params.world = &world;
    x->ok = run_open_on(&x->run, &x->devices, &x->params, &x->error) && train_ranks_check(x->run.t, &x->run.data, &x->error) &&
            trainer_evaluate(x->run.t, &x->run.data, NULL, &x->error) && run_steps(&x->run, 6, &x->error);
    return NULL;
}

// Trains on both ranks and leaves them open. rank: rank of the adapter, 0: all weights are trained. seed_step is the
// difference between the seeds of the MPI ranks.
static void ranks_run(struct ranked both[N_RANKS], int64_t rank, int n_sums, int seed_step) {
    pthread_t threads[N_RANKS];
    assert_int_equal(pthread_barrier_init(&links.barrier, NULL, N_RANKS), 0);
    links.n_sums = n_sums;
    for (int i = 0; i < N_RANKS; i++) {
        both[i] = (struct ranked){.rank = i, .params = usual};
        both[i].params.n_seq = 4;
        both[i].params.rank = rank;
        both[i].params.seed += (uint64_t) (i * seed_step);
        assert_true(model_devices_open(&both[i].devices, "CPU", 1, &both[i].error));
    }
    for (int i = 0; i < N_RANKS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ranked_run, &both[i]), 0);
    }
    for (int i = 0; i < N_RANKS; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&links.barrier);
}

static void ranks_close(struct ranked both[N_RANKS]) {
    for (int i = 0; i < N_RANKS; i++) {
        run_close(&both[i].run);
        model_devices_close(&both[i].devices);
    }
}

// Two ranks with two sequences each learn the same as one rank with four, except for rounding. Their weights are equal to the bit.
static void test_ranks(void **state) {
    (void) state;
    for (int64_t rank = 0; rank <= 4; rank += 4) { // rank of the adapter; 0: no adapter
        struct model_error error = {""};
        struct train_params p = usual;
        struct ranked both[N_RANKS];
        struct model_devices devices;
        struct run one;
        p.n_seq = 4, p.rank = rank;
        must(model_devices_open(&devices, "CPU", 2, &error) && run_open_on(&one, &devices, &p, &error) &&
             trainer_evaluate(one.t, &one.data, NULL, &error) && run_steps(&one, 6, &error));
        ranks_run(both, rank, INT32_MAX, 0);
        for (int i = 0; i < N_RANKS; i++) {
            const struct trainer *t = both[i].run.t;
            error = both[i].error;
            must(both[i].ok);
            assert_true(fabsf(t->evaluations[0].loss - one.t->evaluations[0].loss) < 1e-5f);
            for (int k = 0; k < 6; k++) {
                assert_true(fabsf(t->losses[k] - one.t->losses[k]) < 1e-5f * one.t->losses[k]);
            }
            for (size_t k = 0; k < t->n_tensors; k++) {
                assert_true(same_bytes(t->tensors[k].w, both[0].run.t->tensors[k].w));
            }
        }
        ranks_close(both);
        run_close(&one);
        model_devices_close(&devices);
    }
}

static void test_ranks_fail(void **state) {
    (void) state;
    struct ranked both[N_RANKS];
    ranks_run(both, 0, INT32_MAX, 1);
    for (int i = 0; i < N_RANKS; i++) {
        assert_true(!both[i].ok && strstr(both[i].error.text, "1 rank has a different model") != NULL);
    }
    ranks_close(both);
    for (int n = 0; n < 12; n++) { // lost after a different number of sums
        ranks_run(both, 4, n * n, 0);
        for (int i = 0; i < N_RANKS; i++) {
            assert_true(!both[i].ok && strstr(both[i].error.text, "a rank is lost") != NULL);
        }
        ranks_close(both);
    }
    struct model_error error = {""};
    const struct berth_mpi_world three = {.n_ranks = 3};
    struct train_params p = usual;
    struct run r;
    p.world = &three;
    assert_true(model_devices_open(&both[0].devices, "CPU", 1, &error));
    assert_false(run_open_on(&r, &both[0].devices, &p, &error));
    assert_non_null(strstr(error.text, "2 sequences per step cannot be divided evenly among 3 ranks"));
    run_close(&r);
    model_devices_close(&both[0].devices);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks), cmocka_unit_test(test_ranks_fail)};
    struct sample_model m = sample_model_default();
    check_quiet();
    m.n_layer = 2;
    sample_model_write(&m, model_path);
    const int result = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(model_path);
    return result;
}
