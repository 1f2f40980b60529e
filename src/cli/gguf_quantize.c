// SPDX-License-Identifier: MIT
// gguf_quantize.c: `berth gguf quantize IN OUT TYPE`: the same model with its matrices in another type. One tensor of the
// result at a time is in memory, whatever the model's size; all cores work on it.

#include "base/json.h"
#include "cli/gguf.h"
#include "cli/help.h"
#include "cli/models.h"
#include "quantize/imatrix.h"
#include "quantize/recipe.h"
#include "quantize/rows.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// What is to be made.
struct target {
    struct gguf_types types;
    const struct imatrix *imatrix; // NULL: none
    const char *imatrix_path, *out;
    int n_threads;
    bool json, is_dry, is_pure;
};

static int rule_add(const struct cli_option *option, const char *command, const char *value, void *target) {
    struct target *to = target;
    (void) option;
    return gguf_types_rule(value, &to->types)
               ? CLI_OK
               : cli_usage(command, "--tensor-type '%s' is no PATTERN=TYPE such as '*.attn_v.*=q8_0', or one too many", value);
}

static const struct cli_option options_of_gguf_quantize[] = {
    CLI_OPTION(
        'o', "out", "OUT", "the file to write; IN and TYPE are the operands then", .takes = ".gguf", CLI_TO(struct target, out)),
    CLI_OPTION(0, "imatrix", "FILE",
        "weigh errors by an importance matrix: GGUF as llama-imatrix writes it, or its older .dat. Types that need one leave "
        "matrices that it does not know as they are",
        .takes = ".gguf .dat", .use = CLI_READ, CLI_TO(struct target, imatrix_path)),
    CLI_OPTION(0, "tensor-type", "PATTERN=TYPE",
        "matrices whose names match get TYPE, whatever else is said, as in '*.attn_v.*=q8_0'; may be given again, the first that "
        "matches counts",
        CLI_TO_ALL(rule_add)),
    CLI_OPTION(0, "pure", NULL, "no mix: TYPE for every matrix, also where llama-quantize has a mix of that name",
        CLI_TO(struct target, is_pure)),
    CLI_OPTION(0, "dry-run", NULL, "write nothing: tell the types and sizes; OUT may be left out", CLI_TO(struct target, is_dry)),
    CLI_OPTION('t', "threads", "N", "threads (default: the cores); the bytes are the same with any number", CLI_RANGE(1, 1024),
        CLI_TO(struct target, n_threads)),
    CLI_OPT_JSON(CLI_TO(struct target, json), "print one JSON object: type, tensors, converted, bytes_before, bytes_after, mse"),
    {0},
};

const struct cli_help cli_gguf_quantize_help = {
    .command = "gguf quantize",
    .what = "the same model in another type",
    .operands = "IN OUT TYPE",
    .takes = ".gguf|.gguf|@types",
    .n_operands = {2, 3, 1},
    .about = "Writes the model IN to OUT with its matrices as TYPE (q8_0, q4_k, ...), or as a mix that gives more bits to what "
             "suffers most, as llama-quantize makes it under that name: iq1_s to iq4_xs, q2_k, q2_k_s, q3_k_s, q3_k_m, q3_k_l, "
             "q4_k_s, q4_k_m, q5_k_s, q5_k_m. Vectors, routers, tables of positions, and matrices whose rows are no whole number "
             "of TYPE's blocks, stay as they are. Prints the size and the mean squared error.",
    .options = options_of_gguf_quantize,
    .examples = {{"A quarter of the size", "gguf quantize model.gguf small.gguf q4_k_m"},
        {"How large would it be?", "gguf quantize --dry-run model.gguf q4_k_m"}},
};

struct totals {
    int64_t n_converted, n_elements;
    size_t before, after;
    double squares; // sum of squared errors
};

// How far it is.
struct way {
    int64_t i_tensor, n_tensors;
    size_t done, all, at_hand; // bytes of the input: before this tensor, of all, of this one
};

static void tell(double part, void *user) {
    const struct way *way = user;
    const size_t done = way->done + (size_t) (part * (double) way->at_hand);
    char text[2][32];
    cli_progress("quantising", done, way->all, "tensor %" PRId64 " of %" PRId64 ", %s of %s", way->i_tensor + 1, way->n_tensors,
        cli_short_bytes(done, text[0]), cli_short_bytes(way->all, text[1]));
}

bool cli_gguf_can_make(enum ggml_type type, bool has_imatrix) {
    const float zeros[256] = {0};
    char out[1024];
    return ggml_blck_size(type) > 0 && ggml_blck_size(type) <= 256 &&
           ggml_quantize_chunk(type, zeros, out, 0, 1, ggml_blck_size(type), has_imatrix ? zeros : NULL) > 0;
}

