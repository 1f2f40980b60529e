// SPDX-License-Identifier: MIT
// train_sample.h: a small model, a small text and a training run, for tests of training.
#pragma once

#include "support/model_sample.h"

#include "train/train.h"

#define N_CTX 8
#define N_VOCAB 40

static char model_path[] = "/tmp/berth-model-XXXXXX";

static const struct train_params usual = {
    .n_ctx = N_CTX, .n_seq = 2, .n_steps = 6, .n_warmup = 2, .lr = 1e-2f, .decay = 0.01f, .clip = 1, .alpha = 8, .seed = 7};

// The text repeats every 11 positions; one token in eight is replaced at random.
static inline bool data_make(struct train_data *data, struct model_error *error) {
    struct check_rng r = check_rng_new(5);
    *data = (struct train_data){0};
    for (int i = 0; i < 12 * N_CTX + 1; i++) {
        const int32_t token = check_rng_below(&r, 8) == 0 ? (int32_t) check_rng_below(&r, N_VOCAB) : i * i % 11;
        if (!token_push(&data->tokens, token, error)) {
            return false;
        }
    }
    return train_data_cut(data, N_CTX, error);
}

struct run {
    struct model *model;
    struct trainer *t;
    struct train_data data;
};

static inline bool run_open_on(
    struct run *r, const struct model_devices *on, const struct train_params *p, struct model_error *error) {
    *r = (struct run){0};
    return data_make(&r->data, error) && (r->model = model_open(model_path, error)) != NULL &&
           model_place(r->model, on, false, NULL, NULL, error) && (r->t = trainer_new(r->model, on, p, error)) != NULL;
}

static inline bool run_steps(struct run *r, int64_t n, struct model_error *error) {
    bool ok = true;
    for (int64_t i = 0; ok && i < n; i++) {
        ok = trainer_step(r->t, &r->data, error);
    }
    return ok;
}

static inline void run_close(struct run *r) {
    trainer_free(r->t);
    model_free(r->model);
    train_data_fini(&r->data);
}

#define must(x) \
    do { \
        if (!(x)) { \
            print_error("%s\n", error.text); \
            fail(); \
        } \
    } while (0)

static inline bool same_bytes(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    return ggml_nbytes(a) == ggml_nbytes(b) && memcmp(a->data, b->data, ggml_nbytes(a)) == 0;
}
