// SPDX-License-Identifier: MIT
// rope.c: ROPE and ROPE_BACK rotate pairs of elements by an angle proportional to the row's position (arXiv 2104.09864). YaRN
// (arXiv 2309.00071) and M-RoPE (four positions per row) are supported. All heads of a token share their angles. The angle of
// pair i is position * step^i, by repeated multiplication in f32. Above position 100,000, other roundings give visibly different
// angles, and models are trained with this rounding. Pairs start at element n_offs of a row, and pair 0 is the first pair there.
// Elements outside of pairs are copied.

#include "base/min.h"
#include "cpu/op/scratch.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <inttypes.h>
#include <math.h>

struct rope {
    int32_t n_dims, mode, n_ctx_orig;
    float freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow;
    int32_t sections[GGML_MROPE_SECTIONS];
    int32_t n_offs;
    bool is_multi, is_vision, is_interleaved;
    bool is_split;   // a pair is (i, i + n_apart); otherwise neighbours
    int64_t n_pairs; // rotated pairs
    int64_t n_apart; // distance between the two elements of a pair
    float step;      // factor between angles of consecutive pairs
    float ramp[2];   // range of pairs that YaRN blends
    float magnitude; // factor of rotated elements
    float sin_sign;  // -1 for ROPE_BACK
    const struct ggml_tensor *factors;
};

static struct rope rope_of(const struct ggml_tensor *op) {
    struct rope r = {
        .n_dims = param_i32(op, 1),
        .mode = param_i32(op, 2),
        .n_ctx_orig = param_i32(op, 4),
        .freq_base = param_f32(op, 5),
        .freq_scale = param_f32(op, 6),
        .ext_factor = param_f32(op, 7),
        .attn_factor = param_f32(op, 8),
        .beta_fast = param_f32(op, 9),
        .beta_slow = param_f32(op, 10),
        .n_offs = param_i32(op, 15),
    };
    memcpy(r.sections, &op->op_params[11], sizeof r.sections);
    r.is_multi = (r.mode & GGML_ROPE_TYPE_MROPE) != 0;
    r.is_vision = r.mode == GGML_ROPE_TYPE_VISION;
    r.is_interleaved = r.mode == GGML_ROPE_TYPE_IMROPE;
    r.is_split = r.is_multi || (r.mode & GGML_ROPE_TYPE_NEOX) != 0;
    r.n_pairs = r.is_vision ? op->ne[0] / 2 : r.n_dims / 2;
    r.n_apart = r.is_split ? r.n_dims / 2 : 1;
    if (r.is_vision) {
        r.n_apart = r.n_dims;
    }
    r.step = powf(r.freq_base, -2.0f / (float) r.n_dims);
    r.magnitude = r.attn_factor;
    if (r.ext_factor != 0.0f) {
        r.magnitude *= 1.0f + 0.1f * logf(1.0f / r.freq_scale);
    }
    ggml_rope_yarn_corr_dims(r.n_dims, r.n_ctx_orig, r.freq_base, r.beta_fast, r.beta_slow, r.ramp);
    r.sin_sign = op->op == GGML_OP_ROPE_BACK ? -1.0f : 1.0f;
    r.factors = op->src[2];
    return r;
}

