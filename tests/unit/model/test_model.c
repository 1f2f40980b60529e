// SPDX-License-Identifier: MIT
// test_model.c: tests models of the llama family: the errors of the loader; results that do not depend on batches, attention
// kernels or devices; and plans that equal the allocated memory.

#include "support/model_sample.h"

#include "support/device.h"

#define PATH "/tmp/berth-model-XXXXXX"

// ---- errors of the loader ----

// Writes the sample model to a file. Asserts that model_open fails with an error that contains `text`.
static void refuse(const struct sample_model *m, const char *text) {
    char path[] = PATH;
    struct model_error error = {""};
    sample_model_write(m, path);
    struct model *model = model_open(path, &error);
    unlink(path);
    if (model != NULL || strstr(error.text, text) == NULL) {
        print_error("expected '%s', got '%s'\n", text, error.text);
        fail();
    }
}

static void test_missing(void **state) {
    (void) state;
    static const char *const names[] = {"token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight", "blk.2.ffn_down.weight",
        "blk.1.attn_norm.weight", "block_count", "embedding_length", "feed_forward_length", "attention.head_count"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct sample_model m = sample_model_default();
        m.leave_out = names[i];
        char text[128];
        snprintf(text, sizeof text, "%s' is missing", names[i]);
        refuse(&m, text);
    }
}

static void test_shapes(void **state) {
    (void) state;
    struct sample_model m = sample_model_default();
    m.twist = "blk.1.attn_k.weight"; // this tensor is written with one column too many
    refuse(&m, "tensor 'blk.1.attn_k.weight' is [33, 16, 1, 1], but the keys require [32, 16, 1, 1]");
    m.twist = "output.weight";
    refuse(&m, "tensor 'output.weight' is [33, 40, 1, 1]");
    m = sample_model_default();
    m.n_head_kv = 3;
    refuse(&m, "4 heads are not a multiple of 3");
    m = sample_model_default();
    m.n_head = m.n_head_kv = 5;
    refuse(&m, "is not a multiple of 5 heads");
}

// Functions for sample_model.last. x: a pair of strings, the key and its value (last_arg).
static void set_u32(struct gguf_context *g, void *x) {
    const char *const *pair = x;
    gguf_set_val_u32(g, pair[0], (uint32_t) strtoul(pair[1], NULL, 10));
}

static void set_f32(struct gguf_context *g, void *x) {
    const char *const *pair = x;
    gguf_set_val_f32(g, pair[0], strtof(pair[1], NULL));
}

static void set_str(struct gguf_context *g, void *x) {
    const char *const *pair = x;
    gguf_set_val_str(g, pair[0], pair[1]);
}

static void test_keys(void **state) {
    (void) state;
    static const char *const numbers[][3] = {{"llama.block_count", "4000000000", "key 'llama.block_count' is 4000000000"},
        {"llama.embedding_length", "0", "key 'llama.embedding_length' is 0, but must be between 1"},
        {"llama.attention.head_count", "1000000", "key 'llama.attention.head_count' is 1000000"},
        {"llama.rope.dimension_count", "7", "'rope.dimension_count' is odd: 7"},
        {"llama.rope.dimension_count", "100", "between 2 and 8"},
        {"llama.attention.layer_norm_rms_epsilon", "1", "has type u32, but must be a float"},
        {"llama.expert_count", "9999", "key 'llama.expert_count' is 9999"}};
    static const char *const texts[][3] = {{"llama.block_count", "three", "has type str, but must be an integer"},
        {"general.architecture", "rwkv7", "architecture 'rwkv7' is not supported"},
        {"llama.rope.scaling.type", "magic", "RoPE scaling 'magic' is not supported"}};
    static const char *const reals[][3] = {{"llama.rope.scaling.factor", "1e-40", "e-41 is too small"},
        {"llama.rope.scaling.factor", "-2", "RoPE scaling factor -2 is negative"},
        {"llama.rope.freq_base", "0", "the RoPE base frequency is not positive"},
        {"llama.rope.freq_base", "nan", "key 'llama.rope.freq_base' is not finite"},
        {"llama.attention.layer_norm_rms_epsilon", "-1", "the epsilon of the norm is missing or not positive"},
        {"llama.rope.scaling.attn_factor", "inf", "key 'llama.rope.scaling.attn_factor' is not finite"},
        {"llama.block_count", "3", "has type f32, but must be an integer"}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        struct sample_model m = sample_model_default();
        m.last = set_f32;
        m.last_arg = (void *) (uintptr_t) reals[i];
        refuse(&m, reals[i][2]);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sample_model m = sample_model_default();
        m.last = set_u32;
        m.last_arg = (void *) (uintptr_t) numbers[i];
        refuse(&m, numbers[i][2]);
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct sample_model m = sample_model_default();
        m.last = set_str;
        m.last_arg = (void *) (uintptr_t) texts[i];
        refuse(&m, texts[i][2]);
    }
}

