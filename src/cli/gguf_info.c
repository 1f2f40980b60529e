// SPDX-License-Identifier: MIT
// gguf_info.c: `berth gguf info FILE...`: prints the keys and tensors of a model file. Only the header is read, so the tensor data
// may be missing.

#include "base/json.h"
#include "base/min.h"
#include "cli/help.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

struct options {
    bool tensors, all, json;
};

static const struct cli_option options_of_gguf_info[] = {
    CLI_OPTION(0, "tensors", NULL, "list every tensor: name, type, shape, offset, bytes", CLI_TO(struct options, tensors)),
    CLI_OPTION('a', "all", NULL, "print complete strings and arrays", CLI_TO(struct options, all)),
    CLI_OPT_JSON(CLI_TO(struct options, json), "print one JSON object per file, with every key and tensor"),
    {0},
};

const struct cli_help cli_gguf_info_help = {
    .command = "gguf info",
    .what = "print the keys and tensors of a file",
    .operands = "FILE...",
    .takes = ".gguf",
    .n_operands = {1, INT_MAX, INT_MAX},
    .about = "Prints the keys of a GGUF file, and its tensors by type.",
    .options = options_of_gguf_info,
    .size = sizeof(struct options),
    .examples = {{"What is in it?", "gguf info model.gguf"}, {"Every tensor", "gguf info --tensors model.gguf"}},
};

static void print_real(double x, bool json) {
    if (json && !isfinite(x)) {
        fputs("null", stdout); // JSON has no NaN and no infinity
    } else {
        printf("%.9g", x);
    }
}

static void print_number(enum gguf_type type, const void *data, size_t i, bool json) {
    switch (type) {
        case GGUF_TYPE_UINT8: printf("%u", ((const uint8_t *) data)[i]); break;
        case GGUF_TYPE_INT8: printf("%d", ((const int8_t *) data)[i]); break;
        case GGUF_TYPE_UINT16: printf("%u", ((const uint16_t *) data)[i]); break;
        case GGUF_TYPE_INT16: printf("%d", ((const int16_t *) data)[i]); break;
        case GGUF_TYPE_UINT32: printf("%" PRIu32, ((const uint32_t *) data)[i]); break;
        case GGUF_TYPE_INT32: printf("%" PRId32, ((const int32_t *) data)[i]); break;
        case GGUF_TYPE_UINT64: printf("%" PRIu64, ((const uint64_t *) data)[i]); break;
        case GGUF_TYPE_INT64: printf("%" PRId64, ((const int64_t *) data)[i]); break;
        case GGUF_TYPE_FLOAT32: print_real((double) ((const float *) data)[i], json); break;
        case GGUF_TYPE_FLOAT64: print_real(((const double *) data)[i], json); break;
        case GGUF_TYPE_BOOL: fputs(((const int8_t *) data)[i] != 0 ? "true" : "false", stdout); break;
        default: break;
    }
}

// Prints at most n_most bytes of complete characters on one line.
static void print_text(const char *text, size_t n_most) {
    size_t n = strlen(text);
    if (n > n_most) {
        for (n = n_most; n > 0 && ((unsigned char) text[n] & 0xC0) == 0x80; n--) {
        }
    }
    berth_json_write_text(text, n, stdout);
    fputs(text[n] != '\0' ? "..." : "", stdout);
}

static void print_value(const struct gguf_context *g, int64_t i, const struct options *o) {
    const enum gguf_type kind = gguf_get_kv_type(g, i);
    const bool is_array = kind == GGUF_TYPE_ARRAY;
    const enum gguf_type type = is_array ? gguf_get_arr_type(g, i) : kind;
    const size_t n = gguf_get_arr_n(g, i);
    const bool whole = o->all || o->json;
    const size_t n_shown = whole ? n : min_size(n, 6);
    size_t n_most = is_array ? 20 : 80; // bytes of a string
    if (whole) {
        n_most = SIZE_MAX;
    }
    fputs(is_array ? "[" : "", stdout);
    for (size_t k = 0; k < n_shown; k++) {
        fputs(k > 0 ? ", " : "", stdout);
        if (type == GGUF_TYPE_STRING) {
            print_text(gguf_get_arr_str(g, i, k), n_most);
        } else {
            print_number(type, gguf_get_arr_data(g, i), k, o->json);
        }
    }
    fputs(n_shown < n ? ", ..." : "", stdout);
    fputs(is_array ? "]" : "", stdout);
}