// If parameters are invalid, reports an error and returns true.
static bool rope_refuse(const struct cpu_params *p, const struct rope *r, const struct ggml_tensor *op) {
    const int64_t ne0 = op->ne[0];
    if (r->n_dims <= 0 || r->n_dims > ne0 || r->n_dims % 2 != 0) {
        cpu_fail(p, "%s: n_dims is %d, it must be even and at most the row length %" PRId64, op->name, r->n_dims, ne0);
        return true;
    }
    if (r->is_vision && (int64_t) r->n_dims * 2 != ne0) {
        cpu_fail(p, "%s: n_dims is %d, vision mode requires half of the row length %" PRId64, op->name, r->n_dims, ne0);
        return true;
    }
    if (r->mode != GGML_ROPE_TYPE_NORMAL && r->mode != GGML_ROPE_TYPE_NEOX && r->mode != GGML_ROPE_TYPE_MROPE && !r->is_vision &&
        !r->is_interleaved) {
        cpu_fail(p, "%s: unknown RoPE mode %d", op->name, r->mode);
        return true;
    }
    if (r->n_offs < 0 || r->n_offs % 2 != 0 || (int64_t) r->n_offs + r->n_dims > ne0 || (r->n_offs > 0 && r->is_vision)) {
        cpu_fail(p,
            "%s: n_offs is %d; it must be even, n_offs + n_dims (%d) at most the row length %" PRId64 ", and 0 in vision mode",
            op->name, r->n_offs, r->n_dims, ne0);
        return true;
    }
    const int32_t *s = r->sections;
    const bool is_some = s[0] >= 0 && s[1] >= 0 && s[2] >= 0 && s[3] >= 0 && (s[0] > 0 || s[1] > 0 || s[2] > 0);
    if (r->is_multi && (!is_some || (int64_t) s[0] + s[1] + s[2] + s[3] > ne0)) {
        cpu_fail(p, "%s: sections %d, %d, %d, %d are not valid for rows of %" PRId64 " elements", op->name, s[0], s[1], s[2],
            s[3], ne0);
        return true;
    }
    const struct ggml_tensor *pos = op->src[1], *factors = op->src[2];
    const int64_t n_pos = r->is_multi ? GGML_MROPE_SECTIONS * op->ne[2] : op->ne[2];
    if (pos->ne[0] < n_pos || ggml_nrows(pos) < 1) {
        cpu_fail(p, "%s: src[1] has %" PRId64 " positions, %" PRId64 " are required", op->name, pos->ne[0], n_pos);
        return true;
    }
    if (factors != NULL && (factors->ne[0] < r->n_pairs || ggml_nrows(factors) < 1)) {
        cpu_fail(
            p, "%s: src[2] has %" PRId64 " frequency factors, %" PRId64 " are required", op->name, factors->ne[0], r->n_pairs);
        return true;
    }
    return false;
}

// ---- angles ----

// If pairs are neighbours, c and s have one value per element, and kernels.h: rotate computes
//     result = c * element + s * other element of the pair.
// If pairs are split, c and s have one value per pair, and rotate_split computes
//     first result = c * first - s * second, second result = s * first + c * second.
struct angles {
    float *c, *s;
};

// Returns the angle of pair i. theta: position * step^i, without frequency factors and scaling.
static float angle_of(const struct rope *r, int64_t i, float theta) {
    const float plain = r->factors != NULL ? theta / cpu_f32_at(r->factors, i) : theta;
    const float scaled = r->freq_scale * plain;
    if (r->ext_factor == 0.0f) {
        return scaled;
    }
    const float width = r->ramp[1] - r->ramp[0];
    const float y = ((float) i - r->ramp[0]) / max_f32(width, 0.001f);
    const float mix = (1.0f - fminf(1.0f, fmaxf(0.0f, y))) * r->ext_factor;
    return scaled * (1.0f - mix) + plain * mix;
}

static void angles_store(const struct rope *r, const float *cosine, const float *sine, struct angles to) {
    for (int64_t i = 0; i < r->n_pairs; i++) {
        const float c = cosine[i] * r->magnitude, s = sine[i] * r->magnitude * r->sin_sign;
        if (r->is_split) {
            to.c[i] = c;
            to.s[i] = s;
        } else {
            to.c[2 * i] = to.c[2 * i + 1] = c;
            to.s[2 * i] = -s;
            to.s[2 * i + 1] = s;
        }
    }
}

static void angles_plain(const struct rope *r, int32_t pos, float *to) {
    float theta = (float) pos;
    for (int64_t i = 0; i < r->n_pairs; i++) {
        to[i] = angle_of(r, i, theta);
        theta *= r->step;
    }
}

// A cycle has as many pairs as the four sections together. Returns the position that rotates pair `at` of a cycle: 0: time, 1:
// height, 2: width, 3: other.
static int section_of(const struct rope *r, int64_t at) {
    const int32_t *s = r->sections;
    if (r->is_interleaved) {
        const int which = (int) (at % 3); // time, height, width alternate; 3: section is full
        return at < 3 * (int64_t) s[which] ? which : 3;
    }
    int which = 0;
    for (int64_t end = s[0]; which < 3 && at >= end; end += s[which]) {
        which++;
    }
    return which;
}

