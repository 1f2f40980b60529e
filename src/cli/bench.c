// SPDX-License-Identifier: MIT
// bench.c: `berth bench [MODEL]...` measures tokens per second of prefill (pp) and decode (tg). It runs every combination of
// model, threads, tokens and depth. The depth is the number of tokens in the cache before the test. If a repetition predicts
// another token than the warm-up, the command fails.

#include "base/base.h"
#include "base/json.h"
#include "base/min.h"
#include "cli/help.h"
#include "cli/plans.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum output { MD, CSV, JSON, JSONL };

struct options {
    struct model_options model;
    struct fit_question fit; // valid if --memory was given
    struct cli_ints prompts, gens, depths, threads;
    int64_t n_reps;
    enum output output;
    bool json;
    const char *out;     // NULL: standard output
    const char *cluster; // file to write with the measured cluster; NULL: models are measured
};

#define LIST(least, most, field) .min = least, .max = most, CLI_TO_LIST(CLI_INTS, struct options, field)

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    CLI_OPTION('p', "prompt", "N,...",
        "prompt tokens, 0: skip this test; -p, -n, -t and --depth accept lists and test every combination",
        LIST(0, 1 << 24, prompts), .preset = "512", .also = "n-prompt"),
    CLI_OPTION(
        'n', "gen", "N,...", "tokens to generate, 0: skip this test", LIST(0, 1 << 24, gens), .preset = "128", .also = "n-gen"),
    CLI_OPTION(
        0, "depth", "N,...", "tokens in the cache before the test", LIST(0, 1 << 24, depths), .preset = "0", .also = "n-depth"),
    CLI_OPTION('r', "reps", "R", "repetitions", CLI_RANGE(1, 1000), .preset = "5", CLI_TO(struct options, n_reps),
        .also = "repetitions"),
    CLI_OPTION(
        'b', "batch", "N", "batch size in tokens (default 512)", CLI_INT_OF_MODEL(n_batch, INT32_MAX), .also = "batch-size"),
    CLI_OPT_CACHE_TYPE,
    CLI_OPTION('t', "threads", "N,...", "CPU threads (default: number of cores)", LIST(1, 1024, threads)),
    CLI_OPT_DEVICE,
    CLI_OPT_NO_MMAP,
    CLI_OPT_GPU_LAYERS,
    CLI_OPT_HOST_EXPERTS,
    CLI_OPT_LLAMA,
    CLI_FIT_ROWS,
    CLI_OPTION(
        'o', "out", "FILE", "write the table to FILE (default '-': standard output)", .takes = "*", CLI_TO(struct options, out)),
    CLI_OPTION(0, "format", "KIND", "md, csv, json, or jsonl: one line per test when it is done", .takes = "md csv json jsonl",
        .kind = CLI_WORD, CLI_TO(struct options, output), .preset = "md", .also = "output"),
    CLI_OPT_JSON(CLI_TO(struct options, json), "the same as --format json"),
    CLI_OPTION(0, "cluster", "FILE",
        "measure devices instead of models: the devices of this machine and of other ranks, for the types of MODEL's weights "
        "(without MODEL: for all types); write the result to FILE for 'berth fit --cluster'",
        .takes = ".json", CLI_TO(struct options, cluster)),
    {0},
};

const struct cli_help cli_bench_help = {
    .command = "bench",
    .what = "measure the speed of prefill and decode",
    .operands = "[MODEL]...",
    .takes = ".gguf",
    .n_operands = {0, INT_MAX, INT_MAX},
    .bases = {[CLI_IN_MODEL] = offsetof(struct options, model)},
    .about = "Measures how many tokens per second a model processes in prefill (pp) and generates in decode (tg). Each test runs "
             "once to warm up and then R times. With --memory, the model is placed as 'berth run --memory' does, with the "
             "context of the longest test. Without MODEL, the small model of Berth is measured.",
    .options = option_rows,
    .size = sizeof(struct options),
    .initial = &(const struct options){.model = {.may_llama = true}},
    .examples = {{"Measure a model", "bench model.gguf"},
        {"Measure these machines for 'berth fit'", "bench --cluster machines.json model.gguf"},
        {"Two models, two prompt lengths, with one and with four threads", "bench -p 64,2048 -n 0 -t 1,4 a.gguf b.gguf"}},
};

struct test {
    const char *kind; // "pp" or "tg"
    int64_t n_tokens, n_depth;
    double mean, deviation; // tokens per second
};

