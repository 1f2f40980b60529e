// SPDX-License-Identifier: MIT
// imatrix.c: reads importance matrices, collects them while a model computes, and writes them. Files are untrusted: a count is
// used only if the file holds that many bytes.

#include "quantize/quantize.h"

#include "base/base.h"

#include "gguf.h"

#include <errno.h>
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
    struct entry *entries; // sorted by name
    size_t n, cap;
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct entry *) a)->name, ((const struct entry *) b)->name);
}

// NULL: out of memory.
static struct entry *entry_add(struct imatrix *m, const char *name, size_t name_size, size_t n) {
    if (!berth_grow((void **) &m->entries, &m->cap, m->n + 1, sizeof *m->entries)) {
        return NULL;
    }
    struct entry *e = &m->entries[m->n];
    *e = (struct entry){berth_malloc(name_size + 1), berth_malloc((n + 1) * sizeof *e->values), n};
    if (e->name == NULL || e->values == NULL) {
        berth_free(e->name);
        berth_free(e->values);
        return NULL;
    }
    memcpy(e->name, name, name_size);
    e->name[name_size] = '\0';
    m->n++;
    return e;
}

// Returns the mean square of a column; 1 if the column has no data or its mean is not valid.
static float mean_compute(float sum, float count) {
    const float mean = sum / count;
    return count > 0 && isfinite(mean) && mean >= 0 ? mean : 1;
}

// ---- GGUF ----

static const char *gguf_read(struct imatrix *m, const struct berth_gguf_map *map) {
    struct ggml_context *tensors = berth_gguf_map_tensors(map);
    // A hash table finds tensors by name. A search over all tensors would take quadratic time.
    const struct gguf_context *meta = berth_gguf_map_meta(map);
    for (struct ggml_tensor *t = ggml_get_first_tensor(tensors); t != NULL; t = ggml_get_next_tensor(tensors, t)) {
        const size_t length = strlen(t->name), size = length - strlen(SUMS);
        if (length < strlen(SUMS) || strcmp(t->name + size, SUMS) != 0) {
            continue;
        }
        char name[GGML_MAX_NAME + sizeof COUNTS];
        snprintf(name, sizeof name, "%.*s" COUNTS, (int) size, t->name);
        const int64_t id = gguf_find_tensor(meta, name);
        const int64_t n_mats = t->ne[1] * t->ne[2] * t->ne[3];
        if (t->type != GGML_TYPE_F32 || id < 0 || gguf_get_tensor_type(meta, id) != GGML_TYPE_F32 ||
            gguf_get_tensor_size(meta, id) != (size_t) n_mats * sizeof(float)) {
            return "a tensor '...in_sum2' has no matching '...counts'";
        }
        const float *counts = berth_gguf_map_data(map, id);
        struct entry *e = entry_add(m, t->name, size, (size_t) ggml_nelements(t));
        if (e == NULL) {
            return "out of memory";
        }
        for (int64_t i = 0; i < ggml_nelements(t); i++) {
            e->values[i] = mean_compute(((const float *) t->data)[i], counts[i / t->ne[0]]);
        }
    }
    return m->n > 0 ? NULL : "the file contains no importance matrix";
}

// ---- .dat, the older format ----

struct bytes {
    const unsigned char *p;
    size_t left;
};

static bool i32_read(struct bytes *b, int32_t *out) {
    if (b->left < sizeof *out) {
        return false;
    }
    memcpy(out, b->p, sizeof *out);
    b->p += sizeof *out;
    b->left -= sizeof *out;
    return true;
}

