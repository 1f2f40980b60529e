// SPDX-License-Identifier: MIT
// sort.c: ARGSORT, TOP_K: the order of each row.
// An element becomes one 64-bit key: its float as an unsigned number of the same order above, its index below. Keys sort
// without looking at the row again, no two are the same, and equal elements keep their order. NaN counts as larger than every
// number. A row is sorted by one task, in 16 bytes a key: on its stack up to ROOM keys, beyond that in work memory. The k
// largest of many need k keys, not those of the row.

#include "cpu/optable.h"
#include "cpu/rowio.h"

#define INSERTION_MAX 32 // up to here insertion beats counting
#define RADIX_BITS 8
#define RADIX (1 << RADIX_BITS)
#define ROOM 1024    // keys on the stack, and as many beside them: 16 KB
#define PICK_LEAST 8 // times more elements than are wanted: below that all of them are sorted

// Larger floats have larger keys; both zeros have the same.
static uint32_t float_key(float f) {
    uint32_t u;
    f += 0.0f; // -0 becomes 0
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return UINT32_MAX;
    }
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

static inline uint64_t element_key(float f, int64_t i, uint32_t flip) {
    return (uint64_t) (float_key(f) ^ flip) << 32 | (uint64_t) i;
}

static void row_keys(const struct cpu_kernels *k, const struct ggml_tensor *t, const char *row, bool down, uint64_t *key) {
    float buf[CPU_PIECE];
    const uint32_t flip = down ? UINT32_MAX : 0;
    for (int64_t i0 = 0; i0 < t->ne[0]; i0 += CPU_PIECE) {
        const int64_t n = t->ne[0] - i0 < CPU_PIECE ? t->ne[0] - i0 : CPU_PIECE;
        const float *x  = cpu_row_load(k, t, row, i0, n, buf);
        for (int64_t i = 0; i < n; i++) {
            key[i0 + i] = element_key(x[i], i0 + i, flip);
        }
    }
}

static void sort_insertion(uint64_t *key, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const uint64_t v = key[i];
        int64_t j        = i;
        for (; j > 0 && key[j - 1] > v; j--) {
            key[j] = key[j - 1];
        }
        key[j] = v;
    }
}

// By the upper half alone, in stable passes: the indices come in order already. Returns where the result is: key or spare.
static uint64_t *sort_radix(uint64_t *key, uint64_t *spare, int64_t n) {
    for (int shift = 32; shift < 64; shift += RADIX_BITS) {
        int64_t start[RADIX] = {0};
        for (int64_t i = 0; i < n; i++) {
            start[key[i] >> shift & (RADIX - 1)]++;
        }
        if (start[key[0] >> shift & (RADIX - 1)] == n) {
            continue; // all alike in this digit
        }
        int64_t sum = 0;
        for (int d = 0; d < RADIX; d++) {
            const int64_t count = start[d];
            start[d]            = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; i++) {
            spare[start[key[i] >> shift & (RADIX - 1)]++] = key[i];
        }
        uint64_t *t = key;
        key         = spare;
        spare       = t;
    }
    return key;
}

// key in, sorted keys out; spare has as much room.
static uint64_t *keys_sort(uint64_t *key, uint64_t *spare, int64_t n) {
    if (n <= INSERTION_MAX) {
        sort_insertion(key, n);
        return key;
    }
    return sort_radix(key, spare, n);
}

// ---- the largest k of a row: a heap of their keys with the largest on top, which the rest tries to push out ----

static void heap_sink(uint64_t *heap, int64_t k, int64_t i) {
    const uint64_t v = heap[i];
    for (int64_t child; (child = 2 * i + 1) < k; i = child) {
        child += child + 1 < k && heap[child + 1] > heap[child];
        if (heap[child] <= v) {
            break;
        }
        heap[i] = heap[child];
    }
    heap[i] = v;
}

static void row_pick(const struct cpu_kernels *kernels, const struct ggml_tensor *t, const char *row, uint64_t *heap, int64_t k) {
    float buf[CPU_PIECE];
    for (int64_t i0 = 0; i0 < t->ne[0]; i0 += CPU_PIECE) {
        const int64_t n = t->ne[0] - i0 < CPU_PIECE ? t->ne[0] - i0 : CPU_PIECE;
        const float *x  = cpu_row_load(kernels, t, row, i0, n, buf);
        int64_t i       = 0;
        for (; i < n && i0 + i < k; i++) {
            heap[i0 + i] = element_key(x[i], i0 + i, UINT32_MAX);
            for (int64_t at = i0 + i + 1 == k ? k / 2 : 0; at-- > 0;) {
                heap_sink(heap, k, at);
            }
        }
        for (; i < n; i++) {
            const uint64_t key = element_key(x[i], i0 + i, UINT32_MAX);
            if (key < heap[0]) {
                heap[0] = key;
                heap_sink(heap, k, 0);
            }
        }
    }
}

