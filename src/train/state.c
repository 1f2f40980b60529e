// SPDX-License-Identifier: MIT
// state.c: writes and reads checkpoints. A checkpoint is a GGUF file with the trained tensors in f32, the moments of the
// optimiser, and keys for parameters, progress and losses. A checkpoint of another text or another model is refused: the
// parameters of the model must be the same and, if an adapter is trained, also the weights of the model.
//
// After the GGUF file follows a hash of all its bytes (8 bytes), so a damaged checkpoint is detected and refused.

#include "train/train.h"

#include "base/siphash.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define VERSION 2                   // version 1 had neither a checksum nor the fingerprint of the model
#define SUM_STEP ((size_t) 1 << 20) // bytes per read

// ---- parameters as keys ----

static void params_put(struct gguf_context *g, const struct train_params *p) {
    gguf_set_val_i64(g, "train.ctx", p->n_ctx);
    gguf_set_val_i64(g, "train.sequences", p->n_seq);
    gguf_set_val_i64(g, "train.steps", p->n_steps);
    gguf_set_val_i64(g, "train.warmup", p->n_warmup);
    gguf_set_val_i64(g, "train.rank", p->rank);
    gguf_set_val_i64(g, "train.schedule", p->schedule);
    gguf_set_val_i64(g, "train.optimizer", p->optimizer);
    gguf_set_val_i64(g, "train.seed", (int64_t) p->seed);
    gguf_set_val_f32(g, "train.alpha", p->alpha);
    gguf_set_val_f32(g, "train.rate", p->lr);
    gguf_set_val_f32(g, "train.decay", p->decay);
    gguf_set_val_f32(g, "train.clip", p->clip);
}

static bool key_int(
    const struct gguf_context *g, const char *key, int64_t min, int64_t max, int64_t *out, struct model_error *error) {
    const int64_t id = gguf_find_key(g, key);
    if (id < 0 || gguf_get_kv_type(g, id) != GGUF_TYPE_INT64) {
        return model_fail(error, "key '%s' is missing", key);
    }
    *out = gguf_get_val_i64(g, id);
    return (*out >= min && *out <= max) ||
           model_fail(error, "key '%s' is %" PRId64 ", but must be between %" PRId64 " and %" PRId64, key, *out, min, max);
}

static bool params_get(const struct gguf_context *g, struct train_params *p, int64_t *n_done, struct model_error *error) {
    int64_t schedule, optimizer, seed;
    *p = (struct train_params){0};
    if (!key_int(g, "train.ctx", 1, INT32_MAX, &p->n_ctx, error) ||
        !key_int(g, "train.sequences", 1, INT32_MAX, &p->n_seq, error) ||
        !key_int(g, "train.steps", 0, INT64_MAX / 8, &p->n_steps, error) ||
        !key_int(g, "train.warmup", 0, INT64_MAX, &p->n_warmup, error) ||
        !key_int(g, "train.rank", 0, INT32_MAX, &p->rank, error) ||
        !key_int(g, "train.schedule", TRAIN_COSINE, TRAIN_CONSTANT, &schedule, error) ||
        !key_int(g, "train.optimizer", 0, GGML_OPT_OPTIMIZER_TYPE_COUNT - 1, &optimizer, error) ||
        !key_int(g, "train.seed", INT64_MIN, INT64_MAX, &seed, error) ||
        !key_int(g, "train.done", 0, p->n_steps, n_done, error) || !keys_real(g, "train.alpha", &p->alpha, error) ||
        !keys_real(g, "train.rate", &p->lr, error) || !keys_real(g, "train.decay", &p->decay, error) ||
        !keys_real(g, "train.clip", &p->clip, error)) {
        return false;
    }
    p->schedule = (enum train_schedule) schedule;
    p->optimizer = (enum ggml_opt_optimizer_type) optimizer;
    p->seed = (uint64_t) seed;
    return true;
}

// ---- checksum ----

static struct berth_siphash sum_begin(void) {
    static const struct berth_siphash_key key = {{0x6265727468207472u, 0x61696e2073746174u}}; // constant, so that runs agree
    return berth_siphash_begin(&key);
}

