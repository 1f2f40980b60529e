// SPDX-License-Identifier: MIT
// test_train.c: tests the training of models: the loss falls along the gradient; a resumed run equals an uninterrupted one bit by
// bit; saved files can be read; values that are not finite are found and do not change weights; after a failing allocation no
// memory is leaked.

#include "support/train_sample.h"

static struct model_devices devices;

static bool run_open(struct run *r, const struct train_params *p, struct model_error *error) {
    return run_open_on(r, &devices, p, error);
}

// ---- learning ----

static void test_learns(void **state) {
    (void) state;
    for (int rank = 0; rank <= 4; rank += 4) {
        struct model_error error = {""};
        struct train_params p = usual;
        struct run r;
        p.n_steps = 60;
        p.rank = rank;
        must(run_open(&r, &p, &error) && trainer_evaluate(r.t, &r.data, NULL, &error) && run_steps(&r, 60, &error) &&
             trainer_evaluate(r.t, &r.data, NULL, &error));
        print_message("rank %d: loss %.3f to %.3f\n", rank, (double) r.t->evaluations[0].loss, (double) r.t->evaluations[1].loss);
        assert_true(r.t->evaluations[1].loss < 0.6f * r.t->evaluations[0].loss);
        run_close(&r);
    }
}

// A small step along the gradient lowers the loss by the square of the gradient norm times the learning rate.
static void test_gradient(void **state) {
    (void) state;
    struct model_error error = {""};
    struct train_params p = usual;
    struct run r;
    p.optimizer = GGML_OPT_OPTIMIZER_TYPE_SGD;
    p.schedule = TRAIN_CONSTANT;
    p.n_warmup = 0, p.clip = 0, p.decay = 0, p.lr = 1e-3f;
    p.n_seq = 12; // all windows, so that every epoch has the same batch
    must(run_open(&r, &p, &error) && run_steps(&r, 1, &error));
    const double want = r.t->grad_norm * r.t->grad_norm * (double) p.lr;
    must(run_steps(&r, 1, &error));
    const double got = (double) r.t->losses[0] - (double) r.t->losses[1];
    print_message("the loss falls by %.6f, the gradient predicts %.6f\n", got, want);
    assert_true(fabs(got - want) < 0.05 * want);
    run_close(&r);
}

// train_rate returns the learning rate of a step: during the warm-up and after it, for each schedule.
static void test_rates(void **state) {
    (void) state;
    struct train_params p = {.n_steps = 110, .n_warmup = 10, .lr = 2};
    assert_true(fabsf(train_rate(&p, 0) - 0.2f) < 1e-6f && train_rate(&p, 9) == 2 && train_rate(&p, 10) == 2);
    assert_true(fabsf(train_rate(&p, 60) - 1) < 1e-6f && train_rate(&p, 109) < 0.001f);
    p.schedule = TRAIN_LINEAR;
    assert_true(fabsf(train_rate(&p, 35) - 1.5f) < 1e-6f);
    p.schedule = TRAIN_CONSTANT;
    assert_true(train_rate(&p, 100) == 2);
}

// ---- files ----

static bool state_save(const struct run *r, const char *path, struct model_error *error) {
    FILE *file = fopen(path, "wb");
    const bool ok = file != NULL && train_state_write(r->t, &r->data, file, error);
    return file != NULL && fclose(file) == 0 && ok;
}

