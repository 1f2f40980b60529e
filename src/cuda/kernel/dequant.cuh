// SPDX-License-Identifier: MIT
// dequant.cuh: dequantises single elements of rows. Results are bitwise equal to those of quant/*.c. Ops that move or copy rows
// use this file; products use decode.cuh and dot.cuh.
#pragma once

#include "cuda/kernel/common.cuh"

#ifndef BERTH_GRID
#    define BERTH_GRID static __device__ const
#endif
#include "quant/formats.h"
#include "quant/grids.h"

static __device__ const int8_t values_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// Twice the values of mxfp4 and nvfp4, which are integers. half_scale_e8m0 and half_scale_ue4m3 return half of the scale, so that
// the product has the right value.
static __device__ const int8_t values_fp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Reads the f16 at p, which is a multiple of 2. Blocks with an f16 are aligned to 2 bytes only.
DEV float half_at(const void *p) {
    return half_to_float(*(const uint16_t *) p);
}
DEV int nibble_of(const uint8_t *qs, int j, int half) {
    return j < half ? qs[j] & 15 : qs[j - half] >> 4;
}

// ---- blocks of 32 and 64 elements ----

DEV float element(const block_q4_0 *b, int j) {
    return (float) (nibble_of(b->qs, j, 16) - 8) * half_at(&b->d);
}
DEV float element(const block_q4_1 *b, int j) {
    return __fadd_rn(__fmul_rn((float) nibble_of(b->qs, j, 16), half_at(&b->d)), half_at(&b->m));
}
DEV int fifth(const uint8_t *qh, int j) {
    return (qh[j / 8] >> (j % 8) & 1) << 4;
}
DEV float element(const block_q5_0 *b, int j) {
    return (float) ((nibble_of(b->qs, j, 16) | fifth(b->qh, j)) - 16) * half_at(&b->d);
}
DEV float element(const block_q5_1 *b, int j) {
    return __fadd_rn(__fmul_rn((float) (nibble_of(b->qs, j, 16) | fifth(b->qh, j)), half_at(&b->d)), half_at(&b->m));
}
DEV float element(const block_q8_0 *b, int j) {
    return (float) b->qs[j] * half_at(&b->d);
}
DEV float element(const block_q8_1 *b, int j) {
    return (float) b->qs[j] * half_at(&b->d);
}
DEV float element(const block_iq4_nl *b, int j) {
    return half_at(&b->d) * (float) values_iq4[nibble_of(b->qs, j, 16)];
}
DEV float half_scale_e8m0(uint8_t e) {
    return __uint_as_float(e < 2 ? 0x00200000u << e : (uint32_t) (e - 1) << 23);
}
DEV float half_scale_ue4m3(uint8_t s) {
    const int exponent = s >> 3 & 15, mantissa = s & 7;
    if (s == 0x7f) {
        return 0.0f;
    }
    return exponent == 0 ? (float) mantissa * 0x1p-10f
                         : __uint_as_float((uint32_t) (exponent - 7 - 1 + 127) << 23 | (uint32_t) mantissa << 20);
}
DEV float element(const block_mxfp4 *b, int j) {
    return (float) values_fp4[nibble_of(b->qs, j, 16)] * half_scale_e8m0(b->e);
}
DEV float element(const block_nvfp4 *b, int j) {
    return (float) values_fp4[nibble_of(b->qs + j / 16 * 8, j % 16, 8)] * half_scale_ue4m3(b->d[j / 16]);
}

// ---- 1 and 2 bits per element ----

DEV float element(const block_q1_0 *b, int j) {
    const float d = half_at(&b->d);
    return b->qs[j / 8] >> (j % 8) & 1 ? d : -d;
}
DEV float element(const block_q2_0 *b, int j) {
    return (float) ((b->qs[j / 4] >> (2 * (j % 4)) & 3) - 1) * half_at(&b->d);
}
DEV float element(const block_tq2_0 *b, int j) {
    return (float) ((b->qs[j / 128 * 32 + j % 32] >> (2 * (j / 32 % 4)) & 3) - 1) * half_at(&b->d);
}
DEV float element(const block_tq1_0 *b, int j) {
    const uint8_t *qs = b->qs;
    int n = 32;
    if (j >= 240) {
        qs = b->qh, n = 4, j -= 240;
    } else if (j >= 160) {
        qs = b->qs + 32, n = 16, j -= 160;
    }
    int power = 1;
    for (int r = j / n; r > 0; r--) {
        power *= 3;
    }
    const uint8_t fraction = (uint8_t) (qs[j % n] * power);
    return (float) ((fraction * 3 >> 8) - 1) * half_at(&b->d);
}

