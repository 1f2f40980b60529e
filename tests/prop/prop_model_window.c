// SPDX-License-Identifier: MIT
// prop_model_window.c: a layer with a sliding window keeps only the last rows (keys and values) of its cache, in a ring. The
// logits must equal those of a session that keeps every row. A saved session continues correctly with a ring of another size.

#include "support/model_sample.h"

#define N_CASES check_cases(8)
#define N_ARCHS check_cases(3)
#define N_CTX (CHECK_PART > 1 ? 700 : 1500) // several times the smallest ring, 256 rows
#define N_VOCAB 512
#define MAX_ERROR 1e-7 // gemma's GELU uses a table of f16; a wrong position gives a far larger error

struct window_model {
    struct model_devices devices;
    struct model *model;
};

static void window_put(struct gguf_context *g, void *window) {
    gguf_set_val_u32(g, "mistral.attention.sliding_window", *(uint32_t *) window);
}

// Makes a model. In mistral every layer has the window; in gemma2, gemma3 and gpt-oss some layers have it.
static struct window_model window_model_open(const char *arch, uint32_t window) {
    struct window_model x = {0};
    struct model_error error = {""};
    char path[] = "/tmp/berth-window-XXXXXX";
    if (strcmp(arch, "mistral") == 0) {
        struct sample_model m = sample_model_default();
        m.arch = arch;
        m.n_vocab = N_VOCAB;
        m.last = window_put;
        m.last_arg = &window;
        sample_model_write(&m, path);
    } else {
        char command[512];
        const int fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
        snprintf(command, sizeof command, "%s %s deep f32 %s 1 W=%u", getenv("BERTH_MAKE_MODEL"), arch, path, window);
        assert_int_equal(system(command), 0);
    }
    assert_true(model_devices_open(&x.devices, "CPU", 1, &error));
    x.model = model_open(path, &error);
    assert_non_null(x.model);
    assert_int_equal(x.model->params.n_window, window);
    assert_true(model_place(x.model, &x.devices, false, NULL, NULL, &error));
    unlink(path);
    return x;
}

static void window_model_close(struct window_model *x) {
    model_free(x->model);
    model_devices_close(&x->devices);
}

static struct session *session_open(const struct window_model *x, int64_t n_ctx, int64_t n_batch, bool no_flash) {
    struct model_error error = {""};
    const struct session_params params = {
        .n_ctx = n_ctx, .n_batch = n_batch, .cache_k = GGML_TYPE_F32, .cache_v = GGML_TYPE_F32, .no_flash = no_flash};
    struct session *s = session_new(x->model, &x->devices, &params, &error);
    if (s == NULL || !session_reserve(s, &error)) {
        print_error("%s\n", error.text);
        fail();
    }
    return s;
}

static void logits_compare(const struct session *a, const struct session *b, const char *what) {
    double wrong = 0, size = 0;
    for (int i = 0; i < N_VOCAB; i++) {
        const double d = (double) a->logits[i] - (double) b->logits[i];
        wrong += d * d;
        size += (double) a->logits[i] * (double) a->logits[i];
    }
    if (!(size > 1e-3 && wrong / size < MAX_ERROR)) {
        print_error("%s: position %lld, ring %lld of %lld rows: normalised error %g\n", what, (long long) b->n_past,
            (long long) b->n_ring, (long long) b->params.n_ctx, wrong / size);
        fail();
    }
}

// Both sessions process the tokens up to position `to`, in steps of random length. After each step, their logits must be equal.
static void read_both(struct session *all, struct session *ring, const int32_t *tokens, int64_t to, struct check_rng *r) {
    struct model_error error = {""};
    while (ring->n_past < to) {
        const int64_t past = ring->n_past, left = to - past, batch = ring->params.n_batch;
        const int64_t step = check_rng_below(r, 4) == 0 ? 1 : 1 + (int64_t) check_rng_below(r, (uint64_t) batch);
        const int64_t n = step < left ? step : left;
        assert_true(session_decode(ring, tokens + past, n, &error));
        assert_true(session_decode(all, tokens + past, n, &error));
        logits_compare(all, ring, "reading");
    }
}

// Saves `from` and loads the file into `to`, for a text of n tokens. Only the first n_equal tokens of the text equal the saved
// tokens. Returns the number of positions that `to` has kept.
static int64_t session_transfer(const struct session *from, const int32_t *tokens, struct session *to, int64_t n, int64_t n_equal,
    struct model_error *error) {
    int32_t *text = malloc((size_t) n * sizeof *text);
    FILE *file = tmpfile();
    assert_true(text != NULL && file != NULL);
    for (int64_t i = 0; i < n; i++) {
        text[i] = i < n_equal ? tokens[i] : (tokens[i] + 1) % N_VOCAB;
    }
    assert_true(session_save(from, tokens, from->n_past, file, error));
    rewind(file);
    bool is_old;
    assert_true(session_load(to, text, n, file, &is_old, error));
    const int64_t kept = to->n_past;
    assert_int_equal(fgetc(file) == EOF, kept > 0); // `to` has read all rows of the file, or none
    fclose(file);
    free(text);
    return kept;
}

