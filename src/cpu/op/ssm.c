// SPDX-License-Identifier: MIT
// ssm.c: state space models (SSM_CONV, SSM_SCAN), the triangular solver (SOLVE_TRI), and hyper-connections between residual
// streams (DSV4_HC_*). All are f32. Tasks divide independent channels, heads, columns or tokens.

#include "base/min.h"
#include "cpu/op/scratch.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// True if the first n sources exist and are f32.
static bool sources_f32(const struct ggml_tensor *op, int n) {
    for (int i = 0; i < n; i++) {
        if (op->src[i] == NULL || op->src[i]->type != GGML_TYPE_F32) {
            return false;
        }
    }
    return op->type == GGML_TYPE_F32;
}

static const float *at_f32(const struct ggml_tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    return (const float *) (const void *) (cpu_row_at(t, i1, i2, i3) + (size_t) i0 * t->nb[0]);
}

// ---- SSM_CONV: a short filter per channel along time ----

static bool conv_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *x = op->src[0], *c = op->src[1];
    return sources_f32(op, 2) && cpu_rows_are_dense(x) && cpu_rows_are_dense(c) && cpu_rows_are_dense(op) &&
           x->ne[1] == c->ne[1] && op->ne[0] == c->ne[1] && op->ne[1] == x->ne[0] - c->ne[0] + 1 && op->ne[2] == x->ne[2];
}

// Applies a filter of d_conv elements to n_token outputs, `step` bytes apart. The compiler unrolls the loop over a constant d_conv.
static inline __attribute__((always_inline)) void filter_run(
    const float *in, const float *w, int64_t d_conv, char *out, size_t step, int64_t n_token) {
    for (int64_t t = 0; t < n_token; t++, out += step) {
        float sum = 0.0f;
        for (int64_t j = 0; j < d_conv; j++) {
            sum += in[t + j] * w[j];
        }
        *(float *) (void *) out = sum;
    }
}

// Twice as many tasks as for an op that reads its sources at the speed of memory.
static int conv_n_tasks(const struct ggml_tensor *op, int n_threads) {
    return cpu_tasks_for((double) ggml_nelements(op->src[0]) * 2 / CPU_TASK_ELEMENTS, n_threads);
}

static void conv_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *x = op->src[0], *c = op->src[1];
    const int64_t d_conv = c->ne[0], n_token = op->ne[1];
    int64_t i0, i1;
    cpu_share(p, op->ne[0], &i0, &i1);
    for (int64_t s = 0; s < op->ne[2]; s++) {
        char *out = cpu_row_at(op, 0, s, 0);
        for (int64_t i = i0; i < i1; i++) {
            const float *in = at_f32(x, 0, i, s, 0), *w = at_f32(c, 0, i, 0, 0);
            char *to = out + (size_t) i * sizeof(float);
            if (d_conv == 4) {
                filter_run(in, w, 4, to, op->nb[1], n_token);
            } else {
                filter_run(in, w, d_conv, to, op->nb[1], n_token);
            }
        }
    }
}

// ---- SSM_SCAN: h = exp(dt A) h + dt B x, y = C h (Gu and Dao, arXiv 2312.00752 and 2405.21060) ----

// Returns K: the states after each of the last K tokens are kept. Graphs of ggml before 0.25 keep one.
static int64_t scan_states(const struct ggml_tensor *op) {
    const int32_t K = param_i32(op, 0);
    return K == 0 ? 1 : K;
}

// Shapes: s [d_state, d_head, heads, ...], x [d_head, heads, tokens, sequences], dt [heads, tokens, sequences], A [1 or d_state,
// heads], B and C [d_state, groups, tokens, sequences], one id per sequence. The result must hold x and K states.
static bool scan_fits(const struct ggml_tensor *op) {
    const struct ggml_tensor *s = op->src[0], *x = op->src[1], *dt = op->src[2], *A = op->src[3], *B = op->src[4],
                             *C = op->src[5];
    const int64_t K = scan_states(op);
    // A double does not overflow. If K > 1, A must have one element per head.
    const double n_required =
        (double) ggml_nelements(x) + (double) K * (double) s->ne[0] * (double) s->ne[1] * (double) s->ne[2] * (double) x->ne[3];
    return K >= 1 && (K == 1 || A->ne[0] == 1) && s->ne[0] <= INT32_MAX && s->ne[1] == x->ne[0] && s->ne[2] == x->ne[1] &&
           dt->ne[0] == x->ne[1] && dt->ne[1] == x->ne[2] && dt->ne[2] == x->ne[3] && dt->ne[3] == 1 &&
           (A->ne[0] == 1 || A->ne[0] == s->ne[0]) && A->ne[1] == x->ne[1] && B->ne[0] == s->ne[0] && B->ne[2] == x->ne[2] &&
           B->ne[3] == x->ne[3] && ggml_are_same_shape(B, C) && op->src[6]->ne[0] >= x->ne[3] && ggml_is_contiguous(op) &&
           (double) ggml_nelements(op) >= n_required;
}

