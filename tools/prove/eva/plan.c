// SPDX-License-Identifier: MIT
// plan.c: berth_plan_check and berth_plan_is_valid with any items and any offsets.

#include "tools/prove/eva/eva.h"

#define EVA_ITEMS 3

#include "src/base/base.h"

static void *eva_malloc(size_t size);
static void *eva_calloc(size_t n, size_t size);
#define berth_malloc eva_malloc
#define berth_calloc eva_calloc
#define berth_free free

#include "src/plan/solve/check.c"
#include "src/plan/solve/sort.c"

enum ggml_status berth_fail(enum ggml_status status, const char *fmt, ...) {
    return status;
}

// Each size is allocated at its own place, so Eva knows the size of each block of memory exactly.
#define EVA_MALLOC(k) \
    case (k): return malloc(k);

static void *eva_malloc(size_t size) {
    switch (size) {
        EVA_MALLOC(24)
        EVA_MALLOC(40)
        EVA_MALLOC(48)
        EVA_MALLOC(80)
        EVA_MALLOC(96)
        EVA_MALLOC(72)
        EVA_MALLOC(120)
        EVA_MALLOC(144)
        default: break;
    }
    //@ check eva_size: \false;
    return NULL;
}

static void *eva_calloc(size_t n, size_t size) {
    switch (n * size) {
        case 32: return calloc(1, 32);
        case 64: return calloc(1, 64);
        case 96: return calloc(1, 96);
        case 128: return calloc(1, 128);
        case 160: return calloc(1, 160);
        case 192: return calloc(1, 192);
        default: break;
    }
    //@ check eva_size: \false;
    return NULL;
}

static struct berth_plan_item eva_items[EVA_ITEMS];

static void eva_run(int64_t n) {
    uint64_t offsets[EVA_ITEMS];
    struct berth_plan_params params = {0};
    struct berth_plan_fault fault;
    //@ loop unroll EVA_ITEMS;
    for (int i = 0; i < EVA_ITEMS; i++) {
        EVA_ANY_ITEM(eva_items[i]);
        offsets[i] = EVA_ANY_U64();
    }
    params.chunk_limit = EVA_ANY_U64();
    (void) berth_plan_check(eva_items, n, EVA_ANY_BOOL() ? &params : NULL, offsets, EVA_ANY_BOOL() ? &fault : NULL);
}

// Blocks as the planner makes them: sizes are not negative, alignments are positive, and blocks end after they begin.
static void eva_valid(int32_t n) {
    int32_t begin[EVA_ITEMS], end[EVA_ITEMS];
    int64_t size[EVA_ITEMS], align[EVA_ITEMS], fixed[EVA_ITEMS], off[EVA_ITEMS];
    struct plan_prob p = {.n = n, .begin = begin, .end = end, .size = size};
    //@ loop unroll EVA_ITEMS;
    for (int i = 0; i < EVA_ITEMS; i++) {
        begin[i] = EVA_ANY_I32();
        end[i] = Frama_C_int_interval(INT32_MIN + 1, INT32_MAX);
        size[i] = Frama_C_long_interval(0, INT64_MAX);
        align[i] = Frama_C_long_interval(1, INT64_MAX);
        fixed[i] = EVA_ANY_I64();
        off[i] = EVA_ANY_I64();
    }
    p.align = EVA_ANY_BOOL() ? align : NULL;
    p.fixed = EVA_ANY_BOOL() ? fixed : NULL;
    p.chunk = Frama_C_long_interval(0, INT64_MAX);
    (void) berth_plan_is_valid(&p, off);
}

int main(void) {
    eva_run(Frama_C_long_interval(INT64_MIN, -1));
    eva_run(Frama_C_long_interval((int64_t) INT32_MAX / 4 + 1, INT64_MAX));
    eva_run(0);
    eva_run(1);
    eva_run(2);
    eva_run(3);
    eva_valid(1);
    eva_valid(2);
    eva_valid(3);
    return 0;
}
