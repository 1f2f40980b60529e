// SPDX-License-Identifier: MIT
// gguf_quantize.c: `berth gguf quantize IN OUT TYPE` writes a model with its matrices in another type.

#include "base/json.h"
#include "cli/help.h"
#include "cli/models.h"
#include "quantize/quantize.h"

#include <inttypes.h>
#include <math.h>

struct target {
    struct recipe recipe;
    const struct imatrix *imatrix; // NULL: none
    const char *imatrix_path, *out;
    int n_threads;
    bool json, is_dry, is_pure;
};

static int rule_add(const struct cli_option *option, const char *command, const char *value, void *target) {
    struct target *to = target;
    (void) option;
    return recipe_rule_parse(value, &to->recipe)
               ? CLI_OK
               : cli_usage(
                     command, "--tensor-type '%s' is not PATTERN=TYPE such as '*.attn_v.*=q8_0', or there are too many", value);
}

static const struct cli_option options_of_gguf_quantize[] = {
    CLI_OPTION(
        'o', "out", "OUT", "the file to write; then the arguments are IN and TYPE", .takes = ".gguf", CLI_TO(struct target, out)),
    CLI_OPTION(0, "imatrix", "FILE",
        "use an importance matrix to decide how much each error counts: a GGUF file of llama-imatrix or 'berth imatrix', or an "
        "older .dat file. If TYPE requires an importance matrix, matrices that FILE does not contain keep their type",
        .takes = ".gguf .dat", .use = CLI_READ, CLI_TO(struct target, imatrix_path)),
    CLI_OPTION(0, "tensor-type", "PATTERN=TYPE",
        "use TYPE for matrices whose names match, as in '*.attn_v.*=q8_0'; overrides everything else. May be repeated; the first "
        "match counts",
        CLI_TO_ALL(rule_add)),
    CLI_OPTION(0, "pure", NULL, "use TYPE for every matrix, even if llama-quantize has a mix with that name",
        CLI_TO(struct target, is_pure)),
    CLI_OPTION(0, "dry-run", NULL, "print types and sizes, but write nothing; OUT may be omitted", CLI_TO(struct target, is_dry)),
    CLI_OPTION('t', "threads", "N", "threads (default: number of cores); the result does not depend on it", CLI_RANGE(1, 1024),
        CLI_TO(struct target, n_threads)),
    CLI_OPT_JSON(CLI_TO(struct target, json), "print one JSON object: type, tensors, converted, bytes_before, bytes_after, mse"),
    {0},
};

const struct cli_help cli_gguf_quantize_help = {
    .command = "gguf quantize",
    .what = "write a model in another type",
    .operands = "IN OUT TYPE",
    .takes = ".gguf|.gguf|@types",
    .n_operands = {2, 3, 1},
    .about =
        "Writes the model IN to OUT with its matrices in TYPE (q8_0, q4_k, ...), or in a mix that gives more bits to sensitive "
        "matrices, as llama-quantize makes it under the same name: iq1_s to iq4_xs, q2_k, q2_k_s, q3_k_s, q3_k_m, q3_k_l, "
        "q4_k_s, q4_k_m, q5_k_s, q5_k_m. These keep their type: vectors, routers, position tables, and matrices whose row "
        "length is not a multiple of TYPE's block size. Prints the size and the mean squared error.",
    .options = options_of_gguf_quantize,
    .size = sizeof(struct target),
    .examples = {{"A quarter of the size", "gguf quantize model.gguf small.gguf q4_k_m"},
        {"The size without writing it", "gguf quantize --dry-run model.gguf q4_k_m"}},
};

static void progress_show(const char *what, uint64_t done, uint64_t all, const char *text, void *user) {
    char bytes[2][32];
    (void) user;
    cli_progress(what, done, all, "%s, %s of %s", text, cli_short_bytes(done, bytes[0]), cli_short_bytes(all, bytes[1]));
}

// The type with the most bytes comes first.
static void print_types(const struct gguf_context *meta, FILE *file) {
    int64_t n[GGML_TYPE_COUNT] = {0};
    size_t size[GGML_TYPE_COUNT] = {0};
    for (int64_t i = 0; i < gguf_get_n_tensors(meta); i++) {
        n[gguf_get_tensor_type(meta, i)]++;
        size[gguf_get_tensor_type(meta, i)] += gguf_get_tensor_size(meta, i);
    }
    for (;;) {
        int most = -1;
        for (int i = 0; i < GGML_TYPE_COUNT; i++) {
            if (n[i] > 0 && (most < 0 || size[i] > size[most])) {
                most = i;
            }
        }
        if (most < 0) {
            return;
        }
        char text[64];
        fprintf(file, "  %-8s %6" PRId64 " tensor%s  %s\n", ggml_type_name((enum ggml_type) most), n[most],
            n[most] == 1 ? " " : "s", cli_bytes(size[most], text));
        n[most] = 0;
    }
}