// Format: i32 number of entries. Per entry: i32 size of the name, the name, i32 number of calls, i32 number of values, the values
// as f32. Later bytes are ignored.
static const char *dat_read(struct imatrix *m, struct bytes b) {
    int32_t n, name_size, n_calls, n_values;
    if (!i32_read(&b, &n) || n <= 0) {
        return "the file contains no importance matrix";
    }
    for (int32_t i = 0; i < n; i++) {
        if (!i32_read(&b, &name_size) || name_size <= 0 || (size_t) name_size > b.left) {
            return "the file ends within a name";
        }
        const char *name = (const char *) b.p;
        b.p += name_size;
        b.left -= (size_t) name_size;
        if (!i32_read(&b, &n_calls) || !i32_read(&b, &n_values) || n_values <= 0 || (size_t) n_values > b.left / sizeof(float)) {
            return "the file ends within the values of a tensor";
        }
        struct entry *e = entry_add(m, name, (size_t) name_size, (size_t) n_values);
        if (e == NULL) {
            return "out of memory";
        }
        memcpy(e->values, b.p, (size_t) n_values * sizeof(float));
        b.p += (size_t) n_values * sizeof(float);
        b.left -= (size_t) n_values * sizeof(float);
        for (int32_t k = 0; k < n_values; k++) {
            e->values[k] = mean_compute(e->values[k], n_calls > 0 ? (float) n_calls : 1);
        }
    }
    return NULL;
}

static const char *dat_load(struct imatrix *m, FILE *file, uint64_t size) {
    const char *why = "the file cannot be read";
    unsigned char *text = size < SIZE_MAX ? berth_malloc((size_t) size + 1) : NULL;
    if (text == NULL) {
        return "out of memory";
    }
    if (fread(text, 1, (size_t) size, file) == (size_t) size) {
        why = dat_read(m, (struct bytes){text, (size_t) size});
    }
    berth_free(text);
    return why;
}

// ---- both formats ----

static const char *imatrix_read(struct imatrix *m, const char *path) {
    uint64_t size;
    const char *why;
    char magic[4];
    FILE *file = berth_file_open(path, &size, &why);
    if (file == NULL) {
        return why;
    }
    if (fread(magic, 1, sizeof magic, file) == sizeof magic && memcmp(magic, GGUF_MAGIC, sizeof magic) == 0) {
        struct berth_gguf_map *map = berth_gguf_map_open(path, NULL);
        why = map != NULL ? gguf_read(m, map) : berth_last_error();
        berth_gguf_map_close(map);
    } else {
        rewind(file);
        why = dat_load(m, file, size);
    }
    fclose(file);
    return why;
}

struct imatrix *imatrix_open(const char *path, struct model_error *error) {
    struct imatrix *m = berth_calloc(1, sizeof *m);
    const char *why = m != NULL ? imatrix_read(m, path) : "out of memory";
    if (why != NULL) {
        model_fail(error, "%s: %s", path, why);
        imatrix_free(m);
        return NULL;
    }
    qsort(m->entries, m->n, sizeof *m->entries, by_name);
    return m;
}

void imatrix_free(struct imatrix *m) {
    if (m == NULL) {
        return;
    }
    for (size_t i = 0; i < m->n; i++) {
        berth_free(m->entries[i].name);
        berth_free(m->entries[i].values);
    }
    berth_free(m->entries);
    berth_free(m);
}

const float *imatrix_find(const struct imatrix *m, const struct ggml_tensor *t, bool *has_wrong_size) {
    const struct entry key = {.name = (char *) (uintptr_t) t->name};
    const struct entry *e = m == NULL || m->n == 0 ? NULL : bsearch(&key, m->entries, m->n, sizeof key, by_name);
    const int64_t n_expected = t->ne[0] * t->ne[2] * t->ne[3];
    *has_wrong_size = e != NULL && e->n != (size_t) n_expected;
    return e == NULL || *has_wrong_size ? NULL : e->values;
}

// ---- collection ----

struct imatrix_sums {
    const struct ggml_tensor *weight; // the tensor in the graph
    double *sums;                     // [ne[0], matrices] sums of squares
    double *counts;                   // [matrices] number of rows; double, because a float cannot count beyond 2^24
};

