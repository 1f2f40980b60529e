// SPDX-License-Identifier: MIT
// predict.c: a model over a cluster, on devices that exist on paper: opened, placed, reserved and run as `berth run`
// does it, a prompt and a token, by layers or by tensors. The bytes are those that the buffers would have.

#include "simulate/cluster.h"

#include "ggml-backend-impl.h"

#include <stdlib.h>
#include <string.h>

#define CHOOSE_SECONDS 8 // that --split auto measures, but for its first round

struct foretelling {
    const struct cluster *cluster;
    struct paper *paper;
    struct workbench m;
    struct foretold *out;
};

static bool by_layers_open(struct foretelling *f, struct model_error *error) {
    ggml_backend_dev_t *list = calloc((size_t) f->cluster->n_devices, sizeof(ggml_backend_dev_t));
    const int n = f->cluster->n_devices;
    for (int i = 0; list != NULL && i < n; i++) {
        list[i] = paper_device(f->paper, (i + 1) % n); // the program's CPU is the last
    }
    const bool ok = list != NULL ? model_devices_open_list(&f->m.devices, list, n, error)
                                 : model_fail(error, "out of memory for %d devices", n);
    free(list);
    return ok;
}

// As model/parallel.c chooses: all GPUs; where there are none, all CPUs.
static bool by_tensors_open(struct foretelling *f, struct model_error *error) {
    const struct cluster *c = f->cluster;
    ggml_backend_dev_t parts[GGML_BACKEND_META_MAX_DEVICES];
    int n = 0, n_gpus = 0;
    for (int i = 1; i < c->n_devices; i++) {
        n_gpus += !cluster_is_cpu(&c->devices[i]);
    }
    for (int i = 0; i < c->n_devices; i++) {
        if (i == 0 ? n_gpus > 0 : n_gpus > 0 && cluster_is_cpu(&c->devices[i])) {
            continue;
        }
        if (n == GGML_BACKEND_META_MAX_DEVICES) {
            return model_fail(error, "tensors are split over at most %d devices", GGML_BACKEND_META_MAX_DEVICES);
        }
        parts[n++] = paper_device(f->paper, i);
    }
    paper_set_together(f->paper, true);
    return n > 1 ? model_devices_open_parts(&f->m.devices, f->m.model, parts, n, paper_device(f->paper, 0), error)
                 : model_fail(error, "tensors are split over two devices or more");
}

// What the devices hold more than they did: into the field at `at` of each.
static void bytes_note(struct foretelling *f, size_t at) {
    for (int i = 0; i < f->cluster->n_devices; i++) {
        struct foretold_device *d = &f->out->devices[i];
        const uint64_t before = foretold_bytes(d);

        *(uint64_t *) ((char *) d + at) += paper_bytes(f->paper, i) - (before - d->work);
    }
}

static bool place(struct foretelling *f, struct model_error *error) {
    struct model *model = f->m.model;
    if (!model_place(model, &f->m.devices, false, NULL, NULL, error)) {
        return false;
    }
    bytes_note(f, offsetof(struct foretold_device, weights));
    return true;
}

static bool reserve(struct foretelling *f, const struct session_params *params, struct model_error *error) {
    f->m.session = session_new(f->m.model, &f->m.devices, params, error);
    if (f->m.session == NULL) {
        return false;
    }
    bytes_note(f, offsetof(struct foretold_device, cache));
    if (!session_reserve(f->m.session, error)) {
        return false;
    }
    bytes_note(f, offsetof(struct foretold_device, compute));
    return true;
}

// What has no buffers on paper: the file's own pages, and what backends take beside.
static void rest_note(struct foretelling *f, bool by_tensor) {
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
            f->out->devices[i].work += paper_device(f->paper, i) == dev ? s->memory[0].work / n_parts : 0;
        }
    }
}

static void look_for_full(struct foretelling *f) {
    f->out->fits = true;
    for (int i = f->cluster->n_devices - 1; i >= 0; i--) {
        if (foretold_bytes(&f->out->devices[i]) > f->cluster->devices[i].memory) {
            f->out->fits = false;
            f->out->full = i;
        }
    }
}

