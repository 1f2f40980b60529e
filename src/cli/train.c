// SPDX-License-Identifier: MIT
// train.c: `berth train [MODEL] --data TEXT -o OUT`. A checkpoint replaces the previous one only when it is complete (output.c).

#include "train/train.h"
#include "base/json.h"
#include "base/min.h"
#include "cli/help.h"
#include "cli/models.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct options {
    struct model_options model;
    const char *data, *val, *out, *resume, *plot, *config;
    enum train_split split;
    int64_t n_epochs, save_every; // -1: not given
    struct train_params params;   // -1: not given, for integers and rates
    int64_t seed, optimizer, schedule;
    bool json;
    const struct berth_mpi_world *world; // NULL: no other ranks
};

// The initial value -1 means that the option is not given. Then the value of the checkpoint or the default is used.
#define COUNT(least, field) .kind = CLI_INT, .min = least, .max = (double) ((int64_t) 1 << 40), CLI_TO(struct options, field)
#define RATE(field) .kind = CLI_REAL, CLI_TO(struct options, field)
#define WORD(field) .kind = CLI_WORD, CLI_TO(struct options, field)
#define TEXT(field) CLI_TO(struct options, field)

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    CLI_OPTION(0, "data", "TEXT", "training text: a file, all files of a folder, or '-' for standard input", TEXT(data),
        .takes = "*", .use = CLI_READ),
    CLI_OPTION(0, "val", "TEXT", "validation text; its loss is printed at the start, at checkpoints and at the end", TEXT(val),
        .takes = "*", .use = CLI_READ),
    CLI_OPTION(0, "split", "WHERE", "what one text is: 'file' (default), 'line', or 'blank': the lines between two blank lines",
        WORD(split), .takes = "file line blank"),
    CLI_OPTION('o', "out", "OUT", "the file to write: the trained model or the adapter", TEXT(out), .takes = ".gguf"),
    CLI_OPTION(0, "lora", "RANK", "train an adapter of this rank instead of the weights, which may then have any type",
        COUNT(1, params.rank)),
    CLI_OPTION(0, "alpha", "X", "the adapter is scaled by alpha/rank (default: twice the rank)", RATE(params.alpha)),
    CLI_OPTION(0, "epochs", "N", "passes over the text (default 1)", COUNT(1, n_epochs)),
    CLI_OPTION(
        0, "steps", "N", "number of steps, instead of --epochs; 0: only compute the loss on --val", COUNT(0, params.n_steps)),
    CLI_OPTION(
        'b', "batch", "N", "sequences per step (default 8); with mpirun per rank", COUNT(1, params.n_seq), .also = "batch-size"),
    CLI_OPTION('c', "ctx", "N", "tokens per sequence (default: the model's context, at most 512)", COUNT(1, params.n_ctx),
        .also = "ctx-size"),
    CLI_OPTION(
        0, "lr", "X", "the highest learning rate (default 1e-4, for an adapter 2e-4, for a new model 1e-3)", RATE(params.lr)),
    CLI_OPTION(0, "schedule", "WORD", "schedule of the learning rate: cosine (default), linear, constant", WORD(schedule),
        .takes = "cosine linear constant"),
    CLI_OPTION(0, "warmup", "N", "warmup steps of the learning rate (default: a twentieth of all)", COUNT(0, params.n_warmup)),
    CLI_OPTION(0, "optimizer", "WORD", "adamw (default) or sgd", WORD(optimizer), .takes = "adamw sgd"),
    CLI_OPTION(0, "decay", "X", "weight decay per step, multiplied by the learning rate (default 0)", RATE(params.decay)),
    CLI_OPTION(0, "clip", "X", "clip the gradient to this norm, 0: off (default 1)", RATE(params.clip)),
    CLI_OPTION('s', "seed", "S", "seed for the order of texts and for random weights (default 1)", COUNT(0, seed)),
    CLI_OPTION(0, "save-every", "N", "write the checkpoint OUT.checkpoint every N steps and at the end", COUNT(1, save_every)),
    CLI_OPTION(0, "resume", "FILE", "resume from a checkpoint; its options apply unless others are given", TEXT(resume),
        .takes = ".checkpoint", .use = CLI_UPDATE),
    CLI_OPTION(0, "new", "CONFIG", "start from random weights with the sizes in CONFIG; MODEL supplies only the tokenizer",
        TEXT(config), .takes = "*", .use = CLI_READ),
    CLI_OPTION(0, "memory", "N",
        "memory limit in bytes for the trained values and the graphs of a step, kept by recomputing. N takes K, M, G, KiB, MiB, "
        "..., "
        "kB, MB, ...",
        .kind = CLI_SIZE, TEXT(params.memory)),
    CLI_OPTION(0, "plot", "FILE", "draw the losses as FILE.svg", TEXT(plot), .takes = ".svg"),
    CLI_OPT_THREADS,
    CLI_OPT_DEVICE,
    CLI_OPT_GPU_LAYERS,
    CLI_OPT_JSON(TEXT(json), "print one JSON object at the end: steps, losses, val, tokens, speed, memory"),
    {0},
};

