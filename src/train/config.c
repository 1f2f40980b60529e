// SPDX-License-Identifier: MIT
// config.c: creates a model with random weights from a description (docs/user/training.md). Matrices are normally distributed with
// a standard deviation of 0.02. Norms are 1, biases 0. Each tensor depends only on the seed and its number.

#include "train/train.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVIATION 0.02

// ---- the description ----

struct config {
    struct gguf_context *meta;
    char arch[32];
    bool has_output; // the output has its own matrix
};

static char *text_trim(char *text) {
    text += strspn(text, " \t\r");
    for (size_t n = strlen(text); n > 0 && isspace((unsigned char) text[n - 1]); n--) {
        text[n - 1] = '\0';
    }
    return text;
}

static bool value_put(struct config *c, const char *name, const char *value, struct model_error *error) {
    char key[128], *end;
    snprintf(key, sizeof key, "%s.%s", c->arch, name);
    const unsigned long long integer = strtoull(value, &end, 10);
    if (*end == '\0' && end != value && integer <= UINT32_MAX && *value != '-') {
        gguf_set_val_u32(c->meta, key, (uint32_t) integer);
        return true;
    }
    const float real = strtof(value, &end);
    if (*end == '\0' && end != value && isfinite(real)) {
        gguf_set_val_f32(c->meta, key, real);
        return true;
    }
    return model_fail(error, "'%.64s' is not a number", value);
}

static bool line_read(struct config *c, char *line, int pass, struct model_error *error) {
    line[strcspn(line, "#")] = '\0';
    char *equals = strchr(line, '=');
    char *name = text_trim(line);
    if (*name == '\0') {
        return true;
    }
    if (equals == NULL) {
        return model_fail(error, "'%.64s' contains no '='", name);
    }
    *equals = '\0';
    name = text_trim(name);
    char *value = text_trim(equals + 1);
    if (strcmp(name, "architecture") == 0) {
        snprintf(c->arch, sizeof c->arch, "%s", value);
        gguf_set_val_str(c->meta, "general.architecture", c->arch);
    } else if (strcmp(name, "name") == 0) {
        gguf_set_val_str(c->meta, "general.name", value);
    } else if (strcmp(name, "tied") == 0) {
        c->has_output = strcmp(value, "false") == 0;
        return strcmp(value, "true") == 0 || c->has_output || model_fail(error, "tied must be true or false, not '%.64s'", value);
    } else if (pass == 1) { // the architecture is known in the second pass
        return value_put(c, name, value, error);
    }
    return true;
}

// Pass 0 reads the architecture. Pass 1 reads the numbers, because their keys contain the architecture.
static bool config_read(struct config *c, const char *text, int pass, struct model_error *error) {
    int number = 1;
    for (const char *p = text; *p != '\0'; number++) {
        const size_t n = strcspn(p, "\n");
        struct model_error why = {""};
        char line[512];
        snprintf(line, sizeof line, "%.*s", (int) (n < sizeof line ? n : sizeof line - 1), p);
        if (!line_read(c, line, pass, &why)) {
            return model_fail(error, "line %d: %s", number, why.text);
        }
        p += n + (p[n] == '\n');
    }
    return true;
}

// ---- keys ----

// Sets keys that the description need not set. The description may set other values later.
static void defaults_put(struct config *c) {
    static const struct {
        const char *name;
        float value;
    } rows[] = {{"attention.layer_norm_rms_epsilon", 1e-5f}, {"rope.freq_base", 10000}};
    char key[128];
    gguf_set_val_str(c->meta, "general.architecture", c->arch);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(key, sizeof key, "%s.%s", c->arch, rows[i].name);
        gguf_set_val_f32(c->meta, key, rows[i].value);
    }
    snprintf(key, sizeof key, "%s.context_length", c->arch);
    gguf_set_val_u32(c->meta, key, 512);
}

static void tokenizer_take(struct config *c, const struct gguf_context *from) {
    gguf_set_kv(c->meta, from);
    for (int64_t i = gguf_get_n_kv(c->meta) - 1; i >= 0; i--) {
        const char *key = gguf_get_key(c->meta, i);
        if (key != NULL && strncmp(key, "tokenizer.", 10) != 0) {
            char copy[256];
            snprintf(copy, sizeof copy, "%s", key);
            gguf_remove_key(c->meta, copy);
        }
    }
}

// ---- weights ----

