// SPDX-License-Identifier: MIT
// test_gguf_oracle.c: compares GGUF with the reference: the same calls write the same bytes, each side reads the other's files with
// the same result, and both accept and refuse the same broken headers, with the exceptions of docs/user/differences.md.

#include "support/oracle.h"

#include "support/gguf_sample.h"

#include <sys/mman.h>
#include <sys/wait.h>

#define N_SEEDS 40
#define N_MUTANTS 6000

static struct gguf_api reference;

static bool is_quiet; // true: print nothing if the reference aborts, because ABORTED is a verdict

static void reference_aborts(const char *text) {
    if (!is_quiet) {
        fprintf(stderr, "the reference ends the process: %s\n", text);
    }
    _exit(9); // no stack trace
}

// The first log line of the reference.
static char reference_text[256];

static void reference_log(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level;
    (void) user_data;
    if (reference_text[0] == '\0') {
        snprintf(reference_text, sizeof reference_text, "%s", text);
    }
}

static bool reference_load(void) {
    void *base = oracle_load("libggml-base.so");
    if (base == NULL) {
        return false;
    }
#define X(name) \
    *(void **) &reference.name = dlsym(base, #name); \
    if (reference.name == NULL) { \
        snprintf(oracle.why, sizeof oracle.why, "the reference has no %s", #name); \
        return false; \
    }
    GGUF_API(X)
#undef X
    reference.ggml_log_set(reference_log, NULL);
    reference.ggml_set_abort_callback(reference_aborts);
    return true;
}

static void need_reference(void) {
    static bool tried, loaded;
    if (!tried) {
        tried = true;
        loaded = reference_load();
    }
    if (!loaded) {
        print_message("skipped: %s\n", oracle_why());
        skip();
    }
}

static void same_calls_same_bytes(void **state) {
    (void) state;
    need_reference();
    const uint64_t seed = check_seed(1);
    for (uint64_t i = 0; i < N_SEEDS; i++) {
        size_t sizes[2];
        unsigned char *a = gguf_sample_file(&gguf_berth, seed + i, i % 4 != 0, &sizes[0]);
        unsigned char *b = gguf_sample_file(&reference, seed + i, i % 4 != 0, &sizes[1]);
        assert_int_equal(sizes[0], sizes[1]);
        assert_memory_equal(a, b, sizes[0]);
        free(a);
        free(b);
    }
}

// Fails with the line that differs instead of both complete texts.
static void same_text(const char *a, const char *b) {
    size_t at = 0, line = 0;
    for (; a[at] == b[at] && a[at] != '\0'; at++) {
        line = a[at] == '\n' ? at + 1 : line;
    }
    if (a[at] != b[at]) {
        fail_msg("byte %zu, Berth: '%.160s', the reference: '%.160s'", at, a + line, b + line);
    }
}

static char *describe_file(const struct gguf_api *api, const char *path, int mode) {
    struct ggml_context *tensors = NULL;
    struct gguf_context *g =
        api->gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = mode == 1, .ctx = mode == 2 ? NULL : &tensors});
    if (g == NULL) {
        return strdup("refused");
    }
    char *text = gguf_describe(api, g, tensors);
    api->gguf_free(g);
    api->ggml_free(tensors);
    return text;
}

static void each_reads_the_others_files(void **state) {
    (void) state;
    need_reference();
    char path[64];
    gguf_sample_path(path);
    const uint64_t seed = check_seed(2);
    for (uint64_t i = 0; i < N_SEEDS; i++) {
        size_t size;
        unsigned char *bytes = gguf_sample_file(i % 2 == 0 ? &gguf_berth : &reference, seed + i, i % 4 > 1, &size);
        bytes[4] = i % 3 == 0 ? 2 : 3; // versions 2 and 3 differ only in their number
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(bytes, 1, size, file), size);
        assert_int_equal(fclose(file), 0);
        for (int mode = 0; mode < 3; mode++) {
            char *a = describe_file(&gguf_berth, path, mode), *b = describe_file(&reference, path, mode);
            same_text(a, b);
            assert_string_not_equal(a, "refused");
            free(a);
            free(b);
        }
        free(bytes);
    }
    unlink(path);
}