const struct cli_help cli_train_help = {
    .command = "train",
    .what = "train a model or an adapter on a text",
    .operands = "[MODEL]",
    .takes = ".gguf",
    .n_operands = {0, 1, 1},
    .bases = {[CLI_IN_MODEL] = offsetof(struct options, model)},
    .about =
        "Trains a language model on a text, or with --lora an adapter for 'berth run --lora' and llama.cpp. All architectures of "
        "docs/user/models.md can be trained except mamba2 and models with experts; the weights must be f32, f16 or bf16, with "
        "--lora any type. A run that is stopped and resumed gives the same bits as an uninterrupted one. Ctrl-C stops after "
        "the current step and saves. A loss that is not finite stops it, too, before a weight changes. With mpirun the ranks "
        "share the work: each takes a part of every batch.",
    .options = option_rows,
    .size = sizeof(struct options),
    .initial = &(const struct options){.n_epochs = -1,
        .save_every = -1,
        .seed = -1,
        .optimizer = -1,
        .schedule = -1,
        .params = {.n_ctx = -1,
            .n_seq = -1,
            .n_steps = -1,
            .n_warmup = -1,
            .rank = -1,
            .alpha = -1,
            .lr = -1,
            .decay = -1,
            .clip = -1}},
    .examples = {{"Train an adapter", "train model.gguf --lora 8 --data text.txt -o lora.gguf"},
        {"Three epochs over the files of a folder, with a plot",
            "train m.gguf --data texts/ --epochs 3 -o tuned.gguf --plot loss.svg"},
        {"Resume", "train m.gguf --data texts/ -o out.gguf --resume out.gguf.checkpoint"}},
};

// ---- options ----

static int options_check(const struct options *o) {
    const bool is_only_validation = o->params.n_steps == 0;
    if (o->data == NULL && !(is_only_validation && o->val != NULL)) {
        return cli_usage("train", "missing option: --data TEXT");
    }
    if (o->out == NULL && !is_only_validation) {
        return cli_usage("train", "missing option: -o OUT");
    }
    if (o->config != NULL && (o->resume != NULL || o->params.rank > 0 || o->out == NULL)) {
        return cli_usage("train", "--new requires -o OUT and cannot be combined with --lora or --resume");
    }
    if (o->n_epochs > 0 && o->params.n_steps >= 0) {
        return cli_usage("train", "--epochs and --steps cannot be combined");
    }
    return CLI_OK;
}

// ---- parameters: the value of the option, else that of the checkpoint, else the default ----

static int n_ranks(const struct options *o) {
    return o->world != NULL ? o->world->n_ranks : 1;
}

