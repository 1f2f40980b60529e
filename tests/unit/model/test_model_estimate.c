// SPDX-License-Identifier: MIT
// test_model_estimate.c: tests that the predicted memory of a model equals its allocated memory: cache and compute buffers of a
// session with plan_only and of a session that reserves. It uses the shipped model and published models at their real dimensions
// (sparse files, if the data folder has them). Nothing is computed, so no page of a cache is touched.

#include "support/check.h"

#include "model/model.h"

#include <glob.h>
#include <unistd.h>

static const struct session_params shape = {.n_ctx = 256, .n_batch = 64, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_Q8_0};

// Returns the memory that a session reports and the memory of its buffers. False: the model cannot be opened, or does not support
// this cache.
static bool memory_of(const char *path, bool plan_only, struct session_memory *memory, struct session_memory *held) {
    struct model_error error = {""};
    struct session_params params = shape;
    struct model_devices d = {0};
    struct session *s = NULL;
    params.plan_only = plan_only;
    struct model *model = model_open(path, &error);
    const bool ok = model != NULL && model_devices_open(&d, "CPU", 2, &error) &&
                    model_place(model, &d, true, NULL, NULL, &error) && (s = session_new(model, &d, &params, &error)) != NULL &&
                    session_reserve(s, &error);
    if (ok) {
        *memory = s->memory[0];
        held->compute = ggml_backend_sched_get_buffer_size(s->sched, d.backend[0]);
        held->cache = s->caches[0].buffer != NULL ? ggml_backend_buffer_get_size(s->caches[0].buffer) : 0;
    }
    session_free(s);
    model_free(model);
    model_devices_close(&d);
    return ok;
}

static bool is_as_predicted(const char *path) {
    struct session_memory predicted = {0}, got = {0}, none = {0}, held = {0};
    if (!memory_of(path, true, &predicted, &none)) {
        return false;
    }
    assert_true(memory_of(path, false, &got, &held));
    const char *name = strrchr(path, '/') + 1;
    if (predicted.compute != held.compute || predicted.cache != held.cache || predicted.work != got.work) {
        fail_msg("%s: compute predicted %zu, is %zu; cache predicted %zu, is %zu; work predicted %zu, is %zu", name,
            predicted.compute, held.compute, predicted.cache, held.cache, predicted.work, got.work);
    }
    print_message(
        "%-24s cache %12zu, compute %12zu, work %11zu: as predicted\n", name, predicted.cache, predicted.compute, predicted.work);
    return true;
}

static void shipped(void **state) {
    (void) state;
    assert_true(is_as_predicted("tests/data/tales-3m-q8_0.gguf"));
}

// Generating a token reads the filled half of the cache, and every matrix. The table of embeddings counts only if it is also the
// output.
static void speed(void **state) {
    (void) state;
    struct model_error error = {""};
    struct session_params params = shape;
    struct model_devices d = {0};
    struct device_speed of = {.bytes = {[GGML_TYPE_Q8_0] = 1e6}};
    struct model_speed speed = {.devices = &of, .n = 1, .n_seq = 1};
    params.plan_only = true;
    struct model *model = model_open("tests/data/tales-3m-q8_0.gguf", &error);
    assert_true(model != NULL && model_devices_open(&d, "CPU", 1, &error));
    assert_true(model_place(model, &d, true, NULL, NULL, &error));
    struct session *s = session_new(model, &d, &params, &error);
    assert_true(s != NULL && session_reserve(s, &error));
    double bytes = (double) s->memory[0].cache / 2;
    for (size_t i = 0; i < model->n_weights; i++) {
        const struct ggml_tensor *t = model->weights[i].file;
        bytes += t->ne[1] > 1 && (model->weights[i].layer >= 0 || model->is_tied) ? (double) ggml_nbytes(t) : 0;
    }
    const double seconds = 1 / model_speed_predict(&speed, s);
    assert_true(seconds > bytes / 1e6 * 0.9999 && seconds < bytes / 1e6 * 1.0001);
    // Four sequences read the weights once and four caches.
    speed.n_seq = 4;
    const double step = 4 / model_speed_predict(&speed, s), caches = 3 * (double) s->memory[0].cache / 2;
    assert_true(step > (bytes + caches) / 1e6 * 0.9999 && step < (bytes + caches) / 1e6 * 1.0001);
    speed.n_seq = 1;
    of.node = 0.5;
    assert_true(1 / model_speed_predict(&speed, s) > seconds + 4 * 8 * 0.5); // norms, RoPE, attention, ... of four layers
    of.bytes[GGML_TYPE_Q8_0] = 0;
    assert_true(model_speed_predict(&speed, s) == 0);
    assert_true(model_speed_measure(model, &d, 3, &speed));
    assert_int_equal(speed.n_seq, 3);
    assert_true(speed.devices[0].bytes[GGML_TYPE_Q8_0] > 1e6 && speed.devices[0].bytes[GGML_TYPE_Q4_0] == 0);
    assert_true(model_speed_predict(&speed, s) > 1);
    model_speed_fini(&speed);
    session_free(s);
    model_free(model);
    model_devices_close(&d);
}

// A trial generates tokens and leaves the session at position 0.
static void trial(void **state) {
    (void) state;
    static const int32_t tokens[] = {1, 5, 9, 7};
    struct model_error error = {""};
    struct model_devices d = {0};
    float logits[2][3];
    struct model *model = model_open("tests/data/tales-3m-q8_0.gguf", &error);
    assert_true(model != NULL && model_devices_open(&d, "CPU", 1, &error));
    assert_true(model_place(model, &d, false, NULL, NULL, &error));
    for (int64_t n_ctx = 8; n_ctx <= 256; n_ctx *= 32) { // 8: fewer tokens than are timed together
        const struct session_params params = {.n_ctx = n_ctx, .n_batch = 4, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16};
        for (int i = 0; i < 2; i++) {
            struct session *s = session_new(model, &d, &params, &error);
            assert_true(s != NULL && session_reserve(s, &error));
            assert_true(i == 0 || model_speed_trial(s, &error) > 1);
            assert_int_equal(s->n_past, 0);
            assert_true(session_decode(s, tokens, 4, &error));
            memcpy(logits[i], s->logits, sizeof logits[i]);
            session_free(s);
        }
        assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    }
    model_free(model);
    model_devices_close(&d);
}

static void published(void **state) {
    (void) state;
    const char *data = getenv("BERTH_DATA");
    char folder[] = "/tmp/estimate-XXXXXX", text[512];
    assert_non_null(mkdtemp(folder));
    snprintf(text, sizeof text, "sh '%s/models/sparse/make.sh' %s 2> /dev/null", data != NULL ? data : "../shared", folder);
    glob_t found = {0};
    int n_predicted = 0;
    const bool has = system(text) == 0;
    snprintf(text, sizeof text, "%s/*.gguf", folder);
    for (size_t i = 0; has && (i > 0 || glob(text, 0, NULL, &found) == 0) && i < found.gl_pathc; i++) {
        n_predicted += is_as_predicted(found.gl_pathv[i]);
    }
    globfree(&found);
    snprintf(text, sizeof text, "rm -r %s", folder);
    assert_int_equal(system(text), 0);
    if (!has) {
        print_message("skipped: no sparse files of published models in ../shared (set BERTH_DATA)\n");
        return;
    }
    assert_true(n_predicted >= 10);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped), cmocka_unit_test(speed), cmocka_unit_test(trial), cmocka_unit_test(published)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
