// SPDX-License-Identifier: MIT
// chat.c: `berth chat [MODEL]`: a conversation, turn by turn. What was said stays in the model's cache, so that each turn reads
// only what is new; where the context is full, the oldest turns are forgotten.

#include "cli/chat.h"
#include "base/base.h"
#include "cli/generate_options.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

struct options {
    struct model_options model;
    struct cli_sampling sampling;
    const char *system, *template, *lora, *prompt;
    int64_t n_predict;
};

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    CLI_OPTION(0, "system", "TEXT", "what the model is told before all else (default: nothing)", CLI_TO(struct options, system),
        .also = "system-prompt"),
    CLI_OPTION(0, "template", "NAME",
        "how turns are spelled out: chatml, llama3, gemma, ... (default: as the file's own template; a wrong NAME lists them)",
        .takes = "@templates", CLI_TO(struct options, template), .also = "chat-template"),
    CLI_OPTION('p', "prompt", "TEXT", "say this first", CLI_TO(struct options, prompt)),
    CLI_OPTION('n', "predict", "N", "at most N tokens an answer (default, and -1: until it ends)", CLI_RANGE(-1, 0),
        CLI_TO(struct options, n_predict), .also = "n-predict"),
    CLI_SAMPLING_ROWS,
    CLI_OPT_LORA(CLI_TO(struct options, lora), ""),
    CLI_SESSION_ROWS,
    CLI_PLACE_ROWS,
    CLI_OPT_LLAMA,
    {0},
};

const struct cli_help cli_chat_help = {
    .command = "chat",
    .what = "talk with a model",
    .operands = "[MODEL]",
    .takes = ".gguf",
    .n_operands = {0, 1, 1},
    .bases = {[CLI_IN_MODEL] = offsetof(struct options, model), [CLI_IN_SAMPLING] = offsetof(struct options, sampling)},
    .about =
        "Talks with a language model: a line is what you say, then the model answers. Ctrl-C stops an answer, Ctrl-D ends the "
        "conversation. A line that ends in a backslash goes on in the next one. Lines that begin with a slash are commands:\n"
        "  /reset            forget what was said\n"
        "  /system TEXT      say something else before all else, and begin anew\n"
        "  /save FILE        write the conversation as JSON\n"
        "  /load FILE        go on with one that was saved\n"
        "  /stats            positions, speed, memory\n"
        "  /help, /quit",
    .options = option_rows,
    .size = sizeof(struct options),
    .initial = &(const struct options){.model = {.may_llama = true}, .sampling = CLI_SAMPLING_INITIAL, .n_predict = -1},
    .examples = {{"Talk with a model", "chat -m model.gguf"},
        {"With a role, the same answers each time", "chat -m model.gguf --system \"You are a pirate.\" --temp 0"}},
};

struct chat {
    const struct options *options;
    struct workbench *m;
    const struct chat_template *row;
    struct chat_history history;
    struct sampler sampler;
    struct text_guide guide;
    bool is_script;              // nobody is at a terminal: Ctrl-C ends the conversation
    bool is_cached;              // the cache holds the history up to the end of the last answer's words
    struct generate_result made; // the last answer
    int64_t n_read, read_us, n_made, made_us, n_turns;
};

static void templates_list(void) {
    fputs("templates:", stderr);
    for (const struct chat_template *t = chat_templates; t->name != NULL; t++) {
        fprintf(stderr, " %s", t->name);
    }
    fputs("\n", stderr);
}

static int template_choose(struct chat *c) {
    const struct gguf_context *meta = berth_gguf_map_meta(c->m->model->file);
    struct model_error error = {""};
    const char *program = NULL;
    if (c->options->template != NULL) {
        c->row = chat_template_find(c->options->template);
        if (c->row == NULL) {
            templates_list();
            return cli_usage("chat", "--template '%s' is none that is known", c->options->template);
        }
        return CLI_OK;
    }
    if (!keys_text(meta, "tokenizer.chat_template", &program, &error)) {
        return cli_fail(CLI_FAILURE, "%s: %s", c->m->path, error.text);
    }
    c->row = program != NULL ? chat_template_recognise(program) : NULL;
    if (c->row == NULL) {
        templates_list();
        return cli_fail(CLI_FAILURE, "%s: %s; choose one with --template", c->m->path,
            program != NULL ? "its chat template is of no family that is known" : "it has no chat template");
    }
    return CLI_OK;
}

// ---- a turn ----

// Where the words of the last answer end in the text of the conversation so far.
static size_t words_end(const struct chat *c, size_t n) {
    char *text = chat_format(c->row, c->history.messages, n, false);
    const char *tail = c->row->says[CHAT_ASSISTANT].behind;
    const size_t size = text != NULL ? strlen(text) : 0, n_tail = text != NULL && tail != NULL ? strlen(tail) : 0;
    berth_free(text);
    return size - n_tail;
}

