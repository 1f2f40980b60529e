// SPDX-License-Identifier: MIT
// help.h: what a command says of itself: one table a command, from which come the parsing of its options, its --help, its part of
// the man page and its completion.
#pragma once

#include "cli/cli.h"

#include <stddef.h>

struct cli_command;
struct cli_option;

// What the value of an option is. A message about a wrong one says what is allowed.
enum cli_kind {
    CLI_TEXT,  // const char *; of an option without a value: a bool, which becomes true
    CLI_INT,   // an integer from min to max
    CLI_REAL,  // a finite number from min to max
    CLI_SIZE,  // bytes, from 1 to 2^62: cli_parse_size
    CLI_MS,    // milliseconds, which may have a fraction, as int64_t microseconds
    CLI_WORD,  // one of the words of `takes`, as its place among them
    CLI_INTS,  // a struct cli_ints: integers from min to max with commas between
    CLI_TEXTS, // a struct cli_texts: one more each time it is given
};

// The struct that a target is in: the command's own, or one inside it that several commands have (cli_help.bases).
enum cli_base { CLI_IN_OPTIONS, CLI_IN_MODEL, CLI_IN_SAMPLING, CLI_IN_CONTEXTS, CLI_N_BASES };

// Sets the target from a value of another kind: CLI_OK, or the exit code after a message.
typedef int (*cli_option_parse)(const struct cli_option *option, const char *command, const char *value, void *target);

// One option. Letters mean the same in every command (docs/man/berth.1.in, OPTIONS).
struct cli_option {
    char letter;            // 0: none
    const char *name;       // the long name
    const char *value;      // what it takes, in capitals; NULL: nothing
    const char *what;       // a sentence or two, without a full stop
    const char *also;       // further long names, split by blanks, or NULL
    const char *takes;      // what completion offers for the value (complete.c); NULL: nothing
    enum cli_use use;       // of a file that is read: told to input.c
    enum cli_kind kind;     // unless `parse` is given
    double min, max;        // max 0: no limit
    const char *preset;     // the value if none is given, which help names; NULL: the target stays as it is
    enum cli_base base;     // CLI_TO sets these three
    size_t at, size;        // offset in the struct, and bytes: an integer may be a bool, an int or enum, or of 64 bits
    cli_option_parse parse; // NULL: by its kind
    bool is_list;           // the target begins with a pointer that parsing gets from berth_realloc
    bool is_operand;        // a text that may also be given as an operand: the first, the next such option the second
    bool is_required;       // a text that must be given
};
#define CLI_TO(type, field) .at = offsetof(type, field), .size = sizeof(((type *) NULL)->field)
#define CLI_TO_MODEL(field) .base = CLI_IN_MODEL, CLI_TO(struct model_options, field)
// A custom parse function gets all of the struct.
#define CLI_TO_ALL(function) .size = 1, .parse = function
// The command has no other option: its options are one bool.
#define CLI_TO_BOOL .size = sizeof(bool)
#define CLI_TO_LIST(kind_of, type, field) .kind = kind_of, .is_list = true, CLI_TO(type, field)

// Lists grow as options are parsed and are freed after the command.
struct cli_ints {
    int64_t *items;
    size_t n, cap;
};
struct cli_texts {
    const char **items;
    size_t n, cap;
};

struct cli_help {
    const char *command;  // "gguf info"
    const char *what;     // a line of the list of commands
    const char *operands; // behind "berth command [OPTION]...", "" if there are none
    const char *about;    // paragraphs, one a line; lines that begin with a blank are printed as they are
    const char *takes;    // what completion offers for operands, those of the first before '|'; NULL: nothing
    struct {
        int least, most, read; // operands, with options in their place; the first so many are files to read; INT_MAX: all
    } n_operands;
    const struct cli_command *parts;  // of a command that has them, which then has no options; NULL: none
    const struct cli_option *options; // until one without a name; --help and --quiet come by themselves
    size_t size;                      // bytes of the struct that options are parsed into
    const void *initial;              // what it is before presets and options; NULL: zeros
    size_t bases[CLI_N_BASES];        // offsets of the structs inside the command's
    const char *no, *more;            // what exit code 1 says, and "4 ..." beyond 0 to 3; or NULL
    struct {
        const char *what, *line; // the command line without "berth "
    } examples[3];
};

