// SPDX-License-Identifier: MIT
// sort.c: ARGSORT, TOP_K. One task sorts a row. There are three methods:
//   keys: rows of up to KEYS_MAX elements. More than STACK_KEYS keys are in work memory.
//   indices: longer rows. Work memory per element: 4 bytes, 4 more for TOP_K, 4 more if the row is not dense f32.
//   heap: TOP_K with a small k, for rows of any length. The heap holds only k keys.

#include "base/min.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

// ---- keys ----

// A key is a 64-bit number. Upper 32 bits: the float as an unsigned number in the same order. Lower 32 bits: the index. So no two
// keys are equal, and equal elements keep their order. NaN is larger than every number.

// Returns the upper 32 bits of a key. -0 and 0 give the same number. flip: all bits set for descending order, otherwise 0.
static inline uint32_t sort_float_key(float f, uint32_t flip) {
    int32_t u;
    f += 0.0f; // -0 becomes 0
    memcpy(&u, &f, sizeof u);
    const uint32_t key = (uint32_t) u ^ ((uint32_t) (u >> 31) | 0x80000000u);
    return (f != f ? UINT32_MAX : key) ^ flip;
}

static inline uint64_t sort_key(float f, int64_t i, uint32_t flip) {
    return (uint64_t) sort_float_key(f, flip) << 32 | (uint64_t) i;
}

#define INSERTION_MAX 32 // up to this number of keys, insertion sort is faster than radix sort
#define RADIX_BITS 8
#define RADIX (1 << RADIX_BITS)
#define STACK_KEYS 1024 // 16 KiB, with the spare buffer
#define KEYS_MAX 4096   // up to this row length keys are faster than indices
#define HEAP_RATIO 8    // TOP_K uses a heap for n >= HEAP_RATIO * k

static void row_keys(const struct cpu_kernels *k, const struct ggml_tensor *t, const char *row, bool descending, uint64_t *key) {
    float buf[CPU_PIECE];
    const uint32_t flip = descending ? UINT32_MAX : 0;
    for (int64_t i0 = 0; i0 < t->ne[0]; i0 += CPU_PIECE) {
        const int64_t n = min_i64(t->ne[0] - i0, CPU_PIECE);
        const float *x = cpu_row_load(k, t, row, i0, n, buf);
        for (int64_t i = 0; i < n; i++) {
            key[i0 + i] = sort_key(x[i], i0 + i, flip);
        }
    }
}

static void sort_insertion(uint64_t *key, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const uint64_t v = key[i];
        int64_t j = i;
        for (; j > 0 && key[j - 1] > v; j--) {
            key[j] = key[j - 1];
        }
        key[j] = v;
    }
}

// Sorts by the upper 32 bits in stable passes. The keys must be in the order of their indices. Returns the buffer that holds the
// sorted keys: key or spare.
static uint64_t *sort_radix(uint64_t *key, uint64_t *spare, int64_t n) {
    for (int shift = 32; shift < 64; shift += RADIX_BITS) {
        int64_t start[RADIX] = {0};
        for (int64_t i = 0; i < n; i++) {
            start[key[i] >> shift & (RADIX - 1)]++;
        }
        if (start[key[0] >> shift & (RADIX - 1)] == n) {
            continue; // all keys have the same digit
        }
        int64_t sum = 0;
        for (int d = 0; d < RADIX; d++) {
            const int64_t count = start[d];
            start[d] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; i++) {
            spare[start[key[i] >> shift & (RADIX - 1)]++] = key[i];
        }
        uint64_t *t = key;
        key = spare;
        spare = t;
    }
    return key;
}

// Returns the buffer that holds the sorted keys: key or spare.
static uint64_t *keys_sort(uint64_t *key, uint64_t *spare, int64_t n) {
    if (n <= INSERTION_MAX) {
        sort_insertion(key, n);
        return key;
    }
    return sort_radix(key, spare, n);
}

// ---- the largest k elements of a row: a heap of the k smallest keys, because keys in descending order are flipped ----

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

