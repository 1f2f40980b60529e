// SPDX-License-Identifier: MIT
// prop_proof_budget.c: proofs that no schedule keeps a memory limit (src/proof/budget.c), for small random graphs at every limit. If
// the solver finds that there is no schedule, its proof must be accepted. If there is one by brute force, no proof may be accepted: not
// the one of a lower limit, and not a damaged one. BERTH_SEED=n repeats a run.

#include "budget_brute.h"
#include "proof/budget.h"

#include <inttypes.h>

#define TEXT_MAX ((size_t) 1 << 22)

struct text {
    char *bytes; // [TEXT_MAX]
    size_t n, at;
    int64_t left; // calls of text_write until one fails
};

static struct text text_new(void) {
    return (struct text){.bytes = malloc(TEXT_MAX), .left = INT64_MAX};
}

static bool text_write(const char *bytes, size_t size, void *user) {
    struct text *t = user;
    if (--t->left < 0 || size > TEXT_MAX - t->n) {
        return false;
    }
    memcpy(t->bytes + t->n, bytes, size);
    t->n += size;
    return true;
}

static size_t text_read(char *to, size_t size, void *user) {
    struct text *t = user;
    const size_t n = t->n - t->at < size ? t->n - t->at : size;
    memcpy(to, t->bytes + t->at, n);
    t->at += n;
    return n;
}

static struct proof proof;

static bool text_check(struct text *t, const struct berth_budget_op *ops, int64_t n, const struct berth_budget_params *params) {
    t->at = 0;
    proof_init(&proof, NULL, 0, text_read, t);
    const bool is_valid = proof_budget(&proof, ops, n, params);
    berth_arrays_free(&proof.mem);
    return is_valid;
}

// Makes the text of a proof with the right checksum from its lines between `budget` and `end`.
static void text_make(struct text *t, const char *lines, size_t size) {
    static const char header[] = "berth-proof 1\nbudget\n";
    uint32_t a = 1, b = 0;
    t->n = 0;
    text_write(header, sizeof header - 1, t);
    text_write(lines, size, t);
    for (size_t i = 0; i < t->n; i++) {
        a = (a + (unsigned char) t->bytes[i]) % 65521;
        b = (b + a) % 65521;
    }
    t->n += (size_t) snprintf(t->bytes + t->n, TEXT_MAX - t->n, "end %" PRIu32 "\n", b << 16 | a);
}

// Changes a digit of the lines between `budget` and `end`, or removes a line of a state.
static void text_damage(const struct text *from, struct text *to) {
    static char lines[TEXT_MAX];
    const size_t begin = 21; // after the line `budget`
    size_t size = from->n - begin;
    memcpy(lines, from->bytes + begin, size);
    while (memcmp(lines + size - 4, "end ", 4) != 0) {
        size--;
    }
    size -= 4;
    const size_t at = brute_random(size);
    size_t n_states, skip = 0;
    if (brute_random(2) == 0 && sscanf(lines, "states %zu", &n_states) == 1 && n_states > 1) {
        const size_t gone = brute_random(n_states) + 1;
        char *line = lines, *end = (char *) memchr(lines, '\n', size) + 1;
        for (size_t k = 0; k < gone; k++) {
            line = end;
            end = (char *) memchr(line, '\n', size) + 1;
        }
        memmove(line, end, size - (size_t) (end - lines));
        size -= (size_t) (end - line);
        static char first[TEXT_MAX];
        skip = (size_t) ((char *) memchr(lines, '\n', size) - lines);
        const size_t n = (size_t) snprintf(first, sizeof first, "states %zu", n_states - 1);
        memcpy(first + n, lines + skip, size - skip);
        text_make(to, first, size - skip + n);
        return;
    }
    if (lines[at] >= '0' && lines[at] <= '9') {
        lines[at] = (char) ('0' + brute_random(10));
    }
    text_make(to, lines, size);
}

static void fail_with(const struct budget_case *c, uint64_t budget, const struct text *t, const char *what) {
    case_print(c, budget);
    printf("%s: %s\n%.*s", what, proof.why, (int) t->n, t->bytes);
    fail();
}

