// SPDX-License-Identifier: MIT
// gemm_rows_f16__fp16.c: rows of halves as they lie with some tens of columns, which do not pay for the copy that
// gemm_f16__fp16.c makes of the rows. Two rows meet eight columns: each of 16 vectors adds up every eighth product of a row and a
// column, as halves. After CHUNK elements, 32 products a lane, they are folded and go on as floats, which leaves the error where
// that of panels is. The columns are scaled as there; sums that are not finite are computed again as floats.
// A panel of columns: [8 floats: what sums are to be multiplied with] then, for 8 elements each, [8 of column 0] .. [8 of
// column 7], zeros after their end. A chunk of all panels stays in the first cache while rows pass.

#include "cpu/arm/halves.h"
#include "cpu/arm/tiers.h"

#include <stdbool.h>
#include <string.h>

#define MR 16
#define NR 8
#define STEP 8
#define CHUNK 256
#define MAX_PANELS 4
#define LARGEST 8.0f
#define INLINE static inline __attribute__((always_inline))

// ---- the columns ----

static void pack_y__fp16(int64_t n, void *panel, const float *const *y, int ny) {
    float *back  = panel;
    uint16_t *to = (void *) (back + NR);
    for (int c = 0; c < NR; c++) {
        const float *from = y[c < ny ? c : 0];
        const float scale = scale_for(column_max(n, from), LARGEST);
        back[c]           = 1.0f / scale;
        int64_t i         = 0;
        for (; i + STEP <= n; i += STEP) {
            vst1q_u16(to + i * NR + c * STEP, halves_of(from + i, scale));
        }
        if (i < n) {
            float rest[STEP] = {0};
            memcpy(rest, from + i, (size_t) (n - i) * sizeof *rest);
            vst1q_u16(to + i * NR + c * STEP, halves_of(rest, scale));
        }
    }
}

// ---- two rows with eight columns ----

// n whole steps of rows a and b with a panel: eight sums of each. Products of a are in vectors 16 to 23, those of b in 24 to 31.
// Whole, since compilers copy sums from register to register.

// clang-format off
#define COLUMNS(y0, y1, c0, c1, d0, d1) \
    "fmla v" #c0 ".8h, v0.8h, v" #y0 ".8h\n\tfmla v" #d0 ".8h, v1.8h, v" #y0 ".8h\n\t" \
    "fmla v" #c1 ".8h, v0.8h, v" #y1 ".8h\n\tfmla v" #d1 ".8h, v1.8h, v" #y1 ".8h\n\t"
