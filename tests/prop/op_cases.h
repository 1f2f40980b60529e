// SPDX-License-Identifier: MIT
// op_cases.h: random ops, alone and in small graphs, in memory between guard pages. A case takes the sample of an op (`berth
// ops`) and changes extents; equal extents change together, so that most shapes still match. Some cases also corrupt an extent,
// stride, parameter, type or view. The CPU backend may compute or refuse a case, but must not access a guard page. If it does,
// the signal handler prints the seed and the case.
#pragma once

#include "support/check.h"

#include "core/span.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define GUARD_SIZE ((size_t) 1 << 20)
#define REGION_SIZE ((size_t) 1 << 20)
#define N_REGIONS 16
#define CANARY 64
#define MAX_ELEMENTS (1 << 16)

struct op_cases {
    uint64_t seed, i_case;
    struct check_rng rng;
    const uint8_t *bytes; // a fuzzer's choices; after n_bytes, rng decides
    size_t n_bytes;
    int64_t max_elements;     // largest number of elements of a tensor
    int threads_chance;       // one case in threads_chance runs with two threads
    char *regions[N_REGIONS]; // REGION_SIZE bytes each, with guard pages before and after
    int n_used;
    struct {
        char *at; // memory of a tensor, or work memory
        size_t size;
    } blocks[N_REGIONS];
    ggml_backend_t cpu;
    bool is_wild;             // the case has an extent or a type that no valid tensor has
    struct ggml_tensor *node; // the op that is tested
    int64_t n_done, n_refused, n_skipped;
    int64_t done[GGML_OP_COUNT]; // number of computed cases per op
};

static struct op_cases *op_cases_now; // for the signal handler

static inline uint64_t pick(struct op_cases *c, uint64_t n) {
    if (c->n_bytes > 0) {
        c->n_bytes--;
        return *c->bytes++ % n;
    }
    return check_rng_next(&c->rng) % n;
}

static inline void op_case_print(FILE *file, const struct op_cases *c) {
    fprintf(file, "seed %" PRIu64 ", case %" PRIu64, c->seed, c->i_case);
    const struct ggml_tensor *node = c->node;
    for (int s = -1; node != NULL && s < GGML_MAX_SRC; s++) {
        const struct ggml_tensor *t = s < 0 ? node : node->src[s];
        if (t == NULL) {
            continue;
        }
        fprintf(file, "\n  %s %s [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "] strides [%zu, %zu, %zu, %zu]%s",
            s < 0 ? ggml_op_name(node->op) : "source", ggml_type_name(t->type), t->ne[0], t->ne[1], t->ne[2], t->ne[3], t->nb[0],
            t->nb[1], t->nb[2], t->nb[3], t->view_src != NULL ? " view" : "");
    }
    for (int i = 0; node != NULL && i < 12; i++) {
        fprintf(file, "%s%d", i == 0 ? "\n  parameters " : ", ", node->op_params[i]);
    }
    fprintf(file, "\n");
    fflush(file);
}

static inline void op_cases_fault(int number) {
    fprintf(stderr, "signal %d: memory outside all tensors was accessed\n", number);
    op_case_print(stderr, op_cases_now);
    _exit(1);
}

