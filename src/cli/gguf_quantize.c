// SPDX-License-Identifier: MIT
// gguf_quantize.c: `berth gguf quantize IN OUT TYPE`: the same model with its matrices in another type. One tensor of the
// result at a time is in memory, whatever the model's size; all cores work on it.

#include "cli/gguf.h"
#include "cli/help.h"
#include "cli/imatrix.h"
#include "cli/models.h"
#include "cli/quantize_rows.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { IMATRIX = CLI_OWN };

static const struct cli_option options_of_gguf_quantize[] = {
    {.letter   = 'o',
        .name  = "out",
        .value = "OUT",
        .takes = ".gguf",
        .what  = "the file to write; IN and TYPE are the operands then"},
    {.id       = IMATRIX,
        .name  = "imatrix",
        .value = "FILE",
        .takes = ".gguf .dat",
        .what  = "weigh errors by an importance matrix: GGUF as llama-imatrix writes it, or its older .dat. Types that need one "
                 "leave matrices that it does not know as they are"},
    {.letter   = 't',
        .name  = "threads",
        .value = "N",
        .what  = "threads (default: the cores); the bytes are the same with any number"},
    CLI_OPT_JSON("print one JSON object: type, tensors, converted, bytes_before, bytes_after, mse"),
    {0},
};

const struct cli_help cli_gguf_quantize_help = {
    .command  = "gguf quantize",
    .what     = "the same model in another type",
    .operands = "IN OUT TYPE",
    .takes    = ".gguf|.gguf|@types",
    .about    = "Writes the model IN to OUT with its matrices as TYPE (q8_0, q4_k, ...). Vectors, and matrices whose rows are no "
                "whole number of TYPE's blocks, stay as they are. Prints the size and the mean squared error.",
    .options  = options_of_gguf_quantize,
    .examples = {{"A quarter of the size", "gguf quantize model.gguf small.gguf q4_k"},
        {"With an importance matrix", "gguf quantize --imatrix im.gguf model.gguf small.gguf iq2_xs"}},
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
    const size_t done     = way->done + (size_t) (part * (double) way->at_hand);
    char text[2][32];
    cli_progress("quantising", done, way->all, "tensor %" PRId64 " of %" PRId64 ", %s of %s", way->i_tensor + 1, way->n_tensors,
        cli_short_bytes(done, text[0]), cli_short_bytes(way->all, text[1]));
}

static bool type_parse(const char *text, enum ggml_type *type) {
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        if (ggml_blck_size((enum ggml_type) i) > 0 && strcasecmp(text, ggml_type_name((enum ggml_type) i)) == 0) {
            *type = (enum ggml_type) i;
            return true;
        }
    }
    return false;
}

bool cli_gguf_can_make(enum ggml_type type, bool has_imatrix) {
    const float zeros[256] = {0};
    char out[1024];
    return ggml_blck_size(type) > 0 && ggml_blck_size(type) <= 256 &&
           ggml_quantize_chunk(type, zeros, out, 0, 1, ggml_blck_size(type), has_imatrix ? zeros : NULL) > 0;
}

// What is to be made.
struct target {
    enum ggml_type type;
    const struct imatrix *imatrix; // NULL: none
    int n_threads;
};

// A matrix of real numbers whose rows are whole blocks, with an importance matrix if the type cannot be made without.
static bool is_converted(const struct ggml_tensor *t, const struct target *to) {
    bool is_wrong;
    return t->ne[1] > 1 && t->ne[0] % ggml_blck_size(to->type) == 0 && t->type != to->type &&
           (t->type == GGML_TYPE_F32 || ggml_get_type_traits(t->type)->to_float != NULL) &&
           (!ggml_quantize_requires_imatrix(to->type) || imatrix_find(to->imatrix, t, &is_wrong) != NULL);
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
    return cli_quantize_rows(t, to->type, weights, to->n_threads, out, &totals->squares, tell, way);
}