static int by_weight(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t) ((const struct imatrix_sums *) a)->weight,
                    y = (uintptr_t) ((const struct imatrix_sums *) b)->weight;
    return x < y ? -1 : x > y;
}

static struct imatrix_sums *sums_find(const struct imatrix_collector *c, const struct ggml_tensor *weight) {
    const struct imatrix_sums key = {.weight = weight};
    return bsearch(&key, c->sums, c->n, sizeof key, by_weight);
}

bool imatrix_collector_init(struct imatrix_collector *c, const struct model *m, struct model_error *error) {
    *c = (struct imatrix_collector){.sums = berth_calloc(m->n_weights + 1, sizeof *c->sums)};
    for (size_t i = 0; c->sums != NULL && i < m->n_weights; i++) {
        const struct ggml_tensor *w = *m->weights[i].slot;
        if (w->ne[1] <= 1) {
            continue;
        }
        const size_t n_mats = (size_t) (w->ne[2] * w->ne[3]);
        struct imatrix_sums *s = &c->sums[c->n++];
        *s = (struct imatrix_sums){
            w, berth_calloc((size_t) w->ne[0] * n_mats, sizeof(double)), berth_calloc(n_mats, sizeof(double))};
        if (s->sums == NULL || s->counts == NULL) {
            imatrix_collector_fini(c);
        }
    }
    if (c->sums == NULL) {
        return model_fail(error, "out of memory for the sums of %zu weights", m->n_weights);
    }
    qsort(c->sums, c->n, sizeof *c->sums, by_weight);
    return true;
}

void imatrix_collector_fini(struct imatrix_collector *c) {
    for (size_t i = 0; i < c->n; i++) {
        berth_free(c->sums[i].sums);
        berth_free(c->sums[i].counts);
    }
    berth_free(c->sums);
    berth_free(c->rows);
    berth_free(c->ids);
    *c = (struct imatrix_collector){0};
}

static bool tensor_fetch(const struct ggml_tensor *t, void **to, size_t *cap) {
    const size_t size = ggml_nbytes(t);
    if (!berth_grow(to, cap, size, 1)) {
        return false;
    }
    ggml_backend_tensor_get(t, *to, 0, size);
    return true;
}

static void row_add(struct imatrix_sums *s, int64_t mat, const float *row) {
    const int64_t n = s->weight->ne[0];
    for (int64_t i = 0; i < n; i++) {
        s->sums[mat * n + i] += (double) row[i] * (double) row[i];
    }
    s->counts[mat]++;
}

// MUL_MAT: all rows belong to matrix 0. MUL_MAT_ID: a row belongs to the matrices of its token's experts.
static bool product_add(struct imatrix_collector *c, struct imatrix_sums *s, const struct ggml_tensor *t) {
    const struct ggml_tensor *x = t->src[1], *ids = t->src[2];
    const int64_t n_rows = x->ne[1] * x->ne[2] * x->ne[3];
    if (!tensor_fetch(x, (void **) &c->rows, &c->rows_cap) ||
        (t->op == GGML_OP_MUL_MAT_ID && !tensor_fetch(ids, (void **) &c->ids, &c->ids_cap))) {
        return false;
    }
    if (t->op == GGML_OP_MUL_MAT) {
        for (int64_t i = 0; i < n_rows; i++) {
            row_add(s, 0, c->rows + i * x->ne[0]);
        }
        return true;
    }
    for (int64_t token = 0; token < ids->ne[1]; token++) {
        for (int64_t k = 0; k < ids->ne[0]; k++) {
            const int32_t mat =
                *(const int32_t *) (const void *) ((const char *) c->ids + (size_t) token * ids->nb[1] + (size_t) k * ids->nb[0]);
            if (mat >= 0 && mat < s->weight->ne[2]) {
                row_add(s, mat, c->rows + (token * x->ne[1] + k % x->ne[1]) * x->ne[0]);
            }
        }
    }
    return true;
}

