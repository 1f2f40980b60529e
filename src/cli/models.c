// SPDX-License-Identifier: MIT
// models.c: opens models for the commands, and prints their memory.

#include "cli/models.h"

#include "cli/help.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

// ---- options ----

// Parses "q8_0" for keys and values, or "q8_0,f16" for each. session_new checks whether the devices support the types.
int cli_model_cache_type(const struct cli_option *option, const char *command, const char *value, void *target) {
    struct model_options *o = target;
    (void) option;
    return workbench_cache_type(o, value)
               ? CLI_OK
               : cli_usage(
                     command, "--cache-type '%s' is neither a type such as f16 or q8_0 nor two types such as q8_0,f16", value);
}

// In llama.cpp, the value of --gpu-layers is a number of layers. Berth places as many layers as fit, so it accepts only 0 (none)
// or a number that means all layers.
int cli_model_gpu_layers(const struct cli_option *option, const char *command, const char *value, void *target) {
    struct model_options *o = target;
    int64_t n;
    (void) option;
    if (cli_parse_int(value, 0, 0, &n)) {
        o->device = "CPU";
        return CLI_OK;
    }
    return cli_parse_int(value, 99, INT32_MAX, &n) || strcmp(value, "-1") == 0 || strcmp(value, "all") == 0 ||
                   strcmp(value, "auto") == 0
               ? CLI_OK
               : cli_usage(command, "--gpu-layers '%s' is not supported: use 0 for the CPU only, or 99 for as many layers as fit",
                     value);
}

int cli_model_split(const struct cli_option *option, const char *command, const char *value, void *target) {
    struct model_options *o = target;
    int64_t word;
    const int code = cli_option_word(option, command, value, &word);
    o->by_tensor = word == 1;
    o->by_best = word == 2;
    return code;
}

// ---- Ctrl-C ----

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number) {
    interrupted = 1;
    signal(number, cli_output_stop);
}

static bool is_caught;

// flags: SA_RESTART, or 0 for signals that interrupt system calls.
static void interrupt_install(int flags) {
    const struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = flags};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void cli_catch_interrupt(void) {
    is_caught = true;
    interrupt_install(SA_RESTART);
}

void cli_interrupt_wake_reads(bool wake) {
    if (is_caught && !cli_is_interrupted(NULL)) {
        interrupt_install(wake ? 0 : SA_RESTART);
    }
}

bool cli_is_interrupted(void *unused) {
    (void) unused;
    return interrupted != 0;
}

static void watch_progress(const char *what, uint64_t done, uint64_t all, const char *text, void *user) {
    (void) user;
    cli_progress(what, done, all, "%s", text);
}

const struct work_watch cli_watch = {.progress = watch_progress, .is_stopped = cli_is_interrupted};

void cli_interrupt_clear(void) {
    interrupted = 0;
    cli_catch_interrupt();
}

// ---- opening ----

static bool show_progress(size_t done, size_t all, void *user_data) {
    (void) user_data;
    char text[2][32];
    cli_progress("loading", done, all, "%s of %s", cli_short_bytes(done, text[0]), cli_short_bytes(all, text[1]));
    return !cli_is_interrupted(NULL);
}

int cli_model_path(const struct model_options *o, char path[4096]) {
    struct model_error error = {""};
    if (!workbench_path(o, path, &error)) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    if (o->path == NULL) {
        cli_input_add(path, CLI_READ);
    }
    return CLI_OK;
}

int cli_model_open(struct workbench *m, const struct model_options *o) {
    struct model_error error = {""};
    struct model_options with_progress = *o;
    if (isatty(STDERR_FILENO) && !o->plan_only) {
        with_progress.progress = show_progress;
    }
    const bool ok = workbench_open(m, &with_progress, &error);
    cli_progress_end();
    if (!ok) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    if (o->path == NULL) {
        cli_input_add(m->path, CLI_READ);
    }
    cli_context_warn(o->n_ctx, m->model->params.n_ctx_train);
    return CLI_OK;
}

int cli_model_open_text(struct workbench *m, const struct model_options *o) {
    struct model_error error = {""};
    const int code = cli_model_open(m, o);
    if (code != CLI_OK || workbench_vocab_open(m, &error)) {
        return code;
    }
    workbench_close(m);
    return cli_fail(CLI_FAILURE, "%s", error.text);
}

int cli_model_lora(struct workbench *m, const char *text) {
    struct model_error error = {""};
    return workbench_lora_add(m, text, &error) ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text);
}

void cli_context_warn(int64_t n_ctx, int64_t n_ctx_train) {
    if (n_ctx > n_ctx_train) {
        cli_warn("the context of %" PRId64 " positions exceeds the %" PRId64
                 " positions of training; expect poor output beyond them",
            n_ctx, n_ctx_train);
    }
}

int cli_model_session(struct workbench *m, const struct model_options *o) {
    struct model_error error = {""};
    return workbench_session_open(m, o, &error) ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text);
}

// ---- memory ----

static bool has_memory(const struct session_memory *x) {
    return x->weights + x->cache + x->compute + x->work > 0;
}

void cli_model_memory(FILE *file, const struct workbench *m) {
    char text[5][32];
    for (int d = 0; d < m->devices.n; d++) {
        const struct session_memory *x = &m->session->memory[d];
        if (has_memory(x)) {
            fprintf(file, "%s: weights %s, cache %s, compute %s (bound %s, gap %.2f%%), work %s\n",
                ggml_backend_dev_name(m->devices.dev[d]), cli_short_bytes(x->weights, text[0]),
                cli_short_bytes(x->cache, text[1]), cli_short_bytes(x->compute, text[2]),
                cli_short_bytes(x->report.bound, text[3]), 100 * x->report.gap, cli_short_bytes(x->work, text[4]));
        }
    }
}

void cli_model_memory_json(struct berth_json_writer *w, const char *key, const struct workbench *m) {
    berth_json_begin(w, key, '[');
    for (int d = 0; d < m->devices.n; d++) {
        const struct session_memory *x = &m->session->memory[d];
        if (has_memory(x)) {
            berth_json_printf(w,
                "{'device': %s, 'weights': %zu, 'cache': %zu, 'compute': %zu, 'work': %zu, 'bound': %" PRIu64
                ", 'gap': %.6f, 'proven': %c}",
                ggml_backend_dev_name(m->devices.dev[d]), x->weights, x->cache, x->compute, x->work, x->report.bound,
                x->report.gap, x->report.proven);
        }
    }
    berth_json_end(w);
}