// Refuses an option that differs from the checkpoint in a value that a resumed run cannot change.
static int params_check(const struct options *o, const struct train_params *p) {
    const struct train_params *given = &o->params;
    const bool differs =
        (given->n_ctx > 0 && given->n_ctx != p->n_ctx) || (given->n_seq > 0 && given->n_seq * n_ranks(o) != p->n_seq) ||
        (given->rank > 0 && given->rank != p->rank) || (given->alpha >= 0 && given->alpha != p->alpha) ||
        (o->seed >= 0 && (uint64_t) o->seed != p->seed) || (o->optimizer >= 0 && o->optimizer != (int64_t) p->optimizer);
    return differs
               ? cli_fail(CLI_FAILURE,
                     "%s: was trained with --ctx %" PRId64 " --batch %" PRId64 " (all ranks) --lora %" PRId64
                     " --alpha %g --seed %" PRIu64 " --optimizer %s, which cannot change",
                     o->resume, p->n_ctx, p->n_seq, p->rank, (double) p->alpha, p->seed, ggml_opt_optimizer_name(p->optimizer))
               : CLI_OK;
}

static struct train_params params_default(const struct options *o, const struct model *m) {
    const int64_t rank = max_i64(o->params.rank, 0);
    const float tuning_lr = rank > 0 ? 2e-4f : 1e-4f;
    return (struct train_params){.n_ctx = min_i64(m->params.n_ctx_train, 512),
        .n_seq = 8 * n_ranks(o),
        .n_steps = -1,
        .n_warmup = -1,
        .rank = rank,
        .alpha = 2 * (float) rank,
        .lr = o->config != NULL ? 1e-3f : tuning_lr,
        .clip = 1,
        .seed = 1};
}

// given_int and given_real set *x if the option was given. A negative value means that it was not given.
static void given_int(int64_t *x, int64_t value) {
    if (value >= 0) {
        *x = value;
    }
}

static void given_real(float *x, float value) {
    if (value >= 0) {
        *x = value;
    }
}

static int params_get(const struct options *o, const struct model *m, struct train_params *p) {
    struct model_error error = {""};
    *p = params_default(o, m);
    if (o->resume != NULL && !train_state_params(o->resume, p, NULL, &error)) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    const struct train_params *given = &o->params;
    const int code = o->resume != NULL ? params_check(o, p) : CLI_OK;
    if (o->n_epochs > 0) {
        p->n_steps = -1;
    }
    given_int(&p->n_ctx, given->n_ctx);
    given_int(&p->n_seq, given->n_seq * n_ranks(o));
    given_int(&p->n_steps, given->n_steps);
    given_int(&p->n_warmup, given->n_warmup);
    given_real(&p->alpha, given->alpha);
    given_real(&p->lr, given->lr);
    given_real(&p->decay, given->decay);
    given_real(&p->clip, given->clip);
    p->memory = given->memory;
    if (o->seed >= 0) {
        p->seed = (uint64_t) o->seed;
    }
    if (o->schedule >= 0) {
        p->schedule = (enum train_schedule) o->schedule;
    }
    if (o->optimizer >= 0) {
        p->optimizer = (enum ggml_opt_optimizer_type) o->optimizer;
    }
    p->world = o->world;
    return code;
}

// Sets the number of steps and of warmup steps, unless they are given.
static int length_set(const struct options *o, const struct train_data *data, struct train_params *p) {
    const int64_t n_epochs = o->n_epochs > 0 ? o->n_epochs : 1;
    int64_t n_windows;
    if (__builtin_mul_overflow(n_epochs, data->n_windows, &n_windows) || n_windows > INT64_MAX - p->n_seq) {
        return cli_fail(CLI_FAILURE, "too many steps: %" PRId64 " epochs of %" PRId64 " sequences", n_epochs, data->n_windows);
    }
    if (p->n_steps < 0) {
        p->n_steps = (n_windows + p->n_seq - 1) / p->n_seq;
    }
    if (p->n_warmup < 0) {
        p->n_warmup = p->n_steps / 20;
    }
    return CLI_OK;
}