static bool scan_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *ids = op->src[6];
    return sources_f32(op, 6) && cpu_dot_is_length(op->src[0]->ne[0]) && ids != NULL && ids->type == GGML_TYPE_I32 &&
           ids->nb[0] == sizeof(int32_t) && cpu_rows_are_dense(op->src[1]) && cpu_rows_are_dense(op->src[4]) &&
           cpu_rows_are_dense(op->src[5]) && ggml_is_contiguous(op->src[0]) && ggml_is_contiguous(op->src[2]) &&
           ggml_is_contiguous(op->src[3]) && scan_fits(op);
}

#define BLOCK_HEADS 64    // maximum heads of a block
#define BLOCK_STATES 1024 // a block of several heads has at most this many elements of decay

// Returns the number of heads that are processed together, a block. Heads of mamba-1 have one row of few elements. So the functions
// of all heads of a block are computed by one call of a kernel.
static int64_t block_heads(const struct ggml_tensor *op) {
    return clamp_i64(BLOCK_STATES / max_i64(op->src[0]->ne[0], 1), 1, BLOCK_HEADS);
}

static int64_t decay_floats(const struct ggml_tensor *op) {
    return max_i64(BLOCK_STATES, op->src[0]->ne[0]);
}

static size_t scan_work_size(const struct ggml_tensor *op, int n_tasks) {
    return cpu_scratch_size(decay_floats(op), n_tasks);
}

// y = log(1 + exp(x)), n <= BLOCK_HEADS. It is max(x, 0) + log(1 + t) with t = exp(-|x|). log(1 + t) is 2 atanh(z) with
// z = t / (2 + t) <= 1/3. Seven terms of the series of atanh have an error below 2^-26.
static void softplus(const struct cpu_kernels *k, int64_t n, float *y, const float *x) {
    float t[BLOCK_HEADS];
    for (int64_t i = 0; i < n; i++) {
        t[i] = -fabsf(x[i]);
    }
    k->exp(n, t, t);
    for (int64_t i = 0; i < n; i++) {
        const float z = t[i] / (2.0f + t[i]), q = z * z;
        const float series =
            1.0f + q * (1.0f / 3 + q * (1.0f / 5 + q * (1.0f / 7 + q * (1.0f / 9 + q * (1.0f / 11 + q * (1.0f / 13))))));
        y[i] = max_f32(x[i], 0.0f) + 2.0f * z * series;
    }
}

typedef float lanes __attribute__((vector_size(16))); // of gcc and clang, for every processor

static inline lanes lanes_at(const float *x) {
    lanes v;
    memcpy(&v, x, sizeof v);
    return v;
}

// x * y + z, rounded once if the processor has an instruction for it.
static inline lanes lanes_mad(lanes x, lanes y, lanes z) {
#if defined(__FP_FAST_FMAF) || defined(__ARM_FEATURE_FMA)
    for (int i = 0; i < 4; i++) {
        z[i] = fmaf(x[i], y[i], z[i]);
    }
    return z;
#else
    return x * y + z;
#endif
}

// to = from * decay + b * v; returns dot(to, c). `to` may be `from`. If is_scalar, decay has one element. One pass, because memory
// limits the speed.
static inline __attribute__((always_inline)) float state_step(
    int64_t n, float *to, const float *from, const float *decay, const bool is_scalar, const float *b, float v, const float *c) {
    const lanes first = {decay[0], decay[0], decay[0], decay[0]};
    lanes sum[2] = {{0}, {0}};
    float rest = 0.0f;
    int64_t j = 0;
    for (; j + 8 <= n; j += 8) {
        for (int i = 0; i < 2; i++) {
            const int64_t at = j + 4 * i;
            const lanes factor = is_scalar ? first : lanes_at(decay + at);
            const lanes next = lanes_mad(lanes_at(from + at), factor, lanes_at(b + at) * v);
            memcpy(to + at, &next, sizeof next);
            sum[i] = lanes_mad(next, lanes_at(c + at), sum[i]);
        }
    }
    for (; j < n; j++) {
        to[j] = from[j] * decay[is_scalar ? 0 : j] + b[j] * v;
        rest += to[j] * c[j];
    }
    const lanes all = sum[0] + sum[1];
    return (all[0] + all[1]) + (all[2] + all[3]) + rest;
}

