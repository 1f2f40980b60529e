// SPDX-License-Identifier: MIT
// predict.c: predicts the speed and the memory of a model on a simulated cluster. The model is opened, placed and run as `berth
// run` does: one batch of a prompt, then one token. The memory is the sum of the sizes of the simulated buffers.

#include "simulate/cluster.h"

#include "ggml-backend-impl.h"

#include <string.h>

#define CHOOSE_SECONDS 8 // time limit of the measurement for --split auto; the first round may take longer

struct predicting {
    const struct cluster *cluster;
    struct simulation *sim;
    struct workbench m;
    struct prediction *out;
};

static bool by_layers_open(struct predicting *f, struct model_error *error) {
    const int n = f->cluster->n_devices;
    ggml_backend_dev_t *list = berth_calloc((size_t) n, sizeof(ggml_backend_dev_t));
    if (list == NULL) {
        return model_fail(error, "out of memory for %d devices", n);
    }
    for (int i = 0; i < n; i++) {
        list[i] = simulation_device(f->sim, (i + 1) % n); // the program's CPU is last
    }
    const bool ok = model_devices_open_list(&f->m.devices, list, n, error);
    berth_free(list);
    return ok;
}

static bool by_tensors_open(struct predicting *f, struct model_error *error) {
    ggml_backend_dev_t parts[GGML_BACKEND_META_MAX_DEVICES];
    int devices[GGML_BACKEND_META_MAX_DEVICES];
    const int n = cluster_parts(f->cluster, devices);
    if (n > GGML_BACKEND_META_MAX_DEVICES) {
        return model_fail(error, "a split by tensors supports at most %d devices", GGML_BACKEND_META_MAX_DEVICES);
    }
    for (int i = 0; i < n; i++) {
        parts[i] = simulation_device(f->sim, devices[i]);
    }
    simulation_set_together(f->sim, true);
    return n > 1 ? model_devices_open_parts(&f->m.devices, f->m.model, parts, n, simulation_device(f->sim, 0), error)
                 : model_fail(error, "a split by tensors requires at least two devices");
}

// Adds the bytes allocated since the last call to the field at byte offset `at` of each prediction_device.
static void allocated_bytes_add(struct predicting *f, size_t at) {
    for (int i = 0; i < f->cluster->n_devices; i++) {
        struct prediction_device *d = &f->out->devices[i];
        *(uint64_t *) ((char *) d + at) += simulation_bytes(f->sim, i) - (prediction_bytes(d) - d->work);
    }
}

static bool model_reserve(struct predicting *f, const struct session_params *params, struct model_error *error) {
    if (!model_place(f->m.model, &f->m.devices, false, NULL, NULL, error)) {
        return false;
    }
    allocated_bytes_add(f, offsetof(struct prediction_device, weights));
    f->m.session = session_new(f->m.model, &f->m.devices, params, error);
    if (f->m.session == NULL) {
        return false;
    }
    allocated_bytes_add(f, offsetof(struct prediction_device, cache));
    if (!session_reserve(f->m.session, error)) {
        return false;
    }
    allocated_bytes_add(f, offsetof(struct prediction_device, compute));
    return true;
}

// Adds the pages of the mapped file and the work memory of backends, which are not in simulated buffers.
static void other_bytes_add(struct predicting *f, bool by_tensor) {
    const struct session *s = f->m.session;
    const int host = s->devices->n - 1, n = f->cluster->n_devices;
    f->out->devices[0].weights += f->m.model->parts[host].is_mapped ? f->m.model->parts[host].size : 0;
    f->out->devices[0].work += s->memory[host].work;
    if (!by_tensor) {
        for (int i = 1; i < n; i++) {
            f->out->devices[i].work += s->memory[i - 1].work;
        }
        return;
    }
    const size_t n_parts = ggml_backend_meta_n_backends(s->devices->backend[0]);
    for (size_t j = 0; j < n_parts; j++) {
        ggml_backend_dev_t dev = ggml_backend_get_device(ggml_backend_meta_simple_backend(s->devices->backend[0], j));
        for (int i = 0; i < n; i++) {
            f->out->devices[i].work += simulation_device(f->sim, i) == dev ? s->memory[0].work / n_parts : 0;
        }
    }
}

static void memory_check(struct predicting *f) {
    f->out->fits = true;
    for (int i = f->cluster->n_devices - 1; i >= 0; i--) {
        if (prediction_bytes(&f->out->devices[i]) > f->cluster->devices[i].memory) {
            f->out->fits = false;
            f->out->full = i;
        }
    }
}

// Measures the simulated seconds of a batch of n tokens from position `at`. The batch runs twice. The second run counts, because
// its graph is in the graph cache.
static bool tokens_time(struct predicting *f, int64_t at, int64_t n, double *seconds, struct model_error *error) {
    struct session *s = f->m.session;
    int32_t *tokens = berth_calloc((size_t) n, sizeof *tokens);
    if (tokens == NULL) {
        return model_fail(error, "out of memory for the tokens");
    }
    bool ok = true;
    for (int k = 0; ok && k < 2; k++) {
        s->n_past = at;
        simulation_clock_start(f->sim);
        ok = session_decode(s, tokens, n, error);
        *seconds = simulation_clock_now(f->sim);
    }
    berth_free(tokens);
    return ok;
}

