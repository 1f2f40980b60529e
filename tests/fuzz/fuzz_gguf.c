// SPDX-License-Identifier: MIT
// fuzz_gguf.c: passes any bytes to the GGUF reader. There must be no crash, and every refusal must have a message with an offset.
// Reading from a source of unknown size must give the same result. A header that was read must be unchanged after it is written
// and read back. libFuzzer's option -malloc_limit_mb also checks the memory use.

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

// The sum of all bytes that were read. It is a global variable, so that the compiler does not remove the reads.
static unsigned sum;

static void bytes_read(const void *data, size_t size) {
    for (size_t i = 0; i < size; i++) {
        sum += ((const uint8_t *) data)[i];
    }
}

static void keys_check(const struct gguf_context *g) {
    static const size_t sizes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    for (int64_t i = 0; i < gguf_get_n_kv(g); i++) {
        const enum gguf_type kind = gguf_get_kv_type(g, i);
        const enum gguf_type type = kind == GGUF_TYPE_ARRAY ? gguf_get_arr_type(g, i) : kind;
        const size_t n = gguf_get_arr_n(g, i);
        expect(gguf_find_key(g, gguf_get_key(g, i)) == i, "a key is not found");
        for (size_t k = 0; type == GGUF_TYPE_STRING && k < n; k++) {
            bytes_read(gguf_get_arr_str(g, i, k), strlen(gguf_get_arr_str(g, i, k)));
        }
        if (type != GGUF_TYPE_STRING && n > 0) {
            const void *data = gguf_get_arr_data(g, i);
            expect((uintptr_t) data % sizes[type] == 0, "numbers are not aligned");
            bytes_read(data, n * sizes[type]);
        }
    }
}

static void tensors_check(const struct gguf_context *g, struct ggml_context *tensors) {
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
            bytes_read(t->data, ggml_nbytes(t));
        }
    }
}

// Writes the header and reads it back, unless its padding makes it too large.
static void round_trip(const struct gguf_context *g) {
    const size_t size = gguf_get_meta_size(g);
    uint8_t *meta = size <= (1 << 22) ? malloc(size) : NULL;
    if (meta == NULL) {
        return;
    }
    gguf_get_meta_data(g, meta);
    struct gguf_context *reread = gguf_init_from_buffer(meta, size, (struct gguf_init_params){0});
    expect(reread != NULL, "the written header cannot be read");
    expect(gguf_get_meta_size(reread) == size, "the size of the header changed");
    uint8_t *meta_reread = malloc(size);
    if (meta_reread != NULL) {
        gguf_get_meta_data(reread, meta_reread);
        expect(memcmp(meta, meta_reread, size) == 0, "the bytes of the header changed");
    }
    gguf_free(reread);
    free(meta_reread);
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
        keys_check(g);
        tensors_check(g, tensors);
        round_trip(g);
        gguf_free(with_data);
        ggml_free(tensors);
    }
    struct input in = {data, size};
    struct gguf_context *unknown = gguf_init_from_callback(input_read, &in, 0, UINT64_MAX, (struct gguf_init_params){0});
    expect(g == NULL || unknown != NULL, "refused if the size is unknown");
    gguf_free(unknown);
    gguf_free(g);
    ggml_free(plain);
    return 0;
}
