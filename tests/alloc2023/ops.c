// SPDX-License-Identifier: MIT
// ops.c: tests functions whose parameters differ between the 2023 API and the current API. Their results must be those of 2023.
// Compiled as C and as C++, for the default date and for others.

#include "ggml/ggml.h"

#include "ggml/ggml-alloc.h"
#include "ggml/ggml-impl.h"

#include "expect.h"
#include "ggml-cpu.h" // current header, together with the 2023 headers

#include <math.h>
#include <string.h>

static struct ggml_context *context(void) {
    struct ggml_init_params params = {8 * 1024 * 1024, NULL, false};
    return ggml_init(params);
}

static struct ggml_tensor *random_tensor(struct ggml_context *ctx, int64_t ne0, int64_t ne1, int64_t ne2) {
    static uint32_t state = 7;
    struct ggml_tensor *t = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, ne0, ne1, ne2);
    for (int i = 0; i < (int) ggml_nelements(t); i++) {
        state = state * 1664525u + 1013904223u;
        ggml_set_f32_1d(t, i, (float) (state >> 8) / (float) (1 << 23) - 1.0f);
    }
    return t;
}

static float at(const struct ggml_tensor *t, int64_t i, int64_t j, int64_t k) {
    return *(const float *) (const void *) ((const char *) t->data + (size_t) i * t->nb[0] + (size_t) j * t->nb[1] +
                                            (size_t) k * t->nb[2]);
}

static void run(struct ggml_context *ctx, struct ggml_tensor *result) {
    struct ggml_cgraph *gf = ggml_new_graph(ctx);
    ggml_build_forward_expand(gf, result);
    CHECK(gf->nodes[gf->n_nodes - 1] == result && gf->n_leafs <= gf->size);
    ggml_graph_compute_with_ctx(ctx, gf, 2);
}

static bool is_near(float a, float b) {
    return fabsf(a - b) <= 2e-5f * (1.0f + fabsf(b));
}

// Checks that every element (i, j, k) of result is near value, an expression of i, j and k.
#define CHECK_EACH(result, value) \
    do { \
        for (int64_t k = 0; k < (result)->ne[2]; k++) { \
            for (int64_t j = 0; j < (result)->ne[1]; j++) { \
                for (int64_t i = 0; i < (result)->ne[0]; i++) { \
                    CHECK(is_near(at(result, i, j, k), value)); \
                } \
            } \
        } \
    } while (0)

// ---- ops ----

static void scales(void) {
    struct ggml_context *ctx = context();
    struct ggml_tensor *a = random_tensor(ctx, 6, 5, 2), *copy = ggml_dup(ctx, a), *s = ggml_new_f32(ctx, 1.0f);
#if BERTH_2023 <= 202312
    struct ggml_tensor *b = ggml_scale(ctx, a, s);
    ggml_set_f32(s, 3.0f); // the factor is read when the graph runs
    run(ctx, b);
    CHECK_EACH(b, 3.0f * at(a, i, j, k));
    b = ggml_scale_inplace(ctx, copy, s);
    run(ctx, b);
    CHECK(b->data == copy->data);
    CHECK_EACH(b, 3.0f * at(a, i, j, k));
    CHECK(berth_is_poison(ggml_scale(ctx, a, a)));
    CHECK(strstr(berth_last_error(), "ggml_scale") != NULL);
#endif
#if BERTH_2023 > 202312 || defined(BERTH_2023_ANY)
    struct ggml_tensor *c = ggml_scale(ctx, a, 0.5f);
    run(ctx, c);
    CHECK_EACH(c, 0.5f * at(a, i, j, k));
#endif
    (void) s;
    (void) copy;
    ggml_free(ctx);
}