static inline void op_cases_open(struct op_cases *c, uint64_t seed) {
    check_quiet();
    *c = (struct op_cases){.seed = seed, .cpu = ggml_backend_cpu_init(), .max_elements = MAX_ELEMENTS, .threads_chance = 16};
    for (int i = 0; i < N_REGIONS; i++) {
        char *base = mmap(NULL, 2 * GUARD_SIZE + REGION_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_true(base != MAP_FAILED);
        assert_int_equal(mprotect(base + GUARD_SIZE, REGION_SIZE, PROT_READ | PROT_WRITE), 0);
        c->regions[i] = base + GUARD_SIZE;
    }
    op_cases_now = c;
    signal(SIGSEGV, op_cases_fault);
    signal(SIGBUS, op_cases_fault);
    signal(SIGFPE, op_cases_fault);
}

static inline void op_cases_close(struct op_cases *c) {
    for (int i = 0; i < N_REGIONS; i++) {
        munmap(c->regions[i] - GUARD_SIZE, 2 * GUARD_SIZE + REGION_SIZE);
    }
    ggml_backend_free(c->cpu);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    signal(SIGFPE, SIG_DFL);
}

// ---- memory ----

// Returns memory that starts or ends at a guard page. On its other side are CANARY bytes with a fixed value. NULL: all regions
// are used, or size is too large.
static inline char *region_take(struct op_cases *c, size_t size) {
    if (c->n_used == N_REGIONS || size > REGION_SIZE - CANARY) {
        return NULL;
    }
    char *region = c->regions[c->n_used], *at = pick(c, 4) == 0 ? region : region + REGION_SIZE - size;
    if (at == region) {
        memset(at + size, 0xA5, CANARY);
    } else {
        memset(at - CANARY, 0xA5, CANARY);
    }
    c->blocks[c->n_used].at = at;
    c->blocks[c->n_used++].size = size;
    return at;
}

static inline bool canaries_are_intact(const struct op_cases *c) {
    for (int i = 0; i < c->n_used; i++) {
        const char *at = c->blocks[i].at == c->regions[i] ? c->blocks[i].at + c->blocks[i].size : c->blocks[i].at - CANARY;
        for (int j = 0; j < CANARY; j++) {
            if ((unsigned char) at[j] != 0xA5) {
                return false;
            }
        }
    }
    return true;
}

// Mostly small numbers: row numbers, positions, floats around 1. Random bits for block types.
static inline void numbers_put(struct op_cases *c, const struct ggml_tensor *t, char *at, size_t size) {
    const bool wild = pick(c, 8) == 0;
    for (size_t i = 0; i + 4 <= size; i += 4) {
        const uint64_t r = check_rng_next(&c->rng);
        int32_t integer = (int32_t) (r % 5) - (wild && r % 7 == 0);
        float number = (float) (r % 64) * 0.0625f - 2.0f;
        if (t->type == GGML_TYPE_I64 && i % 8 == 4) {
            integer = 0;
        }
        const bool is_integer = t->type == GGML_TYPE_I32 || t->type == GGML_TYPE_I64;
        const uint32_t bits = (uint32_t) (r >> 32);
        memcpy(at + i, is_integer ? (void *) &integer : t->type == GGML_TYPE_F32 ? (void *) &number : (void *) &bits, 4);
    }
}

static inline void strides_dense(struct ggml_tensor *t) {
    t->nb[0] = ggml_type_size(t->type);
    const int64_t blck = ggml_blck_size(t->type);
    t->nb[1] = t->nb[0] * (size_t) (t->ne[0] / (blck > 0 ? blck : 1));
    t->nb[2] = t->nb[1] * (size_t) t->ne[1];
    t->nb[3] = t->nb[2] * (size_t) t->ne[2];
}

static inline bool memory_give(struct op_cases *c, struct ggml_context *ctx) {
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (t->view_src != NULL) {
            t->data = t->view_src->data != NULL ? (char *) t->view_src->data + t->view_offs : NULL;
            continue;
        }
        const int64_t blck = ggml_blck_size(t->type);
        const size_t span = berth_span(t), cut_size = blck > 0 && t->ne[0] % blck != 0 ? span % 4 : 0;
        const size_t size = span + (cut_size > 0 ? 4 - cut_size : 0); // a size of incomplete blocks is rounded up to 4
        if (ggml_is_empty(t)) {
            strides_dense(t); // no byte is read, but code may compute addresses from the strides
            t->data = region_take(c, 0);
            continue;
        }
        t->data = size == BERTH_SPAN_INVALID ? NULL : region_take(c, size);
        if (t->data == NULL) {
            if (size != BERTH_SPAN_INVALID) {
                return false;
            }
            t->data = c->regions[0]; // any address: the backend must refuse the op because of its strides
            continue;
        }
        numbers_put(c, t, t->data, size);
    }
    return true;
}

// ---- shapes ----

