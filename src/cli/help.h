// SPDX-License-Identifier: MIT
// help.h: what a command says of itself: one table a command, from which come the parsing of its options, its --help and its part
// of the man page; bash completion asks --help.
#pragma once

#include "cli/cli.h"

// One option. Letters mean the same in every command (docs/man/berth.1.in, OPTIONS).
struct cli_option {
    int id;            // what cli_option_next answers; 0: the letter
    char letter;       // 0: none
    const char *name;  // the long name; NULL: the letter is gone, and `what` is what it was called
    const char *value; // what it takes, in capitals; NULL: nothing
    const char *what;  // a sentence or two, without a full stop
    const char *also;  // further long names, split by blanks, or NULL
};

struct cli_help {
    const char *command;              // "gguf info"
    const char *operands;             // behind "berth command [OPTION]...", "" if there are none
    const char *about;                // paragraphs, one a line; lines that begin with a blank are printed as they are
    const struct cli_option *options; // until one without letter and name; --help comes by itself
    const char *no, *more;            // what exit code 1 says, and "4 ..." beyond 0 to 3; or NULL
    struct {
        const char *what, *line; // the command line without "berth "
    } examples[3];
};

enum { CLI_END = -1, CLI_SHOWN = 1000, CLI_WRONG }; // CLI_SHOWN: --help was printed, CLI_WRONG: a message was
// Ids of options that several commands have; others begin behind them.
enum { CLI_JSON = 256, CLI_CACHE_TYPE, CLI_TIME, CLI_GPU_LAYERS, CLI_NO_MMAP, CLI_OWN = 300 };

// Rows that several commands have.
#define CLI_OPT_MODEL \
    { .letter = 'm', .name = "model", .value = "FILE", .what = "the model; the same as FILE behind the options" }
#define CLI_OPT_CTX \
    { \
        .letter = 'c', .name = "ctx", .value = "N", .also = "ctx-size", \
        .what = "positions of a model's context (default: the model's, but 512 to 4096)" \
    }
#define CLI_OPT_BATCH \
    { .letter = 'b', .name = "batch", .value = "N", .also = "batch-size", .what = "tokens of a model's batch (default 512)" }
#define CLI_OPT_CACHE_TYPE \
    { \
        .id = CLI_CACHE_TYPE, .name = "cache-type", .value = "T", \
        .what = "type of a model's cached keys and values, or T,T for each (default f16)" \
    }
#define CLI_OPT_THREADS \
    { .letter = 't', .name = "threads", .value = "N", .what = "threads of the CPU (default: its cores)" }
#define CLI_OPT_DEVICE \
    { .letter = 'd', .name = "device", .value = "NAME", .what = "run there (default: all GPUs and the CPU)" }
#define CLI_OPT_GPU_LAYERS \
    { \
        .id = CLI_GPU_LAYERS, .name = "gpu-layers", .value = "N", .also = "ngl n-gpu-layers", \
        .what = "0: run on the CPU alone; 99 or more: as much on GPUs as fits, which is the default (-ngl of llama.cpp)" \
    }
#define CLI_OPT_NO_MMAP \
    { \
        .id = CLI_NO_MMAP, .name = "no-mmap", \
        .what = "read the model into memory instead of mapping it: for files that others may change meanwhile" \
    }
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

// Of every command that is a file of its own, and of the parts of gguf.
extern const struct cli_help cli_bench_help, cli_client_help, cli_devices_help, cli_explain_help, cli_fit_help,
    cli_gguf_check_help, cli_gguf_diff_help, cli_gguf_info_help, cli_gguf_merge_help, cli_gguf_quantize_help, cli_imatrix_help,
    cli_map_help, cli_ops_help, cli_plan_help, cli_run_help, cli_verify_help, cli_version_help, cli_which_help;
