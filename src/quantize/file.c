// SPDX-License-Identifier: MIT
// file.c: writes a model file with its tensors in other types, tensor by tensor.

#include "quantize/quantize.h"

#include <inttypes.h>

// A tensor keeps its type if it does not hold numbers, or if the importance matrix that the new type requires lacks the tensor.
static enum ggml_type target_type(const struct quantize_job *job, const struct ggml_tensor *t) {
    const enum ggml_type type = recipe_type(job->recipe, t);
    bool has_wrong_size;
    if (!type_is_real(t->type) ||
        (ggml_quantize_requires_imatrix(type) && imatrix_find(job->imatrix, t, &has_wrong_size) == NULL)) {
        return t->type;
    }
    return type;
}

static struct ggml_tensor *tensor_first(const struct berth_gguf_map *map) {
    return ggml_get_first_tensor(berth_gguf_map_tensors(map));
}

static struct ggml_tensor *tensor_next(const struct berth_gguf_map *map, struct ggml_tensor *t) {
    return ggml_get_next_tensor(berth_gguf_map_tensors(map), t);
}

static bool imatrix_check(const struct quantize_job *job, struct model_error *error) {
    for (struct ggml_tensor *t = tensor_first(job->map); t != NULL; t = tensor_next(job->map, t)) {
        bool has_wrong_size;
        (void) imatrix_find(job->imatrix, t, &has_wrong_size);
        if (has_wrong_size) {
            return model_fail(
                error, "the importance matrix belongs to another model: tensor '%s' has rows of %" PRId64, t->name, t->ne[0]);
        }
    }
    return true;
}

struct gguf_context *quantize_header(const struct quantize_job *job, struct quantize_totals *totals, struct model_error *error) {
    const int file_type = recipe_file_type(job->recipe);
    *totals = (struct quantize_totals){0};
    if (!imatrix_check(job, error)) {
        return NULL;
    }
    struct gguf_context *out = model_header_new(berth_gguf_map_meta(job->map));
    gguf_set_val_u32(out, "general.quantization_version", 2);
    if (file_type >= 0) {
        gguf_set_val_u32(out, "general.file_type", (uint32_t) file_type);
    }
    for (struct ggml_tensor *t = tensor_first(job->map); t != NULL; t = tensor_next(job->map, t)) {
        const enum ggml_type type = target_type(job, t);
        gguf_add_tensor(out, t);
        if (type != t->type) {
            gguf_set_tensor_type(out, t->name, type);
            totals->n_converted++;
        }
        totals->before += ggml_nbytes(t);
    }
    out = model_header_check(out, error);
    for (int64_t i = 0; out != NULL && i < gguf_get_n_tensors(out); i++) {
        totals->after += gguf_get_tensor_size(out, i);
    }
    return out;
}

struct writing {
    const struct quantize_job *job;
    const struct gguf_context *header;
    struct quantize_totals *totals;
    struct ggml_tensor *t; // current tensor
    void *converted;       // bytes of the current tensor; NULL: not converted
    int64_t i;
    size_t done; // bytes of the input before the current tensor
};

static void progress_report(double part, void *user) {
    const struct writing *w = user;
    work_progress(&w->job->watch, "quantising", w->done + (size_t) (part * (double) ggml_nbytes(w->t)),
        berth_gguf_map_size(w->job->map), "tensor %" PRId64 " of %" PRId64, w->i + 1, gguf_get_n_tensors(w->header));
}

static bool tensor_convert(struct writing *w, enum ggml_type type, struct model_error *error) {
    const size_t size = gguf_get_tensor_size(w->header, w->i);
    bool has_wrong_size;
    const struct quantize_rows rows = {.tensor = w->t,
        .type = type,
        .weights = imatrix_find(w->job->imatrix, w->t, &has_wrong_size),
        .n_threads = w->job->n_threads,
        .progress = progress_report,
        .user = w};
    w->converted = berth_malloc(size + 1);
    w->totals->n_elements += ggml_nelements(w->t);
    if (w->converted == NULL || !quantize_rows_run(&rows, w->converted, &w->totals->squares)) {
        return model_fail(error, "cannot convert tensor '%s' to %s (%zu bytes)", w->t->name, ggml_type_name(type), size);
    }
    return true;
}

static const void *tensor_bytes(int64_t i, void *user, struct model_error *error) {
    struct writing *w = user;
    if (i > 0) {
        w->done += ggml_nbytes(w->t);
        w->t = tensor_next(w->job->map, w->t);
    }
    berth_free(w->converted);
    w->converted = NULL;
    w->i = i;
    progress_report(0, w);
    const enum ggml_type type = gguf_get_tensor_type(w->header, i);
    if (type == w->t->type) {
        return w->t->data;
    }
    return tensor_convert(w, type, error) ? w->converted : NULL;
}

bool quantize_write(const struct quantize_job *job, const struct gguf_context *header, FILE *file, struct quantize_totals *totals,
    struct model_error *error) {
    struct writing w = {.job = job, .header = header, .totals = totals, .t = tensor_first(job->map)};
    const bool ok = model_write(file, header, tensor_bytes, &w, error);
    berth_free(w.converted);
    return ok;
}