static void small_ops(void) {
    struct ggml_context *ctx = context();
    struct ggml_tensor *a = random_tensor(ctx, 6, 4, 2), *b = random_tensor(ctx, 6, 4, 3);
    struct ggml_tensor *r = ggml_concat(ctx, a, b);
    run(ctx, r);
    CHECK(r->ne[2] == 5);
    CHECK_EACH(r, k < 2 ? at(a, i, j, k) : at(b, i, j, k - 2));
    r = ggml_leaky(ctx, a);
    run(ctx, r);
    CHECK_EACH(r, at(a, i, j, k) > 0 ? at(a, i, j, k) : 0.1f * at(a, i, j, k));
    r = ggml_upscale(ctx, a, 3);
    run(ctx, r);
    CHECK_EACH(r, at(a, i / 3, j / 3, k));
    r = ggml_cpy_inplace(ctx, a, ggml_dup_tensor(ctx, a));
    run(ctx, r);
    CHECK_EACH(r, at(a, i, j, k));
    r = ggml_cont(ctx, ggml_cont_inplace(ctx, ggml_transpose(ctx, a)));
    run(ctx, r);
    CHECK_EACH(r, at(a, j, i, k));
    struct ggml_tensor *group = random_tensor(ctx, 3, 5, 4);
    r = ggml_group_norm(ctx, group, 2);
    run(ctx, r);
    for (int64_t g = 0; g < 2; g++) {
        double sum = 0, squares = 0;
        for (int64_t n = 0; n < 30; n++) {
            const float x = at(group, n % 3, n / 3 % 5, 2 * g + n / 15);
            sum += (double) x;
            squares += (double) x * (double) x;
        }
        const double mean = sum / 30, scale = 1.0 / sqrt(squares / 30 - mean * mean + 1e-6);
        for (int64_t n = 0; n < 30; n++) {
            const double x = (double) at(group, n % 3, n / 3 % 5, 2 * g + n / 15);
            CHECK(is_near(at(r, n % 3, n / 3 % 5, 2 * g + n / 15), (float) ((x - mean) * scale)));
        }
    }
    ggml_free(ctx);
}

static void convolutions(void) {
    struct ggml_context *ctx = context();
    struct ggml_tensor *image = random_tensor(ctx, 7, 6, 3);
    struct ggml_tensor *kernel = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, 3, 3, 3, 2);
    struct ggml_tensor *r;
#if BERTH_2023 <= 202312
    r = ggml_im2col(ctx, kernel, image, 1, 1, 0, 0, 1, 1, true);
    run(ctx, r);
    CHECK(r->type == GGML_TYPE_F16 && r->ne[0] == 27 && r->ne[1] == 5 && r->ne[2] == 4);
#endif
#if BERTH_2023 > 202312 || defined(BERTH_2023_ANY)
    r = ggml_im2col(ctx, kernel, image, 1, 1, 0, 0, 1, 1, true, GGML_TYPE_F32);
    run(ctx, r);
    CHECK(r->type == GGML_TYPE_F32);
    CHECK_EACH(r, at(image, j + i % 3, k + i / 3 % 3, i / 9));
#endif
    struct ggml_tensor *depth = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, 3, 3, 1, 3);
    for (int i = 0; i < 27; i++) {
        ((ggml_fp16_t *) depth->data)[i] = ggml_fp32_to_fp16((float) (i % 5) - 2.0f);
    }
    r = ggml_conv_depthwise_2d(ctx, depth, image, 1, 1, 0, 0, 1, 1);
    run(ctx, r);
    CHECK(r->ne[0] == 5 && r->ne[1] == 4 && r->ne[2] == 3);
    for (int64_t c = 0; c < 3; c++) {
        float sum = 0;
        for (int64_t n = 0; n < 9; n++) {
            sum += ggml_fp16_to_fp32(((const ggml_fp16_t *) depth->data)[c * 9 + n]) * at(image, 2 + n % 3, 1 + n / 3, c);
        }
        CHECK(fabsf(at(r, 2, 1, c) - sum) < 2e-2f); // f16 products are less precise
    }
    ggml_free(ctx);
}

static void alibi(int n_head, float bias_max) {
    struct ggml_context *ctx = context();
    struct ggml_tensor *a = random_tensor(ctx, 9, 4, n_head), *copy = ggml_dup(ctx, a);
    struct ggml_tensor *r = ggml_alibi(ctx, copy, 5, n_head, bias_max);
    run(ctx, r);
    CHECK(r->data == copy->data);
    int low = 1;
    while (2 * low <= n_head) {
        low *= 2;
    }
    for (int64_t k = 0; k < n_head; k++) {
        const double exponent = k < low ? (double) (k + 1) : (2.0 * (double) (k - low) + 1.0) / 2.0;
        const float slope = (float) pow(2.0, -(double) bias_max * exponent / low);
        for (int64_t j = 0; j < 4; j++) {
            for (int64_t i = 0; i < 9; i++) {
                CHECK(is_near(at(r, i, j, k), at(a, i, j, k) + (float) i * slope));
            }
        }
    }
    ggml_free(ctx);
}

