// SPDX-License-Identifier: MIT
// main.c: the program `berth`: finds the command and runs it. Commands are in files of their own; help.h lists them.

#include "base/min.h"
#include "cli/help.h"
#include "cli/models.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct cli_command commands[] = {CLI_COMMANDS(CLI_ROW){0}};
#define N_COMMANDS (sizeof commands / sizeof *commands - 1)

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
static int names_distance(const char *a, const char *b) {
    enum { MAX = 15 };
    int d[MAX + 1][MAX + 1];
    const int n = (int) strnlen(a, MAX), m = (int) strnlen(b, MAX);
    for (int i = 0; i <= n; i++) {
        for (int j = 0; j <= m; j++) {
            d[i][j] = max_int(i, j);
            if (i > 0 && j > 0) {
                d[i][j] = min_int(d[i - 1][j - 1] + (a[i - 1] != b[j - 1]), min_int(d[i - 1][j], d[i][j - 1]) + 1);
            }
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                d[i][j] = min_int(d[i][j], d[i - 2][j - 2] + 1);
            }
        }
    }
    return d[n][m];
}

// The command that was likely meant, NULL: none is near.
static const char *command_nearest(const char *name) {
    const char *best = NULL;
    int least = 3; // two slips at most, and fewer than half of the letters
    for (size_t i = 0; i < N_COMMANDS + N_OTHERS; i++) {
        const char *known = i < N_COMMANDS ? commands[i].help->command : others[i - N_COMMANDS].name;
        const int d = names_distance(name, known);
        if (d < least && 2 * d < (int) strlen(known)) {
            best = i < N_COMMANDS ? known : others[i - N_COMMANDS].meant;
            least = d;
        }
    }
    return best;
}

static int command_refuse(const char *name) {
    const char *near = *name == '-' ? NULL : command_nearest(name);
    cli_fail(CLI_USAGE, "unknown %s '%s'", *name == '-' ? "option" : "command", name);
    if (near != NULL) {
        fprintf(stderr, "Did you mean 'berth %s'? ", near);
    }
    fputs("'berth --help' lists the commands.\n", stderr);
    return CLI_USAGE;
}

static void help_print(FILE *file) {
    const char *bold = cli_colour(file, CLI_BOLD), *reset = cli_colour(file, CLI_RESET);
    fprintf(file,
        "%sberth%s runs tensor graphs in the least memory.\n\n%sUsage:%s berth COMMAND [OPTION]... [FILE]\n\n%sCommands:%s\n",
        bold, reset, bold, reset, bold, reset);
    cli_list_print(commands, file);
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

// `berth help --man`: the commands' part of the man page; the build puts it into the rest (docs/man/berth.1.in).
static int man_print(const struct cli_command *list) {
    for (const struct cli_command *c = list; c->help != NULL; c++) {
        c->help->parts != NULL ? (void) man_print(c->help->parts) : cli_help_man(c->help, stdout);
    }
    return CLI_OK;
}

// `berth help COMMAND [PART]` is `berth COMMAND [PART] --help`.
static int help_of(int argc, char **argv) {
    if (argc == 1 && strcmp(argv[0], "--man") == 0) {
        return man_print(commands);
    }
    if (argc > 0 && strcmp(argv[0], "--complete") == 0) {
        return cli_complete(commands, argc - 1, argv + 1);
    }
    const struct cli_command *command = argc > 0 ? cli_find(commands, argv[0]) : NULL;
    if (command == NULL) {
        return argc > 0 ? command_refuse(argv[0]) : (help_print(stdout), CLI_OK);
    }
    char flag[] = "--help";
    char *with[] = {argv[0], argc > 1 ? argv[1] : flag, argc > 1 ? flag : NULL, NULL};
    return cli_command_run(command, argc > 1 ? 3 : 2, with);
}

// MPI asks hwloc what the machine is like, whose plugins bring along libX11, OpenCL, libxml2 and what those need: 2.5 MB of every
// rank, for what nobody here asks. And it takes signals of crashes, which src/mpi/link/link.c gives back once MPI is up: not even
// until then. And a command that MPI does not let go ends. While there is one thread; who has set it has a say.
static void mpi_prepare(void) {
    setenv("BERTH_MPI_HELD", "end", 0);
    setenv("OMPI_MCA_opal_signal", "", 0);
    setenv(
        "HWLOC_PLUGINS_BLACKLIST", "hwloc_gl,hwloc_opencl,hwloc_xml_libxml,hwloc_cuda,hwloc_nvml,hwloc_rsmi,hwloc_levelzero", 0);
}

// libllama ends the process where it finds itself wrong.
static void on_abort(const char *message) {
    cli_fail(CLI_FAILURE, "libllama gave up: %s", message);
    _exit(CLI_FAILURE);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    mpi_prepare();
    cli_streams_init();
    cli_guard_init();
    ggml_log_set(log_warnings, NULL);
    ggml_set_abort_callback(on_abort);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        return cli_finish(help_of(argc - 2, argv + 2));
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("berth %s\n", berth_version());
        return cli_finish(CLI_OK);
    }
    if (*name == '\0') {
        help_print(stderr);
        return CLI_USAGE;
    }
    const struct cli_command *command = cli_find(commands, name);
    if (command == NULL) {
        return command_refuse(name);
    }
    const int code = cli_command_run(command, argc - 1, argv + 1);
    return cli_finish(cli_is_interrupted(NULL) ? CLI_STOPPED : code); // a script must see that it did not run to its end
}
