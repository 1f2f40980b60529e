// SPDX-License-Identifier: MIT
// make_model.c: writes a GGUF model with random weights, which libllama can load and run. Activations stay near 1 through any
// number of layers. Tensors are written one by one, so that a model may be larger than memory. Only the first rows of a large
// tensor are random; they repeat, because quantising a billion numbers would take minutes.
//
//     make_model ARCH SIZE TYPE FILE [SEED [KEY=VALUE...]]     SIZE tiny, deep, small, 1b or 8b; TYPE f32, f16, q8_0, q4_K, ...
//     make_model list                                          the architectures
//
// KEY is the part of a key after "ARCH.". The value 3 is stored as an integer, 3.0 as a float, anything else as a text. KEY may
// also be a dimension: N, B, W or X of model_archs.h. +NAME:FILL:SHAPE adds a tensor to each layer (model_archs.h describes
// SHAPE; FILL is a letter of row_fill, such as m for a matrix). -NAME omits tensors whose names start with NAME.

#include "model_archs.h"
#include "model_tokens.h"

#include "ggml.h"
#include "gguf.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TENSORS_MAX = 4096, N_DRAWN = 1 << 19 };

struct size {
    const char *name;
    int32_t n_embd, n_ff, n_vocab, n_ctx, n_layer, n_head, n_head_kv, head, n_expert, n_expert_used, expert_ff, window;
};

static const struct size sizes[] = {
    {"tiny", 256, 512, 512, 1024, 2, 4, 2, 64, 8, 2, 256, 64},
    {"deep", 128, 192, 512, 1024, 8, 4, 2, 32, 8, 2, 96, 32},
    {"small", 768, 2048, 8192, 2048, 8, 12, 4, 64, 8, 2, 512, 512},
    {"1b", 2048, 8192, 32000, 4096, 16, 32, 8, 64, 16, 4, 1024, 1024},
    {"8b", 4096, 14336, 32000, 8192, 32, 32, 8, 128, 8, 2, 14336, 4096},
};

struct maker {
    const struct arch *arch;
    struct size chosen;      // a row of sizes[], changed by the command line
    const struct size *size; // &chosen; NULL: not set
    enum ggml_type type;
    struct ggml_context *ctx;
    struct gguf_context *gguf;
    char fill[N_TENSORS_MAX]; // [n_tensors] letter of row_fill for each tensor
    int n_tensors;
    char **words; // arguments of the command line: KEY=VALUE, +NAME, -NAME
    int n_words;
    uint64_t random;
};

static bool error_print(const char *what, const char *which) {
    fprintf(stderr, "make_model: %s%s%s\n", what, which != NULL ? ": " : "", which != NULL ? which : "");
    return false;
}

// Returns whether `list`, words separated by blanks, contains the word.
static bool word_in(const char *list, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += n) {
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) {
            return true;
        }
    }
    return false;
}

// ---- dimensions ----

static int64_t dimension(const struct maker *m, char letter) {
    const struct size *s = m->size;
    // In these architectures, each query head has key and value heads of its own.
    const bool is_ungrouped = word_in("gpt2 gptneox phi2 phi3 olmoe deepseek2 bert t5 mamba mamba2 rwkv7", m->arch->name);
    const int64_t n_kv = is_ungrouped ? s->n_head : s->n_head_kv;
    const bool is_mamba2 = strcmp(m->arch->name, "mamba2") == 0;
    switch (letter) {
        case 'E': return s->n_embd;
        case 'F': return s->n_ff;
        case 'V': return s->n_vocab;
        case 'L': return s->n_ctx;
        case 'N': return s->n_layer;
        case 'H': return s->head;
        case 'A': return s->n_head;
        case 'B': return n_kv;
        case 'Q': return (int64_t) s->n_head * s->head;
        case 'K': return n_kv * s->head;
        case 'X': return s->n_expert;
        case 'U': return s->n_expert_used;
        case 'Y': return s->expert_ff;
        case 'W': return s->window;
        case 'I': return 2 * (int64_t) s->n_embd;
        case 'S': return is_mamba2 ? 64 : 16;
        case 'R': return is_mamba2 ? 2 * s->n_embd / 64 : s->n_embd / 8;
        case 'C': return 4;
        case 'D': return 32;
        case 'Z': return 2 * (int64_t) s->head;
        case 'M': return s->head / 2;
        case 'O': return (int64_t) s->n_head * (s->head + s->head / 2);
        default: return 0;
    }
}