// A stream that writes to a file and hashes the written bytes.
struct summed {
    FILE *to;
    struct berth_siphash sum;
};

static ssize_t summed_write(void *cookie, const char *bytes, size_t size) {
    struct summed *s = cookie;
    if (fwrite(bytes, 1, size, s->to) != size) {
        return 0;
    }
    berth_siphash_add(&s->sum, bytes, size);
    return (ssize_t) size;
}

static bool summed_end(struct summed *s) {
    const uint64_t sum = berth_siphash_end(&s->sum);
    return fwrite(&sum, sizeof sum, 1, s->to) == 1;
}

// *sum: hash of the first `size` bytes. *stored: the hash in the file after these bytes. False: reading failed.
static bool sum_read(FILE *file, uint64_t size, unsigned char *step, uint64_t *sum, uint64_t *stored) {
    struct berth_siphash hash = sum_begin();
    for (uint64_t left = size; left > 0;) {
        const size_t n = left < SUM_STEP ? (size_t) left : SUM_STEP;
        if (fread(step, 1, n, file) != n) {
            return false;
        }
        berth_siphash_add(&hash, step, n);
        left -= n;
    }
    *sum = berth_siphash_end(&hash);
    return fread(stored, sizeof *stored, 1, file) == 1;
}

static bool sum_check(const char *path, struct model_error *error) {
    unsigned char *step = berth_malloc(SUM_STEP);
    FILE *file = fopen(path, "rb");
    uint64_t computed = 0, stored = 0;
    bool ok = true;
    if (step == NULL) {
        ok = model_fail(error, "out of memory for %zu bytes", SUM_STEP);
    } else if (file == NULL) {
        ok = model_fail(error, "%s", strerror(errno));
    } else if (fseeko(file, 0, SEEK_END) == 0) {
        const int64_t size = (int64_t) ftello(file) - (int64_t) sizeof stored;
        rewind(file);
        ok = (size > 0 && sum_read(file, (uint64_t) size, step, &computed, &stored) && computed == stored) ||
             model_fail(error, "the checkpoint is damaged: its checksum is %016" PRIx64 ", but %016" PRIx64 " is stored",
                 computed, stored);
    }
    if (file != NULL) {
        fclose(file);
    }
    berth_free(step);
    return ok;
}

// ---- writing ----

// Order in the file: weights, moments m, moments v.
static const struct ggml_tensor *tensor_at(const struct trainer *t, int64_t i) {
    const size_t kind = (size_t) i / t->n_tensors;
    const struct train_tensor *x = &t->tensors[(size_t) i % t->n_tensors];
    struct ggml_tensor *const all[] = {x->w, x->m, x->v};
    return all[kind];
}

static int64_t n_tensor_kinds(const struct trainer *t) {
    return t->params.optimizer == GGML_OPT_OPTIMIZER_TYPE_ADAMW ? 3 : 1;
}

struct writing {
    const struct trainer *t;
    void *bytes;
};

static const void *tensor_bytes(int64_t i, void *user, struct model_error *error) {
    struct writing *w = user;
    return train_tensor_get(tensor_at(w->t, i), &w->bytes, error);
}

static bool evaluations_put(struct gguf_context *g, const struct trainer *t) {
    int64_t *steps = berth_malloc((t->n_evaluations + 1) * sizeof *steps);
    float *losses = berth_malloc((t->n_evaluations + 1) * sizeof *losses);
    for (size_t i = 0; steps != NULL && losses != NULL && i < t->n_evaluations; i++) {
        steps[i] = t->evaluations[i].step;
        losses[i] = t->evaluations[i].loss;
    }
    const bool ok = steps != NULL && losses != NULL;
    if (ok && t->n_evaluations > 0) {
        gguf_set_arr_data(g, "train.look_steps", GGUF_TYPE_INT64, steps, t->n_evaluations);
        gguf_set_arr_data(g, "train.look_losses", GGUF_TYPE_FLOAT32, losses, t->n_evaluations);
    }
    berth_free(steps);
    berth_free(losses);
    return ok;
}

static int64_t trainer_fingerprint(const struct trainer *t) {
    return (int64_t) model_fingerprint(t->model, t->lora != NULL);
}

