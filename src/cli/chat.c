// SPDX-License-Identifier: MIT
// chat.c: `berth chat [MODEL]`. The conversation stays in the model's cache, so each turn processes only new tokens. When the
// context is full, the oldest turns are dropped.

#include "generate/conversation.h"

#include "base/base.h"
#include "cli/generate_options.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
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
    CLI_OPTION(0, "system", "TEXT", "system message at the start of the conversation (default: none)",
        CLI_TO(struct options, system), .also = "system-prompt"),
    CLI_OPTION(0, "template", "NAME",
        "chat template: chatml, llama3, gemma, ... (default: that of the file; an unknown NAME lists all)", .takes = "@templates",
        CLI_TO(struct options, template), .also = "chat-template"),
    CLI_OPTION('p', "prompt", "TEXT", "first message of the user", CLI_TO(struct options, prompt)),
    CLI_OPTION('n', "predict", "N", "at most N tokens per answer (default -1: no limit)", CLI_RANGE(-1, 0),
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
    .what = "chat with a model",
    .operands = "[MODEL]",
    .takes = ".gguf",
    .n_operands = {0, 1, 1},
    .bases = {[CLI_IN_MODEL] = offsetof(struct options, model), [CLI_IN_SAMPLING] = offsetof(struct options, sampling)},
    .about =
        "Holds a conversation with a language model: type a line, and the model answers. Ctrl-C stops an answer, Ctrl-D ends the "
        "conversation. A line that ends with a backslash continues on the next line. Lines that start with a slash are "
        "commands:\n"
        "  /reset            forget the conversation\n"
        "  /system TEXT      set another system message and forget the conversation\n"
        "  /save FILE        save the conversation as JSON\n"
        "  /load FILE        continue a saved conversation\n"
        "  /stats            print positions, speed and memory\n"
        "  /help, /quit",
    .options = option_rows,
    .size = sizeof(struct options),
    .initial = &(const struct options){.model = {.may_llama = true}, .sampling = CLI_SAMPLING_INITIAL, .n_predict = -1},
    .examples = {{"Chat with a model", "chat -m model.gguf"},
        {"With a system message and the same answers each time", "chat -m model.gguf --system \"You are a pirate.\" --temp 0"}},
};

// ---- input lines ----

// libedit or readline edits and recalls input lines. The library is loaded by dlopen, because only this command needs it.

#define END_HINT "\n(press Ctrl-D or type /quit to end)\n"

struct chat_line {
    bool is_terminal;                   // input and output are a terminal
    void *library;                      // handle of dlopen; NULL: none
    char *(*read)(const char *prompt);  // the library's readline; NULL: none
    void (*remember)(const char *line); // the library's add_history; NULL: none
    char *text;                         // the line that is read
    size_t n, cap;
    bool is_out_of_memory; // the line was too long for the memory
};

static void chat_line_open(struct chat_line *l) {
    static const char *const names[] = {"libedit.so.2", "libreadline.so.8", "libreadline.so.7"};
    const char *term = getenv("TERM");
    *l = (struct chat_line){.is_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)};
    const bool can_edit = l->is_terminal && term != NULL && strcmp(term, "dumb") != 0;
    for (size_t i = 0; can_edit && l->library == NULL && i < sizeof names / sizeof *names; i++) {
        l->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (l->library != NULL) {
        *(void **) &l->read = dlsym(l->library, "readline");
        *(void **) &l->remember = dlsym(l->library, "add_history");
    }
}

static bool line_append(struct chat_line *l, const char *text, size_t n) {
    if (!berth_grow((void **) &l->text, &l->cap, l->n + n + 1, 1)) {
        l->is_out_of_memory = true;
        return false;
    }
    memcpy(l->text + l->n, text, n);
    l->n += n;
    l->text[l->n] = '\0';
    return true;
}

// Appends the next line of standard input, without its line end, to l->text. Returns false if there is no next line or memory is
// exhausted.
static bool line_read_plain(struct chat_line *l) {
    int c;
    bool has_any = false;
    while ((c = getchar()) != '\n') {
        if (c == EOF && errno == EINTR && l->is_terminal) { // Ctrl-C at the prompt
            clearerr(stdin);
            errno = 0;
            cli_interrupt_clear();
            fputs(END_HINT "> ", stdout);
            fflush(stdout);
            cli_interrupt_wake_reads(true);
            continue;
        }
        const char byte = (char) c;
        if (c == EOF) {
            return has_any;
        }
        if (!line_append(l, &byte, 1)) {
            return false;
        }
        has_any = true;
    }
    return line_append(l, "", 0);
}

