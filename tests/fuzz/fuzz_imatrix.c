// SPDX-License-Identifier: MIT
// fuzz_imatrix.c: reads importance matrices with some bytes changed, in both file formats. A file must be refused with a message,
// or it must be read; then every value of a known tensor must be readable.

#include "fuzz/patched.h"
#include "gguf.h"
#include "quantize/quantize.h"

static void sample_gguf(const char *path) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16});
    struct gguf_context *g = gguf_init_empty();
    struct ggml_tensor *sums = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8, 2),
                       *counts = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 1, 2);
    for (int i = 0; i < 16; i++) {
        ((float *) sums->data)[i] = (float) i;
    }
    ((float *) counts->data)[0] = ((float *) counts->data)[1] = 2.0f;
    ggml_set_name(sums, "blk.0.ffn_up.weight.in_sum2");
    ggml_set_name(counts, "blk.0.ffn_up.weight.counts");
    gguf_set_val_str(g, "general.type", "imatrix");
    gguf_set_val_u32(g, "imatrix.chunk_count", 1);
    gguf_set_val_u32(g, "imatrix.chunk_size", 8);
    gguf_add_tensor(g, sums);
    gguf_add_tensor(g, counts);
    expect(gguf_write_to_file(g, path, false), "cannot write the sample");
    gguf_free(g);
    ggml_free(ctx);
}

// Writes the older format: entries, each with the length of its name, its name, the number of calls and the values.
static void sample_dat(const char *path) {
    FILE *file = fopen(path, "wb");
    const char name[] = "blk.0.ffn_up.weight";
    const int32_t head[] = {1, (int32_t) strlen(name)}, numbers[] = {2, 16};
    const float values[16] = {1.0f, 2.0f, 3.0f};
    expect(file != NULL, "cannot write the sample");
    fwrite(head, 4, 2, file);
    fwrite(name, 1, strlen(name), file);
    fwrite(numbers, 4, 2, file);
    fwrite(values, 4, 16, file);
    fclose(file);
}

static void sample_open(struct patched *p, void (*make)(const char *)) {
    char path[] = "/tmp/fuzz-imatrix-XXXXXX";
    const int fd = mkstemp(path);
    expect(fd >= 0, "cannot create the sample");
    close(fd);
    make(path);
    patched_open(p, path);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct patched samples[2];
    static struct ggml_tensor weight = {.ne = {8, 4, 2, 1}, .name = "blk.0.ffn_up.weight"};
    if (samples[0].original == NULL) {
        ggml_log_set(quiet, NULL);
        sample_open(&samples[0], sample_gguf);
        sample_open(&samples[1], sample_dat);
    }
    const int form = size > 0 && data[size - 1] % 2 == 1;
    struct model_error error = {""};
    struct imatrix *m = imatrix_open(patched_write(&samples[form], data, size > 0 ? size - 1 : 0), &error);
    expect((m == NULL) == (error.text[0] != '\0'), "refused without a message");
    bool is_wrong = false;
    const float *row = m != NULL ? imatrix_find(m, &weight, &is_wrong) : NULL;
    static float copy[16];
    if (row != NULL) {
        memcpy(copy, row, sizeof copy); // all values must be readable
    }
    imatrix_free(m);
    return 0;
}
