// SPDX-License-Identifier: MIT
// gguf.c: `berth gguf SUBCOMMAND FILE...`, with `check`, `diff` and `hash`.

#include "base/json.h"
#include "base/min.h"
#include "base/sha256.h"
#include "cli/help.h"
#include "cli/models.h"
#include "quantize/quantize.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct cli_command parts[] = {CLI_GGUF_PARTS(CLI_ROW){0}};

const struct cli_help cli_gguf_help = {
    .command = "gguf",
    .what = "inspect and change model files: info, check, diff, quantize, ...",
    .parts = parts,
};

static void help_print(FILE *file) {
    fputs("Usage: berth gguf SUBCOMMAND [OPTION]... FILE...\n\nInspects and changes GGUF model files.\n\n", file);
    cli_list_print(parts, file);
    fputs(
        "\n'berth help gguf SUBCOMMAND' describes a subcommand. Exit codes: 0 success,\n1 invalid or different, 2 wrong usage, 3 "
        "failure, 130 stopped by Ctrl-C.\n",
        file);
}

int cli_gguf(const struct cli_args *args) {
    const char *name = args->n > 0 ? args->operands[0] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        help_print(stdout);
        return CLI_OK;
    }
    const struct cli_command *part = cli_find(parts, name);
    if (part != NULL) {
        return cli_command_run(part, args->n, args->operands);
    }
    if (*name == '\0') {
        return cli_usage("gguf", "missing subcommand");
    }
    return cli_usage("gguf", "unknown %s '%s'", *name == '-' ? "option" : "subcommand", name);
}

// ---- shared ----

static bool progress_show(size_t done, size_t all, void *user_data) {
    (void) user_data;
    char text[2][32];
    cli_progress("reading", done, all, "%s of %s", cli_short_bytes(done, text[0]), cli_short_bytes(all, text[1]));
    return true;
}

struct berth_gguf_map *cli_gguf_open(const char *path, bool with_progress, int *code) {
    struct stat st;
    *code = CLI_FAILURE;
    if (stat(path, &st) != 0 || access(path, R_OK) != 0) {
        cli_fail(*code, "%s: cannot be read: %s", path, strerror(errno));
        return NULL;
    }
    if (!S_ISREG(st.st_mode)) {
        cli_fail(*code, "%s: cannot be read: %s", path, S_ISDIR(st.st_mode) ? strerror(EISDIR) : "not a regular file");
        return NULL;
    }
    const bool show = with_progress && isatty(STDERR_FILENO);
    const struct berth_gguf_map_params params = {.progress = show ? progress_show : NULL, .prefetch = show};
    struct berth_gguf_map *map = berth_gguf_map_open(path, &params);
    cli_progress_end();
    *code = map != NULL ? CLI_OK : cli_fail(CLI_NEGATIVE, "%s", berth_last_error());
    return map;
}

int cli_gguf_write(const char *path, const struct gguf_context *header, model_bytes_t bytes, void *user) {
    struct model_error error = {""};
    FILE *file = cli_open(path);
    if (file == NULL) {
        return CLI_FAILURE;
    }
    return cli_close_why(file, path, model_write(file, header, bytes, user, &error), error.text);
}

// ---- check ----

static const struct cli_option options_of_gguf_check[] = {
    CLI_OPT_JSON(CLI_TO_BOOL, "print one JSON object per file: file, sound, fault"),
    {0},
};

const struct cli_help cli_gguf_check_help = {
    .command = "gguf check",
    .what = "check that a file is valid and its numbers are finite",
    .operands = "FILE...",
    .takes = ".gguf",
    .n_operands = {1, INT_MAX, INT_MAX},
    .about = "Reads a whole file and checks that its header is valid, all tensors are complete, and all numbers are finite.",
    .options = options_of_gguf_check,
    .size = sizeof(bool),
    .negative = "a file is invalid",
    .examples = {{"Check a download", "gguf check model.gguf"}, {"All files of a folder", "gguf check *.gguf"}},
};

