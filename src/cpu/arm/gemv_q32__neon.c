// SPDX-License-Identifier: MIT
// gemv_q32__neon.c: one column times rows of blocks of 32, without an instruction for dot products of bytes (sdot.h).

#include "cpu/arm/gemv_q32.h"

// q8_0 waits for memory more than for anything else: one row after the other, straight through, is better foreseen than two.
UNPACK_INLINE float one_row_q8_0(int64_t n, const block_q8_0 *x, const char *y) {
    const int32x4_t nil = vdupq_n_s32(0);
    const float32x4_t nul = vdupq_n_f32(0.0f);
    struct row r = {LOAD_BYTES(x), {nil, nil, nil, nil}, {nil, nil}, nil, nul, nul, nul};
    int8x16_t y_next[2] = {vld1q_s8((const int8_t *) y + HEAD(0)), vld1q_s8((const int8_t *) y + HEAD(0) + 16)};
    for (int64_t left = n / 128; left > 0; left--, x += 4, y += GROUP(0)) {
        const int8_t *q = (const int8_t *) y + HEAD(0), *next = left > 1 ? q + GROUP(0) : q;
        for (size_t i = 0; i < 4 * sizeof *x; i += 64) {
            __builtin_prefetch((const char *) x + STREAMS_AHEAD + i, 0, 2);
        }
        const uint64_t bits = HALVES_OF(x, d);
        r.half[1] = vpaddq_s32(r.dot[2], r.dot[3]);
        TURN(r, 0, open_bytes, x + 1, LOAD_BYTES);
        y_next[0] = vld1q_s8(q + 32);
        y_next[1] = vld1q_s8(q + 48);
        r.fold = vpaddq_s32(r.half[0], r.half[1]);
        TURN(r, 1, open_bytes, x + 2, LOAD_BYTES);
        y_next[0] = vld1q_s8(q + 64);
        y_next[1] = vld1q_s8(q + 80);
        r.half[0] = vpaddq_s32(r.dot[0], r.dot[1]);
        const float32x4_t d = floats_of_halves(bits);
        TURN(r, 2, open_bytes, x + 3, LOAD_BYTES);
        y_next[0] = vld1q_s8(q + 96);
        y_next[1] = vld1q_s8(q + 112);
        r.part = vcvtq_f32_s32(r.fold);
        TURN(r, 3, open_bytes, x + (left > 1 ? 4 : 3), LOAD_BYTES);
        y_next[0] = vld1q_s8(next);
        y_next[1] = vld1q_s8(next + 16);
        r.sums = vfmaq_f32(r.sums, r.part, r.scale);
        r.scale = vmulq_f32(d, f32_at(y));
    }
    r.fold = vpaddq_s32(r.half[0], vpaddq_s32(r.dot[2], r.dot[3]));
    return vaddvq_f32(vfmaq_f32(r.sums, vcvtq_f32_s32(r.fold), r.scale));
}

REST(q8_0, LOAD_BYTES, open_bytes, HALF_D, PLAIN, HALF_D)

static void gemv_q8_0(int64_t n, float *s, const void *x, size_t bx, int nx, const void *y) {
    const char *y_rest = (const char *) y + n / 128 * GROUP(0);
    for (int r = 0; r < nx; r++) {
        const block_q8_0 *row = (const void *) ((const char *) x + (size_t) r * bx);
        s[r] = n >= 128 ? one_row_q8_0(n, row, y) : 0.0f;
        if (n % 128 != 0) {
            s[r] += rest_q8_0((int) (n / 32 % 4), row + n / 128 * 4, y_rest);
        }
    }
}

void cpu_tier_neon_gemv_q32(struct cpu_kernels *k) {
    gemv_q32_fill(k);
    k->gemv[GGML_TYPE_Q8_0] = (struct cpu_gemv){.pack_y = pack_q8_0, .run = gemv_q8_0, .step = 128, .y_size = GROUP(0)};
}
