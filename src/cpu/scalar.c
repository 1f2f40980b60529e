// SPDX-License-Identifier: MIT
// scalar.c: ggml's functions that read or write one element of a host tensor, or set all elements. A double represents every i32
// and f32 exactly. A wrong index or type, or a tensor without memory, reports an error. Then a read returns 0, and nothing is
// written.

#include "base/min.h"
#include "base/shim/shim.h"
#include "core/span.h"

#include "ggml-cpu.h"
#include "quant/half.h"

#include <string.h>

struct element {
    double (*get)(const void *at);
    void (*set)(void *at, double v);
};

#define ELEMENT(name, type) \
    static double get_##name(const void *at) { \
        type v; \
        memcpy(&v, at, sizeof v); \
        return (double) v; \
    } \
    static void set_##name(void *at, double d) { \
        const type v = (type) d; \
        memcpy(at, &v, sizeof v); \
    }
// Values outside the range of the type wrap. NaN and values outside of int64_t become 0.
#define ELEMENT_INT(name, type) \
    static double get_##name(const void *at) { \
        type v; \
        memcpy(&v, at, sizeof v); \
        return (double) v; \
    } \
    static void set_##name(void *at, double d) { \
        const type v = (type) (int64_t) (d >= 0x1p63 || !(d > -0x1p63) ? 0 : d); \
        memcpy(at, &v, sizeof v); \
    }
#define ELEMENT_16(name, widen, narrow) \
    static double get_##name(const void *at) { \
        uint16_t v; \
        memcpy(&v, at, sizeof v); \
        return widen(v); \
    } \
    static void set_##name(void *at, double d) { \
        const uint16_t v = narrow((float) d); \
        memcpy(at, &v, sizeof v); \
    }
ELEMENT_INT(i8, int8_t)
ELEMENT_INT(i16, int16_t)
ELEMENT_INT(i32, int32_t)
ELEMENT(f32, float)
ELEMENT_16(f16, berth_half_to_float, berth_float_to_half)
ELEMENT_16(bf16, berth_bf16_to_float, berth_float_to_bf16)

static const struct element elements[GGML_TYPE_COUNT] = {
    [GGML_TYPE_I8] = {get_i8, set_i8},
    [GGML_TYPE_I16] = {get_i16, set_i16},
    [GGML_TYPE_I32] = {get_i32, set_i32},
    [GGML_TYPE_F16] = {get_f16, set_f16},
    [GGML_TYPE_BF16] = {get_bf16, set_bf16},
    [GGML_TYPE_F32] = {get_f32, set_f32},
};

static const struct element *element_of(const struct ggml_tensor *t, const char *func) {
    if (t == NULL || t->data == NULL) {
        shim_error(GGML_STATUS_FAILED, "%s: the tensor is NULL or has no memory", func);
        return NULL;
    }
    if ((unsigned) t->type >= GGML_TYPE_COUNT || elements[t->type].get == NULL) {
        shim_error(
            GGML_STATUS_FAILED, "%s: '%s' has type %s, which has no scalar elements", func, t->name, ggml_type_name(t->type));
        return NULL;
    }
    return &elements[t->type];
}

static void span_refuse(const struct ggml_tensor *t, const char *func, enum berth_span_fault fault) {
    char text[320];
    berth_span_report(fault, t, text, sizeof text);
    shim_error(GGML_STATUS_FAILED, "%s: %s", func, text);
}

static char *at_nd(const struct ggml_tensor *t, const char *func, const int64_t i[4]) {
    size_t off = 0, step, end = BERTH_SPAN_INVALID;
    bool fits = true;
    for (int d = 0; d < GGML_MAX_DIMS; d++) {
        if (i[d] < 0 || i[d] >= t->ne[d]) {
            shim_error(GGML_STATUS_FAILED, "%s: index %lld is out of range: dimension %d of '%s' has %lld elements", func,
                (long long) i[d], d, t->name, (long long) t->ne[d]);
            return NULL;
        }
        fits &= berth_mul_ok((size_t) i[d], t->nb[d], &step) && berth_add_ok(off, step, &off);
    }
    if (!fits || !berth_add_ok(off, ggml_type_size(t->type), &end)) {
        end = BERTH_SPAN_INVALID;
    }
    const enum berth_span_fault fault = berth_span_check_bytes(&(struct berth_span_base){0}, t, end);
    if (fault != BERTH_SPAN_OK) {
        span_refuse(t, func, fault);
        return NULL;
    }
    return (char *) t->data + off;
}

