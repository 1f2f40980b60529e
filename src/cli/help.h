// SPDX-License-Identifier: MIT
// help.h: the table that describes a command. The option parser, --help, the man page and shell completion use the table.
#pragma once

#include "cli/cli.h"

#include <stddef.h>

struct cli_command;
struct cli_option;

enum cli_kind {
    CLI_TEXT,  // the text as const char *. If the option has no value: a bool, which is set to true
    CLI_INT,   // an integer from min to max
    CLI_REAL,  // a finite number from min to max
    CLI_SIZE,  // bytes, from 1 to 2^62: berth_parse_size
    CLI_MS,    // milliseconds, which may have a fraction, as int64_t microseconds
    CLI_WORD,  // one of the words in `takes`; stored as its index
    CLI_INTS,  // a struct cli_ints: integers from min to max, separated by commas
    CLI_TEXTS, // a struct cli_texts: every use of the option appends a text
};

// The target of an option is the field that stores its value. The field is in the command's own struct (CLI_IN_OPTIONS) or in a
// nested struct. cli_help.bases has the offset of the nested struct.
enum cli_base { CLI_IN_OPTIONS, CLI_IN_MODEL, CLI_IN_SAMPLING, CLI_IN_CONTEXTS, CLI_N_BASES };

// Parses a value for which enum cli_kind has no kind. On failure prints a message and returns the exit code.
typedef int (*cli_option_parse)(const struct cli_option *option, const char *command, const char *value, void *target);

// A letter means the same in every command (docs/man/berth.1.in, OPTIONS).
struct cli_option {
    char letter;            // 0: none
    const char *name;       // the long name
    const char *value;      // name of the value, in capitals; NULL: the option has no value
    const char *what;       // one or two sentences without a final full stop
    const char *also;       // other long names, separated by blanks; NULL: none
    const char *takes;      // values that completion offers (complete.c); NULL: none
    enum cli_use use;       // how the command uses the file that the value names (cli_input_add)
    enum cli_kind kind;     // ignored if `parse` is set
    double min, max;        // max 0: no limit
    const char *preset;     // default value, shown in help; NULL: the target keeps its initial value
    enum cli_base base;     // the struct that contains the target; CLI_TO_MODEL and similar macros set it
    size_t at, size;        // offset and bytes of the target; CLI_TO sets them
    cli_option_parse parse; // NULL: parsed by its kind
    bool is_list;           // the first field of the target points to memory that is freed after the command
    bool is_operand;        // the value may also be an operand; operands are in the order of their rows
    bool is_required;       // a text that must be given
};
#define CLI_TO(type, field) .at = offsetof(type, field), .size = sizeof(((type *) NULL)->field)
#define CLI_TO_MODEL(field) .base = CLI_IN_MODEL, CLI_TO(struct model_options, field)
// The parse function gets the whole struct as its target.
#define CLI_TO_ALL(function) .size = 1, .parse = function
// The only option is a bool, which is the whole struct.
#define CLI_TO_BOOL .size = sizeof(bool)
#define CLI_TO_LIST(kind_of, type, field) .kind = kind_of, .is_list = true, CLI_TO(type, field)

// Freed after the command.
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
    const char *what;     // one line in the list of commands
    const char *operands; // text after "berth command [OPTION]...", "" if there are none
    const char *about;    // paragraphs, one per line; leading blank: verbatim
    const char *takes;    // completion of operands, the first before '|'; NULL: none
    struct {
        // Number of operands, including those that options replace. The first `read` operands are input files; INT_MAX: all.
        int least, most, read;
    } n_operands;
    const struct cli_command *parts;  // subcommands; a command with subcommands has no options; NULL: none
    const struct cli_option *options; // ends with a row without a name; --help and --quiet are added automatically
    size_t size;                      // bytes of the struct into which options are parsed
    const void *initial;              // initial value of this struct before presets and options; NULL: zeros
    size_t bases[CLI_N_BASES];        // offsets of the nested structs in the command's struct
    const char *negative, *further;   // meaning of exit code 1; other exit codes such as "4 ..."; NULL: none
    struct {
        const char *what, *line; // the command line without "berth "
    } examples[3];
};

