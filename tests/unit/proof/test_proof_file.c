// SPDX-License-Identifier: MIT
// test_proof_file.c: tests files with proofs: compressed and not, with and without a plan, refused, missing, on a full disk, and
// with each allocation failing once. prop_proof tests the checker itself.

#include "proof/file.h"
#include "support/check.h"

#include <unistd.h>

static const char sample[] = "id,lower,upper,size,offset,pool\na,0,2,10,0,0\nb,1,3,20,10,0\nc,0,1,5,0,1\nd,1,2,5,0,1\n";

static struct berth_plan_set *set_read(const char *text) {
    struct berth_plan_set *set;
    assert_int_equal(berth_plan_read_csv(text, strlen(text), "sample", &set), GGML_STATUS_SUCCESS);
    return set;
}

// Writes the proof of the bounds of the set. Returns whether planning and writing succeeded.
static bool proof_write(const struct berth_plan_set *set, const char *path, bool is_gz) {
    struct proof_writer writer;
    struct berth_plan_report report;
    struct berth_plan_params params = {0};
    uint64_t offsets[4];
    const char *why;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(proof_writer_init(&writer, file, is_gz, &why));
    params.proof = proof_writer_write;
    params.proof_data = &writer;
    const bool is_planned = berth_plan_solve(set->items, set->n_items, &params, offsets, &report) == GGML_STATUS_SUCCESS;
    const bool is_written = proof_writer_fini(&writer);
    return fclose(file) == 0 && is_planned && is_written;
}

static void test_files(void **state) {
    (void) state;
    struct berth_plan_set *set = set_read(sample);
    struct proof_result r;
    char path[] = "/tmp/berth-proof-XXXXXX";
    close(mkstemp(path));
    for (int is_gz = 0; is_gz < 2; is_gz++) {
        assert_true(proof_write(set, path, is_gz == 1));
        assert_int_equal(berth_file_starts_with(path, "\x1f\x8b"), is_gz);
        assert_true(proof_file_check(path, set, true, &r));
        assert_true(r.is_valid && r.is_optimal && r.bound == 35);
        assert_true(proof_file_check(path, set, false, &r));
        assert_true(r.is_valid && !r.is_optimal && r.bound == 35);
        set->offsets[1] = 20; // a gap
        assert_true(proof_file_check(path, set, true, &r));
        assert_true(r.is_valid && !r.is_optimal && r.bound == 35);
        set->offsets[1] = 10;
        for (int64_t n = 1, is_complete = 0; !is_complete; n++) {
            berth_alloc_watch(true);
            berth_alloc_fail_at(n);
            is_complete = proof_file_check(path, set, true, &r);
            berth_alloc_fail_at(0);
            assert_true(is_complete ? r.is_optimal : strcmp(r.why, "out of memory") == 0);
            assert_int_equal(berth_alloc_alive(), 0);
        }
    }
    struct berth_plan_set *other = set_read("id,lower,upper,size\na,0,2,10\n");
    assert_true(proof_file_check(path, other, false, &r));
    assert_true(!r.is_valid && strncmp(r.why, "line ", 5) == 0);
    berth_plan_set_free(other);
    unlink(path);
    berth_plan_set_free(set);
}

static void test_failures(void **state) {
    (void) state;
    struct berth_plan_set *set = set_read(sample);
    struct proof_result r;
    assert_false(proof_file_check("/tmp/berth-none", set, true, &r));
    assert_string_equal(r.why, "cannot be opened: No such file or directory");
    if (access("/dev/full", W_OK) == 0) {
        assert_false(proof_write(set, "/dev/full", false));
        assert_false(proof_write(set, "/dev/full", true));
    }
    berth_plan_set_free(set);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_files), cmocka_unit_test(test_failures)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