// ---- other ranks ----

// All ranks run the same command. NULL: there is only one rank.
static const struct berth_mpi_world *world_find(void) {
    ggml_backend_load_all();
    const ggml_backend_reg_t mpi = ggml_backend_reg_by_name("MPI");
    const struct berth_mpi_world *world = mpi != NULL ? ggml_backend_reg_get_proc_address(mpi, "berth_mpi_world") : NULL;
    return world != NULL && world->n_ranks > 1 ? world : NULL;
}

// Returns the exit code of rank 0 on all ranks, because only rank 0 prints and writes files. Every rank must call this function.
static int code_broadcast(const struct options *o, int code) {
    return o->world == NULL || o->world->broadcast(&code, sizeof code, 0) ? code
                                                                          : cli_fail(CLI_FAILURE, "%s", berth_last_error());
}

static bool is_first(const struct options *o) {
    return o->world == NULL || o->world->rank == 0;
}

static const char *checkpoint_name(const struct options *o, char path[4096]) {
    snprintf(path, 4096, "%s.checkpoint", o->out);
    return path;
}

// Checks before the training that all output files can be written.
static int outputs_check(const struct options *o) {
    char checkpoint[4096];
    if (cli_output_check(o->out) != CLI_OK || cli_output_check(o->plot) != CLI_OK) {
        return CLI_FAILURE;
    }
    return o->out != NULL ? cli_update_check(checkpoint_name(o, checkpoint)) : CLI_OK;
}

// ---- a new model ----

// Writes a model with random weights to o->out, by the sizes in o->config (--new).
static int new_model_write(const struct options *o) {
    struct model_error error = {""};
    size_t size;
    struct berth_gguf_map *from = o->model.path != NULL ? berth_gguf_map_open(o->model.path, NULL) : NULL;
    if (from == NULL) {
        return o->model.path != NULL ? cli_fail(CLI_FAILURE, "%s", berth_last_error())
                                     : cli_usage("train", "--new requires a MODEL for its tokenizer");
    }
    char *text = cli_read_text(o->config, &size);
    FILE *file = text != NULL && outputs_check(o) == CLI_OK ? cli_open(o->out) : NULL;
    int code = CLI_FAILURE;
    if (file != NULL && train_new(text, berth_gguf_map_meta(from), o->seed >= 0 ? (uint64_t) o->seed : 1, file, &error)) {
        code = cli_close(file, o->out, true);
    } else if (file != NULL) {
        cli_drop(file);
        cli_fail(CLI_FAILURE, "%s: %s", o->config, error.text);
    }
    berth_free(text);
    berth_gguf_map_close(from);
    return code;
}

// ---- texts: a file, standard input, or all files of a folder in the order of their names ----

struct reading {
    enum train_split split;
    const struct vocab *vocab;
    struct train_data *data;
    size_t n_binary;         // number of files that are not text
    char first_binary[4096]; // path of the first file that is not text
};

// Returns whether the bytes are text: no NUL, and at most a tenth of the bytes is invalid UTF-8. Text in older encodings has some
// invalid bytes.
static bool is_text(const char *text, size_t size) {
    size_t n_bad = 0;
    uint32_t c;
    for (size_t i = 0, n; i < size; i += n) {
        n = utf8_next(text + i, size - i, &c);
        n_bad += n == 1 && c == 0xFFFD;
    }
    return memchr(text, '\0', size) == NULL && n_bad <= size / 10;
}

static int text_file_read(struct reading *r, const char *path) {
    struct model_error error = {""};
    size_t size = 0;
    char *text = cli_read_text(path, &size);
    if (text == NULL) {
        return CLI_FAILURE;
    }
    if (!is_text(text, size) && r->n_binary++ == 0) {
        snprintf(r->first_binary, sizeof r->first_binary, "%s", path);
    }
    const bool ok = train_data_add(r->data, r->vocab, text, size, r->split, &error);
    berth_free(text);
    return ok ? CLI_OK : cli_fail(CLI_FAILURE, "%s: %s", path, error.text);
}