static void row_heap(const struct cpu_kernels *kernels, const struct ggml_tensor *t, const char *row, uint64_t *heap, int64_t k) {
    float buf[CPU_PIECE];
    for (int64_t i0 = 0; i0 < t->ne[0]; i0 += CPU_PIECE) {
        const int64_t n = min_i64(t->ne[0] - i0, CPU_PIECE);
        const float *x = cpu_row_load(kernels, t, row, i0, n, buf);
        int64_t i = 0;
        for (; i < n && i0 + i < k; i++) {
            heap[i0 + i] = sort_key(x[i], i0 + i, UINT32_MAX);
            for (int64_t at = i0 + i + 1 == k ? k / 2 : 0; at-- > 0;) {
                heap_sink(heap, k, at);
            }
        }
        for (; i < n; i++) {
            const uint64_t key = sort_key(x[i], i0 + i, UINT32_MAX);
            if (key < heap[0]) {
                heap[0] = key;
                heap_sink(heap, k, 0);
            }
        }
    }
}

// ---- long rows ----

// A radix sort of indices, lowest digit first. Digits are those of the upper 32 bits of keys. Keys are recomputed in every pass,
// which takes no longer than moving them. Equal elements keep their order. Memory: 4 bytes per index and buffer, and 24 KiB of
// stack.

#define DIGIT_BITS 11
#define DIGITS (1 << DIGIT_BITS)
#define N_DIGITS 3 // 11, 11 and 10 bits

static inline uint32_t digit_of(uint32_t key, int d) {
    return key >> (d * DIGIT_BITS) & (DIGITS - 1);
}

// Replaces counts of digit values by start positions. If all indices have the same digit, returns false.
static bool counts_to_starts(uint32_t *count, int64_t n) {
    uint32_t sum = 0, max_count = 0;
    for (int v = 0; v < DIGITS; v++) {
        const uint32_t n_digit = count[v];
        max_count = max_u32(n_digit, max_count);
        count[v] = sum;
        sum += n_digit;
    }
    return max_count < n;
}

// Writes the indices of n elements to out, in sorted order. spare has the same size.
static void sort_long(const float *x, int64_t n, uint32_t flip, int32_t *out, int32_t *spare) {
    uint32_t next[N_DIGITS][DIGITS] = {{0}};
    int passes[N_DIGITS], n_passes = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t key = sort_float_key(x[i], flip);
        for (int d = 0; d < N_DIGITS; d++) {
            next[d][digit_of(key, d)]++;
        }
    }
    for (int d = 0; d < N_DIGITS; d++) {
        if (counts_to_starts(next[d], n) || (d == N_DIGITS - 1 && n_passes == 0)) {
            passes[n_passes++] = d;
        }
    }
    int32_t *to = n_passes % 2 == 1 ? out : spare, *from = NULL; // the last pass ends in out
    for (int p = 0; p < n_passes; p++) {
        const int d = passes[p];
        uint32_t *slot = next[d];
        for (int64_t i = 0; i < n; i++) {
            const int32_t at = from != NULL ? from[i] : (int32_t) i;
            to[slot[digit_of(sort_float_key(x[at], flip), d)]++] = at;
        }
        from = to;
        to = from == out ? spare : out;
    }
}

// ---- the ops ----

static bool sort_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && cpu_is_float(a->type) && op->type == GGML_TYPE_I32 && cpu_rows_are_dense(op) && op->ne[0] <= a->ne[0] &&
           a->ne[0] <= INT32_MAX && a->ne[1] == op->ne[1] && a->ne[2] == op->ne[2] && a->ne[3] == op->ne[3];
}

static int sort_tasks(const struct ggml_tensor *op, int n_threads) {
    // Sorting an element costs several times as much as visiting it.
    const int64_t n = ggml_nelements(op->src[0]) / (CPU_TASK_ELEMENTS / 8), n_rows = ggml_nrows(op);
    return cpu_tasks_for((double) min_i64(n, n_rows), n_threads);
}

// Returns the number of keys of a row that are in memory: k if TOP_K uses a heap, otherwise the row length.
static int64_t n_keys_of(const struct ggml_tensor *op) {
    const int64_t n = op->src[0]->ne[0], k = op->ne[0];
    return op->op == GGML_OP_TOP_K && k <= n / HEAP_RATIO ? k : n;
}

static bool uses_heap(const struct ggml_tensor *op) {
    return n_keys_of(op) < op->src[0]->ne[0];
}

// True if the row is sorted by indices instead of keys.
static bool is_long(const struct ggml_tensor *op) {
    return !uses_heap(op) && op->src[0]->ne[0] > KEYS_MAX;
}

