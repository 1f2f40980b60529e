// SPDX-License-Identifier: MIT
// write.c: a GGUF file tensor by tensor: the header first, then each tensor's bytes as they are made, so that no more than one of
// them is in memory twice.

#include "model/model.h"

#include <errno.h>
#include <string.h>

bool model_write(FILE *file, const struct gguf_context *meta, model_bytes_t bytes, void *user, struct model_error *error) {
    const char zeros[64] = {0};
    if (!gguf_write_to_file_ptr(meta, file, true)) {
        return model_fail(error, "%s", berth_last_error());
    }
    for (int64_t i = 0; i < gguf_get_n_tensors(meta); i++) {
        const size_t size = gguf_get_tensor_size(meta, i);
        const void *data = bytes(i, user, error);
        if (data == NULL) {
            return model_fail(error, "tensor '%s' cannot be written", gguf_get_tensor_name(meta, i));
        }
        bool ok = fwrite(data, 1, size, file) == size;
        for (size_t left = -size & (gguf_get_alignment(meta) - 1); ok && left > 0;) {
            const size_t n = left < sizeof zeros ? left : sizeof zeros;
            ok = fwrite(zeros, 1, n, file) == n;
            left -= n;
        }
        if (!ok) {
            return model_fail(error, "writing failed: %s", strerror(errno));
        }
    }
    return true;
}

// ---- rows in another type ----

bool rows_widen(enum ggml_type type, const void *from, float *to, int64_t n, struct model_error *error) {
    const struct ggml_type_traits *traits = ggml_get_type_traits(type);
    if (type == GGML_TYPE_F32) {
        memcpy(to, from, (size_t) n * sizeof *to);
        return true;
    }
    if (traits == NULL || traits->to_float == NULL) {
        return model_fail(error, "type %s holds no numbers that can be read", ggml_type_name(type));
    }
    traits->to_float(from, to, n);
    return true;
}

bool rows_narrow(enum ggml_type type, const float *from, void *to, int64_t n_rows, int64_t n_per_row, struct model_error *error) {
    berth_clear_error();
    return ggml_quantize_chunk(type, from, to, 0, n_rows, n_per_row, NULL) > 0 ||
           model_fail(error, "%s cannot be made: %s", ggml_type_name(type), berth_last_error());
}
