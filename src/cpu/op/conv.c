// SPDX-License-Identifier: MIT
// conv.c: CONV_2D, CONV_3D, CONV_2D_DW, CONV_TRANSPOSE_1D, CONV_TRANSPOSE_2D. Data (src[1]) and result are f32. The convolution
// kernel (src[0]) is f32 or f16. With an f16 kernel, the data is rounded to f16, except in CONV_2D_DW. Sums are f32. A tap is
// one position (x, y) of a kernel.
//   CONV_2D, CONV_3D: a task gathers a block of windows as columns (columns.h) and multiplies the columns with the kernel.
//   CONV_2D_DW: each channel has its own kernel. A row of data, or all channels of a pixel, is a vector.
//   CONV_TRANSPOSE_*: kernel and data are transposed so that channels are innermost. For each pixel and tap, a
//   dot product over the channels gives the number that is added to one element of the result.

#include "base/min.h"
#include "core/span.h"
#include "cpu/op/cells.h"
#include "cpu/op/columns.h"
#include "cpu/op/dots.h"
#include "cpu/op/scratch.h"
#include "cpu/optable.h"

static bool kernel_type(enum ggml_type t) {
    return t == GGML_TYPE_F32 || t == GGML_TYPE_F16;
}

static bool types_fit(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return a != NULL && b != NULL && kernel_type(a->type) && b->type == GGML_TYPE_F32 && op->type == GGML_TYPE_F32;
}

// ---- CONV_2D, CONV_3D ----

// A block has at least 4 windows, even if their columns have more than BLOCK_FLOATS floats.
#define BLOCK_WINDOWS 64         // maximum windows of a block; the kernel is read once per block
#define BLOCK_FLOATS (64 * 1024) // maximum floats in the columns of a block

// op_params (s: stride, p: padding, d: dilation):
//   CONV_2D: [s0, s1, p0, p1, d0, d1]
//   CONV_3D: [s0, s1, s2, p0, p1, p2, d0, d1, d2, channels of the data, batch elements, channels of the result]
static struct columns columns_of(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int32_t *q = op->op_params;
    struct columns c = {
        .k = {a->ne[0], a->ne[1], 1},
        .n = {b->ne[0], b->ne[1], 1},
        .out = {op->ne[0], op->ne[1], 1},
        .nb = {b->nb[0], b->nb[1], 0},
        .size = sizeof(float),
    };
    if (op->op == GGML_OP_CONV_2D) {
        memcpy(c.stride, (const int64_t[]){q[0], q[1], 1}, sizeof c.stride);
        memcpy(c.pad, (const int64_t[]){q[2], q[3], 0}, sizeof c.pad);
        memcpy(c.dil, (const int64_t[]){q[4], q[5], 1}, sizeof c.dil);
        c.n_channels = b->ne[2];
        c.n_batch = b->ne[3];
        c.nb_channel = b->nb[2];
        c.nb_batch = b->nb[3];
        return c;
    }
    c.k[2] = a->ne[2];
    c.n[2] = b->ne[2];
    c.out[2] = op->ne[2];
    c.nb[2] = b->nb[2];
    memcpy(c.stride, (const int64_t[]){q[0], q[1], q[2]}, sizeof c.stride);
    memcpy(c.pad, (const int64_t[]){q[3], q[4], q[5]}, sizeof c.pad);
    memcpy(c.dil, (const int64_t[]){q[6], q[7], q[8]}, sizeof c.dil);
    c.n_channels = q[9];
    c.n_batch = q[10];
    c.nb_channel = b->nb[3];
    c.nb_batch = b->nb[3] * (size_t) max_i64(q[9], 0);
    return c;
}

static int64_t channels_out(const struct ggml_tensor *op) {
    return op->op == GGML_OP_CONV_2D ? op->ne[2] : param_i32(op, 11);
}

static bool conv_supports(const struct ggml_tensor *op) {
    if (!types_fit(op) || !ggml_is_contiguous(op->src[0]) || !ggml_is_contiguous(op)) {
        return false;
    }
    const struct columns c = columns_of(op);
    const int64_t n_out = channels_out(op);
    int64_t n_kernel, n_result;
    if (c.n_channels < 0 || c.n_batch < 0 || n_out < 0 || !columns_fit(&c) ||
        !berth_mul_i64_ok(columns_length(&c), n_out, &n_kernel) || !berth_mul_i64_ok(columns_count(&c), n_out, &n_result) ||
        !berth_mul_i64_ok(n_result, c.n_batch, &n_result)) {
        return false;
    }
    return ggml_nelements(op->src[0]) == n_kernel && ggml_nelements(op) == n_result &&
           (op->op == GGML_OP_CONV_2D || op->src[1]->ne[3] == c.n_channels * c.n_batch);
}