#if BERTH_2023 >= 202310
static struct ggml_tensor *positions(struct ggml_context *ctx, int first, int n) {
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n);
    for (int i = 0; i < n; i++) {
        ggml_set_i32_1d(t, i, first + i);
    }
    return t;
}
#endif

static void rope(void) {
    struct ggml_context *ctx = context();
    struct ggml_tensor *a = random_tensor(ctx, 8, 3, 5);
    struct ggml_tensor *r;
#if BERTH_2023 >= 202310
    r = ggml_rope(ctx, a, positions(ctx, 4, 5), 8, 0, 512);
    run(ctx, r);
    for (int64_t k = 0; k < 5; k++) {
        for (int64_t i = 0; i < 8; i += 2) {
            const double angle = (double) (4 + k) * pow(10000.0, -(double) i / 8);
            const double x = (double) at(a, i, 1, k), y = (double) at(a, i + 1, 1, k);
            CHECK(is_near(at(r, i, 1, k), (float) (x * cos(angle) - y * sin(angle))));
            CHECK(is_near(at(r, i + 1, 1, k), (float) (x * sin(angle) + y * cos(angle))));
        }
    }
    struct ggml_tensor *back =
        ggml_rope_back(ctx, r, positions(ctx, 4, 5), 8, 0, 512, 0, 10000.0f, 1.0f, 0.0f, 1.0f, 0.0f, 0.0f, 0.0f, false);
    run(ctx, back);
    CHECK_EACH(back, at(a, i, j, k));
    struct ggml_tensor *custom =
        ggml_rope_custom(ctx, a, positions(ctx, 4, 5), 8, 0, 512, 0, 10000.0f, 1.0f, 0.0f, 1.0f, 0.0f, 0.0f);
    run(ctx, custom);
    CHECK_EACH(custom, at(r, i, j, k));
    for (int down = 0; down < 2; down++) {
        struct ggml_tensor *x = ggml_rope_xpos_inplace(ctx, ggml_dup(ctx, a), positions(ctx, 4, 5), 8, 512.0f, down == 1);
        run(ctx, x);
        CHECK_EACH(x, at(r, i, j, k) * powf(((float) (i / 2 * 2) + 0.4f * 8) / (1.4f * 8),
                                           (down == 1 ? -1.0f : 1.0f) * (float) (4 + k) / 512.0f));
    }
    CHECK(berth_is_poison(ggml_rope(ctx, a, positions(ctx, 4, 5), 8, 4, 512)));
    CHECK(strstr(berth_last_error(), "GLM") != NULL);
#endif
#if BERTH_2023 < 202310 || defined(BERTH_2023_ANY)
    struct ggml_tensor *past = ggml_rope(ctx, a, 4, 8, 2, 512); // positions from n_past on
    run(ctx, past);
    for (int64_t k = 0; k < 5; k++) {
        for (int64_t i = 0; i < 4; i++) {
            const double angle = (double) (4 + k) * pow(10000.0, -(double) i / 4);
            const double x = (double) at(a, i, 2, k), y = (double) at(a, i + 4, 2, k);
            CHECK(is_near(at(past, i, 2, k), (float) (x * cos(angle) - y * sin(angle))));
            CHECK(is_near(at(past, i + 4, 2, k), (float) (x * sin(angle) + y * cos(angle))));
        }
    }
    r = ggml_rope_inplace(ctx, ggml_dup(ctx, a), 4, 8, 2, 512);
    run(ctx, r);
    CHECK_EACH(r, at(past, i, j, k));
#endif
    ggml_free(ctx);
}