static void test_resume(void **state) {
    (void) state;
    static const struct {
        int64_t rank;
        enum ggml_opt_optimizer_type optimizer;
    } rows[] = {{0, GGML_OPT_OPTIMIZER_TYPE_ADAMW}, {0, GGML_OPT_OPTIMIZER_TYPE_SGD}, {4, GGML_OPT_OPTIMIZER_TYPE_ADAMW}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_error error = {""};
        struct train_params p = usual, q;
        char path[] = "/tmp/berth-state-XXXXXX";
        struct run uninterrupted, first, second;
        int64_t n_done;
        close(mkstemp(path));
        p.rank = rows[i].rank;
        p.optimizer = rows[i].optimizer;
        must(run_open(&uninterrupted, &p, &error) && run_steps(&uninterrupted, 6, &error));
        must(run_open(&first, &p, &error) && run_steps(&first, 2, &error) &&
             trainer_evaluate(first.t, &first.data, NULL, &error) && run_steps(&first, 2, &error) &&
             state_save(&first, path, &error));
        run_close(&first);
        must(train_state_params(path, &q, &n_done, &error));
        assert_int_equal(n_done, 4);
        must(run_open(&second, &q, &error) && train_state_read(second.t, &second.data, path, &error) &&
             run_steps(&second, 2, &error));
        assert_int_equal(second.t->n_done, 6);
        assert_int_equal(second.t->n_evaluations, 1);
        assert_memory_equal(uninterrupted.t->losses, second.t->losses, 6 * sizeof(float));
        for (size_t k = 0; k < uninterrupted.t->n_tensors; k++) {
            assert_true(same_bytes(uninterrupted.t->tensors[k].w, second.t->tensors[k].w));
        }
        // A checkpoint of another text is refused.
        second.data.hash++;
        assert_false(train_state_read(second.t, &second.data, path, &error));
        assert_non_null(strstr(error.text, "another text"));
        run_close(&second);
        run_close(&uninterrupted);
        unlink(path);
    }
}

static void test_save(void **state) {
    (void) state;
    struct model_error error = {""};
    struct train_params p = usual;
    struct run r;
    char path[] = "/tmp/berth-saved-XXXXXX";
    close(mkstemp(path));
    for (p.rank = 0; p.rank <= 4; p.rank += 4) {
        must(run_open(&r, &p, &error) && run_steps(&r, 3, &error));
        FILE *file = fopen(path, "wb");
        must(file != NULL && train_save(r.t, file, &error) && fclose(file) == 0);
        struct model *m = model_open(p.rank == 0 ? path : model_path, &error);
        struct model_lora *l = m != NULL && p.rank > 0 ? lora_open(m, path, 1, &error) : NULL;
        must(m != NULL && (l != NULL) == (p.rank > 0));
        for (size_t i = 0; i < r.t->n_tensors; i++) {
            const struct ggml_tensor *w = r.t->tensors[i].w;
            const struct ggml_tensor *t = l == NULL ? ggml_get_tensor(berth_gguf_map_tensors(m->file), w->name)
                                                    : ggml_get_tensor(berth_gguf_map_tensors(l->file), w->name);
            assert_non_null(t);
            assert_true(same_bytes(w, t));
        }
        assert_true(l == NULL || l->pairs[0].scale == 2); // alpha 8, rank 4
        lora_free(l);
        model_free(m);
        run_close(&r);
    }
    unlink(path);
}

// ---- the picture of the losses ----

// Returns how often `part` is in `text`.
static int count_of(const char *text, const char *part) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)) != NULL; p++) {
        n++;
    }
    return n;
}

// A run of any length has a picture with finite numbers, few points and a circle per validation. The legend has one circle more.
static void test_plot(void **state) {
    (void) state;
    static const int64_t lengths[] = {0, 1, 50000};
    static float losses[50000];
    struct train_evaluation evaluations[] = {{.step = 0, .loss = 6}, {.step = 3, .loss = 5}};
    for (int i = 0; i < 50000; i++) {
        losses[i] = 4 + 1 / (float) (i + 1);
    }
    for (size_t i = 0; i < 3; i++) {
        struct trainer t = {.n_done = lengths[i], .losses = losses, .n_evaluations = i, .evaluations = evaluations};
        struct berth_stream stream;
        assert_true(berth_stream_open(&stream) && train_plot_write(&t, stream.file) && berth_stream_close(&stream));
        assert_int_equal(count_of(stream.text, "<circle"), i == 0 ? 0 : (int) i + 1);
        assert_int_equal(count_of(stream.text, "nan") + count_of(stream.text, "inf"), 0);
        assert_true(stream.size > 1000 && stream.size < 100000 && berth_ends_with(stream.text, "</svg>\n"));
        berth_stream_fini(&stream);
    }
}

// ---- values that are not finite ----