// Seconds of so many tokens at this position, when their graph is known.
static bool time_tokens(struct foretelling *f, int64_t at, int64_t n, double *seconds, struct model_error *error) {
    struct session *s = f->m.session;
    int32_t *tokens = calloc((size_t) n, sizeof *tokens);
    bool ok = tokens != NULL || model_fail(error, "out of memory for the tokens");
    for (int k = 0; ok && k < 2; k++) {
        s->n_past = at;
        paper_clock_start(f->paper);
        ok = session_decode(s, tokens, n, error);
        *seconds = paper_clock_now(f->paper);
    }
    free(tokens);
    return ok;
}

static bool run(struct foretelling *f, const struct model_options *o, struct model_error *error) {
    const struct session_params params = workbench_session_params(o);
    bool ok = o->by_tensor ? by_tensors_open(f, error) : by_layers_open(f, error);
    ok = ok && place(f, error) && reserve(f, &params, error);
    if (!ok) {
        return false;
    }
    rest_note(f, o->by_tensor);
    look_for_full(f);
    const int64_t n_ctx = f->m.session->params.n_ctx, n_batch = f->m.session->params.n_batch;
    double reading = 0, writing = 0;
    ok = time_tokens(f, 0, n_batch, &reading, error) && time_tokens(f, n_ctx / 2, 1, &writing, error);
    f->out->n_ctx = n_ctx;
    f->out->n_batch = n_batch;
    f->out->read = reading > 0 ? (double) n_batch / reading : 0;
    f->out->write = writing > 0 ? 1 / writing : 0;
    return ok;
}

int cluster_foretell(const struct cluster *c, const char *path, const struct model_options *o, struct foretold *out) {
    struct model_error error = {""};
    struct foretelling f = {.cluster = c, .out = out, .paper = paper_new(c)};

    *out = (struct foretold){.full = -1};
    out->devices = calloc((size_t) c->n_devices, sizeof *out->devices);
    if (f.paper == NULL || out->devices == NULL) {
        paper_free(f.paper);
        return cli_fail(CLI_FAILURE, "out of memory for %d devices", c->n_devices);
    }
    f.m.model = model_open(path, &error);
    const int code = f.m.model == NULL ? cli_fail(CLI_FAILURE, "%s", error.text) : CLI_OK;
    out->is_known = code == CLI_OK && run(&f, o, &error);
    snprintf(out->why, sizeof out->why, "%s", error.text);
    workbench_close(&f.m);
    paper_free(f.paper);
    return code;
}

void foretold_fini(struct foretold *f) {
    free(f->devices);
    f->devices = NULL;
}

// ---- choosing ----

static bool is_possible(const struct foretold *f) {
    return f->is_known && f->fits;
}

// How many devices there are to share a model among, beside the CPU.
static size_t n_others(void) {
    size_t n = 0;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        n += ggml_backend_dev_type(ggml_backend_dev_get(i)) == GGML_BACKEND_DEVICE_TYPE_GPU;
    }
    return n;
}

static int ways_try(const struct cluster *c, const char *path, struct model_options *o) {
    struct foretold ways[2] = {{0}};
    int code = CLI_OK;
    for (int w = 0; w < 2 && code == CLI_OK; w++) {
        o->by_tensor = w == 1;
        code = cluster_foretell(c, path, o, &ways[w]);
    }
    o->by_tensor = code == CLI_OK && is_possible(&ways[1]) && (!is_possible(&ways[0]) || ways[1].write > ways[0].write);
    if (code == CLI_OK && !cli_is_quiet()) {
        fprintf(stderr, "--split %s: %.1f tokens a second foretold by layers, %.1f by tensors\n",
            o->by_tensor ? "tensor" : "layer", ways[0].write, ways[1].write);
    }
    foretold_fini(&ways[0]);
    foretold_fini(&ways[1]);
    return code;
}

int cluster_choose(struct model_options *o) {
    bool wants[GGML_TYPE_COUNT] = {false};
    struct model_error error = {""};
    struct cluster c;
    char path[4096];
    int code = cli_model_path(o, path);
    ggml_backend_load_all();
    o->by_best = o->by_tensor = false;
    if (code != CLI_OK || n_others() == 0 || o->device != NULL || o->by_llama || !model_is_native(path)) {
        return code; // there is nothing to choose
    }
    struct model *model = model_open(path, &error);
    if (model == NULL) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    cluster_types(model, wants);
    const uint64_t size = cluster_size(model);
    model_free(model);
    code = cluster_measure(&c, wants, o->n_threads, size, CHOOSE_SECONDS);
    if (code == CLI_OK) {
        code = ways_try(&c, path, o);
        cluster_fini(&c);
    }
    return code;
}