// ---- superblocks ----

DEV float minus(float a, float b) { // not fused: two roundings, as on the CPU
    return __fsub_rn(a, b);
}
DEV float element(const block_q2_K *b, int j) {
    const int s = b->scales[j / 16];
    const int q = b->qs[j / 128 * 32 + j % 32] >> (2 * (j / 32 % 4)) & 3;
    return minus(half_at(&b->d) * (float) (s & 15) * (float) q, half_at(&b->dmin) * (float) (s >> 4));
}
DEV float element(const block_q3_K *b, int j) {
    const int r = j / 16;
    const int low = r < 8 ? b->scales[r] & 15 : b->scales[r - 8] >> 4, high = b->scales[8 + r % 4] >> (2 * (r / 4)) & 3;
    const int q = (b->qs[j / 128 * 32 + j % 32] >> (2 * (j / 32 % 4)) & 3) | (b->hmask[j % 32] >> (j / 32) & 1) << 2;
    return half_at(&b->d) * (float) ((low | high << 4) - 32) * (float) (q - 4);
}
DEV void scale_min_of(const uint8_t *packed, int r, int *s, int *m) {
    if (r < 4) {
        *s = packed[r] & 63;
        *m = packed[r + 4] & 63;
    } else {
        *s = (packed[r + 4] & 15) | packed[r - 4] >> 6 << 4;
        *m = packed[r + 4] >> 4 | packed[r] >> 6 << 4;
    }
}
DEV float element(const block_q4_K *b, int j) {
    const int r = j / 32;
    int s, m;
    scale_min_of(b->scales, r, &s, &m);
    const int q = b->qs[r / 2 * 32 + j % 32] >> (4 * (r % 2)) & 15;
    return minus(half_at(&b->d) * (float) s * (float) q, half_at(&b->dmin) * (float) m);
}
DEV float element(const block_q5_K *b, int j) {
    const int r = j / 32;
    int s, m;
    scale_min_of(b->scales, r, &s, &m);
    const int q = (b->qs[r / 2 * 32 + j % 32] >> (4 * (r % 2)) & 15) | (b->qh[j % 32] >> r & 1) << 4;
    return minus(half_at(&b->d) * (float) s * (float) q, half_at(&b->dmin) * (float) m);
}
DEV float element(const block_q6_K *b, int j) {
    const int low = b->ql[j / 128 * 64 + j % 64] >> (4 * (j / 64 % 2)) & 15,
              high = b->qh[j / 128 * 32 + j % 32] >> (2 * (j / 32 % 4)) & 3;
    return half_at(&b->d) * (float) b->scales[j / 16] * (float) ((low | high << 4) - 32);
}
DEV float element(const block_q8_K *b, int j) {
    return b->d * (float) b->qs[j];
}
DEV float element(const block_iq4_xs *b, int j) {
    const int r = j / 32, s = (b->scales_l[r / 2] >> (4 * (r % 2)) & 15) | (b->scales_h >> (2 * r) & 3) << 4;
    return half_at(&b->d) * (float) (s - 32) * (float) values_iq4[nibble_of(b->qs + r * 16, j % 32, 16)];
}

// ---- codebooks ----

