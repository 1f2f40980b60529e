// SPDX-License-Identifier: MIT
// fuzz_model.c: opens the file of a small model with some bytes changed. The model must be refused with a message, or it must be
// possible to load, place, plan and compute it.

#include "fuzz/patched.h"
#include "support/model_sample.h"

static void decode(const struct model *model, const struct model_devices *devices) {
    struct model_error error = {""};
    const struct session_params params = {.n_ctx = 16, .n_batch = 4, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16};
    struct session *s = session_new(model, devices, &params, &error);
    const int32_t tokens[] = {0, 1, 2};
    if (s != NULL && session_reserve(s, &error)) {
        const bool is_done = session_decode(s, tokens, model->params.n_vocab > 3 ? 3 : 1, &error);
        expect(is_done == (error.text[0] == '\0'), "failed without a message, or succeeded with one");
    }
    session_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct patched sample;
    static struct model_devices devices;
    struct model_error error = {""};
    if (sample.original == NULL) {
        char path[] = "/tmp/fuzz-model-XXXXXX";
        struct sample_model m = sample_model_default();
        m.n_layer = 1, m.n_expert = 2, m.has_bias = true;
        sample_model_write(&m, path);
        patched_open(&sample, path);
        unlink(path);
        ggml_log_set(quiet, NULL);
        expect(model_devices_open(&devices, NULL, 1, &error), "cannot open a device");
    }
    struct model *model = model_open(patched_write(&sample, data, size), &error);
    expect((model != NULL) == (error.text[0] == '\0'), "refused without a message, or accepted with one");
    if (model != NULL && model_place(model, &devices, false, NULL, NULL, &error)) {
        decode(model, &devices);
    }
    model_free(model);
    return 0;
}
