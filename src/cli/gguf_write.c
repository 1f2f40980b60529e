// SPDX-License-Identifier: MIT
// gguf_write.c: `berth gguf set`, `split`, `merge` and `merge-lora`.

#include "base/json.h"
#include "cli/help.h"
#include "cli/models.h"
#include "quantize/quantize.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

struct options {
    const char *out;
    struct cli_texts removed; // keys
    uint64_t max_size;        // bytes per file, 0: not given
    int64_t max_tensors;      // per file, 0: not given
    bool json;
};

#define OPT_OUT \
    CLI_OPTION('o', "out", "OUT", "the file to write", .takes = ".gguf", CLI_TO(struct options, out), .is_required = true)
#define OPT_JSON(fields) CLI_OPT_JSON(CLI_TO(struct options, json), "print one JSON object: " fields)

// Returns the stream for results: standard error if the output file is standard output.
static FILE *results_stream(const struct options *o) {
    return cli_is_stdout(o->out) ? stderr : stdout;
}

// ---- set ----

static const struct cli_option options_of_gguf_set[] = {
    OPT_OUT,
    CLI_OPTION(0, "remove", "KEY", "remove KEY; may be repeated", CLI_TO_LIST(CLI_TEXTS, struct options, removed)),
    OPT_JSON("set, removed"),
    {0},
};

const struct cli_help cli_gguf_set_help = {
    .command = "gguf set",
    .what = "change the keys of a model",
    .operands = "FILE [KEY=VALUE]...",
    .takes = ".gguf|",
    .n_operands = {1, INT_MAX, 1},
    .about =
        "Writes FILE to OUT with keys changed or added. A key keeps its type. The value of a new key decides its type: bool, "
        "u32, i32, f32 or string. Arrays cannot be set.",
    .options = options_of_gguf_set,
    .size = sizeof(struct options),
    .examples = {{"Another name", "gguf set model.gguf general.name=Mine -o mine.gguf"},
        {"A longer context", "gguf set model.gguf llama.context_length=8192 -o long.gguf"}},
};

static const void *tensor_bytes(int64_t i, void *user, struct model_error *error) {
    (void) error;
    return berth_gguf_map_data(user, i);
}

static int keys_change(struct gguf_context *g, const struct options *o, char **words, int n_words) {
    struct model_error error = {""};
    for (int i = 0; i < n_words; i++) {
        if (!rewrite_key_set(g, words[i], &error)) {
            return cli_usage("gguf set", "%s", error.text);
        }
    }
    for (size_t i = 0; i < o->removed.n; i++) {
        if (gguf_find_key(g, o->removed.items[i]) < 0) {
            return cli_fail(CLI_FAILURE, "there is no key '%s'", o->removed.items[i]);
        }
        gguf_remove_key(g, o->removed.items[i]);
    }
    return CLI_OK;
}

static int change_write(struct berth_gguf_map *map, const struct options *o, char **words, int n_words) {
    struct model_error error = {""};
    struct gguf_context *g = model_header_new(berth_gguf_map_meta(map));
    struct ggml_context *ctx = berth_gguf_map_tensors(map);
    int code = keys_change(g, o, words, n_words);
    if (code == CLI_OK) {
        for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
            gguf_add_tensor(g, t);
        }
        g = model_header_check(g, &error);
        code = g != NULL ? cli_gguf_write(o->out, g, tensor_bytes, map) : cli_fail(CLI_FAILURE, "%s", error.text);
    }
    gguf_free(g);
    return code;
}

int cli_gguf_set(const struct cli_args *args) {
    const struct options *o = args->options;
    const int n = args->n - 1;
    int code;
    if (n == 0 && o->removed.n == 0) {
        return cli_usage("gguf set", "missing argument: KEY=VALUE or --remove KEY");
    }
    struct berth_gguf_map *map = cli_output_check(o->out) == CLI_OK ? cli_gguf_open(args->operands[0], false, &code) : NULL;
    if (map == NULL) {
        return CLI_FAILURE;
    }
    code = change_write(map, o, args->operands + 1, n);
    if (code == CLI_OK) {
        fprintf(results_stream(o), o->json ? "{\"set\": %d, \"removed\": %zu}\n" : "%d set, %zu removed\n", n, o->removed.n);
    }
    berth_gguf_map_close(map);
    return code;
}

// ---- split ----

static const struct cli_option options_of_gguf_split[] = {
    CLI_OPTION(0, "max-size", "N", "at most N bytes of tensors per file (default 2G)", .also = "split-max-size", .kind = CLI_SIZE,
        CLI_TO(struct options, max_size)),
    CLI_OPTION(0, "max-tensors", "N", "at most N tensors per file", .also = "split-max-tensors", CLI_RANGE(1, INT32_MAX),
        CLI_TO(struct options, max_tensors)),
    OPT_JSON("files, tensors"),
    {0},
};

const struct cli_help cli_gguf_split_help = {
    .command = "gguf split",
    .what = "split a model into several files",
    .operands = "FILE OUT",
    .takes = ".gguf",
    .n_operands = {2, 2, 1},
    .about = "Writes the model as OUT-00001-of-00003.gguf and so on. A tensor is never split, whatever its size.",
    .options = options_of_gguf_split,
    .size = sizeof(struct options),
    .examples = {{"Files of at most 4 GiB", "gguf split --max-size 4G model.gguf part"},
        {"Ten tensors each", "gguf split --max-tensors 10 model.gguf part"}},
};