// Heads h0 .. h0+n-1 of one sequence.
struct block {
    int64_t h0, n, seq;
    const float *before; // [d_state, d_head, n]: the states before the first token
    float *state;        // the same shape: the states after the last token
    float *decay;        // [elements of A per head, n], scratch
};

// Computes exp(step A) for each head of a block.
static void decay_of(const struct cpu_kernels *k, const struct ggml_tensor *A, const struct block *b, const float *step) {
    const int64_t n = A->ne[0];
    for (int64_t i = 0; i < b->n; i++) {
        const float *rate = at_f32(A, 0, b->h0 + i, 0, 0);
        for (int64_t j = 0; j < n; j++) {
            b->decay[i * n + j] = step[i] * rate[j];
        }
    }
    k->exp(b->n * n, b->decay, b->decay);
}

// Processes all tokens of a block. The state i tokens before the last, 0 < i < K, is stored at state + i * n_slab.
static void block_run(const struct cpu_params *p, struct ggml_tensor *op, const struct block *blk, int64_t n_slab) {
    const struct ggml_tensor *x = op->src[1], *dt = op->src[2], *A = op->src[3], *B = op->src[4], *C = op->src[5];
    const int64_t d_state = op->src[0]->ne[0], d_head = x->ne[0], n_head = x->ne[1], per_group = n_head / B->ne[1];
    for (int64_t t = 0; t < x->ne[2]; t++) {
        float step[BLOCK_HEADS];
        softplus(p->k, blk->n, step, at_f32(dt, blk->h0, t, blk->seq, 0));
        decay_of(p->k, A, blk, step);
        for (int64_t i = 0; i < blk->n; i++) {
            const int64_t h = blk->h0 + i;
            const float *in = at_f32(x, 0, h, t, blk->seq);
            const float *b = at_f32(B, 0, h / per_group, t, blk->seq), *c = at_f32(C, 0, h / per_group, t, blk->seq);
            float *y = (float *) op->data + ((blk->seq * x->ne[2] + t) * n_head + h) * d_head;
            const float *from = (t == 0 ? blk->before : blk->state) + i * d_head * d_state, *decay = blk->decay + i * A->ne[0];
            float *to = blk->state + i * d_head * d_state;
            for (int64_t r = 0; r < d_head; r++) {
                const int64_t at = r * d_state;
                if (A->ne[0] == 1) {
                    y[r] = state_step(d_state, to + at, from + at, decay, true, b, in[r] * step[i], c);
                } else {
                    y[r] = state_step(d_state, to + at, from + at, decay, false, b, in[r] * step[i], c);
                }
            }
        }
        const int64_t n_after = x->ne[2] - 1 - t;
        if (n_after > 0 && n_after < scan_states(op)) {
            memcpy(blk->state + n_after * n_slab, blk->state, (size_t) (blk->n * d_head * d_state) * sizeof *blk->state);
        }
    }
}

static void scan_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *s = op->src[0], *x = op->src[1], *B = op->src[4];
    const int64_t d_state = s->ne[0], d_head = x->ne[0], n_head = x->ne[1], n_seq = x->ne[3];
    const int32_t *ids = op->src[6]->data;
    float *states = (float *) op->data + ggml_nelements(x);
    if (B->ne[1] <= 0 || n_head % B->ne[1] != 0) {
        cpu_fail(p, "%s: %" PRId64 " heads cannot be divided into %" PRId64 " groups", op->name, n_head, B->ne[1]);
        return;
    }
    int64_t i, end, n;
    for (cpu_share(p, n_head * n_seq, &i, &end); i < end; i += n) {
        const int64_t seq = i / n_head, h = i % n_head;
        if (ids[seq] < 0 || ids[seq] >= s->ne[3]) {
            cpu_fail(
                p, "%s: sequence %" PRId64 " selects state %d, there are %" PRId64 " states", op->name, seq, ids[seq], s->ne[3]);
            return;
        }
        n = min_i64(min_i64(block_heads(op), n_head - h), end - i);
        const struct block block = {
            h, n, seq, at_f32(s, 0, 0, h, ids[seq]), states + i * d_head * d_state, cpu_scratch(p, decay_floats(op))};
        block_run(p, op, &block, d_state * d_head * n_head * n_seq);
        if (x->ne[2] == 0) {
            memcpy(block.state, block.before, (size_t) (n * d_head * d_state) * sizeof *states);
        }
    }
}

// ---- SOLVE_TRI: solves a x = b row by row from the top; a is lower triangular ----

