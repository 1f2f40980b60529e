// SPDX-License-Identifier: MIT
// compare.c: reports the differences between two model files: keys by name and value, tensors by name, shape, type and bytes.

#include "quantize/quantize.h"

#include <string.h>

static bool value_is_same(const struct gguf_context *a, int64_t i, const struct gguf_context *b, int64_t j) {
    static const size_t sizes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    enum gguf_type type = gguf_get_kv_type(a, i);
    if (type != gguf_get_kv_type(b, j)) {
        return false;
    }
    if (type == GGUF_TYPE_ARRAY) {
        type = gguf_get_arr_type(a, i);
        if (type != gguf_get_arr_type(b, j)) {
            return false;
        }
    }
    const size_t n = gguf_get_arr_n(a, i);
    if (n != gguf_get_arr_n(b, j)) {
        return false;
    }
    for (size_t k = 0; type == GGUF_TYPE_STRING && k < n; k++) {
        if (strcmp(gguf_get_arr_str(a, i, k), gguf_get_arr_str(b, j, k)) != 0) {
            return false;
        }
    }
    return type == GGUF_TYPE_STRING || n == 0 || memcmp(gguf_get_arr_data(a, i), gguf_get_arr_data(b, j), n * sizes[type]) == 0;
}

static void keys_compare(const struct gguf_context *a, const struct gguf_context *b, compare_report_t report, void *user) {
    for (int64_t i = 0; i < gguf_get_n_kv(a); i++) {
        const char *key = gguf_get_key(a, i);
        const int64_t j = gguf_find_key(b, key);
        if (j < 0) {
            report("key", key, "only in the first file", user);
        } else if (!value_is_same(a, i, b, j)) {
            report("key", key, "the values differ", user);
        }
    }
    for (int64_t j = 0; j < gguf_get_n_kv(b); j++) {
        if (gguf_find_key(a, gguf_get_key(b, j)) < 0) {
            report("key", gguf_get_key(b, j), "only in the second file", user);
        }
    }
}

void files_compare(const struct berth_gguf_map *map_a, const struct berth_gguf_map *map_b, compare_report_t report, void *user) {
    const struct gguf_context *a = berth_gguf_map_meta(map_a), *b = berth_gguf_map_meta(map_b);
    keys_compare(a, b, report, user);
    for (int64_t i = 0; i < gguf_get_n_tensors(a); i++) {
        const char *name = gguf_get_tensor_name(a, i);
        const int64_t j = gguf_find_tensor(b, name);
        if (j < 0) {
            report("tensor", name, "only in the first file", user);
        } else if (memcmp(gguf_get_tensor_ne(a, i), gguf_get_tensor_ne(b, j), GGML_MAX_DIMS * sizeof(int64_t)) != 0) {
            report("tensor", name, "the shapes differ", user);
        } else if (gguf_get_tensor_type(a, i) != gguf_get_tensor_type(b, j)) {
            char how[96];
            snprintf(how, sizeof how, "type %s in the first file, %s in the second", ggml_type_name(gguf_get_tensor_type(a, i)),
                ggml_type_name(gguf_get_tensor_type(b, j)));
            report("tensor", name, how, user);
        } else if (memcmp(berth_gguf_map_data(map_a, i), berth_gguf_map_data(map_b, j), gguf_get_tensor_size(a, i)) != 0) {
            report("tensor", name, "the bytes differ", user);
        }
    }
    for (int64_t j = 0; j < gguf_get_n_tensors(b); j++) {
        if (gguf_find_tensor(a, gguf_get_tensor_name(b, j)) < 0) {
            report("tensor", gguf_get_tensor_name(b, j), "only in the second file", user);
        }
    }
}
