// SPDX-License-Identifier: MIT
// A layer with a window keeps a ring of rows: whatever window, batches, steps and context, what it says is what a session says
// that keeps every row; what was kept in a file goes on in a session of another ring.

#include "support/model_sample.h"

#define N_CASES check_cases(8)
#define N_ARCHS check_cases(3)
#define N_CTX (CHECK_PART > 1 ? 700 : 1500) // several times around the smallest ring, 256 rows
#define N_VOCAB 512
#define MAX_ERROR 1e-7 // gemma's GELU is a table of halves; a position too many or too few is far more

struct shared {
    struct model_devices devices;
    struct model *model;
};

static void window_put(struct gguf_context *g, void *window) {
    gguf_set_val_u32(g, "mistral.attention.sliding_window", *(uint32_t *) window);
}

// mistral: every layer has the window; gemma2, gemma3, gpt-oss: some.
static struct shared shared_open(const char *arch, uint32_t window) {
    struct shared x = {0};
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

static void shared_close(struct shared *x) {
    model_free(x->model);
    model_devices_close(&x->devices);
}

static struct session *session_open(const struct shared *x, int64_t n_ctx, int64_t n_batch, bool no_flash) {
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

static void same(const struct session *a, const struct session *b, const char *what) {
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

// Both read the tokens up to `to` in the same steps, and say the same behind each.
static void read_both(struct session *all, struct session *ring, const int32_t *tokens, int64_t to, struct check_rng *r) {
    struct model_error error = {""};
    while (ring->n_past < to) {
        const int64_t past = ring->n_past, left = to - past, batch = ring->params.n_batch;
        const int64_t step = check_rng_below(r, 4) == 0 ? 1 : 1 + (int64_t) check_rng_below(r, (uint64_t) batch);
        const int64_t n = step < left ? step : left;
        assert_true(session_decode(ring, tokens + past, n, &error));
        assert_true(session_decode(all, tokens + past, n, &error));
        same(all, ring, "reading");
    }
}

// What `from` has read of the tokens, as a file, into another session, whose text is n long and the same up to `equal`.
static int64_t hand_over(
    const struct session *from, const int32_t *tokens, struct session *to, int64_t n, int64_t equal, struct model_error *error) {
    int32_t *text = malloc((size_t) n * sizeof *text);
    FILE *file = tmpfile();
    assert_true(text != NULL && file != NULL);
    for (int64_t i = 0; i < n; i++) {
        text[i] = i < equal ? tokens[i] : (tokens[i] + 1) % N_VOCAB;
    }
    assert_true(session_save(from, tokens, from->n_past, file, error));
    rewind(file);
    bool is_old;
    assert_true(session_load(to, text, n, file, &is_old, error));
    const int64_t kept = to->n_past;
    assert_int_equal(fgetc(file) == EOF, kept > 0); // all of it was read, or no row
    fclose(file);
    free(text);
    return kept;
}

static void case_try(const char *arch, struct check_rng *r) {
    struct model_error error = {""};
    const uint32_t window = 1 + (uint32_t) check_rng_below(r, check_rng_below(r, 2) == 0 ? 40 : 400);
    const int64_t n_batch = 1 + (int64_t) check_rng_below(r, 300), n_ctx = 300 + (int64_t) check_rng_below(r, N_CTX - 300);
    const bool no_flash = check_rng_below(r, 3) == 0;
    struct shared x = shared_open(arch, window);
    struct session *all = session_open(&x, n_ctx, n_ctx, no_flash); // a batch of all leaves no row out
    struct session *ring = session_open(&x, n_ctx, n_batch, no_flash);
    int32_t tokens[1500];
    for (int i = 0; i < N_CTX; i++) {
        tokens[i] = 10 + (int32_t) check_rng_below(r, N_VOCAB - 10);
    }
    const int64_t room = window + n_batch - 1;
    assert_int_equal(all->n_ring, n_ctx);
    assert_true(ring->n_ring == n_ctx || (ring->n_ring >= room && ring->n_ring <= room + KV_STEP));
    assert_true(ring->caches[0].size <= all->caches[0].size);
    assert_int_equal(ring->caches[0].size < all->caches[0].size, ring->n_ring < n_ctx);
    const int64_t half = 1 + (int64_t) check_rng_below(r, (uint64_t) n_ctx - 1);
    read_both(all, ring, tokens, half, r);

    // Into a session of another batch, and so of another ring: it goes on as if it had read all by itself.
    struct session *next = session_open(&x, n_ctx, 1 + (int64_t) check_rng_below(r, 300), no_flash);
    assert_int_equal(hand_over(ring, tokens, next, half + 1, half + 1, &error), half);
    read_both(all, next, tokens, n_ctx, r);

    // A text that differs from some token on: what is common, unless the window looks further than the rows reach.
    const int64_t equal = (int64_t) check_rng_below(r, (uint64_t) half);
    const bool is_far = half > ring->n_ring && equal - (int64_t) window + 1 < half - ring->n_ring;
    session_reset(next);
    session_reset(all);
    assert_int_equal(hand_over(ring, tokens, next, half, equal, &error), is_far ? 0 : equal);
    if (!is_far && equal > 0) {
        assert_true(session_decode(all, tokens, equal, &error));
        read_both(all, next, tokens, n_ctx, r);
    }
    session_free(next);
    session_free(ring);
    session_free(all);
    shared_close(&x);
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
        printf("skipped: BERTH_MAKE_MODEL names no maker of models\n");
        skip();
    }
    for (int i = 0; i < N_ARCHS; i++) {
        cases_try(archs[i], 1);
    }
}

// Planned and for real, the cache has the bytes of its rows: a window's layers have fewer.
static void test_bytes(void **state) {
    (void) state;
    struct shared x = shared_open("mistral", 100);
    struct model_error error = {""};
    const struct session_params params = {
        .n_ctx = 4096, .n_batch = 64, .cache_k = GGML_TYPE_F16, .cache_v = GGML_TYPE_F16, .plan_only = true};
    struct session *plan = session_new(x.model, &x.devices, &params, &error);
    assert_true(plan != NULL && session_reserve(plan, &error));
    const struct model_params *p = &x.model->params;
    const size_t row = (size_t) (2 * p->n_layer * p->n_head_kv * p->head_size) * sizeof(ggml_fp16_t);
    assert_int_equal(plan->memory[0].cache, 256 * row);
    session_free(plan);
    shared_close(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_layers), cmocka_unit_test(test_some_layers), cmocka_unit_test(test_bytes)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