static void print_shape(const int64_t *ne, const char *between) {
    int n_dims = GGML_MAX_DIMS;
    while (n_dims > 1 && ne[n_dims - 1] == 1) {
        n_dims--;
    }
    for (int i = 0; i < n_dims; i++) {
        fputs(i == 0 ? "" : between, stdout);
        printf("%" PRId64, ne[i]);
    }
}

static void print_json(const char *path, const struct gguf_context *g, const struct options *o) {
    struct berth_json_writer w = {.file = stdout};
    berth_json_begin(&w, NULL, '{');
    berth_json_printf(&w, "'file': %s, 'version': %u, 'alignment': %zu, 'data_offset': %zu", path, gguf_get_version(g),
        gguf_get_alignment(g), gguf_get_data_offset(g));
    berth_json_begin(&w, "keys", '{');
    for (int64_t i = 0; i < gguf_get_n_kv(g); i++) {
        berth_json_put_key(&w, gguf_get_key(g, i));
        print_value(g, i, o);
    }
    berth_json_end(&w);
    berth_json_begin(&w, "tensors", '[');
    for (int64_t i = 0; i < gguf_get_n_tensors(g); i++) {
        berth_json_begin(&w, NULL, '{');
        berth_json_printf(&w, "'name': %s, 'type': %s", gguf_get_tensor_name(g, i), ggml_type_name(gguf_get_tensor_type(g, i)));
        berth_json_begin(&w, "ne", '[');
        print_shape(gguf_get_tensor_ne(g, i), ", ");
        berth_json_end(&w);
        berth_json_printf(&w, "'offset': %zu, 'bytes': %zu", gguf_get_tensor_offset(g, i), gguf_get_tensor_size(g, i));
        berth_json_end(&w);
    }
    puts("]}");
}

static void print_types(const struct gguf_context *g) {
    char text[64];
    for (int type = 0; type < GGML_TYPE_COUNT; type++) {
        int64_t n = 0;
        size_t size = 0;
        for (int64_t i = 0; i < gguf_get_n_tensors(g); i++) {
            if ((int) gguf_get_tensor_type(g, i) == type) {
                n++;
                size += gguf_get_tensor_size(g, i);
            }
        }
        if (n > 0) {
            printf("  %-8s %6" PRId64 " tensors, %s\n", ggml_type_name((enum ggml_type) type), n, cli_bytes(size, text));
        }
    }
}

static void print_plain(const char *path, const struct gguf_context *g, const struct options *o) {
    const char *bold = cli_colour(stdout, CLI_BOLD), *reset = cli_colour(stdout, CLI_RESET);
    fputs(bold, stdout);
    cli_text(stdout, 0, path);
    printf("%s: GGUF version %u, %" PRId64 " keys, %" PRId64 " tensors, data at %zu aligned to %zu\n", reset, gguf_get_version(g),
        gguf_get_n_kv(g), gguf_get_n_tensors(g), gguf_get_data_offset(g), gguf_get_alignment(g));
    for (int64_t i = 0; i < gguf_get_n_kv(g); i++) {
        const bool is_array = gguf_get_kv_type(g, i) == GGUF_TYPE_ARRAY;
        char type[32];
        snprintf(type, sizeof type, is_array ? "%s[%zu]" : "%s",
            gguf_type_name(is_array ? gguf_get_arr_type(g, i) : gguf_get_kv_type(g, i)), gguf_get_arr_n(g, i));
        fputs("  ", stdout);
        cli_text(stdout, 44, gguf_get_key(g, i));
        printf(" %-12s ", type);
        print_value(g, i, o);
        putchar('\n');
    }
    print_types(g);
    for (int64_t i = 0; o->tensors && i < gguf_get_n_tensors(g); i++) {
        fputs("  ", stdout);
        cli_text(stdout, 44, gguf_get_tensor_name(g, i));
        printf(" %-8s at %-12zu %12zu bytes, ", ggml_type_name(gguf_get_tensor_type(g, i)), gguf_get_tensor_offset(g, i),
            gguf_get_tensor_size(g, i));
        print_shape(gguf_get_tensor_ne(g, i), " x ");
        putchar('\n');
    }
}

int cli_gguf_info(const struct cli_args *args) {
    const struct options *o = args->options;
    int code = CLI_OK;
    for (int i = 0; i < args->n; i++) {
        struct gguf_context *g = gguf_init_from_file(args->operands[i], (struct gguf_init_params){0});
        if (g == NULL) {
            code = cli_fail(CLI_FAILURE, "%s", berth_last_error());
        } else if (o->json) {
            print_json(args->operands[i], g, o);
        } else {
            print_plain(args->operands[i], g, o);
        }
        gguf_free(g);
    }
    return code;
}