static int64_t list_max(const struct cli_ints *l) {
    int64_t most = 0;
    for (size_t i = 0; i < l->n; i++) {
        most = max_i64(l->items[i], most);
    }
    return most;
}

static int options_check(struct options *o) {
    const int64_t n_prompt = list_max(&o->prompts), n_gen = list_max(&o->gens);
    if (n_prompt == 0 && n_gen == 0) {
        return cli_usage("bench", "--prompt 0 and --gen 0 leave nothing to measure");
    }
    if (o->cluster != NULL && o->fit.limits.n > 0) {
        return cli_usage("bench", "--cluster and --memory cannot be combined");
    }
    if (cli_fit_check("bench", &o->fit) != CLI_OK) {
        return CLI_USAGE;
    }
    if (o->json) {
        o->output = JSON;
    }
    o->model.n_ctx = list_max(&o->depths) + max_i64(n_prompt, n_gen);
    return CLI_OK;
}

// ---- measuring ----

// The tokens are the same in each run. They are random, so that the caches do not hold their rows of the embedding.
static void tokens_fill(int32_t *tokens, int64_t n, int64_t n_vocab) {
    uint64_t x = 1;
    for (int64_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t) ((x >> 33) % (uint64_t) n_vocab);
    }
}

// Runs a test once. *us: the time in microseconds, without the time that filling the cache to the depth takes.
static bool test_time(struct session *s, const struct test *test, const int32_t *tokens, int64_t *us, struct model_error *error) {
    const int64_t n_step = test->kind[0] == 'p' ? test->n_tokens : 1;
    session_reset(s);
    if (test->n_depth > 0 && !session_decode(s, tokens, test->n_depth, error)) {
        return false;
    }
    const int64_t start = ggml_time_us();
    for (int64_t i = 0; i < test->n_tokens; i += n_step) {
        if (!session_decode(s, tokens + test->n_depth + i, n_step, error)) {
            return false;
        }
    }
    *us = ggml_time_us() - start;
    return true;
}

// Returns the token with the highest logit. -1: a logit is not finite.
static int64_t token_likeliest(const struct session *s) {
    int64_t best = 0;
    for (int64_t i = 0; i < s->model->params.n_vocab; i++) {
        if (!isfinite(s->logits[i])) {
            return -1;
        }
        if (s->logits[i] > s->logits[best]) {
            best = i;
        }
    }
    return best;
}

// Runs a test once to warm up and then n_reps times. Sets test->mean and test->deviation.
static bool test_measure(struct session *s, struct test *test, int64_t n_reps, const int32_t *tokens, struct model_error *error) {
    double sum = 0, squares = 0;
    int64_t us;
    if (!test_time(s, test, tokens, &us, error)) {
        return false;
    }
    const int64_t first = token_likeliest(s);
    if (first < 0) {
        return model_fail(error, "%s%" PRId64 ": a logit is not finite (NaN or infinity)", test->kind, test->n_tokens);
    }
    for (int64_t r = 0; r < n_reps; r++) {
        cli_progress("measuring", (uint64_t) r, (uint64_t) n_reps, "%s%" PRId64 ": repetition %" PRId64 " of %" PRId64,
            test->kind, test->n_tokens, r + 1, n_reps);
        if (!test_time(s, test, tokens, &us, error)) {
            return false;
        }
        const double speed = 1e6 * (double) test->n_tokens / (double) (us > 0 ? us : 1);
        sum += speed;
        squares += speed * speed;
        if (token_likeliest(s) != first) {
            return model_fail(error, "%s%" PRId64 ": repetition %" PRId64 " predicts token %" PRId64 ", the warm-up %" PRId64,
                test->kind, test->n_tokens, r + 1, token_likeliest(s), first);
        }
    }
    test->mean = sum / (double) n_reps;
    const double v = squares / (double) n_reps - test->mean * test->mean;
    test->deviation = n_reps > 1 && v > 0 ? sqrt(v * (double) n_reps / (double) (n_reps - 1)) : 0;
    return true;
}

// ---- printing ----

struct row {
    struct berth_stream model, backend; // owned texts
    uint64_t size, n_params;
    int64_t n_threads, n_batch;
    char cache[64]; // types of keys and values
    struct test test;
};