// The tokens that the model has not read yet.
static bool tokens_unread(struct chat *c, struct token_list *tokens, struct model_error *error) {
    char *text = chat_format(c->row, c->history.messages, c->history.n, true);
    size_t from = 0;
    int32_t first = -1;
    if (c->is_cached) { // all but the user's last words, and perhaps the last token of the answer
        from = words_end(c, c->history.n - 1);
        first = c->made.n_made > 0 && !c->made.is_last_read && !vocab_is_end(c->m->vocab, c->made.last) ? c->made.last : -1;
    } else {
        session_reset(c->m->session);
    }
    if (text == NULL) {
        return model_fail(error, "out of memory");
    }
    const unsigned how = ENCODE_PARSE | (from == 0 ? ENCODE_ADD : 0);
    const bool ok = (first < 0 || token_push(tokens, first, error)) &&
                    vocab_encode(c->m->vocab, text + from, strlen(text) - from, how, tokens, error);
    berth_free(text);
    return ok;
}

static bool tokens_decode(struct chat *c, const struct token_list *tokens, struct model_error *error) {
    const int64_t start = ggml_time_us();
    const bool ok = session_decode(c->m->session, tokens->ids, (int64_t) tokens->n, error);
    c->read_us += ggml_time_us() - start;
    if (!ok) {
        return false;
    }
    c->n_read += (int64_t) tokens->n;
    for (size_t i = 0; i < tokens->n; i++) {
        if (!sampler_accept(&c->sampler, tokens->ids[i])) {
            return model_fail(error, "out of memory");
        }
    }
    return true;
}

// Reads what is new. Where that has no room, the oldest turns go, and the rest is read again.
static bool take_in(struct chat *c, struct model_error *error) {
    struct session *s = c->m->session;
    for (;;) {
        struct token_list tokens = {0};
        bool ok = tokens_unread(c, &tokens, error);
        const int64_t n = (int64_t) tokens.n, room = s->params.n_ctx - s->n_past;
        const size_t first = c->history.n > 0 && c->history.messages[0].role == CHAT_SYSTEM;
        if (ok && n >= room && c->history.n > first + 1) {
            chat_history_drop(&c->history, first);
            if (c->history.messages[first].role == CHAT_ASSISTANT && c->history.n > first + 1) {
                chat_history_drop(&c->history, first);
            }
            c->is_cached = false;
            token_list_fini(&tokens);
            continue;
        }
        if (ok && n >= room) {
            ok = model_fail(
                error, "this has %" PRId64 " tokens, the context has room for %" PRId64 ": give it more with --ctx", n, room);
        } else if (ok) {
            ok = tokens_decode(c, &tokens, error);
        }
        token_list_fini(&tokens);
        return ok;
    }
}

// The answer to the last message, written as it comes and kept. False after a message.
static bool answer_make(struct chat *c) {
    struct model_error error = {""};
    struct berth_stream copy = {0};
    struct text_writer w = {0};
    const struct cli_sampling *sampling = &c->options->sampling;
    const struct generator g = {
        .session = c->m->session, .writer = &w, .sampler = &c->sampler, .guide = c->guide.guide, .stop = cli_is_interrupted};
    bool ok =
        berth_stream_open(&copy) && text_writer_init(&w, c->m->vocab, sampling->stops.items, (int) sampling->stops.n, stdout);
    w.is_terminal = isatty(STDOUT_FILENO);
    w.copy = copy.file;
    if (ok) {
        ok = (g.guide == NULL || guide_reset(g.guide, &error)) && take_in(c, &error);
    }
    c->made = (struct generate_result){0};
    if (ok) {
        ok = text_generate(&g, c->options->n_predict, &c->made, &error);
    }
    const bool is_stopped = cli_is_interrupted(NULL);
    ok = (w.chars == NULL || text_writer_end(&w)) && (ok || is_stopped);
    ok = berth_stream_close(&copy) && ok;
    puts(is_stopped ? " ..." : "");
    fflush(stdout);
    c->is_cached = ok && !w.is_over && error.text[0] == '\0'; // a stop word's tokens are in the cache, but not in the history
    c->n_made += c->made.n_made;
    c->made_us += c->made.made_us;
    c->n_turns++;
    if (ok && !chat_history_add(&c->history, CHAT_ASSISTANT, copy.text, copy.size)) {
        ok = false;
    }
    if (!ok) {                 // the question is forgotten with it
        if (!ferror(stdout)) { // cli_finish tells of a full disk
            cli_fail(CLI_FAILURE, "%s", error.text[0] != '\0' ? error.text : "out of memory");
        }
        chat_history_drop(&c->history, c->history.n - 1);
        c->is_cached = false;
    }
    text_writer_fini(&w);
    berth_stream_fini(&copy);
    if (!is_stopped || !c->is_script) { // a script ends, a person says something else
        cli_interrupt_clear();
    }
    return ok;
}

