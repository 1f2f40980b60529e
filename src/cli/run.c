// SPDX-License-Identifier: MIT
// run.c: `berth run [MODEL]`: a model continues a text and prints each token when it is generated.

#include "base/base.h"
#include "base/json.h"
#include "base/min.h"
#include "cli/generate_options.h"
#include "cli/plans.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

struct options {
    struct model_options model;
    struct fit_question fit; // valid if --memory was given
    const char *prompt, *file, *trace, *map, *cache;
    struct cli_texts loras;
    size_t prompt_size;
    char *prompt_text; // owned text, if the prompt was read from a file
    struct cli_sampling sampling;
    int64_t n_predict;  // -1: no limit
    int64_t n_logprobs; // -1: not requested
    bool echo, json;
};

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    CLI_OPTION('p', "prompt", "TEXT",
        "the text to continue (default: a piped standard input, else \"Once upon a time\"); '-': standard input",
        CLI_TO(struct options, prompt)),
    CLI_OPTION('f', "file", "FILE", "continue the text of FILE, without its final newline", .takes = "*", .use = CLI_READ,
        CLI_TO(struct options, file)),
    CLI_OPTION('n', "predict", "N", "at most N tokens (default -1: until the model ends or the context is full)",
        CLI_RANGE(-1, 0), CLI_TO(struct options, n_predict), .also = "n-predict"),
    CLI_OPTION('e', "echo", NULL, "print the prompt, too", CLI_TO(struct options, echo)),
    CLI_SAMPLING_ROWS,
    CLI_OPT_LORA(CLI_TO_LIST(CLI_TEXTS, struct options, loras), "; may be repeated"),
    CLI_SESSION_ROWS,
    CLI_PLACE_ROWS,
    CLI_OPT_LLAMA,
    CLI_OPT_SPLIT,
    CLI_FIT_ROWS,
    CLI_OPTION(
        0, "trace", "FILE", "write a timeline of all ops for Chrome or Perfetto", .takes = "*", CLI_TO(struct options, trace)),
    CLI_OPTION(0, "map", "FILE",
        "draw the memory map of the largest graph as FILE.svg or FILE.html, or save its plan as FILE.json",
        .takes = ".svg .html .json", CLI_TO(struct options, map)),
    CLI_OPTION(0, "prompt-cache", "FILE",
        "reuse the beginning of the prompt that FILE contains, and save the processed prompt there", .takes = "*",
        .use = CLI_UPDATE, CLI_TO(struct options, cache)),
    CLI_OPTION(0, "logprobs", "N", "with --json: log probabilities of each token and of the N most likely ones",
        CLI_RANGE(0, 1000), CLI_TO(struct options, n_logprobs)),
    CLI_OPT_JSON(
        CLI_TO(struct options, json), "print one JSON object at the end: text, tokens, speed, memory, ctx, batch, cache_type"),
    {0},
};

const struct cli_help cli_run_help = {
    .command = "run",
    .what = "generate text with a model",
    .operands = "[MODEL [PROMPT]]",
    .takes = ".gguf|",
    .n_operands = {0, 2, 1},
    .bases = {[CLI_IN_MODEL] = offsetof(struct options, model), [CLI_IN_SAMPLING] = offsetof(struct options, sampling)},
    .about =
        "Continues a text with a language model (a GGUF file; docs/user/models.md lists the architectures). Without MODEL, the "
        "small "
        "model of Berth generates a tale. The text goes to standard output while it is generated; speed and memory follow on "
        "standard error. Ctrl-C stops after the current token.",
    .options = option_rows,
    .size = sizeof(struct options),
    .initial = &(
        const struct options){.model = {.may_llama = true}, .sampling = CLI_SAMPLING_INITIAL, .n_predict = -1, .n_logprobs = -1},
    .examples = {{"Generate a tale", "run"},
        {"Continue a file, with the same result each time", "run -m model.gguf -f question.txt --temp 0 -n 200"}},
};

struct result {
    int64_t n_prompt, prompt_us;
    int64_t n_kept;              // tokens of the prompt that came from the prompt cache
    struct generate_result made; // the generated tokens
    bool is_stopped;             // by Ctrl-C
    bool is_full;                // the context has no free position
};

