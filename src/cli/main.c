// SPDX-License-Identifier: MIT
// main.c: the program `berth`: finds the command and runs it. Each command has its own file; help.h lists them.

#include "base/min.h"
#include "cli/help.h"
#include "cli/models.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct cli_command commands[] = {CLI_COMMANDS(CLI_ROW){0}};
#define N_COMMANDS (sizeof commands / sizeof *commands - 1)

// Unknown names and the commands that the user probably meant: names from other programs, and subcommands without their first
// word. The command is suggested in the error message. The name is not accepted.
static const struct {
    const char *name, *meant;
} aliases[] = {
    {"check", "gguf check"},
    {"cli", "run"},
    {"diff", "gguf diff"},
    {"generate", "run"},
    {"info", "gguf info"},
    {"quantise", "gguf quantize"},
    {"quantize", "gguf quantize"},
    {"show", "gguf info"},
};
#define N_ALIASES (sizeof aliases / sizeof *aliases)

// Returns the number of letters to add, drop, change or swap with a neighbour to turn a into b. Compares the first 15 letters of
// each name.
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

// Returns the command that the user probably meant, or NULL if no name is close.
static const char *command_nearest(const char *name) {
    const char *best = NULL;
    int least = 3; // at most two typing errors are accepted, and fewer than half of the letters
    for (size_t i = 0; i < N_COMMANDS + N_ALIASES; i++) {
        const char *known = i < N_COMMANDS ? commands[i].help->command : aliases[i - N_COMMANDS].name;
        const int d = names_distance(name, known);
        if (d < least && 2 * d < (int) strlen(known)) {
            best = i < N_COMMANDS ? known : aliases[i - N_COMMANDS].meant;
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
        "%sberth%s plans and runs tensor graphs in minimal memory.\n\n%sUsage:%s berth COMMAND [OPTION]... "
        "[FILE]\n\n%sCommands:%s\n",
        bold, reset, bold, reset, bold, reset);
    cli_list_print(commands, file);
    fputs("\n'berth help COMMAND' describes a command. Exit codes: 0 success, 1 negative\n"
          "result, 2 wrong usage, 3 failure, 4 no result in the time limit, 130 stopped by\n"
          "Ctrl-C.\n",
        file);
}

// The commands print errors themselves.
static void log_warnings(enum ggml_log_level level, const char *text, void *user_data) {
    (void) user_data;
    if (level == GGML_LOG_LEVEL_WARN) {
        cli_warn("%.*s", (int) strcspn(text, "\n"), text);
    }
}

// `berth help --man`: the build inserts this text into docs/man/berth.1.in.
static int man_print(const struct cli_command *list) {
    for (const struct cli_command *c = list; c->help != NULL; c++) {
        c->help->parts != NULL ? (void) man_print(c->help->parts) : cli_help_man(c->help, stdout);
    }
    return CLI_OK;
}

// `berth help COMMAND [SUBCOMMAND]` is `berth COMMAND [SUBCOMMAND] --help`.
static int help_run(int argc, char **argv) {
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
    char *help_argv[] = {argv[0], argc > 1 ? argv[1] : flag, argc > 1 ? flag : NULL, NULL};
    return cli_command_run(command, argc > 1 ? 3 : 2, help_argv);
}

// Sets environment variables for MPI. Call this function while there is only one thread. A variable that is already set keeps its
// value.
//   - BERTH_MPI_HELD=end ends a command if a call of MPI does not return.
//   - The empty opal_signal keeps Open MPI from handling crashes before src/mpi/link/link.c restores the handlers.
//   - The blacklist keeps hwloc's plugins from loading libX11, OpenCL and libxml2, which use 2.5 MB per rank.
static void mpi_prepare(void) {
    setenv("BERTH_MPI_HELD", "end", 0);
    setenv("OMPI_MCA_opal_signal", "", 0);
    setenv(
        "HWLOC_PLUGINS_BLACKLIST", "hwloc_gl,hwloc_opencl,hwloc_xml_libxml,hwloc_cuda,hwloc_nvml,hwloc_rsmi,hwloc_levelzero", 0);
}

// Called when libllama aborts the process because an internal check failed. Prints the message and ends with an exit code
// instead.
static void on_abort(const char *message) {
    cli_fail(CLI_FAILURE, "libllama aborted: %s", message);
    _exit(CLI_FAILURE);
}

int main(int argc, char **argv) {
#ifdef _WIN32
    posix_arguments_get(&argc, &argv);
    posix_console_init();
#endif
    const char *name = argc > 1 ? argv[1] : "";
    mpi_prepare();
    cli_streams_init();
    cli_guard_init();
    ggml_log_set(log_warnings, NULL);
    ggml_set_abort_callback(on_abort);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        return cli_finish(help_run(argc - 2, argv + 2));
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
    return cli_finish(cli_is_interrupted(NULL) ? CLI_STOPPED : code); // a script must see that the command did not complete
}