static void attention(void) {
    struct ggml_context *ctx = context();
    enum { HEAD = 6, N = 3, KV = 5, HEADS = 2 };
    struct ggml_tensor *q = random_tensor(ctx, HEAD, N, HEADS), *k3 = random_tensor(ctx, HEAD, KV, HEADS);
    struct ggml_tensor *v = random_tensor(ctx, KV, HEAD, HEADS);
    struct ggml_tensor *r = ggml_flash_attn(ctx, q, k3, v, true);
    run(ctx, r);
    for (int64_t h = 0; h < HEADS; h++) {
        for (int64_t n = 0; n < N; n++) {
            double weights[KV], sum = 0;
            for (int64_t t = 0; t < KV; t++) {
                double dot = 0;
                for (int64_t i = 0; i < HEAD; i++) {
                    dot += (double) at(q, i, n, h) * (double) at(k3, i, t, h);
                }
                weights[t] = t <= n + KV - N ? exp(dot / sqrt((double) HEAD)) : 0.0;
                sum += weights[t];
            }
            for (int64_t i = 0; i < HEAD; i++) {
                double value = 0;
                for (int64_t t = 0; t < KV; t++) {
                    value += weights[t] / sum * (double) at(v, t, i, h);
                }
                CHECK(is_near(at(r, i, n, h), (float) value));
            }
        }
    }
    struct ggml_tensor *x = random_tensor(ctx, 4, 3, 1), *b0 = random_tensor(ctx, 4, 8, 1), *b1 = random_tensor(ctx, 8, 1, 1);
    struct ggml_tensor *c0 = random_tensor(ctx, 8, 4, 1), *c1 = random_tensor(ctx, 4, 1, 1);
    r = ggml_flash_ff(ctx, x, b0, b1, c0, c1);
    run(ctx, r);
    struct ggml_tensor *h = ggml_gelu(ctx, ggml_add(ctx, ggml_mul_mat(ctx, b0, x), b1));
    h = ggml_add(ctx, ggml_mul_mat(ctx, c0, h), c1);
    run(ctx, h);
    CHECK(r->ne[0] == 4 && r->ne[1] == 3);
    CHECK_EACH(r, at(h, i, j, k));
    struct ggml_tensor *mask = random_tensor(ctx, 5, 3, 1), *kq = random_tensor(ctx, 5, 3, 1);
    r = ggml_soft_max_ext(ctx, kq, mask, 0.5f);
    run(ctx, r);
    for (int64_t j = 0; j < 3; j++) {
        double sum = 0;
        for (int64_t i = 0; i < 5; i++) {
            sum += exp(0.5 * (double) at(kq, i, j, 0) + (double) at(mask, i, j, 0));
        }
        CHECK(is_near(at(r, 2, j, 0), (float) (exp(0.5 * (double) at(kq, 2, j, 0) + (double) at(mask, 2, j, 0)) / sum)));
    }
    struct ggml_tensor *grad = random_tensor(ctx, 5, 3, 1), *dx = ggml_soft_max_back(ctx, grad, r);
    run(ctx, dx);
    for (int64_t j = 0; j < 3; j++) {
        float dot = 0;
        for (int64_t i = 0; i < 5; i++) {
            dot += at(grad, i, j, 0) * at(r, i, j, 0);
        }
        CHECK(is_near(at(dx, 3, j, 0), at(r, 3, j, 0) * (at(grad, 3, j, 0) - dot)));
    }
    ggml_free(ctx);
}

static void experts(void) {
    struct ggml_context *ctx = context();
    struct ggml_tensor *as[3] = {random_tensor(ctx, 4, 5, 1), random_tensor(ctx, 4, 5, 1), random_tensor(ctx, 4, 5, 1)};
    struct ggml_tensor *b = random_tensor(ctx, 4, 6, 1), *ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 2, 6);
    for (int i = 0; i < 12; i++) {
        ggml_set_i32_1d(ids, i, i * 5 % 3);
    }
    struct ggml_tensor *r = ggml_mul_mat_id(ctx, as, 3, ids, 1, b);
    run(ctx, r);
    CHECK(r->ne[0] == 5 && r->ne[1] == 6 && r->ne[2] == 1);
    for (int64_t t = 0; t < 6; t++) {
        const struct ggml_tensor *a = as[ggml_get_i32_1d(ids, (int) t * 2 + 1)];
        for (int64_t row = 0; row < 5; row++) {
            float sum = 0;
            for (int64_t i = 0; i < 4; i++) {
                sum += at(a, i, row, 0) * at(b, i, t, 0);
            }
            CHECK(is_near(at(r, row, t, 0), sum));
        }
    }
    CHECK(berth_is_poison(ggml_mul_mat_id(ctx, as, 3, ids, 2, b)));
    ggml_free(ctx);
}

