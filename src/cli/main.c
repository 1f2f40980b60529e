// SPDX-License-Identifier: MIT
// main.c: the program `berth`: finds the command, one row of the table each, and runs it. Commands are in files of their own.

#include "cli/help.h"

#include <stdlib.h>
#include <string.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} commands[] = {
    {"bench", cli_bench, "how fast a model reads and writes"},
    {"client", cli_client, "will the libraries of a client, such as llama.cpp, run on Berth?"},
    {"devices", cli_devices, "what can compute here, and with how much memory"},
    {"explain", cli_explain, "where every op of a model runs, and why"},
    {"fit", cli_fit, "the largest context and batch of a model in given memory"},
    {"gguf", cli_gguf, "look into model files: info, check, diff, quantize, merge-lora"},
    {"imatrix", cli_imatrix, "which columns of a model's matrices matter, for quantising"},
    {"map", cli_map, "draw a plan: address against time, as SVG or HTML"},
    {"ops", cli_ops, "what a device computes, in which types, by which kernels"},
    {"plan", cli_plan, "give every buffer of a file its place, at the lowest peak"},
    {"run", cli_run, "let a model write"},
    {"verify", cli_verify, "check a plan: do two buffers collide?"},
    {"version", cli_version, "what this build holds"},
    {"which", cli_which, "does a running process use Berth?"},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

// What people call it elsewhere, or leave the first word out of.
static const struct {
    const char *name, *meant;
} others[] = {
    {"check", "gguf check"},
    {"cli", "run"},
    {"diff", "gguf diff"},
    {"generate", "run"},
    {"info", "gguf info"},
    {"quantise", "gguf quantize"},
    {"quantize", "gguf quantize"},
    {"show", "gguf info"},
};
#define N_OTHERS (sizeof others / sizeof *others)

// Letters to add, drop, change or swap with their neighbour, until a is b; up to 15 letters of each.
static int distance(const char *a, const char *b) {
    enum { MAX = 15 };
    int d[MAX + 1][MAX + 1];
    const int n = (int) strnlen(a, MAX), m = (int) strnlen(b, MAX);
    for (int i = 0; i <= n; i++) {
        for (int j = 0; j <= m; j++) {
            d[i][j] = i == 0 ? j : j == 0 ? i : d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (i > 0 && j > 0) {
                d[i][j] = d[i - 1][j] + 1 < d[i][j] ? d[i - 1][j] + 1 : d[i][j];
                d[i][j] = d[i][j - 1] + 1 < d[i][j] ? d[i][j - 1] + 1 : d[i][j];
            }
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                d[i][j] = d[i - 2][j - 2] + 1 < d[i][j] ? d[i - 2][j - 2] + 1 : d[i][j];
            }
        }
    }
    return d[n][m];
}

// The command that was likely meant, NULL: none is near.
static const char *nearest(const char *name) {
    const char *best = NULL;
    int least        = 3; // two slips at most, and fewer than half of the letters
    for (size_t i = 0; i < N_COMMANDS + N_OTHERS; i++) {
        const char *known = i < N_COMMANDS ? commands[i].name : others[i - N_COMMANDS].name;
        const int d       = distance(name, known);
        if (d < least && 2 * d < (int) strlen(known)) {
            best  = i < N_COMMANDS ? known : others[i - N_COMMANDS].meant;
            least = d;
        }
    }
    return best;
}

static int unknown(const char *name) {
    const char *near = *name == '-' ? NULL : nearest(name);
    cli_fail(CLI_USAGE, "unknown %s '%s'", *name == '-' ? "option" : "command", name);
    if (near != NULL) {
        fprintf(stderr, "Did you mean 'berth %s'? ", near);
    }
    fputs("'berth --help' lists the commands.\n", stderr);
    return CLI_USAGE;
}

static void help(FILE *file) {
    const char *bold = cli_colour(file, CLI_BOLD), *reset = cli_colour(file, CLI_RESET);
    fprintf(file,
        "%sberth%s runs tensor graphs in the least memory.\n\n%sUsage:%s berth COMMAND [OPTION]... [FILE]\n\n%sCommands:%s\n",
        bold, reset, bold, reset, bold, reset);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].what);
    }
    fputs("\n'berth help COMMAND' says more. Exit codes: 0 fine, 1 the answer is no, 2 wrong\n"
          "usage, 3 failure, 4 no answer found yet, 130 stopped by Ctrl-C.\n",
        file);
}

// The library logs each failure, which the commands print themselves, once. Warnings are for the user.
static void log_warnings(enum ggml_log_level level, const char *text, void *user_data) {
    (void) user_data;
    if (level == GGML_LOG_LEVEL_WARN) {
        cli_warn("%.*s", (int) strcspn(text, "\n"), text);
    }
}

static const struct command *find(const char *name) {
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

// `berth help --man`: the commands' part of the man page; the build puts it into the rest (docs/man/berth.1.in).
static int man(void) {
    static const struct cli_help *const all[] = {&cli_bench_help, &cli_client_help, &cli_devices_help, &cli_explain_help,
        &cli_fit_help, &cli_gguf_info_help, &cli_gguf_check_help, &cli_gguf_diff_help, &cli_gguf_quantize_help,
        &cli_gguf_merge_help, &cli_imatrix_help, &cli_map_help, &cli_ops_help, &cli_plan_help, &cli_run_help, &cli_verify_help,
        &cli_version_help, &cli_which_help};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cli_help_man(all[i], stdout);
    }
    return CLI_OK;
}

// `berth help COMMAND [PART]` is `berth COMMAND [PART] --help`.
static int help_of(int argc, char **argv) {
    if (argc == 1 && strcmp(argv[0], "--man") == 0) {
        return man();
    }
    const struct command *command = argc > 0 ? find(argv[0]) : NULL;
    if (command == NULL) {
        return argc > 0 ? unknown(argv[0]) : (help(stdout), CLI_OK);
    }
    char flag[]  = "--help";
    char *with[] = {argv[0], argc > 1 ? argv[1] : flag, argc > 1 ? flag : NULL, NULL};
    return command->run(argc > 1 ? 3 : 2, with);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    cli_streams_init();
    cli_guard_init();
    ggml_log_set(log_warnings, NULL);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        return cli_finish(help_of(argc - 2, argv + 2));
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("berth %s\n", berth_version());
        return cli_finish(CLI_OK);
    }
    if (*name == '\0') {
        help(stderr);
        return CLI_USAGE;
    }
    const struct command *command = find(name);
    return command != NULL ? cli_finish(command->run(argc - 1, argv + 1)) : unknown(name);
}
