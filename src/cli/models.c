// SPDX-License-Identifier: MIT
// models.c: opening models for the commands, and what to say of their memory.

#include "cli/models.h"

#include "cli/help.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#ifdef __GLIBC__
#    include <malloc.h>
#endif
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define SHIPPED "tales-q8_0.gguf"

// ---- options ----

static bool number(const char *command, const char *name, const char *value, int64_t max, int64_t *out, int *code) {
    *code = cli_parse_int(value, 1, max, out)
                ? CLI_OK
                : cli_usage(command, "--%s '%s' is not a number from 1 to %" PRId64, name, value, max);
    return true;
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

// "q8_0" for keys and values, "q8_0,f16" for each. Whether a device can do with such a cache is found when there is one.
static bool cache_type(const char *command, const char *value, struct cli_model_options *o, int *code) {
    const char *comma = strchr(value, ','), *second = comma != NULL ? comma + 1 : value;
    o->has_cache_type = true;
    *code = type_find(value, comma != NULL ? (size_t) (comma - value) : strlen(value), &o->cache_k) &&
                    type_find(second, strlen(second), &o->cache_v)
                ? CLI_OK
                : cli_usage(command, "--cache-type '%s' is no type such as f16 or q8_0, nor two such as q8_0,f16", value);
    return true;
}

// llama.cpp counts layers; here they go where they fit, so that there is none or all.
static int gpu_layers(const char *command, const char *value, struct cli_model_options *o) {
    int64_t n;
    if (cli_parse_int(value, 0, 0, &n)) {
        o->device = "CPU";
        return CLI_OK;
    }
    return cli_parse_int(value, 99, INT32_MAX, &n) || strcmp(value, "-1") == 0 || strcmp(value, "all") == 0 ||
                   strcmp(value, "auto") == 0
               ? CLI_OK
               : cli_usage(command, "--gpu-layers '%s': layers go where they fit; 0 is the CPU alone, 99 all that fit", value);
}

static int split_how(const char *command, const char *value, struct cli_model_options *o) {
    o->by_tensor = strcmp(value, "tensor") == 0;
    o->by_best = strcmp(value, "auto") == 0;
    return o->by_tensor || o->by_best || strcmp(value, "layer") == 0
               ? CLI_OK
               : cli_usage(command, "--split '%s' is none of layer, tensor, auto", value);
}

bool cli_model_option(const char *command, int c, const char *value, struct cli_model_options *o, int *code) {
    switch (c) {
        case 'c':
            if (strpbrk(value, "KMGTkmgtB") != NULL && strcmp(command, "plan") == 0) { // the capacity once
                *code = cli_usage(command, "-c '%s': -c is the context; the bytes are --capacity %s", value, value);
                return true;
            }
            return number(command, "ctx", value, INT32_MAX, &o->n_ctx, code);
        case 'b': return number(command, "batch", value, INT32_MAX, &o->n_batch, code);
        case 't': return number(command, "threads", value, 1024, &o->n_threads, code);
        case CLI_CACHE_TYPE: return cache_type(command, value, o, code);
        case CLI_SPLIT: *code = split_how(command, value, o); return true;
        case CLI_GPU_LAYERS: *code = gpu_layers(command, value, o); return true;
        case CLI_NO_MMAP:
            o->no_mmap = true;
            *code = CLI_OK;
            return true;
        case CLI_LLAMA:
            o->by_llama = true;
            *code = CLI_OK;
            return true;
        case 'm':
            o->path = value;
            *code = CLI_OK;
            return true;
        case 'd':
            o->device = value;
            *code = CLI_OK;
            return true;
        default: return false;
    }
}

int cli_model_file(const char *command, int argc, char **argv, struct cli_model_options *o) {
    const int n = argc - optind + (o->path != NULL);
    if (n > 1) {
        return cli_usage(command, "'%s' is one file too many", argv[argc - 1]);
    }
    o->path = optind < argc ? argv[optind] : o->path;
    return -1;
}

// ---- Ctrl-C ----

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number) {
    interrupted = 1;
    signal(number, cli_output_stop);
}