struct making {
    struct gguf_context *meta;
    struct ggml_context *ctx; // names and shapes of the tensors
    uint64_t seed;
    float *values;
};

static bool tensor_add(const char *name, const int64_t ne[3], void *user) {
    struct making *m = user;
    struct ggml_tensor *t = ne[1] == 1 ? ggml_new_tensor_1d(m->ctx, GGML_TYPE_F32, ne[0])
                                       : ggml_new_tensor_3d(m->ctx, GGML_TYPE_F32, ne[0], ne[1], ne[2]);
    ggml_set_name(t, name);
    gguf_add_tensor(m->meta, t);
    return !berth_is_poison(t);
}

static bool tensor_count(const char *name, const int64_t ne[3], void *user) {
    (void) name, (void) ne;
    ++*(size_t *) user;
    return true;
}

// Normal distribution by Box and Muller.
static void normal_fill(float *values, int64_t n, uint64_t state) {
    for (int64_t i = 0; i < n; i += 2) {
        const double u = (double) ((train_random(&state) >> 11) + 1) * 0x1p-53,
                     v = (double) (train_random(&state) >> 11) * 0x1p-53;
        const double r = DEVIATION * sqrt(-2 * log(u)), a = 2 * 3.14159265358979323846 * v;
        values[i] = (float) (r * cos(a));
        if (i + 1 < n) {
            values[i + 1] = (float) (r * sin(a));
        }
    }
}

static const void *tensor_bytes(int64_t i, void *user, struct model_error *error) {
    struct making *m = user;
    const size_t n = gguf_get_tensor_size(m->meta, i) / sizeof(float);
    const char *name = gguf_get_tensor_name(m->meta, i);
    berth_free(m->values);
    m->values = berth_malloc(n * sizeof(float));
    if (m->values == NULL) {
        model_fail(error, "out of memory for %zu values of '%s'", n, name);
        return NULL;
    }
    if (gguf_get_tensor_ne(m->meta, i)[1] > 1) {
        normal_fill(m->values, (int64_t) n, m->seed ^ (uint64_t) (i + 1) * 0xD1342543DE82EF95u);
    }
    for (size_t k = 0; gguf_get_tensor_ne(m->meta, i)[1] == 1 && k < n; k++) {
        m->values[k] = strstr(name, "norm") != NULL ? 1 : 0;
    }
    return m->values;
}

static bool weights_write(struct config *c, const struct model_params *p, uint64_t seed, FILE *file, struct model_error *error) {
    struct making m = {.meta = c->meta, .seed = seed};
    size_t n = 1;
    (void) model_shapes(p, c->has_output, tensor_count, &n);
    m.ctx = ggml_init((struct ggml_init_params){.mem_size = n * ggml_tensor_overhead(), .no_alloc = true});
    berth_clear_error();
    const bool is_listed = m.ctx != NULL && model_shapes(p, c->has_output, tensor_add, &m) && *berth_last_error() == '\0';
    const bool ok = (is_listed || model_fail(error, "cannot create %zu tensors: %s", n, berth_last_error())) &&
                    model_write(file, c->meta, tensor_bytes, &m, error);
    berth_free(m.values);
    ggml_free(m.ctx);
    return ok;
}

bool train_new(const char *text, const struct gguf_context *tokenizer, uint64_t seed, FILE *file, struct model_error *error) {
    struct config c = {.arch = "llama", .meta = gguf_init_empty()};
    struct model_params p;
    const int64_t id = gguf_find_key(tokenizer, "tokenizer.ggml.tokens");
    const bool is_list = id >= 0 && gguf_get_kv_type(tokenizer, id) == GGUF_TYPE_ARRAY;
    const int64_t n = is_list ? (int64_t) gguf_get_arr_n(tokenizer, id) : 0;
    if (c.meta == NULL) {
        return model_fail(error, "out of memory");
    }
    tokenizer_take(&c, tokenizer);
    bool ok = (n > 0 || model_fail(error, "the tokenizer model has no tokenizer to copy")) && config_read(&c, text, 0, error);
    if (ok) {
        defaults_put(&c);
        ok = config_read(&c, text, 1, error) && model_params_read(c.meta, &p, error);
    }
    if (ok) {
        p.n_vocab = n;
        ok = weights_write(&c, &p, seed, file, error);
    }
    gguf_free(c.meta);
    return ok;
}
