// SPDX-License-Identifier: MIT
// imatrix.c: reads importance matrices. Both formats come from anywhere: no count is believed before the bytes for it are there.

#include "quantize/imatrix.h"

#include "base/base.h"
#include "cli/gguf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SUMS ".in_sum2"
#define COUNTS ".counts"

struct entry {
    char *name; // of the weight
    float *values;
    size_t n;
};

struct imatrix {
    struct entry *entries; // by name
    size_t n, cap;
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct entry *) a)->name, ((const struct entry *) b)->name);
}

// An entry with room for n values; NULL: out of memory.
static struct entry *entry_add(struct imatrix *m, const char *name, size_t name_size, size_t n) {
    if (m->n == m->cap) {
        const size_t cap = m->cap > 0 ? 2 * m->cap : 64;
        struct entry *entries = realloc(m->entries, cap * sizeof *entries);
        if (entries == NULL) {
            return NULL;
        }
        m->entries = entries;
        m->cap = cap;
    }
    struct entry *e = &m->entries[m->n];
    *e = (struct entry){malloc(name_size + 1), malloc((n + 1) * sizeof *e->values), n};
    if (e->name == NULL || e->values == NULL) {
        free(e->name);
        free(e->values);
        return NULL;
    }
    memcpy(e->name, name, name_size);
    e->name[name_size] = '\0';
    m->n++;
    return e;
}

// A column that nobody looked at is as important as any.
static float mean_of(float sum, float count) {
    const float mean = sum / count;
    return count > 0 && isfinite(mean) && mean >= 0 ? mean : 1;
}

// ---- GGUF ----

static const char *read_gguf(struct imatrix *m, const struct berth_gguf_map *map) {
    struct ggml_context *tensors = berth_gguf_map_tensors(map);
    const struct gguf_context *meta = berth_gguf_map_meta(map); // finds by name; a walk along all tensors each time would not end
    for (struct ggml_tensor *t = ggml_get_first_tensor(tensors); t != NULL; t = ggml_get_next_tensor(tensors, t)) {
        if (!cli_ends_with(t->name, SUMS)) {
            continue;
        }
        char name[GGML_MAX_NAME + sizeof COUNTS];
        const size_t size = strlen(t->name) - strlen(SUMS);
        snprintf(name, sizeof name, "%.*s" COUNTS, (int) size, t->name);
        const int64_t id = gguf_find_tensor(meta, name);
        const int64_t n_mats = t->ne[1] * t->ne[2] * t->ne[3];
        if (t->type != GGML_TYPE_F32 || id < 0 || gguf_get_tensor_type(meta, id) != GGML_TYPE_F32 ||
            gguf_get_tensor_size(meta, id) != (size_t) n_mats * sizeof(float)) {
            return "a sum has no count";
        }
        const float *counts = berth_gguf_map_data(map, id);
        struct entry *e = entry_add(m, t->name, size, (size_t) ggml_nelements(t));
        if (e == NULL) {
            return "out of memory";
        }
        for (int64_t i = 0; i < ggml_nelements(t); i++) {
            e->values[i] = mean_of(((const float *) t->data)[i], counts[i / t->ne[0]]);
        }
    }
    return m->n > 0 ? NULL : "it holds no importance matrix";
}

// ---- the older format ----

struct bytes {
    const unsigned char *p;
    size_t left;
};

static bool take_i32(struct bytes *b, int32_t *out) {
    if (b->left < sizeof *out) {
        return false;
    }
    memcpy(out, b->p, sizeof *out);
    b->p += sizeof *out;
    b->left -= sizeof *out;
    return true;
}

// i32 how many; of each: i32 and text of the name, i32 calls, i32 and f32 of the values. What follows is not needed.
static const char *read_dat(struct imatrix *m, struct bytes b) {
    int32_t n, name_size, n_calls, n_values;
    if (!take_i32(&b, &n) || n <= 0) {
        return "it holds no importance matrix";
    }
    for (int32_t i = 0; i < n; i++) {
        if (!take_i32(&b, &name_size) || name_size <= 0 || (size_t) name_size > b.left) {
            return "it ends within a name";
        }
        const char *name = (const char *) b.p;
        b.p += name_size;
        b.left -= (size_t) name_size;
        if (!take_i32(&b, &n_calls) || !take_i32(&b, &n_values) || n_values <= 0 || (size_t) n_values > b.left / sizeof(float)) {
            return "it ends within the values of a tensor";
        }
        struct entry *e = entry_add(m, name, (size_t) name_size, (size_t) n_values);
        if (e == NULL) {
            return "out of memory";
        }
        memcpy(e->values, b.p, (size_t) n_values * sizeof(float));
        b.p += (size_t) n_values * sizeof(float);
        b.left -= (size_t) n_values * sizeof(float);
        for (int32_t k = 0; k < n_values; k++) {
            e->values[k] = mean_of(e->values[k], n_calls > 0 ? (float) n_calls : 1);
        }
    }
    return NULL;
}

static const char *read_old(struct imatrix *m, const char *path) {
    uint64_t size;
    const char *why;
    FILE *file = berth_file_open(path, &size, &why);
    if (file == NULL) {
        return why;
    }
    unsigned char *text = size < SIZE_MAX ? malloc((size_t) size + 1) : NULL;
    why = text == NULL                                           ? "out of memory"
          : fread(text, 1, (size_t) size, file) != (size_t) size ? "it cannot be read"
                                                                 : read_dat(m, (struct bytes){text, (size_t) size});
    fclose(file);
    free(text);
    return why;
}

// ---- both ----

struct imatrix *imatrix_open(const char *path) {
    struct imatrix *m = calloc(1, sizeof *m);
    const char *why = "out of memory";
    if (m != NULL && cli_starts_with(path, CLI_GGUF)) {
        struct berth_gguf_map *map = berth_gguf_map_open(path, NULL);
        why = map != NULL ? read_gguf(m, map) : berth_last_error();
        berth_gguf_map_close(map);
    } else if (m != NULL) {
        why = read_old(m, path);
    }
    if (why != NULL) {
        cli_fail(CLI_FAILURE, "%s: %s", path, why);
        imatrix_free(m);
        return NULL;
    }
    qsort(m->entries, m->n, sizeof *m->entries, by_name);
    return m;
}

void imatrix_free(struct imatrix *m) {
    for (size_t i = 0; m != NULL && i < m->n; i++) {
        free(m->entries[i].name);
        free(m->entries[i].values);
    }
    if (m != NULL) {
        free(m->entries);
    }
    free(m);
}

const float *imatrix_find(const struct imatrix *m, const struct ggml_tensor *t, bool *is_wrong) {
    const struct entry key = {.name = (char *) (uintptr_t) t->name};
    const struct entry *e = m == NULL || m->n == 0 ? NULL : bsearch(&key, m->entries, m->n, sizeof key, by_name);
    const int64_t n_expected = t->ne[0] * t->ne[2] * t->ne[3];
    *is_wrong = e != NULL && e->n != (size_t) n_expected;
    return e == NULL || *is_wrong ? NULL : e->values;
}