DEV float with_sign(float v, unsigned signs, int k) {
    return signs >> k & 1 ? -v : v;
}
DEV unsigned even_signs(unsigned seven) { // the eighth sign makes the number of minus signs even
    return seven | (unsigned) (__popc(seven) & 1) << 7;
}
DEV float value_iq2(unsigned point, int k) {
    const unsigned f = point >> (2 * k) & 3;
    if (f == 0) {
        return 8.0f;
    }
    return f == 1 ? 25.0f : 43.0f;
}
DEV float element(const block_iq2_xxs *b, int j) {
    const int c = j / 32, u = j / 8 % 4;
    const uint16_t *q = b->qs + 4 * c;
    const uint32_t tail = q[2] | (uint32_t) q[3] << 16;
    const float scale = half_at(&b->d) * (0.5f + (float) (tail >> 28)) * 0.25f;
    return with_sign(
        scale * value_iq2(grid_iq2_xxs[q[u / 2] >> (8 * (u % 2)) & 255], j % 8), even_signs(tail >> (7 * u) & 127), j % 8);
}
DEV float scale_iq2(const uint16_t *d, const uint8_t *packed, int cell) {
    return half_at(d) * (0.5f + (float) (packed[cell / 2] >> (4 * (cell % 2)) & 15)) * 0.25f;
}
DEV float element(const block_iq2_xs *b, int j) {
    const unsigned q = b->qs[j / 8];
    return with_sign(scale_iq2(&b->d, b->scales, j / 16) * value_iq2(grid_iq2_xs[q & 511], j % 8), even_signs(q >> 9), j % 8);
}
DEV float element(const block_iq2_s *b, int j) {
    const int g = j / 8;
    return with_sign(scale_iq2(&b->d, b->scales, j / 16) *
                         value_iq2(grid_iq2_s[b->qs[g] | (unsigned) (b->qh[g / 4] >> (2 * (g % 4)) & 3) << 8], j % 8),
        b->qs[32 + g], j % 8);
}
DEV float element(const block_iq3_xxs *b, int j) {
    const int c = j / 32, u = j / 8 % 4;
    const uint8_t *t = b->qs + 64 + 4 * c;
    const uint32_t tail = t[0] | (uint32_t) t[1] << 8 | (uint32_t) t[2] << 16 | (uint32_t) t[3] << 24;
    const unsigned f = grid_iq3_xxs[b->qs[j / 4]] >> (3 * (j % 4)) & 7;
    const float v = half_at(&b->d) * (0.5f + (float) (tail >> 28)) * 0.5f * (f == 7 ? 62.0f : 4.0f + 8.0f * (float) f);
    return with_sign(v, even_signs(tail >> (7 * u) & 127), j % 8);
}
DEV float element(const block_iq3_s *b, int j) {
    const int c = j / 32, g = j / 4;
    const unsigned f = grid_iq3_s[b->qs[g] | (unsigned) (b->qh[g / 8] >> (g % 8) & 1) << 8] >> (3 * (j % 4)) & 7;
    const float scale = half_at(&b->d) * (float) (1 + 2 * (b->scales[c / 2] >> (4 * (c % 2)) & 15));
    return with_sign(scale * (float) (2 * f + 1), b->signs[j / 8], j % 8);
}
DEV float value_iq1(unsigned point, int k, bool down, float scale) {
    return scale * ((float) (grid_iq1[point] >> (2 * k) & 3) - 1.0f + (down ? -0.125f : 0.125f));
}
DEV float element(const block_iq1_s *b, int j) {
    const int g = j / 8;
    const unsigned head = b->qh[g / 4];
    return value_iq1(
        b->qs[g] | (head >> (3 * (g % 4)) & 7) << 8, j % 8, head >> 15, half_at(&b->d) * (float) (2 * (head >> 12 & 7) + 1));
}
DEV float element(const block_iq1_m *b, int j) {
    const int g = j / 8;
    unsigned h = 0;
    for (int k = 0; k < 4; k++) {
        h |= (unsigned) (b->scales[2 * k + 1] >> 4) << (4 * k);
    }
    const unsigned head = b->qh[g / 2] >> (4 * (g % 2)) & 15;
    const unsigned word = b->scales[g / 8 * 2] | (unsigned) b->scales[g / 8 * 2 + 1] << 8, s = word >> (3 * (g / 2 % 4)) & 7;
    return value_iq1(b->qs[g] | (head & 7) << 8, j % 8, head >> 3, half_to_float((uint16_t) h) * (float) (2 * s + 1));
}

// Types that gpu_can_widen refuses give 0.
DEV float row_element(const char *row, int type, int64_t i) {
#define OF(TYPE, name, ...) \
    case GGML_TYPE_##TYPE: return element((const block_##name *) row + i / QK_##TYPE, (int) (i % QK_##TYPE));
    switch (type) {
        case GGML_TYPE_F32: return ((const float *) row)[i];
        case GGML_TYPE_F16: return half_to_float(((const uint16_t *) row)[i]);
        case GGML_TYPE_BF16: return bf16_to_float(((const uint16_t *) row)[i]);
        case GGML_TYPE_I32:
            return (float) ((const int32_t *) row)[i];
            BERTH_FORMATS(OF)
            BERTH_ACTIVATIONS(OF)
        default: return 0.0f;
    }
#undef OF
}