static bool solve_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return sources_f32(op, 2) && cpu_rows_are_dense(a) && cpu_rows_are_dense(b) && cpu_rows_are_dense(op) &&
           a->ne[0] == a->ne[1] && a->ne[1] == b->ne[1] && a->ne[2] == b->ne[2] && a->ne[3] == b->ne[3] &&
           ggml_are_same_shape(b, op);
}

#define SOLVE_COLS 64 // columns solved together: 4 cache lines per row

static void solve_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int64_t n_pieces = (op->ne[0] + SOLVE_COLS - 1) / SOLVE_COLS;
    int64_t i, end;
    for (cpu_share(p, n_pieces * op->ne[2] * op->ne[3], &i, &end); i < end; i++) {
        const int64_t i0 = i % n_pieces * SOLVE_COLS, i2 = i / n_pieces % op->ne[2], i3 = i / n_pieces / op->ne[2];
        const int64_t n = min_i64(op->ne[0] - i0, SOLVE_COLS);
        for (int64_t r = 0; r < op->ne[1]; r++) {
            const float *row = at_f32(a, 0, r, i2, i3);
            float sum[SOLVE_COLS] = {0};
            for (int64_t c = 0; c < r; c++) {
                p->k->mad(n, sum, at_f32(op, i0, c, i2, i3), row[c]);
            }
            const float *right = at_f32(b, i0, r, i2, i3);
            float *x = (float *) (void *) cpu_row_at(op, r, i2, i3) + i0;
            for (int64_t j = 0; j < n; j++) {
                x[j] = (right[j] - sum[j]) / row[r];
            }
        }
    }
}

// ---- DSV4_HC_*: residual streams, mixed by small matrices (hyper-connections, arXiv 2409.19606) ----

#define HC 4                      // streams
#define HC_MIX (2 * HC + HC * HC) // weights: HC to join streams, HC to distribute a result, HC * HC to mix streams

static bool comb_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *m = op->src[0];
    return sources_f32(op, 3) && op->src[1]->ne[0] >= 3 && op->src[2]->ne[0] >= HC_MIX && ggml_nrows(op->src[1]) > 0 &&
           ggml_nrows(op->src[2]) > 0 && ggml_is_contiguous(op) && m->ne[0] == HC_MIX && op->ne[0] == HC && op->ne[1] == HC &&
           op->ne[2] == m->ne[1];
}

// Divides each row of m by its sum plus eps. If `rows` is false, divides each column.
static void comb_norm(float m[HC][HC], bool rows, float eps) {
    for (int i = 0; i < HC; i++) {
        float sum = 0.0f;
        for (int j = 0; j < HC; j++) {
            sum += rows ? m[i][j] : m[j][i];
        }
        for (int j = 0; j < HC; j++) {
            float *v = rows ? &m[i][j] : &m[j][i];
            *v /= sum + eps;
        }
    }
}

// Computes a matrix whose rows and columns each have the sum 1, by Sinkhorn's algorithm on a softmax of each row.
static void comb_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *mixes = op->src[0];
    const struct ggml_tensor *base = op->src[2];
    const float scale = cpu_f32_at(op->src[1], 2);
    const float eps = param_f32(op, 0);
    const int32_t n_iter = param_i32(op, 1);
    int64_t t, end;
    for (cpu_share(p, mixes->ne[1], &t, &end); t < end; t++) {
        float m[HC][HC];
        for (int i = 0; i < HC; i++) {
            float max = -INFINITY, sum = 0.0f;
            for (int j = 0; j < HC; j++) {
                const int64_t at = 2 * HC + i * HC + j;
                m[i][j] = *at_f32(mixes, at, t, 0, 0) * scale + cpu_f32_at(base, at);
                max = max_f32(m[i][j], max);
            }
            for (int j = 0; j < HC; j++) {
                sum += m[i][j] = expf(m[i][j] - max);
            }
            for (int j = 0; j < HC; j++) {
                m[i][j] = m[i][j] / sum + eps;
            }
        }
        comb_norm(m, false, eps);
        for (int32_t i = 1; i < n_iter; i++) {
            comb_norm(m, true, eps);
            comb_norm(m, false, eps);
        }
        memcpy((float *) op->data + t * HC * HC, m, sizeof m);
    }
}

// op_params of DSV4_HC_PRE: [scale, gated]. If gated, src[1] has a gate per element, otherwise a weight per stream.
static bool pre_is_gated(const struct ggml_tensor *op) {
    return param_i32(op, 1) != 0;
}

// Returns 1 for graphs of ggml before 0.25, which do not set the scale.
static float pre_scale(const struct ggml_tensor *op) {
    return param_i32(op, 0) == 0 && !pre_is_gated(op) ? 1.0f : param_f32(op, 0);
}