static inline bool is_custom(const struct ggml_tensor *t) {
    return t->op == GGML_OP_MAP_CUSTOM1 || t->op == GGML_OP_MAP_CUSTOM2 || t->op == GGML_OP_MAP_CUSTOM3 ||
           t->op == GGML_OP_CUSTOM;
}

// In half of the cases, also changes the op parameters that equal `was`.
static inline void extents_replace(struct op_cases *c, struct ggml_context *ctx, int64_t was, int64_t now) {
    const bool params = pick(c, 2) == 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        for (int d = 0; d < GGML_MAX_DIMS; d++) {
            t->ne[d] = t->ne[d] == was ? now : t->ne[d];
        }
        strides_dense(t);
        for (int i = 0; params && t == c->node && !is_custom(t) && i < 16; i++) {
            t->op_params[i] = t->op_params[i] == (int32_t) was ? (int32_t) now : t->op_params[i];
        }
    }
}

static inline struct ggml_tensor *any_tensor(struct op_cases *c) {
    int n = 0;
    while (n < GGML_MAX_SRC && c->node->src[n] != NULL) {
        n++;
    }
    const uint64_t i = pick(c, (uint64_t) n + 1);
    return i == 0 ? c->node : c->node->src[i - 1];
}

static const int64_t odd_extents[] = {0, 0, 1, 1, 2, 3, 5, 7, 8, 9, 16, 31, 33, 64, 65, 256};
// Aligned for every element type, because processors differ in how they treat misaligned strides.
static const size_t odd_strides[] = {0, 8, 16, 24, 64, 1024, (size_t) 1 << 20, (size_t) 1 << 33, (size_t) 1 << 48,
    (size_t) 1 << 62, (size_t) 0 - 8, (size_t) 0 - 64, (size_t) 0 - (1 << 20)};
#define ODD(c, list) (list)[pick(c, sizeof(list) / sizeof(list)[0])]

// Extents that no valid tensor has. Products of them overflow. A tensor with such an extent fits into memory only if its stride
// is 0.
static const int64_t wild_extents[] = {-1, -256, INT64_MIN, INT64_MAX, INT64_MAX - 7, ((int64_t) 1 << 62) + 1,
    ((int64_t) 1 << 62) + 4, (int64_t) 1 << 61, ((int64_t) 1 << 60) + 2, (int64_t) 1 << 58};
static const int wild_types[] = {-3, -1, INT32_MIN, INT32_MAX, 4, 5, 31, 33, GGML_TYPE_COUNT, 1000};

// Makes a tensor invalid, so that the CPU backend must refuse the op. With strides of 0, a tensor with a huge extent spans few
// bytes, so its size alone does not show that it is invalid.
static inline void property_corrupt_wildly(struct op_cases *c) {
    struct ggml_tensor *t = any_tensor(c);
    const int d = (int) pick(c, GGML_MAX_DIMS);
    c->is_wild = true;
    switch (pick(c, 4)) {
        case 0: t->type = (enum ggml_type) ODD(c, wild_types); break;
        case 1: t->ne[d] = ODD(c, wild_extents); break;
        case 2:
            t->ne[d] = ODD(c, wild_extents);
            t->nb[d] = 0;
            break;
        default:
            t->ne[d] = ODD(c, wild_extents);
            t->ne[(d + 1) % 4] = (int64_t) 1 << pick(c, 5);
            memset(t->nb, 0, sizeof t->nb);
            break;
    }
}

