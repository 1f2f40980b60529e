// SPDX-License-Identifier: MIT
// run.c: `berth run [MODEL]`: a model goes on with a text, token by token, printed as they come.

#include "base/base.h"
#include "cli/help.h"
#include "cli/map.h"
#include "cli/models.h"
#include "model/vocab.h"
#include "plan/io/json.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OPT_TEMP = CLI_OWN, OPT_TOP_K, OPT_TOP_P, OPT_TRACE, OPT_MAP, OPT_LORA };
#define MAX_LORAS 16

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    {.letter   = 'p',
        .name  = "prompt",
        .value = "TEXT",
        .what  = "the text to go on with (default: what a pipe brings, else \"Once upon a time\"); '-': standard input"},
    {.letter   = 'f',
        .name  = "file",
        .value = "FILE",
        .takes = "*",
        .what  = "go on with the text of FILE, without its last line end"},
    {.letter   = 'n',
        .name  = "predict",
        .value = "N",
        .what  = "at most N tokens (default: until the model ends or its context is full)",
        .also  = "n-predict"},
    {.letter = 'e', .name = "echo", .what = "print the prompt too"},
    {.id       = OPT_TEMP,
        .name  = "temp",
        .value = "T",
        .what  = "0: always the likeliest token; higher: wilder (default 0.8)",
        .also  = "temperature"},
    {.id = OPT_TOP_K, .name = "top-k", .value = "K", .what = "choose among the K likeliest, 0: all (default 40)"},
    {.id = OPT_TOP_P, .name = "top-p", .value = "P", .what = "of those, the likeliest that have P together (default 0.95)"},
    {.letter = 's', .name = "seed", .value = "S", .what = "seed of the choices (default: another one each time)"},
    {.id       = OPT_LORA,
        .name  = "lora",
        .value = "FILE[:SCALE]",
        .takes = ".gguf",
        .what  = "with this adapter, SCALE times as strong (default 1); may be given again for more"},
    CLI_OPT_CTX,
    CLI_OPT_BATCH,
    CLI_OPT_CACHE_TYPE,
    CLI_OPT_THREADS,
    CLI_OPT_DEVICE,
    CLI_OPT_NO_MMAP,
    CLI_OPT_GPU_LAYERS,
    {.id = OPT_TRACE, .name = "trace", .value = "FILE", .takes = "*", .what = "write a timeline for Chrome or Perfetto"},
    {.id       = OPT_MAP,
        .name  = "map",
        .value = "FILE",
        .takes = ".svg .html .json",
        .what  = "draw the memory map of the largest graph as FILE.svg or FILE.html; FILE.json: its plan"},
    CLI_OPT_JSON("print one JSON object at the end: text, tokens, speed, memory"),
    {0},
};

const struct cli_help cli_run_help = {
    .command  = "run",
    .what     = "let a model write",
    .operands = "[MODEL]",
    .takes    = ".gguf",
    .about   = "Lets a language model of the llama family (a GGUF file; docs/models.md has the architectures) go on with a text. "
               "Without "
               "MODEL it is the small one that comes with Berth and tells tales. The text goes to standard output as it comes; "
               "then a line on standard error says how fast it was and what it took. Ctrl-C ends it after the token at hand.",
    .options = option_rows,
    .examples = {{"A tale", "run"},
        {"A question from a file, answered the same way each time", "run -m model.gguf -f question.txt --temp 0 -n 200"}},
};

struct options {
    struct cli_model_options model;
    const char *prompt, *file, *trace, *map;
    const char *loras[MAX_LORAS];
    int n_loras;
    size_t prompt_size;
    char *prompt_text; // if the prompt is of a file
    double temperature, top_p;
    int64_t top_k, n_predict, seed; // n_predict, seed -1: not given
    bool echo, json;
};

// What was done, for the line at the end.
struct result {
    int64_t n_prompt, n_made;
    int64_t n_decoded; // of those made, the ones that were read again: what made_us was spent on
    int64_t prompt_us, made_us;
    bool is_stopped; // by Ctrl-C
    bool is_full;    // the context has no position left
};

static int real(const char *name, const char *text, double max, double *out) {
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= 0 && *out <= max
               ? CLI_OK
               : cli_usage("run", "--%s '%s' is not a number from 0 to %g", name, text, max);
}

static int whole(const char *name, const char *text, int64_t *out) {
    return cli_parse_int(text, 0, INT64_MAX, out) ? CLI_OK
                                                  : cli_usage("run", "--%s '%s' is not a whole number from 0", name, text);
}