static int is_shown(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static int text_folder_read(struct reading *r, const char *path) {
    struct dirent **entries;
    const int n = scandir(path, &entries, is_shown, alphasort);
    int code = n < 0 ? cli_fail(CLI_FAILURE, "%s: cannot be read: %s", path, strerror(errno)) : CLI_OK;
    for (int i = 0; i < n; i++) {
        char name[4096];
        struct stat st;
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        if (stat(name, &st) == 0 && S_ISREG(st.st_mode) && code == CLI_OK) { // subfolders are ignored
            code = text_file_read(r, name);
        }
        free(entries[i]);
    }
    if (n >= 0) {
        free(entries);
    }
    return code;
}

// Reads a file, a folder or standard input into `data`. Warns of files that are not text. On failure prints a message and returns
// the exit code.
static int texts_read(const struct options *o, const char *path, const struct vocab *vocab, struct train_data *data) {
    struct reading r = {.split = o->split, .vocab = vocab, .data = data};
    struct stat st;
    const bool is_folder = strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    const int code = is_folder ? text_folder_read(&r, path) : text_file_read(&r, path);
    if (code != CLI_OK || !is_first(o)) {
        return code;
    }
    if (r.n_binary == 1) {
        cli_warn("%s: looks like binary data, not UTF-8 text; the model is trained on its bytes", r.first_binary);
    } else if (r.n_binary > 1) {
        cli_warn("%s and %zu other files look like binary data, not UTF-8 text; the model is trained on their bytes",
            r.first_binary, r.n_binary - 1);
    }
    return code;
}

// ---- the run ----

#define LOG_PERIOD_US 10000000 // between two lines of a log

struct run {
    const struct options *o;
    struct trainer *t;
    struct train_data *data;
    const struct train_data *val; // NULL: none
    char checkpoint[4096];
    int64_t n_saved;                 // steps in the checkpoint; -1: there is none
    int64_t first;                   // number of steps that earlier runs did
    size_t first_validation;         // number of validation losses of earlier runs, possibly on another text
    int64_t start_us, validation_us; // start of the run; time spent on validation
    int64_t printed_us;              // time of the last line if standard error is not a terminal
};

// ---- files ----

static int checkpoint_save(struct run *r) {
    struct model_error error = {""};
    FILE *file = cli_open_update(r->checkpoint);
    if (file == NULL) {
        return CLI_FAILURE;
    }
    const int code = cli_close_why(file, r->checkpoint, train_state_write(r->t, r->data, file, &error), error.text);
    if (code == CLI_OK) {
        r->n_saved = r->t->n_done;
    }
    return code;
}

static int result_save(struct run *r) {
    struct model_error error = {""};
    FILE *file = r->o->out != NULL ? cli_open(r->o->out) : NULL;
    if (file == NULL) {
        return r->o->out != NULL ? CLI_FAILURE : CLI_OK;
    }
    return cli_close_why(file, r->o->out, train_save(r->t, file, &error), error.text);
}

static int plot_save(struct run *r) {
    FILE *file = r->o->plot != NULL ? cli_open(r->o->plot) : NULL;
    if (file == NULL) {
        return r->o->plot != NULL ? CLI_FAILURE : CLI_OK;
    }
    return cli_close(file, r->o->plot, train_plot_write(r->t, file));
}

// Rank 0 calls save. All ranks return the exit code of rank 0.
static int save_on_first_rank(struct run *r, int (*save)(struct run *r)) {
    return code_broadcast(r->o, is_first(r->o) ? save(r) : CLI_OK);
}

// ---- progress ----

// Returns the tokens that this run has trained on.
static int64_t tokens_of(const struct run *r) {
    return (r->t->n_done - r->first) * r->t->params.n_seq * r->t->params.n_ctx;
}

static double speed_of(const struct run *r) {
    const int64_t us = ggml_time_us() - r->start_us - r->validation_us;
    return us > 0 ? 1e6 * (double) tokens_of(r) / (double) us : 0;
}

static const char *duration_text(double seconds, char text[32]) {
    const int64_t s = (int64_t) seconds;
    if (s >= 3600) {
        snprintf(text, 32, "%" PRId64 ":%02d:%02d", s / 3600, (int) (s / 60 % 60), (int) (s % 60));
    } else {
        snprintf(text, 32, "%d:%02d", (int) (s / 60), (int) (s % 60));
    }
    return text;
}

// Returns whether to print a log line now: at most one line per LOG_PERIOD_US. A terminal gets no lines, because it shows a
// progress bar.
static bool is_log_time(struct run *r) {
    const int64_t now_us = ggml_time_us();
    if (cli_is_quiet() || isatty(STDERR_FILENO) || now_us < r->printed_us + LOG_PERIOD_US) {
        return false;
    }
    r->printed_us = now_us;
    return true;
}

static void step_print(struct run *r) {
    const struct trainer *t = r->t;
    if (!is_first(r->o)) {
        return;
    }
    const int64_t n_all = t->params.n_steps;
    const double speed = speed_of(r), left = (double) ((n_all - t->n_done) * t->params.n_seq * t->params.n_ctx);
    const double loss = (double) t->losses[t->n_done - 1];
    char time[32];
    duration_text(speed > 0 ? left / speed : 0, time);
    cli_progress("training", (uint64_t) t->n_done, (uint64_t) n_all,
        "%s left, loss %.4f, step %" PRId64 " of %" PRId64 ", %.0f tokens/s", time, loss, t->n_done, n_all, speed);
    if (is_log_time(r)) {
        fprintf(
            stderr, "step %" PRId64 " of %" PRId64 ": loss %.4f, %.0f tokens/s, %s left\n", t->n_done, n_all, loss, speed, time);
    }
}

static bool has_validation_at(const struct trainer *t, int64_t step) {
    return t->n_evaluations > 0 && t->evaluations[t->n_evaluations - 1].step == step;
}

// Computes and prints the loss on the validation text. Does nothing if this run already has the validation loss of this step.
static int validation_run(struct run *r) {
    struct trainer *t = r->t;
    struct model_error error = {""};
    if (r->val == NULL || (t->n_evaluations > r->first_validation && has_validation_at(t, t->n_done))) {
        return CLI_OK;
    }
    const int64_t start = ggml_time_us();
    const bool ok = trainer_evaluate(t, r->val, cli_is_interrupted, &error);
    r->validation_us += ggml_time_us() - start;
    if (!ok) {
        return t->is_stopped ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text);
    }
    cli_progress_end();
    if (!is_first(r->o) || cli_is_quiet() || (!isatty(STDERR_FILENO) && !is_log_time(r))) {
        return CLI_OK;
    }
    fprintf(
        stderr, "step %" PRId64 ": loss on %s %.4f\n", t->n_done, r->o->val, (double) t->evaluations[t->n_evaluations - 1].loss);
    return CLI_OK;
}