// Shows the prompt at a terminal and appends the next line to l->text. Ctrl-C at the prompt prints a hint, and the prompt appears
// again. Returns false at the end of the input.
static bool line_read(struct chat_line *l, const char *prompt) {
    if (l->read == NULL) {
        if (l->is_terminal) {
            printf("%s%s%s", cli_colour(stdout, CLI_GREEN), prompt, cli_colour(stdout, CLI_RESET));
            fflush(stdout);
        }
        errno = 0;
        cli_interrupt_wake_reads(true);
        const bool has_line = line_read_plain(l);
        cli_interrupt_wake_reads(false);
        return has_line;
    }
    cli_interrupt_wake_reads(true);
    char *text = l->read(prompt);
    while (text == NULL && cli_is_interrupted(NULL)) { // Ctrl-C at the prompt
        cli_interrupt_clear();
        fputs(END_HINT, stdout);
        fflush(stdout);
        cli_interrupt_wake_reads(true);
        text = l->read(prompt);
    }
    cli_interrupt_wake_reads(false);
    const bool ok = text != NULL && line_append(l, text, strlen(text));
    if (ok && text[0] != '\0' && l->remember != NULL) {
        l->remember(text);
    }
    free(text);
    cli_interrupt_clear();
    return ok;
}

// Returns the next line without its line end, or NULL at the end of the input or if memory is exhausted. A line that ends with a
// backslash is joined with the next line. The text is valid until the next call.
static const char *chat_line_next(struct chat_line *l) {
    l->n = 0;
    bool is_first = true;
    do {
        if (!is_first) {
            l->text[l->n - 1] = '\n';
        }
        if (!line_read(l, is_first ? "> " : ". ")) {
            break;
        }
        is_first = false;
    } while (l->n > 0 && l->text[l->n - 1] == '\\');
    return is_first || l->is_out_of_memory ? NULL : l->text;
}

// ---- a conversation ----

struct chat {
    const struct options *options;
    struct workbench *m;
    struct conversation talk;
    struct sampler sampler;
    struct text_guide guide;
    bool is_script; // no terminal: Ctrl-C ends the conversation
};

static void templates_list(void) {
    fputs("templates:", stderr);
    for (const struct chat_template *t = chat_templates; t->name != NULL; t++) {
        fprintf(stderr, " %s", t->name);
    }
    fputs("\n", stderr);
}

static int template_choose(struct chat *c) {
    struct model_error error = {""};
    c->talk.template = chat_template_of(berth_gguf_map_meta(c->m->model->file), c->options->template, &error);
    if (c->talk.template != NULL) {
        return CLI_OK;
    }
    templates_list();
    return c->options->template != NULL
               ? cli_usage("chat", "unknown --template '%s'", c->options->template)
               : cli_fail(CLI_FAILURE, "%s: %s; choose a template with --template", c->m->path, error.text);
}

// ---- a turn ----

// Processes the user's last message, prints the answer token by token and appends it to the history. Returns false after a
// failure, for which it has printed a message. Then the user's message is not in the history any more.
static bool answer_make(struct chat *c) {
    struct model_error error = {""};
    struct text_writer w = {0};
    const struct cli_sampling *sampling = &c->options->sampling;
    const struct generator g = {
        .session = c->m->session, .writer = &w, .sampler = &c->sampler, .guide = c->guide.guide, .stop = cli_is_interrupted};
    bool ok = text_writer_init(&w, c->m->vocab, sampling->stops.items, (int) sampling->stops.n, stdout);
    w.is_terminal = isatty(STDOUT_FILENO);
    if (ok) {
        ok = conversation_answer(&c->talk, &g, c->options->n_predict, &error);
    } else {
        chat_history_drop(&c->talk.history, c->talk.history.n - 1);
    }
    puts(cli_is_interrupted(NULL) ? " ..." : "");
    fflush(stdout);
    if (!ok && !ferror(stdout)) { // cli_finish reports errors of stdout, such as a full disk
        cli_fail(CLI_FAILURE, "%s", error.text[0] != '\0' ? error.text : "out of memory");
    }
    text_writer_fini(&w);
    if (!cli_is_interrupted(NULL) || !c->is_script) { // a script ends; at a terminal the user continues
        cli_interrupt_clear();
    }
    return ok;
}

// ---- commands ----

static int chat_reset(struct chat *c, const char *system) {
    chat_history_fini(&c->talk.history);
    c->talk.is_cached = false;
    return system == NULL || system[0] == '\0' || chat_history_add(&c->talk.history, CHAT_SYSTEM, system, strlen(system))
               ? CLI_OK
               : cli_fail(CLI_FAILURE, "out of memory");
}

// Forgets the conversation, except the system message.
static void history_forget(struct chat *c) {
    const bool has_system = c->talk.history.n > 0 && c->talk.history.messages[0].role == CHAT_SYSTEM;
    const size_t size = has_system ? strlen(c->talk.history.messages[0].text) + 1 : 0;
    char *system = has_system ? berth_malloc(size) : NULL;
    if (has_system && system == NULL) {
        cli_fail(CLI_FAILURE, "out of memory: the conversation was not reset");
        return;
    }
    if (has_system) {
        memcpy(system, c->talk.history.messages[0].text, size);
    }
    chat_reset(c, system);
    berth_free(system);
}