// A file that is truncated at any of many positions is refused.
static void test_cut(void **state) {
    (void) state;
    char path[] = PATH;
    const struct sample_model m = sample_model_default();
    sample_model_write(&m, path);
    FILE *file = fopen(path, "rb");
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    fclose(file);
    for (long at = size - 32; at >= 0; at -= at > 6000 ? 997 : 61) { // the padding after the last tensor may be missing
        struct model_error error = {""};
        assert_int_equal(truncate(path, at), 0);
        assert_null(model_open(path, &error));
        assert_true(error.text[0] != '\0');
    }
    unlink(path);
}

// ---- results ----

struct opened {
    struct model *model;
    struct session *session;
};

static struct opened open_with(
    const struct sample_model *m, const struct model_devices *devices, const struct session_params *params) {
    char path[] = PATH;
    struct model_error error = {""};
    struct opened o = {0};
    sample_model_write(m, path);
    o.model = model_open(path, &error);
    unlink(path);
    if (o.model != NULL && model_place(o.model, devices, params->plan_only, NULL, NULL, &error)) {
        o.session = session_new(o.model, devices, params, &error);
    }
    if (o.session == NULL || !session_reserve(o.session, &error)) {
        print_error("%s\n", error.text);
        fail();
    }
    return o;
}

static void close_opened(struct opened *o) {
    session_free(o->session);
    model_free(o->model);
}

#define N_TOKENS 300

static void tokens_fill(int32_t *tokens, int n_vocab) {
    struct check_rng r = check_rng_new(5);
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = (int32_t) check_rng_below(&r, (uint64_t) n_vocab);
    }
}

static void logits_in_steps(struct session *s, const int32_t *tokens, int step, float *logits) {
    struct model_error error = {""};
    session_reset(s);
    for (int i = 0; i < N_TOKENS; i += step) {
        if (!session_decode(s, tokens + i, N_TOKENS - i < step ? N_TOKENS - i : step, &error)) {
            print_error("%s\n", error.text);
            fail();
        }
    }
    memcpy(logits, s->logits, (size_t) s->model->params.n_vocab * sizeof *logits);
}

static void assert_near(const float *a, const float *b, int n, float most) {
    for (int i = 0; i < n; i++) {
        if (!(fabsf(a[i] - b[i]) <= most)) {
            print_error("logit %d: %g and %g\n", i, (double) a[i], (double) b[i]);
            fail();
        }
    }
}

static struct model_devices cpu_open(void) {
    struct model_devices d;
    struct model_error error = {""};
    assert_true(model_devices_open(&d, "CPU", 2, &error));
    return d;
}