static int64_t parameters_of(const struct trainer *t) {
    int64_t n = 0;
    for (size_t i = 0; i < t->n_tensors; i++) {
        n += ggml_nelements(t->tensors[i].w);
    }
    return n;
}

static void print_json(const struct run *r, double seconds, double speed) {
    const struct trainer *t = r->t;
    struct berth_json_writer w = {.file = stdout};
    berth_json_begin(&w, NULL, '{');
    berth_json_printf(&w,
        "'out': %s, 'steps': %" PRId64 ", 'done': %" PRId64 ", 'stopped': %c, 'parameters': %" PRId64 ", 'tokens': %" PRId64
        ", 'seconds': %.3f, 'per_second': %.3f, 'bytes_trained': %zu, 'bytes_compute': %zu, 'again': %zu, 'slower': %.4f",
        r->o->out != NULL ? r->o->out : "", t->params.n_steps, t->n_done, t->is_stopped, parameters_of(t), tokens_of(r), seconds,
        speed, t->size, t->compute, t->n_recomputed, t->cost_ratio);
    berth_json_begin(&w, "losses", '[');
    for (int64_t i = 0; i < t->n_done; i++) {
        berth_json_printf(&w, "%.9g", (double) t->losses[i]);
    }
    berth_json_end(&w);
    berth_json_begin(&w, "val", '[');
    for (size_t i = 0; i < t->n_evaluations; i++) {
        berth_json_printf(&w, "{'step': %" PRId64 ", 'loss': %.9g}", t->evaluations[i].step, (double) t->evaluations[i].loss);
    }
    puts("]}");
}