static void cases_prove(bool has_spill, int n) {
    struct case_queue *q = case_queue_new();
    struct budget_case c;
    struct text t = text_new(), none = text_new(), damaged = text_new();
    int n_proofs = 0, n_states = 0, n_refused = 0;
    for (int i = 0; i < n; i++) {
        case_make(&c, 2 + (int32_t) case_roll(has_spill ? 5 : BUDGET_MAX - 1), has_spill);
        none.n = 0;
        for (uint64_t budget = 0; budget <= case_total(&c); budget++) {
            const bool is_possible = case_least(q, &c, budget) != BUDGET_NEVER;
            struct berth_budget_result *r = NULL;
            const struct berth_budget_params params = {.pools = c.pools,
                .n_pools = c.n_pools,
                .max_nodes = 1000000,
                .live_only = true,
                .proof = text_write,
                .proof_data = &t};
            t.n = 0;
            c.pools[0].limit = budget;
            assert_int_equal(berth_budget_solve(c.ops, c.n, &params, &r), GGML_STATUS_SUCCESS);
            assert_true(r->proven && r->fits == is_possible && (t.n > 0) == !is_possible);
            berth_budget_free(r);
            if (!is_possible) {
                if (!text_check(&t, c.ops, c.n, &params)) {
                    fail_with(&c, budget, &t, "the proof is refused");
                }
                n_proofs++;
                n_states += proof.n_steps > 0;
                memcpy(none.bytes, t.bytes, t.n);
                none.n = t.n;
                continue;
            }
            if (none.n > 0 && text_check(&none, c.ops, c.n, &params)) {
                fail_with(&c, budget, &none, "the proof of a lower limit is accepted");
            }
            for (int k = 0; none.n > 0 && k < 20; k++, n_refused++) {
                text_damage(&none, &damaged);
                if (text_check(&damaged, c.ops, c.n, &params)) {
                    fail_with(&c, budget, &damaged, "a damaged proof of a false claim is accepted");
                }
            }
            break;
        }
    }
    print_message("%d proofs, %d with states; %d damaged proofs of false claims refused\n", n_proofs, n_states, n_refused);
    assert_true(n_states > 0);
    case_queue_free(q);
    free(t.bytes);
    free(none.bytes);
    free(damaged.bytes);
}

static void test_recompute(void **state) {
    (void) state;
    brute_seed = check_seed(1);
    cases_prove(false, check_cases(800));
}

static void test_spill(void **state) {
    (void) state;
    brute_seed = check_seed(2);
    cases_prove(true, check_cases(100));
}

// A chain of 5 ops in which each reads the one before, and the last one also the first.
static struct budget_case chain_case(void) {
    struct budget_case c = {.n = 5, .n_pools = 1};
    for (int32_t i = 0; i < c.n; i++) {
        c.ops[i] = (struct berth_budget_op){.srcs = c.srcs[i], .n_srcs = i > 0, .size = 10, .cost = 1};
        c.srcs[i][0] = i - 1;
    }
    c.ops[0].flags = BERTH_BUDGET_INPUT;
    c.ops[4].n_srcs = 2;
    c.srcs[4][1] = 1;
    c.pools[0].limit = 29;
    return c;
}

static bool lines_check(const struct budget_case *c, const char *lines) {
    struct text t = text_new();
    struct budget_case own = *c;
    for (int32_t i = 0; i < own.n; i++) {
        own.ops[i].srcs = own.srcs[i];
    }
    const struct berth_budget_params params = {.pools = own.pools, .n_pools = own.n_pools};
    text_make(&t, lines, strlen(lines));
    const bool is_valid = text_check(&t, own.ops, own.n, &params);
    free(t.bytes);
    return is_valid;
}