// Every kind of layer gives the same results in one batch, in many batches, and without flash attention.
static void test_batches(void **state) {
    (void) state;
    struct sample_model kinds[7];
    for (int i = 0; i < 7; i++) {
        kinds[i] = sample_model_default();
    }
    kinds[6].head_size = 12;
    kinds[6].head_size_v = 20;
    kinds[1].arch = "qwen2";
    kinds[1].has_bias = true;
    kinds[2].arch = "qwen3";
    kinds[2].has_qk_norm = true;
    kinds[3].has_output = false;
    kinds[4].has_freqs = true;
    kinds[5].n_expert = 4;
    struct model_devices d = cpu_open();
    for (int i = 0; i < 7; i++) {
        int32_t tokens[N_TOKENS];
        float one[64], many[64], plain[64];
        struct session_params params = {.n_batch = 512, .cache_k = GGML_TYPE_F32, .cache_v = GGML_TYPE_F32};
        struct opened o = open_with(&kinds[i], &d, &params);
        assert_true(o.session->has_flash);
        tokens_fill(tokens, kinds[i].n_vocab);
        logits_in_steps(o.session, tokens, N_TOKENS, one);
        logits_in_steps(o.session, tokens, 7, many);
        assert_near(one, many, kinds[i].n_vocab, 2e-3f);
        assert_true(fabsf(one[0]) > 1e-3f && fabsf(one[0] - one[1]) > 1e-4f);
        close_opened(&o);
        params.no_flash = true;
        o = open_with(&kinds[i], &d, &params);
        assert_false(o.session->has_flash);
        logits_in_steps(o.session, tokens, 64, plain);
        assert_near(one, plain, kinds[i].n_vocab, 2e-3f);
        close_opened(&o);
    }
    model_devices_close(&d);
}

// A changed earlier token changes the result. Tokens outside the vocabulary and tokens beyond the context are refused.
static void test_causal(void **state) {
    (void) state;
    struct model_devices d = cpu_open();
    const struct sample_model m = sample_model_default();
    struct session_params params = {.cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16};
    struct opened o = open_with(&m, &d, &params);
    int32_t tokens[N_TOKENS];
    float a[64], b[64];
    tokens_fill(tokens, m.n_vocab);
    logits_in_steps(o.session, tokens, N_TOKENS, a);
    tokens[3] = (tokens[3] + 1) % m.n_vocab;
    logits_in_steps(o.session, tokens, N_TOKENS, b);
    float most = 0;
    for (int i = 0; i < m.n_vocab; i++) {
        most = fmaxf(most, fabsf(a[i] - b[i]));
    }
    assert_true(most > 1e-5f);
    struct model_error error = {""};
    const int32_t wrong = m.n_vocab;
    assert_false(session_decode(o.session, &wrong, 1, &error));
    assert_non_null(strstr(error.text, "token 40 is outside the vocabulary of 40 tokens"));
    error.text[0] = '\0';
    assert_false(session_decode(o.session, tokens, 301, &error));
    assert_non_null(strstr(error.text, "301 tokens do not fit into the context: 300 of 600 positions are in use"));
    close_opened(&o);
    model_devices_close(&d);
}

// In a model of one layer with a window, the result of the last token depends only on the tokens in its window. The position of
// the window does not matter, because RoPE depends on distances. The test uses batches that start and end inside the window, and
// single tokens.
static void test_window(void **state) {
    (void) state;
    static const char *const key[] = {"mistral.attention.sliding_window", "16"};
    struct model_devices d = cpu_open();
    struct sample_model m = sample_model_default();
    struct session_params params = {.cache_k = GGML_TYPE_F32, .cache_v = GGML_TYPE_F32};
    int32_t tokens[N_TOKENS];
    float got[64], want[64];
    m.n_layer = 1;
    m.arch = "mistral";
    tokens_fill(tokens, m.n_vocab);
    struct opened all = open_with(&m, &d, &params);
    m.last = set_u32;
    m.last_arg = (void *) (uintptr_t) key;
    struct opened o = open_with(&m, &d, &params);
    assert_int_equal(o.model->params.n_window, 16);
    for (int n = 15; n <= 17; n++) {
        struct model_error error = {""};
        float most = 0;
        session_reset(all.session);
        assert_true(session_decode(all.session, tokens + N_TOKENS - n, n, &error));
        memcpy(want, all.session->logits, sizeof want[0] * (size_t) m.n_vocab);
        static const int steps[] = {N_TOKENS, 1, 7, 64};
        for (size_t k = 0; n == 16 && k < sizeof steps / sizeof *steps; k++) {
            logits_in_steps(o.session, tokens, steps[k], got);
            assert_near(want, got, m.n_vocab, 2e-3f);
        }
        logits_in_steps(o.session, tokens, N_TOKENS, got);
        for (int i = 0; i < m.n_vocab; i++) {
            most = fmaxf(most, fabsf(want[i] - got[i]));
        }
        assert_int_equal(most < 2e-3f, n == 16);
    }
    close_opened(&o);
    close_opened(&all);
    model_devices_close(&d);
}