// Sets all fields except test. row->model: the model's name or architecture, and the type of most bytes. False: out of memory.
static bool row_init(struct row *row, const struct workbench *m, int64_t n_threads) {
    uint64_t bytes[GGML_TYPE_COUNT] = {0};
    int type = 0;
    const char *name = NULL;
    struct model_error error = {""};
    *row = (struct row){.n_threads = n_threads, .n_batch = m->session->params.n_batch};
    snprintf(row->cache, sizeof row->cache, "%s,%s", ggml_type_name(m->session->params.cache_k),
        ggml_type_name(m->session->params.cache_v));
    for (int64_t f = 0; f < m->model->n_files; f++) {
        struct ggml_context *ctx = berth_gguf_map_tensors(m->model->files[f]);
        for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
            bytes[t->type] += ggml_nbytes(t);
            row->size += ggml_nbytes(t);
            row->n_params += (uint64_t) ggml_nelements(t);
        }
    }
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        if (bytes[i] > bytes[type]) {
            type = i;
        }
    }
    keys_text(berth_gguf_map_meta(m->model->file), "general.name", &name, &error);
    if (berth_stream_open(&row->model)) {
        cli_text(row->model.file, 0, name != NULL ? name : m->model->params.arch);
        fprintf(row->model.file, " %s", ggml_type_name((enum ggml_type) type));
    }
    if (!berth_stream_close(&row->model) || !berth_stream_open(&row->backend)) {
        return false;
    }
    for (int d = 0; d < m->devices.n; d++) {
        fprintf(row->backend.file, "%s%s", d > 0 ? "," : "", ggml_backend_dev_name(m->devices.dev[d]));
    }
    return berth_stream_close(&row->backend);
}

static void row_fini(struct row *row) {
    berth_stream_fini(&row->model);
    berth_stream_fini(&row->backend);
}

// Prints `replacement` for each character `end`, because `end` would end a table cell or a CSV field.
static void print_escaped(FILE *file, const char *text, char end, const char *replacement) {
    for (; *text != '\0'; text++) {
        if (*text == end) {
            fputs(replacement, file);
        } else {
            fputc(*text, file);
        }
    }
}

static void print_md(FILE *file, const struct row *row, int i) {
    const struct test *test = &row->test;
    char size[32], depth[40] = "";
    if (test->n_depth > 0) {
        snprintf(depth, sizeof depth, " @ d%" PRId64, test->n_depth);
    }
    if (i == 0) {
        fprintf(file, "| model | size | params | backend | threads | cache | test | t/s |\n"
                      "| --- | ---: | ---: | --- | ---: | --- | ---: | ---: |\n");
    }
    fputs("| ", file);
    print_escaped(file, row->model.text, '|', "\\|");
    fprintf(file, " | %s | %.2f M | %s | %" PRId64 " | %s | %s%" PRId64 "%s | %.2f ± %.2f |\n", cli_short_bytes(row->size, size),
        (double) row->n_params / 1e6, row->backend.text, row->n_threads, row->cache, test->kind, test->n_tokens, depth,
        test->mean, test->deviation);
}

static void print_csv(FILE *file, const struct row *row, int i) {
    const struct test *test = &row->test;
    fputs(i == 0 ? "model,size,params,backend,threads,batch,cache,test,tokens,depth,mean,deviation\n" : "", file);
    fputc('"', file);
    print_escaped(file, row->model.text, '"', "\"\"");
    fprintf(file, "\",%" PRIu64 ",%" PRIu64 ",\"", row->size, row->n_params);
    print_escaped(file, row->backend.text, '"', "\"\"");
    fprintf(file, "\",%" PRId64 ",%" PRId64 ",\"%s\",%s,%" PRId64 ",%" PRId64 ",%.6f,%.6f\n", row->n_threads, row->n_batch,
        row->cache, test->kind, test->n_tokens, test->n_depth, test->mean, test->deviation);
}

static void print_object(FILE *file, const struct row *row) {
    const struct test *test = &row->test;
    berth_json_printf(&(struct berth_json_writer){.file = file},
        "{'model': %s, 'size': %" PRIu64 ", 'params': %" PRIu64 ", 'backend': %s, 'threads': %" PRId64 ", 'batch': %" PRId64
        ", 'cache': %s, 'test': %s, 'tokens': %" PRId64 ", 'depth': %" PRId64 ", 'mean': %.6f, 'deviation': %.6f}",
        row->model.text, row->size, row->n_params, row->backend.text, row->n_threads, row->n_batch, row->cache, test->kind,
        test->n_tokens, test->n_depth, test->mean, test->deviation);
}

// i: number of rows printed before. If i is 0, also prints the head of the table.
static void print_row(FILE *file, const struct row *row, int i, enum output output) {
    switch (output) {
        case MD: print_md(file, row, i); break;
        case CSV: print_csv(file, row, i); break;
        case JSON:
            fputs(i > 0 ? ",\n " : "[", file);
            print_object(file, row);
            break;
        case JSONL:
            print_object(file, row);
            fputc('\n', file);
            break;
    }
    fflush(file);
}