static int64_t block_windows(const struct columns *c) {
    const int64_t n = BLOCK_FLOATS / (columns_length(c) + 1);
    return clamp_i64(n, 4, BLOCK_WINDOWS);
}

// Floats per task: the columns, and one column as f32 before its conversion to f16.
static int64_t conv_floats(const struct ggml_tensor *op) {
    const struct columns c = columns_of(op);
    return (block_windows(&c) + 1) * columns_length(&c);
}

static size_t conv_work(const struct ggml_tensor *op, int n_tasks) {
    return cpu_scratch_size(conv_floats(op), n_tasks);
}

// An op with shorter columns may have more columns per block. The bound covers every shorter length.
static size_t conv_work_bound(const struct ggml_tensor *op, int n_tasks) {
    const struct columns c = columns_of(op);
    const int64_t length = columns_length(&c), all = (BLOCK_WINDOWS + 1) * length;
    const int64_t most = 4 * length > BLOCK_FLOATS ? 5 * length : BLOCK_FLOATS + length;
    return cpu_scratch_size(min_i64(most, all), n_tasks);
}

static int conv_tasks(const struct ggml_tensor *op, int n_threads) {
    const struct columns c = columns_of(op);
    const int64_t blocks = (columns_count(&c) + block_windows(&c) - 1) / block_windows(&c) * c.n_batch;
    const int64_t by_work = columns_length(&c) * ggml_nelements(op) / CPU_TASK_ELEMENTS;
    const int64_t n = min_i64(blocks, by_work);
    return cpu_tasks_for((double) n, n_threads);
}

static void conv_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const struct columns c = columns_of(op);
    const int64_t length = columns_length(&c), count = columns_count(&c), step = block_windows(&c), n_out = channels_out(op);
    const size_t column_size = (size_t) length * ggml_type_size(a->type);
    float *one = cpu_scratch(p, conv_floats(op));
    char *columns = (char *) (one + length);
    const int64_t blocks = (count + step - 1) / step;
    for (int64_t i; (i = cpu_chunk_next(p)) < blocks * c.n_batch;) {
        const int64_t i_batch = i / blocks, w0 = i % blocks * step;
        const int n = (int) min_i64(count - w0, step);
        const char *data = (const char *) b->data + (size_t) i_batch * c.nb_batch;
        for (int j = 0; j < n; j++) {
            const int64_t w = w0 + j;
            const int64_t at[] = {w % c.out[0], w / c.out[0] % c.out[1], w / c.out[0] / c.out[1]};
            char *to = columns + (size_t) j * column_size;
            cpu_column_gather(&c, data, at, a->type == GGML_TYPE_F32 ? to : (char *) one);
            if (a->type != GGML_TYPE_F32) {
                p->k->traits[a->type].from_float(one, to, length);
            }
        }
        float *plane = (float *) op->data + i_batch * n_out * count + w0;
        cpu_dots(p->k, a->type, length, plane, count, columns, column_size, n, a->data, column_size, (int) n_out);
    }
}

// ---- CONV_2D_DW: op_params [s0, s1, p0, p1, d0, d1] ----

static bool dw_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return types_fit(op) && a->ne[2] == 1 && a->ne[3] == b->ne[2] && op->ne[2] == b->ne[2] && op->ne[3] == b->ne[3] &&
           param_i32(op, 0) > 0;
}

static size_t dw_work(const struct ggml_tensor *op, int n_tasks) {
    const struct ggml_tensor *a = op->src[0];
    return (cpu_scratch_floats(ggml_nelements(a)) + cpu_scratch_floats(op->ne[0]) * (size_t) n_tasks) * sizeof(float);
}

// by_channel: taps of a channel are adjacent, otherwise channels of a tap.
static void dw_taps(const struct cpu_params *p, const struct ggml_tensor *a, bool by_channel) {
    const int64_t n_taps = a->ne[0] * a->ne[1], n_channels = a->ne[3];
    float *taps = p->work;
    int64_t c0, c1;
    cpu_share(p, n_channels, &c0, &c1);
    for (int64_t c = c0; c < c1; c++) {
        for (int64_t i = 0; i < n_taps; i++) {
            const char *at = cpu_row_at(a, i / a->ne[0], 0, c) + (size_t) (i % a->ne[0]) * a->nb[0];
            float v;
            p->k->to_float[a->type](at, &v, 1);
            taps[by_channel ? c * n_taps + i : i * n_channels + c] = v;
        }
    }
    cpu_barrier(p);
}