// Every type of keys and values gives a result as close to f32 as its bits allow, or is refused with a reason. Without flash
// attention, block formats are refused for values, but not for keys.
static void test_cache_types(void **state) {
    (void) state;
    struct model_devices d = cpu_open();
    struct sample_model m = sample_model_default();
    struct session_params params = {.cache_k = GGML_TYPE_F32, .cache_v = GGML_TYPE_F32};
    int32_t tokens[N_TOKENS];
    float want[64], got[64];
    int n_taken = 0;
    m.n_embd = 128; // heads of 32 elements
    m.n_layer = 1;
    tokens_fill(tokens, m.n_vocab);
    struct opened o = open_with(&m, &d, &params);
    logits_in_steps(o.session, tokens, 50, want);
    for (int i = 0; i < 3 * GGML_TYPE_COUNT; i++) {
        const enum ggml_type type = (enum ggml_type)(i / 3);
        const struct session_params as = {
            .cache_k = i % 3 == 1 ? GGML_TYPE_F16 : type, .cache_v = i % 3 == 0 ? GGML_TYPE_F16 : type, .no_flash = i % 3 == 2};
        struct model_error error = {""};
        struct session *s = session_new(o.model, &d, &as, &error);
        assert_true((s == NULL) == (error.text[0] != '\0'));
        if (s == NULL) {
            assert_non_null(strstr(error.text, ggml_blck_size(type) > 0 ? "cannot be" : "unknown type"));
            continue;
        }
        const float bits = 8 * (float) ggml_type_size(type) / (float) ggml_blck_size(type);
        assert_true(session_reserve(s, &error));
        logits_in_steps(s, tokens, 50, got);
        double error_2 = 0, size_2 = 0;
        for (int k = 0; k < m.n_vocab; k++) {
            error_2 += ((double) want[k] - (double) got[k]) * ((double) want[k] - (double) got[k]);
            size_2 += (double) want[k] * (double) want[k];
        }
        assert_true(error_2 / size_2 < (bits < 8 ? 0.15 : bits < 16 ? 5e-4 : 1e-4));
        n_taken++;
        session_free(s);
    }
    print_message("%d cache types accepted\n", n_taken);
    assert_true(n_taken >= 20);
    params = (struct session_params){.cache_k = GGML_TYPE_Q8_0, .cache_v = GGML_TYPE_F32, .no_flash = true};
    struct model_error error = {""};
    struct session *s = session_new(o.model, &d, &params, &error);
    assert_non_null(s);
    assert_true(session_reserve(s, &error));
    logits_in_steps(s, tokens, 50, got);
    assert_near(want, got, m.n_vocab, 0.03f);
    session_free(s);
    params.cache_v = GGML_TYPE_Q8_0;
    assert_null(session_new(o.model, &d, &params, &error));
    assert_string_equal(
        error.text, "the values of the cache cannot be q8_0: without flash attention they must be f32, f16 or bf16");
    close_opened(&o);
    model_devices_close(&d);
}

