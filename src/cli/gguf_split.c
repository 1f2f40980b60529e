// SPDX-License-Identifier: MIT
// gguf_split.c: `berth gguf split FILE OUT` and `berth gguf merge FIRST`: a model in several files, and in one again. The first
// of them has the keys, every one says which of how many it is, as llama.cpp's gguf-split writes them.

#include "cli/gguf.h"
#include "cli/help.h"
#include "cli/models.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
    .examples = {{"One file", "gguf merge part-00001-of-00003.gguf -o model.gguf"},
        {"To a pipe", "gguf merge part-00001-of-00003.gguf -o -"}},
};

static void told(bool json, int64_t n_files, int64_t n_tensors, FILE *file) {
    fprintf(file, json ? "{\"files\": %" PRId64 ", \"tensors\": %" PRId64 "}\n" : "%" PRId64 " files, %" PRId64 " tensors\n",
        n_files, n_tensors);
}

// ---- split ----

struct splitting {
    const struct berth_gguf_map *map;
    const struct ggml_tensor **tensors; // in the order of the file
    int64_t first;                      // of the file at hand
};

static const void *split_bytes(int64_t i, void *user, struct model_error *error) {
    const struct splitting *s = user;
    (void) error;
    return s->tensors[s->first + i]->data;
}

// How many tensors from first on go into one file.
static int64_t n_fitting(const struct splitting *s, int64_t first, int64_t n, uint64_t max_size, int64_t max_tensors) {
    uint64_t size = 0;
    int64_t i = first;
    while (i < n && i - first < max_tensors) {
        size += ggml_nbytes(s->tensors[i]);
        if (size > max_size && i > first) {
            break;
        }
        i++;
    }
    return i - first;
}

static int part_write(struct splitting *s, const char *path, int64_t n, int64_t no, int64_t n_parts, int64_t n_all) {
    struct model_error error = {""};
    struct gguf_context *g = gguf_init_empty();
    berth_clear_error();
    if (no == 0) {
        gguf_set_kv(g, berth_gguf_map_meta(s->map));
    }
    gguf_set_val_u16(g, "split.no", (uint16_t) no);
    gguf_set_val_u16(g, "split.count", (uint16_t) n_parts);
    gguf_set_val_i32(g, "split.tensors.count", (int32_t) n_all);
    for (int64_t i = 0; i < n; i++) {
        gguf_add_tensor(g, s->tensors[s->first + i]);
    }
    if (g == NULL || *berth_last_error() != '\0') {
        gguf_free(g);
        return cli_fail(CLI_FAILURE, "%s", berth_last_error());
    }
    FILE *file = cli_open(path);
    int code = CLI_FAILURE;
    if (file != NULL && model_write(file, g, split_bytes, s, &error)) {
        code = cli_close(file, path, true);
    } else if (file != NULL) {
        cli_drop(file);
        code = cli_fail(CLI_FAILURE, "%s: %s", path, error.text);
    }
    gguf_free(g);
    return code;
}

static int part_name(char path[4096], const char *out, int64_t no, int64_t n_parts) {
    return snprintf(path, 4096, "%s-%05" PRId64 "-of-%05" PRId64 ".gguf", out, no + 1, n_parts) < 4096
               ? CLI_OK
               : cli_fail(CLI_FAILURE, "the name '%.64s...' is too long", out);
}

static int split(struct splitting *s, const char *out, uint64_t max_size, int64_t max_tensors, bool json) {
    struct ggml_context *ctx = berth_gguf_map_tensors(s->map);
    const int64_t n = gguf_get_n_tensors(berth_gguf_map_meta(s->map));
    int64_t n_parts = 0, i = 0;
    s->tensors = calloc((size_t) n + 1, sizeof *s->tensors);
    if (s->tensors == NULL) {
        return cli_fail(CLI_FAILURE, "out of memory for %" PRId64 " tensors", n);
    }
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL && i < n; t = ggml_get_next_tensor(ctx, t)) {
        s->tensors[i++] = t;
    }
    for (i = 0; i < n || n_parts == 0; n_parts++) {
        i += n_fitting(s, i, n, max_size, max_tensors);
    }
    if (n_parts > UINT16_MAX) {
        return cli_fail(CLI_FAILURE, "%" PRId64 " files are more than the %d that can be numbered", n_parts, UINT16_MAX);
    }
    char path[4096];
    int code = CLI_OK;
    for (int64_t no = 0; code == CLI_OK && no < n_parts; no++) { // all of them, before the first is written
        code = part_name(path, out, no, n_parts);
        if (code == CLI_OK) {
            code = cli_output_check(path);
        }
    }
    for (int64_t no = 0; code == CLI_OK && no < n_parts; no++) {
        const int64_t n_here = n_fitting(s, s->first, n, max_size, max_tensors);
        (void) part_name(path, out, no, n_parts);
        code = part_write(s, path, n_here, no, n_parts, n);
        s->first += n_here;
    }
    if (code == CLI_OK) {
        told(json, n_parts, n, stdout);
    }
    return code;
}

int cli_gguf_split(int argc, char **argv) {
    struct options o = {0};
    int code = cli_options_parse(&cli_gguf_split_help, argc, argv, &o);
    if (code >= 0) {
        return code;
    }
    if (o.max_size == 0) {
        o.max_size = o.max_tensors > 0 ? UINT64_MAX : (uint64_t) 2 << 30;
    }
    if (o.max_tensors == 0) {
        o.max_tensors = INT64_MAX;
    }
    struct splitting s = {.map = cli_gguf_open(argv[optind], false, &code)};
    code = CLI_FAILURE;
    if (s.map != NULL) {
        code = split(&s, argv[optind + 1], o.max_size, o.max_tensors, o.json);
    }
    free(s.tensors);
    berth_gguf_map_close((struct berth_gguf_map *) (uintptr_t) s.map);
    return code;
}