static void test_faults(void **state) {
    (void) state;
    static const struct {
        float value;
        const char *why;
    } rows[] = {{NAN, "'blk.1.ffn_up.weight' (a weight)"}, {3e38f, "step 3: the loss is not a finite number; the first tensor"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_error error = {""};
        struct run r;
        must(run_open(&r, &usual, &error) && run_steps(&r, 2, &error));
        struct ggml_tensor *bad = r.model->layers[1].up, *other = r.model->layers[0].q;
        float *before = malloc(ggml_nbytes(other));
        assert_non_null(before);
        for (int64_t k = 0; k < ggml_nelements(bad); k++) {
            ((float *) bad->data)[k] = rows[i].value;
        }
        memcpy(before, other->data, ggml_nbytes(other));
        assert_false(trainer_step(r.t, &r.data, &error));
        if (strstr(error.text, rows[i].why) == NULL || (i == 1 && strstr(error.text, "'blk.1.ffn.up' (MUL_MAT)") == NULL)) {
            print_error("%s\n", error.text);
            fail();
        }
        assert_memory_equal(before, other->data, ggml_nbytes(other));
        assert_int_equal(r.t->n_done, 2);
        free(before);
        run_close(&r);
    }
}

static void test_refused(void **state) {
    (void) state;
    struct model_error error = {""};
    struct train_params p = usual;
    struct run r;
    p.rank = 1000;
    assert_false(run_open(&r, &p, &error));
    assert_non_null(strstr(error.text, "rank 1000"));
    run_close(&r);
    struct train_data few = {0};
    error.text[0] = '\0';
    assert_true(token_push(&few.tokens, 1, &error));
    assert_false(train_data_cut(&few, 4, &error));
    assert_non_null(strstr(error.text, "1 tokens"));
    train_data_fini(&few);
    // The selection of experts has no gradient.
    struct sample_model x = sample_model_default();
    char path[] = "/tmp/berth-model-XXXXXX";
    x.n_expert = 4;
    error.text[0] = '\0';
    sample_model_write(&x, path);
    struct model *experts = model_open(path, &error);
    assert_true(experts != NULL && model_place(experts, &devices, false, NULL, NULL, &error));
    assert_null(trainer_new(experts, &devices, &usual, &error));
    assert_non_null(strstr(error.text, "4 experts"));
    model_free(experts);
    unlink(path);
    // The weights of a quantised model cannot be trained.
    error.text[0] = '\0';
    struct model *m = model_open("tests/data/tales-3m-q8_0.gguf", &error);
    assert_true(m != NULL && model_place(m, &devices, false, NULL, NULL, &error));
    assert_null(trainer_new(m, &devices, &usual, &error));
    assert_non_null(strstr(error.text, "--lora"));
    model_free(m);
}

// ---- texts ----

static void test_texts(void **state) {
    (void) state;
    static const char text[] = "One a\nTwo b\n \nThree c\n\n\nFour d\n";
    static const struct {
        enum train_split split;
        int64_t n;
    } rows[] = {{TRAIN_SPLIT_FILE, 1}, {TRAIN_SPLIT_LINE, 4}, {TRAIN_SPLIT_BLANK, 3}};
    struct model_error error = {""};
    struct model *m = model_open("tests/data/tales-3m-q8_0.gguf", &error);
    struct vocab *vocab = m != NULL ? vocab_new(berth_gguf_map_meta(m->file), m->params.n_vocab, &error) : NULL;
    assert_non_null(vocab);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct train_data d = {0};
        must(train_data_add(&d, vocab, text, strlen(text), rows[i].split, &error));
        int64_t n_begins = 0, n_ends = 0;
        for (size_t k = 0; k < d.tokens.n; k++) {
            n_begins += d.tokens.ids[k] == vocab->bos;
            n_ends += d.tokens.ids[k] == vocab->eos;
        }
        assert_int_equal(d.n_texts, rows[i].n);
        assert_int_equal(n_begins, rows[i].n);
        assert_int_equal(n_ends, rows[i].n);
        train_data_fini(&d);
    }
    // Each epoch uses every window once, in another order.
    struct train_data d = {0};
    must(data_make(&d, &error));
    int seen[3][12], n_moved = 0;
    for (int e = 0; e < 3; e++) {
        memset(seen[e], -1, sizeof seen[e]);
        for (int k = 0; k < 12; k++) {
            const int64_t at = (train_data_window(&d, 3, e * 12 + k) - d.tokens.ids) / N_CTX;
            assert_int_equal(seen[e][at], -1);
            seen[e][at] = k;
        }
        for (int k = 0; e > 0 && k < 12; k++) {
            n_moved += seen[e][k] != seen[e - 1][k];
        }
    }
    assert_true(n_moved > 8);
    train_data_fini(&d);
    vocab_free(vocab);
    model_free(m);
}