// Weights may begin at any byte of the file.
static void test_misaligned(void **state) {
    (void) state;
    struct model_devices d = cpu_open();
    struct sample_model m = sample_model_default();
    struct session_params params = {.cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16};
    int32_t tokens[N_TOKENS];
    float want[64], got[64];
    tokens_fill(tokens, m.n_vocab);
    struct opened o = open_with(&m, &d, &params);
    logits_in_steps(o.session, tokens, 50, want);
    close_opened(&o);
    for (m.alignment = 1; m.alignment <= 64; m.alignment *= 2) {
        o = open_with(&m, &d, &params);
        logits_in_steps(o.session, tokens, 50, got);
        assert_near(want, got, m.n_vocab, 1e-5f);
        close_opened(&o);
    }
    model_devices_close(&d);
}

static size_t device_room; // bytes that the test device reports as free

static void device_memory(ggml_backend_dev_t dev, size_t *n_free, size_t *n_total) {
    (void) dev;
    *n_free = *n_total = device_room;
}

// Computes the logits after 50 tokens in a session of its own on the devices.
static void logits_alone(const struct sample_model *m, const struct model_devices *devices, const int32_t *tokens, float *out) {
    const struct session_params params = {.cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16};
    struct opened o = open_with(m, devices, &params);
    logits_in_steps(o.session, tokens, 50, out);
    close_opened(&o);
}

// The results equal those of the CPU if a device with separate memory has all layers, as many as fit, or none.
static void test_devices(void **state) {
    (void) state;
    static const size_t rooms[] = {(size_t) 1 << 30, 80000, 1};
    struct sample_model m = sample_model_default();
    m.has_output = false; // the output on the device is a copy of the embedding
    struct model_devices cpu = cpu_open();
    struct session_params params = {.cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16};
    int32_t tokens[N_TOKENS];
    float want[64], got[64];
    tokens_fill(tokens, m.n_vocab);
    logits_alone(&m, &cpu, tokens, want);
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        struct device dev;
        device_init(&dev, "far");
        dev.dev.iface.get_memory = device_memory;
        device_room = rooms[i];
        struct model_devices d = {.n = 2,
            .dev = (ggml_backend_dev_t[]){&dev.dev, cpu.dev[0]},
            .backend = (ggml_backend_t[]){device_start(&dev), cpu.backend[0]}};
        struct opened o = open_with(&m, &d, &params);
        const struct session_memory *far = &o.session->memory[0], *near_by = &o.session->memory[1];
        assert_int_equal(far->weights > 0, i < 2);
        assert_true(near_by->weights > 0); // at least the embedding
        assert_int_equal(o.model->layer_device[0] == 0, i == 0);
        logits_in_steps(o.session, tokens, 50, got);
        assert_near(want, got, m.n_vocab, 2e-3f);
        assert_int_equal(far->weights + far->cache + far->compute > 0, i < 2);
        close_opened(&o);
        device_stop(&dev);
    }
    model_devices_close(&cpu);
}

// Returns whether the page of an address is in the memory of the process.
static bool is_held(FILE *pagemap, const void *at) {
    uint64_t entry = 0;
    assert_int_equal(fseek(pagemap, (long) ((uintptr_t) at / (uintptr_t) sysconf(_SC_PAGESIZE) * sizeof entry), SEEK_SET), 0);
    assert_int_equal(fread(&entry, sizeof entry, 1, pagemap), 1);
    return entry >> 63;
}