// A row: its letter or 0, name, value or NULL, what is said of it, and further fields.
#define CLI_OPTION(l, n, v, w, ...) \
    { .letter = l, .name = n, .value = v, .what = w, __VA_ARGS__ }
#define CLI_REAL_IN(least, most) .kind = CLI_REAL, .min = least, .max = most
#define CLI_RANGE(least, most) .kind = CLI_INT, .min = least, .max = most

// Rows that several commands have; those of models are parsed into the struct model_options at bases[CLI_IN_MODEL].
#define CLI_OPT_MODEL \
    CLI_OPTION('m', "model", "FILE", "the model; the same as FILE behind the options", .takes = ".gguf", .use = CLI_READ, \
        CLI_TO_MODEL(path), .is_operand = true)
#define CLI_OPT_CTX \
    CLI_OPTION('c', "ctx", "N", "positions of a model's context (default: the model's, but 512 to 4096)", .also = "ctx-size", \
        CLI_INT_OF_MODEL(n_ctx, INT32_MAX))
#define CLI_OPT_BATCH \
    CLI_OPTION('b', "batch", "N", "tokens of a model's batch (default 512)", .also = "batch-size", \
        CLI_INT_OF_MODEL(n_batch, INT32_MAX))
#define CLI_OPT_CACHE_TYPE \
    CLI_OPTION(0, "cache-type", "T", "type of a model's cached keys and values, or T,T for each (default f16)", \
        .takes = "@cache-types", .base = CLI_IN_MODEL, CLI_TO_ALL(cli_model_cache_type))
#define CLI_OPT_THREADS \
    CLI_OPTION('t', "threads", "N", "threads of the CPU (default: its cores)", CLI_INT_OF_MODEL(n_threads, 1024))
#define CLI_OPT_DEVICE \
    CLI_OPTION('d', "device", "NAME", "run there (default: all GPUs and the CPU)", .takes = "@devices", CLI_TO_MODEL(device))
#define CLI_OPT_GPU_LAYERS \
    CLI_OPTION(0, "gpu-layers", "N", \
        "0: run on the CPU alone; 99 or more: as much on GPUs as fits, which is the default (-ngl of llama.cpp)", \
        .also = "ngl n-gpu-layers", .base = CLI_IN_MODEL, CLI_TO_ALL(cli_model_gpu_layers))
#define CLI_OPT_SPLIT \
    CLI_OPTION(0, "split", "HOW", \
        "layer: whole layers to a device (default); tensor: a share of every layer to each of the devices, all GPUs or those " \
        "that --device names, as in CPU,CPU; auto: what is faster, by a moment's test of all devices", \
        .takes = "layer tensor auto", .also = "split-mode", .base = CLI_IN_MODEL, .kind = CLI_WORD, CLI_TO_ALL(cli_model_split))
#define CLI_OPT_NO_MMAP \
    CLI_OPTION(0, "no-mmap", NULL, \
        "read the model into memory instead of mapping it: for files that others may change meanwhile", CLI_TO_MODEL(no_mmap))
#define CLI_OPT_LLAMA \
    CLI_OPTION(0, "llama", NULL, \
        "by llama.cpp's libllama on Berth (BERTH_LLAMA=DIR, library folders, npm's), as every architecture is that Berth does " \
        "not know", \
        CLI_TO_MODEL(by_llama))