// Removes, sets and copies keys, and changes types and data. Returns a description of the context.
static char *change(const struct gguf_api *api, uint64_t seed, unsigned char **meta, size_t *meta_size) {
    struct check_rng rng = check_rng_new(seed);
    struct gguf_context *g = api->gguf_init_empty(), *h;
    struct ggml_context *tensors = NULL;
    gguf_sample_keys(api, g, &rng);
    tensors = gguf_sample_tensors(api, g, &rng);
    for (int i = 0; i < 60; i++) {
        char key[64];
        const uint64_t r = check_rng_next(&rng);
        const int64_t n_kv = api->gguf_get_n_kv(g);
        snprintf(key, sizeof key, "%s", n_kv > 0 ? api->gguf_get_key(g, (int64_t) (r >> 8) % n_kv) : "x");
        if (strcmp(key, "general.alignment") == 0) {
            continue; // a changed alignment moves the tensors immediately in Berth, but not in the reference
        }
        switch (r % 6) {
            case 0: api->gguf_remove_key(g, key); break;
            case 1: api->gguf_set_val_u32(g, key, (uint32_t) (r >> 9)); break;
            case 2: api->gguf_set_val_str(g, key, "another"); break;
            case 3: api->gguf_set_arr_data(g, key, GGUF_TYPE_UINT16, &r, 4); break;
            case 4:
                snprintf(key, sizeof key, "new.%d", i);
                api->gguf_set_val_f32(g, key, 1.5f);
                break;
            default: {
                const int64_t id = (int64_t) (r >> 8) % api->gguf_get_n_tensors(g);
                snprintf(key, sizeof key, "%s", api->gguf_get_tensor_name(g, id));
                api->gguf_set_tensor_type(g, key, r & 1 ? GGML_TYPE_F32 : GGML_TYPE_BF16);
                break;
            }
        }
    }
    h = api->gguf_init_empty();
    api->gguf_set_val_u8(h, "i8", 7);
    api->gguf_set_val_u8(h, "own", 8);
    api->gguf_set_kv(h, g);
    *meta_size = api->gguf_get_meta_size(h);
    *meta = malloc(*meta_size);
    assert_non_null(*meta);
    api->gguf_get_meta_data(h, *meta);
    char *text = gguf_describe(api, g, NULL);
    api->gguf_free(g);
    api->gguf_free(h);
    api->ggml_free(tensors);
    return text;
}

static void changes_have_the_same_effect(void **state) {
    (void) state;
    need_reference();
    const uint64_t seed = check_seed(3);
    for (uint64_t i = 0; i < N_SEEDS; i++) {
        unsigned char *meta[2];
        size_t meta_size[2];
        char *a = change(&gguf_berth, seed + i, &meta[0], &meta_size[0]);
        char *b = change(&reference, seed + i, &meta[1], &meta_size[1]);
        same_text(a, b);
        assert_int_equal(meta_size[0], meta_size[1]);
        assert_memory_equal(meta[0], meta[1], meta_size[0]);
        free(a);
        free(b);
        free(meta[0]);
        free(meta[1]);
    }
}

// ---- broken headers ----

enum verdict { UNKNOWN, ACCEPTED, REFUSED, ABORTED };

struct cases {
    const unsigned char *bytes; // bytes of a valid file
    size_t size;
    uint64_t seed;
    size_t n;
    bool cut; // case i is the first i bytes; otherwise all bytes with a few changes
};

static unsigned char *case_make(const struct cases *c, size_t i, size_t *size) {
    static const uint64_t edge_values[] = {0, 1, 2, 3, 4, 5, 8, 9, 12, 13, 31, 32, 63, 64, 65, 255, 256, 1 << 16, 1u << 31,
        UINT32_MAX, (uint64_t) 1 << 32, (uint64_t) 1 << 61, (uint64_t) 1 << 62, INT64_MAX, (uint64_t) 1 << 63, UINT64_MAX - 31,
        UINT64_MAX};
    unsigned char *copy = malloc(c->size + 1);
    assert_non_null(copy);
    memcpy(copy, c->bytes, c->size);
    *size = c->cut ? i : c->size;
    if (c->cut) {
        return copy;
    }
    struct check_rng rng = check_rng_new(c->seed + i);
    for (uint64_t k = 1 + check_rng_below(&rng, 2); k > 0; k--) {
        const size_t at = (size_t) check_rng_below(&rng, c->size - 8);
        const uint64_t number = edge_values[check_rng_below(&rng, sizeof edge_values / sizeof *edge_values)];
        switch (check_rng_below(&rng, 4)) {
            case 0: copy[at] = (unsigned char) check_rng_next(&rng); break;
            case 1: copy[at] ^= (unsigned char) (1u << check_rng_below(&rng, 8)); break;
            case 2: memcpy(copy + at, &number, 4); break;
            default: memcpy(copy + at, &number, 8); break;
        }
    }
    return copy;
}

