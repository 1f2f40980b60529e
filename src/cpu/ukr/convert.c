// SPDX-License-Identifier: MIT
// convert.c: portable conversions of rows of floats to other types and back. The block formats use the reference conversions of
// libggml-base. The formats of activations (q8_0, q8_1, q8_K) are quantised here.

#include "cpu/cpu.h"

#include "quant/half.h"
#include "quant/quants.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

void ggml_cpu_fp32_to_fp32(const float *x, float *y, int64_t n) {
    memcpy(y, x, (size_t) n * sizeof *y);
}

// Rounds toward zero. Values out of range become the nearest limit, NaN becomes 0.
void ggml_cpu_fp32_to_i32(const float *x, int32_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const float v = x[i];
        if (v != v) {
            y[i] = 0;
        } else if (v >= 0x1p31f) {
            y[i] = INT32_MAX;
        } else {
            y[i] = v < -0x1p31f ? INT32_MIN : (int32_t) v;
        }
    }
}

static void to_f16(const float *x, uint16_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = berth_float_to_half(x[i]);
    }
}

static void from_f16(const uint16_t *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = berth_half_to_float(x[i]);
    }
}

static void to_bf16(const float *x, uint16_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = berth_float_to_bf16(x[i]);
    }
}

static void from_bf16(const uint16_t *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = berth_bf16_to_float(x[i]);
    }
}

static void any_from_f32(const float *x, void *y, int64_t n) {
    ggml_cpu_fp32_to_fp32(x, y, n);
}
static void any_to_f32(const void *x, float *y, int64_t n) {
    ggml_cpu_fp32_to_fp32(x, y, n);
}
static void i32_from_f32(const float *x, void *y, int64_t n) {
    ggml_cpu_fp32_to_i32(x, y, n);
}
static void f16_from_f32(const float *x, void *y, int64_t n) {
    to_f16(x, y, n);
}
static void f16_to_f32(const void *x, float *y, int64_t n) {
    from_f16(x, y, n);
}
static void bf16_from_f32(const float *x, void *y, int64_t n) {
    to_bf16(x, y, n);
}
static void bf16_to_f32(const void *x, float *y, int64_t n) {
    from_bf16(x, y, n);
}
static void q8_K_from_f32(const float *x, void *y, int64_t n) {
    quantize_row_q8_K_ref(x, y, n);
}
static void q8_K_to_f32(const void *x, float *y, int64_t n) {
    dequantize_row_q8_K(x, y, n);
}

// Ties are rounded to even, as in the reference's CPU backend. (The offline quantisers round ties away from zero.) If a value is
// not finite, or the maximum is too small to divide by, returns false. The caller then uses the quantiser of src/quant.
static bool block_bytes(const float *x, int8_t *q, float *d) {
    float max = 0.0f;
    for (int j = 0; j < 32; j++) {
        if (fabsf(x[j]) > max || isnan(x[j])) {
            max = fabsf(x[j]);
        }
    }
    if (!(max >= BERTH_Q8_MAX_LEAST && max < INFINITY)) {
        return false;
    }
    *d = max / 127.0f;
    const float inverse = BERTH_Q8_FACTOR_OF_MAX ? 127.0f / max : 1.0f / *d;
    for (int j = 0; j < 32; j++) {
        q[j] = (int8_t) rintf(x[j] * inverse);
    }
    return true;
}
static void q8_0_from_f32(const float *x, void *vy, int64_t n) {
    block_q8_0 *y = vy;
    for (int64_t i = 0; i < n / 32; i++) {
        float d;
        if (block_bytes(x + i * 32, y[i].qs, &d)) {
            y[i].d = berth_float_to_half(d);
        } else {
            quantize_row_q8_0_ref(x + i * 32, &y[i], 32);
        }
    }
}
static void q8_1_from_f32(const float *x, void *vy, int64_t n) {
    block_q8_1 *y = vy;
    for (int64_t i = 0; i < n / 32; i++) {
        float d;
        if (!block_bytes(x + i * 32, y[i].qs, &d)) {
            quantize_row_q8_1_ref(x + i * 32, &y[i], 32);
            continue;
        }
        int sum = 0;
        for (int j = 0; j < 32; j++) {
            sum += y[i].qs[j];
        }
        y[i].d = berth_float_to_half(d);
        y[i].s = berth_float_to_half((float) sum * d);
    }
}
static void q8_1_to_f32(const void *x, float *y, int64_t n) {
    const block_q8_1 *b = x;
    for (int64_t i = 0; i < n / 32; i++) {
        const float d = berth_half_to_float(b[i].d);
        for (int j = 0; j < 32; j++) {
            y[i * 32 + j] = (float) b[i].qs[j] * d;
        }
    }
}

// False for formats that are only quantised offline: they have no from_float.
#define IS_LIVE(TYPE, name, with, is_live, ...) [GGML_TYPE_##TYPE] = is_live,
static const bool is_live[GGML_TYPE_COUNT] = {BERTH_FORMATS(IS_LIVE)};

void cpu_ukr_convert(struct cpu_kernels *k) {
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        const struct ggml_type_traits *base = ggml_get_type_traits((enum ggml_type) t);
        if (base == NULL || !base->is_quantized) {
            continue;
        }
        k->to_float[t] = base->to_float;
        k->traits[t].from_float = is_live[t] ? base->from_float_ref : NULL;
    }
    const struct {
        enum ggml_type type;
        ggml_from_float_t from;
        ggml_to_float_t to;
    } plain[] = {
        {GGML_TYPE_F32, any_from_f32, any_to_f32},
        {GGML_TYPE_F16, f16_from_f32, f16_to_f32},
        {GGML_TYPE_BF16, bf16_from_f32, bf16_to_f32},
        {GGML_TYPE_I32, i32_from_f32, NULL},
        {GGML_TYPE_Q8_0, q8_0_from_f32, k->to_float[GGML_TYPE_Q8_0]},
        {GGML_TYPE_Q8_1, q8_1_from_f32, q8_1_to_f32},
        {GGML_TYPE_Q8_K, q8_K_from_f32, q8_K_to_f32},
    };
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        k->traits[plain[i].type].from_float = plain[i].from;
        k->to_float[plain[i].type] = plain[i].to;
    }
}

// ---- the public conversions, which use the best tier ----

void ggml_cpu_fp32_to_fp16(const float *x, ggml_fp16_t *y, int64_t n) {
    cpu_init();
    cpu_kernels_best.traits[GGML_TYPE_F16].from_float(x, y, n);
}

void ggml_cpu_fp16_to_fp32(const ggml_fp16_t *x, float *y, int64_t n) {
    cpu_init();
    cpu_kernels_best.to_float[GGML_TYPE_F16](x, y, n);
}

void ggml_cpu_fp32_to_bf16(const float *x, ggml_bf16_t *y, int64_t n) {
    cpu_init();
    cpu_kernels_best.traits[GGML_TYPE_BF16].from_float(x, y, n);
}

void ggml_cpu_bf16_to_fp32(const ggml_bf16_t *x, float *y, int64_t n) {
    cpu_init();
    cpu_kernels_best.to_float[GGML_TYPE_BF16](x, y, n);
}