static void print_totals(
    const struct quantize_totals *x, const struct gguf_context *meta, const struct target *to, const char *path) {
    const double mse = x->n_elements > 0 ? x->squares / (double) x->n_elements : 0;
    const char *name = recipe_name(&to->recipe);
    char text[2][64];
    FILE *file = cli_is_stdout(path) && !to->is_dry ? stderr : stdout;
    if (to->json) {
        berth_json_printf(&(struct berth_json_writer){.file = file},
            "{'type': %s, 'tensors': %" PRId64 ", 'converted': %" PRId64 ", 'bytes_before': %zu, 'bytes_after': %zu, 'mse': "
            "%.6g}\n",
            name, gguf_get_n_tensors(meta), x->n_converted, x->before, x->after, to->is_dry ? (double) NAN : mse);
        return;
    }
    cli_text(file, 0, path);
    fprintf(file, ": %" PRId64 " of %" PRId64 " tensors as %s, %s, before %s", x->n_converted, gguf_get_n_tensors(meta), name,
        cli_bytes(x->after, text[0]), cli_bytes(x->before, text[1]));
    if (to->is_dry) {
        fputs("; nothing was written\n", file);
    } else {
        fprintf(file, ", mean squared error %.4g\n", mse);
    }
    if (to->is_dry || to->recipe.mix != NULL || to->recipe.n_rules > 0) {
        print_types(meta, file);
    }
}

static int model_quantize(const struct berth_gguf_map *map, const char *in, const char *path, const struct target *to) {
    const struct quantize_job job = {.map = map,
        .recipe = &to->recipe,
        .imatrix = to->imatrix,
        .n_threads = to->n_threads,
        .watch = {.progress = progress_show}};
    struct model_error error = {""};
    struct quantize_totals totals;
    struct gguf_context *header = quantize_header(&job, &totals, &error);
    if (header == NULL) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    int code = to->is_dry ? CLI_OK : CLI_FAILURE;
    FILE *file = to->is_dry ? NULL : cli_open(path);
    if (file != NULL) {
        const bool ok = quantize_write(&job, header, file, &totals, &error);
        cli_progress_end();
        code = ferror(file) ? cli_close(file, path, ok) : cli_close_why(file, path, ok, error.text);
    }
    if (code == CLI_OK) {
        print_totals(&totals, header, to, to->is_dry ? in : path);
    }
    gguf_free(header);
    return code;
}

int cli_gguf_quantize(const struct cli_args *args) {
    struct target *to = args->options;
    int code;
    if (to->n_threads == 0) {
        to->n_threads = model_n_cores();
    }
    const bool has_out = to->out == NULL && !to->is_dry; // OUT is an operand
    const int n_wanted = has_out ? 3 : 2;
    if (args->n != n_wanted && !(to->is_dry && args->n == 3)) {
        return cli_usage("gguf quantize", "missing or unexpected argument: expected %s, got %d",
            has_out ? "IN, OUT and TYPE" : "IN and TYPE", args->n);
    }
    const char *in = args->operands[0], *path = to->out != NULL ? to->out : args->operands[1],
               *name = args->operands[args->n - 1];
    if (!recipe_parse(name, to->is_pure, &to->recipe)) {
        return cli_usage("gguf quantize", "unknown type or mix '%s'", name);
    }
    struct model_error error = {""};
    if (!recipe_check(&to->recipe, to->imatrix_path != NULL, &error)) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    if (!to->is_dry && cli_output_check(path) != CLI_OK) {
        return CLI_FAILURE;
    }
    struct imatrix *imatrix = to->imatrix_path != NULL ? imatrix_open(to->imatrix_path, &error) : NULL;
    if (to->imatrix_path != NULL && imatrix == NULL) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    struct berth_gguf_map *map = cli_gguf_open(in, !to->is_dry, &code);
    code = CLI_FAILURE;
    if (map != NULL) {
        to->imatrix = imatrix;
        recipe_set_model(&to->recipe, berth_gguf_map_meta(map), imatrix != NULL);
        code = model_quantize(map, in, path, to);
    }
    berth_gguf_map_close(map);
    imatrix_free(imatrix);
    return code;
}
