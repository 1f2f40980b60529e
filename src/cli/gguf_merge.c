// SPDX-License-Identifier: MIT
// gguf_merge.c: `berth gguf merge-lora MODEL LORA -o OUT`: an adapter becomes part of the model it was made for.

#include "base/json.h"
#include "cli/help.h"
#include "cli/models.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct options {
    const char *out;
    bool json;
};

static const struct cli_option options_of_gguf_merge[] = {
    CLI_OPTION('o', "out", "OUT", "the file to write", .takes = ".gguf", CLI_TO(struct options, out), .is_required = true),
    CLI_OPT_JSON(CLI_TO(struct options, json), "print one JSON object: tensors, merged"),
    {0},
};

const struct cli_help cli_gguf_merge_help = {
    .command = "gguf merge-lora",
    .what = "an adapter becomes part of its model",
    .takes = ".gguf",
    .n_operands = {2, 2, 2},
    .operands = "MODEL LORA[:SCALE]",
    .about = "Writes MODEL with the adapter LORA, SCALE times as strong (default 1), added to its weights, in the types that "
             "they have. In quantised weights a small change may drown in rounding: an adapter beside them ('berth run --lora') "
             "loses nothing.",
    .options = options_of_gguf_merge,
    .size = sizeof(struct options),
    .examples = {{"One file of two", "gguf merge-lora model.gguf lora.gguf -o tuned.gguf"},
        {"Half as strong", "gguf merge-lora model.gguf lora.gguf:0.5 -o tuned.gguf"}},
};

static int lora_write(const struct model *model, const struct model_lora *lora, const char *out, bool json) {
    struct model_error error = {""};
    FILE *file = cli_open(out);
    if (file == NULL) {
        return CLI_FAILURE;
    }
    if (!lora_merge(model, lora, file, &error)) {
        cli_drop(file);
        return cli_fail(CLI_FAILURE, "%s: %s", out, error.text);
    }
    const int code = cli_close(file, out, true);
    if (code != CLI_OK) {
        return code;
    }
    const long long n_all = gguf_get_n_tensors(berth_gguf_map_meta(model->file));
    FILE *to = cli_is_stdout(out) ? stderr : stdout;
    if (json) {
        berth_json_printf(&(struct berth_json_writer){.file = to}, "{'tensors': %lld, 'merged': %zu}\n", n_all, lora->n_pairs);
    } else {
        cli_text(to, 0, out);
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
    const int code = lora != NULL ? lora_write(model, lora, o->out, o->json) : cli_fail(CLI_FAILURE, "%s", error.text);
    lora_free(lora);
    model_free(model);
    return code;
}