// Evaluates a sum such as "Q+2K" or "32". *end is the position after it.
static int64_t shape_sum(const struct maker *m, const char *text, const char **end) {
    int64_t sum = 0;
    for (;; text++) {
        int64_t factor = 0;
        bool has_factor = false;
        for (; isdigit((unsigned char) *text); text++) {
            factor = 10 * factor + (*text - '0');
            has_factor = true;
        }
        if (isupper((unsigned char) *text)) {
            sum += (has_factor ? factor : 1) * dimension(m, *text++);
        } else {
            sum += factor;
        }
        if (*text != '+') {
            break;
        }
    }
    *end = text;
    return sum;
}

// ---- contents of the file ----

static enum ggml_type tensor_type(const struct maker *m, char fill, int64_t n_row) {
    if (strchr("mqe", fill) == NULL) {
        return GGML_TYPE_F32;
    }
    return n_row % ggml_blck_size(m->type) == 0 ? m->type : GGML_TYPE_F16;
}

// Adds a tensor with the name prefix + name (n_name characters). shape: sums separated by commas, such as "E,Q+2K".
static bool tensor_add(struct maker *m, const char *prefix, const char *name, int n_name, char fill, const char *shape) {
    int64_t ne[4];
    int n_dims = 0;
    for (;;) {
        ne[n_dims++] = shape_sum(m, shape, &shape);
        if (*shape != ',' || n_dims == 4) {
            break;
        }
        shape++;
    }
    if (m->n_tensors == N_TENSORS_MAX) {
        return error_print("too many tensors", NULL);
    }
    struct ggml_tensor *t = ggml_new_tensor(m->ctx, tensor_type(m, fill, ne[0]), n_dims, ne);
    if (t == NULL) {
        return error_print("out of memory", NULL);
    }
    ggml_format_name(t, "%s%.*s", prefix, n_name, name);
    gguf_add_tensor(m->gguf, t);
    m->fill[m->n_tensors++] = fill;
    return true;
}

static bool is_omitted(const struct maker *m, const char *name) {
    for (int i = 0; i < m->n_words; i++) {
        if (m->words[i][0] == '-' && strncmp(name, m->words[i] + 1, strlen(m->words[i]) - 1) == 0) {
            return true;
        }
    }
    return false;
}

static bool tensors_add(struct maker *m, const char *prefix, const char *list) {
    const bool is_first = strstr(prefix, ".0.") != NULL;
    bool ok = true;
    while (ok && list != NULL && *list != '\0') {
        const bool is_left_out = *list == '^' ? !is_first : *list == '>' && is_first;
        list += *list == '^' || *list == '>';
        const int n_name = (int) strcspn(list, " ");
        ok = is_left_out || is_omitted(m, list) || tensor_add(m, prefix, list, n_name, list[n_name + 1], list + n_name + 3);
        list += strcspn(list, ";");
        list += strspn(list, "; ");
    }
    return ok;
}

static bool layers_add(struct maker *m, const char *prefix, const char *list) {
    bool ok = true;
    for (int i = 0; ok && list != NULL && i < m->size->n_layer; i++) {
        char text[32];
        snprintf(text, sizeof text, "%s.%d.", prefix, i);
        ok = tensors_add(m, text, list);
    }
    return ok;
}

static bool key_is_of(const struct key *key, const char *arch) {
    if (key->archs == NULL) {
        return true;
    }
    const bool excludes = key->archs[0] == '-';
    return word_in(key->archs + excludes, arch) != excludes;
}

static void keys_write(struct maker *m) {
    gguf_set_val_str(m->gguf, "general.architecture", m->arch->name);
    gguf_set_val_str(m->gguf, "general.name", "random weights");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!key_is_of(&keys[i], m->arch->name)) {
            continue;
        }
        char name[128];
        const char *end;
        snprintf(name, sizeof name, "%s.%s", m->arch->name, keys[i].name);
        switch (keys[i].type) {
            case 'u': gguf_set_val_u32(m->gguf, name, (uint32_t) shape_sum(m, keys[i].value, &end)); break;
            case 'f': gguf_set_val_f32(m->gguf, name, strtof(keys[i].value, NULL)); break;
            default: gguf_set_val_bool(m->gguf, name, keys[i].value[0] == '1'); break;
        }
    }
}