// A token has four positions, n_token elements apart in pos.
static void angles_multi(const struct rope *r, const struct ggml_tensor *pos, int64_t token, int64_t n_token, float *to) {
    const int32_t *s = r->sections;
    const int64_t starts[GGML_MROPE_SECTIONS] = {0, s[0], (int64_t) s[0] + s[1], (int64_t) s[0] + s[1] + s[2]};
    const int64_t n_cycle = starts[3] + s[3];
    float theta[GGML_MROPE_SECTIONS];
    for (int j = 0; j < GGML_MROPE_SECTIONS; j++) {
        theta[j] = (float) cpu_i32_at(pos, token + j * n_token);
    }
    for (int64_t i = 0; i < r->n_pairs; i++) {
        const int64_t at = i % n_cycle;
        if (r->is_vision) { // every section starts with the first frequency
            for (int j = 0; j < GGML_MROPE_SECTIONS; j++) {
                // An empty section has the same start as the next section. Only the first of them is reset.
                if (at == starts[j]) {
                    theta[j] = (float) cpu_i32_at(pos, token + j * n_token);
                    break;
                }
            }
        }
        to[i] = angle_of(r, i, theta[section_of(r, at)]);
        for (int j = 0; j < GGML_MROPE_SECTIONS; j++) {
            theta[j] *= r->step;
        }
    }
}

// ---- rotation ----

// y may be x.
static void rotate_split(int64_t n, int64_t apart, float *y, const float *x, struct angles by) {
    for (int64_t i = 0; i < n; i++) {
        const float a = x[i], b = x[i + apart], c = by.c[i], s = by.s[i];
        y[i] = a * c - b * s;
        y[i + apart] = a * s + b * c;
    }
}

static bool rope_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *pos = op->src[1], *factors = op->src[2];
    return a != NULL && pos != NULL && cpu_is_float(a->type) && a->type == op->type && ggml_are_same_shape(a, op) &&
           pos->type == GGML_TYPE_I32 && (factors == NULL || factors->type == GGML_TYPE_F32);
}

static int64_t rope_scratch(const struct ggml_tensor *op) {
    return 4 * op->ne[0]; // two rows of factors, a source and a result
}

static size_t rope_work_size(const struct ggml_tensor *op, int n_tasks) {
    return cpu_scratch_size(rope_scratch(op), n_tasks);
}

static void rope_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const struct rope r = rope_of(op);
    if (rope_refuse(p, &r, op)) {
        return;
    }
    const int64_t ne0 = op->ne[0];
    const struct ggml_tensor *pos = op->src[1];
    float *buf_x = cpu_scratch(p, rope_scratch(op)), *buf_y = buf_x + ne0;
    const struct angles by = {.c = buf_y + ne0, .s = buf_y + 2 * ne0};
    int64_t angles_token = -1;
    int64_t i, end;
    cpu_share(p, ggml_nrows(op), &i, &end);
    for (struct cpu_row_pos at = cpu_row_pos(op, i); i < end; i++, cpu_row_step(op, &at)) {
        if (at.i2 != angles_token) {
            angles_token = at.i2;
            if (r.is_multi) {
                angles_multi(&r, pos, angles_token, op->ne[2], buf_y);
            } else {
                angles_plain(&r, cpu_i32_at(pos, angles_token), buf_y);
            }
            p->k->cos_sin(r.n_pairs, buf_x, buf_x + r.n_pairs, buf_y); // buf_x and buf_y are free here
            angles_store(&r, buf_x, buf_x + r.n_pairs, by);
        }
        char *row = cpu_row(op, at);
        const float *x = cpu_row_load(p->k, a, cpu_row(a, at), 0, ne0, buf_x);
        float *y = cpu_row_target(op, row, 0, buf_y);
        if (r.is_split) {
            rotate_split(r.n_pairs, r.n_apart, y + r.n_offs, x + r.n_offs, by);
        } else {
            p->k->rotate(2 * r.n_pairs, y + r.n_offs, x + r.n_offs, by.c, by.s);
        }
        const int64_t rotated_end = r.n_offs + 2 * r.n_pairs;
        if (y != x && (r.n_offs > 0 || rotated_end < ne0)) {
            memcpy(y, x, (size_t) r.n_offs * sizeof *y);
            memcpy(y + rotated_end, x + rotated_end, (size_t) (ne0 - rotated_end) * sizeof *y);
        }
        cpu_row_store(p->k, op, row, 0, ne0, y);
    }
}

const struct cpu_op_entry cpu_ops_rope[] = {
    {GGML_OP_ROPE, {.supports = rope_supports,
                       .work_size = rope_work_size,
                       .run = rope_run,
                       .uses = CPU_USE_ROTATE | CPU_USE_COS_SIN | CPU_USE_CONVERT}},
    {GGML_OP_ROPE_BACK, {.supports = rope_supports,
                            .work_size = rope_work_size,
                            .run = rope_run,
                            .uses = CPU_USE_ROTATE | CPU_USE_COS_SIN | CPU_USE_CONVERT}},
    CPU_OPS_END,
};