static void history_save(const struct chat *c, const char *path) {
    FILE *file = cli_open(path);
    if (file == NULL) {
        return;
    }
    chat_history_write(&c->talk.history, file);
    if (cli_close(file, path, !ferror(file)) == CLI_OK) {
        printf("%zu messages saved\n", c->talk.history.n);
    }
}

static void history_load(struct chat *c, const char *path) {
    struct model_error error = {""};
    size_t size = 0;
    char *text = cli_read_text(path, &size);
    if (text == NULL) {
        return;
    }
    if (chat_history_read(&c->talk.history, text, size, path, &error)) {
        c->talk.is_cached = false;
        printf("%zu messages loaded\n", c->talk.history.n);
    } else {
        cli_fail(CLI_FAILURE, "%s", error.text);
    }
    berth_free(text);
}

static void stats_print(const struct chat *c) {
    const struct session *s = c->m->session;
    printf("%zu messages, %" PRId64 " of %" PRId64 " positions; prompt: %" PRId64 " tokens, %.1f tokens/s; generated: %" PRId64
           " tokens, %.1f tokens/s; template %s; seed %" PRId64 "\n",
        c->talk.history.n, s->n_past, s->params.n_ctx, c->talk.n_read,
        c->talk.read_us > 0 ? 1e6 * (double) c->talk.n_read / (double) c->talk.read_us : 0, c->talk.n_made,
        c->talk.made_us > 0 ? 1e6 * (double) c->talk.n_made / (double) c->talk.made_us : 0, c->talk.template->name,
        c->options->sampling.seed);
    cli_model_memory(stdout, c->m);
}

// Returns the text after the command `name`, without leading spaces. Returns NULL if the line is not this command.
static const char *command_argument(const char *line, const char *name) {
    const size_t n = strlen(name);
    if (strncmp(line, name, n) != 0 || (line[n] != '\0' && line[n] != ' ')) {
        return NULL;
    }
    return line + n + strspn(line + n, " ");
}

// Runs the command in a line that starts with a slash. Returns false if the command ends the conversation.
static bool command_run(struct chat *c, const char *line) {
    const char *value;
    if (command_argument(line, "/quit") != NULL || command_argument(line, "/exit") != NULL) {
        return false;
    }
    if (command_argument(line, "/reset") != NULL) {
        history_forget(c);
    } else if ((value = command_argument(line, "/system")) != NULL) {
        chat_reset(c, value);
    } else if ((value = command_argument(line, "/save")) != NULL && value[0] != '\0') {
        history_save(c, value);
    } else if ((value = command_argument(line, "/load")) != NULL && value[0] != '\0') {
        history_load(c, value);
    } else if (command_argument(line, "/stats") != NULL) {
        stats_print(c);
    } else {
        puts("/reset, /system TEXT, /save FILE, /load FILE, /stats, /quit");
    }
    fflush(stdout);
    return true;
}

// Adds the user's message and makes the answer.
static int turn_take(struct chat *c, const char *text) {
    if (!c->is_script) {
        cli_interrupt_clear(); // ignores a Ctrl-C before the message
    }
    if (!chat_history_add(&c->talk.history, CHAT_USER, text, strlen(text))) {
        return cli_fail(CLI_FAILURE, "out of memory");
    }
    return answer_make(c) ? CLI_OK : CLI_FAILURE;
}

static int chat_run(struct chat *c) {
    struct chat_line line;
    chat_line_open(&line);
    c->is_script = !line.is_terminal;
    int code = c->options->prompt != NULL ? turn_take(c, c->options->prompt) : CLI_OK;
    // A script, unlike a terminal, ends after any failure.
    for (const char *text; !ferror(stdout) && (code == CLI_OK || line.is_terminal) &&
                           !(c->is_script && cli_is_interrupted(NULL)) && (text = chat_line_next(&line)) != NULL;) {
        if (text[0] == '/' && !command_run(c, text)) {
            break;
        }
        code = text[0] != '/' && text[0] != '\0' ? turn_take(c, text) : CLI_OK;
    }
    if (line.is_out_of_memory) {
        code = cli_fail(CLI_FAILURE, "out of memory for a line of %zu bytes", line.n + 1);
    }
    berth_free(line.text); // the library is not closed, because it registers a handler for the end of the program
    return code;
}

static int chat_start(const struct options *o, struct workbench *m) {
    struct chat c = {.options = o, .m = m, .sampler = o->sampling.sampler};
    int code = template_choose(&c);
    if (code != CLI_OK || (o->lora != NULL && (code = cli_model_lora(m, o->lora)) != CLI_OK) ||
        (code = cli_guide_open(&o->sampling, m->vocab, &c.guide)) != CLI_OK ||
        (code = cli_model_session(m, &o->model)) != CLI_OK || (code = chat_reset(&c, o->system)) != CLI_OK) {
        goto end;
    }
    code = chat_run(&c);
end:
    chat_history_fini(&c.talk.history);
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
    code = chat_start(o, &m);
    workbench_close(&m);
    return code;
}