static void triple(const int n, float *dst, const float *src) {
    for (int i = 0; i < n; i++) {
        dst[i] = 3.0f * src[i];
    }
}

static void minus(const int n, float *dst, const float *a, const float *b) {
    for (int i = 0; i < n; i++) {
        dst[i] = a[i] - b[i];
    }
}

static void custom1(struct ggml_tensor *dst, const struct ggml_tensor *a) {
    triple((int) ggml_nelements(a), (float *) dst->data, (const float *) a->data);
}

static void custom2(struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b) {
    minus((int) ggml_nelements(a), (float *) dst->data, (const float *) a->data, (const float *) b->data);
}

static void custom3(
    struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b, const struct ggml_tensor *c) {
    custom2(dst, a, b);
    minus((int) ggml_nelements(a), (float *) dst->data, (const float *) dst->data, (const float *) c->data);
}

static void functions(void) {
    struct ggml_context *ctx = context();
    struct ggml_tensor *a = random_tensor(ctx, 4, 3, 2), *b = random_tensor(ctx, 4, 3, 2), *c = random_tensor(ctx, 4, 3, 2);
    for (int inplace = 0; inplace < 2; inplace++) {
        struct ggml_tensor *x = ggml_dup(ctx, a);
        struct ggml_tensor *r = inplace ? ggml_map_unary_inplace_f32(ctx, x, triple) : ggml_map_unary_f32(ctx, x, triple);
        run(ctx, r);
        CHECK((r->data == x->data) == (inplace == 1));
        CHECK_EACH(r, 3.0f * at(a, i, j, k));
        x = ggml_dup(ctx, a);
        r = inplace ? ggml_map_binary_inplace_f32(ctx, x, b, minus) : ggml_map_binary_f32(ctx, x, b, minus);
        run(ctx, r);
        CHECK_EACH(r, at(a, i, j, k) - at(b, i, j, k));
        x = ggml_dup(ctx, a);
        r = inplace ? ggml_map_custom1_inplace_f32(ctx, x, custom1) : ggml_map_custom1_f32(ctx, x, custom1);
        run(ctx, r);
        CHECK_EACH(r, 3.0f * at(a, i, j, k));
        x = ggml_dup(ctx, a);
        r = inplace ? ggml_map_custom2_inplace_f32(ctx, x, b, custom2) : ggml_map_custom2_f32(ctx, x, b, custom2);
        run(ctx, r);
        CHECK_EACH(r, at(a, i, j, k) - at(b, i, j, k));
        x = ggml_dup(ctx, a);
        r = inplace ? ggml_map_custom3_inplace_f32(ctx, x, b, c, custom3) : ggml_map_custom3_f32(ctx, x, b, c, custom3);
        run(ctx, r);
        CHECK_EACH(r, at(a, i, j, k) - at(b, i, j, k) - at(c, i, j, k));
    }
    CHECK(berth_is_poison(ggml_map_unary_f32(ctx, ggml_transpose(ctx, a), triple)));
    ggml_free(ctx);
}

// ---- quantisation, types, files ----

