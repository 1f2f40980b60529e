// SPDX-License-Identifier: MIT
// windows.c: prints the windows of tokens that `berth train` uses, one per line: windows MODEL TEXT CTX SEED N. Its output is the
// input of torch_losses.py.

#include "train/train.h"

#include <inttypes.h>
#include <stdlib.h>

static char *text_read(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    char *text = malloc((size_t) 64 << 20);
    *size = file != NULL && text != NULL ? fread(text, 1, (size_t) 64 << 20, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

int main(int argc, char **argv) {
    struct model_error error = {""};
    struct train_data data = {0};
    size_t size;
    if (argc != 6) {
        return 2;
    }
    char *text = text_read(argv[2], &size);
    struct model *m = model_open(argv[1], &error);
    struct vocab *vocab = m != NULL ? vocab_new(berth_gguf_map_meta(m->file), m->params.n_vocab, &error) : NULL;
    const int64_t n_ctx = atoll(argv[3]);
    const bool ok = vocab != NULL && text != NULL && train_data_add(&data, vocab, text, size, TRAIN_SPLIT_BLANK, &error) &&
                    train_data_cut(&data, n_ctx, &error);
    for (int64_t i = 0; ok && i < atoll(argv[5]); i++) {
        const int32_t *window = train_data_window(&data, strtoull(argv[4], NULL, 10), i);
        for (int64_t k = 0; k <= n_ctx; k++) {
            printf("%" PRId32 "%c", window[k], k == n_ctx ? '\n' : ' ');
        }
    }
    if (!ok) {
        fprintf(stderr, "%s\n", error.text);
    }
    train_data_fini(&data);
    vocab_free(vocab);
    model_free(m);
    free(text);
    return ok ? 0 : 1;
}