// Changes an extent, a stride, a parameter, a view or the order of the axes. The op may still be valid.
static inline void property_corrupt(struct op_cases *c, struct ggml_context *ctx) {
    struct ggml_tensor *t = any_tensor(c);
    const int d = (int) pick(c, GGML_MAX_DIMS);
    switch (pick(c, 8)) {
        case 0:
        case 1:
            t->ne[d] = ODD(c, odd_extents);
            strides_dense(t);
            break;
        case 2: t->ne[d] = ODD(c, odd_extents); break;
        case 3: t->nb[d] = ODD(c, odd_strides); break;
        case 4: t->nb[1 + pick(c, 3)] += ggml_type_size(t->type) * pick(c, 3); break;
        case 5:
            if (!is_custom(c->node)) {
                c->node->op_params[pick(c, 12)] = (int32_t) pick(c, 9) - 1;
            }
            break;
        case 6:
            if (t->view_src == NULL) { // a view of a tensor that may be too short
                struct ggml_tensor *source =
                    ggml_new_tensor_1d(ctx, t->type, ggml_blck_size(t->type) * (int64_t) (1 + pick(c, 64)));
                if (!berth_is_poison(source)) {
                    t->view_src = source;
                    t->view_offs = ggml_type_size(t->type) * pick(c, 3);
                }
            }
            break;
        case 7: {
            const int64_t ne = t->ne[0];
            const size_t nb = t->nb[0];
            t->ne[0] = t->ne[d], t->nb[0] = t->nb[d];
            t->ne[d] = ne, t->nb[d] = nb;
            break;
        }
    }
}

static inline bool is_small(const struct op_cases *c, struct ggml_context *ctx) {
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        int64_t n = 1;
        for (int d = 0; d < GGML_MAX_DIMS; d++) {
            n *= t->ne[d] > 0 ? t->ne[d] : 1;
        }
        if (n > c->max_elements) {
            return false;
        }
    }
    return true;
}

// ---- a case ----

static const enum ggml_type usual_types[] = {
    GGML_TYPE_F32, GGML_TYPE_F32, GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_I32, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K};

static inline enum ggml_type any_type(struct op_cases *c) {
    const enum ggml_type type = (enum ggml_type) pick(c, GGML_TYPE_COUNT);
    return pick(c, 3) == 0 && ggml_blck_size(type) > 0 ? type : ODD(c, usual_types);
}

static inline struct ggml_tensor *sample_make(struct op_cases *c, struct ggml_context *ctx) {
    const enum ggml_op op = (enum ggml_op)(1 + pick(c, GGML_OP_COUNT - 1)); // all ops except GGML_OP_NONE have a sample
    const enum ggml_type a = any_type(c), b = pick(c, 2) == 0 ? GGML_TYPE_F32 : any_type(c);
    const int n_sub = op == GGML_OP_UNARY ? GGML_UNARY_OP_COUNT : GGML_GLU_OP_COUNT;
    return berth_op_sample(ctx, op, (int) pick(c, (uint64_t) n_sub), a, b);
}

// Optional sources: attention sinks, and frequency factors of RoPE.
static inline void extras_add(struct op_cases *c, struct ggml_context *ctx) {
    struct ggml_tensor *t = c->node;
    const int i = t->op == GGML_OP_SOFT_MAX || t->op == GGML_OP_ROPE ? 2 : t->op == GGML_OP_FLASH_ATTN_EXT ? 4 : -1;
    if (i >= 0 && t->src[i] == NULL && pick(c, 2) == 0) {
        const int64_t n = t->op == GGML_OP_ROPE ? t->ne[0] / 2 : t->op == GGML_OP_SOFT_MAX ? t->ne[2] : t->ne[1];
        t->src[i] = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, n);
    }
}

// Adds another op on the result, or on a view of it.
static inline struct ggml_tensor *op_append(struct op_cases *c, struct ggml_context *ctx, struct ggml_tensor *t) {
    if (pick(c, 2) == 0 && t->ne[0] > 1) {
        t = ggml_view_2d(ctx, t, t->ne[0] / 2, t->ne[1], t->nb[1] + (pick(c, 8) == 0 ? ODD(c, odd_strides) : 0), 0);
    }
    switch (pick(c, 5)) {
        case 0: return ggml_cont(ctx, t);
        case 1: return ggml_scale(ctx, t, 2.0f);
        case 2: return ggml_add(ctx, t, t);
        case 3: return ggml_sum(ctx, t);
        default: return ggml_cpy(ctx, t, ggml_new_tensor(ctx, GGML_TYPE_F16, 4, t->ne));
    }
}

// Always 1 under the thread sanitizer: rows of a corrupted result may overlap, and two threads would write the same bytes.
static inline int some_threads(struct op_cases *c) {
    const bool is_two = pick(c, (uint64_t) c->threads_chance) == 0;
#if defined(__SANITIZE_THREAD__)
    const bool may_be_two = false;
#else
    const bool may_be_two = true;
#endif
    return is_two && may_be_two ? 2 : 1;
}