// ---- damaged and foreign checkpoints ----

static bool bytes_read(const char *path, unsigned char **bytes, size_t *size) {
    FILE *file = fopen(path, "rb");
    assert_true(file != NULL && fseek(file, 0, SEEK_END) == 0);
    *size = (size_t) ftell(file);
    *bytes = malloc(*size);
    rewind(file);
    const bool ok = fread(*bytes, 1, *size, file) == *size;
    fclose(file);
    return ok;
}

static void bytes_write(const char *path, const unsigned char *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_true(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

// A file with a changed byte anywhere, a truncated file and a longer file are refused.
static void test_damage(void **state) {
    (void) state;
    struct model_error error = {""};
    char path[] = "/tmp/berth-state-XXXXXX";
    struct check_rng rng = check_rng_new(check_seed(45));
    struct run r;
    unsigned char *bytes;
    size_t size;
    close(mkstemp(path));
    must(run_open(&r, &usual, &error) && run_steps(&r, 2, &error) && state_save(&r, path, &error));
    assert_true(bytes_read(path, &bytes, &size));
    for (int i = 0; i < 300; i++) {
        const size_t at = i < 32 ? (size_t) i * (size - 1) / 31 : check_rng_below(&rng, size);
        const unsigned char right = bytes[at];
        struct train_params p;
        error = (struct model_error){""};
        bytes[at] ^= (unsigned char) (1u << check_rng_below(&rng, 8));
        bytes_write(path, bytes, size);
        bytes[at] = right;
        if (train_state_read(r.t, &r.data, path, &error)) {
            print_error("byte %zu of %zu\n", at, size);
            fail();
        }
        assert_true(error.text[0] != '\0');
        assert_false(train_state_params(path, &p, NULL, &error));
    }
    for (size_t n = 1; n < size; n = 2 * n + 7) {
        error = (struct model_error){""};
        bytes_write(path, bytes, size - n);
        assert_false(train_state_read(r.t, &r.data, path, &error));
    }
    bytes = realloc(bytes, size + 1);
    bytes[size] = 0;
    error = (struct model_error){""};
    bytes_write(path, bytes, size + 1);
    assert_false(train_state_read(r.t, &r.data, path, &error));
    assert_non_null(strstr(error.text, "damaged"));
    error = (struct model_error){""};
    bytes_write(path, bytes, size);
    must(train_state_read(r.t, &r.data, path, &error));
    // A checkpoint of version 1, which has no checksum, is refused.
    unsigned char *version = memmem(bytes, size, "train.version", 13);
    assert_non_null(version);
    version[13 + 4] = 1; // after the type of the key
    error = (struct model_error){""};
    bytes_write(path, bytes, size - 8);
    assert_false(train_state_read(r.t, &r.data, path, &error));
    assert_non_null(strstr(error.text, "format 1"));
    free(bytes);
    run_close(&r);
    unlink(path);
}

static void other_base(struct gguf_context *g, void *x) {
    (void) x;
    gguf_set_val_f32(g, "llama.rope.freq_base", 5000);
}

// A checkpoint of an adapter belongs to the weights with which it was trained. A checkpoint of all weights belongs to the
// parameters of the model.
static void test_other_model(void **state) {
    (void) state;
    static const char *const whats[] = {"weights", "rope"};
    for (int kind = 0; kind < 4; kind++) {
        const bool is_lora = kind < 2, is_rope = kind % 2 == 1;
        struct sample_model other = sample_model_default();
        struct model_error error = {""};
        struct train_params p = usual;
        char path[] = "/tmp/berth-state-XXXXXX";
        char own[sizeof model_path];
        struct run r;
        close(mkstemp(path));
        p.rank = is_lora ? 4 : 0;
        must(run_open(&r, &p, &error) && run_steps(&r, 2, &error) && state_save(&r, path, &error));
        run_close(&r);
        strcpy(own, model_path);
        strcpy(model_path, "/tmp/berth-model-XXXXXX");
        other.n_layer = 2;
        other.last = is_rope ? other_base : NULL;
        sample_model_write(&other, model_path);
        if (!is_rope) { // change the last weight
            unsigned char *bytes;
            size_t size;
            assert_true(bytes_read(model_path, &bytes, &size));
            bytes[size - 1] ^= 1;
            bytes_write(model_path, bytes, size);
            free(bytes);
        }
        must(run_open(&r, &p, &error));
        const bool ok = train_state_read(r.t, &r.data, path, &error);
        if (ok != (!is_lora && !is_rope)) {
            print_error("rank %d, other %s: %s\n", (int) p.rank, whats[is_rope], ok ? "is accepted" : error.text);
            fail();
        }
        assert_true(ok || strstr(error.text, "another model") != NULL);
        run_close(&r);
        unlink(model_path);
        strcpy(model_path, own);
        unlink(path);
    }
}

// ---- failing allocations ----

static bool train_save_resume(const char *path, const struct train_params *p, float *loss, struct model_error *error) {
    struct run r;
    bool ok = run_open(&r, p, error) && run_steps(&r, 1, error) && trainer_evaluate(r.t, &r.data, NULL, error) &&
              state_save(&r, path, error) && train_state_read(r.t, &r.data, path, error) && run_steps(&r, 1, error);
    FILE *file = ok ? fopen(path, "wb") : NULL;
    ok = file != NULL && train_save(r.t, file, error);
    *loss = ok ? r.t->losses[1] : 0;
    if (file != NULL) {
        fclose(file);
    }
    run_close(&r);
    return ok;
}

static void test_no_memory(void **state) {
    (void) state;
    char path[] = "/tmp/berth-state-XXXXXX";
    close(mkstemp(path));
    for (int kind = 0; kind < 2; kind++) {
        struct train_params p = usual;
        float want = 0, got;
        int64_t n_made = 1, n_failed = 0;
        p.rank = kind == 0 ? 0 : 4;
        for (int64_t at = 0; at <= n_made; at += at > 0 ? CHECK_PART : 1) { // 0: no failure, allocations are counted
            struct model_error error = {""};
            berth_alloc_watch(true);
            berth_alloc_fail_at(at);
            const bool ok = train_save_resume(path, &p, &got, &error);
            if (at == 0) {
                must(ok);
                want = got;
                n_made = berth_alloc_made();
            }
            berth_alloc_fail_at(0);
            assert_true(ok || error.text[0] != '\0');
            assert_true(!ok || got == want);
            n_failed += !ok;
            assert_int_equal(berth_alloc_alive(), 0);
        }
        print_message(
            "rank %d: %lld of %lld failed allocations caused an error\n", (int) p.rank, (long long) n_failed, (long long) n_made);
        assert_true(n_failed > n_made / CHECK_PART / 2);
    }
    berth_alloc_watch(false);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_learns), cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_rates), cmocka_unit_test(test_resume), cmocka_unit_test(test_save), cmocka_unit_test(test_plot),
        cmocka_unit_test(test_faults), cmocka_unit_test(test_refused), cmocka_unit_test(test_texts),
        cmocka_unit_test(test_damage), cmocka_unit_test(test_other_model), cmocka_unit_test(test_no_memory)};
    struct model_error error = {""};
    struct sample_model m = sample_model_default();
    check_quiet();
    m.n_layer = 2;
    sample_model_write(&m, model_path);
    if (!model_devices_open(&devices, "CPU", 2, &error)) {
        print_error("%s\n", error.text);
        return 1;
    }
    const int result = cmocka_run_group_tests(tests, NULL, NULL);
    model_devices_close(&devices);
    unlink(model_path);
    return result;
}