// Returns the name of the first tensor with a value that is not finite. Returns NULL if all values are finite.
static const char *fault_find(const struct berth_gguf_map *map) {
    const struct gguf_context *g = berth_gguf_map_meta(map);
    for (int64_t i = 0; i < gguf_get_n_tensors(g); i++) {
        const size_t size = gguf_get_tensor_size(g, i);
        if (size > 0 && !ggml_validate_row_data(gguf_get_tensor_type(g, i), berth_gguf_map_data(map, i), size)) {
            return gguf_get_tensor_name(g, i);
        }
    }
    return NULL;
}

static int check_one(const char *path, bool json) {
    int code;
    char text[64], fault[512] = "";
    struct berth_gguf_map *map = cli_gguf_open(path, true, &code);
    if (map != NULL) {
        const char *name = fault_find(map);
        if (name != NULL) {
            snprintf(fault, sizeof fault, "tensor '%s': %s", name, berth_last_error());
            code = CLI_NEGATIVE;
        }
    } else {
        snprintf(fault, sizeof fault, "%s", code == CLI_NEGATIVE ? berth_last_error() : "cannot be read");
    }
    if (json) {
        berth_json_printf(
            &(struct berth_json_writer){.file = stdout}, "{'file': %s, 'sound': %c, 'fault': %s}\n", path, code == CLI_OK, fault);
    } else if (code == CLI_OK) {
        const struct gguf_context *g = berth_gguf_map_meta(map);
        cli_text(stdout, 0, path);
        printf(": %svalid%s: %lld keys, %lld tensors, %s of data\n", cli_colour(stdout, CLI_GREEN), cli_colour(stdout, CLI_RESET),
            (long long) gguf_get_n_kv(g), (long long) gguf_get_n_tensors(g), cli_bytes(berth_gguf_map_size(map), text));
    } else if (map != NULL) {
        cli_text(stdout, 0, path);
        printf(": %sinvalid%s: ", cli_colour(stdout, CLI_RED), cli_colour(stdout, CLI_RESET));
        cli_text(stdout, 0, fault);
        putchar('\n');
    }
    berth_gguf_map_close(map);
    return code;
}

int cli_gguf_check(const struct cli_args *args) {
    int code = CLI_OK;
    for (int i = 0; i < args->n; i++) {
        code = max_int(check_one(args->operands[i], *(const bool *) args->options), code);
    }
    return code;
}

// ---- diff ----

static const struct cli_option options_of_gguf_diff[] = {
    CLI_OPT_JSON(CLI_TO_BOOL, "print one JSON object: same, differences"),
    {0},
};

const struct cli_help cli_gguf_diff_help = {
    .command = "gguf diff",
    .what = "compare two files",
    .operands = "A B",
    .takes = ".gguf",
    .n_operands = {2, 2, INT_MAX},
    .about = "Compares keys by name and value, and tensors by name, type, shape and bytes; their order does not matter.",
    .options = options_of_gguf_diff,
    .size = sizeof(bool),
    .negative = "the files differ",
    .examples = {{"What did quantising change?", "gguf diff model.gguf small.gguf"},
        {"For scripts", "gguf diff --json a.gguf b.gguf"}},
};

struct diff {
    bool json;
    struct berth_json_writer out; // with --json
    size_t n;
};

static void diff_report(const char *kind, const char *name, const char *how, void *user) {
    struct diff *d = user;
    if (d->json) {
        berth_json_printf(&d->out, "{'kind': %s, 'name': %s, 'how': %s}", kind, name, how);
    } else {
        printf("%-7s ", kind);
        cli_text(stdout, 40, name);
        printf(" %s\n", how);
    }
    d->n++;
}

int cli_gguf_diff(const struct cli_args *args) {
    struct diff d = {.json = *(const bool *) args->options, .out = {.file = stdout}};
    int code;
    struct berth_gguf_map *a = cli_gguf_open(args->operands[0], false, &code), *b = NULL;
    if (a != NULL) {
        b = cli_gguf_open(args->operands[1], false, &code);
    }
    if (b == NULL) { // exit code 1 would mean that the files differ
        berth_gguf_map_close(a);
        return CLI_FAILURE;
    }
    if (d.json) {
        berth_json_begin(&d.out, NULL, '{');
        berth_json_begin(&d.out, "differences", '[');
    }
    files_compare(a, b, diff_report, &d);
    if (d.json) {
        berth_json_end(&d.out);
        berth_json_printf(&d.out, "'same': %c}\n", d.n == 0);
    } else {
        printf("%s%s%s\n", cli_colour(stdout, d.n == 0 ? CLI_GREEN : CLI_YELLOW), d.n == 0 ? "equal" : "different",
            cli_colour(stdout, CLI_RESET));
    }
    berth_gguf_map_close(a);
    berth_gguf_map_close(b);
    return d.n == 0 ? CLI_OK : CLI_NEGATIVE;
}

