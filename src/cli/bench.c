// SPDX-License-Identifier: MIT
// bench.c: `berth bench [MODEL]`: tokens a second of a prompt (pp) and of generation (tg), mean and deviation over repetitions. A
// repetition that answers otherwise than the first one is a failure, not a number.

#include "base/base.h"
#include "cli/help.h"
#include "cli/models.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = CLI_OWN };

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    {.letter   = 'p',
        .name  = "prompt",
        .value = "N",
        .what  = "tokens of the prompt, 0: no such test (default 512)",
        .also  = "n-prompt"},
    {.letter = 'n', .name = "gen", .value = "N", .what = "tokens to write, 0: no such test (default 128)", .also = "n-gen"},
    {.letter = 'r', .name = "reps", .value = "R", .what = "repetitions (default 5)", .also = "repetitions"},
    {.letter = 'b', .name = "batch", .value = "N", .what = "tokens of the prompt at once (default 512)", .also = "batch-size"},
    CLI_OPT_CACHE_TYPE,
    CLI_OPT_THREADS,
    CLI_OPT_DEVICE,
    CLI_OPT_NO_MMAP,
    CLI_OPT_GPU_LAYERS,
    {.letter   = 'o',
        .name  = "out",
        .value = "FILE",
        .takes = "*",
        .what  = "write the table there ('-': standard output, as by default)"},
    {.id       = FORMAT,
        .name  = "format",
        .value = "KIND",
        .takes = "md csv json",
        .what  = "md, csv or json (default md)",
        .also  = "output"},
    CLI_OPT_JSON("the same as --format json"),
    {0},
};

const struct cli_help cli_bench_help = {
    .command  = "bench",
    .what     = "how fast a model reads and writes",
    .operands = "[MODEL]",
    .takes    = ".gguf",
    .about    = "Measures how many tokens a second a model reads (pp) and writes (tg), once to warm up and then R times. Without "
                "MODEL it is the one that comes with Berth.",
    .options  = option_rows,
    .examples = {{"How fast is it here?", "bench model.gguf"},
        {"A long prompt on four threads, as CSV", "bench -p 2048 -n 0 -t 4 --format csv model.gguf"}},
};

enum output { MD, CSV, JSON };

struct options {
    struct cli_model_options model;
    int64_t n_prompt, n_gen, n_reps;
    enum output output;
    const char *out; // NULL: standard output
};

struct test {
    const char *kind; // "pp" or "tg"
    int64_t n_tokens;
    double mean, deviation; // tokens a second
};

static int count(const char *name, const char *text, int64_t min, int64_t max, int64_t *out) {
    return cli_parse_int(text, min, max, out)
               ? CLI_OK
               : cli_usage("bench", "--%s '%s' is not a number from %" PRId64 " to %" PRId64, name, text, min, max);
}

static int output_parse(const char *text, enum output *out) {
    static const char *const names[] = {"md", "csv", "json"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum output) i;
            return CLI_OK;
        }
    }
    return cli_usage("bench", "--format '%s' is none of md, csv, json", text);
}

// -o was the format once.
static int out_given(const char *value, const char **out) {
    if (strcmp(value, "md") == 0 || strcmp(value, "csv") == 0 || strcmp(value, "json") == 0) {
        return cli_usage("bench", "-o '%s': -o is the file to write; the kind is --format %s", value, value);
    }
    *out = value;
    return CLI_OK;
}

// -1 to go on, else the exit code.
static int parse(int argc, char **argv, struct options *o) {
    for (int c, code = CLI_OK; (c = cli_option_next(&cli_bench_help, argc, argv)) != CLI_END;) {
        switch (c) {
            case 'p': code = count("prompt", optarg, 0, 1 << 24, &o->n_prompt); break;
            case 'n': code = count("gen", optarg, 0, 1 << 24, &o->n_gen); break;
            case 'r': code = count("reps", optarg, 1, 1000, &o->n_reps); break;
            case 'o': code = out_given(optarg, &o->out); break;
            case FORMAT: code = output_parse(optarg, &o->output); break;
            case CLI_JSON: o->output = JSON; break;
            default:
                if (!cli_model_option("bench", c, optarg, &o->model, &code)) {
                    return c == CLI_SHOWN ? CLI_OK : CLI_USAGE;
                }
        }
        if (code != CLI_OK) {
            return code;
        }
    }
    if (o->n_prompt == 0 && o->n_gen == 0) {
        return cli_usage("bench", "--prompt 0 and --gen 0 leave nothing to measure");
    }
    o->model.n_ctx = o->n_prompt > o->n_gen ? o->n_prompt : o->n_gen;
    return cli_model_file("bench", argc, argv, &o->model);
}