static void dw_row(
    const struct cpu_params *p, const struct ggml_tensor *op, struct cpu_row_pos at, const float *taps, float *sums) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int32_t *q = op->op_params;
    p->k->fill(op->ne[0], sums, 0.0f);
    for (int64_t ky = 0; ky < a->ne[1]; ky++) {
        const int64_t y = at.i1 * q[1] - q[3] + ky * q[5];
        if (y < 0 || y >= b->ne[1]) {
            continue;
        }
        const char *row = cpu_row_at(b, y, at.i2, at.i3);
        for (int64_t kx = 0; kx < a->ne[0]; kx++) {
            const int64_t shift = kx * q[4] - q[2]; // result x reads data x * q[0] + shift
            int64_t x0 = shift < 0 ? (-shift + q[0] - 1) / q[0] : 0;
            int64_t x1 = b->ne[0] - shift > 0 ? (b->ne[0] - shift + q[0] - 1) / q[0] : 0;
            x1 = min_i64(x1, op->ne[0]);
            const float tap = taps[ky * a->ne[0] + kx];
            if (x0 < x1 && q[0] == 1 && b->nb[0] == sizeof(float)) {
                p->k->mad(x1 - x0, sums + x0, (const float *) (const void *) row + x0 + shift, tap);
                continue;
            }
            for (; x0 < x1; x0++) {
                float v;
                memcpy(&v, row + (size_t) (x0 * q[0] + shift) * b->nb[0], sizeof v);
                sums[x0] += v * tap;
            }
        }
    }
    cells_copy(cpu_row(op, at), op->nb[0], (const char *) sums, sizeof(float), op->ne[0], sizeof(float));
}

// Channels are adjacent in data, result and taps.
static void dw_pixel(
    const struct cpu_params *p, const struct ggml_tensor *op, int64_t x, struct cpu_row_pos at, const float *taps) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int32_t *q = op->op_params;
    const int64_t n_channels = b->ne[2];
    float *sums = (float *) (void *) (cpu_row_at(op, at.i1, 0, at.i3) + (size_t) x * op->nb[0]);
    p->k->fill(n_channels, sums, 0.0f);
    for (int64_t ky = 0; ky < a->ne[1]; ky++) {
        const int64_t from_y = at.i1 * q[1] - q[3] + ky * q[5];
        for (int64_t kx = 0; kx < a->ne[0] && from_y >= 0 && from_y < b->ne[1]; kx++) {
            const int64_t from_x = x * q[0] - q[2] + kx * q[4];
            if (from_x < 0 || from_x >= b->ne[0]) {
                continue;
            }
            const float *v = (const float *) (void *) (cpu_row_at(b, from_y, 0, at.i3) + (size_t) from_x * b->nb[0]);
            const float *tap = taps + (ky * a->ne[0] + kx) * n_channels;
            for (int64_t c = 0; c < n_channels; c++) {
                sums[c] += v[c] * tap[c];
            }
        }
    }
}

static void dw_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const bool pixels = b->nb[2] == sizeof(float) && op->nb[2] == sizeof(float) && b->ne[2] > 1;
    dw_taps(p, a, !pixels);
    const float *taps = p->work;
    int64_t i0, i1;
    if (pixels) {
        cpu_share(p, op->ne[0] * op->ne[1] * op->ne[3], &i0, &i1);
        for (int64_t i = i0; i < i1; i++) {
            const struct cpu_row_pos at = {.i1 = i / op->ne[0] % op->ne[1], .i3 = i / op->ne[0] / op->ne[1]};
            dw_pixel(p, op, i % op->ne[0], at, taps);
        }
        return;
    }
    float *sums = (float *) p->work + cpu_scratch_floats(ggml_nelements(a)) + cpu_scratch_floats(op->ne[0]) * (size_t) p->ith;
    cpu_share(p, ggml_nrows(op), &i0, &i1);
    for (int64_t i = i0; i < i1; i++) {
        const struct cpu_row_pos at = cpu_row_pos(op, i);
        dw_row(p, op, at, taps + at.i2 * a->ne[0] * a->ne[1], sums);
    }
}

// ---- CONV_TRANSPOSE_1D, CONV_TRANSPOSE_2D: op_params [stride, ...] ----