static inline enum ggml_status graph_run(struct op_cases *c, struct ggml_cgraph *graph, bool *ran) {
    *ran = true;
    if (pick(c, 2) == 0) {
        ggml_backend_cpu_set_n_threads(c->cpu, some_threads(c));
        ggml_backend_cpu_set_use_ref(c->cpu, pick(c, 3) == 0);
        return ggml_backend_graph_compute(c->cpu, graph);
    }
    struct ggml_cplan plan = ggml_graph_plan(graph, some_threads(c), NULL);
    plan.use_ref = pick(c, 3) == 0;
    plan.work_data = plan.work_size > 0 ? (uint8_t *) region_take(c, plan.work_size) : NULL;
    if (plan.work_size > 0 && plan.work_data == NULL) {
        *ran = false;
        return GGML_STATUS_FAILED;
    }
    return ggml_graph_compute(graph, &plan);
}

static inline void op_case_run(struct op_cases *c, uint64_t i_case) {
    c->i_case = i_case;
    c->rng = check_rng_new(c->seed * 1000003 + i_case);
    c->n_used = 0;
    c->node = NULL;
    c->is_wild = false;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 18, .no_alloc = true});
    struct ggml_tensor *t = sample_make(c, ctx);
    bool ran = false;
    enum ggml_status status = GGML_STATUS_FAILED;
    if (t != NULL && !berth_is_poison(t)) {
        c->node = t;
        extras_add(c, ctx);
        for (uint64_t n = pick(c, 4); n > 0; n--) {
            const struct ggml_tensor *like = any_tensor(c);
            extents_replace(c, ctx, like->ne[pick(c, GGML_MAX_DIMS)], ODD(c, odd_extents));
        }
        for (uint64_t n = pick(c, 3); n > 0; n--) {
            property_corrupt(c, ctx);
        }
        for (uint64_t n = pick(c, 8) == 0 ? 1 + pick(c, 2) : 0; n > 0; n--) {
            property_corrupt_wildly(c);
        }
        struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 64, false);
        if (pick(c, 4) == 0) {
            struct ggml_tensor *more = op_append(c, ctx, t);
            t = berth_is_poison(more) ? t : more;
        }
        ggml_build_forward_expand(graph, t);
        ggml_backend_supports_op(c->cpu, c->node); // any answer is allowed
        if ((c->is_wild || is_small(c, ctx)) && memory_give(c, ctx)) {
            status = graph_run(c, graph, &ran);
            if (!canaries_are_intact(c)) {
                op_case_print(stderr, c);
                fail_msg("case %llu: a canary was overwritten", (unsigned long long) c->n_done);
            }
        }
    }
    c->n_done += ran && status == GGML_STATUS_SUCCESS;
    c->n_refused += ran && status != GGML_STATUS_SUCCESS;
    c->n_skipped += !ran;
    if (ran && status == GGML_STATUS_SUCCESS) {
        c->done[c->node->op]++;
    }
    ggml_free(ctx);
}

static inline void op_cases_run(uint64_t seed, uint64_t n) {
    struct op_cases c;
    printf("seed %" PRIu64 ": %" PRIu64 " cases\n", seed, n);
    fflush(stdout);
    op_cases_open(&c, seed);
    for (uint64_t i = 0; i < n; i++) {
        op_case_run(&c, i);
    }
    printf("%" PRId64 " computed, %" PRId64 " refused, %" PRId64 " skipped (too large, or the constructor refused)\n", c.n_done,
        c.n_refused, c.n_skipped);
    op_cases_close(&c);
    for (int op = 0; op < GGML_OP_COUNT; op++) { // detects a test in which every case is refused
        const bool has_no_kernel = op == GGML_OP_FLASH_ATTN_BACK;
        if (n >= 20000 && op != GGML_OP_NONE && !has_no_kernel && c.done[op] == 0) {
            fail_msg("no case of %s was computed", ggml_op_name((enum ggml_op) op));
        }
    }
}