// Called twice: for dimensions, before any tensor is created; then (are_keys) for keys, which replace those of the architecture.
static bool words_apply(struct maker *m, bool are_keys) {
    char **words = m->words;
    for (int i = 0; i < m->n_words; i++) {
        const char *value = strchr(words[i], '=');
        char *end = NULL;
        if (words[i][0] == '+' || words[i][0] == '-') {
            continue;
        }
        if (value++ == NULL) {
            return error_print("expected KEY=VALUE", words[i]);
        }
        const bool is_dimension = value == words[i] + 2 && strchr("NBWX", words[i][0]) != NULL;
        if (is_dimension && !are_keys) {
            int32_t *to = words[i][0] == 'N'   ? &m->chosen.n_layer
                          : words[i][0] == 'B' ? &m->chosen.n_head_kv
                          : words[i][0] == 'X' ? &m->chosen.n_expert
                                               : &m->chosen.window;
            *to = (int32_t) strtol(value, NULL, 10);
        } else if (!is_dimension && are_keys) {
            char name[128];
            snprintf(name, sizeof name, "%s.%.*s", m->arch->name, (int) (value - words[i] - 1), words[i]);
            const long integer = strtol(value, &end, 10);
            const float real = strtof(value, NULL);
            if (*end == '\0') {
                gguf_set_val_u32(m->gguf, name, (uint32_t) integer);
            } else if (*end == '.') {
                gguf_set_val_f32(m->gguf, name, real);
            } else {
                gguf_set_val_str(m->gguf, name, value);
            }
        }
    }
    return true;
}

static bool extras_add(struct maker *m) {
    bool ok = true;
    for (int i = 0; ok && i < m->n_words; i++) {
        if (m->words[i][0] == '+') {
            for (char *at = m->words[i]; (at = strchr(at, ':')) != NULL;) {
                *at = ' ';
            }
            ok = layers_add(m, "blk", m->words[i] + 1);
        }
    }
    return ok;
}

// ---- random numbers ----

// The sum of four 16-bit numbers is approximately normally distributed.
static float draw(struct maker *m, float *uniform) {
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    const uint64_t r = m->random;
    const float a = (float) (r & 0xFFFF), b = (float) (r >> 16 & 0xFFFF), c = (float) (r >> 32 & 0xFFFF), d = (float) (r >> 48);
    *uniform = a / 65536.0f;
    return ((a + b + c + d) / 65536.0f - 2.0f) * 1.7320508f; // mean 0, variance 1
}

static void row_fill(struct maker *m, char fill, float *row, int64_t n) {
    float scale = 1.0f;
    for (int64_t k = n; k > 1; k /= 4) { // about 1 / sqrt(n), without libm
        scale *= 0.5f;
    }
    for (int64_t i = 0; i < n; i++) {
        float u;
        const float x = draw(m, &u);
        switch (fill) {
            case 'm':
            case 'f': row[i] = scale * x; break;          // a matrix whose product keeps the magnitude of its input
            case 'q': row[i] = 0.125f * scale * x; break; // queries of attention without a scale
            case 'e': row[i] = x; break;                  // an embedding
            case 'n': row[i] = 0.8f + 0.4f * u; break;    // weights of a norm
            case 'b': row[i] = 0.1f * x; break;           // a bias
            case 'l': row[i] = u; break;                  // a factor that mixes two values
            case 't': row[i] = -4.0f + 3.0f * u; break;   // a time step or a decay, before its exponential
            default: row[i] = -0.5f - 4.0f * u; break;    // 'a': the decay of a state
        }
    }
}

static bool pad(FILE *file, size_t size) {
    static const char zeros[GGUF_DEFAULT_ALIGNMENT];
    const size_t n = GGML_PAD(size, GGUF_DEFAULT_ALIGNMENT) - size;
    return fwrite(zeros, 1, n, file) == n;
}

