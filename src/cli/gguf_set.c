// SPDX-License-Identifier: MIT
// gguf_set.c: `berth gguf set FILE KEY=VALUE... -o OUT`: the same model with other keys.

#include "cli/help.h"
#include "cli/models.h"
#include "quantize/quantize.h"

#include <limits.h>

struct change {
    const char *out;
    struct cli_texts removed;
    bool json;
};

static const struct cli_option options_of_gguf_set[] = {
    CLI_OPTION('o', "out", "OUT", "the file to write", .takes = ".gguf", CLI_TO(struct change, out), .is_required = true),
    CLI_OPTION(0, "remove", "KEY", "leave KEY out; may be given again", CLI_TO_LIST(CLI_TEXTS, struct change, removed)),
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
    .size = sizeof(struct change),
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
    for (size_t i = 0; i < c->removed.n; i++) {
        if (gguf_find_key(g, c->removed.items[i]) < 0) {
            gguf_free(g);
            return cli_fail(CLI_FAILURE, "there is no key '%s'", c->removed.items[i]);
        }
        gguf_remove_key(g, c->removed.items[i]);
    }
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        gguf_add_tensor(g, t);
    }
    const bool ok = g != NULL && *berth_last_error() == '\0';
    const int code = ok ? cli_gguf_write(c->out, g, tensor_bytes, map) : cli_fail(CLI_FAILURE, "%s", berth_last_error());
    gguf_free(g);
    return code;
}

int cli_gguf_set(const struct cli_args *args) {
    const struct change *c = args->options;
    int code;
    const int n = args->n - 1;
    if (n == 0 && c->removed.n == 0) {
        return cli_usage("gguf set", "neither KEY=VALUE nor --remove KEY is given");
    }
    struct berth_gguf_map *map = cli_output_check(c->out) == CLI_OK ? cli_gguf_open(args->operands[0], false, &code) : NULL;
    if (map == NULL) {
        return CLI_FAILURE;
    }
    code = change_write(map, c, args->operands + 1, n);
    if (code == CLI_OK) {
        fprintf(cli_is_stdout(c->out) ? stderr : stdout, c->json ? "{\"set\": %d, \"removed\": %zu}\n" : "%d set, %zu removed\n",
            n, c->removed.n);
    }
    berth_gguf_map_close(map);
    return code;
}
