// SPDX-License-Identifier: MIT
// help.h: what a command says of itself: one table a command, from which come the parsing of its options, its --help, its part of
// the man page and its completion.
#pragma once

#include "cli/cli.h"

struct cli_command;

// One option. Letters mean the same in every command (docs/man/berth.1.in, OPTIONS).
struct cli_option {
    int id;            // what cli_option_next answers; 0: the letter
    char letter;       // 0: none
    const char *name;  // the long name; NULL: the letter is gone, and `what` is what it was called
    const char *value; // what it takes, in capitals; NULL: nothing
    const char *what;  // a sentence or two, without a full stop
    const char *also;  // further long names, split by blanks, or NULL
    const char *takes; // what completion offers for the value (complete.c); NULL: nothing
    enum cli_use use;  // of a file that is read: cli_option_next tells input.c
};

struct cli_help {
    const char *command;              // "gguf info"
    const char *what;                 // a line of the list of commands
    const char *operands;             // behind "berth command [OPTION]...", "" if there are none
    const char *about;                // paragraphs, one a line; lines that begin with a blank are printed as they are
    const char *takes;                // what completion offers for operands, those of the first before '|'; NULL: nothing
    int n_read;                       // operands, from the first, that are files to read; INT_MAX: all
    const struct cli_command *parts;  // of a command that has them, which then has no options; NULL: none
    const struct cli_option *options; // until one without letter and name; --help comes by itself
    const char *no, *more;            // what exit code 1 says, and "4 ..." beyond 0 to 3; or NULL
    struct {
        const char *what, *line; // the command line without "berth "
    } examples[3];
};

enum { CLI_END = -1, CLI_SHOWN = 1000, CLI_WRONG }; // CLI_SHOWN: --help was printed, CLI_WRONG: a message was
// Ids of options that several commands have; others begin behind them.
enum {
    CLI_JSON = 256,
    CLI_CACHE_TYPE,
    CLI_TIME,
    CLI_GPU_LAYERS,
    CLI_NO_MMAP,
    CLI_SPLIT,
    CLI_LLAMA,
    CLI_LORA,
    CLI_CHUNKS, // these of generate_options.h
    CLI_TEMP,
    CLI_TOP_K,
    CLI_TYPICAL,
    CLI_TOP_P,
    CLI_MIN_P,
    CLI_REPEAT,
    CLI_LAST_N,
    CLI_FREQUENCY,
    CLI_PRESENCE,
    CLI_MIROSTAT,
    CLI_TAU,
    CLI_ETA,
    CLI_BIAS,
    CLI_STOP,
    CLI_GRAMMAR,
    CLI_SCHEMA,
    CLI_OWN = 300,
};

// Rows that several commands have.
#define CLI_OPT_MODEL \
    { \
        .letter = 'm', .name = "model", .value = "FILE", .takes = ".gguf", .use = CLI_READ, \
        .what = "the model; the same as FILE behind the options" \
    }
#define CLI_OPT_CTX \
    { \
        .letter = 'c', .name = "ctx", .value = "N", .also = "ctx-size", \
        .what = "positions of a model's context (default: the model's, but 512 to 4096)" \
    }
#define CLI_OPT_BATCH \
    { .letter = 'b', .name = "batch", .value = "N", .also = "batch-size", .what = "tokens of a model's batch (default 512)" }
#define CLI_OPT_CACHE_TYPE \
    { \
        .id = CLI_CACHE_TYPE, .name = "cache-type", .value = "T", .takes = "@cache-types", \
        .what = "type of a model's cached keys and values, or T,T for each (default f16)" \
    }
#define CLI_OPT_THREADS \
    { .letter = 't', .name = "threads", .value = "N", .what = "threads of the CPU (default: its cores)" }
#define CLI_OPT_DEVICE \
    { .letter = 'd', .name = "device", .value = "NAME", .takes = "@devices", .what = "run there (default: all GPUs and the CPU)" }
#define CLI_OPT_GPU_LAYERS \
    { \
        .id = CLI_GPU_LAYERS, .name = "gpu-layers", .value = "N", .also = "ngl n-gpu-layers", \
        .what = "0: run on the CPU alone; 99 or more: as much on GPUs as fits, which is the default (-ngl of llama.cpp)" \
    }
#define CLI_OPT_SPLIT \
    { \
        .id = CLI_SPLIT, .name = "split", .value = "HOW", .takes = "layer tensor auto", .also = "split-mode", \
        .what = "layer: whole layers to a device (default); tensor: a share of every layer to each of the devices, all GPUs or " \
                "those that --device names, as in CPU,CPU; auto: what is faster, by a moment's test of all devices" \
    }
#define CLI_OPT_NO_MMAP \
    { \
        .id = CLI_NO_MMAP, .name = "no-mmap", \
        .what = "read the model into memory instead of mapping it: for files that others may change meanwhile" \
    }
#define CLI_OPT_LORA(more) \
    { \
        .id = CLI_LORA, .name = "lora", .value = "FILE[:SCALE]", .takes = ".gguf", .use = CLI_READ, \
        .what = "with this adapter, SCALE times as strong (default 1)" more \
    }
#define CLI_OPT_LLAMA \
    { \
        .id = CLI_LLAMA, .name = "llama", \
        .what = "by llama.cpp's libllama on Berth (BERTH_LLAMA=DIR, library folders, npm's), as every architecture is that " \
                "Berth does not know" \
    }
// What a session is made of, and where it runs.
#define CLI_SESSION_ROWS CLI_OPT_CTX, CLI_OPT_BATCH, CLI_OPT_CACHE_TYPE
#define CLI_PLACE_ROWS CLI_OPT_THREADS, CLI_OPT_DEVICE, CLI_OPT_NO_MMAP, CLI_OPT_GPU_LAYERS
#define CLI_OPT_JSON(fields) \
    { .id = CLI_JSON, .name = "json", .what = fields }

// The next option: its id with the value in optarg, or one of the above. Then optind is the first operand.
int cli_option_next(const struct cli_help *help, int argc, char **argv);
// The one operand of a command: -1 to go on, else the exit code.
int cli_one_argument(const struct cli_help *help, int argc, char **argv, const char **text);
// The options of a command that has only --json and --help: -1 to go on, else the exit code.
int cli_option_json(const struct cli_help *help, int argc, char **argv, bool *json);
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

// ---- the commands, in the order of their list: a file has cli_NAME, which gets its name as argv[0] and returns an exit code,
// and the table cli_NAME_help. This is the only place that knows them all ----

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

#define CLI_DECLARE(name) \
    extern const struct cli_help cli_##name##_help; \
    int cli_##name(int argc, char **argv);
CLI_COMMANDS(CLI_DECLARE)
CLI_GGUF_PARTS(CLI_DECLARE)
#undef CLI_DECLARE

struct cli_command {
    const struct cli_help *help; // NULL: the end of the list
    int (*run)(int argc, char **argv);
};
#define CLI_ROW(name) {&cli_##name##_help, cli_##name},
