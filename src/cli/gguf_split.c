// SPDX-License-Identifier: MIT
// gguf_split.c: `berth gguf split FILE OUT` and `berth gguf merge FIRST`: a model in several files, and in one again.

#include "cli/help.h"
#include "cli/models.h"
#include "quantize/quantize.h"

#include <inttypes.h>

struct options {
    const char *out;     // of merge
    uint64_t max_size;   // 0: not given
    int64_t max_tensors; // 0: not given
    bool json;
};

static const struct cli_option options_of_gguf_split[] = {
    CLI_OPTION(0, "max-size", "N", "at most N bytes of tensors in a file (default 2G)", .also = "split-max-size",
        .kind = CLI_SIZE, CLI_TO(struct options, max_size)),
    CLI_OPTION(0, "max-tensors", "N", "at most N tensors in a file", .also = "split-max-tensors", CLI_RANGE(1, INT32_MAX),
        CLI_TO(struct options, max_tensors)),
    CLI_OPT_JSON(CLI_TO(struct options, json), "print one JSON object: files, tensors"),
    {0},
};

const struct cli_help cli_gguf_split_help = {
    .command = "gguf split",
    .what = "a model in several files",
    .operands = "FILE OUT",
    .takes = ".gguf",
    .n_operands = {2, 2, 1},
    .about = "Writes the model as OUT-00001-of-00003.gguf and so on. A tensor is in one of them as a whole, however large it is.",
    .options = options_of_gguf_split,
    .size = sizeof(struct options),
    .examples = {{"Files that fit anywhere", "gguf split --max-size 4G model.gguf part"},
        {"Ten tensors each", "gguf split --max-tensors 10 model.gguf part"}},
};

static const struct cli_option options_of_gguf_join[] = {
    CLI_OPTION('o', "out", "OUT", "the file to write", .takes = ".gguf", CLI_TO(struct options, out), .is_required = true),
    CLI_OPT_JSON(CLI_TO(struct options, json), "print one JSON object: files, tensors"),
    {0},
};

const struct cli_help cli_gguf_join_help = {
    .command = "gguf merge",
    .what = "one file of several again",
    .operands = "FIRST",
    .takes = ".gguf",
    .n_operands = {1, 1, 1},
    .about = "FIRST is the first file, with -00001-of-N.gguf at its end; the others lie beside it.",
    .options = options_of_gguf_join,
    .size = sizeof(struct options),
    .examples = {{"One file", "gguf merge part-00001-of-00003.gguf -o model.gguf"},
        {"To a pipe", "gguf merge part-00001-of-00003.gguf -o -"}},
};

static void counts_print(bool json, int64_t n_files, int64_t n_tensors, FILE *file) {
    fprintf(file, json ? "{\"files\": %" PRId64 ", \"tensors\": %" PRId64 "}\n" : "%" PRId64 " files, %" PRId64 " tensors\n",
        n_files, n_tensors);
}

// ---- split ----

static int parts_write(struct rewrite_split *s, const char *out, bool json) {
    struct model_error error = {""};
    char path[4096];
    if (!rewrite_split_init(s, &error)) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    for (int64_t no = 0; no < s->n_parts; no++) { // all of them, before the first is written
        if (!rewrite_part_path(path, out, no, s->n_parts, &error)) {
            return cli_fail(CLI_FAILURE, "%s", error.text);
        }
        if (cli_output_check(path) != CLI_OK) {
            return CLI_FAILURE;
        }
    }
    for (int64_t no = 0; no < s->n_parts; no++) {
        struct gguf_context *g = rewrite_split_next(s, &error);
        if (g == NULL) {
            return cli_fail(CLI_FAILURE, "%s", error.text);
        }
        (void) rewrite_part_path(path, out, no, s->n_parts, &error);
        const int code = cli_gguf_write(path, g, rewrite_split_bytes, s);
        gguf_free(g);
        if (code != CLI_OK) {
            return code;
        }
    }
    counts_print(json, s->n_parts, s->n_tensors, stdout);
    return CLI_OK;
}

int cli_gguf_split(const struct cli_args *args) {
    struct options *o = args->options;
    int code;
    if (o->max_size == 0) {
        o->max_size = o->max_tensors > 0 ? UINT64_MAX : (uint64_t) 2 << 30;
    }
    if (o->max_tensors == 0) {
        o->max_tensors = INT64_MAX;
    }
    struct berth_gguf_map *map = cli_gguf_open(args->operands[0], false, &code);
    if (map == NULL) {
        return CLI_FAILURE;
    }
    struct rewrite_split s = {.map = map, .max_size = o->max_size, .max_tensors = o->max_tensors};
    code = parts_write(&s, args->operands[1], o->json);
    rewrite_split_fini(&s);
    berth_gguf_map_close(map);
    return code;
}

// ---- merge ----

// Opens all files of the first's name.
static int parts_open(struct rewrite_join *j, const char *first) {
    struct model_error error = {""};
    int code;
    struct berth_gguf_map *map = cli_gguf_open(first, false, &code);
    if (map == NULL) {
        return CLI_FAILURE;
    }
    bool ok = rewrite_join_init(j, map, first, &error);
    while (ok && j->n < j->n_parts) {
        char path[4096];
        rewrite_join_path(j, path);
        map = cli_gguf_open(path, false, &code);
        if (map == NULL) {
            return CLI_FAILURE;
        }
        ok = rewrite_join_add(j, map, path, &error);
    }
    return ok ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text);
}

static int parts_join(struct rewrite_join *j, const char *first, const char *out) {
    struct model_error error = {""};
    if (cli_output_check(out) != CLI_OK || parts_open(j, first) != CLI_OK) {
        return CLI_FAILURE;
    }
    struct gguf_context *g = rewrite_join_header(j, &error);
    const int code = g != NULL ? cli_gguf_write(out, g, rewrite_join_bytes, j) : cli_fail(CLI_FAILURE, "%s", error.text);
    gguf_free(g);
    return code;
}

int cli_gguf_join(const struct cli_args *args) {
    const struct options *o = args->options;
    struct rewrite_join j = {0};
    const int code = parts_join(&j, args->operands[0], o->out);
    if (code == CLI_OK) {
        counts_print(o->json, j.n, j.n_tensors, cli_is_stdout(o->out) ? stderr : stdout);
    }
    rewrite_join_fini(&j);
    return code;
}
