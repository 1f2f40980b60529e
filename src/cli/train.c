// SPDX-License-Identifier: MIT
// train.c: `berth train [MODEL] --data TEXT -o OUT`: its options, and from them a model, texts and a trainer. The steps are in
// train_run.c.

#include "cli/train.h"
#include "base/min.h"

#include "cli/help.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

// What is not given is -1: a checkpoint may say it.
#define COUNT(least, field) .kind = CLI_INT, .min = least, .max = (double) ((int64_t) 1 << 40), CLI_TO(struct cli_train, field)
#define RATE(field) .kind = CLI_REAL, CLI_TO(struct cli_train, field)
#define WORD(field) .kind = CLI_WORD, CLI_TO(struct cli_train, field)
#define TEXT(field) CLI_TO(struct cli_train, field)

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    CLI_OPTION(0, "data", "TEXT", "the text to learn: a file, all files of a folder, '-': standard input", TEXT(data),
        .takes = "*", .use = CLI_READ),
    CLI_OPTION(0, "val", "TEXT", "tell the loss on this text too: at the start, at checkpoints, at the end", TEXT(val),
        .takes = "*", .use = CLI_READ),
    CLI_OPTION(0, "split", "WHERE", "what one text is: a whole file (default), each line, or what is between blank lines",
        WORD(split), .takes = "file line blank"),
    CLI_OPTION('o', "out", "OUT", "where the trained model goes, or the adapter", TEXT(out), .takes = ".gguf"),
    CLI_OPTION(0, "lora", "RANK", "train an adapter of this rank and leave the weights, which may then be of any type",
        COUNT(1, params.rank)),
    CLI_OPTION(0, "alpha", "X", "the adapter counts alpha/rank times (default: twice the rank)", RATE(params.alpha)),
    CLI_OPTION(0, "epochs", "N", "how often all of the text is read (default 1)", COUNT(1, n_epochs)),
    CLI_OPTION(0, "steps", "N", "steps instead, however often that is; 0: look at --val alone", COUNT(0, params.n_steps)),
    CLI_OPTION('b', "batch", "N", "sequences of a step (default 8), with mpirun of each rank", COUNT(1, params.n_seq),
        .also = "batch-size"),
    CLI_OPTION('c', "ctx", "N", "tokens of a sequence (default: the model's context, at most 512)", COUNT(1, params.n_ctx),
        .also = "ctx-size"),
    CLI_OPTION(
        0, "lr", "X", "the highest learning rate (default 1e-4, for an adapter 2e-4, for a new model 1e-3)", RATE(params.lr)),
    CLI_OPTION(0, "schedule", "WORD", "how the rate falls: cosine (default), linear, constant", WORD(schedule),
        .takes = "cosine linear constant"),
    CLI_OPTION(0, "warmup", "N", "steps in which the rate rises (default: a twentieth of all)", COUNT(0, params.n_warmup)),
    CLI_OPTION(0, "optimizer", "WORD", "adamw (default) or sgd", WORD(optimizer), .takes = "adamw sgd"),
    CLI_OPTION(0, "decay", "X", "decay of weights, times the rate a step (default 0)", RATE(params.decay)),
    CLI_OPTION(0, "clip", "X", "gradients longer than this are shortened to it, 0: none (default 1)", RATE(params.clip)),
    CLI_OPTION('s', "seed", "S", "seed of the order of texts and of random weights (default 1)", COUNT(0, seed)),
    CLI_OPTION(0, "save-every", "N", "write a checkpoint, OUT.checkpoint, every N steps and at the end", COUNT(1, save_every)),
    CLI_OPTION(0, "resume", "FILE", "go on from a checkpoint, with its options unless others are given", TEXT(resume),
        .takes = ".checkpoint", .use = CLI_UPDATE),
    CLI_OPTION(0, "new", "CONFIG", "begin with random weights: the file CONFIG has the sizes, MODEL only the tokenizer",
        TEXT(config), .takes = "*", .use = CLI_READ),
    CLI_OPTION(0, "memory", "N",
        "what is trained and the graphs of a step take at most N bytes: some of it is computed twice. N takes K, M, G, KiB, MiB, "
        "..., kB, MB, ...",
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
    .what = "let a model learn a text",
    .operands = "[MODEL]",
    .takes = ".gguf",
    .n_operands = {0, 1, 1},
    .bases = {[CLI_IN_MODEL] = offsetof(struct cli_train, model)},
    .about = "Trains a language model (a GGUF file of the llama, mistral, qwen2 or qwen3 architecture with weights of f32, f16 "
             "or bf16) on a text, or with --lora an adapter for one of any type, which 'berth run --lora' and llama.cpp take. A "
             "run that is stopped and resumed equals the unbroken one bit by bit. Ctrl-C ends it after the step at hand and "
             "saves. A loss that is no number ends it too, before it reaches a weight. Started by mpirun, ranks share the work: "
             "each takes its part of every batch.",
    .options = option_rows,
    .size = sizeof(struct cli_train),
    .initial = &(const struct cli_train){.n_epochs = -1,
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
    .examples = {{"An adapter that knows a text", "train model.gguf --lora 8 --data text.txt -o lora.gguf"},
        {"Three times over all files of a folder, with a picture",
            "train m.gguf --data texts/ --epochs 3 -o tuned.gguf --plot loss.svg"},
        {"Go on", "train m.gguf --data texts/ -o out.gguf --resume out.gguf.checkpoint"}},
};

// ---- options ----

static int options_check(const struct cli_train *o) {
    const bool is_look = o->params.n_steps == 0;
    if (o->data == NULL && !(is_look && o->val != NULL)) {
        return cli_usage("train", "no text is given to learn: --data TEXT");
    }
    if (o->out == NULL && !is_look) {
        return cli_usage("train", "no file is given for what is learnt: -o OUT");
    }
    if (o->config != NULL && (o->resume != NULL || o->params.rank > 0 || o->out == NULL)) {
        return cli_usage("train", "--new begins a model at -o OUT, all of it: without --lora and --resume");
    }
    if (o->n_epochs > 0 && o->params.n_steps >= 0) {
        return cli_usage("train", "--epochs and --steps cannot be combined");
    }
    return CLI_OK;
}

// ---- parameters: what is given, else the checkpoint's, else the usual ----

static int n_ranks(const struct cli_train *o) {
    return o->world != NULL ? o->world->size : 1;
}

static int params_check(const struct cli_train *o, const struct train_params *p) {
    const struct train_params *given = &o->params;
    const bool is_other =
        (given->n_ctx > 0 && given->n_ctx != p->n_ctx) || (given->n_seq > 0 && given->n_seq * n_ranks(o) != p->n_seq) ||
        (given->rank > 0 && given->rank != p->rank) || (given->alpha >= 0 && given->alpha != p->alpha) ||
        (o->seed >= 0 && (uint64_t) o->seed != p->seed) || (o->optimizer >= 0 && o->optimizer != (int64_t) p->optimizer);
    return is_other
               ? cli_fail(CLI_FAILURE,
                     "%s: was trained with --ctx %" PRId64 " --batch %" PRId64 " in all --lora %" PRId64
                     " --alpha %g --seed %" PRIu64 " --optimizer %s: these stay",
                     o->resume, p->n_ctx, p->n_seq, p->rank, (double) p->alpha, p->seed, ggml_opt_optimizer_name(p->optimizer))
               : CLI_OK;
}

static struct train_params params_default(const struct cli_train *o, const struct model *m) {
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

// What is given takes the place of *x; below 0 is not given.
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

static int params_get(const struct cli_train *o, const struct model *m, struct train_params *p) {
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

// How long it is, once the text is known.
static int length_set(const struct cli_train *o, const struct train_data *data, struct train_params *p) {
    const int64_t n_epochs = o->n_epochs > 0 ? o->n_epochs : 1;
    int64_t n_windows;
    if (__builtin_mul_overflow(n_epochs, data->n_windows, &n_windows) || n_windows > INT64_MAX - p->n_seq) {
        return cli_fail(CLI_FAILURE, "%" PRId64 " epochs of %" PRId64 " windows are too many", n_epochs, data->n_windows);
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

// Those that mpirun has started beside this one, which run the same command.
static const struct berth_mpi_world *world_find(void) {
    ggml_backend_load_all();
    const ggml_backend_reg_t mpi = ggml_backend_reg_by_name("MPI");
    const struct berth_mpi_world *world = mpi != NULL ? ggml_backend_reg_get_proc_address(mpi, "berth_mpi_world") : NULL;
    return world != NULL && world->size > 1 ? world : NULL;
}

int cli_train_first(const struct cli_train *o, int code) {
    return o->world == NULL || o->world->broadcast(&code, sizeof code, 0) ? code
                                                                          : cli_fail(CLI_FAILURE, "%s", berth_last_error());
}

bool cli_train_is_first(const struct cli_train *o) {
    return o->world == NULL || o->world->rank == 0;
}

// What is written later: no long work before a refusal.
static int outputs_check(const struct cli_train *o) {
    char checkpoint[4096];
    if (cli_output_check(o->out) != CLI_OK || cli_output_check(o->plot) != CLI_OK) {
        return CLI_FAILURE;
    }
    return o->out != NULL ? cli_update_check(cli_train_checkpoint(o, checkpoint)) : CLI_OK;
}

// ---- a new model ----

static int new_make(const struct cli_train *o) {
    struct model_error error = {""};
    size_t size;
    struct berth_gguf_map *from = o->model.path != NULL ? berth_gguf_map_open(o->model.path, NULL) : NULL;
    if (from == NULL) {
        return o->model.path != NULL ? cli_fail(CLI_FAILURE, "%s", berth_last_error())
                                     : cli_usage("train", "--new needs a MODEL whose tokenizer it takes");
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

// ---- all together ----

// A text in windows; path NULL: there is none.
static int text_read(
    const struct cli_train *o, const char *path, const struct vocab *vocab, int64_t n_ctx, struct train_data *data) {
    struct model_error error = {""};
    const int code = path != NULL ? cli_train_read(o, path, vocab, data) : CLI_OK;
    if (code != CLI_OK || path == NULL || train_data_cut(data, n_ctx, &error)) {
        return code;
    }
    return cli_fail(CLI_FAILURE, "%s: %s", path, error.text);
}

static int model_train(const struct cli_train *o, struct workbench *m) {
    struct train_data data = {0}, val = {0};
    struct train_params p;
    struct model_error error = {""};
    struct trainer *t = NULL;
    int code = params_get(o, m->model, &p);
    if (code != CLI_OK || (code = text_read(o, o->data, m->vocab, p.n_ctx, &data)) != CLI_OK ||
        (code = text_read(o, o->val, m->vocab, p.n_ctx, &val)) != CLI_OK || (code = length_set(o, &data, &p)) != CLI_OK) {
        goto end;
    }
    t = trainer_new(m->model, &m->devices, &p, &error);
    if (t == NULL || (o->resume != NULL && !train_state_read(t, &data, o->resume, &error)) ||
        !train_ranks_check(t, &data, &error)) {
        code = cli_fail(CLI_FAILURE, "%s: %s", m->path, error.text);
        goto end;
    }
    code = cli_train_run(o, t, &data, o->val != NULL ? &val : NULL);
end:
    trainer_free(t);
    train_data_fini(&data);
    train_data_fini(&val);
    return code;
}

int cli_train(const struct cli_args *args) {
    struct cli_train *o = args->options;
    struct workbench m;
    int code = options_check(o);
    if (code != CLI_OK) {
        return code;
    }
    cli_catch_interrupt();
    o->world = world_find();
    if (o->config != NULL) {
        code = cli_train_first(o, cli_train_is_first(o) ? new_make(o) : CLI_OK);
        if (code != CLI_OK) {
            return code;
        }
        o->model.path = o->out;
    }
    code = cli_model_open_text(&m, &o->model);
    if (code != CLI_OK) {
        return code;
    }
    if (m.model->n_files > 1) { // what is written has the keys of what is read
        workbench_close(&m);
        return cli_fail(CLI_FAILURE, "%s: the model is in several files: 'berth gguf merge' makes one of them", m.path);
    }
    code = outputs_check(o);
    if (code == CLI_OK) {
        code = model_train(o, &m);
    }
    workbench_close(&m);
    return code;
}
