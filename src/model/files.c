// SPDX-License-Identifier: MIT
// files.c: opens and writes model files. A model is one file or several files in the format of llama.cpp's gguf-split:
// NAME-00001-of-00003.gguf has the keys, and each file has some of the tensors.

#include "base/min.h"
#include "model/model.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAX_FILES 65535

static struct berth_gguf_map *file_open(const char *path, bool read, struct model_error *error) {
    struct berth_gguf_map *map = berth_gguf_map_open(path, &(struct berth_gguf_map_params){.read = read});
    if (map == NULL) {
        model_fail(error, "%s", berth_last_error());
    }
    return map;
}

static bool part_check(const struct berth_gguf_map *map, const char *path, int64_t no, int64_t n, struct model_error *error) {
    int64_t actual_no = -1, actual_n = -1;
    return keys_int(berth_gguf_map_meta(map), "split.no", 0, MAX_FILES, &actual_no, error) &&
           keys_int(berth_gguf_map_meta(map), "split.count", 0, MAX_FILES, &actual_n, error) &&
           ((actual_no == no && actual_n == n) ||
               model_fail(error,
                   "%s: this file is part %" PRId64 " of %" PRId64 ", but part %" PRId64 " of %" PRId64 " was expected", path,
                   actual_no + 1, actual_n, no + 1, n));
}

// The files are in the folder of the first file, `path`.
static bool others_open(struct model *m, const char *path, bool read, int64_t n, struct model_error *error) {
    char end[32], other[4096];
    snprintf(end, sizeof end, "-00001-of-%05" PRId64 ".gguf", n);
    const size_t size = strlen(path), tail = strlen(end);
    if (size < tail || strcmp(path + size - tail, end) != 0) {
        return model_fail(error, "%s: the model has %" PRId64 " files; give the first one, whose name ends in %s", path, n, end);
    }
    for (int64_t i = 1; i < n; i++) {
        const int length =
            snprintf(other, sizeof other, "%.*s-%05" PRId64 "-of-%05" PRId64 ".gguf", (int) (size - tail), path, i + 1, n);
        if (length < 0 || (size_t) length >= sizeof other) {
            return model_fail(error, "%s: the file name is too long", path);
        }
        m->files[i] = file_open(other, read, error);
        if (m->files[i] == NULL || !part_check(m->files[i], other, i, n, error)) {
            return false;
        }
    }
    return true;
}

bool model_files_check(const struct model *m, const char *path, struct model_error *error) {
    const char *type = NULL;
    return keys_text(berth_gguf_map_meta(m->file), "general.type", &type, error) &&
           (type == NULL || strcmp(type, "adapter") != 0 ||
               model_fail(
                   error, "%s is an adapter, not a model; run its base model with 'berth run MODEL --lora %s'", path, path));
}

bool model_files_open(struct model *m, const char *path, bool read, struct model_error *error) {
    int64_t n = 1;
    m->file = file_open(path, read, error);
    if (m->file == NULL || !keys_int(berth_gguf_map_meta(m->file), "split.count", 0, MAX_FILES, &n, error)) {
        return false;
    }
    n = max_i64(n, 1);
    m->files = berth_calloc((size_t) n, sizeof *m->files);
    if (m->files == NULL) {
        return model_fail(error, "out of memory for %" PRId64 " files", n);
    }
    m->files[0] = m->file;
    m->n_files = n;
    return n == 1 || (others_open(m, path, read, n, error) && part_check(m->file, path, 0, n, error));
}

void model_files_close(struct model *m) {
    for (int64_t i = 1; i < m->n_files; i++) {
        berth_gguf_map_close(m->files[i]);
    }
    berth_gguf_map_close(m->file);
    berth_free(m->files);
}

// ---- writing ----

struct gguf_context *model_header_new(const struct gguf_context *keys) {
    struct gguf_context *g = gguf_init_empty();
    berth_clear_error();
    if (keys != NULL) {
        gguf_set_kv(g, keys);
    }
    return g;
}

struct gguf_context *model_header_check(struct gguf_context *header, struct model_error *error) {
    if (header != NULL && *berth_last_error() == '\0') {
        return header;
    }
    model_fail(error, "%s", *berth_last_error() != '\0' ? berth_last_error() : "out of memory for the header");
    gguf_free(header);
    return NULL;
}

bool model_write(FILE *file, const struct gguf_context *meta, model_bytes_t bytes, void *user, struct model_error *error) {
    const char zeros[64] = {0};
    if (!gguf_write_to_file_ptr(meta, file, true)) {
        return model_fail(error, "%s", berth_last_error());
    }
    for (int64_t i = 0; i < gguf_get_n_tensors(meta); i++) {
        const size_t size = gguf_get_tensor_size(meta, i);
        const void *data = bytes(i, user, error);
        if (data == NULL) {
            return model_fail(error, "cannot write tensor '%s'", gguf_get_tensor_name(meta, i));
        }
        bool ok = fwrite(data, 1, size, file) == size;
        for (size_t left = -size & (gguf_get_alignment(meta) - 1); ok && left > 0;) {
            const size_t n = min_size(left, sizeof zeros);
            ok = fwrite(zeros, 1, n, file) == n;
            left -= n;
        }
        if (!ok) {
            return model_fail(error, "writing failed: %s", strerror(errno));
        }
    }
    return true;
}

// ---- type conversion ----

bool type_is_real(enum ggml_type type) {
    const struct ggml_type_traits *traits = ggml_get_type_traits(type);
    return type == GGML_TYPE_F32 || (traits != NULL && traits->to_float != NULL);
}

bool rows_widen(enum ggml_type type, const void *from, float *to, int64_t n, struct model_error *error) {
    if (type == GGML_TYPE_F32) {
        memcpy(to, from, (size_t) n * sizeof *to);
        return true;
    }
    if (!type_is_real(type)) {
        return model_fail(error, "values of type %s cannot be converted to f32", ggml_type_name(type));
    }
    ggml_get_type_traits(type)->to_float(from, to, n);
    return true;
}

bool rows_narrow(enum ggml_type type, const float *from, void *to, int64_t n_rows, int64_t n_per_row, struct model_error *error) {
    berth_clear_error();
    return ggml_quantize_chunk(type, from, to, 0, n_rows, n_per_row, NULL) > 0 ||
           model_fail(error, "cannot convert to %s: %s", ggml_type_name(type), berth_last_error());
}