// ---- commands ----

static int chat_reset(struct chat *c, const char *system) {
    chat_history_fini(&c->history);
    c->is_cached = false;
    return system == NULL || system[0] == '\0' || chat_history_add(&c->history, CHAT_SYSTEM, system, strlen(system))
               ? CLI_OK
               : cli_fail(CLI_FAILURE, "out of memory");
}

static void stats_print(const struct chat *c) {
    const struct session *s = c->m->session;
    printf("%zu messages, %" PRId64 " of %" PRId64 " positions; read %" PRId64 " tokens, %.1f a second; made %" PRId64
           ", %.1f a second",
        c->history.n, s->n_past, s->params.n_ctx, c->n_read, c->read_us > 0 ? 1e6 * (double) c->n_read / (double) c->read_us : 0,
        c->n_made, c->made_us > 0 ? 1e6 * (double) c->n_made / (double) c->made_us : 0);
    cli_model_memory(stdout, c->m);
    printf("; template %s; seed %" PRId64 "\n", c->row->name, c->options->sampling.seed);
}

static const char *command_argument(const char *line, const char *name) {
    const size_t n = strlen(name);
    if (strncmp(line, name, n) != 0 || (line[n] != '\0' && line[n] != ' ')) {
        return NULL;
    }
    return line + n + strspn(line + n, " ");
}

// False: the end.
static bool command_run(struct chat *c, const char *line) {
    const char *value;
    if (command_argument(line, "/quit") != NULL || command_argument(line, "/exit") != NULL) {
        return false;
    }
    if (command_argument(line, "/reset") != NULL) {
        chat_reset(c, c->history.n > 0 && c->history.messages[0].role == CHAT_SYSTEM ? c->options->system : NULL);
    } else if ((value = command_argument(line, "/system")) != NULL) {
        chat_reset(c, value);
    } else if ((value = command_argument(line, "/save")) != NULL && value[0] != '\0') {
        if (chat_history_save(&c->history, value)) {
            printf("%zu messages saved\n", c->history.n);
        }
    } else if ((value = command_argument(line, "/load")) != NULL && value[0] != '\0') {
        if (chat_history_load(&c->history, value)) {
            c->is_cached = false;
            printf("%zu messages loaded\n", c->history.n);
        }
    } else if (command_argument(line, "/stats") != NULL) {
        stats_print(c);
    } else {
        puts("/reset, /system TEXT, /save FILE, /load FILE, /stats, /quit");
    }
    fflush(stdout);
    return true;
}

// Something is said, and answered.
static int turn_take(struct chat *c, const char *text) {
    if (!c->is_script) {
        cli_interrupt_clear(); // a Ctrl-C before anything was said stops nothing
    }
    if (!chat_history_add(&c->history, CHAT_USER, text, strlen(text))) {
        return cli_fail(CLI_FAILURE, "out of memory");
    }
    return answer_make(c) ? CLI_OK : CLI_FAILURE;
}

static int chat_run(struct chat *c) {
    struct chat_line line;
    chat_line_open(&line);
    c->is_script = !line.is_terminal;
    int code = c->options->prompt != NULL ? turn_take(c, c->options->prompt) : CLI_OK;
    // Nobody reads any more, or a script should know of a failure: then there is no next line.
    for (const char *text; !ferror(stdout) && (code == CLI_OK || line.is_terminal) &&
                           !(c->is_script && cli_is_interrupted(NULL)) && (text = chat_line_next(&line)) != NULL;) {
        if (text[0] == '/' && !command_run(c, text)) {
            break;
        }
        code = text[0] != '/' && text[0] != '\0' ? turn_take(c, text) : CLI_OK;
    }
    chat_line_close(&line);
    return code;
}

static int chat_with(const struct options *o, struct workbench *m) {
    struct chat c = {.options = o, .m = m, .sampler = o->sampling.sampler};
    int code = template_choose(&c);
    if (code != CLI_OK || (o->lora != NULL && (code = cli_model_lora(m, o->lora)) != CLI_OK) ||
        (code = cli_guide_open(&o->sampling, m->vocab, &c.guide)) != CLI_OK ||
        (code = cli_model_session(m, &o->model)) != CLI_OK || (code = chat_reset(&c, o->system)) != CLI_OK) {
        goto end;
    }
    code = chat_run(&c);
end:
    chat_history_fini(&c.history);
    sampler_fini(&c.sampler);
    text_guide_close(&c.guide);
    return code;
}

int cli_chat(const struct cli_args *args) {
    struct options *o = args->options;
    struct workbench m;
    cli_sampling_init(&o->sampling);
    cli_catch_interrupt();
    int code = cli_model_open_text(&m, &o->model);
    if (code != CLI_OK) {
        return code;
    }
    model_devices_set_abort(&m.devices, cli_is_interrupted, NULL);
    code = chat_with(o, &m);
    workbench_close(&m);
    return code;
}