static void case_try(const char *arch, struct check_rng *r) {
    struct model_error error = {""};
    const uint32_t window = 1 + (uint32_t) check_rng_below(r, check_rng_below(r, 2) == 0 ? 40 : 400);
    const int64_t n_batch = 1 + (int64_t) check_rng_below(r, 300), n_ctx = 300 + (int64_t) check_rng_below(r, N_CTX - 300);
    const bool no_flash = check_rng_below(r, 3) == 0;
    struct window_model x = window_model_open(arch, window);
    struct session *all = session_open(&x, n_ctx, n_ctx, no_flash); // with a batch as large as the context, the ring has all rows
    struct session *ring = session_open(&x, n_ctx, n_batch, no_flash);
    int32_t tokens[1500];
    for (int i = 0; i < N_CTX; i++) {
        tokens[i] = 10 + (int32_t) check_rng_below(r, N_VOCAB - 10);
    }
    const int64_t ring_least = window + n_batch - 1;
    assert_int_equal(all->n_ring, n_ctx);
    assert_true(ring->n_ring == n_ctx || (ring->n_ring >= ring_least && ring->n_ring <= ring_least + KV_STEP));
    assert_true(ring->caches[0].size <= all->caches[0].size);
    assert_int_equal(ring->caches[0].size < all->caches[0].size, ring->n_ring < n_ctx);
    const int64_t half = 1 + (int64_t) check_rng_below(r, (uint64_t) n_ctx - 1);
    read_both(all, ring, tokens, half, r);

    // Another batch size gives another ring size.
    struct session *next = session_open(&x, n_ctx, 1 + (int64_t) check_rng_below(r, 300), no_flash);
    assert_int_equal(session_transfer(ring, tokens, next, half + 1, half + 1, &error), half);
    read_both(all, next, tokens, n_ctx, r);

    // The text differs from token n_equal on. The common part is kept, unless the ring has overwritten rows in the window of
    // token n_equal.
    const int64_t n_equal = (int64_t) check_rng_below(r, (uint64_t) half);
    const bool is_window_lost = half > ring->n_ring && n_equal - (int64_t) window + 1 < half - ring->n_ring;
    session_reset(next);
    session_reset(all);
    assert_int_equal(session_transfer(ring, tokens, next, half, n_equal, &error), is_window_lost ? 0 : n_equal);
    if (!is_window_lost && n_equal > 0) {
        assert_true(session_decode(all, tokens, n_equal, &error));
        read_both(all, next, tokens, n_ctx, r);
    }
    session_free(next);
    session_free(ring);
    session_free(all);
    window_model_close(&x);
}

static void cases_try(const char *arch, int n_cases) {
    struct check_rng r = check_rng_new(check_seed(31));
    for (int i = 0; i < n_cases; i++) {
        case_try(arch, &r);
    }
}

static void test_all_layers(void **state) {
    (void) state;
    cases_try("mistral", N_CASES);
}

static void test_some_layers(void **state) {
    (void) state;
    static const char *const archs[] = {"gemma2", "gemma3", "gpt-oss"};
    if (getenv("BERTH_MAKE_MODEL") == NULL) {
        printf("skipped: BERTH_MAKE_MODEL is not set\n");
        skip();
    }
    for (int i = 0; i < N_ARCHS; i++) {
        cases_try(archs[i], 1);
    }
}

// The window has 100 positions; the smallest ring has 256 rows.
static void test_bytes(void **state) {
    (void) state;
    struct window_model x = window_model_open("mistral", 100);
    struct model_error error = {""};
    const struct session_params params = {
        .n_ctx = 4096, .n_batch = 64, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16, .plan_only = true};
    struct session *plan = session_new(x.model, &x.devices, &params, &error);
    assert_true(plan != NULL && session_reserve(plan, &error));
    const struct model_params *p = &x.model->params;
    const size_t row = (size_t) (2 * p->n_layer * p->n_head_kv * p->head_size) * sizeof(ggml_fp16_t);
    assert_int_equal(plan->memory[0].cache, 256 * row);
    session_free(plan);
    window_model_close(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_layers), cmocka_unit_test(test_some_layers), cmocka_unit_test(test_bytes)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