// Checks the combination of options. The operands of the command are [MODEL [PROMPT]]. args does not contain MODEL, so its first
// operand is PROMPT. Stores PROMPT in o->prompt.
static int options_check(struct options *o, const struct cli_args *args) {
    if (o->n_logprobs >= 0 && !o->json) {
        return cli_usage("run", "--logprobs requires --json");
    }
    if (cli_fit_check("run", &o->fit) != CLI_OK) {
        return CLI_USAGE;
    }
    if (o->prompt != NULL && o->file != NULL) {
        return cli_usage("run", "--prompt and --file cannot be combined");
    }
    if (args->n == 0) {
        return CLI_OK;
    }
    const char *text = args->operands[0];
    if (berth_file_starts_with(text, "GGUF")) {
        return cli_usage("run", "unexpected argument '%s': run takes one model and one prompt", text);
    }
    if (o->prompt != NULL || o->file != NULL) {
        return cli_usage(
            "run", "unexpected argument '%s': the prompt is given by --%s", text, o->file != NULL ? "file" : "prompt");
    }
    o->prompt = text;
    return CLI_OK;
}

// The default prompt is the beginning of a tale.
static int prompt_get(struct options *o) {
    const bool is_dash = o->prompt != NULL && strcmp(o->prompt, "-") == 0;
    const bool is_pipe = is_dash || (o->prompt == NULL && o->file == NULL && cli_has_stdin());
    if (is_pipe || o->file != NULL) {
        size_t n = 0;
        o->prompt_text = cli_read_text(is_pipe ? "-" : o->file, &n);
        if (o->prompt_text == NULL) {
            return CLI_FAILURE;
        }
        n -= n > 0 && o->prompt_text[n - 1] == '\n';
        n -= n > 0 && o->prompt_text[n - 1] == '\r';
        o->prompt = n > 0 || is_dash || o->file != NULL ? o->prompt_text : NULL;
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

// ---- the prompt cache ----

// A missing file is not an error: cache_save creates it. A file of another version of Berth is replaced. Any other unusable file is
// an error.
static bool cache_load(
    const struct options *o, struct session *s, const struct token_list *tokens, struct result *r, struct model_error *error) {
    struct model_error why = {""};
    FILE *file = o->cache != NULL ? fopen(o->cache, "rb") : NULL;
    if (file == NULL) {
        return o->cache == NULL || errno == ENOENT || model_fail(error, "%s: cannot be read: %s", o->cache, strerror(errno));
    }
    bool is_old;
    const bool ok = session_load(s, tokens->ids, (int64_t) tokens->n, file, &is_old, &why);
    r->n_kept = s->n_past;
    fclose(file);
    if (is_old) {
        cli_warn("%s: %s: the prompt is processed from the start and the file is replaced", o->cache, why.text);
        return true;
    }
    return ok || model_fail(error, "%s: %s", o->cache, why.text);
}

static bool cache_save(const struct options *o, const struct session *s, const struct token_list *tokens, const struct result *r,
    struct model_error *error) {
    // session_load never restores the last token of the prompt. If it restored all other tokens, the same prompt gains nothing
    // from a new file.
    if (o->cache == NULL || r->n_kept + 1 >= (int64_t) tokens->n) {
        return true;
    }
    FILE *file = cli_open_update(o->cache);
    if (file == NULL) {
        return model_fail(error, "the prompt cache was not saved");
    }
    const bool ok = session_save(s, tokens->ids, (int64_t) tokens->n, file, error);
    return cli_close(file, o->cache, ok) == CLI_OK || model_fail(error, "the prompt cache was not saved");
}

// ---- running ----

static bool prompt_decode(
    const struct options *o, struct session *s, const struct token_list *tokens, struct result *r, struct model_error *error) {
    if (!cache_load(o, s, tokens, r, error)) {
        return false;
    }
    const int64_t start = ggml_time_us();
    const bool ok = session_decode(s, tokens->ids + r->n_kept, r->n_prompt - r->n_kept, error);
    r->prompt_us = ggml_time_us() - start;
    return ok && cache_save(o, s, tokens, r, error);
}

static bool prompt_continue(const struct options *o, const struct generator *g, struct result *r, struct model_error *error) {
    struct session *s = g->session;
    struct token_list tokens = {0};
    bool ok = text_prompt_encode(g, o->prompt, o->prompt_size, &tokens, error);
    r->n_prompt = (int64_t) tokens.n;
    if (ok && o->echo) {
        fwrite(o->prompt, 1, o->prompt_size, g->writer->file);
        fflush(g->writer->file);
    }
    if (ok) {
        ok = prompt_decode(o, s, &tokens, r, error) && text_generate(g, o->n_predict, &r->made, error);
    }
    r->n_prompt = min_i64(r->n_prompt, s->n_past); // fewer if it was interrupted
    r->is_stopped = cli_is_interrupted(NULL);
    r->is_full = s->n_past == s->params.n_ctx;
    token_list_fini(&tokens);
    return ok || r->is_stopped;
}

static double per_second(int64_t n, int64_t us) {
    return us > 0 ? 1e6 * (double) n / (double) us : 0;
}

static void print_statistics(const struct options *o, const struct workbench *m, const struct result *r) {
    const char *full = r->is_full ? "the context is full; " : "";
    char kept[48] = "";
    if (cli_is_quiet()) {
        return;
    }
    if (r->n_kept > 0) {
        snprintf(kept, sizeof kept, " (%" PRId64 " from the prompt cache)", r->n_kept);
    }
    fprintf(stderr, "%s%sprompt: %" PRId64 " token%s%s, %.1f tokens/s; generated: %" PRId64 " token%s",
        cli_colour(stderr, CLI_DIM), r->is_stopped ? "stopped; " : full, r->n_prompt, r->n_prompt == 1 ? "" : "s", kept,
        per_second(r->n_prompt - r->n_kept, r->prompt_us), r->made.n_made, r->made.n_made == 1 ? "" : "s");
    if (r->made.n_decoded > 0) { // less than n_made, because the first token comes from the logits of the prompt
        fprintf(stderr, ", %.1f tokens/s", per_second(r->made.n_decoded, r->made.made_us));
    }
    fprintf(stderr, "; seed %" PRId64 "\n", o->sampling.seed);
    cli_model_memory(stderr, m);
    fputs(cli_colour(stderr, CLI_RESET), stderr);
}

static void print_json(const struct options *o, const struct workbench *m, const struct result *r,
    const struct berth_stream *text, const struct generator *g) {
    struct berth_json_writer w = {.file = stdout};
    berth_json_begin(&w, NULL, '{');
    berth_json_printf(&w, "'model': %s", m->path);
    berth_json_put_key(&w, "prompt");
    berth_json_write_text(o->prompt, o->prompt_size, stdout);
    berth_json_put_key(&w, "text");
    berth_json_write_text(text->text, text->size, stdout);
    berth_json_printf(&w,
        "'prompt_tokens': %" PRId64 ", 'prompt_kept': %" PRId64 ", 'prompt_per_second': %.3f, 'tokens': %" PRId64
        ", 'per_second': %.3f, 'seed': %" PRId64 ", 'stopped': %c",
        r->n_prompt, r->n_kept, per_second(r->n_prompt - r->n_kept, r->prompt_us), r->made.n_made,
        per_second(r->made.n_decoded, r->made.made_us), o->sampling.seed, r->is_stopped);
    cli_model_memory_json(&w, "memory", m);
    const struct session_params *p = &m->session->params;
    char cache[64];
    snprintf(cache, sizeof cache, "%s%s%s", ggml_type_name(p->cache_k), p->cache_v != p->cache_k ? "," : "",
        p->cache_v != p->cache_k ? ggml_type_name(p->cache_v) : "");
    berth_json_printf(&w, "'ctx': %" PRId64 ", 'batch': %" PRId64 ", 'cache_type': %s", p->n_ctx, p->n_batch, cache);
    if (g->logs != NULL) {
        logprobs_write(&w, "logprobs", g->logs, g->writer->vocab);
    }
    puts("}");
}

static int run_text(const struct options *o, struct workbench *m) {
    struct model_error error = {""};
    struct result r = {0};
    struct text_writer w = {0};
    struct sampler sampler = o->sampling.sampler;
    struct berth_stream text = {0};
    struct logprobs logs = {.n_top = o->n_logprobs};
    struct text_guide guide;
    const int guide_code = cli_guide_open(&o->sampling, m->vocab, &guide);
    if (guide_code != CLI_OK) {
        return guide_code;
    }
    bool ok = (!o->json || berth_stream_open(&text)) &&
              text_writer_init(&w, m->vocab, o->sampling.stops.items, (int) o->sampling.stops.n, o->json ? text.file : stdout);
    w.is_terminal = !o->json && isatty(STDOUT_FILENO);
    const struct generator g = {.session = m->session,
        .writer = &w,
        .sampler = &sampler,
        .guide = guide.guide,
        .logs = o->n_logprobs >= 0 ? &logs : NULL,
        .stop = cli_is_interrupted};
    if (ok && o->trace != NULL && berth_sched_trace_start(m->session->sched) != GGML_STATUS_SUCCESS) {
        ok = model_fail(&error, "%s", berth_last_error());
    }
    if (ok) {
        ok = prompt_continue(o, &g, &r, &error);
    }
    if (w.memory != NULL && !text_writer_end(&w)) {
        ok = false;
    }
    text_writer_fini(&w);
    sampler_fini(&sampler);
    if (o->json) {
        if (!berth_stream_close(&text)) {
            ok = false;
        }
    } else if (r.made.n_made > 0 || (o->echo && ok)) {
        putchar('\n');
    }
    int code = CLI_OK;
    if (ok && o->json) {
        print_json(o, m, &r, &text, &g);
    } else if (ok) {
        ok = fflush(stdout) == 0;
        print_statistics(o, m, &r);
    }
    if (!ok) {
        code = CLI_FAILURE;
        if (!ferror(stdout)) { // cli_finish reports errors of stdout, such as a full disk
            cli_fail(code, "%s", error.text[0] != '\0' ? error.text : "out of memory");
        }
    }
    text_guide_close(&guide);
    logprobs_fini(&logs);
    berth_stream_fini(&text);
    return code;
}

// ---- other output files ----

// Must be called before a graph is computed: only until then, the scheduler holds the plan of the largest graph.
static int write_map(const char *path, struct workbench *m) {
    if (!cli_map_is_name(path)) {
        FILE *file = cli_open(path);
        return file == NULL ? CLI_FAILURE
                            : cli_close(file, path, berth_sched_save(m->session->sched, file) == GGML_STATUS_SUCCESS);
    }
    struct berth_stream s;
    const bool is_saved = berth_stream_open(&s) && berth_sched_save(m->session->sched, s.file) == GGML_STATUS_SUCCESS;
    const bool ok = berth_stream_close(&s) && is_saved;
    const char *why = is_saved ? "out of memory" : berth_last_error();
    const int code = ok ? cli_map_saved(s.text, s.size, m->path, path) : cli_fail(CLI_FAILURE, "%s: %s", path, why);
    berth_stream_fini(&s);
    return code;
}

// The file is opened first, so that an unwritable file is reported before a long run.
static int run_traced(const struct options *o, struct workbench *m) {
    FILE *file = o->trace != NULL ? cli_open(o->trace) : NULL;
    if (file == NULL) {
        return o->trace != NULL ? CLI_FAILURE : run_text(o, m);
    }
    const int code = run_text(o, m);
    if (code != CLI_OK) {
        cli_drop(file);
        return code;
    }
    return cli_close(file, o->trace, berth_sched_trace_stop(m->session->sched, file) == GGML_STATUS_SUCCESS);
}

static int outputs_check(const struct options *o, const struct workbench *m) {
    if (cli_output_check(o->trace) != CLI_OK || cli_output_check(o->map) != CLI_OK || cli_update_check(o->cache) != CLI_OK) {
        return CLI_FAILURE;
    }
    return o->cache != NULL && !m->model->engine->can_save
               ? cli_fail(CLI_FAILURE, "--prompt-cache is not supported for a model that libllama runs")
               : CLI_OK;
}

static int run_opened(const struct options *o, struct workbench *m) {
    int code = outputs_check(o, m);
    for (size_t i = 0; i < o->loras.n && code == CLI_OK; i++) {
        code = cli_model_lora(m, o->loras.items[i]);
    }
    if (code != CLI_OK || (code = cli_model_session(m, &o->model)) != CLI_OK) {
        return code;
    }
    if (o->map != NULL && (code = write_map(o->map, m)) != CLI_OK) {
        return code;
    }
    return run_traced(o, m);
}

static int run_model(struct options *o) {
    struct workbench m;
    int code = o->model.by_best ? cli_cluster_choose(&o->model) : CLI_OK;
    if (code != CLI_OK || (code = cli_fit_apply("run", &o->fit, &o->model, o->loras.n > 0)) != CLI_OK ||
        (code = cli_model_open_text(&m, &o->model)) != CLI_OK) {
        return code;
    }
    model_devices_set_abort(&m.devices, cli_is_interrupted, NULL);
    code = run_opened(o, &m);
    workbench_close(&m);
    return code;
}

int cli_run(const struct cli_args *args) {
    struct options *o = args->options;
    int code = options_check(o, args);
    if (code != CLI_OK || (code = prompt_get(o)) != CLI_OK) {
        return code;
    }
    cli_sampling_init(&o->sampling);
    cli_catch_interrupt();
    code = run_model(o);
    berth_free(o->prompt_text);
    return code;
}