// A transposed convolution in one or two dimensions. In one dimension, ky and h are 1.
struct transposed {
    int64_t kx, ky, n_in, n_out, w, h, n_batch; // kernel extents; channels of data and result; data extents
    size_t nb_kx, nb_ky, nb_k_out, nb_k_in;     // byte strides of the kernel
    size_t nb_x, nb_y, nb_in, nb_batch;         // byte strides of the data
    int64_t stride;
};

static struct transposed transposed_of(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int64_t stride = param_i32(op, 0);
    if (op->op == GGML_OP_CONV_TRANSPOSE_1D) {
        return (struct transposed){a->ne[0], 1, a->ne[2], a->ne[1], b->ne[0], 1, 1, a->nb[0], 0, a->nb[1], a->nb[2], b->nb[0], 0,
            b->nb[1], b->nb[2], stride};
    }
    return (struct transposed){a->ne[0], a->ne[1], a->ne[3], a->ne[2], b->ne[0], b->ne[1], b->ne[3], a->nb[0], a->nb[1], a->nb[2],
        a->nb[3], b->nb[0], b->nb[1], b->nb[2], b->nb[3], stride};
}

// True if n windows of k elements, `stride` apart, cover exactly `extent` elements.
static bool windows_cover(int64_t n, int64_t stride, int64_t k, int64_t extent) {
    int64_t all;
    return berth_add_i64_ok(n, -1, &all) && berth_mul_i64_ok(all, stride, &all) && berth_add_i64_ok(all, k, &all) &&
           all == extent;
}

static bool transposed_supports(const struct ggml_tensor *op) {
    if (!types_fit(op) || !ggml_is_contiguous(op) || param_i32(op, 0) < 0) {
        return false;
    }
    const struct transposed t = transposed_of(op);
    const int64_t *ne = op->ne;
    // A task needs kx * ky * w floats for the products of a row.
    int64_t n_taps;
    if (!berth_mul_i64_ok(t.kx, t.ky, &n_taps) || !berth_mul_i64_ok(n_taps, t.w, &n_taps) || n_taps > BERTH_SPAN_MAX_ELEMENTS) {
        return false;
    }
    if (op->op == GGML_OP_CONV_TRANSPOSE_1D) {
        return op->src[1]->ne[1] == t.n_in && windows_cover(t.w, t.stride, t.kx, ne[0]) && ne[1] == t.n_out && ne[2] == 1 &&
               ne[3] == 1;
    }
    return op->src[1]->ne[2] == t.n_in && windows_cover(t.w, t.stride, t.kx, ne[0]) &&
           windows_cover(t.h, t.stride, t.ky, ne[1]) && ne[2] == t.n_out && ne[3] == t.n_batch;
}

// Work memory: transposed kernel, transposed data; per task: a pixel as floats, products of a row.
static size_t kernel_size(const struct ggml_tensor *op) {
    return cpu_scratch_floats(ggml_nelements(op->src[0])) * sizeof(float);
}
static size_t data_size(const struct ggml_tensor *op) {
    return cpu_scratch_floats(ggml_nelements(op->src[1])) * sizeof(float);
}
static int64_t transposed_floats(const struct transposed *t) {
    return t->n_in + t->kx * t->ky * t->w;
}

static size_t transposed_work(const struct ggml_tensor *op, int n_tasks) {
    const struct transposed t = transposed_of(op);
    return kernel_size(op) + data_size(op) + cpu_scratch_size(transposed_floats(&t), n_tasks);
}

// Also converts the data to the type of the kernel.
static void channels_innermost(const struct cpu_params *p, const struct ggml_tensor *op, const struct transposed *t, float *row) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const size_t size = ggml_type_size(a->type), cell = (size_t) t->n_in * size;
    char *kernel = p->work, *data = kernel + kernel_size(op);
    int64_t i0, i1;
    cpu_share(p, t->n_out * t->ky * t->kx, &i0, &i1);
    for (int64_t i = i0; i < i1; i++) {
        const int64_t x = i % t->kx, y = i / t->kx % t->ky, c = i / t->kx / t->ky;
        const char *from = (const char *) a->data + (size_t) x * t->nb_kx + (size_t) y * t->nb_ky + (size_t) c * t->nb_k_out;
        cells_copy(kernel + (size_t) i * cell, size, from, t->nb_k_in, t->n_in, size);
    }
    cpu_share(p, t->w * t->h * t->n_batch, &i0, &i1);
    for (int64_t i = i0; i < i1; i++) {
        const int64_t x = i % t->w, y = i / t->w % t->h, n = i / t->w / t->h;
        const char *from = (const char *) b->data + (size_t) x * t->nb_x + (size_t) y * t->nb_y + (size_t) n * t->nb_batch;
        cells_copy((char *) row, sizeof(float), from, t->nb_in, t->n_in, sizeof(float));
        p->k->traits[a->type].from_float(row, data + (size_t) i * cell, t->n_in);
    }
    cpu_barrier(p);
}

