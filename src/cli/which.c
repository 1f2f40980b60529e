// SPDX-License-Identifier: MIT
// which.c: `berth which PID`: reports whether a process has loaded Berth's libraries or another ggml. A file in /proc/PID/maps
// belongs to Berth if it contains one of Berth's own names.

#include "base/json.h"
#include "base/min.h"
#include "cli/help.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct cli_option option_rows[] = {
    CLI_OPT_JSON(CLI_TO_BOOL, "print one JSON object: pid, berth, libraries with file and berth"),
    {0},
};

const struct cli_help cli_which_help = {
    .command = "which",
    .what = "check whether a running process uses Berth",
    .operands = "PID",
    .n_operands = {1, 1, 0},
    .about =
        "Lists the ggml libraries that a running process has loaded, and whether each is Berth's. It reads the process's memory "
        "map, so you need permission for the process. A program that is statically linked with Berth is listed itself; one that "
        "is statically linked with another ggml has no entry.",
    .options = option_rows,
    .size = sizeof(bool),
    .negative = "the process uses no library of Berth",
    .examples = {{"Does this process use Berth?", "which $(pgrep -n node)"}, {"For scripts", "which --json 4711"}},
};

// ---- one library ----

// Names that only Berth's files contain: a function of the base library, and an environment variable of the CPU library.
static const char *const berth_names[] = {"berth_version", "BERTH_CPU_ISA"};
enum { NAME_SIZE = 13 };

// Searches the file piece by piece for one of berth_names. Consecutive pieces overlap by NAME_SIZE bytes.
static bool is_berth_file(const char *path) {
    char piece[65536];
    size_t n_kept = 0, n;
    FILE *file = fopen(path, "rb");
    bool is_found = false;
    while (file != NULL && !is_found && (n = fread(piece + n_kept, 1, sizeof piece - n_kept, file)) > 0) {
        n += n_kept;
        for (size_t i = 0; i < sizeof berth_names / sizeof *berth_names; i++) {
            is_found = is_found || memmem(piece, n, berth_names[i], NAME_SIZE) != NULL;
        }
        n_kept = min_size(n, NAME_SIZE);
        memmove(piece, piece + n - n_kept, n_kept);
    }
    if (file != NULL) {
        fclose(file);
    }
    return is_found;
}

// Returns whether the file is a library of ggml, or the program itself if it is linked with Berth.
static bool is_listed(const char *path, const char *program) {
    const char *slash = strrchr(path, '/');
    return (slash != NULL && strncmp(slash + 1, "libggml", 7) == 0) || (strcmp(path, program) == 0 && is_berth_file(path));
}

// ---- a process ----

struct found {
    int n, n_berth;
    bool json;
    struct berth_json_writer out; // with --json
};

static void library_print(struct found *f, const char *path, bool is_berth) {
    if (f->json) {
        berth_json_printf(&f->out, "{'file': %s, 'berth': %c}", path, is_berth);
    } else {
        printf("  %s%-6s%s ", cli_colour(stdout, is_berth ? CLI_GREEN : CLI_YELLOW), is_berth ? "Berth" : "other",
            cli_colour(stdout, CLI_RESET));
        cli_text(stdout, 0, path);
        putchar('\n');
    }
    f->n++;
    f->n_berth += is_berth;
}

// Lines are "from-to rights offset device inode   path". A library has several consecutive lines.
static void maps_search(FILE *maps, const char *program, struct found *f) {
    char *line = NULL, *last = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, maps) > 0) {
        char *path = strchr(line, '/');
        if (path == NULL) {
            continue;
        }
        path[strcspn(path, "\n")] = '\0';
        const bool is_same_file = last != NULL && strcmp(last, path) == 0;
        free(last);
        last = strdup(path);
        if (!is_same_file && is_listed(path, program)) {
            library_print(f, path, is_berth_file(path));
        }
    }
    free(line);
    free(last);
}

int cli_which(const struct cli_args *args) {
    struct found f = {.json = *(const bool *) args->options, .out = {.file = stdout}};
    int64_t pid = 0;
    const char *text = args->operands[0];
    if (!cli_parse_int(text, 1, INT32_MAX, &pid)) {
        return cli_usage("which", "'%s' is not a process id", text);
    }
    char path[64], program[4096] = "";
    snprintf(path, sizeof path, "/proc/%" PRId64 "/exe", pid);
    const ssize_t n = readlink(path, program, sizeof program - 1);
    program[max_i64(n, 0)] = '\0';
    snprintf(path, sizeof path, "/proc/%" PRId64 "/maps", pid);
    FILE *maps = fopen(path, "r");
    if (maps == NULL) {
        return cli_fail(CLI_FAILURE, "%s: cannot be read: %s", path, strerror(errno));
    }
    if (f.json) {
        berth_json_begin(&f.out, NULL, '{');
        berth_json_printf(&f.out, "'pid': %" PRId64, pid);
        berth_json_begin(&f.out, "libraries", '[');
    }
    maps_search(maps, program, &f);
    fclose(maps);
    if (f.json) {
        berth_json_end(&f.out);
        berth_json_printf(&f.out, "'berth': %c}\n", f.n_berth > 0);
    } else {
        const char *answer = f.n_berth > 0 ? "on Berth" : "not on Berth";
        printf("process %" PRId64 ": %s\n", pid, f.n > 0 ? answer : "no library of ggml is loaded");
    }
    return f.n_berth > 0 ? CLI_OK : CLI_NEGATIVE;
}