// -1 to go on, else the exit code.
static int parse(int argc, char **argv, struct options *o) {
    for (int c, code = CLI_OK; (c = cli_option_next(&cli_run_help, argc, argv)) != CLI_END;) {
        switch (c) {
            case 'p': o->prompt = optarg; break;
            case 'f': o->file = optarg; break;
            case 'n': code = whole("predict", optarg, &o->n_predict); break;
            case 'e': o->echo = true; break;
            case 's': code = whole("seed", optarg, &o->seed); break;
            case OPT_TEMP: code = real("temp", optarg, 1e6, &o->temperature); break;
            case OPT_TOP_K: code = whole("top-k", optarg, &o->top_k); break;
            case OPT_TOP_P: code = real("top-p", optarg, 1, &o->top_p); break;
            case OPT_TRACE: o->trace = optarg; break;
            case OPT_MAP: o->map = optarg; break;
            case OPT_LORA:
                if (o->n_loras == MAX_LORAS) {
                    return cli_usage("run", "more than %d adapters are given", MAX_LORAS);
                }
                o->loras[o->n_loras++] = optarg;
                break;
            case CLI_JSON: o->json = true; break;
            default:
                if (!cli_model_option("run", c, optarg, &o->model, &code)) {
                    return c == CLI_SHOWN ? CLI_OK : CLI_USAGE;
                }
        }
        if (code != CLI_OK) {
            return code;
        }
    }
    if (o->prompt != NULL && o->file != NULL) {
        return cli_usage("run", "--prompt and --file are two prompts");
    }
    return cli_model_file("run", argc, argv, &o->model);
}

// The prompt: as given, of a file, of standard input, or how tales begin.
static int prompt_get(struct options *o) {
    const bool is_dash = o->prompt != NULL && strcmp(o->prompt, "-") == 0;
    const bool is_pipe = is_dash || (o->prompt == NULL && o->file == NULL && cli_has_stdin());
    if (is_pipe || o->file != NULL) {
        size_t n       = 0;
        o->prompt_text = cli_read_text(is_pipe ? "-" : o->file, &n);
        if (o->prompt_text == NULL) {
            return CLI_FAILURE;
        }
        n -= n > 0 && o->prompt_text[n - 1] == '\n';
        n -= n > 0 && o->prompt_text[n - 1] == '\r';
        o->prompt      = n > 0 || is_dash || o->file != NULL ? o->prompt_text : NULL;
        o->prompt_size = n;
    }
    if (o->prompt == NULL) {
        o->prompt = "Once upon a time";
    }
    if (o->prompt != o->prompt_text) {
        o->prompt_size = strlen(o->prompt);
    }
    return CLI_OK;
}

// ---- text ----

// Bytes of a token, to the terminal or into the result. False: out of memory or a full disk.
struct writer {
    const struct vocab *vocab;
    struct utf8_stream stream;
    char *piece, *chars;
    size_t cap;
    FILE *file;
    bool is_terminal;
};

static bool writer_init(struct writer *w, const struct vocab *vocab, FILE *file) {
    *w             = (struct writer){.vocab = vocab, .file = file, .cap = vocab->max_size + 8};
    w->is_terminal = file == stdout && isatty(STDOUT_FILENO);
    w->piece       = malloc(w->cap);
    w->chars       = malloc(3 * (w->cap + 4));
    return w->piece != NULL && w->chars != NULL;
}

// Models come from anywhere too: on a terminal, characters that would command it become '?'. Characters are whole here.
static void tame(char *chars, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char c     = (unsigned char) chars[i];
        const bool is_command     = (c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f;
        const bool is_two_command = c >= 0x80 && c < 0xa0 && i > 0 && (unsigned char) chars[i - 1] == 0xc2;
        if (is_two_command) { // U+0080 to U+009F
            chars[i - 1] = '?';
        }
        chars[i] = is_command || is_two_command ? '?' : chars[i];
    }
}

static bool writer_put(struct writer *w, int32_t token) {
    const size_t n = vocab_piece(w->vocab, token, w->piece, w->cap);
    const size_t m = utf8_stream_put(&w->stream, w->piece, n, w->chars);
    tame(w->chars, w->is_terminal ? m : 0);
    return fwrite(w->chars, 1, m, w->file) == m && fflush(w->file) == 0;
}

static bool writer_end(struct writer *w) {
    const size_t m = utf8_stream_end(&w->stream, w->chars);
    return fwrite(w->chars, 1, m, w->file) == m && fflush(w->file) == 0;
}

static void writer_fini(struct writer *w) {
    free(w->piece);
    free(w->chars);
}

// ---- running ----