static void print_text(const struct run *r, double seconds, double speed) {
    const struct trainer *t = r->t;
    char text[2][32], time[32];
    if (r->o->out != NULL) {
        cli_text(stdout, 0, r->o->out);
        printf(": ");
    }
    printf("%" PRId64 " of %" PRId64 " steps, %" PRId64 " parameters", t->n_done, t->params.n_steps, parameters_of(t));
    if (t->n_done > 0) {
        printf(", loss %.4f to %.4f", (double) t->losses[0], (double) t->losses[t->n_done - 1]);
    }
    if (t->n_evaluations > r->first_validation) {
        printf(", on %s %.4f to %.4f", r->o->val, (double) t->evaluations[r->first_validation].loss,
            (double) t->evaluations[t->n_evaluations - 1].loss);
    }
    printf("; %" PRId64 " tokens in %s, %.0f tokens/s; trained %s, compute %s", tokens_of(r), duration_text(seconds, time), speed,
        cli_short_bytes(t->size, text[0]), cli_short_bytes(t->compute, text[1]));
    if (t->n_recomputed > 0) {
        printf(", %zu ops of a step recomputed: %.2f times the cost", t->n_recomputed, t->cost_ratio);
    }
    fputs("\n", stdout);
}

// ---- the steps ----

// Sets t->is_stopped on all ranks if one of them was interrupted.
static int stop_check(struct run *r) {
    struct model_error error = {""};
    return train_ranks_stop(r->t, cli_is_interrupted(NULL), &error) ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text);
}

static int steps_run(struct run *r) {
    struct trainer *t = r->t;
    int code = validation_run(r);
    while (t->n_done < t->params.n_steps) {
        struct model_error error = {""};
        if (code != CLI_OK || (code = stop_check(r)) != CLI_OK || t->is_stopped) {
            break;
        }
        if (!trainer_step(t, r->data, &error)) {
            code = cli_fail(CLI_FAILURE, "%s", error.text);
            if (r->n_saved >= 0) {
                fprintf(stderr, "The last checkpoint is that of step %" PRId64 ": %s\n", r->n_saved, r->checkpoint);
            }
            return code;
        }
        step_print(r);
        if (r->o->save_every > 0 && t->n_done % r->o->save_every == 0 && t->n_done < t->params.n_steps) {
            cli_progress_end();
            code = validation_run(r);
            if (code == CLI_OK) {
                code = save_on_first_rank(r, checkpoint_save);
            }
        }
    }
    cli_progress_end();
    return code == CLI_OK ? validation_run(r) : code;
}