// The type that a tensor gets: its own, unless it holds real numbers, and an importance matrix knows it if the type wants one.
static enum ggml_type type_of(const struct ggml_tensor *t, const struct target *to) {
    const enum ggml_type type = gguf_types_of(&to->types, t);
    bool is_wrong;
    return (t->type == GGML_TYPE_F32 || ggml_get_type_traits(t->type)->to_float != NULL) &&
                   (!ggml_quantize_requires_imatrix(type) || imatrix_find(to->imatrix, t, &is_wrong) != NULL)
               ? type
               : t->type;
}

// Every matrix of the model that the importance matrix knows has the size that it knows.
static bool imatrix_check(const struct berth_gguf_map *map, const struct imatrix *imatrix) {
    struct ggml_context *tensors = berth_gguf_map_tensors(map);
    for (struct ggml_tensor *t = ggml_get_first_tensor(tensors); t != NULL; t = ggml_get_next_tensor(tensors, t)) {
        bool is_wrong;
        (void) imatrix_find(imatrix, t, &is_wrong);
        if (is_wrong) {
            cli_fail(
                CLI_FAILURE, "the importance matrix is of another model: tensor '%s' has rows of %" PRId64, t->name, t->ne[0]);
            return false;
        }
    }
    return true;
}

// Converts into out; false: out of memory, or the type cannot be made.
static bool convert(const struct ggml_tensor *t, const struct target *to, void *out, struct totals *totals, struct way *way) {
    bool is_wrong;
    const float *weights = imatrix_find(to->imatrix, t, &is_wrong);
    totals->n_elements += ggml_nelements(t);
    totals->n_converted++;
    return cli_quantize_rows(t, type_of(t, to), weights, to->n_threads, out, &totals->squares, tell, way);
}

// The header with the new types; NULL after a message.
static struct gguf_context *meta_make(const struct berth_gguf_map *map, const struct target *to) {
    const struct gguf_context *in = berth_gguf_map_meta(map);
    struct gguf_context *out = gguf_init_empty();
    berth_clear_error();
    gguf_set_kv(out, in);
    gguf_set_val_u32(out, "general.quantization_version", 2);
    if (gguf_types_file_type(&to->types) >= 0) {
        gguf_set_val_u32(out, "general.file_type", (uint32_t) gguf_types_file_type(&to->types));
    }
    struct ggml_context *tensors = berth_gguf_map_tensors(map);
    for (struct ggml_tensor *t = ggml_get_first_tensor(tensors); t != NULL; t = ggml_get_next_tensor(tensors, t)) {
        gguf_add_tensor(out, t);
        if (type_of(t, to) != t->type) {
            gguf_set_tensor_type(out, t->name, type_of(t, to));
        }
    }
    if (out == NULL || *berth_last_error() != '\0') {
        cli_fail(CLI_FAILURE, "%s", berth_last_error());
        gguf_free(out);
        return NULL;
    }
    return out;
}

// Header, then tensor by tensor. False with errno or berth_last_error() set.
static bool write_all(const struct berth_gguf_map *map, const struct gguf_context *meta, const struct target *to, FILE *file,
    struct totals *totals) {
    const char zeros[64] = {0};
    struct ggml_context *tensors = berth_gguf_map_tensors(map);
    struct ggml_tensor *t = ggml_get_first_tensor(tensors);
    struct way way = {.n_tensors = gguf_get_n_tensors(meta), .all = berth_gguf_map_size(map)};
    if (!gguf_write_to_file_ptr(meta, file, true)) {
        return false;
    }
    for (int64_t i = 0; i < gguf_get_n_tensors(meta); i++, t = ggml_get_next_tensor(tensors, t)) {
        const size_t size = gguf_get_tensor_size(meta, i);
        void *copy = NULL;
        bool ok = true;
        way.i_tensor = i;
        way.done = totals->before;
        way.at_hand = ggml_nbytes(t);
        tell(0, &way);
        if (type_of(t, to) != t->type) {
            copy = malloc(size);
            ok = copy != NULL && convert(t, to, copy, totals, &way);
        }
        ok = ok && fwrite(copy != NULL ? copy : t->data, 1, size, file) == size;
        free(copy);
        for (size_t left = -size & (gguf_get_alignment(meta) - 1); ok && left > 0;) {
            const size_t n = left < sizeof zeros ? left : sizeof zeros;
            ok = fwrite(zeros, 1, n, file) == n;
            left -= n;
        }
        if (!ok) {
            return false;
        }
        totals->before += ggml_nbytes(t);
        totals->after += size;
    }
    return true;
}