// ---- the ops ----

static bool sort_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && cpu_is_float(a->type) && op->type == GGML_TYPE_I32 && op->ne[0] <= a->ne[0] && a->ne[0] <= INT32_MAX &&
           a->ne[1] == op->ne[1] && a->ne[2] == op->ne[2] && a->ne[3] == op->ne[3];
}

static int sort_tasks(const struct ggml_tensor *op, int n_threads) {
    // a sorted element costs several times what a visited one does
    const int64_t n = ggml_nelements(op->src[0]) / (CPU_TASK_ELEMENTS / 8), n_rows = ggml_nrows(op);
    const int64_t most = n < n_rows ? n : n_rows;
    return most < 1 ? 1 : most < n_threads ? (int) most : n_threads;
}

// Keys that a row is sorted by.
static int64_t sort_keys(const struct ggml_tensor *op) {
    const int64_t n = op->src[0]->ne[0], k = op->ne[0];
    return op->op == GGML_OP_TOP_K && k <= n / PICK_LEAST ? k : n;
}

static size_t keys_work(int64_t n_keys, int n_tasks) {
    return n_keys > ROOM ? 2 * sizeof(uint64_t) * (size_t) n_keys * (size_t) n_tasks : 0;
}

static size_t sort_work(const struct ggml_tensor *op, int n_tasks) {
    return keys_work(sort_keys(op), n_tasks);
}

// A shorter row may be one that is sorted as a whole; fewer rows take no more tasks.
static size_t sort_work_most(const struct ggml_tensor *op, int n_threads) {
    const int64_t n = op->src[0]->ne[0], k = op->ne[0];
    return keys_work(op->op == GGML_OP_TOP_K && k <= n / PICK_LEAST ? k * PICK_LEAST : n, sort_tasks(op, n_threads));
}

static void indices_store(const struct ggml_tensor *op, char *row, const uint64_t *key) {
    for (int64_t i = 0; i < op->ne[0]; i++) {
        const int32_t at = (int32_t) (key[i] & UINT32_MAX);
        memcpy(row + (size_t) i * op->nb[0], &at, sizeof at);
    }
}

static void sort_run(const struct cpu_params *p, struct ggml_tensor *op) {
    uint64_t room[2 * ROOM];
    const struct ggml_tensor *a = op->src[0];
    const int64_t n_keys        = sort_keys(op);
    uint64_t *key               = n_keys <= ROOM ? room : (uint64_t *) p->work + 2 * n_keys * p->ith;
    const bool is_top           = op->op == GGML_OP_TOP_K;
    const bool down             = is_top || cpu_param_i32(op, 0) == GGML_SORT_ORDER_DESC;
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        if (n_keys < a->ne[0]) {
            row_pick(p->k, a, cpu_row(a, at), key, n_keys);
        } else {
            row_keys(p->k, a, cpu_row(a, at), down, key);
        }
        uint64_t *sorted = keys_sort(key, key + n_keys, n_keys);
        if (is_top && op->ne[0] > 1) { // no order is promised: it is the reference's, the first two changed places
            const uint64_t first = sorted[0];
            sorted[0]            = sorted[1];
            sorted[1]            = first;
        }
        indices_store(op, cpu_row(op, at), sorted);
    }
}

const struct cpu_op_entry cpu_ops_sort[] = {
    {GGML_OP_ARGSORT, {.supports     = sort_supports,
                          .n_tasks   = sort_tasks,
                          .work_size = sort_work,
                          .work_most = sort_work_most,
                          .run       = sort_run,
                          .uses      = CPU_USE_CONVERT}},
    {GGML_OP_TOP_K, {.supports     = sort_supports,
                        .n_tasks   = sort_tasks,
                        .work_size = sort_work,
                        .work_most = sort_work_most,
                        .run       = sort_run,
                        .uses      = CPU_USE_CONVERT}},
    CPU_OPS_END,
};