static bool pre_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *x = op->src[0], *w = op->src[1];
    if (!sources_f32(op, 2) || op->ne[0] != x->ne[0] || op->ne[1] != x->ne[2]) {
        return false;
    }
    return pre_is_gated(op) ? ggml_are_same_shape(x, w) : w->ne[0] == x->ne[1] && w->ne[1] == x->ne[2];
}

// The result is the weighted sum of all streams of src[0].
static void pre_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *x = op->src[0], *w = op->src[1];
    const struct cpu_kernels *k = p->k;
    const bool gated = pre_is_gated(op);
    const float scale = pre_scale(op);
    float buf_x[CPU_PIECE], buf_w[CPU_PIECE], sum[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        const int64_t t = it.at.i1;
        k->fill(it.n, sum, 0.0f);
        for (int64_t s = 0; s < x->ne[1]; s++) {
            const float *part = cpu_row_load(k, x, cpu_row_at(x, s, t, 0), it.i0, it.n, buf_x);
            if (gated) {
                k->sigmoid(it.n, buf_w, cpu_row_load(k, w, cpu_row_at(w, s, t, 0), it.i0, it.n, buf_w));
                k->mul(it.n, buf_w, buf_w, part);
                k->add(it.n, sum, sum, buf_w);
            } else {
                k->mad(it.n, sum, part, *at_f32(w, s, t, 0, 0));
            }
        }
        k->scale(it.n, sum, sum, scale, 0.0f);
        cpu_row_store(k, op, cpu_row(op, it.at), it.i0, it.n, sum);
    }
}

static bool post_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *x = op->src[0], *res = op->src[1], *post = op->src[2], *comb = op->src[3];
    return sources_f32(op, comb != NULL ? 4 : 3) && ggml_are_same_shape(res, op) && x->ne[0] == op->ne[0] &&
           x->ne[1] == op->ne[2] && post->ne[0] == op->ne[1] && post->ne[1] == op->ne[2] &&
           (comb == NULL || (comb->ne[0] == op->ne[1] && comb->ne[1] == op->ne[1] && comb->ne[2] == op->ne[2]));
}

// Each new stream is x times its weight, plus a mix of the old streams by the matrix comb. Without comb, the mix is the old
// stream.
static void post_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *x = op->src[0], *res = op->src[1], *post = op->src[2], *comb = op->src[3];
    const struct cpu_kernels *k = p->k;
    float buf[CPU_PIECE], sum[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        const int64_t s = it.at.i1, t = it.at.i2;
        k->scale(it.n, sum, cpu_row_load(k, x, cpu_row_at(x, t, 0, 0), it.i0, it.n, buf), *at_f32(post, s, t, 0, 0), 0.0f);
        if (comb == NULL) {
            k->add(it.n, sum, sum, cpu_row_load(k, res, cpu_row(res, it.at), it.i0, it.n, buf));
        }
        for (int64_t from = 0; comb != NULL && from < op->ne[1]; from++) {
            const float *old = cpu_row_load(k, res, cpu_row_at(res, from, t, 0), it.i0, it.n, buf);
            k->mad(it.n, sum, old, *at_f32(comb, s, from, t, 0));
        }
        cpu_row_store(k, op, cpu_row(op, it.at), it.i0, it.n, sum);
    }
}

const struct cpu_op_entry cpu_ops_ssm[] = {
    {GGML_OP_SSM_CONV, {.supports = conv_supports, .n_tasks = conv_n_tasks, .run = conv_run}},
    {GGML_OP_SSM_SCAN, {.supports = scan_supports,
                           .work_size = scan_work_size,
                           .run = scan_run,
                           .uses = CPU_USE_EXP,
                           .empty_srcs = 0x36}}, // x, dt, B, C without tokens: states stay unchanged
    {GGML_OP_SOLVE_TRI, {.supports = solve_supports, .run = solve_run, .uses = CPU_USE_MAD}},
    {GGML_OP_DSV4_HC_COMB, {.supports = comb_supports, .run = comb_run}},
    {GGML_OP_DSV4_HC_PRE, {.supports = pre_supports,
                              .run = pre_run,
                              .uses = CPU_USE_MAD | CPU_USE_SIGMOID | CPU_USE_MUL | CPU_USE_ADD | CPU_USE_SCALE}},
    {GGML_OP_DSV4_HC_POST, {.supports = post_supports, .run = post_run, .uses = CPU_USE_MAD | CPU_USE_SCALE | CPU_USE_ADD}},
    CPU_OPS_END,
};