// A row: letter or 0, name, value or NULL, description, other fields.
#define CLI_OPTION(l, n, v, w, ...) \
    { .letter = l, .name = n, .value = v, .what = w, __VA_ARGS__ }
#define CLI_REAL_IN(least, most) .kind = CLI_REAL, .min = least, .max = most
#define CLI_RANGE(least, most) .kind = CLI_INT, .min = least, .max = most

// Rows that several commands share. Rows of models set the struct model_options at bases[CLI_IN_MODEL].
#define CLI_OPT_MODEL \
    CLI_OPTION('m', "model", "FILE", "the model file; may also be given as an argument", .takes = ".gguf", .use = CLI_READ, \
        CLI_TO_MODEL(path), .is_operand = true)
#define CLI_OPT_CTX \
    CLI_OPTION('c', "ctx", "N", "context size in positions (default: that of the model, at least 512 and at most 4096)", \
        .also = "ctx-size", CLI_INT_OF_MODEL(n_ctx, INT32_MAX))
#define CLI_OPT_BATCH \
    CLI_OPTION( \
        'b', "batch", "N", "batch size in tokens (default 512)", .also = "batch-size", CLI_INT_OF_MODEL(n_batch, INT32_MAX))
#define CLI_OPT_CACHE_TYPE \
    CLI_OPTION(0, "cache-type", "T", "type of the cached keys and values, or T,T to set each of them (default f16)", \
        .takes = "@cache-types", .base = CLI_IN_MODEL, CLI_TO_ALL(cli_model_cache_type))
#define CLI_OPT_THREADS \
    CLI_OPTION('t', "threads", "N", "CPU threads (default: number of cores)", CLI_INT_OF_MODEL(n_threads, 1024))
#define CLI_OPT_DEVICE \
    CLI_OPTION( \
        'd', "device", "NAME", "run on this device (default: all GPUs and the CPU)", .takes = "@devices", CLI_TO_MODEL(device))
#define CLI_OPT_GPU_LAYERS \
    CLI_OPTION(0, "gpu-layers", "N", \
        "0: run on the CPU only; 99 or more: put as many layers on GPUs as fit (default); as -ngl of llama.cpp", \
        .also = "ngl n-gpu-layers", .base = CLI_IN_MODEL, CLI_TO_ALL(cli_model_gpu_layers))
#define CLI_OPT_HOST_EXPERTS \
    CLI_OPTION(0, "n-cpu-moe", "N", "keep the experts of the first N layers in host memory, as llama.cpp does (default 0)", \
        .also = "ncmoe", CLI_RANGE(0, 65536), CLI_TO_MODEL(n_host_experts))
#define CLI_OPT_SPLIT \
    CLI_OPTION(0, "split", "HOW", \
        "layer: assign whole layers to devices (default); tensor: give each device a share of every layer, on all GPUs or on " \
        "those " \
        "that --device names, such as CPU,CPU; auto: measure all devices briefly and use the faster way", \
        .takes = "layer tensor auto", .also = "split-mode", .base = CLI_IN_MODEL, .kind = CLI_WORD, CLI_TO_ALL(cli_model_split))
#define CLI_OPT_NO_MMAP \
    CLI_OPTION(0, "no-mmap", NULL, \
        "read the model into memory instead of mapping it; use it for files that other programs may change", \
        CLI_TO_MODEL(no_mmap))
#define CLI_OPT_LLAMA \
    CLI_OPTION(0, "llama", NULL, \
        "run the model with llama.cpp's libllama on Berth, as for architectures that Berth does not know; libllama is searched " \
        "in " \
        "BERTH_LLAMA=DIR, library folders and npm's folders", \
        CLI_TO_MODEL(by_llama))