// ---- the command ----

struct bench {
    const struct options *o;
    struct fit_question *fit;
    FILE *file;
    int n_rows; // rows printed so far
};

// Measures a test and prints its row.
static bool test_run(struct bench *b, struct workbench *m, int64_t n_threads, const struct test *test, const int32_t *tokens,
    struct model_error *error) {
    struct test done = *test;
    const bool is_measured = test_measure(m->session, &done, b->o->n_reps, tokens, error);
    cli_progress_end();
    if (!is_measured) {
        return false;
    }
    struct row row;
    const bool ok = row_init(&row, m, n_threads);
    row.test = done;
    if (ok) {
        print_row(b->file, &row, b->n_rows++, b->o->output);
    }
    row_fini(&row);
    return ok || model_fail(error, "out of memory for the names");
}

static int tests_run(struct bench *b, struct workbench *m, int64_t n_threads) {
    const struct options *o = b->o;
    struct model_error error = {""};
    int32_t *tokens = berth_malloc((size_t) o->model.n_ctx * sizeof *tokens);
    bool ok = tokens != NULL || model_fail(&error, "out of memory for %" PRId64 " tokens", o->model.n_ctx);
    if (ok) {
        tokens_fill(tokens, o->model.n_ctx, m->model->params.n_vocab);
    }
    for (int kind = 0; kind < 2; kind++) {
        const struct cli_ints *sizes = kind == 0 ? &o->prompts : &o->gens;
        for (size_t i = 0; i < sizes->n; i++) {
            for (size_t d = 0; ok && sizes->items[i] > 0 && d < o->depths.n; d++) {
                const struct test test = {
                    .kind = kind == 0 ? "pp" : "tg", .n_tokens = sizes->items[i], .n_depth = o->depths.items[d]};
                ok = test_run(b, m, n_threads, &test, tokens, &error);
            }
        }
    }
    berth_free(tokens);
    return ok ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text);
}

// Measures all tests of one model with one number of threads. The first call opens the output file.
static int model_run(struct bench *b, const char *path, int64_t n_threads) {
    struct model_options options = b->o->model;
    struct workbench m;
    options.path = path;
    options.n_threads = n_threads;
    int code = cli_fit_apply("bench", b->fit, &options, false);
    if (code != CLI_OK || (code = cli_model_open(&m, &options)) != CLI_OK) {
        return code;
    }
    model_devices_set_abort(&m.devices, cli_is_interrupted, NULL);
    code = b->file == NULL ? cli_output_check(b->o->out) : CLI_OK;
    if (code != CLI_OK) {
        goto end;
    }
    code = cli_model_session(&m, &options);
    if (code != CLI_OK) {
        goto end;
    }
    if (b->file == NULL) {
        b->file = b->o->out != NULL ? cli_open(b->o->out) : stdout;
    }
    code = b->file != NULL ? tests_run(b, &m, n_threads) : CLI_FAILURE;
end:
    workbench_close(&m);
    return code;
}

static int models_run(struct bench *b, int n, char **operands) {
    int64_t n_cores = model_n_cores();
    const struct cli_ints threads = b->o->threads.n > 0 ? b->o->threads : (struct cli_ints){&n_cores, 1, 1};
    if (b->o->cluster != NULL) {
        return cli_cluster_bench(b->o->model.path, threads.items[0], b->o->cluster);
    }
    cli_catch_interrupt();
    for (int i = -1; i < n; i++) {
        const char *path = i >= 0 ? operands[i] : b->o->model.path;
        for (size_t t = 0; t < threads.n; t++) {
            const int code = model_run(b, path, threads.items[t]);
            if (code != CLI_OK) {
                return code;
            }
        }
    }
    if (b->file != NULL && b->o->output == JSON) {
        fputs(b->n_rows > 0 ? "]\n" : "[]\n", b->file);
    }
    return CLI_OK;
}

int cli_bench(const struct cli_args *args) {
    struct options *o = args->options;
    struct bench b = {.o = o, .fit = &o->fit};
    int code = options_check(o);
    if (code != CLI_OK) {
        return code;
    }
    code = models_run(&b, args->n, args->operands);
    if (b.file == NULL || o->out == NULL) {
        return code;
    }
    if (code == CLI_OK) {
        return cli_close(b.file, o->out, true);
    }
    cli_drop(b.file);
    return code;
}