// The three reasons in bytes count what is in memory, and nothing else.
static void test_bytes(void **state) {
    (void) state;
    struct budget_case c = chain_case();
    assert_true(lines_check(&c, "op 0 4\n")); // its sources 3 and 1, and its result
    assert_false(lines_check(&c, "op 0 3\n"));
    assert_false(lines_check(&c, "op 0 0\n"));
    assert_non_null(strstr(proof.why, "op 0 is an input"));
    assert_false(lines_check(&c, "op 1 4\n"));
    assert_false(lines_check(&c, "op 0 5\n"));
    c.pools[0].limit = 30;
    assert_false(lines_check(&c, "op 0 4\n"));
    assert_non_null(strstr(proof.why, "30 bytes are within the limit"));
    c.pools[0].limit = 20;
    c.ops[4].inplace = 1;
    assert_false(lines_check(&c, "op 0 4\n"));
    c.pools[0].limit = 19;
    assert_true(lines_check(&c, "op 0 4\n"));
    c.pools[0].limit = 9;
    assert_true(lines_check(&c, "inputs 0\n"));
    assert_true(lines_check(&c, "kept 0\n"));
    c.pools[0].limit = 10;
    assert_false(lines_check(&c, "inputs 0\n"));
    assert_false(lines_check(&c, "kept 0\n"));
    assert_false(lines_check(&c, "states 0\n"));
    assert_false(lines_check(&c, "bound 1\n"));
    c.pools[0].limit = 9;
    assert_false(lines_check(&c, "inputs 0 0\n"));
    assert_false(lines_check(&c, "op 0\n4\n"));
    assert_non_null(strstr(proof.why, "too many or too few numbers"));
    assert_false(lines_check(&c, "states 16777217\n"));
    assert_non_null(strstr(proof.why, "a number is above 16777216"));
    assert_false(lines_check(&c, "states 1\n31 0 32\n"));
    assert_non_null(strstr(proof.why, "a number is above 31"));
}

// Ops that contradict each other are refused.
static void test_ops(void **state) {
    (void) state;
    struct budget_case c = chain_case();
    c.srcs[2][0] = 2;
    assert_false(lines_check(&c, "op 0 4\n"));
    assert_non_null(strstr(proof.why, "op 2 reads value 2"));
    c.srcs[2][0] = 5;
    assert_false(lines_check(&c, "op 0 4\n"));
    c = chain_case();
    c.ops[3].until = 5;
    assert_false(lines_check(&c, "op 0 4\n"));
    c = chain_case();
    c.ops[1].size = c.ops[2].size = (uint64_t) 1 << 61;
    c.ops[3].size = 1;
    assert_false(lines_check(&c, "op 0 4\n"));
    assert_non_null(strstr(proof.why, "2^62"));
    c = chain_case();
    c.n = 0;
    assert_false(lines_check(&c, "op 0 4\n"));
    assert_false(lines_check(&c, "states 0\n"));
}

// Numbers that are out of range and missing arrays are refused. They are not read.
static void test_range(void **state) {
    (void) state;
    struct budget_case c = chain_case();
    struct text t = text_new();
    const char lines[] = "op 0 4\n";
    const struct berth_budget_params params = {.pools = c.pools, .n_pools = 1};
    struct berth_budget_params wrong = params;
    for (int32_t i = 0; i < c.n; i++) {
        c.ops[i].srcs = c.srcs[i];
    }
    text_make(&t, lines, sizeof lines - 1);
    assert_true(text_check(&t, c.ops, c.n, &params));
    assert_false(text_check(&t, c.ops, -1, &params));
    assert_false(text_check(&t, c.ops, INT64_MAX, &params));
    assert_false(proof.mem.has_failed);
    assert_false(text_check(&t, NULL, c.n, &params));
    wrong.n_pools = -1;
    assert_false(text_check(&t, c.ops, c.n, &wrong));
    wrong = (struct berth_budget_params){.n_pools = 1};
    assert_false(text_check(&t, c.ops, c.n, &wrong));
    c.ops[2].srcs = NULL;
    assert_false(text_check(&t, c.ops, c.n, &params));
    c.ops[2].n_srcs = -1;
    assert_false(text_check(&t, c.ops, c.n, &params));
    free(t.bytes);
}