static int train_run(const struct options *o, struct trainer *t, struct train_data *data, const struct train_data *val) {
    struct run r = {.o = o, .t = t, .data = data, .val = val, .n_saved = -1, .first = t->n_done, .start_us = ggml_time_us()};
    r.printed_us = r.start_us;
    r.first_validation = t->n_evaluations;
    // If the checkpoint has a validation loss of this step, drops the loss, because its validation text may differ from --val.
    if (val != NULL && has_validation_at(t, t->n_done)) {
        r.first_validation = --t->n_evaluations;
    }
    if (o->out != NULL) {
        checkpoint_name(o, r.checkpoint);
    }
    int code = steps_run(&r);
    const double seconds = 1e-6 * (double) (ggml_time_us() - r.start_us), speed = speed_of(&r);
    if (code != CLI_OK || (code = stop_check(&r)) != CLI_OK) {
        return code;
    }
    const bool needs_checkpoint = o->out != NULL && (o->save_every > 0 || t->is_stopped);
    if ((needs_checkpoint && (code = save_on_first_rank(&r, checkpoint_save)) != CLI_OK) ||
        (code = save_on_first_rank(&r, result_save)) != CLI_OK || (code = save_on_first_rank(&r, plot_save)) != CLI_OK) {
        return code;
    }
    const bool is_incomplete = t->is_stopped && t->n_done < t->params.n_steps;
    if (!is_first(o)) {
        return is_incomplete ? CLI_STOPPED : CLI_OK;
    }
    if (o->json) {
        print_json(&r, seconds, speed);
    } else {
        print_text(&r, seconds, speed);
    }
    if (is_incomplete) {
        if (needs_checkpoint && !cli_is_quiet()) {
            fprintf(stderr, "stopped; --resume %s continues from step %" PRId64 "\n", r.checkpoint, t->n_done);
        }
        return CLI_STOPPED;
    }
    return CLI_OK;
}

// ---- the command ----

// Reads the texts at `path` and cuts them into windows of n_ctx tokens. If path is NULL, `data` stays empty.
static int windows_read(
    const struct options *o, const char *path, const struct vocab *vocab, int64_t n_ctx, struct train_data *data) {
    struct model_error error = {""};
    const int code = path != NULL ? texts_read(o, path, vocab, data) : CLI_OK;
    if (code != CLI_OK || path == NULL || train_data_cut(data, n_ctx, &error)) {
        return code;
    }
    return cli_fail(CLI_FAILURE, "%s: %s", path, error.text);
}

static int model_train(const struct options *o, struct workbench *m) {
    struct train_data data = {0}, val = {0};
    struct train_params p;
    struct model_error error = {""};
    struct trainer *t = NULL;
    int code = params_get(o, m->model, &p);
    if (code != CLI_OK || (code = windows_read(o, o->data, m->vocab, p.n_ctx, &data)) != CLI_OK ||
        (code = windows_read(o, o->val, m->vocab, p.n_ctx, &val)) != CLI_OK || (code = length_set(o, &data, &p)) != CLI_OK) {
        goto end;
    }
    t = trainer_new(m->model, &m->devices, &p, &error);
    if (t == NULL || (o->resume != NULL && !train_state_read(t, &data, o->resume, &error)) ||
        !train_ranks_check(t, &data, &error)) {
        code = cli_fail(CLI_FAILURE, "%s: %s", m->path, error.text);
        goto end;
    }
    code = train_run(o, t, &data, o->val != NULL ? &val : NULL);
end:
    trainer_free(t);
    train_data_fini(&data);
    train_data_fini(&val);
    return code;
}

int cli_train(const struct cli_args *args) {
    struct options *o = args->options;
    struct workbench m;
    int code = options_check(o);
    if (code != CLI_OK) {
        return code;
    }
    cli_catch_interrupt();
    o->world = world_find();
    if (o->config != NULL) {
        code = code_broadcast(o, is_first(o) ? new_model_write(o) : CLI_OK);
        if (code != CLI_OK) {
            return code;
        }
        o->model.path = o->out;
    }
    code = cli_model_open_text(&m, &o->model);
    if (code != CLI_OK) {
        return code;
    }
    if (m.model->n_files > 1) { // the output gets the keys of the input, which must be in one file
        workbench_close(&m);
        return cli_fail(CLI_FAILURE, "%s: the model is split into several files; merge them with 'berth gguf merge'", m.path);
    }
    code = outputs_check(o);
    if (code == CLI_OK) {
        code = model_train(o, &m);
    }
    workbench_close(&m);
    return code;
}