// The model file is mapped, and the test reads all of its pages. After model_place has copied weights to a device, the pages of
// these weights are not in memory any more. The pages of the weights that stay on the host are still in memory, so that they are
// not read again.
static void test_upload_drops_its_own(void **state) {
    (void) state;
    struct model_devices cpu = cpu_open();
    struct model_error error = {""};
    struct device dev;
    FILE *pagemap = fopen("/proc/self/pagemap", "rb");
    struct model *model = model_open("tests/data/tales-3m-q8_0.gguf", &error);
    const size_t n_page = (size_t) sysconf(_SC_PAGESIZE);
    size_t n_host_pages = 0, n_far_pages = 0, sum = 0;
    if (pagemap == NULL) {
        skip();
    }
    assert_non_null(model);
    setvbuf(pagemap, NULL, _IONBF, 0);
    device_init(&dev, "far");
    dev.dev.iface.get_memory = device_memory;
    device_room = (size_t) 1 << 30;
    struct model_devices d = {.n = 2,
        .dev = (ggml_backend_dev_t[]){&dev.dev, cpu.dev[0]},
        .backend = (ggml_backend_t[]){device_start(&dev), cpu.backend[0]},
        .n_host = model->params.n_layer / 2};
    const char *base = berth_gguf_map_base(model->file);
    for (size_t i = 0; i < berth_gguf_map_size(model->file); i += n_page) {
        sum += (size_t) * (const volatile char *) (base + i);
    }
    assert_true(is_held(pagemap, base + n_page) && sum != 1);
    assert_true(model_place(model, &d, false, NULL, NULL, &error));
    for (size_t i = 0; i < model->n_weights; i++) {
        const struct model_weight *w = &model->weights[i];
        const bool is_far = w->layer >= 0 && model->layer_device[w->layer] == 0;
        if (w->layer < 0 || w->layer == model->params.n_layer) {
            continue; // the embedding, which is also the output
        }
        for (size_t at = n_page; ggml_nbytes(w->file) > 3 * n_page && at < ggml_nbytes(w->file) - n_page; at += n_page) {
            assert_int_equal(is_held(pagemap, (const char *) w->file->data + at), !is_far);
            n_host_pages += !is_far;
            n_far_pages += is_far;
        }
    }
    assert_true(n_host_pages > 10 && n_far_pages > 10);
    fclose(pagemap);
    model_free(model);
    device_stop(&dev);
    model_devices_close(&cpu);
}

// The device has memory for all weights, or for all except experts of some layers, or for some layers without their experts. Or the
// caller keeps experts or layers on the host. The results equal those of the CPU.
static void test_experts_leave_first(void **state) {
    (void) state;
    static const struct {
        size_t room;
        int64_t n_host_experts, n_host;
        bool has_layers[4], has_experts[3]; // on the device; has_layers[3]: the output
    } cases[] = {
        {(size_t) 1 << 30, 0, 0, {true, true, true, true}, {true, true, true}},
        {200000, 0, 0, {true, true, true, true}, {false, false, true}},
        {60000, 0, 0, {true, true, true, true}, {false, false, false}},
        {40000, 0, 0, {false, true, true, true}, {false, false, false}},
        {1, 0, 0, {false, false, false, false}, {false, false, false}},
        {(size_t) 1 << 30, 2, 0, {true, true, true, true}, {false, false, true}},
        {(size_t) 1 << 30, 3, 1, {false, true, true, true}, {false, false, false}},
    };
    struct sample_model m = sample_model_default();
    m.n_expert = 4;
    struct model_devices cpu = cpu_open();
    struct session_params params = {.cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16};
    int32_t tokens[N_TOKENS];
    float want[64], got[64];
    tokens_fill(tokens, m.n_vocab);
    logits_alone(&m, &cpu, tokens, want);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct device dev;
        device_init(&dev, "far");
        dev.dev.iface.get_memory = device_memory;
        dev.offload_batch = 4;
        device_room = cases[c].room;
        struct model_devices d = {.n = 2,
            .dev = (ggml_backend_dev_t[]){&dev.dev, cpu.dev[0]},
            .backend = (ggml_backend_t[]){device_start(&dev), cpu.backend[0]},
            .n_host_experts = cases[c].n_host_experts,
            .n_host = cases[c].n_host};
        struct opened o = open_with(&m, &d, &params);
        size_t far = 0;
        for (size_t i = 0; i < o.model->n_weights; i++) {
            const struct model_weight *w = &o.model->weights[i];
            const bool is_experts = model_weight_is_experts(o.model, w);
            const bool is_far = w->layer >= 0 && (is_experts ? cases[c].has_experts : cases[c].has_layers)[w->layer];
            assert_int_equal(model_weight_device(o.model, w), is_far ? 0 : 1);
            far += is_far ? ggml_nbytes(w->file) : 0;
        }
        assert_true(o.session->memory[0].weights >= far && o.session->memory[0].weights - far < 100 * o.model->n_weights);
        logits_in_steps(o.session, tokens, 50, got);
        assert_near(want, got, m.n_vocab, 2e-3f);
        close_opened(&o);
        device_stop(&dev);
    }
    model_devices_close(&cpu);
}