#define CLI_INT_OF_MODEL(field, most) CLI_RANGE(1, most), CLI_TO_MODEL(field)
#define CLI_SESSION_ROWS CLI_OPT_CTX, CLI_OPT_BATCH, CLI_OPT_CACHE_TYPE
#define CLI_PLACE_ROWS CLI_OPT_THREADS, CLI_OPT_DEVICE, CLI_OPT_NO_MMAP, CLI_OPT_GPU_LAYERS, CLI_OPT_HOST_EXPERTS
// For commands whose options have a `struct fit_question fit` (cli_fit_apply).
#define CLI_FIT_ROWS \
    CLI_OPTION(0, "memory", "N", \
        "stay within N bytes, or within limits per device as in 'berth fit'. As far as needed: reduce the batch, recompute " \
        "ops, " \
        "use a smaller cache type, leave layers on the host, shorten the context (unless the command fixes it)", \
        .parse = cli_fit_memory, .is_list = true, CLI_TO(struct options, fit.limits)), \
        CLI_OPTION(0, "allow", "LIST", "with --memory: allow only the listed changes: batch, recompute, cache-type, spill", \
            .parse = cli_fit_allow, CLI_TO(struct options, fit.allow))
#define CLI_OPT_LORA(target, more) \
    CLI_OPTION(0, "lora", "FILE[:SCALE]", "apply this adapter with strength SCALE (default 1)" more, .takes = ".gguf", \
        .use = CLI_READ, target)
#define CLI_OPT_JSON(target, fields) CLI_OPTION(0, "json", NULL, fields, target)

#define CLI_OPT_SEARCH_TIME(type, field) \
    CLI_OPTION(0, "time", "MS", \
        "search for a better plan for MS milliseconds, which may have a fraction, in addition to the fast passes. Ctrl-C ends " \
        "the " \
        "search and keeps the best plan so far", \
        .kind = CLI_MS, .preset = "0", CLI_TO(type, field))
#define CLI_OPT_SEARCH_THREADS(type, field) \
    CLI_OPTION('t', "threads", "N", "search threads, 1 to 256", CLI_RANGE(1, 256), .preset = "1", CLI_TO(type, field))

// Parses the command line and runs the command, or prints the help with --help. argv[0] is the command's name. Returns the exit
// code.
int cli_command_run(const struct cli_command *command, int argc, char **argv);
// Sets the options of a command to their defaults.
void cli_options_init(const struct cli_help *help, void *options);
// Parses an integer in the option's range. On failure prints a message and returns the exit code.
int cli_option_int(const struct cli_option *option, const char *command, const char *value, int64_t *out);
// On failure prints a message and returns the exit code.
int cli_option_text(const struct cli_option *option, const char *value, struct cli_texts *list);
// Stores the index of a word in `takes`. On failure prints a message and returns the exit code.
int cli_option_word(const struct cli_option *option, const char *command, const char *value, int64_t *out);
void cli_help_print(const struct cli_help *help, FILE *file);
void cli_help_man(const struct cli_help *help, FILE *file); // its part of the man page, in mdoc

// NULL: unknown command.
const struct cli_command *cli_find(const struct cli_command *list, const char *name);
void cli_list_print(const struct cli_command *list, FILE *file);
// Returns the last word of the name: "info" for "gguf info".
const char *cli_name(const struct cli_command *command);
// `berth help --complete`: the answers for bash completion (tools/completion/berth.bash).
int cli_complete(const struct cli_command *commands, int argc, char **argv);

// ---- The commands, in the order of their list. A command's file defines the function cli_NAME and the table cli_NAME_help.
// cli_NAME returns an exit code. Only this list contains all commands. ----

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
    X(serve) \
    X(train) \
    X(verify) \
    X(version) \
    X(which) \
    X(worker)
#define CLI_GGUF_PARTS(X) \
    X(gguf_info) X(gguf_check) X(gguf_diff) X(gguf_quantize) X(gguf_merge) X(gguf_split) X(gguf_join) X(gguf_set) X(gguf_hash)

struct cli_args {
    void *options;   // the struct of help.size bytes; NULL for a command with subcommands
    char **operands; // [n] operands that do not belong to an option
    int n;
};

#define CLI_DECLARE(name) \
    extern const struct cli_help cli_##name##_help; \
    int cli_##name(const struct cli_args *args);
CLI_COMMANDS(CLI_DECLARE)
CLI_GGUF_PARTS(CLI_DECLARE)
#undef CLI_DECLARE

struct cli_command {
    const struct cli_help *help; // NULL: end of the list
    int (*run)(const struct cli_args *args);
};
#define CLI_ROW(name) {&cli_##name##_help, cli_##name},