#define PAIR(to, x, y) "faddp v" #to ".8h, v" #x ".8h, v" #y ".8h\n\t"
INLINE void product(float16x8_t *sum_a, float16x8_t *sum_b, const uint16_t *a, const uint16_t *b, const uint16_t *y, int64_t n) {
    __asm__ volatile(
        ".irp r, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n\tmovi v\\r\\().4s, #0\n\t.endr\n\t"
        "1:\n\t"
        "ldr q0, [%[a]], #16\n\tldr q1, [%[b]], #16\n\t"
        "ldp q2, q3, [%[y]]\n\tldp q4, q5, [%[y], #32]\n\t"
        COLUMNS(2, 3, 16, 17, 24, 25)
        "ldp q6, q7, [%[y], #64]\n\t"
        COLUMNS(4, 5, 18, 19, 26, 27)
        "ldp q2, q3, [%[y], #96]\n\tadd %[y], %[y], #128\n\t"
        COLUMNS(6, 7, 20, 21, 28, 29)
        "subs %[n], %[n], #1\n\t"
        COLUMNS(2, 3, 22, 23, 30, 31)
        "b.ne 1b\n\t"
        PAIR(16, 16, 17) PAIR(18, 18, 19) PAIR(20, 20, 21) PAIR(22, 22, 23)
        PAIR(24, 24, 25) PAIR(26, 26, 27) PAIR(28, 28, 29) PAIR(30, 30, 31)
        PAIR(16, 16, 18) PAIR(20, 20, 22) PAIR(24, 24, 26) PAIR(28, 28, 30)
        "faddp %[sa].8h, v16.8h, v20.8h\n\tfaddp %[sb].8h, v24.8h, v28.8h\n\t"
        : [a] "+r"(a), [b] "+r"(b), [y] "+r"(y), [n] "+r"(n), [sa] "=w"(*sum_a), [sb] "=w"(*sum_b)
        :
        : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23",
          "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
}
// clang-format on

INLINE void add(float *to, float16x8_t v) {
    vst1q_f32(to, vaddq_f32(vld1q_f32(to), vcvt_f32_f16(vget_low_f16(v))));
    vst1q_f32(to + 4, vaddq_f32(vld1q_f32(to + 4), vcvt_high_f32_f16(v)));
}

INLINE void add_steps(float sums[2][NR], const uint16_t *a, const uint16_t *b, const uint16_t *y, int64_t n) {
    float16x8_t sum_a, sum_b;
    product(&sum_a, &sum_b, a, b, y, n);
    add(sums[0], sum_a);
    add(sums[1], sum_b);
}

// n elements, at most CHUNK, of rows a and b with a panel.
static void add_chunk(int64_t n, float sums[2][NR], const uint16_t *a, const uint16_t *b, const uint16_t *y) {
    const int64_t n_steps = n / STEP, n_rest = n % STEP;
    if (n_steps > 0) {
        add_steps(sums, a, b, y, n_steps);
    }
    if (n_rest > 0) {
        uint16_t rest[2][STEP] = {{0}};
        memcpy(rest[0], a + n - n_rest, (size_t) n_rest * sizeof *a);
        memcpy(rest[1], b + n - n_rest, (size_t) n_rest * sizeof *b);
        add_steps(sums, rest[0], rest[1], y + n_steps * STEP * NR, 1);
    }
}

// ---- all of it ----

INLINE const uint16_t *row_at(const void *x, size_t bx, int r) {
    return (const void *) ((const char *) x + (size_t) r * bx);
}

static inline bool is_finite(const float *v) {
    const float32x4_t none = vfmaq_n_f32(vmulq_n_f32(vld1q_f32(v), 0.0f), vld1q_f32(v + 4), 0.0f);
    return vaddvq_f32(none) == 0.0f;
}

static inline float float_of(uint16_t h) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

// Sums of products that no half can hold: again, as floats.
static __attribute__((noinline)) void row_as_floats(int64_t n, float *sums, const uint16_t *x, const uint16_t *y) {
    memset(sums, 0, NR * sizeof *sums);
    for (int64_t i = 0; i < n; i++) {
        for (int c = 0; c < NR; c++) {
            sums[c] = fmaf(float_of(x[i]), float_of(y[i / STEP * STEP * NR + c * STEP + i % STEP]), sums[c]);
        }
    }
}

static void run__fp16(int64_t n, float *s, int64_t ld_s, const void *x, size_t bx, int nx, const void *y, size_t by, int ny) {
    float sums[MAX_PANELS][MR][NR];
    const int n_panels = (ny + NR - 1) / NR;
    memset(sums, 0, sizeof sums[0] * (size_t) n_panels);
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t n_now = n - i < CHUNK ? n - i : CHUNK;
        for (int r = 0; r < nx; r += 2) {
            const uint16_t *a = row_at(x, bx, r) + i, *b = row_at(x, bx, r + 1 < nx ? r + 1 : r) + i;
            for (int j = 0; j < CHUNK; j += 32) {
                __builtin_prefetch(a + CHUNK + j, 0, 2);
                __builtin_prefetch(b + CHUNK + j, 0, 2);
            }
            for (int c = 0; c < n_panels; c++) {
                const float *back = (const void *) ((const char *) y + (size_t) c * by);
                add_chunk(n_now, &sums[c][r], a, b, (const uint16_t *) (const void *) (back + NR) + i * NR);
            }
        }
    }
    for (int c = 0; c < ny; c++) {
        const float *back = (const void *) ((const char *) y + (size_t) (c / NR) * by);
        for (int r = 0; r < nx; r++) {
            float *row = sums[c / NR][r];
            if (c % NR == 0 && !is_finite(row)) {
                row_as_floats(n, row, row_at(x, bx, r), (const void *) (back + NR));
            }
            s[r + c * ld_s] = row[c % NR] * back[c % NR];
        }
    }
}

void cpu_tier_fp16_gemm_rows(struct cpu_kernels *k) {
    k->gemm_rows[GGML_TYPE_F16] = (struct cpu_gemm_rows){.pack_y = pack_y__fp16,
        .run                                                     = run__fp16,
        .mr                                                      = MR,
        .nr                                                      = NR,
        .min_cols                                                = 4,
        .max_cols                                                = MAX_PANELS * NR,
        .step                                                    = STEP,
        .y_size                                                  = STEP * NR * sizeof(uint16_t),
        .y_head                                                  = NR * sizeof(float)};
}