// With more devices than ggml's schedulers support, each with memory for few layers, the results equal those of the CPU.
static void test_many_devices(void **state) {
    (void) state;
    enum { N = 21 };
    static struct device devs[N];
    ggml_backend_dev_t dev[N + 1];
    ggml_backend_t backend[N + 1];
    struct sample_model m = sample_model_default();
    struct model_devices cpu = cpu_open();
    struct session_params params = {.cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16};
    int32_t tokens[N_TOKENS];
    float want[64], got[64];
    int n_used = 0;
    tokens_fill(tokens, m.n_vocab);
    logits_alone(&m, &cpu, tokens, want);
    device_room = 80000;
    for (int i = 0; i < N; i++) {
        device_init(&devs[i], "far");
        devs[i].dev.iface.get_memory = device_memory;
        dev[i] = &devs[i].dev;
        backend[i] = device_start(&devs[i]);
    }
    dev[N] = cpu.dev[0];
    backend[N] = cpu.backend[0];
    struct opened o = open_with(&m, &(struct model_devices){.n = N + 1, .dev = dev, .backend = backend}, &params);
    logits_in_steps(o.session, tokens, 50, got);
    assert_near(want, got, m.n_vocab, 2e-3f);
    for (int i = 0; i < N; i++) {
        n_used += o.session->memory[i].weights > 0;
    }
    assert_true(n_used > 1 && o.session->memory[N - 1].weights > 0); // the last devices are filled first
    close_opened(&o);
    for (int i = 0; i < N; i++) {
        device_stop(&devs[i]);
    }
    model_devices_close(&cpu);
}

// A session with plan_only reports the bytes that a real session allocates.
static void test_plan_only(void **state) {
    (void) state;
    struct model_devices d = cpu_open();
    const struct sample_model m = sample_model_default();
    struct session_params params = {.n_ctx = 321, .n_batch = 77, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16};
    struct opened real = open_with(&m, &d, &params);
    params.plan_only = true;
    struct opened planned = open_with(&m, &d, &params);
    const struct session_memory *a = &real.session->memory[0], *b = &planned.session->memory[0];
    assert_int_equal(a->weights, b->weights);
    assert_int_equal(a->cache, b->cache);
    assert_int_equal(a->compute, b->compute);
    assert_int_equal(a->compute, ggml_backend_sched_get_buffer_size(real.session->sched, d.backend[0]));
    assert_int_equal(a->report.peak, a->compute);
    assert_true(a->report.bound > 0 && a->report.bound <= a->compute);
    close_opened(&real);
    close_opened(&planned);
    model_devices_close(&d);
}