// ---- measuring ----

// Tokens that no cache of the processor has seen lately: any will do, the same each time.
static void tokens_fill(int32_t *tokens, int64_t n, int64_t n_vocab) {
    uint64_t x = 1;
    for (int64_t i = 0; i < n; i++) {
        x         = x * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t) ((x >> 33) % (uint64_t) n_vocab);
    }
}

static bool once(struct session *s, const struct test *test, const int32_t *tokens, struct model_error *error) {
    session_reset(s);
    if (test->kind[0] == 'p') {
        return session_decode(s, tokens, test->n_tokens, error);
    }
    bool ok = true;
    for (int64_t i = 0; ok && i < test->n_tokens; i++) {
        ok = session_decode(s, &tokens[i], 1, error);
    }
    return ok;
}

// The likeliest token; -1 if a logit is no number.
static int64_t answer(const struct session *s) {
    int64_t best = 0;
    for (int64_t i = 0; i < s->model->params.n_vocab; i++) {
        if (!isfinite(s->logits[i])) {
            return -1;
        }
        best = s->logits[i] > s->logits[best] ? i : best;
    }
    return best;
}

static bool measure(struct session *s, struct test *test, int64_t n_reps, const int32_t *tokens, struct model_error *error) {
    double sum = 0, squares = 0;
    if (!once(s, test, tokens, error)) {
        return false;
    }
    const int64_t first = answer(s);
    if (first < 0) {
        return model_fail(error, "%s%" PRId64 ": the answer holds what is no number", test->kind, test->n_tokens);
    }
    for (int64_t r = 0; r < n_reps; r++) {
        cli_progress("measuring", (uint64_t) r, (uint64_t) n_reps, "%s%" PRId64 ": repetition %" PRId64 " of %" PRId64,
            test->kind, test->n_tokens, r + 1, n_reps);
        const int64_t start = ggml_time_us();
        if (!once(s, test, tokens, error)) {
            return false;
        }
        const int64_t us   = ggml_time_us() - start;
        const double speed = 1e6 * (double) test->n_tokens / (double) (us > 0 ? us : 1);
        sum += speed;
        squares += speed * speed;
        if (answer(s) != first) {
            return model_fail(error, "%s%" PRId64 ": repetition %" PRId64 " answers token %" PRId64 ", the first %" PRId64,
                test->kind, test->n_tokens, r + 1, answer(s), first);
        }
    }
    test->mean      = sum / (double) n_reps;
    const double v  = squares / (double) n_reps - test->mean * test->mean;
    test->deviation = n_reps > 1 && v > 0 ? sqrt(v * (double) n_reps / (double) (n_reps - 1)) : 0;
    return true;
}

// ---- printing ----

struct row {
    struct berth_stream model, backend; // texts
    uint64_t size, n_params;
    int64_t n_threads, n_batch;
    char cache[64]; // types of keys and values
};

// The name in the file, else the architecture, and the type that most bytes are of. False: out of memory.
static bool row_init(struct row *row, const struct cli_model *m, const struct options *o) {
    uint64_t bytes[GGML_TYPE_COUNT] = {0};
    int type                        = 0;
    const char *name                = NULL;
    struct model_error error        = {""};
    *row                            = (struct row){.n_threads = o->model.n_threads, .n_batch = m->session->params.n_batch};
    snprintf(row->cache, sizeof row->cache, "%s,%s", ggml_type_name(m->session->params.cache_k),
        ggml_type_name(m->session->params.cache_v));
    for (size_t i = 0; i < m->model->n_weights; i++) {
        const struct ggml_tensor *t = m->model->weights[i].file;
        bytes[t->type] += ggml_nbytes(t);
        row->size += ggml_nbytes(t);
        row->n_params += (uint64_t) ggml_nelements(t);
    }
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        type = bytes[i] > bytes[type] ? i : type;
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

// A cell of a table: what would end it is escaped.
static void print_cell(FILE *file, const char *text) {
    for (; *text != '\0'; text++) {
        fputs(*text == '|' ? "\\|" : (char[]){*text, '\0'}, file);
    }
}

static void print_md(FILE *file, const struct row *row, const struct test *tests, int n) {
    char size[32];
    fprintf(file, "| model | size | params | backend | threads | cache | test | t/s |\n"
                  "| --- | ---: | ---: | --- | ---: | --- | ---: | ---: |\n");
    for (int i = 0; i < n; i++) {
        fputs("| ", file);
        print_cell(file, row->model.text);
        fprintf(file, " | %s | %.2f M | %s | %" PRId64 " | %s | %s%" PRId64 " | %.2f ± %.2f |\n",
            cli_short_bytes(row->size, size), (double) row->n_params / 1e6, row->backend.text, row->n_threads, row->cache,
            tests[i].kind, tests[i].n_tokens, tests[i].mean, tests[i].deviation);
    }
}

// A field of CSV: quoted, quotes doubled.
static void print_field(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text != '\0'; text++) {
        fputs(*text == '"' ? "\"\"" : (char[]){*text, '\0'}, file);
    }
    fputc('"', file);
}