// ---- hash: identifies weights independently of the keys and the order of the file ----

struct options {
    bool all_only, json;
};

static const struct cli_option options_of_gguf_hash[] = {
    CLI_OPTION(0, "no-layer", NULL, "print only the line of the file, not of its tensors", CLI_TO(struct options, all_only)),
    CLI_OPT_JSON(CLI_TO(struct options, json), "print one JSON object per file: file, sha256, tensors"),
    {0},
};

const struct cli_help cli_gguf_hash_help = {
    .command = "gguf hash",
    .what = "print SHA-256 hashes of the weights",
    .operands = "FILE...",
    .takes = ".gguf",
    .n_operands = {1, INT_MAX, INT_MAX},
    .about = "Prints the SHA-256 hash of each tensor's bytes, and of all tensors in the order of their names.",
    .options = options_of_gguf_hash,
    .size = sizeof(struct options),
    .examples = {{"All of a model", "gguf hash model.gguf"}, {"One line per file", "gguf hash --no-layer *.gguf"}},
};

static int by_name(const void *a, const void *b) {
    return strcmp((*(const struct ggml_tensor *const *) a)->name, (*(const struct ggml_tensor *const *) b)->name);
}

static void hash_print(const char *hex, const char *path, const char *tensor) {
    printf("%s  ", hex);
    cli_text(stdout, 0, path);
    if (tensor != NULL) {
        putchar(':');
        cli_text(stdout, 0, tensor);
    }
    putchar('\n');
}

static int hash_one(const char *path, bool all_only, bool json) {
    int code;
    struct berth_gguf_map *map = cli_gguf_open(path, true, &code);
    if (map == NULL) {
        return CLI_FAILURE;
    }
    const int64_t n = gguf_get_n_tensors(berth_gguf_map_meta(map));
    const struct ggml_tensor **tensors = berth_calloc((size_t) n + 1, sizeof *tensors);
    struct ggml_context *ctx = berth_gguf_map_tensors(map);
    int64_t i = 0;
    struct sha256 all, one;
    char hex[65];
    if (tensors == NULL) {
        berth_gguf_map_close(map);
        return cli_fail(CLI_FAILURE, "out of memory for %" PRId64 " tensors", n);
    }
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL && i < n; t = ggml_get_next_tensor(ctx, t)) {
        tensors[i++] = t;
    }
    qsort(tensors, (size_t) i, sizeof *tensors, by_name);
    sha256_init(&all);
    struct berth_json_writer w = {.file = stdout};
    if (json) {
        berth_json_begin(&w, NULL, '{');
        berth_json_begin(&w, "tensors", '{');
    }
    for (int64_t k = 0; k < i; k++) {
        sha256_add(&all, tensors[k]->data, ggml_nbytes(tensors[k]));
        if (all_only) {
            continue;
        }
        sha256_init(&one);
        sha256_add(&one, tensors[k]->data, ggml_nbytes(tensors[k]));
        sha256_end(&one, hex);
        if (json) {
            berth_json_printf(&w, "%s: %s", tensors[k]->name, hex);
        } else {
            hash_print(hex, path, tensors[k]->name);
        }
    }
    sha256_end(&all, hex);
    if (json) {
        berth_json_end(&w);
        berth_json_printf(&w, "'sha256': %s, 'file': %s}\n", hex, path);
    } else {
        hash_print(hex, path, NULL);
    }
    berth_free(tensors);
    berth_gguf_map_close(map);
    return CLI_OK;
}

int cli_gguf_hash(const struct cli_args *args) {
    const struct options *o = args->options;
    int code = CLI_OK;
    for (int i = 0; i < args->n; i++) {
        code = max_int(hash_one(args->operands[i], o->all_only, o->json), code);
    }
    return code;
}