static bool tensor_write(struct maker *m, FILE *file, const struct ggml_tensor *t, char fill) {
    const int64_t n = t->ne[0], n_rows = ggml_nrows(t);
    const int64_t n_max_drawn = N_DRAWN / n > 16 ? N_DRAWN / n : 16, n_drawn = n_rows < n_max_drawn ? n_rows : n_max_drawn;
    const size_t row_size = ggml_row_size(t->type, n);
    float *rows = malloc((size_t) (n * n_drawn) * sizeof *rows);
    char *data = malloc(row_size * (size_t) n_drawn);
    bool ok = rows != NULL && data != NULL;
    for (int64_t i = 0; ok && i < n_drawn; i++) {
        row_fill(m, fill, rows + i * n, n);
    }
    if (ok) {
        ggml_quantize_chunk(t->type, rows, data, 0, n_drawn, n, NULL);
    }
    for (int64_t i = 0; ok && i < n_rows; i++) {
        ok = fwrite(data + row_size * (size_t) (i % n_drawn), 1, row_size, file) == row_size;
    }
    free(data);
    free(rows);
    return ok && pad(file, row_size * (size_t) n_rows);
}

// ---- the complete model ----

static bool model_write(struct maker *m, const char *path) {
    if (!gguf_write_to_file(m->gguf, path, true)) {
        return error_print("cannot write", path);
    }
    FILE *file = fopen(path, "ab");
    bool ok = file != NULL && fseek(file, 0, SEEK_END) == 0 && pad(file, (size_t) ftell(file));
    struct ggml_tensor *t = ggml_get_first_tensor(m->ctx);
    for (int i = 0; ok && i < m->n_tensors; i++, t = ggml_get_next_tensor(m->ctx, t)) {
        ok = tensor_write(m, file, t, m->fill[i]);
    }
    ok = file != NULL && fclose(file) == 0 && ok;
    return ok || error_print("cannot write", path);
}

static bool model_make(struct maker *m, const char *path) {
    m->ctx = ggml_init((struct ggml_init_params){(N_TENSORS_MAX + 1) * ggml_tensor_overhead(), NULL, true});
    m->gguf = gguf_init_empty();
    bool ok = m->ctx != NULL && m->gguf != NULL;
    if (ok) {
        keys_write(m);
        ok = words_apply(m, true) && tokens_write(m->gguf, m->arch->tokens, m->size->n_vocab) &&
             tensors_add(m, "", m->arch->model) && layers_add(m, m->arch->layer_2 != NULL ? "enc.blk" : "blk", m->arch->layer) &&
             layers_add(m, "dec.blk", m->arch->layer_2) && extras_add(m) && model_write(m, path);
    }
    gguf_free(m->gguf);
    ggml_free(m->ctx);
    return ok;
}

static bool find(struct maker *m, const char *arch, const char *size, const char *type) {
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        m->arch = strcmp(archs[i].name, arch) == 0 ? &archs[i] : m->arch;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (strcmp(sizes[i].name, size) == 0) {
            m->chosen = sizes[i];
            m->size = &m->chosen;
        }
    }
    m->type = GGML_TYPE_COUNT;
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        const char *name = ggml_type_name((enum ggml_type) i);
        m->type = name != NULL && strcmp(name, type) == 0 ? (enum ggml_type) i : m->type;
    }
    return (m->arch != NULL || error_print("unknown architecture", arch)) &&
           (m->size != NULL || error_print("unknown size", size)) &&
           (m->type != GGML_TYPE_COUNT || error_print("unknown type", type));
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
            puts(archs[i].name);
        }
        return 0;
    }
    static struct maker maker;
    if (argc < 5 || !find(&maker, argv[1], argv[2], argv[3])) {
        fprintf(stderr, "usage: make_model ARCH SIZE TYPE FILE [SEED [KEY=VALUE...]] | make_model list (see make_model.c)\n");
        return 2;
    }
    maker.random = 0x9E3779B97F4A7C15u ^ (argc > 5 ? strtoull(argv[5], NULL, 0) << 1 : 0);
    maker.words = argv + 6;
    maker.n_words = argc > 6 ? argc - 6 : 0;
    return words_apply(&maker, false) && model_make(&maker, argv[4]) ? 0 : 3;
}