// The reason `op` takes linear time, also for two ops that read 50,000 inputs.
static void test_large(void **state) {
    (void) state;
    const int32_t n_inputs = 50000, n = n_inputs + 2;
    struct berth_budget_op *ops = calloc((size_t) n, sizeof *ops);
    int32_t *srcs = malloc((size_t) n * sizeof *srcs);
    char lines[32];
    struct text t = text_new();
    struct berth_budget_pool pool = {.limit = (uint64_t) n + 49999};
    const struct berth_budget_params params = {.pools = &pool, .n_pools = 1};
    for (int32_t i = 0; i < n; i++) {
        ops[i] = (struct berth_budget_op){.size = i < n_inputs ? 1 : 50000, .flags = i < n_inputs ? BERTH_BUDGET_INPUT : 0};
        srcs[i] = i;
    }
    ops[n_inputs].srcs = srcs;
    ops[n_inputs].n_srcs = n_inputs;
    ops[n_inputs].inplace = UINT64_MAX;
    ops[n - 1].srcs = srcs;
    ops[n - 1].n_srcs = n - 1;
    text_make(&t, lines, (size_t) snprintf(lines, sizeof lines, "op 0 %d\n", n - 1));
    assert_true(text_check(&t, ops, n, &params)); // 150,000 bytes
    text_make(&t, lines, (size_t) snprintf(lines, sizeof lines, "op 0 %d\n", n - 2));
    assert_false(text_check(&t, ops, n, &params)); // 100,000 bytes
    pool.limit = 99999;
    assert_true(text_check(&t, ops, n, &params));
    free(ops);
    free(srcs);
    free(t.bytes);
}

// Each set of the sources of an op is a state. If an op has more than 12 of them, the exact search gives up, and states are refused.
static void test_wide(void **state) {
    (void) state;
    enum { N = 34 };
    const int32_t n_inputs = 30;
    struct berth_budget_op ops[N];
    int32_t srcs[N], chain[N];
    struct text t = text_new();
    struct berth_budget_result *r = NULL;
    struct berth_budget_pool pool = {.limit = 51};
    const struct berth_budget_params params = {
        .pools = &pool, .n_pools = 1, .live_only = true, .proof = text_write, .proof_data = &t};
    for (int32_t i = 0; i < N; i++) {
        srcs[i] = i;
        chain[i] = i - 1;
        ops[i] = (struct berth_budget_op){.srcs = &chain[i], .n_srcs = i > n_inputs, .size = 10, .cost = 1};
        if (i < n_inputs) {
            ops[i].size = 1;
            ops[i].flags = BERTH_BUDGET_INPUT;
        }
    }
    ops[n_inputs].srcs = srcs;
    ops[n_inputs].n_srcs = n_inputs;
    srcs[n_inputs + 1] = N - 2;
    ops[N - 1].srcs = srcs; // the last op reads the inputs, the first result and the last one; the first one is recomputed
    ops[N - 1].n_srcs = n_inputs + 2;
    ops[N - 1].size = 1;
    assert_int_equal(berth_budget_solve(ops, N, &params, &r), GGML_STATUS_SUCCESS);
    assert_true(r->fits && r->n_recomputed == 1 && r->n_nodes == 0);
    berth_budget_free(r);
    text_make(&t, "states 0\n", 9);
    assert_false(text_check(&t, ops, N, &params));
    assert_non_null(strstr(proof.why, "more than 12 sources"));
    free(t.bytes);
}