static size_t row_work(const struct ggml_tensor *op) {
    const size_t n = (size_t) op->src[0]->ne[0], n_keys = (size_t) n_keys_of(op);
    if (is_long(op)) {
        return sizeof(int32_t) * n * (1 + (op->op == GGML_OP_TOP_K) + !cpu_is_f32_dense(op->src[0]));
    }
    return n_keys > STACK_KEYS ? 2 * sizeof(uint64_t) * n_keys : 0;
}

static size_t sort_work(const struct ggml_tensor *op, int n_tasks) {
    return row_work(op) * (size_t) n_tasks;
}

// An op with shorter rows may use another method. The bound covers all methods. n_without_heap: upper bound of the row lengths
// that need no heap for this k.
static size_t sort_work_bound(const struct ggml_tensor *op, int n_threads) {
    const int64_t n = op->src[0]->ne[0], n_without_heap = uses_heap(op) ? HEAP_RATIO * op->ne[0] : n;
    const int64_t n_keys = min_i64(n_without_heap, KEYS_MAX);
    const size_t keys_size = n_keys > STACK_KEYS ? 2 * sizeof(uint64_t) * (size_t) n_keys : 0;
    const size_t indices_size = uses_heap(op) && n_without_heap > KEYS_MAX ? 3 * sizeof(int32_t) * (size_t) n_without_heap : 0,
                 own_size = row_work(op);
    const size_t larger = max_size(keys_size, indices_size);
    return max_size(larger, own_size) * (size_t) sort_tasks(op, n_threads);
}

// ggml does not define the order of TOP_K's result. This is the reference's: descending, with the first two swapped.
static void first_two_swap(int32_t *at) {
    const int32_t first = at[0];
    at[0] = at[1];
    at[1] = first;
}

static void row_sort(const struct cpu_params *p, const struct ggml_tensor *op, const char *from, bool descending, int32_t *to) {
    uint64_t stack_keys[2 * STACK_KEYS];
    const struct ggml_tensor *a = op->src[0];
    const int64_t n = a->ne[0], n_keys = n_keys_of(op), n_out = op->ne[0];
    char *work = p->work != NULL ? (char *) p->work + row_work(op) * (size_t) p->ith : NULL; // NULL: short rows
    if (is_long(op)) {
        int32_t *spare = (int32_t *) (void *) work, *out = op->op == GGML_OP_TOP_K ? spare + n : to;
        float *floats = (float *) (void *) ((out == to ? spare : out) + n);
        sort_long(cpu_row_load(p->k, a, from, 0, n, floats), n, descending ? UINT32_MAX : 0, out, spare);
        if (out != to) {
            memcpy(to, out, (size_t) n_out * sizeof *to);
        }
        return;
    }
    uint64_t *key = n_keys <= STACK_KEYS ? stack_keys : (uint64_t *) (void *) work;
    if (uses_heap(op)) {
        row_heap(p->k, a, from, key, n_keys);
    } else {
        row_keys(p->k, a, from, descending, key);
    }
    const uint64_t *sorted = keys_sort(key, key + n_keys, n_keys);
    for (int64_t i = 0; i < n_out; i++) {
        to[i] = (int32_t) (sorted[i] & UINT32_MAX);
    }
}

static void sort_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const bool is_top = op->op == GGML_OP_TOP_K, descending = is_top || param_i32(op, 0) == GGML_SORT_ORDER_DESC;
    int64_t r0, r1;
    cpu_share(p, ggml_nrows(op), &r0, &r1);
    for (int64_t ir = r0; ir < r1; ir++) {
        const struct cpu_row_pos at = cpu_row_pos(op, ir);
        int32_t *to = (int32_t *) (void *) cpu_row(op, at);
        row_sort(p, op, cpu_row(op->src[0], at), descending, to);
        if (is_top && op->ne[0] > 1) {
            first_two_swap(to);
        }
    }
}

const struct cpu_op_entry cpu_ops_sort[] = {
    {GGML_OP_ARGSORT, {.supports = sort_supports,
                          .n_tasks = sort_tasks,
                          .work_size = sort_work,
                          .work_bound = sort_work_bound,
                          .run = sort_run,
                          .uses = CPU_USE_CONVERT}},
    {GGML_OP_TOP_K, {.supports = sort_supports,
                        .n_tasks = sort_tasks,
                        .work_size = sort_work,
                        .work_bound = sort_work_bound,
                        .run = sort_run,
                        .uses = CPU_USE_CONVERT}},
    CPU_OPS_END,
};