static void quantising(void) {
    enum { N = 512 };
    float x[N], y[N];
    uint8_t data[4 * N];
    for (int i = 0; i < N; i++) {
        x[i] = (float) (i % 37 - 18) / 9.0f;
    }
    static const struct {
        enum ggml_type type;
        size_t (*quantize)(const float *src, void *dst, int n, int k, int64_t *hist);
        bool is_counted;
    } rows[] = {
        {GGML_TYPE_Q4_0, ggml_quantize_q4_0, true},
        {GGML_TYPE_Q4_1, ggml_quantize_q4_1, true},
        {GGML_TYPE_Q5_0, ggml_quantize_q5_0, true},
        {GGML_TYPE_Q5_1, ggml_quantize_q5_1, true},
        {GGML_TYPE_Q8_0, ggml_quantize_q8_0, true},
        {GGML_TYPE_Q2_K, ggml_quantize_q2_K, false},
        {GGML_TYPE_Q3_K, ggml_quantize_q3_K, false},
        {GGML_TYPE_Q4_K, ggml_quantize_q4_K, false},
        {GGML_TYPE_Q5_K, ggml_quantize_q5_K, false},
        {GGML_TYPE_Q6_K, ggml_quantize_q6_K, false},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        int64_t hist[16] = {0}, sum = 0;
        const size_t size = rows[r].quantize(x, data, N, N / 2, hist);
        CHECK(size == ggml_row_size(rows[r].type, N));
        for (int i = 0; i < 16; i++) {
            sum += hist[i];
        }
        CHECK(sum == (rows[r].is_counted ? N : 0));
        const ggml_type_traits_t traits = ggml_internal_get_type_traits(rows[r].type);
        CHECK(strcmp(traits.type_name, ggml_type_name(rows[r].type)) == 0 && traits.blck_size == ggml_blck_size(rows[r].type));
        CHECK(traits.is_quantized && traits.type_size == ggml_type_size(rows[r].type));
        traits.to_float(data, y, N);
        float max_error = 0;
        for (int i = 0; i < N; i++) {
            max_error = fmaxf(max_error, fabsf(x[i] - y[i]));
        }
        CHECK(max_error < 1.0f);
        // The dot product of the row with itself, by the kernel of the traits.
        uint8_t other[8 * N];
        float dot = 0, expected = 0;
        ggml_internal_get_type_traits(traits.vec_dot_type).from_float(x, other, N);
        traits.vec_dot(N, &dot, data, other);
        for (int i = 0; i < N; i++) {
            expected += x[i] * y[i];
        }
        CHECK(fabsf(dot - expected) < 0.02f * expected);
        uint8_t part[4 * N];
        memset(part, 0, sizeof part);
#if BERTH_2023 <= 202312
        CHECK(ggml_quantize_chunk(rows[r].type, x, part, 0, N / 2, NULL) == size / 2);
        CHECK(ggml_quantize_chunk(rows[r].type, x, part, N / 2, N / 2, NULL) == size / 2);
        CHECK(memcmp(part, data, size) == 0);
        CHECK(ggml_quantize_chunk(rows[r].type, x, part, 1, N / 2, NULL) == 0);
#endif
#if BERTH_2023 > 202312 || defined(BERTH_2023_ANY)
        CHECK(ggml_quantize_chunk(rows[r].type, x, part, 0, 2, N / 2, NULL, NULL) == size);
        CHECK(memcmp(part, data, size) == 0);
#endif
    }
    // The values are -8 to 7, so that each of the 32 quantised values is known.
    int64_t hist[16] = {0};
    for (int i = 0; i < 32; i++) {
        x[i] = (float) (i % 16 - 8);
    }
    CHECK(ggml_quantize_q4_0(x, data, 32, 32, hist) == 18);
    for (int i = 0; i < 16; i++) {
        CHECK(hist[i] == 2);
    }
    CHECK(ggml_quantize_q4_0(x, data, 33, 32, NULL) == 0);
}

static void files(const char *path) {
    struct ggml_context *ctx = context();
    struct ggml_tensor *t = random_tensor(ctx, 8, 2, 1);
    struct gguf_context *out = gguf_init_empty();
    const char *words[3] = {"a", "bc", "def"};
    const int32_t numbers[4] = {1, 2, 3, 4};
    ggml_set_name(t, "weight");
    gguf_set_val_u32(out, "n", 42);
    gguf_set_arr_str(out, "words", words, 3);
    gguf_set_arr_data(out, "numbers", GGUF_TYPE_INT32, numbers, 4);
    gguf_add_tensor(out, t);
    gguf_set_tensor_data(out, "weight", t->data, ggml_nbytes(t));
    gguf_write_to_file(out, path, false);
    gguf_free(out);

    struct ggml_context *data = NULL;
    struct gguf_init_params params = {/*.no_alloc =*/false, /*.ctx =*/&data};
    struct gguf_context *in = gguf_init_from_file(path, params);
    CHECK(in != NULL && gguf_get_version(in) == 3 && gguf_get_n_kv(in) == 3 && gguf_get_n_tensors(in) == 1);
    const int n = gguf_find_key(in, "n"), list = gguf_find_key(in, "words"), i_tensor = gguf_find_tensor(in, "weight");
    CHECK(n >= 0 && gguf_get_val_u32(in, n) == 42 && gguf_get_kv_type(in, n) == GGUF_TYPE_UINT32);
    CHECK(gguf_find_key(in, "none") == -1 && gguf_find_tensor(in, "none") == -1);
    CHECK(gguf_get_arr_n(in, list) == 3 && strcmp(gguf_get_arr_str(in, list, 2), "def") == 0);
    CHECK(((const int32_t *) gguf_get_arr_data(in, gguf_find_key(in, "numbers")))[3] == 4);
    char *name = gguf_get_tensor_name(in, i_tensor);
    CHECK(strcmp(name, "weight") == 0);
    const char *bytes = (const char *) gguf_get_data(in) + gguf_get_tensor_offset(in, i_tensor);
    CHECK(memcmp(bytes, t->data, ggml_nbytes(t)) == 0 && ggml_get_tensor(data, "weight")->data == (const void *) bytes);
    gguf_free(in);
    ggml_free(data);
    ggml_free(ctx);
    remove(path);
}