bool imatrix_collector_eval(struct ggml_tensor *t, bool ask, void *user) {
    struct imatrix_collector *c = user;
    const bool is_product = (t->op == GGML_OP_MUL_MAT || t->op == GGML_OP_MUL_MAT_ID) && t->src[1]->type == GGML_TYPE_F32 &&
                            ggml_is_contiguous(t->src[1]);
    struct imatrix_sums *s = is_product ? sums_find(c, t->src[0]) : NULL;
    if (ask) {
        return s != NULL;
    }
    if (!c->has_failed && s != NULL) {
        c->has_failed = !product_add(c, s, t);
    }
    return !c->has_failed && (c->is_stopped == NULL || !c->is_stopped(NULL));
}

// ---- writing ----

struct header {
    struct gguf_context *gguf;
    struct ggml_context *ctx;
};

// Adds a tensor NAME.END of [n0, matrices of the weight] to the header.
static bool tensor_put(struct header *h, const struct ggml_tensor *weight, const char *end, int64_t n0, const double *data) {
    const int64_t n1 = weight->ne[2] * weight->ne[3];
    struct ggml_tensor *t = ggml_new_tensor_2d(h->ctx, GGML_TYPE_F32, n0, n1);
    if (berth_is_poison(t)) {
        return false;
    }
    ggml_format_name(t, "%s%s", weight->name, end);
    for (int64_t i = 0; i < n0 * n1; i++) {
        ((float *) t->data)[i] = (float) data[i];
    }
    gguf_add_tensor(h->gguf, t);
    return true;
}

static bool sums_put(struct header *h, const struct imatrix_sums *s) {
    const int64_t n_mats = s->weight->ne[2] * s->weight->ne[3];
    bool is_used = false;
    for (int64_t k = 0; k < n_mats; k++) {
        is_used |= s->counts[k] > 0;
    }
    return !is_used ||
           (tensor_put(h, s->weight, SUMS, s->weight->ne[0], s->sums) && tensor_put(h, s->weight, COUNTS, 1, s->counts));
}

static bool header_fill(struct header *h, const struct imatrix_collector *c, const struct imatrix_source *source) {
    if (h->ctx == NULL || h->gguf == NULL) {
        return false;
    }
    gguf_set_val_str(h->gguf, "general.type", "imatrix");
    gguf_set_arr_str(h->gguf, "imatrix.datasets", (const char *[]){source->text}, 1);
    gguf_set_val_u32(h->gguf, "imatrix.chunk_count", (uint32_t) source->n_chunks);
    gguf_set_val_u32(h->gguf, "imatrix.chunk_size", (uint32_t) source->n_ctx);
    for (size_t i = 0; i < c->n; i++) {
        if (!sums_put(h, &c->sums[i])) {
            return false;
        }
    }
    return *berth_last_error() == '\0';
}

bool imatrix_collector_write(const struct imatrix_collector *c, const struct imatrix_source *source, FILE *file,
    int64_t *n_tensors, struct model_error *error) {
    size_t size = 4096;
    for (size_t i = 0; i < c->n; i++) {
        const struct ggml_tensor *w = c->sums[i].weight;
        size += 2 * ggml_tensor_overhead() + (size_t) ((w->ne[0] + 1) * w->ne[2] * w->ne[3]) * sizeof(float) + 256;
    }
    struct header h = {gguf_init_empty(), ggml_init((struct ggml_init_params){.mem_size = size})};
    berth_clear_error();
    const bool is_filled = header_fill(&h, c, source);
    const bool ok = is_filled && gguf_write_to_file_ptr(h.gguf, file, false);
    if (!is_filled) {
        model_fail(error, "%s", *berth_last_error() != '\0' ? berth_last_error() : "out of memory");
    } else if (!ok) {
        model_fail(error, "writing failed: %s", errno != 0 ? strerror(errno) : "unknown error");
    }
    *n_tensors = gguf_get_n_tensors(h.gguf) / 2;
    gguf_free(h.gguf);
    ggml_free(h.ctx);
    return ok;
}