// ---- merge ----

struct joining {
    struct berth_gguf_map **maps; // [n]
    const void **data;            // [n_tensors]
    int64_t n, n_tensors;
};

static const void *join_bytes(int64_t i, void *user, struct model_error *error) {
    (void) error;
    return ((const struct joining *) user)->data[i];
}

// A key's whole number; -1: there is none.
static int64_t number(const struct gguf_context *g, const char *key) {
    const int64_t id = gguf_find_key(g, key);
    return id < 0                                        ? -1
           : gguf_get_kv_type(g, id) == GGUF_TYPE_UINT16 ? gguf_get_val_u16(g, id)
           : gguf_get_kv_type(g, id) == GGUF_TYPE_INT32  ? gguf_get_val_i32(g, id)
                                                         : -1;
}

// Opens all files of the first's name.
static int parts_open(struct joining *j, const char *first) {
    int code;
    struct berth_gguf_map *map = cli_gguf_open(first, false, &code);
    if (map == NULL) {
        return CLI_FAILURE;
    }
    const int64_t n = number(berth_gguf_map_meta(map), "split.count");
    const size_t size = strlen(first);
    char end[40];
    snprintf(end, sizeof end, "-00001-of-%05" PRId64 ".gguf", n);
    if (n < 1 || size <= strlen(end) || size >= 4000 || strcmp(first + size - strlen(end), end) != 0) {
        berth_gguf_map_close(map);
        return n < 1 ? cli_fail(CLI_FAILURE, "%s: it is no part of a model: key 'split.count' is missing", first)
                     : cli_fail(CLI_FAILURE, "%s: the first of %" PRId64 " files has a name with %s at its end", first, n, end);
    }
    j->maps = calloc((size_t) n, sizeof *j->maps);
    if (j->maps == NULL) {
        berth_gguf_map_close(map);
        return cli_fail(CLI_FAILURE, "out of memory for %" PRId64 " files", n);
    }
    j->maps[j->n++] = map;
    for (int64_t i = 1; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%.*s-%05" PRId64 "-of-%05" PRId64 ".gguf", (int) (size - strlen(end)), first, i + 1, n);
        map = cli_gguf_open(path, false, &code);
        if (map == NULL) {
            return CLI_FAILURE;
        }
        j->maps[j->n++] = map;
        if (number(berth_gguf_map_meta(map), "split.no") != i || number(berth_gguf_map_meta(map), "split.count") != n) {
            return cli_fail(CLI_FAILURE, "%s: it is not number %" PRId64 " of %" PRId64, path, i + 1, n);
        }
    }
    return CLI_OK;
}

// The header of all; NULL after a message.
static struct gguf_context *join_header(struct joining *j, const char *first) {
    const struct gguf_context *keys = berth_gguf_map_meta(j->maps[0]);
    const int64_t n_wanted = number(keys, "split.tensors.count");
    struct gguf_context *g = gguf_init_empty();
    for (int64_t i = 0; i < j->n; i++) {
        j->n_tensors += gguf_get_n_tensors(berth_gguf_map_meta(j->maps[i]));
    }
    j->data = calloc((size_t) j->n_tensors + 1, sizeof *j->data);
    if (g == NULL || j->data == NULL || (n_wanted >= 0 && n_wanted != j->n_tensors)) {
        gguf_free(g);
        cli_fail(CLI_FAILURE, "%s: there are %" PRId64 " tensors, by the keys there are %" PRId64, first, j->n_tensors, n_wanted);
        return NULL;
    }
    berth_clear_error();
    gguf_set_kv(g, keys);
    gguf_remove_key(g, "split.no");
    gguf_remove_key(g, "split.count");
    gguf_remove_key(g, "split.tensors.count");
    int64_t n = 0;
    for (int64_t i = 0; i < j->n; i++) {
        struct ggml_context *ctx = berth_gguf_map_tensors(j->maps[i]);
        for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
            gguf_add_tensor(g, t);
            j->data[n++] = t->data;
        }
    }
    if (*berth_last_error() != '\0') {
        cli_fail(CLI_FAILURE, "%s", berth_last_error());
        gguf_free(g);
        return NULL;
    }
    return g;
}

int cli_gguf_join(int argc, char **argv) {
    struct options o = {0};
    int code = cli_options_parse(&cli_gguf_join_help, argc, argv, &o);
    if (code >= 0) {
        return code;
    }
    const char *out = o.out;
    struct model_error error = {""};
    struct joining j = {0};
    code = cli_output_check(out) == CLI_OK ? parts_open(&j, argv[optind]) : CLI_FAILURE;
    struct gguf_context *g = code == CLI_OK ? join_header(&j, argv[optind]) : NULL;
    FILE *file = g != NULL ? cli_open(out) : NULL;
    if (file != NULL && model_write(file, g, join_bytes, &j, &error)) {
        code = cli_close(file, out, true);
    } else {
        code = code == CLI_OK ? CLI_FAILURE : code;
        if (file != NULL) {
            cli_drop(file);
            cli_fail(code, "%s: %s", out, error.text);
        }
    }
    if (code == CLI_OK) {
        told(o.json, j.n, j.n_tensors, cli_is_stdout(out) ? stderr : stdout);
    }
    gguf_free(g);
    for (int64_t i = 0; i < j.n; i++) {
        berth_gguf_map_close(j.maps[i]);
    }
    free(j.maps);
    free(j.data);
    return code;
}