static void print_csv(FILE *file, const struct row *row, const struct test *tests, int n) {
    fputs("model,size,params,backend,threads,batch,cache,test,tokens,mean,deviation\n", file);
    for (int i = 0; i < n; i++) {
        print_field(file, row->model.text);
        fprintf(file, ",%" PRIu64 ",%" PRIu64 ",", row->size, row->n_params);
        print_field(file, row->backend.text);
        fprintf(file, ",%" PRId64 ",%" PRId64 ",\"%s\",%s,%" PRId64 ",%.6f,%.6f\n", row->n_threads, row->n_batch, row->cache,
            tests[i].kind, tests[i].n_tokens, tests[i].mean, tests[i].deviation);
    }
}

static void print_json(FILE *file, const struct row *row, const struct test *tests, int n) {
    fputc('[', file);
    for (int i = 0; i < n; i++) {
        fputs(i > 0 ? ",\n {\"model\": " : "{\"model\": ", file);
        cli_json_text(file, row->model.text);
        fprintf(file, ", \"size\": %" PRIu64 ", \"params\": %" PRIu64 ", \"backend\": ", row->size, row->n_params);
        cli_json_text(file, row->backend.text);
        fprintf(file,
            ", \"threads\": %" PRId64 ", \"batch\": %" PRId64 ", \"cache\": \"%s\", \"test\": \"%s\", \"tokens\": %" PRId64
            ", \"mean\": %.6f, \"deviation\": %.6f}",
            row->n_threads, row->n_batch, row->cache, tests[i].kind, tests[i].n_tokens, tests[i].mean, tests[i].deviation);
    }
    fputs("]\n", file);
}

static int bench(struct cli_model *m, const struct options *o) {
    struct model_error error = {""};
    struct test tests[2];
    struct row row  = {0};
    int n           = 0;
    int32_t *tokens = malloc((size_t) o->model.n_ctx * sizeof *tokens);
    bool ok         = tokens != NULL || model_fail(&error, "out of memory for %" PRId64 " tokens", o->model.n_ctx);
    if (o->n_prompt > 0) {
        tests[n++] = (struct test){.kind = "pp", .n_tokens = o->n_prompt};
    }
    if (o->n_gen > 0) {
        tests[n++] = (struct test){.kind = "tg", .n_tokens = o->n_gen};
    }
    if (ok) {
        tokens_fill(tokens, o->model.n_ctx, m->model->params.n_vocab);
    }
    for (int i = 0; ok && i < n; i++) {
        ok = measure(m->session, &tests[i], o->n_reps, tokens, &error);
    }
    cli_progress_end();
    free(tokens);
    ok = ok && (row_init(&row, m, o) || model_fail(&error, "out of memory for the names"));
    if (ok) {
        FILE *file = o->out != NULL ? cli_open(o->out) : stdout;
        if (file == NULL) {
            row_fini(&row);
            return CLI_FAILURE;
        }
        (o->output == MD ? print_md : o->output == CSV ? print_csv : print_json)(file, &row, tests, n);
        if (o->out != NULL && cli_close(file, o->out, true) != CLI_OK) {
            row_fini(&row);
            return CLI_FAILURE;
        }
    }
    row_fini(&row);
    return ok ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text);
}

int cli_bench(int argc, char **argv) {
    struct options o = {.n_prompt = 512, .n_gen = 128, .n_reps = 5};
    struct cli_model m;
    int code = parse(argc, argv, &o);
    if (code >= 0) {
        return code;
    }
    o.model.n_threads = o.model.n_threads > 0 ? o.model.n_threads : model_n_cores();
    cli_catch_interrupt();
    code = cli_model_open(&m, &o.model);
    if (code != CLI_OK) {
        return code;
    }
    model_devices_set_abort(&m.devices, cli_is_interrupted, NULL);
    code = cli_model_output(&m, o.out);
    code = code == CLI_OK ? cli_model_session(&m, &o.model) : code;
    if (code == CLI_OK) {
        code = bench(&m, &o);
    }
    cli_model_close(&m);
    return code;
}
