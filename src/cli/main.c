// SPDX-License-Identifier: MIT
// main.c: the program `berth`: finds the command, one row of the table each, and runs it. Commands are in files of their own.

#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} commands[] = {
    {"bench", cli_bench, "how fast a model reads and writes"},
    {"devices", cli_devices, "what can compute here, and with how much memory"},
    {"explain", cli_explain, "where every op of a model runs, and why"},
    {"fit", cli_fit, "the largest context and batch of a model in given memory"},
    {"gguf", cli_gguf, "look into model files: info, check, diff, quantize"},
    {"imatrix", cli_imatrix, "which columns of a model's matrices matter, for quantising"},
    {"map", cli_map, "draw a plan: address against time, as SVG or HTML"},
    {"ops", cli_ops, "what a device computes, in which types, by which kernels"},
    {"plan", cli_plan, "give every buffer of a file its place, at the lowest peak"},
    {"run", cli_run, "let a model write"},
    {"verify", cli_verify, "check a plan: do two buffers collide?"},
    {"version", cli_version, "what this build holds"},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static void help(FILE *file) {
    const char *bold = cli_colour(file, CLI_BOLD), *reset = cli_colour(file, CLI_RESET);
    fprintf(file,
        "%sberth%s runs tensor graphs in the least memory.\n\n%sUsage:%s berth COMMAND [OPTION]... [FILE]\n\n%sCommands:%s\n",
        bold, reset, bold, reset, bold, reset);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].what);
    }
    fprintf(file, "\n'berth COMMAND --help' says more. Exit codes: 0 fine, 1 the answer is no, 2 wrong usage, 3 failure.\n");
}

// The library logs each failure; the commands print it themselves, once.
static void log_nothing(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level;
    (void) text;
    (void) user_data;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    cli_streams_init();
    ggml_log_set(log_nothing, NULL);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        help(stdout);
        return cli_finish(CLI_OK);
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("berth %s\n", berth_version());
        return cli_finish(CLI_OK);
    }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return cli_finish(commands[i].run(argc - 1, argv + 1));
        }
    }
    if (*name == '\0') {
        help(stderr);
        return CLI_USAGE;
    }
    cli_fail(CLI_USAGE, "unknown %s '%s'", *name == '-' ? "option" : "command", name);
    fputs("Try 'berth --help'.\n", stderr);
    return CLI_USAGE;
}
