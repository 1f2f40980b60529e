// SPDX-License-Identifier: MIT
// gguf_set.c: `berth gguf set FILE KEY=VALUE... -o OUT`: the same model with other keys.

#include "cli/help.h"
#include "cli/models.h"
#include "quantize/quantize.h"

#include <getopt.h>
#include <limits.h>

#define MAX_REMOVED 64

struct change {
    const char *out, *removed[MAX_REMOVED];
    int n_removed;
    bool json;
};

static int removed_add(const struct cli_option *option, const char *command, const char *value, void *target) {
    struct change *c = target;
    (void) option;
    if (c->n_removed == MAX_REMOVED) {
        return cli_usage(command, "more than %d keys are removed", MAX_REMOVED);
    }
    c->removed[c->n_removed++] = value;
    return CLI_OK;
}

static const struct cli_option options_of_gguf_set[] = {
    CLI_OPTION('o', "out", "OUT", "the file to write", .takes = ".gguf", CLI_TO(struct change, out), .is_required = true),
    CLI_OPTION(0, "remove", "KEY", "leave KEY out; may be given again", CLI_TO_ALL(removed_add)),
    CLI_OPT_JSON(CLI_TO(struct change, json), "print one JSON object: set, removed"),
    {0},
};

const struct cli_help cli_gguf_set_help = {
    .command = "gguf set",
    .what = "the same model with other keys",
    .operands = "FILE [KEY=VALUE]...",
    .takes = ".gguf|",
    .n_operands = {1, INT_MAX, 1},
    .about = "Writes FILE to OUT with keys changed or added. A key keeps its type; a new one is bool, u32, i32, f32 or a text, "
             "as its value looks. Lists cannot be set.",
    .options = options_of_gguf_set,
    .examples = {{"Another name", "gguf set model.gguf general.name=Mine -o mine.gguf"},
        {"A longer context", "gguf set model.gguf llama.context_length=8192 -o long.gguf"}},
};

static const void *tensor_bytes(int64_t i, void *user, struct model_error *error) {
    (void) error;
    return berth_gguf_map_data(user, i);
}

static int change_write(struct berth_gguf_map *map, const struct change *c, char **words, int n_words) {
    struct model_error error = {""};
    struct gguf_context *g = gguf_init_empty();
    struct ggml_context *ctx = berth_gguf_map_tensors(map);
    berth_clear_error();
    gguf_set_kv(g, berth_gguf_map_meta(map));
    for (int i = 0; i < n_words; i++) {
        if (!rewrite_key_set(g, words[i], &error)) {
            gguf_free(g);
            return cli_usage("gguf set", "%s", error.text);
        }
    }
    for (int i = 0; i < c->n_removed; i++) {
        if (gguf_find_key(g, c->removed[i]) < 0) {
            gguf_free(g);
            return cli_fail(CLI_FAILURE, "there is no key '%s'", c->removed[i]);
        }
        gguf_remove_key(g, c->removed[i]);
    }
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        gguf_add_tensor(g, t);
    }
    const bool ok = g != NULL && *berth_last_error() == '\0';
    const int code = ok ? cli_gguf_write(c->out, g, tensor_bytes, map) : cli_fail(CLI_FAILURE, "%s", berth_last_error());
    gguf_free(g);
    return code;
}

int cli_gguf_set(int argc, char **argv) {
    struct change c = {0};
    int code = cli_options_parse(&cli_gguf_set_help, argc, argv, &c);
    if (code >= 0) {
        return code;
    }
    const int n = argc - optind - 1;
    if (n + c.n_removed == 0) {
        return cli_usage("gguf set", "neither KEY=VALUE nor --remove KEY is given");
    }
    struct berth_gguf_map *map = cli_output_check(c.out) == CLI_OK ? cli_gguf_open(argv[optind], false, &code) : NULL;
    if (map == NULL) {
        return CLI_FAILURE;
    }
    code = change_write(map, &c, argv + optind + 1, n);
    if (code == CLI_OK) {
        fprintf(cli_is_stdout(c.out) ? stderr : stdout, c.json ? "{\"set\": %d, \"removed\": %d}\n" : "%d set, %d removed\n", n,
            c.n_removed);
    }
    berth_gguf_map_close(map);
    return code;
}