// berth_sched_report and berth_sched_save fail for a scheduler without a plan. For the scheduler of a session, the reported peak
// is the size of the compute buffer, and the saved plan can be read and is valid.
static void test_plan_outside(void **state) {
    (void) state;
    struct model_devices d = cpu_open();
    const struct sample_model m = sample_model_default();
    struct session_params params = {
        .n_ctx = 64, .n_batch = 16, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16, .plan_only = true};
    struct opened o = open_with(&m, &d, &params);
    ggml_backend_sched_t fresh = ggml_backend_sched_new(d.backend, NULL, 1, 64, false, false);
    struct berth_plan_report report;
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    ggml_backend_t stranger = ggml_backend_cpu_init();
    assert_int_equal(berth_sched_report(NULL, d.backend[0], &report), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_report(fresh, d.backend[0], &report), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_report(o.session->sched, stranger, &report), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_report(o.session->sched, d.backend[0], NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_save(fresh, file), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_save(o.session->sched, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_sched_report(o.session->sched, d.backend[0], &report), GGML_STATUS_SUCCESS);
    assert_int_equal(report.peak, o.session->memory[0].compute);
    assert_int_equal(berth_sched_save(o.session->sched, file), GGML_STATUS_SUCCESS);
    assert_int_equal(fclose(file), 0);
    struct berth_plan_set *set = NULL;
    assert_int_equal(berth_plan_read_json(text, size, "plan", &set), GGML_STATUS_SUCCESS);
    assert_true(set->has_offsets && set->n_tensors >= set->n_items);
    assert_int_equal(set->peak, report.peak);
    assert_int_equal(berth_plan_check(set->items, set->n_items, NULL, set->offsets, NULL), GGML_STATUS_SUCCESS);
    berth_plan_set_free(set);
    free(text);
    ggml_backend_sched_free(fresh);
    ggml_backend_free(stranger);
    close_opened(&o);
    model_devices_close(&d);
}

static bool stop_now(size_t done, size_t all, void *user_data) {
    *(int *) user_data += done <= all;
    return false;
}

static void test_stopped(void **state) {
    (void) state;
    char path[] = PATH;
    struct model_error error = {""};
    const struct sample_model m = sample_model_default();
    struct model_devices d = cpu_open();
    int n = 0;
    sample_model_write(&m, path);
    struct model *model = model_open(path, &error);
    assert_non_null(model);
    assert_false(model_place(model, &d, false, stop_now, &n, &error));
    assert_string_equal(error.text, "loading was interrupted");
    assert_int_equal(n, 1);
    model_free(model);
    model_devices_close(&d);
    unlink(path);
}

// Each allocation fails once. The result is an error, or the same logits where the allocation is not essential.
static void test_no_memory(void **state) {
    (void) state;
    char path[] = PATH;
    struct sample_model m = sample_model_default();
    m.n_layer = 1;
    int32_t tokens[9];
    float want[64];
    int n_failed = 0;
    sample_model_write(&m, path);
    for (int i = 0; i < 9; i++) {
        tokens[i] = i;
    }
    for (int64_t at = 0, n_made = 0; at <= n_made; at++) { // 0: no failure, allocations are counted
        const struct session_params params = {.n_ctx = 16, .n_batch = 4, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16};
        struct model_error error = {""};
        struct model_devices d = {0};
        struct model *model = NULL;
        struct session *s = NULL;
        berth_alloc_watch(true);
        berth_alloc_fail_at(at);
        bool ok = model_devices_open(&d, "CPU", 1, &error) && (model = model_open(path, &error)) != NULL &&
                  model_place(model, &d, false, NULL, NULL, &error) && (s = session_new(model, &d, &params, &error)) != NULL &&
                  session_reserve(s, &error) && session_decode(s, tokens, 9, &error);
        n_made = at == 0 ? berth_alloc_made() : n_made;
        berth_alloc_fail_at(0);
        if (ok && at == 0) {
            memcpy(want, s->logits, sizeof(float) * (size_t) m.n_vocab);
        } else if (ok) {
            assert_near(want, s->logits, m.n_vocab, 0);
        } else {
            assert_true(error.text[0] != '\0');
            n_failed++;
        }
        session_free(s);
        model_free(model);
        model_devices_close(&d);
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
    }
    assert_true(n_failed > 20);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_missing), cmocka_unit_test(test_shapes), cmocka_unit_test(test_keys),
        cmocka_unit_test(test_cut), cmocka_unit_test(test_batches), cmocka_unit_test(test_causal), cmocka_unit_test(test_window),
        cmocka_unit_test(test_cache_types), cmocka_unit_test(test_misaligned), cmocka_unit_test(test_devices),
        cmocka_unit_test(test_upload_drops_its_own), cmocka_unit_test(test_experts_leave_first),
        cmocka_unit_test(test_many_devices), cmocka_unit_test(test_plan_only), cmocka_unit_test(test_plan_outside),
        cmocka_unit_test(test_stopped), cmocka_unit_test(test_no_memory)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
