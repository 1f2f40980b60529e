// SPDX-License-Identifier: MIT
// fuzz_gguf.c: any bytes for the GGUF reader: no crash, a message with an offset for every refusal, the same answer from a
// source of unknown size, and what was read is written and read again the same. With -malloc_limit_mb, memory too.

#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct input {
    const uint8_t *data;
    size_t size;
};

static size_t input_read(void *user_data, void *out, uint64_t offset, size_t len) {
    const struct input *in = user_data;
    const size_t left = offset < in->size ? in->size - (size_t) offset : 0;
    const size_t n = len < left ? len : left;
    memcpy(out, in->data + in->size - left, n);
    return n;
}

// Every byte that can be reached.
static unsigned sum;

static void look(const void *data, size_t size) {
    for (size_t i = 0; i < size; i++) {
        sum += ((const uint8_t *) data)[i];
    }
}

static void look_at_keys(const struct gguf_context *g) {
    static const size_t sizes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    for (int64_t i = 0; i < gguf_get_n_kv(g); i++) {
        const enum gguf_type kind = gguf_get_kv_type(g, i);
        const enum gguf_type type = kind == GGUF_TYPE_ARRAY ? gguf_get_arr_type(g, i) : kind;
        const size_t n = gguf_get_arr_n(g, i);
        expect(gguf_find_key(g, gguf_get_key(g, i)) == i, "a key is not found");
        for (size_t k = 0; type == GGUF_TYPE_STRING && k < n; k++) {
            look(gguf_get_arr_str(g, i, k), strlen(gguf_get_arr_str(g, i, k)));
        }
        if (type != GGUF_TYPE_STRING && n > 0) {
            const void *data = gguf_get_arr_data(g, i);
            expect((uintptr_t) data % sizes[type] == 0, "numbers are not aligned");
            look(data, n * sizes[type]);
        }
    }
}

static void look_at_tensors(const struct gguf_context *g, struct ggml_context *tensors) {
    size_t end = 0;
    for (int64_t i = 0; i < gguf_get_n_tensors(g); i++) {
        const char *name = gguf_get_tensor_name(g, i);
        expect(gguf_find_tensor(g, name) == i, "a tensor is not found");
        expect(gguf_get_tensor_offset(g, i) % gguf_get_alignment(g) == 0, "a tensor is not aligned");
        expect(gguf_get_tensor_offset(g, i) >= end, "tensors overlap");
        end = gguf_get_tensor_offset(g, i) + gguf_get_tensor_size(g, i);
        if (tensors != NULL) {
            const struct ggml_tensor *t = ggml_get_tensor(tensors, name);
            expect(t != NULL, "no tensor of this name");
            look(t->data, ggml_nbytes(t));
        }
    }
}

// The header again, unless its padding alone is beyond reason.
static void round_trip(const struct gguf_context *g) {
    const size_t size = gguf_get_meta_size(g);
    uint8_t *meta = size <= (1 << 22) ? malloc(size) : NULL;
    if (meta == NULL) {
        return;
    }
    gguf_get_meta_data(g, meta);
    struct gguf_context *again = gguf_init_from_buffer(meta, size, (struct gguf_init_params){0});
    expect(again != NULL, "not read again");
    expect(gguf_get_meta_size(again) == size, "another size");
    uint8_t *meta_again = malloc(size);
    if (meta_again != NULL) {
        gguf_get_meta_data(again, meta_again);
        expect(memcmp(meta, meta_again, size) == 0, "other bytes");
    }
    gguf_free(again);
    free(meta_again);
    free(meta);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ggml_log_set(quiet, NULL);
    struct ggml_context *tensors = NULL, *plain = NULL;
    berth_clear_error();
    struct gguf_context *g = gguf_init_from_buffer(data, size, (struct gguf_init_params){.no_alloc = true, .ctx = &plain});
    expect((g != NULL) == (plain != NULL), "context and tensors disagree");
    expect(g != NULL || strstr(berth_last_error(), "at offset") != NULL, "no offset in the message");
    if (g != NULL) {
        struct gguf_context *with_data = gguf_init_from_buffer(data, size, (struct gguf_init_params){.ctx = &tensors});
        look_at_keys(g);
        look_at_tensors(g, tensors);
        round_trip(g);
        gguf_free(with_data);
        ggml_free(tensors);
    }
    struct input in = {data, size};
    struct gguf_context *unknown = gguf_init_from_callback(input_read, &in, 0, UINT64_MAX, (struct gguf_init_params){0});
    expect(g == NULL || unknown != NULL, "refused where the size is unknown");
    gguf_free(unknown);
    gguf_free(g);
    ggml_free(plain);
    return 0;
}
