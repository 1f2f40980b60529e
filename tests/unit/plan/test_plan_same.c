// SPDX-License-Identifier: MIT
// test_plan_same.c: berth-plan.h promises the same plan for the same arguments, on every machine, if no search ends by the clock. The
// table has the results for generated problems. Each row takes another way through the solver. If a change of the solver is meant
// to change plans, replace the results by those that this test prints.

#include "support/check.h"
#include "support/plan_made.h"

enum kind { HARD, PIECES, UNIFORM, WIDE };
enum { ALIGNED = 1, FIXED = 2, ALIASES = 4, POOLS = 8, ODD = 16 };

struct same_case {
    enum kind kind;
    uint64_t seed;
    int64_t n; // items; 0: the generator decides
    int features;
    struct berth_plan_params params;
    uint64_t peak, bound;
    int64_t n_nodes;
    uint32_t hash; // of the offsets
};

#define COUNTED(ms) .is_counted = true, .time_limit_us = 1000 * (ms)

// clang-format off
static const struct same_case cases[] = {
    // The fast path.
    {HARD, 3, 0, 0, {.seed = 0}, 1067008, 1048576, 0, 0x58a9bfbc},
    {HARD, 16, 0, 0, {.is_brief = true}, 1081344, 1048576, 0, 0x09ac235a},
    {HARD, 373, 0, 0, {.seed = 0}, 1189888, 1048576, 0, 0x00643c83},
    {UNIFORM, 3, 400, 0, {.seed = 0}, 143819981, 143819981, 0, 0xaeb41051},
    {WIDE, 3, 2100, 0, {.seed = 0}, 669095368, 653485010, 0, 0xf43e34cf},
    {WIDE, 5, 60, ALIGNED, {.seed = 0}, 37248, 36292, 0, 0xaadc2f93},
    {WIDE, 6, 12, ALIGNED, {.seed = 0}, 8998, 8857, 1389, 0x939725aa},
    {UNIFORM, 7, 300, ALIASES | POOLS, {.seed = 0}, 96920234, 95650199, 0, 0x5c45104c},
    {WIDE, 1, 100, FIXED, {.seed = 0}, 91835784, 86521380, 0, 0x2fe0e78d},
    {UNIFORM, 1, 100, 0, {.chunk_limit = 3 << 20}, 47824428, 47769980, 0, 0x3634f6d6},
    {WIDE, 10, 100, ODD, {.seed = 0}, 71615996, 71615939, 0, 0x665caf13},
    // The search, with counted work.
    {HARD, 12, 0, 0, {COUNTED(50)}, 1048576, 1048576, 1145, 0x57df84ea},
    {HARD, 17, 0, 0, {COUNTED(50)}, 1048576, 1048576, 340, 0xdd0187d0},
    {HARD, 21, 0, 0, {COUNTED(100), .seed = 21}, 1062912, 1048576, 5077, 0x1e98bf7a},
    {HARD, 22, 0, 0, {COUNTED(60), .seed = 22}, 1048576, 1048576, 8083, 0x24fd4100},
    {HARD, 3, 0, 0, {COUNTED(20), .memory_limit = 1060000}, 1058816, 1048576, 1379, 0x91419c55},
    {HARD, 11, 0, POOLS, {COUNTED(60), .seed = 9}, 2162688, 2162688, 0, 0x5e3c056c},
    {PIECES, 2, 0, 0, {COUNTED(60)}, 1184768, 1048576, 4820, 0x9d39cc4f},
    {WIDE, 3, 2100, 0, {COUNTED(200), .seed = 3}, 654747115, 653485010, 0, 0x2d3f7171},
    {UNIFORM, 15, 2500, 0, {COUNTED(300), .seed = 3}, 238199924, 238199924, 597, 0x66f0a53e},
    {UNIFORM, 2, 3000, 0, {COUNTED(500), .seed = 3}, 238625704, 235340908, 201, 0x2aedb602}, // fills begin with cores
    {WIDE, 16, 22, ALIGNED, {COUNTED(40)}, 11600, 11530, 95645, 0x11d723a2},
    {WIDE, 2, 80, ALIGNED, {COUNTED(40), .seed = 4}, 37393, 36568, 0, 0xef823633},
    {WIDE, 1, 100, FIXED, {COUNTED(40), .seed = 5}, 87358227, 86521380, 0, 0x59fda7ea},
    {UNIFORM, 19, 200, ALIASES | POOLS, {COUNTED(60), .seed = 6}, 81764234, 80662943, 0, 0xe13590e1},
    {UNIFORM, 1, 100, 0, {COUNTED(20), .seed = 7, .chunk_limit = 3 << 20}, 47769980, 47769980, 0, 0xbc522870},
};
// clang-format on

static void case_make(const struct same_case *c, struct plan_made *m) {
    switch (c->kind) {
        case HARD: plan_made_hard(m, c->seed); break;
        case PIECES: plan_made_pieces(m, c->seed); break;
        default: plan_made_random(m, c->n, c->kind == WIDE, c->seed); break;
    }
    uint64_t at = 0;
    for (int64_t i = 0; i < m->n; i++) {
        struct berth_plan_item *it = &m->items[i];
        if (c->features & ALIGNED) {
            it->size = 1 + it->size % 2000;
            it->align = (uint64_t) 1 << made_below(m, 9);
        }
        if (c->features & ODD) {
            it->align = 64;
        }
        if (c->features & POOLS) {
            it->pool = (int32_t) (i % 3);
        }
        if ((c->features & ALIASES) && i % 5 == 0) {
            it->alias = 1 + (int32_t) (i % 3 + 3 * made_below(m, 10));
        }
        if ((c->features & FIXED) && i % 40 == 3) {
            it->is_fixed = true;
            it->fixed = at;
            at += it->size;
        }
    }
}

static uint32_t offsets_hash(const uint64_t *off, int64_t n) {
    uint64_t hash = 0;
    for (int64_t i = 0; i < n; i++) {
        hash = (hash ^ off[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return (uint32_t) (hash >> 32);
}

static void test_same(void **state) {
    (void) state;
    int n_changed = 0;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k += (size_t) check_step()) {
        const struct same_case *c = &cases[k];
        struct plan_made m;
        struct berth_plan_report r;
        case_make(c, &m);
        uint64_t *off = calloc((size_t) m.n & 0xFFFFFF, sizeof *off);
        assert_non_null(off);
        assert_int_equal(berth_plan_solve(m.items, m.n, &c->params, off, &r), GGML_STATUS_SUCCESS);
        assert_int_equal(berth_plan_check(m.items, m.n, &c->params, off, NULL), GGML_STATUS_SUCCESS);
        const uint32_t hash = offsets_hash(off, m.n);
        if (r.peak != c->peak || r.bound != c->bound || r.n_nodes != c->n_nodes || hash != c->hash) {
            n_changed++;
            print_message("row %zu (%s): %llu, %llu, %lld, 0x%08x\n", k + 1, r.method, (unsigned long long) r.peak,
                (unsigned long long) r.bound, (long long) r.n_nodes, hash);
        }
        free(off);
        made_free(&m);
    }
    assert_int_equal(n_changed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