void cli_catch_interrupt(void) {
    const struct sigaction action = {.sa_handler = on_interrupt}; // who waits for a line is woken
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool cli_is_interrupted(void *unused) {
    (void) unused;
    return interrupted != 0;
}

void cli_interrupt_clear(void) {
    interrupted = 0;
    cli_catch_interrupt();
}

// ---- opening ----

// Both places are given from the program's own folder, which may be moved: where the model is installed, and the link of a build
// folder.
static bool shipped_find(char path[4096]) {
    static const char *const places[] = {BERTH_MODELS, "../models"};
    char program[4096];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) {
        return false;
    }
    program[n] = '\0';
    *strrchr(program, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const int size = snprintf(path, 4096, "%s/%s/" SHIPPED, program, places[i]);
        if (size > 0 && size < 4096 && access(path, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

static bool show_progress(size_t done, size_t all, void *user_data) {
    (void) user_data;
    char text[2][32];
    cli_progress("loading", done, all, "%s of %s", cli_short_bytes(done, text[0]), cli_short_bytes(all, text[1]));
    return !cli_is_interrupted(NULL);
}

static bool devices_open(struct cli_model *m, const struct cli_model_options *o, struct model_error *error) {
    if (o->by_tensor && m->model->llama != NULL) {
        return model_fail(error, "--split tensor: a model that libllama runs is not shared out so");
    }
    return o->by_tensor ? model_devices_open_split(&m->devices, m->model, o->device, (int) o->n_threads, error)
                        : model_devices_open(&m->devices, o->device, (int) o->n_threads, error);
}

// libllama ends the process where it finds itself wrong.
static void on_abort(const char *message) {
    cli_fail(CLI_FAILURE, "libllama gave up: %s", message);
    _exit(CLI_FAILURE);
}

struct model *cli_model_choose(const char *path, const struct cli_model_options *o, struct model_error *error) {
    if (!o->by_llama && (!o->may_llama || model_is_native(path))) {
        return (o->no_mmap ? model_open_read : model_open)(path, error);
    }
    struct model_error why = {""};
    struct model *model = model_open_llama(path, o->no_mmap, &why);
    if (model == NULL && !o->by_llama) { // what Berth says of it comes first
        model_free(model_open(path, error));
    }
    ggml_set_abort_callback(on_abort);
    if (model == NULL) {
        const size_t n = strlen(error->text);
        snprintf(error->text + n, sizeof error->text - n, "%s%s", n > 0 ? "; " : "", why.text);
    }
    return model;
}

int cli_model_path(const struct cli_model_options *o, char path[4096]) {
    if (o->path != NULL) {
        snprintf(path, 4096, "%s", o->path);
        if (access(path, R_OK) != 0) {
            return cli_fail(CLI_FAILURE, "%s: cannot be read: %s", path, strerror(errno));
        }
    } else if (!shipped_find(path)) {
        return cli_fail(CLI_FAILURE, "the shipped model is not at %s: %s", path, strerror(errno));
    } else {
        cli_input_add(path, CLI_READ);
    }
    return CLI_OK;
}

int cli_model_open(struct cli_model *m, const struct cli_model_options *o) {
    struct model_error error = {""};
    *m = (struct cli_model){0};
    const int code = cli_model_path(o, m->path);
    if (code != CLI_OK) {
        return code;
    }
    ggml_backend_load_all();
    m->model = cli_model_choose(m->path, o, &error);
    const bool show = isatty(STDERR_FILENO) && !o->plan_only;
    bool ok = m->model != NULL && devices_open(m, o, &error);
    m->devices.n_host = o->n_host;
    ok = ok && (o->rooms == NULL || o->rooms(&m->devices, o->rooms_user) || model_fail(&error, "out of memory for limits")) &&
         model_place(m->model, &m->devices, o->plan_only, show ? show_progress : NULL, NULL, &error);
    cli_progress_end();
    if (!ok) {
        cli_model_close(m);
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    cli_model_warn(m->model, o);
    return CLI_OK;
}

int cli_lora_parse(const char *text, char path[4096], float *scale) {
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    const float x = colon != NULL ? strtof(colon + 1, &end) : 1;
    *scale = 1;
    snprintf(path, 4096, "%s", text);
    if (colon != NULL && end != colon + 1 && *end == '\0' && access(text, R_OK) != 0) { // else the colon is part of a name
        snprintf(path, 4096, "%.*s", (int) (colon - text), text);
        *scale = x;
    }
    if (!isfinite(*scale)) {
        return cli_fail(CLI_FAILURE, "%s: the adapter's scale is no number", text);
    }
    return access(path, R_OK) == 0 ? CLI_OK : cli_fail(CLI_FAILURE, "%s: cannot be read: %s", path, strerror(errno));
}

int cli_model_lora(struct cli_model *m, const char *text) {
    struct model_error error = {""};
    char path[4096];
    float scale;
    const int code = cli_lora_parse(text, path, &scale);
    if (code != CLI_OK) {
        return code;
    }
    if (m->model->llama != NULL) {
        return cli_fail(CLI_FAILURE, "%s: adapters are for models that Berth runs itself, and this one libllama runs", path);
    }
    return model_lora_add(m->model, &m->devices, path, scale, &error) ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text);
}

void cli_model_warn(const struct model *model, const struct cli_model_options *o) {
    if (o->n_ctx > model->params.n_ctx_train) {
        cli_warn("a context of %" PRId64 " positions, and the model was trained for %" PRId64
                 ": what it says beyond them is worth little",
            o->n_ctx, model->params.n_ctx_train);
    }
}

struct session_params cli_model_params(const struct cli_model_options *o) {
    return (struct session_params){.n_ctx = o->n_ctx,
        .n_batch = o->n_batch,
        .cache_k = o->has_cache_type ? o->cache_k : GGML_TYPE_F16,
        .cache_v = o->has_cache_type ? o->cache_v : GGML_TYPE_F16,
        .plan_only = o->plan_only,
        .all_outputs = o->all_outputs,
        .compute = o->compute,
        .is_embedding = o->is_embedding};
}

int cli_model_session(struct cli_model *m, const struct cli_model_options *o) {
    struct model_error error = {""};
    const struct session_params params = cli_model_params(o);
    m->session = session_new(m->model, &m->devices, &params, &error);
    if (m->session == NULL || !session_reserve(m->session, &error)) {
        return cli_fail(CLI_FAILURE, "%s: %s", m->path, error.text);
    }
#ifdef __GLIBC__
    malloc_trim(0); // what loading and planning took is given back: from here on memory stays as it is
#endif
    return CLI_OK;
}

void cli_model_close(struct cli_model *m) {
    session_free(m->session);
    model_free(m->model);
    model_devices_close(&m->devices);
    m->session = NULL;
    m->model = NULL;
}

// ---- memory ----

static bool has_memory(const struct session_memory *x) {
    return x->weights + x->cache + x->compute + x->work > 0;
}

void cli_model_memory(FILE *file, const struct cli_model *m) {
    char text[5][32];
    for (int d = 0; d < m->devices.n; d++) {
        const struct session_memory *x = &m->session->memory[d];
        if (has_memory(x)) {
            fprintf(file, "; %s: weights %s, cache %s, compute %s (bound %s, gap %.2f%%), work %s",
                ggml_backend_dev_name(m->devices.dev[d]), cli_short_bytes(x->weights, text[0]),
                cli_short_bytes(x->cache, text[1]), cli_short_bytes(x->compute, text[2]),
                cli_short_bytes(x->report.bound, text[3]), 100 * x->report.gap, cli_short_bytes(x->work, text[4]));
        }
    }
}

void cli_model_memory_json(FILE *file, const struct cli_model *m) {
    const char *between = "";
    fputc('[', file);
    for (int d = 0; d < m->devices.n; d++) {
        const struct session_memory *x = &m->session->memory[d];
        if (has_memory(x)) {
            fprintf(file, "%s{\"device\": ", between);
            cli_json_text(file, ggml_backend_dev_name(m->devices.dev[d]));
            fprintf(file,
                ", \"weights\": %zu, \"cache\": %zu, \"compute\": %zu, \"work\": %zu, \"bound\": %" PRIu64
                ", \"gap\": %.6f, \"proven\": %s}",
                x->weights, x->cache, x->compute, x->work, x->report.bound, x->report.gap, x->report.proven ? "true" : "false");
            between = ", ";
        }
    }
    fputc(']', file);
}