static bool generate(const struct options *o, struct session *s, struct writer *w, struct sampler *sampler, struct result *r,
    struct model_error *error) {
    const int64_t start = ggml_time_us();
    bool ok             = true;
    while (ok && (o->n_predict < 0 || r->n_made < o->n_predict) && !cli_is_interrupted(NULL)) {
        const int32_t token = sampler_pick(sampler, s->logits, s->model->params.n_vocab);
        if (token < 0) {
            ok = model_fail(error, "the model's answer holds no number, or memory is out");
            break;
        }
        if (vocab_is_end(w->vocab, token)) {
            break;
        }
        r->n_made++;
        if (!writer_put(w, token)) {
            ok = model_fail(error, "standard output: writing failed: %s", strerror(errno));
            break;
        }
        if (s->n_past == s->params.n_ctx || (o->n_predict >= 0 && r->n_made == o->n_predict)) {
            break;
        }
        ok = session_decode(s, &token, 1, error);
        r->n_decoded += ok;
    }
    r->made_us = ggml_time_us() - start;
    return ok;
}

static bool work(const struct options *o, struct cli_model *m, const struct vocab *vocab, struct writer *w,
    struct sampler *sampler, struct result *r, struct model_error *error) {
    struct session *s        = m->session;
    struct token_list tokens = {0};
    bool ok                  = vocab_encode(vocab, o->prompt, o->prompt_size, true, true, &tokens, error);
    r->n_prompt              = (int64_t) tokens.n;
    if (ok && tokens.n == 0) {
        ok = model_fail(error, "the prompt is empty");
    }
    if (ok && r->n_prompt > s->params.n_ctx) {
        ok = model_fail(error, "the prompt has %" PRId64 " tokens, the context %" PRId64 " positions: give it more with --ctx",
            r->n_prompt, s->params.n_ctx);
    }
    if (ok && o->echo) {
        fwrite(o->prompt, 1, o->prompt_size, w->file);
        fflush(w->file);
    }
    const int64_t start = ggml_time_us();
    ok                  = ok && session_decode(s, tokens.ids, r->n_prompt, error);
    r->prompt_us        = ggml_time_us() - start;
    r->n_prompt         = ok ? r->n_prompt : s->n_past; // all, or as far as it came
    ok                  = ok && generate(o, s, w, sampler, r, error);
    r->is_stopped       = cli_is_interrupted(NULL);
    r->is_full          = s->n_past == s->params.n_ctx;
    token_list_fini(&tokens);
    return ok || r->is_stopped;
}

static double per_second(int64_t n, int64_t us) {
    return us > 0 ? 1e6 * (double) n / (double) us : 0;
}

static void print_line(const struct options *o, const struct cli_model *m, const struct result *r) {
    fprintf(stderr, "%s%sprompt %" PRId64 " token%s, %.1f a second; made %" PRId64, cli_colour(stderr, CLI_DIM),
        r->is_stopped ? "stopped; "
        : r->is_full  ? "the context is full; "
                      : "",
        r->n_prompt, r->n_prompt == 1 ? "" : "s", per_second(r->n_prompt, r->prompt_us), r->n_made);
    if (r->n_decoded > 0) { // one token takes no decoding beyond the prompt's
        fprintf(stderr, ", %.1f a second", per_second(r->n_decoded, r->made_us));
    }
    cli_model_memory(stderr, m);
    fprintf(stderr, "; seed %" PRId64 "%s\n", o->seed, cli_colour(stderr, CLI_RESET));
}

static void print_json(
    const struct options *o, const struct cli_model *m, const struct result *r, const struct berth_stream *text) {
    fputs("{\"model\": ", stdout);
    cli_json_text(stdout, m->path);
    fputs(", \"prompt\": ", stdout);
    berth_json_write_text(o->prompt, o->prompt_size, stdout);
    fputs(", \"text\": ", stdout);
    berth_json_write_text(text->text, text->size, stdout);
    printf(", \"prompt_tokens\": %" PRId64 ", \"prompt_per_second\": %.3f, \"tokens\": %" PRId64
           ", \"per_second\": %.3f, \"seed\": %" PRId64 ", \"stopped\": %s, \"memory\": ",
        r->n_prompt, per_second(r->n_prompt, r->prompt_us), r->n_made, per_second(r->n_decoded, r->made_us), o->seed,
        r->is_stopped ? "true" : "false");
    cli_model_memory_json(stdout, m);
    puts("}");
}

