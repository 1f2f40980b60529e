// SPDX-License-Identifier: MIT
// gguf_hash.c: `berth gguf hash FILE...`: SHA-256 of each tensor's bytes and of all of them, so that weights can be known again
// whatever the keys or the order of the file are.

#include "base/json.h"
#include "base/min.h"
#include "base/sha256.h"
#include "cli/help.h"
#include "cli/models.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct options {
    bool all_only, json;
};

static const struct cli_option options_of_gguf_hash[] = {
    CLI_OPTION(0, "no-layer", NULL, "the file's line alone, without those of its tensors", CLI_TO(struct options, all_only)),
    CLI_OPT_JSON(CLI_TO(struct options, json), "print one JSON object a file: file, sha256, tensors"),
    {0},
};

const struct cli_help cli_gguf_hash_help = {
    .command = "gguf hash",
    .what = "sums that tell weights apart",
    .operands = "FILE...",
    .takes = ".gguf",
    .n_operands = {1, INT_MAX, INT_MAX},
    .about = "Prints the SHA-256 of each tensor's bytes, and of all of them in the order of their names.",
    .options = options_of_gguf_hash,
    .size = sizeof(struct options),
    .examples = {{"All of a model", "gguf hash model.gguf"}, {"One line a file", "gguf hash --no-layer *.gguf"}},
};

static int by_name(const void *a, const void *b) {
    return strcmp((*(const struct ggml_tensor *const *) a)->name, (*(const struct ggml_tensor *const *) b)->name);
}

static int hash_one(const char *path, bool all_only, bool json) {
    int code;
    struct berth_gguf_map *map = cli_gguf_open(path, true, &code);
    if (map == NULL) {
        return CLI_FAILURE;
    }
    const int64_t n = gguf_get_n_tensors(berth_gguf_map_meta(map));
    const struct ggml_tensor **tensors = calloc((size_t) n + 1, sizeof *tensors);
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
            printf("%s  ", hex);
            cli_text(stdout, 0, path);
            putchar(':');
            cli_text(stdout, 0, tensors[k]->name);
            putchar('\n');
        }
    }
    sha256_end(&all, hex);
    if (json) {
        berth_json_end(&w);
        berth_json_printf(&w, "'sha256': %s, 'file': %s}\n", hex, path);
    } else {
        printf("%s  ", hex);
        cli_text(stdout, 0, path);
        putchar('\n');
    }
    free(tensors);
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