static bool model_run(struct predicting *f, const struct model_options *o, struct model_error *error) {
    const struct session_params params = workbench_session_params(o);
    if (!(o->by_tensor ? by_tensors_open : by_layers_open)(f, error) || !model_reserve(f, &params, error)) {
        return false;
    }
    other_bytes_add(f, o->by_tensor);
    memory_check(f);
    const int64_t n_ctx = f->m.session->params.n_ctx, n_batch = f->m.session->params.n_batch;
    double prefill_s = 0, decode_s = 0;
    const bool ok = tokens_time(f, 0, n_batch, &prefill_s, error) && tokens_time(f, n_ctx / 2, 1, &decode_s, error);
    f->out->n_ctx = n_ctx;
    f->out->n_batch = n_batch;
    f->out->prefill = prefill_s > 0 ? (double) n_batch / prefill_s : 0;
    f->out->decode = decode_s > 0 ? 1 / decode_s : 0;
    return ok;
}

bool cluster_predict(
    const struct cluster *c, const char *path, const struct model_options *o, struct prediction *out, struct model_error *error) {
    struct model_error why = {""};
    *out = (struct prediction){.full = -1};
    out->devices = berth_calloc((size_t) c->n_devices, sizeof *out->devices);
    struct predicting f = {.cluster = c, .out = out, .sim = simulation_new(c)};
    if (f.sim == NULL || out->devices == NULL) {
        simulation_free(f.sim);
        return model_fail(error, "out of memory for %d devices", c->n_devices);
    }
    f.m.model = model_open(path, error);
    const bool ok = f.m.model != NULL;
    if (ok) {
        out->is_known = model_run(&f, o, &why);
        snprintf(out->why, sizeof out->why, "%s", why.text);
    }
    workbench_close(&f.m);
    simulation_free(f.sim);
    return ok;
}

void prediction_fini(struct prediction *p) {
    berth_free(p->devices);
    p->devices = NULL;
}

// ---- choosing ----

bool cluster_predict_ways(const struct cluster *c, const char *path, const struct model_options *o,
    struct prediction ways[CLUSTER_N_WAYS], struct model_error *error) {
    bool ok = true;
    for (int w = 0; w < CLUSTER_N_WAYS; w++) {
        struct model_options own = *o;
        own.by_tensor = w == CLUSTER_TENSOR;
        ways[w] = (struct prediction){0};
        if (ok) {
            ok = cluster_predict(c, path, &own, &ways[w], error);
        }
    }
    return ok;
}

int prediction_best(const struct prediction ways[CLUSTER_N_WAYS]) {
    int best = -1;
    for (int w = 0; w < CLUSTER_N_WAYS; w++) {
        if (ways[w].is_known && ways[w].fits && (best < 0 || ways[w].decode > ways[best].decode)) {
            best = w;
        }
    }
    return best;
}

// Returns the number of GPUs, which include the devices of other ranks.
static size_t gpu_count(void) {
    size_t n = 0;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        n += ggml_backend_dev_type(ggml_backend_dev_get(i)) == GGML_BACKEND_DEVICE_TYPE_GPU;
    }
    return n;
}

static bool ways_compare(
    const struct cluster *c, const char *path, struct model_options *o, char text[128], struct model_error *error) {
    struct prediction ways[CLUSTER_N_WAYS];
    const bool ok = cluster_predict_ways(c, path, o, ways, error);
    if (ok) {
        o->by_tensor = prediction_best(ways) == CLUSTER_TENSOR;
        snprintf(text, 128, "--split %s: predicted decode speed %.1f tokens/s by layers, %.1f tokens/s by tensors",
            o->by_tensor ? "tensor" : "layer", ways[CLUSTER_LAYER].decode, ways[CLUSTER_TENSOR].decode);
    }
    prediction_fini(&ways[CLUSTER_LAYER]);
    prediction_fini(&ways[CLUSTER_TENSOR]);
    return ok;
}

bool cluster_choose(
    const char *path, struct model_options *o, const struct work_watch *watch, char text[128], struct model_error *error) {
    struct cluster_measure_params params = {.n_threads = o->n_threads, .seconds = CHOOSE_SECONDS, .watch = *watch};
    struct cluster c;
    text[0] = '\0';
    o->by_best = o->by_tensor = false;
    ggml_backend_load_all();
    if (gpu_count() == 0 || o->device != NULL || o->by_llama || !model_is_native(path, false)) {
        return true;
    }
    struct model *model = model_open(path, error);
    if (model == NULL) {
        return false;
    }
    cluster_measure_params_set_model(&params, model);
    model_free(model);
    if (!cluster_measure(&c, &params, error)) {
        return false;
    }
    const bool ok = ways_compare(&c, path, o, text, error);
    cluster_fini(&c);
    return ok;
}