static int run_text(const struct options *o, struct cli_model *m, const struct vocab *vocab) {
    struct model_error error = {""};
    struct result r          = {0};
    struct writer w          = {0};
    struct sampler sampler;
    struct berth_stream text = {0};
    bool ok                  = (!o->json || berth_stream_open(&text)) && writer_init(&w, vocab, o->json ? text.file : stdout);
    sampler_init(&sampler, (float) o->temperature, o->top_k, (float) o->top_p, (uint64_t) o->seed);
    if (ok && o->trace != NULL && berth_sched_trace_start(m->session->sched) != GGML_STATUS_SUCCESS) {
        ok = model_fail(&error, "%s", berth_last_error());
    }
    ok = ok && work(o, m, vocab, &w, &sampler, &r, &error);
    ok = w.chars != NULL && writer_end(&w) && ok;
    writer_fini(&w);
    sampler_fini(&sampler);
    if (o->json) {
        ok = berth_stream_close(&text) && ok;
    } else if (r.n_made > 0 || (o->echo && ok)) {
        putchar('\n');
    }
    int code = CLI_OK;
    if (ok && o->json) {
        print_json(o, m, &r, &text);
    } else if (ok) {
        ok = fflush(stdout) == 0;
        print_line(o, m, &r);
    }
    if (!ok) {
        code = ferror(stdout) ? CLI_FAILURE // cli_finish tells of a full disk
                              : cli_fail(CLI_FAILURE, "%s", error.text[0] != '\0' ? error.text : "out of memory");
    }
    berth_stream_fini(&text);
    return code;
}

// ---- files beside it ----

// The plan of the largest graph, while that is at hand.
static int write_map(const char *path, struct cli_model *m) {
    if (!cli_map_is_name(path)) {
        FILE *file = cli_open(path);
        return file == NULL ? CLI_FAILURE
                            : cli_close(file, path, berth_sched_save(m->session->sched, file) == GGML_STATUS_SUCCESS);
    }
    struct berth_stream s;
    const bool is_saved = berth_stream_open(&s) && berth_sched_save(m->session->sched, s.file) == GGML_STATUS_SUCCESS;
    const bool ok       = berth_stream_close(&s) && is_saved;
    const int code      = ok ? cli_map_saved(s.text, s.size, m->path, path)
                             : cli_fail(CLI_FAILURE, "%s: %s", path, is_saved ? "out of memory" : berth_last_error());
    berth_stream_fini(&s);
    return code;
}

// The text, and its timeline into a file that is opened before: a long run should not end with a name that cannot be written.
static int run_traced(const struct options *o, struct cli_model *m, const struct vocab *vocab) {
    FILE *file = o->trace != NULL ? cli_open(o->trace) : NULL;
    if (file == NULL) {
        return o->trace != NULL ? CLI_FAILURE : run_text(o, m, vocab);
    }
    const int code = run_text(o, m, vocab);
    if (code != CLI_OK) {
        cli_drop(file);
        return code;
    }
    return cli_close(file, o->trace, berth_sched_trace_stop(m->session->sched, file) == GGML_STATUS_SUCCESS);
}

int cli_run(int argc, char **argv) {
    struct options o         = {.temperature = 0.8, .top_p = 0.95, .top_k = 40, .n_predict = -1, .seed = -1};
    struct model_error error = {""};
    struct cli_model m;
    int code = parse(argc, argv, &o);
    if (code >= 0) {
        return code;
    }
    if (o.seed < 0) {
        o.seed = (int64_t) (((uint64_t) time(NULL) * 1000003 + (uint64_t) ggml_time_us()) % 1000000000);
    }
    if (prompt_get(&o) != CLI_OK) {
        return CLI_FAILURE;
    }
    cli_catch_interrupt();
    code = cli_model_open(&m, &o.model);
    if (code != CLI_OK) {
        free(o.prompt_text);
        return code;
    }
    model_devices_set_abort(&m.devices, cli_is_interrupted, NULL);
    struct vocab *vocab = vocab_new(berth_gguf_map_meta(m.model->file), m.model->params.n_vocab, &error);
    code                = vocab == NULL ? cli_fail(CLI_FAILURE, "%s: %s", m.path, error.text) : cli_model_output(&m, o.trace);
    code                = code == CLI_OK ? cli_model_output(&m, o.map) : code;
    for (int i = 0; code == CLI_OK && i < o.n_loras; i++) {
        code = cli_model_lora(&m, o.loras[i]);
    }
    code = code == CLI_OK ? cli_model_session(&m, &o.model) : code;
    if (code == CLI_OK && o.map != NULL) {
        code = write_map(o.map, &m);
    }
    if (code == CLI_OK) {
        code = run_traced(&o, &m, vocab);
    }
    vocab_free(vocab);
    cli_model_close(&m);
    free(o.prompt_text);
    return code;
}