// ---- graphs, tensors, features of the CPU ----

static void graphs(void) {
    struct ggml_context *ctx = context();
    struct ggml_tensor *a = random_tensor(ctx, 4, 1, 1);
    struct ggml_tensor *b = ggml_set_name(ggml_sqr(ctx, a), "b"), *c = ggml_sqr(ctx, b), *d = ggml_sqr(ctx, c);
    struct ggml_cgraph *gf = ggml_build_forward_ctx(ctx, d);
    CHECK(gf->n_nodes == 3 && gf->nodes[2] == d && gf->leafs[0] == a && gf->order == GGML_CGRAPH_EVAL_ORDER_LEFT_TO_RIGHT);
    CHECK(gf->visited_hash_table.size > 4 && gf->visited_hash_table.keys != NULL);
    CHECK(ggml_graph_get_tensor(gf, "b") == b && ggml_graph_dup(ctx, gf)->n_nodes == 3);
#if BERTH_2023 >= 202312
    struct ggml_cgraph view = ggml_graph_view(gf, 1, 3);
    CHECK(view.n_nodes == 2 && view.nodes[0] == c);
#endif
#if BERTH_2023 < 202312 || defined(BERTH_2023_ANY)
    struct ggml_cgraph *part = ggml_graph_view(ctx, gf, 1, 3);
    CHECK(part->n_nodes == 2 && part->nodes[0] == c);
#endif
    struct ggml_cplan plan = ggml_graph_plan(gf, GGML_DEFAULT_N_THREADS);
    uint8_t work[64];
    plan.work_data = plan.work_size > 0 ? work : NULL;
    CHECK(plan.work_size <= sizeof work && plan.n_threads >= 1 && ggml_graph_compute(gf, &plan) == GGML_EXIT_SUCCESS);
    CHECK_EACH(d, powf(at(a, i, j, k), 8.0f));
#ifdef BERTH_2023_GRAPH_ROOM // a graph as a variable
    static struct ggml_cgraph whole;
    ggml_build_forward_expand(&whole, d);
    CHECK(whole.n_nodes == 3 && whole.nodes[2] == d && whole.size == GGML_MAX_NODES);
    ggml_graph_compute_with_ctx(ctx, &whole, 1);
    struct ggml_cgraph built = ggml_build_forward(d);
    CHECK(built.n_nodes == 3 && built.nodes[0] == b && built.leafs[0] == a);
    memset(d->data, 0, ggml_nbytes(d));
    ggml_graph_compute_with_ctx(ctx, &built, 1);
    CHECK_EACH(d, powf(at(a, i, j, k), 8.0f));
#endif
    CHECK(offsetof(struct ggml_cgraph, order) == 80 && offsetof(struct ggml_cgraph, uid) == 88); // the current layout
    CHECK(sizeof(struct ggml_tensor) == 336 && offsetof(struct ggml_tensor, buffer) == 8);
    CHECK(a->backend == GGML_BACKEND_CPU);
    a->backend = GGML_BACKEND_GPU;
    CHECK(a->backend == GGML_BACKEND_GPU && a->op == GGML_OP_NONE && b->op != GGML_OP_ALIBI);
    CHECK(ggml_get_next_tensor(ctx, ggml_get_first_tensor(ctx)) != NULL && GGML_OBJECT_SIZE == 32);
    ggml_set_param(ctx, a);
    CHECK((a->flags & GGML_TENSOR_FLAG_PARAM) != 0);
    CHECK(ggml_nbytes_split(a, 3) == 3 * 16 && ggml_blck_size(GGML_TYPE_Q4_0) == 32);
    CHECK(
        ggml_type_sizef(GGML_TYPE_F32) == 4 && ggml_cpu_has_metal() == 0 && ggml_cpu_has_cublas() + ggml_cpu_has_gpublas() == 0);
    ggml_numa_init();
    ggml_fp16_t f16[2];
    const float two[2] = {1.5f, -2.0f};
    float converted[2];
    ggml_fp32_to_fp16_row(two, f16, 2);
    ggml_fp16_to_fp32_row(f16, converted, 2);
    CHECK(memcmp(two, converted, sizeof two) == 0);
    ggml_free(ctx);
}

