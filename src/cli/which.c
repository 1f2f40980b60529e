// SPDX-License-Identifier: MIT
// which.c: `berth which PID`: whose ggml a running process has loaded: Berth's or another's. Its map of memory names the files
// (/proc/PID/maps); a file is Berth's if it holds one of Berth's own names.

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
    .what = "does a running process use Berth?",
    .operands = "PID",
    .n_operands = {1, 1, 0},
    .about = "Says whose libraries of ggml a running process has loaded: Berth's or another's. It reads the process's map of "
             "memory, so the process must be one's own. A program that holds ggml inside itself shows none, one that holds Berth "
             "shows itself.",
    .options = option_rows,
    .size = sizeof(bool),
    .no = "the process runs no library of Berth's",
    .examples = {{"Has the switch taken?", "which $(pgrep -n node)"}, {"For a program", "which --json 4711"}},
};

// ---- one library ----

// Names that only Berth has: of a function in its base and in those that call it, of a variable in its CPU library. They lie in
// the files as they are.
static const char *const marks[] = {"berth_version", "BERTH_CPU_ISA"};
enum { MARK_SIZE = 13 };

static bool has_mark(const char *path) {
    char piece[65536];
    size_t n_kept = 0, n;
    FILE *file = fopen(path, "rb");
    bool is = false;
    while (file != NULL && !is && (n = fread(piece + n_kept, 1, sizeof piece - n_kept, file)) > 0) {
        n += n_kept;
        for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
            is = is || memmem(piece, n, marks[i], MARK_SIZE) != NULL;
        }
        n_kept = min_size(n, MARK_SIZE);
        memmove(piece, piece + n - n_kept, n_kept);
    }
    if (file != NULL) {
        fclose(file);
    }
    return is;
}

// A library of ggml's, or the program itself if it is linked with Berth or holds it.
static bool is_wanted(const char *path, const char *program) {
    const char *slash = strrchr(path, '/');
    return (slash != NULL && strncmp(slash + 1, "libggml", 7) == 0) || (strcmp(path, program) == 0 && has_mark(path));
}

// ---- a process ----

struct found {
    int n, n_berth;
    bool json;
    struct berth_json_writer out; // of json
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

// Lines are "from-to rights offset device inode   path", and a library has several in a row.
static void maps_search(FILE *maps, const char *program, struct found *f) {
    char *line = NULL, *last = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, maps) > 0) {
        char *path = strchr(line, '/');
        if (path == NULL) {
            continue;
        }
        path[strcspn(path, "\n")] = '\0';
        const bool is_again = last != NULL && strcmp(last, path) == 0;
        free(last);
        last = strdup(path);
        if (!is_again && is_wanted(path, program)) {
            library_print(f, path, has_mark(path));
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
        return cli_usage("which", "'%s' is not the number of a process", text);
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
        printf("process %" PRId64 ": %s\n", pid, f.n > 0 ? answer : "no library of ggml's is loaded");
    }
    return f.n_berth > 0 ? CLI_OK : CLI_NO;
}