#define CLI_INT_OF_MODEL(field, most) CLI_RANGE(1, most), CLI_TO_MODEL(field)
// What a session is made of, and where it runs.
#define CLI_SESSION_ROWS CLI_OPT_CTX, CLI_OPT_BATCH, CLI_OPT_CACHE_TYPE
#define CLI_PLACE_ROWS CLI_OPT_THREADS, CLI_OPT_DEVICE, CLI_OPT_NO_MMAP, CLI_OPT_GPU_LAYERS
#define CLI_OPT_LORA(target, more) \
    CLI_OPTION(0, "lora", "FILE[:SCALE]", "with this adapter, SCALE times as strong (default 1)" more, .takes = ".gguf", \
        .use = CLI_READ, target)
#define CLI_OPT_JSON(target, fields) CLI_OPTION(0, "json", NULL, fields, target)

// A search for a plan.
#define CLI_OPT_SEARCH_TIME(type, field) \
    CLI_OPTION(0, "time", "MS", \
        "search this long beyond the fast path, in milliseconds by the clock, which may have a fraction. Ctrl-C ends the " \
        "search with the best plan until then", \
        .kind = CLI_MS, .preset = "0", CLI_TO(type, field))
#define CLI_OPT_SEARCH_THREADS(type, field) \
    CLI_OPTION('t', "threads", "N", "search with N threads, 1 to 256", CLI_RANGE(1, 256), .preset = "1", CLI_TO(type, field))

// Parses the command line, of which argv[0] is the command's name, and runs the command; returns its exit code. --help is
// printed in its place.
int cli_command_run(const struct cli_command *command, int argc, char **argv);
// An integer in the range of the option, for custom functions; CLI_OK, or the exit code after a message.
int cli_option_int(const struct cli_option *option, const char *command, const char *value, int64_t *out);
// One more text in a list; the same.
int cli_option_text(const struct cli_option *option, const char *value, struct cli_texts *list);
// The place of a word in `takes`; the same.
int cli_option_word(const struct cli_option *option, const char *command, const char *value, int64_t *out);
void cli_help_print(const struct cli_help *help, FILE *file);
void cli_help_man(const struct cli_help *help, FILE *file); // its part of the man page, in mdoc

// The next one of a list of commands; NULL: there is none of this name.
const struct cli_command *cli_find(const struct cli_command *list, const char *name);
// The lines of a list of commands or parts.
void cli_list_print(const struct cli_command *list, FILE *file);
// Its last word: "info" of "gguf info".
const char *cli_name(const struct cli_command *command);
// `berth help --complete`: what bash completion asks (tools/completion/berth.bash).
int cli_complete(const struct cli_command *commands, int argc, char **argv);

// ---- the commands, in the order of their list: a file has cli_NAME, which gets its options and the operands that no option stands
// for and returns an exit code, and the table cli_NAME_help. This is the only place that knows them all ----

#define CLI_COMMANDS(X) \
    X(bench) \
    X(chat) \
    X(client) \
    X(devices) \
    X(embed) \
    X(explain) \
    X(fit) \
    X(gguf) \
    X(imatrix) \
    X(map) \
    X(ops) \
    X(perplexity) \
    X(plan) \
    X(run) \
    X(train) \
    X(verify) \
    X(version) \
    X(which) \
    X(worker)
#define CLI_GGUF_PARTS(X) \
    X(gguf_info) X(gguf_check) X(gguf_diff) X(gguf_quantize) X(gguf_merge) X(gguf_split) X(gguf_join) X(gguf_set) X(gguf_hash)

// What a command is called with.
struct cli_args {
    void *options;   // the struct of help.size bytes; of a command with parts NULL
    char **operands; // [n] those that no option stands for
    int n;
};

#define CLI_DECLARE(name) \
    extern const struct cli_help cli_##name##_help; \
    int cli_##name(const struct cli_args *args);
CLI_COMMANDS(CLI_DECLARE)
CLI_GGUF_PARTS(CLI_DECLARE)
#undef CLI_DECLARE

struct cli_command {
    const struct cli_help *help; // NULL: the end of the list
    int (*run)(const struct cli_args *args);
};
#define CLI_ROW(name) {&cli_##name##_help, cli_##name},