static enum verdict judge(const struct gguf_api *api, const unsigned char *bytes, size_t size, bool with_data) {
    struct ggml_context *tensors = NULL;
    struct gguf_context *g =
        api->gguf_init_from_buffer(bytes, size, (struct gguf_init_params){.no_alloc = !with_data, .ctx = &tensors});
    api->gguf_free(g);
    if (tensors != NULL) {
        api->ggml_free(tensors);
    }
    return g != NULL ? ACCEPTED : REFUSED;
}

// The reference may abort. A child process judges cases until that happens, and another child continues after the failed case.
static void judge_reference(const struct cases *c, bool with_data, volatile unsigned char *verdicts) {
    for (size_t from = 0; from < c->n;) {
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            is_quiet = true;
            for (size_t i = from; i < c->n; i++) {
                size_t size;
                unsigned char *bytes = case_make(c, i, &size);
                verdicts[i] = ABORTED;
                verdicts[i] = (unsigned char) judge(&reference, bytes, size, with_data);
                free(bytes);
            }
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        while (from < c->n && verdicts[from] != UNKNOWN) {
            from++;
        }
    }
}

// Cases that Berth refuses and the reference accepts, by the text of Berth's error.
static const char *const stricter[] = {
    "contains a NUL",                   // in keys and names
    "it overlaps another",              // after a tensor whose size wraps in the reference
    "more than 2^63 elements or bytes", // these sizes wrap in the reference
    NULL,
};

static void verdicts_agree(struct cases c, bool with_data) {
    size_t n_accepted = 0, n_refused = 0, n_aborted = 0, n_stricter = 0, n_bad = 0;
    volatile unsigned char *verdicts = mmap(NULL, c.n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(verdicts != MAP_FAILED);
    judge_reference(&c, with_data, verdicts);
    for (size_t i = 0; i < c.n; i++) {
        size_t size;
        unsigned char *bytes = case_make(&c, i, &size);
        berth_clear_error();
        const enum verdict berth = judge(&gguf_berth, bytes, size, with_data);
        reference_text[0] = '\0';
        if (berth == ACCEPTED && verdicts[i] == REFUSED) {
            judge(&reference, bytes, size, with_data); // to get its reason
        }
        free(bytes);
        n_accepted += verdicts[i] == ACCEPTED;
        n_refused += verdicts[i] == REFUSED;
        n_aborted += verdicts[i] == ABORTED;
        if (berth == REFUSED) {
            assert_non_null(strstr(berth_last_error(), "offset"));
        }
        if ((berth == ACCEPTED) == (verdicts[i] == ACCEPTED)) {
            continue;
        }
        bool known = false;
        for (size_t k = 0; berth == REFUSED && stricter[k] != NULL; k++) {
            known |= strstr(berth_last_error(), stricter[k]) != NULL;
        }
        n_stricter += known;
        n_bad += !known;
        if (!known) {
            print_message("case %zu: the reference %s, Berth %s %s\n", i,
                verdicts[i] == ACCEPTED  ? "accepts"
                : verdicts[i] == ABORTED ? "aborts"
                                         : "refuses",
                berth == ACCEPTED ? "accepts;" : "says", berth == ACCEPTED ? reference_text : berth_last_error());
        }
    }
    munmap((void *) verdicts, c.n);
    print_message("%zu cases: the reference accepts %zu, refuses %zu, aborts on %zu; Berth is stricter on %zu\n", c.n, n_accepted,
        n_refused, n_aborted, n_stricter);
    assert_int_equal(n_bad, 0);
}

static void broken_headers(void **state) {
    (void) state;
    need_reference();
    check_quiet();
    const uint64_t seed = check_seed(4);
    struct cases c = {.seed = seed + 1000000, .n = N_MUTANTS};
    unsigned char *bytes = gguf_sample_file(&gguf_berth, seed, true, &c.size);
    struct gguf_context *g = gguf_init_from_buffer(bytes, c.size, (struct gguf_init_params){0});
    assert_non_null(g);
    c.bytes = bytes;
    c.size = gguf_get_data_offset(g); // only the header
    gguf_free(g);
    verdicts_agree(c, false);
    free(bytes);
}

static void cut_headers(void **state) {
    (void) state;
    need_reference();
    check_quiet();
    for (int with_tensors = 0; with_tensors < 2; with_tensors++) {
        struct cases c = {.cut = true};
        unsigned char *bytes = gguf_sample_file(&gguf_berth, 5, with_tensors, &c.size);
        c.bytes = bytes;
        c.n = c.size + 1;
        verdicts_agree(c, false);
        verdicts_agree(c, true);
        free(bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_calls_same_bytes),
        cmocka_unit_test(each_reads_the_others_files),
        cmocka_unit_test(changes_have_the_same_effect),
        cmocka_unit_test(broken_headers),
        cmocka_unit_test(cut_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
