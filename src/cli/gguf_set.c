// SPDX-License-Identifier: MIT
// gguf_set.c: `berth gguf set FILE KEY=VALUE... -o OUT`: the same model with other keys. A key keeps its type; a new one gets
// that of its value: true or false, a whole number, a real one, else a text.

#include "cli/gguf.h"
#include "cli/help.h"
#include "cli/models.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

// A whole number of the key's type; false: it is none, or too large.
static bool whole_set(struct gguf_context *g, const char *key, enum gguf_type type, const char *text) {
    char *end;
    errno = 0;
    const long long x = strtoll(text, &end, 10);
    const bool is_int = *text != '\0' && *end == '\0' && errno == 0;
    errno = 0;
    const unsigned long long u = strtoull(text, &end, 10);
    const bool is_u64 = *text != '\0' && *text != '-' && *end == '\0' && errno == 0;
    switch (type) {
        case GGUF_TYPE_UINT8: return is_int && x >= 0 && x <= UINT8_MAX && (gguf_set_val_u8(g, key, (uint8_t) x), true);
        case GGUF_TYPE_INT8: return is_int && x >= INT8_MIN && x <= INT8_MAX && (gguf_set_val_i8(g, key, (int8_t) x), true);
        case GGUF_TYPE_UINT16: return is_int && x >= 0 && x <= UINT16_MAX && (gguf_set_val_u16(g, key, (uint16_t) x), true);
        case GGUF_TYPE_INT16: return is_int && x >= INT16_MIN && x <= INT16_MAX && (gguf_set_val_i16(g, key, (int16_t) x), true);
        case GGUF_TYPE_UINT32: return is_int && x >= 0 && x <= UINT32_MAX && (gguf_set_val_u32(g, key, (uint32_t) x), true);
        case GGUF_TYPE_INT32: return is_int && x >= INT32_MIN && x <= INT32_MAX && (gguf_set_val_i32(g, key, (int32_t) x), true);
        case GGUF_TYPE_UINT64: return is_u64 && (gguf_set_val_u64(g, key, u), true);
        case GGUF_TYPE_INT64: return is_int && (gguf_set_val_i64(g, key, x), true);
        default: return false;
    }
}

static bool real_set(struct gguf_context *g, const char *key, enum gguf_type type, const char *text) {
    char *end;
    const double x = strtod(text, &end);
    if (*text == '\0' || *end != '\0' || !isfinite(x)) {
        return false;
    }
    if (type == GGUF_TYPE_FLOAT32) {
        gguf_set_val_f32(g, key, (float) x);
    } else {
        gguf_set_val_f64(g, key, x);
    }
    return true;
}

static bool value_set(struct gguf_context *g, const char *key, enum gguf_type type, const char *text) {
    const bool is_true = strcmp(text, "true") == 0;
    switch (type) {
        case GGUF_TYPE_ARRAY: return false;
        case GGUF_TYPE_STRING: gguf_set_val_str(g, key, text); return true;
        case GGUF_TYPE_BOOL: return (is_true || strcmp(text, "false") == 0) && (gguf_set_val_bool(g, key, is_true), true);
        case GGUF_TYPE_FLOAT32:
        case GGUF_TYPE_FLOAT64: return real_set(g, key, type, text);
        default: return whole_set(g, key, type, text);
    }
}

// One KEY=VALUE; false after a message.
static bool key_set(struct gguf_context *g, const char *word) {
    const char *equals = strchr(word, '=');
    char key[256];
    if (equals == NULL || equals == word || equals - word >= (int) sizeof key) {
        cli_usage("gguf set", "'%s' is no KEY=VALUE", word);
        return false;
    }
    snprintf(key, sizeof key, "%.*s", (int) (equals - word), word);
    const int64_t id = gguf_find_key(g, key);
    if (strcmp(key, GGUF_KEY_GENERAL_ALIGNMENT) == 0) {
        cli_usage("gguf set", "'%s' says where the tensors are and cannot be changed", key);
        return false;
    }
    if (id >= 0) {
        const enum gguf_type type = gguf_get_kv_type(g, id);
        if (!value_set(g, key, type, equals + 1)) {
            cli_usage("gguf set", "'%s': key '%s' is %s", word, key,
                type == GGUF_TYPE_ARRAY ? "a list, which cannot be set" : gguf_type_name(type));
            return false;
        }
        return true;
    }
    static const enum gguf_type tries[] = {
        GGUF_TYPE_BOOL, GGUF_TYPE_UINT32, GGUF_TYPE_INT32, GGUF_TYPE_FLOAT32, GGUF_TYPE_STRING};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        if (value_set(g, key, tries[i], equals + 1)) {
            break;
        }
    }
    return true;
}

static const void *bytes_of(int64_t i, void *user, struct model_error *error) {
    (void) error;
    return berth_gguf_map_data(user, i);
}

static int change(struct berth_gguf_map *map, const struct change *c, char **words, int n_words) {
    struct model_error error = {""};
    struct gguf_context *g = gguf_init_empty();
    struct ggml_context *ctx = berth_gguf_map_tensors(map);
    berth_clear_error();
    gguf_set_kv(g, berth_gguf_map_meta(map));
    for (int i = 0; i < n_words; i++) {
        if (!key_set(g, words[i])) {
            gguf_free(g);
            return CLI_USAGE;
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
    FILE *file = g != NULL && *berth_last_error() == '\0' ? cli_open(c->out) : NULL;
    int code = CLI_FAILURE;
    if (file != NULL && model_write(file, g, bytes_of, map, &error)) {
        code = cli_close(file, c->out, true);
    } else if (file != NULL) {
        cli_drop(file);
        cli_fail(code, "%s: %s", c->out, error.text);
    } else if (*berth_last_error() != '\0') {
        cli_fail(code, "%s", berth_last_error());
    }
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
    code = change(map, &c, argv + optind + 1, n);
    if (code == CLI_OK) {
        fprintf(cli_is_stdout(c.out) ? stderr : stdout, c.json ? "{\"set\": %d, \"removed\": %d}\n" : "%d set, %d removed\n", n,
            c.n_removed);
    }
    berth_gguf_map_close(map);
    return code;
}