static bool summed_put(const struct gguf_context *g, struct writing *w, FILE *to, struct model_error *error) {
    struct summed s = {to, sum_begin()};
    FILE *file = fopencookie(&s, "w", (cookie_io_functions_t){.write = summed_write});
    if (file == NULL) {
        return model_fail(error, "out of memory");
    }
    bool ok = model_write(file, g, tensor_bytes, w, error);
    ok = fclose(file) == 0 && ok && summed_end(&s);
    return ok || model_fail(error, "writing failed: %s", strerror(errno));
}

bool train_state_write(const struct trainer *t, const struct train_data *data, FILE *file, struct model_error *error) {
    struct writing w = {.t = t};
    struct gguf_context *g = model_header_new(NULL);
    gguf_set_val_str(g, "general.type", "training state");
    gguf_set_val_str(g, "general.architecture", t->model->params.arch);
    gguf_set_val_i64(g, "train.version", VERSION);
    gguf_set_val_i64(g, "train.done", t->n_done);
    gguf_set_val_i64(g, "train.data", (int64_t) data->hash);
    gguf_set_val_i64(g, "train.model", trainer_fingerprint(t));
    params_put(g, &t->params);
    if (t->n_done > 0) {
        gguf_set_arr_data(g, "train.losses", GGUF_TYPE_FLOAT32, t->losses, (size_t) t->n_done);
    }
    const bool has_evaluations = evaluations_put(g, t) || model_fail(error, "out of memory for %zu losses", t->n_evaluations);
    for (int64_t i = 0; i < n_tensor_kinds(t) * (int64_t) t->n_tensors; i++) {
        gguf_add_tensor(g, tensor_at(t, i));
    }
    g = model_header_check(g, error);
    const bool ok = g != NULL && has_evaluations && summed_put(g, &w, file, error);
    berth_free(w.bytes);
    gguf_free(g);
    return ok;
}

// ---- reading ----

static bool version_check(const struct gguf_context *g, struct model_error *error) {
    int64_t version;
    if (!key_int(g, "train.version", 1, INT64_MAX, &version, error)) {
        return false;
    }
    return version == VERSION ||
           model_fail(error,
               "the checkpoint has format %" PRId64 ", but this version of Berth reads format %d: finish the run with the "
               "version that started it, or start a new run from its model",
               version, VERSION);
}

static struct berth_gguf_map *state_open(
    const char *path, struct train_params *params, int64_t *n_done, struct model_error *error) {
    struct model_error why = {""};
    struct berth_gguf_map *map = berth_gguf_map_open(path, NULL);
    const char *type = NULL;
    if (map == NULL) {
        model_fail(error, "%s", berth_last_error());
        return NULL;
    }
    const struct gguf_context *g = berth_gguf_map_meta(map);
    if (!keys_text(g, "general.type", &type, &why) || type == NULL || strcmp(type, "training state") != 0) {
        model_fail(error, "%s: not a training checkpoint", path);
    } else if (!version_check(g, &why) || !sum_check(path, &why) || !params_get(g, params, n_done, &why)) {
        model_fail(error, "%s: %s", path, why.text);
    } else {
        return map;
    }
    berth_gguf_map_close(map);
    return NULL;
}

bool train_state_params(const char *path, struct train_params *params, int64_t *n_done, struct model_error *error) {
    int64_t n;
    struct berth_gguf_map *map = state_open(path, params, n_done != NULL ? n_done : &n, error);
    berth_gguf_map_close(map);
    return map != NULL;
}

