// SPDX-License-Identifier: MIT
// ranks.c: trains one model on several ranks (berth-mpi.h). Every rank has all weights and processes its share of every batch.
// Gradients and losses are summed over all ranks. Every rank gets the same bits, so the weights stay equal without being sent.
// The number of ranks that were interrupted (Ctrl-C) or have failed is also such a sum, so all ranks stop together.
//   1. All ranks call every function here, in the same order.
//   2. The gradient of the loss with respect to itself is 1 / ranks (tensors.c), so sums of gradients are means over the batch.

#include "base/min.h"
#include "train/train.h"

#include <inttypes.h>
#include <string.h>

#define PIECE ((int64_t) 1 << 20) // floats per call of sum_f32
#define SAMPLE 4096               // bytes of each tensor of the file that are compared

static bool ranks_lost(struct model_error *error) {
    return model_fail(error, "%s", berth_last_error());
}

static bool ranks_count(const struct berth_mpi_world *w, bool mine, int *n, struct model_error *error) {
    float sum = mine ? 1 : 0;
    if (!w->sum_f32(&sum, 1)) {
        return ranks_lost(error);
    }
    *n = (int) sum;
    return true;
}

bool train_ranks_stop(struct trainer *t, bool mine, struct model_error *error) {
    int n = mine;
    if (t->params.world != NULL && !ranks_count(t->params.world, mine, &n, error)) {
        return false;
    }
    t->is_stopped = n > 0;
    return true;
}

bool train_ranks_loss(struct trainer *t, bool ok, float *loss, struct model_error *error) {
    const struct berth_mpi_world *w = t->params.world;
    int n_failed = 0;
    if (w == NULL) {
        return ok;
    }
    float sum = ok ? *loss / (float) w->n_ranks : 0;
    if (!ranks_count(w, !ok, &n_failed, error) || !w->sum_f32(&sum, 1)) {
        return ranks_lost(error);
    }
    *loss = sum;
    return n_failed == 0 || model_fail(error, "step %" PRId64 " failed on %d of %d ranks", t->n_done + 1, n_failed, w->n_ranks);
}

bool train_ranks_sum(struct trainer *t, struct model_error *error) {
    const struct berth_mpi_world *w = t->params.world;
    for (size_t i = 0; w != NULL && i < t->n_tensors; i++) {
        struct ggml_tensor *grad = t->tensors[i].grad;
        const int64_t n = ggml_nelements(grad);
        for (int64_t at = 0; at < n; at += PIECE) {
            const size_t k = (size_t) min_i64(n - at, PIECE);
            ggml_backend_tensor_get(grad, t->sums, (size_t) at * sizeof *t->sums, k * sizeof *t->sums);
            if (!w->sum_f32(t->sums, (int64_t) k)) {
                return ranks_lost(error);
            }
            ggml_backend_tensor_set(grad, t->sums, (size_t) at * sizeof *t->sums, k * sizeof *t->sums);
        }
    }
    return true;
}

bool train_ranks_make(struct trainer *t, struct model_error *error) {
    if (t->params.world == NULL) {
        return true;
    }
    t->sums = berth_malloc((size_t) PIECE * sizeof *t->sums);
    return t->sums != NULL || model_fail(error, "out of memory for %zu bytes of sums", (size_t) PIECE * sizeof *t->sums);
}

// ---- equal runs on all ranks ----

static void numbers_add(struct berth_siphash *s, const struct trainer *t, const struct train_data *data) {
    const struct train_params *p = &t->params;
    const int64_t integers[] = {p->n_ctx, p->n_seq, p->n_steps, p->n_warmup, p->rank, p->schedule, p->optimizer,
        (int64_t) p->seed, t->n_done, (int64_t) data->hash};
    const float reals[] = {p->alpha, p->lr, p->decay, p->clip};
    berth_siphash_add(s, integers, sizeof integers);
    berth_siphash_add(s, reals, sizeof reals);
}

// Hashes all trained tensors, and the beginning of each tensor of the file.
static void weights_add(struct berth_siphash *s, struct trainer *t) {
    for (size_t i = 0; i < t->n_tensors; i++) {
        const int64_t n = ggml_nelements(t->tensors[i].w);
        for (int64_t at = 0; at < n; at += PIECE) {
            const size_t size = (size_t) min_i64(n - at, PIECE) * sizeof *t->sums;
            ggml_backend_tensor_get(t->tensors[i].w, t->sums, (size_t) at * sizeof *t->sums, size);
            berth_siphash_add(s, t->sums, size);
        }
    }
    const int64_t n_file = gguf_get_n_tensors(berth_gguf_map_meta(t->model->file));
    for (int64_t i = 0; i < n_file; i++) {
        const size_t size = ggml_nbytes(t->model->by_id[i]);
        berth_siphash_add(s, berth_gguf_map_data(t->model->file, i), min_size(size, SAMPLE));
    }
}

bool train_ranks_check(struct trainer *t, const struct train_data *data, struct model_error *error) {
    static const struct berth_siphash_key key = {{0x6265727468, 0x72616E6B73}};
    const struct berth_mpi_world *w = t->params.world;
    int n_others = 0;
    if (w == NULL) {
        return true;
    }
    struct berth_siphash s = berth_siphash_begin(&key);
    numbers_add(&s, t, data);
    weights_add(&s, t);
    const uint64_t mine = berth_siphash_end(&s);
    uint64_t first = mine;
    if (!w->broadcast(&first, sizeof first, 0) || !ranks_count(w, mine != first, &n_others, error)) {
        return ranks_lost(error);
    }
    return n_others == 0 || model_fail(error, "rank %d of %d: %d %s a different model, text or options than rank 0", w->rank,
                                w->n_ranks, n_others, n_others == 1 ? "rank has" : "ranks have");
}