// Computes one channel of one batch element. `taps`: products of all pixels of a row with all taps.
static void transposed_plane(const struct cpu_params *p, const struct ggml_tensor *op, const struct transposed *t,
    int64_t i_batch, int64_t c, float *taps) {
    const enum ggml_type type = op->src[0]->type;
    const size_t cell = (size_t) t->n_in * ggml_type_size(type);
    const int64_t n_taps = t->kx * t->ky, w = op->ne[0], h = op->op == GGML_OP_CONV_TRANSPOSE_1D ? 1 : op->ne[1];
    const char *kernel = (const char *) p->work + (size_t) (c * n_taps) * cell;
    const char *data = (const char *) p->work + kernel_size(op) + (size_t) (i_batch * t->w * t->h) * cell;
    float *plane = (float *) op->data + (i_batch * t->n_out + c) * w * h;
    p->k->fill(w * h, plane, 0.0f);
    for (int64_t y = 0; y < t->h; y++) {
        cpu_dots(
            p->k, type, t->n_in, taps, n_taps, kernel, cell, (int) n_taps, data + (size_t) (y * t->w) * cell, cell, (int) t->w);
        for (int64_t x = 0; x < t->w; x++) {
            for (int64_t ky = 0; ky < t->ky; ky++) {
                float *to = plane + (y * t->stride + ky) * w + x * t->stride;
                const float *from = taps + x * n_taps + ky * t->kx;
                for (int64_t kx = 0; kx < t->kx; kx++) {
                    to[kx] += from[kx];
                }
            }
        }
    }
}

static void transposed_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct transposed t = transposed_of(op);
    float *mine = (float *) (void *) ((char *) p->work + kernel_size(op) + data_size(op)) +
                  cpu_scratch_floats(transposed_floats(&t)) * (size_t) p->ith;
    channels_innermost(p, op, &t, mine);
    int64_t i0, i1;
    cpu_share(p, t.n_out * t.n_batch, &i0, &i1);
    for (int64_t i = i0; i < i1; i++) {
        transposed_plane(p, op, &t, i / t.n_out, i % t.n_out, mine + t.n_in);
    }
}

static int transposed_tasks(const struct ggml_tensor *op, int n_threads) {
    const struct transposed t = transposed_of(op);
    const int64_t planes = t.n_out * t.n_batch;
    const int64_t work = t.kx * t.ky * t.n_in * t.w * t.h * planes / CPU_TASK_ELEMENTS;
    const int64_t n = min_i64(planes, work);
    return cpu_tasks_for((double) n, n_threads);
}

const struct cpu_op_entry cpu_ops_conv[] = {
    {GGML_OP_CONV_2D, {.supports = conv_supports,
                          .n_tasks = conv_tasks,
                          .work_size = conv_work,
                          .work_bound = conv_work_bound,
                          .run = conv_run,
                          .uses = CPU_USE_DOT}},
    {GGML_OP_CONV_3D, {.supports = conv_supports,
                          .n_tasks = conv_tasks,
                          .work_size = conv_work,
                          .work_bound = conv_work_bound,
                          .run = conv_run,
                          .uses = CPU_USE_DOT}},
    {GGML_OP_CONV_2D_DW, {.supports = dw_supports, .work_size = dw_work, .run = dw_run, .uses = CPU_USE_MAD | CPU_USE_CONVERT}},
    {GGML_OP_CONV_TRANSPOSE_1D, {.supports = transposed_supports,
                                    .n_tasks = transposed_tasks,
                                    .work_size = transposed_work,
                                    .run = transposed_run,
                                    .uses = CPU_USE_DOT}},
    {GGML_OP_CONV_TRANSPOSE_2D, {.supports = transposed_supports,
                                    .n_tasks = transposed_tasks,
                                    .work_size = transposed_work,
                                    .run = transposed_run,
                                    .uses = CPU_USE_DOT}},
    CPU_OPS_END,
};