static void hash_sets(void) {
    struct ggml_context *ctx = context();
    struct ggml_tensor *keys[2] = {NULL, NULL};
    struct ggml_tensor *a = ggml_new_f32(ctx, 1), *b = ggml_new_f32(ctx, 2), *c = ggml_new_f32(ctx, 3);
    struct ggml_hash_set set = {2, keys};
    CHECK(
        !ggml_hash_contains(set, a) && ggml_hash_find_or_insert(set, a) == ggml_hash_find(set, a) && ggml_hash_contains(set, a));
    CHECK(ggml_hash_insert(set, a) == GGML_HASHTABLE_ALREADY_EXISTS && ggml_hash_insert(set, b) < 2);
    CHECK(ggml_hash_insert(set, c) == GGML_HASHTABLE_FULL && ggml_hash_find_or_insert(set, c) == GGML_HASHTABLE_FULL);
    struct ggml_hash_set none = {0, NULL};
    CHECK(!ggml_hash_contains(none, a));
    ggml_free(ctx);
}

// A function of October 2023 places two graphs together. The second graph reads a result of the first.
static void several_graphs(void) {
    static char memory[4096];
    struct ggml_init_params params = {512 * 1024, NULL, true};
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 16);
    struct ggml_tensor *y = ggml_sqr(ctx, x), *z = ggml_add(ctx, ggml_sqr(ctx, y), x);
    struct ggml_cgraph *graphs[2] = {ggml_build_forward_ctx(ctx, y), ggml_new_graph(ctx)};
    struct ggml_tensor *first[2] = {x, NULL}, *second[2] = {y, NULL};
    struct ggml_tensor **inputs[2] = {first, second};
    struct ggml_tensor **outputs[2] = {NULL, NULL};
    ggml_build_forward_expand(graphs[1], z);
    ggml_allocr_t alloc = ggml_allocr_new(memory, sizeof memory, 32);
    const size_t size = ggml_allocr_alloc_graph_n(alloc, graphs, 2, inputs, outputs);
    CHECK(size >= 2 * 64 && size <= 5 * 64 && x->data != NULL && y->data != NULL && z->data != NULL);
    for (int i = 0; i < 16; i++) {
        ((float *) x->data)[i] = (float) i;
    }
    struct ggml_context *plan = context();
    ggml_graph_compute_with_ctx(plan, graphs[0], 1);
    ggml_graph_compute_with_ctx(plan, graphs[1], 1);
    for (int i = 0; i < 16; i++) {
        CHECK(((const float *) z->data)[i] == (float) (i * i * i * i + i));
    }
    CHECK(ggml_allocr_alloc_graph_n(alloc, graphs, 0, NULL, NULL) == 0);
    for (int n = 1; n < 200; n++) { // each allocation fails once
        x->data = y->data = z->data = z->src[0]->data = NULL;
        x->buffer = y->buffer = z->buffer = z->src[0]->buffer = NULL;
        ggml_allocr_reset(alloc);
        berth_alloc_fail_at(n);
        ggml_allocr_alloc_graph_n(alloc, graphs, 2, inputs, outputs);
        berth_alloc_fail_at(0);
    }
    CHECK(z->data != NULL);
    ggml_allocr_free(alloc);
    ggml_free(plan);
    ggml_free(ctx);
}

int main(int argc, char **argv) {
    ggml_log_set(log_drop, NULL);
    scales();
    small_ops();
    convolutions();
    alibi(8, 8.0f);
    alibi(12, 8.0f);
    alibi(1, 4.0f);
    rope();
    attention();
    experts();
    functions();
    quantising();
    files(argc > 1 ? argv[1] : "alloc2023-ops.gguf");
    graphs();
    hash_sets();
    several_graphs();
    printf("ok\n");
    return 0;
}