// An input with the flag ONCE has no place in the order of its group, in whichever order the solver takes the ops.
static void test_input_once(void **state) {
    (void) state;
    static const int32_t srcs[][2] = {{0}, {0}, {0}, {0}, {0, 2}, {4, 2}, {3}};
    static const uint64_t sizes[] = {0, 4, 4, 2, 1, 1, 0};
    static const int64_t n_srcs[] = {0, 1, 0, 1, 2, 2, 1};
    struct berth_budget_op ops[7];
    struct berth_budget_pool pool = {.limit = 7};
    struct text t = text_new();
    const struct berth_budget_params params = {
        .pools = &pool, .n_pools = 1, .live_only = true, .proof = text_write, .proof_data = &t};
    struct berth_budget_result *r = NULL;
    for (int32_t i = 0; i < 7; i++) {
        ops[i] = (struct berth_budget_op){.srcs = srcs[i], .n_srcs = n_srcs[i], .size = sizes[i], .cost = 1};
    }
    ops[0].flags = BERTH_BUDGET_INPUT;
    ops[1].flags = ops[5].flags = ops[6].flags = BERTH_BUDGET_ONCE;
    ops[2].flags = BERTH_BUDGET_INPUT | BERTH_BUDGET_ONCE;
    ops[6].group = 1;
    // Op 1 requires 8 bytes while input 2 is in memory, and op 5 cannot run before op 1.
    assert_int_equal(berth_budget_solve(ops, 7, &params, &r), GGML_STATUS_SUCCESS);
    assert_true(r->proven && !r->fits);
    assert_true(text_check(&t, ops, 7, &params));
    berth_budget_free(r);
    ops[1].group = 2; // without the order of the group, op 5 can run first
    assert_false(text_check(&t, ops, 7, &params));
    t.n = 0;
    assert_int_equal(berth_budget_solve(ops, 7, &params, &r), GGML_STATUS_SUCCESS);
    assert_true(r->proven && r->fits && t.n == 0);
    berth_budget_free(r);
    free(t.bytes);
}

// Each allocation fails once: the solver and the checker say so and leak nothing.
static void test_memory_fails(void **state) {
    (void) state;
    struct case_queue *q = case_queue_new();
    struct budget_case c;
    struct text t = text_new();
    brute_seed = 3;
    for (int n_left = 3; n_left > 0;) {
        case_make(&c, BUDGET_MAX, false);
        c.pools[0].limit = case_total(&c) / 2;
        const struct berth_budget_params params = {
            .pools = c.pools, .n_pools = 1, .live_only = true, .proof = text_write, .proof_data = &t};
        struct berth_budget_result *r = NULL;
        t.n = 0;
        if (case_least(q, &c, c.pools[0].limit) != BUDGET_NEVER ||
            berth_budget_solve(c.ops, c.n, &params, &r) != GGML_STATUS_SUCCESS || memcmp(t.bytes + 21, "states", 6) != 0) {
            berth_budget_free(r);
            continue;
        }
        berth_budget_free(r);
        n_left--;
        for (int64_t n = 1;; n++) {
            berth_alloc_watch(true);
            berth_alloc_fail_at(n);
            const bool is_valid = text_check(&t, c.ops, c.n, &params);
            berth_alloc_fail_at(0);
            assert_int_equal(berth_alloc_alive(), 0);
            assert_true(is_valid != proof.mem.has_failed);
            berth_alloc_fail_at(n);
            t.n = 0;
            const enum ggml_status status = berth_budget_solve(c.ops, c.n, &params, &r);
            berth_alloc_fail_at(0);
            berth_budget_free(r);
            assert_int_equal(berth_alloc_alive(), 0);
            berth_alloc_watch(false);
            assert_true(status == GGML_STATUS_SUCCESS || status == GGML_STATUS_ALLOC_FAILED);
            t.n = 0;
            assert_int_equal(berth_budget_solve(c.ops, c.n, &params, &r), GGML_STATUS_SUCCESS);
            berth_budget_free(r);
            r = NULL;
            if (is_valid && status == GGML_STATUS_SUCCESS) {
                break;
            }
        }
    }
    case_queue_free(q);
    free(t.bytes);
}

// If the output fails, the solver fails.
static void test_write_fails(void **state) {
    (void) state;
    struct budget_case c = chain_case();
    struct text t = text_new();
    struct berth_budget_result *r = NULL;
    const struct berth_budget_params params = {.pools = c.pools, .n_pools = 1, .proof = text_write, .proof_data = &t};
    for (int32_t i = 0; i < c.n; i++) {
        c.ops[i].srcs = c.srcs[i];
    }
    t.left = 0;
    assert_int_equal(berth_budget_solve(c.ops, c.n, &params, &r), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "the output failed"));
    assert_null(r);
    free(t.bytes);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_spill),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_ops),
        cmocka_unit_test(test_range),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_input_once),
        cmocka_unit_test(test_memory_fails),
        cmocka_unit_test(test_write_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