// Tensors and bytes by type, the most first.
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
            most = n[i] > 0 && (most < 0 || size[i] > size[most]) ? i : most;
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

static void print_totals(const struct totals *x, const struct gguf_context *meta, const struct target *to, const char *path) {
    const double mse = x->n_elements > 0 ? x->squares / (double) x->n_elements : 0;
    const char *name = gguf_types_name(&to->types);
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
        fputs("; nothing is written\n", file);
    } else {
        fprintf(file, ", mean squared error %.4g\n", mse);
    }
    if (to->is_dry || to->types.mix != NULL || to->types.n_rules > 0) {
        print_types(meta, file);
    }
}

// What would be made, by the headers alone.
static void sizes_add(
    const struct berth_gguf_map *map, const struct gguf_context *meta, const struct target *to, struct totals *x) {
    struct ggml_context *tensors = berth_gguf_map_tensors(map);
    int64_t i = 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(tensors); t != NULL; t = ggml_get_next_tensor(tensors, t)) {
        x->before += ggml_nbytes(t);
        x->after += gguf_get_tensor_size(meta, i++);
        x->n_converted += type_of(t, to) != t->type;
    }
}

static int quantize(const char *in, const char *path, struct target *to) {
    int code;
    struct berth_gguf_map *map = cli_gguf_open(in, !to->is_dry, &code);
    if (map != NULL) {
        gguf_types_look(&to->types, berth_gguf_map_meta(map), to->imatrix != NULL);
    }
    struct gguf_context *meta = map != NULL && imatrix_check(map, to->imatrix) ? meta_make(map, to) : NULL;
    FILE *file = meta != NULL && !to->is_dry ? cli_open(path) : NULL;
    struct totals totals = {0};
    if (meta != NULL && to->is_dry) {
        sizes_add(map, meta, to, &totals);
        print_totals(&totals, meta, to, in);
        code = CLI_OK;
    } else if (file == NULL) {
        code = CLI_FAILURE;
    } else {
        const bool ok = write_all(map, meta, to, file, &totals);
        cli_progress_end();
        code = cli_close(file, path, ok);
        if (code == CLI_OK) {
            print_totals(&totals, meta, to, path);
        }
    }
    gguf_free(meta);
    berth_gguf_map_close(map);
    return code;
}

// Can all that is asked for be made? After a message.
static bool can_make(const struct target *to, bool has_imatrix) {
    if (gguf_types_want_imatrix(&to->types) && !has_imatrix) {
        cli_fail(CLI_FAILURE,
            "%s cannot be made without an importance matrix: make one with berth imatrix and give it by --imatrix",
            gguf_types_name(&to->types));
        return false;
    }
    bool ok = cli_gguf_can_make(to->types.type, has_imatrix);
    for (int i = 0; ok && i < to->types.n_rules; i++) {
        ok = cli_gguf_can_make(to->types.rules[i].type, has_imatrix);
    }
    return ok || cli_fail(CLI_FAILURE, "%s", berth_last_error()) == CLI_OK;
}

int cli_gguf_quantize(int argc, char **argv) {
    static struct target to; // its rules are large
    to = (struct target){.n_threads = (int) model_n_cores()};
    int code = cli_options_parse(&cli_gguf_quantize_help, argc, argv, &to);
    if (code >= 0) {
        return code;
    }
    const bool has_out = to.out == NULL && !to.is_dry; // it is an operand
    const int n_wanted = has_out ? 3 : 2;
    if (argc - optind != n_wanted && !(to.is_dry && argc - optind == 3)) {
        return cli_usage(
            "gguf quantize", "%s are wanted, %d are given", has_out ? "IN, OUT and TYPE" : "IN and TYPE", argc - optind);
    }
    const char *in = argv[optind], *path = to.out != NULL ? to.out : argv[optind + 1], *name = argv[argc - 1];
    if (!gguf_types_parse(name, to.is_pure, &to.types)) {
        return cli_usage("gguf quantize", "'%s' is no type and no mix", name);
    }
    if (!can_make(&to, to.imatrix_path != NULL) || (!to.is_dry && cli_output_check(path) != CLI_OK)) {
        return CLI_FAILURE;
    }
    struct imatrix *imatrix = to.imatrix_path != NULL ? imatrix_open(to.imatrix_path) : NULL;
    if (to.imatrix_path != NULL && imatrix == NULL) {
        return CLI_FAILURE;
    }
    to.imatrix = imatrix;
    code = quantize(in, path, &to);
    imatrix_free(imatrix);
    return code;
}