static bool tensors_read(struct trainer *t, const struct berth_gguf_map *map, struct model_error *error) {
    const struct gguf_context *g = berth_gguf_map_meta(map);
    const int64_t n = n_tensor_kinds(t) * (int64_t) t->n_tensors;
    if (gguf_get_n_tensors(g) != n) {
        return model_fail(error,
            "the checkpoint has %" PRId64 " tensors, but this run has %" PRId64 ": the model or the training options differ",
            gguf_get_n_tensors(g), n);
    }
    for (int64_t i = 0; i < n; i++) {
        const struct ggml_tensor *x = tensor_at(t, i);
        const int64_t id = gguf_find_tensor(g, x->name);
        if (id < 0 || gguf_get_tensor_type(g, id) != GGML_TYPE_F32 ||
            memcmp(gguf_get_tensor_ne(g, id), x->ne, sizeof x->ne) != 0) {
            return model_fail(
                error, "tensor '%s' is missing or has another shape: the checkpoint belongs to another model", x->name);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        struct ggml_tensor *x = (struct ggml_tensor *) (uintptr_t) tensor_at(t, i);
        ggml_backend_tensor_set(x, berth_gguf_map_data(map, gguf_find_tensor(g, x->name)), 0, ggml_nbytes(x));
    }
    return true;
}

// NULL: the key is absent or has another type or length.
static const void *array_get(const struct gguf_context *g, const char *key, enum gguf_type type, size_t n) {
    const int64_t id = gguf_find_key(g, key);
    return id >= 0 && gguf_get_kv_type(g, id) == GGUF_TYPE_ARRAY && gguf_get_arr_type(g, id) == type && gguf_get_arr_n(g, id) == n
               ? gguf_get_arr_data(g, id)
               : NULL;
}

static bool losses_read(struct trainer *t, const struct gguf_context *g, int64_t n_done, struct model_error *error) {
    const void *losses = array_get(g, "train.losses", GGUF_TYPE_FLOAT32, (size_t) n_done);
    if (losses == NULL && n_done > 0) {
        return model_fail(error, "key 'train.losses' does not have the losses of %" PRId64 " steps", n_done);
    }
    if (n_done > 0) {
        memcpy(t->losses, losses, (size_t) n_done * sizeof *t->losses);
    }
    const int64_t id = gguf_find_key(g, "train.look_steps");
    const size_t n = id >= 0 && gguf_get_kv_type(g, id) == GGUF_TYPE_ARRAY ? gguf_get_arr_n(g, id) : 0;
    const int64_t *at = array_get(g, "train.look_steps", GGUF_TYPE_INT64, n);
    const float *values = array_get(g, "train.look_losses", GGUF_TYPE_FLOAT32, n);
    if (n > 0 && at != NULL && values != NULL) {
        struct train_evaluation *evaluations = berth_realloc(t->evaluations, n * sizeof *evaluations);
        if (evaluations == NULL) {
            return model_fail(error, "out of memory for %zu losses", n);
        }
        t->evaluations = evaluations;
        t->n_evaluations = t->cap_evaluations = n;
        for (size_t i = 0; i < n; i++) {
            evaluations[i] = (struct train_evaluation){at[i], values[i]};
        }
    }
    t->n_done = n_done;
    return true;
}

static bool map_read(struct trainer *t, const struct train_data *data, const struct berth_gguf_map *map, int64_t n_done,
    struct model_error *error) {
    const struct gguf_context *g = berth_gguf_map_meta(map);
    int64_t hash = 0, model = 0;
    if (!key_int(g, "train.data", INT64_MIN, INT64_MAX, &hash, error)) {
        return false;
    }
    if ((uint64_t) hash != data->hash) {
        return model_fail(error, "the checkpoint was trained on another text, or with another sequence length");
    }
    if (!key_int(g, "train.model", INT64_MIN, INT64_MAX, &model, error)) {
        return false;
    }
    if (model != trainer_fingerprint(t)) {
        return model_fail(error, "the checkpoint belongs to another model: the %s differ",
            t->lora != NULL ? "parameters or the weights that the adapter changes" : "parameters");
    }
    if (n_done > t->params.n_steps) {
        return model_fail(
            error, "the checkpoint has %" PRId64 " steps, but the run ends after %" PRId64, n_done, t->params.n_steps);
    }
    return tensors_read(t, map, error) && losses_read(t, g, n_done, error);
}

bool train_state_read(struct trainer *t, const struct train_data *data, const char *path, struct model_error *error) {
    struct train_params params;
    struct model_error why = {""};
    int64_t n_done;
    struct berth_gguf_map *map = state_open(path, &params, &n_done, error);
    if (map == NULL) {
        return false;
    }
    const bool ok = map_read(t, data, map, n_done, &why);
    if (!ok) {
        model_fail(error, "%s: %s", path, why.text);
    }
    berth_gguf_map_close(map);
    return ok;
}