static void counts_print(bool json, int64_t n_files, int64_t n_tensors, FILE *file) {
    fprintf(file, json ? "{\"files\": %" PRId64 ", \"tensors\": %" PRId64 "}\n" : "%" PRId64 " files, %" PRId64 " tensors\n",
        n_files, n_tensors);
}

static int parts_write(struct rewrite_split *s, const char *out) {
    struct model_error error = {""};
    char path[4096];
    if (!rewrite_split_init(s, &error)) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    for (int64_t no = 0; no < s->n_parts; no++) { // all names are checked before the first file is written
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
    return CLI_OK;
}

int cli_gguf_split(const struct cli_args *args) {
    const struct options *o = args->options;
    int code;
    struct berth_gguf_map *map = cli_gguf_open(args->operands[0], false, &code);
    if (map == NULL) {
        return CLI_FAILURE;
    }
    struct rewrite_split s = {.map = map, .max_size = o->max_size, .max_tensors = o->max_tensors};
    if (s.max_size == 0) {
        s.max_size = o->max_tensors > 0 ? UINT64_MAX : (uint64_t) 2 << 30;
    }
    if (s.max_tensors == 0) {
        s.max_tensors = INT64_MAX;
    }
    code = parts_write(&s, args->operands[1]);
    if (code == CLI_OK) {
        counts_print(o->json, s.n_parts, s.n_tensors, stdout);
    }
    rewrite_split_fini(&s);
    berth_gguf_map_close(map);
    return code;
}

// ---- merge ----

static const struct cli_option options_of_gguf_join[] = {OPT_OUT, OPT_JSON("files, tensors"), {0}};

const struct cli_help cli_gguf_join_help = {
    .command = "gguf merge",
    .what = "merge the files of a split model",
    .operands = "FIRST",
    .takes = ".gguf",
    .n_operands = {1, 1, 1},
    .about = "Merges the files of a split model. FIRST is the first one, whose name ends in -00001-of-N.gguf; the others are in "
             "the same folder.",
    .options = options_of_gguf_join,
    .size = sizeof(struct options),
    .examples = {{"Merge into one file", "gguf merge part-00001-of-00003.gguf -o model.gguf"},
        {"To standard output", "gguf merge part-00001-of-00003.gguf -o -"}},
};

int cli_gguf_join(const struct cli_args *args) {
    const struct options *o = args->options;
    const char *path = args->operands[0];
    struct model_error error = {""};
    struct model m = {0};
    if (cli_output_check(o->out) != CLI_OK) {
        return CLI_FAILURE;
    }
    struct gguf_context *g = model_files_open(&m, path, false, &error) ? rewrite_join_header(&m, path, &error) : NULL;
    const int code = g != NULL ? cli_gguf_write(o->out, g, rewrite_join_bytes, &m) : cli_fail(CLI_FAILURE, "%s", error.text);
    if (code == CLI_OK) {
        counts_print(o->json, m.n_files, gguf_get_n_tensors(g), results_stream(o));
    }
    gguf_free(g);
    model_files_close(&m);
    return code;
}

// ---- merge-lora ----

static const struct cli_option options_of_gguf_merge[] = {OPT_OUT, OPT_JSON("tensors, merged"), {0}};

const struct cli_help cli_gguf_merge_help = {
    .command = "gguf merge-lora",
    .what = "merge an adapter into its model",
    .takes = ".gguf",
    .n_operands = {2, 2, 2},
    .operands = "MODEL LORA[:SCALE]",
    .about =
        "Writes MODEL with the adapter LORA, scaled by SCALE (default 1), added to its weights. The weights keep their types. "
        "In quantised weights a small change may be lost by rounding; 'berth run --lora' applies the adapter without loss.",
    .options = options_of_gguf_merge,
    .size = sizeof(struct options),
    .examples = {{"Merge an adapter", "gguf merge-lora model.gguf lora.gguf -o tuned.gguf"},
        {"Half as strong", "gguf merge-lora model.gguf lora.gguf:0.5 -o tuned.gguf"}},
};

static int lora_write(const struct model *model, const struct model_lora *lora, const struct options *o) {
    struct model_error error = {""};
    FILE *file = cli_open(o->out);
    if (file == NULL) {
        return CLI_FAILURE;
    }
    const int code = cli_close_why(file, o->out, lora_merge(model, lora, file, &error), error.text);
    if (code != CLI_OK) {
        return code;
    }
    const long long n_all = gguf_get_n_tensors(berth_gguf_map_meta(model->file));
    FILE *to = results_stream(o);
    if (o->json) {
        berth_json_printf(&(struct berth_json_writer){.file = to}, "{'tensors': %lld, 'merged': %zu}\n", n_all, lora->n_pairs);
    } else {
        cli_text(to, 0, o->out);
        fprintf(to, ": %zu of %lld tensors changed by the adapter\n", lora->n_pairs, n_all);
    }
    return CLI_OK;
}

int cli_gguf_merge(const struct cli_args *args) {
    const struct options *o = args->options;
    char path[4096];
    float scale;
    struct model_error error = {""};
    if (!lora_parse(args->operands[1], path, &scale, &error)) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    if (cli_output_check(o->out) != CLI_OK) {
        return CLI_FAILURE;
    }
    if (access(args->operands[0], R_OK) != 0) {
        return cli_fail(CLI_FAILURE, "%s: cannot be read: %s", args->operands[0], strerror(errno));
    }
    struct model *model = model_open(args->operands[0], &error);
    struct model_lora *lora = model != NULL ? lora_open(model, path, scale, &error) : NULL;
    const int code = lora != NULL ? lora_write(model, lora, o) : cli_fail(CLI_FAILURE, "%s", error.text);
    lora_free(lora);
    model_free(model);
    return code;
}