// The header with the new types; NULL after a message.
static struct gguf_context *meta_make(const struct berth_gguf_map *map, const struct target *to) {
    const enum ggml_type type     = to->type;
    const struct gguf_context *in = berth_gguf_map_meta(map);
    struct gguf_context *out      = gguf_init_empty();
    berth_clear_error();
    gguf_set_kv(out, in);
    gguf_set_val_u32(out, "general.quantization_version", 2);
    if (berth_type_file_type(type) >= 0) {
        gguf_set_val_u32(out, "general.file_type", (uint32_t) berth_type_file_type(type));
    }
    struct ggml_context *tensors = berth_gguf_map_tensors(map);
    for (struct ggml_tensor *t = ggml_get_first_tensor(tensors); t != NULL; t = ggml_get_next_tensor(tensors, t)) {
        gguf_add_tensor(out, t);
        if (is_converted(t, to)) {
            gguf_set_tensor_type(out, t->name, type);
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
    const char zeros[64]         = {0};
    struct ggml_context *tensors = berth_gguf_map_tensors(map);
    struct ggml_tensor *t        = ggml_get_first_tensor(tensors);
    struct way way               = {.n_tensors = gguf_get_n_tensors(meta), .all = berth_gguf_map_size(map)};
    if (!gguf_write_to_file_ptr(meta, file, true)) {
        return false;
    }
    for (int64_t i = 0; i < gguf_get_n_tensors(meta); i++, t = ggml_get_next_tensor(tensors, t)) {
        const size_t size = gguf_get_tensor_size(meta, i);
        void *copy        = NULL;
        bool ok           = true;
        way.i_tensor      = i;
        way.done          = totals->before;
        way.at_hand       = ggml_nbytes(t);
        tell(0, &way);
        if (is_converted(t, to)) {
            copy = malloc(size);
            ok   = copy != NULL && convert(t, to, copy, totals, &way);
        }
        ok = ok && fwrite(copy != NULL ? copy : t->data, 1, size, file) == size;
        free(copy);
        for (size_t left = -size & (gguf_get_alignment(meta) - 1); ok && left > 0;) {
            const size_t n = left < sizeof zeros ? left : sizeof zeros;
            ok             = fwrite(zeros, 1, n, file) == n;
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

static void print_totals(
    const struct totals *x, const struct gguf_context *meta, enum ggml_type type, const char *path, bool json) {
    const double mse = x->n_elements > 0 ? x->squares / (double) x->n_elements : 0;
    char text[2][64];
    FILE *file = cli_is_stdout(path) ? stderr : stdout;
    if (json) {
        fprintf(file,
            "{\"type\": \"%s\", \"tensors\": %" PRId64 ", \"converted\": %" PRId64
            ", \"bytes_before\": %zu, \"bytes_after\": %zu, \"mse\": %.6g}\n",
            ggml_type_name(type), gguf_get_n_tensors(meta), x->n_converted, x->before, x->after, mse);
        return;
    }
    cli_text(file, 0, path);
    fprintf(file, ": %" PRId64 " of %" PRId64 " tensors as %s, %s, before %s, mean squared error %.4g\n", x->n_converted,
        gguf_get_n_tensors(meta), ggml_type_name(type), cli_bytes(x->after, text[0]), cli_bytes(x->before, text[1]), mse);
}

static int quantize(const char *in, const char *path, const struct target *to, bool json) {
    int code;
    struct berth_gguf_map *map = cli_gguf_open(in, true, &code);
    struct gguf_context *meta  = map != NULL && imatrix_check(map, to->imatrix) ? meta_make(map, to) : NULL;
    FILE *file                 = meta != NULL ? cli_open(path) : NULL;
    struct totals totals       = {0};
    if (file == NULL) {
        code = CLI_FAILURE;
    } else {
        const bool ok = write_all(map, meta, to, file, &totals);
        cli_progress_end();
        code = cli_close(file, path, ok);
        if (code == CLI_OK) {
            print_totals(&totals, meta, to->type, path, json);
        }
    }
    gguf_free(meta);
    berth_gguf_map_close(map);
    return code;
}

int cli_gguf_quantize(int argc, char **argv) {
    struct cli_model_options options = {.n_threads = model_n_cores()};
    bool json                        = false;
    const char *imatrix_path = NULL, *out = NULL;
    for (int c, code; (c = cli_option_next(&cli_gguf_quantize_help, argc, argv)) != CLI_END;) {
        if (cli_model_option("gguf quantize", c, optarg, &options, &code)) {
            if (code != CLI_OK) {
                return code;
            }
            continue;
        }
        switch (c) {
            case IMATRIX: imatrix_path = optarg; break;
            case 'o': out = optarg; break;
            case CLI_JSON: json = true; break;
            default: return c == CLI_SHOWN ? CLI_OK : CLI_USAGE;
        }
    }
    enum ggml_type type;
    const int n_wanted = out != NULL ? 2 : 3;
    if (argc - optind != n_wanted) {
        return cli_usage(
            "gguf quantize", "%s are wanted, %d are given", out != NULL ? "IN and TYPE" : "IN, OUT and TYPE", argc - optind);
    }
    const char *in = argv[optind], *path = out != NULL ? out : argv[optind + 1], *name = argv[optind + n_wanted - 1];
    if (!type_parse(name, &type)) {
        return cli_usage("gguf quantize", "'%s' is no type", name);
    }
    if (!cli_gguf_can_make(type, imatrix_path != NULL)) {
        return cli_fail(CLI_FAILURE, "%s", berth_last_error());
    }
    if (cli_output_check(path, in) != CLI_OK || (imatrix_path != NULL && cli_output_check(path, imatrix_path) != CLI_OK)) {
        return CLI_FAILURE;
    }
    struct imatrix *imatrix = imatrix_path != NULL ? imatrix_open(imatrix_path) : NULL;
    if (imatrix_path != NULL && imatrix == NULL) {
        return CLI_FAILURE;
    }
    const int code = quantize(in, path, &(struct target){type, imatrix, (int) options.n_threads}, json);
    imatrix_free(imatrix);
    return code;
}