static char *at_1d(const struct ggml_tensor *t, const char *func, int i) {
    if (i < 0 || i >= ggml_nelements(t)) {
        shim_error(GGML_STATUS_FAILED, "%s: index %d is out of range: '%s' has %lld elements", func, i, t->name,
            (long long) ggml_nelements(t));
        return NULL;
    }
    int64_t at[4];
    ggml_unravel_index(t, i, &at[0], &at[1], &at[2], &at[3]);
    return at_nd(t, func, at);
}

static double value_get(const struct ggml_tensor *t, const char *func, int i, const int64_t *nd) {
    const struct element *e = element_of(t, func);
    if (e == NULL) {
        return 0.0;
    }
    const char *at = nd != NULL ? at_nd(t, func, nd) : at_1d(t, func, i);
    return at != NULL ? e->get(at) : 0.0;
}

static void value_set(const struct ggml_tensor *t, const char *func, int i, const int64_t *nd, double v) {
    const struct element *e = element_of(t, func);
    if (e == NULL) {
        return;
    }
    char *at = nd != NULL ? at_nd(t, func, nd) : at_1d(t, func, i);
    if (at != NULL) {
        e->set(at, v);
    }
}

static struct ggml_tensor *value_fill(struct ggml_tensor *t, const char *func, double v) {
    const struct element *e = element_of(t, func);
    if (e == NULL) {
        return t;
    }
    const enum berth_span_fault fault = berth_span_check(&(struct berth_span_base){0}, t);
    if (fault > BERTH_SPAN_EMPTY) {
        span_refuse(t, func, fault);
        return t;
    }
    for (int64_t i3 = 0; i3 < t->ne[3]; i3++) {
        for (int64_t i2 = 0; i2 < t->ne[2]; i2++) {
            for (int64_t i1 = 0; i1 < t->ne[1]; i1++) {
                char *row = (char *) t->data + (size_t) i1 * t->nb[1] + (size_t) i2 * t->nb[2] + (size_t) i3 * t->nb[3];
                for (int64_t i0 = 0; i0 < t->ne[0]; i0++) {
                    e->set(row + (size_t) i0 * t->nb[0], v);
                }
            }
        }
    }
    return t;
}

static int32_t to_i32(double v) {
    if (v != v) {
        return 0;
    }
    return (int32_t) max_f64(INT32_MIN, min_f64(v, INT32_MAX));
}

struct ggml_tensor *ggml_set_i32(struct ggml_tensor *tensor, int32_t value) {
    return value_fill(tensor, __func__, value);
}

struct ggml_tensor *ggml_set_f32(struct ggml_tensor *tensor, float value) {
    return value_fill(tensor, __func__, value);
}

struct ggml_tensor *ggml_new_i32(struct ggml_context *ctx, int32_t value) {
    return ggml_set_i32(ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 1), value);
}

struct ggml_tensor *ggml_new_f32(struct ggml_context *ctx, float value) {
    return ggml_set_f32(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1), value);
}

int32_t ggml_get_i32_1d(const struct ggml_tensor *tensor, int i) {
    return to_i32(value_get(tensor, __func__, i, NULL));
}

void ggml_set_i32_1d(const struct ggml_tensor *tensor, int i, int32_t value) {
    value_set(tensor, __func__, i, NULL, value);
}

int32_t ggml_get_i32_nd(const struct ggml_tensor *tensor, int i0, int i1, int i2, int i3) {
    return to_i32(value_get(tensor, __func__, 0, (const int64_t[]){i0, i1, i2, i3}));
}

void ggml_set_i32_nd(const struct ggml_tensor *tensor, int i0, int i1, int i2, int i3, int32_t value) {
    value_set(tensor, __func__, 0, (const int64_t[]){i0, i1, i2, i3}, value);
}

float ggml_get_f32_1d(const struct ggml_tensor *tensor, int i) {
    return (float) value_get(tensor, __func__, i, NULL);
}

void ggml_set_f32_1d(const struct ggml_tensor *tensor, int i, float value) {
    value_set(tensor, __func__, i, NULL, value);
}

float ggml_get_f32_nd(const struct ggml_tensor *tensor, int i0, int i1, int i2, int i3) {
    return (float) value_get(tensor, __func__, 0, (const int64_t[]){i0, i1, i2, i3});
}

void ggml_set_f32_nd(const struct ggml_tensor *tensor, int i0, int i1, int i2, int i3, float value) {
    value_set(tensor, __func__, 0, (const int64_t[]){i0, i1, i2, i3}, value);
}
