// SPDX-License-Identifier: MIT
// workbench.c: finds, opens and places a model for a program.

#include "model/workbench.h"
#include "model/vocab.h"

#include <dlfcn.h>
#include <errno.h>
#ifdef __GLIBC__
#    include <malloc.h>
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define SHIPPED "tales-q8_0.gguf"

void work_progress(const struct work_watch *watch, const char *what, uint64_t done, uint64_t all, const char *fmt, ...) {
    char text[128];
    va_list args;
    if (watch->progress != NULL) {
        va_start(args, fmt);
        vsnprintf(text, sizeof text, fmt, args);
        va_end(args);
        watch->progress(what, done, all, text, watch->user);
    }
}

bool work_is_stopped(const struct work_watch *watch) {
    return watch->is_stopped != NULL && watch->is_stopped(watch->user);
}

static bool shipped_find_at(const char *file, const char *const *places, char path[4096]) {
    const char *slash = strrchr(file, '/');
    for (size_t i = 0; slash != NULL && places[i] != NULL; i++) {
        const int size = snprintf(path, 4096, "%.*s/%s/" SHIPPED, (int) (slash - file), file, places[i]);
        if (size > 0 && size < 4096 && access(path, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

// All paths are relative to the folder of the program or of the library libberth, because the installation may be moved.
static bool shipped_find(char path[4096]) {
    static const char *const from_program[] = {BERTH_MODELS, "../models", NULL};
    static const char *const from_library[] = {BERTH_MODELS_LIB, "../models", "../../models", NULL};
    char program[4096];
    Dl_info info;
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n > 0) {
        program[n] = '\0';
        if (shipped_find_at(program, from_program, path)) {
            return true;
        }
    }
    return dladdr(from_library, &info) != 0 && info.dli_fname != NULL && shipped_find_at(info.dli_fname, from_library, path);
}

bool workbench_path(const struct model_options *o, char path[4096], struct model_error *error) {
    if (o->path == NULL) {
        return shipped_find(path) || model_fail(error, "the shipped model was not found at %s: %s", path, strerror(errno));
    }
    snprintf(path, 4096, "%s", o->path);
    return access(path, R_OK) == 0 || model_fail(error, "%s: cannot be read: %s", path, strerror(errno));
}

struct model *workbench_model(const char *path, const struct model_options *o, struct model_error *error) {
    if (!o->by_llama && (!o->may_llama || model_is_native(path, o->is_pool))) {
        return (o->no_mmap ? model_open_read : model_open)(path, error);
    }
    struct model_error why = {""};
    struct model *model = model_open_llama(path, o->no_mmap, &why);
    if (model == NULL && !o->by_llama) { // the message begins with the reason why Berth cannot run the model
        struct model *native = model_open(path, error);
        if (native != NULL) {
            model_fail(error, "%s: several sequences of architecture '%s' require libllama", path, native->params.arch);
        }
        model_free(native);
    }
    if (model == NULL) {
        const size_t n = strlen(error->text);
        snprintf(error->text + n, sizeof error->text - n, "%s%s", n > 0 ? "; " : "", why.text);
    }
    return model;
}

static bool devices_open(struct workbench *w, const struct model_options *o, struct model_error *error) {
    if (!o->by_tensor) {
        return model_devices_open(&w->devices, o->device, (int) o->n_threads, error);
    }
    if (!w->model->engine->can_split) {
        return model_fail(error, "--split tensor is not supported for models that %s runs", w->model->engine->name);
    }
    return model_devices_open_split(&w->devices, w->model, o->device, (int) o->n_threads, error);
}

static bool model_load(struct workbench *w, const struct model_options *o, struct model_error *error) {
    w->model = workbench_model(w->path, o, error);
    if (w->model == NULL || !devices_open(w, o, error)) {
        return false;
    }
    w->devices.n_host = o->n_host;
    w->devices.n_host_experts = o->n_host_experts;
    if (o->set_limits != NULL && !o->set_limits(&w->devices, o->set_limits_user)) {
        return model_fail(error, "out of memory for the memory limits of devices");
    }
    return model_place(w->model, &w->devices, o->plan_only, o->progress, o->progress_user, error);
}

bool workbench_open(struct workbench *w, const struct model_options *o, struct model_error *error) {
    *w = (struct workbench){0};
    if (!workbench_path(o, w->path, error)) {
        return false;
    }
    ggml_backend_load_all();
    if (!model_load(w, o, error)) {
        workbench_close(w);
        return false;
    }
    return true;
}

bool lora_parse(const char *text, char path[4096], float *scale, struct model_error *error) {
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    const float x = colon != NULL ? strtof(colon + 1, &end) : 1;
    *scale = 1;
    snprintf(path, 4096, "%s", text);
    // A number after the colon is the scale, unless a file with the complete name exists.
    if (colon != NULL && end != colon + 1 && *end == '\0' && access(text, R_OK) != 0) {
        snprintf(path, 4096, "%.*s", (int) (colon - text), text);
        *scale = x;
    }
    if (!isfinite(*scale)) {
        return model_fail(error, "%s: the scale of the adapter is not a finite number", text);
    }
    return access(path, R_OK) == 0 || model_fail(error, "%s: cannot be read: %s", path, strerror(errno));
}

bool workbench_lora_add(struct workbench *w, const char *text, struct model_error *error) {
    char path[4096];
    float scale;
    if (!lora_parse(text, path, &scale, error)) {
        return false;
    }
    if (!w->model->engine->can_lora) {
        return model_fail(
            error, "%s: adapters require a model that Berth runs itself, but %s runs this model", path, w->model->engine->name);
    }
    return model_lora_add(w->model, &w->devices, path, scale, error);
}

bool workbench_vocab_open(struct workbench *w, struct model_error *error) {
    struct model_error why = {""};
    w->vocab = vocab_of_model(w->model, &why);
    return w->vocab != NULL || model_fail(error, "%s: %s", w->path, why.text);
}

static bool type_find(const char *name, size_t size, enum ggml_type *out) {
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        const char *type = ggml_type_name((enum ggml_type) i);
        if (ggml_blck_size((enum ggml_type) i) > 0 && strlen(type) == size && strncasecmp(name, type, size) == 0) {
            *out = (enum ggml_type) i;
            return true;
        }
    }
    return false;
}

bool workbench_cache_type(struct model_options *o, const char *text) {
    const size_t n = strcspn(text, ",");
    const char *second = text[n] == ',' ? text + n + 1 : text;
    o->has_cache_type = true;
    return type_find(text, n, &o->cache_k) && type_find(second, strlen(second), &o->cache_v);
}

struct session_params workbench_session_params(const struct model_options *o) {
    return (struct session_params){.n_ctx = o->n_ctx,
        .n_batch = o->n_batch,
        .cache_k = o->has_cache_type ? o->cache_k : GGML_TYPE_F16,
        .cache_v = o->has_cache_type ? o->cache_v : GGML_TYPE_F16,
        .plan_only = o->plan_only,
        .all_outputs = o->all_outputs,
        .compute_limit = o->compute_limit,
        .no_resident = o->no_resident,
        .is_embedding = o->is_embedding};
}

bool workbench_session_open(struct workbench *w, const struct model_options *o, struct model_error *error) {
    const struct session_params params = workbench_session_params(o);
    struct model_error why = {""};
    w->session = session_new(w->model, &w->devices, &params, &why);
    if (w->session == NULL || !session_reserve(w->session, &why)) {
        return model_fail(error, "%s: %s", w->path, why.text);
    }
#ifdef __GLIBC__
    malloc_trim(0); // return the memory that loading and planning used; from here on memory use is constant
#endif
    return true;
}

void workbench_close(struct workbench *w) {
    session_free(w->session);
    vocab_free(w->vocab);
    model_free(w->model);
    model_devices_close(&w->devices);
    w->session = NULL;
    w->vocab = NULL;
    w->model = NULL;
}
