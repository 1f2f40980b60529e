// SPDX-License-Identifier: MIT
// input.c: creates input tensors whose numbers depend on the case only.

#include "op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t op_random(struct op_build *b) {
    b->rng ^= b->rng >> 12;
    b->rng ^= b->rng << 25;
    b->rng ^= b->rng >> 27;
    return b->rng * 0x2545F4914F6CDD1Du;
}

float op_uniform(struct op_build *b, float lo, float hi) {
    return lo + (hi - lo) * ((float) (op_random(b) >> 40) * 0x1p-24f);
}

static void fill_row(struct op_build *b, struct ggml_tensor *t, char *row, float lo, float hi) {
    const struct ggml_type_traits_cpu *traits = ggml_get_type_traits_cpu(t->type);
    float *x = malloc((size_t) t->ne[0] * sizeof *x + 1);
    for (int64_t i = 0; i < t->ne[0]; i++) {
        x[i] = op_uniform(b, lo, hi);
    }
    if (ggml_is_quantized(t->type)) {
        if (traits->from_float != NULL) {
            traits->from_float(x, row, t->ne[0]);
        } else {
            float *weights = malloc((size_t) t->ne[0] * sizeof *weights + 1); // some formats require an importance matrix
            for (int64_t i = 0; i < t->ne[0]; i++) {
                weights[i] = 1.0f;
            }
            if (ggml_quantize_chunk(t->type, x, row, 0, 1, t->ne[0], weights) == 0) {
                b->skip = "rows of this type cannot be quantised here";
            }
            free(weights);
        }
    } else {
        for (int64_t i = 0; i < t->ne[0]; i++) {
            char *at = row + (size_t) i * t->nb[0];
            const float scaled = x[i] * 100.0f;
            const int64_t v64 = (int64_t) scaled;
            const double v_f64 = x[i];
            switch (t->type) {
                case GGML_TYPE_I8: *(int8_t *) at = (int8_t) scaled; break;
                case GGML_TYPE_I16: *(int16_t *) (void *) at = (int16_t) scaled; break;
                case GGML_TYPE_I32: *(int32_t *) (void *) at = (int32_t) scaled; break;
                case GGML_TYPE_I64: memcpy(at, &v64, sizeof v64); break;
                case GGML_TYPE_F64: memcpy(at, &v_f64, sizeof v_f64); break;
                default: traits->from_float(&x[i], at, 1);
            }
        }
    }
    free(x);
}

static struct ggml_tensor *filled(struct op_build *b, struct ggml_tensor *t, float lo, float hi) {
    for (int64_t i3 = 0; i3 < t->ne[3]; i3++) {
        for (int64_t i2 = 0; i2 < t->ne[2]; i2++) {
            for (int64_t i1 = 0; i1 < t->ne[1]; i1++) {
                fill_row(
                    b, t, (char *) t->data + (size_t) i1 * t->nb[1] + (size_t) i2 * t->nb[2] + (size_t) i3 * t->nb[3], lo, hi);
            }
        }
    }
    return t;
}

// Counts the next input and returns its layout.
static enum op_layout layout_next(struct op_build *b) {
    const int i = b->n_inputs++;
    return b->which < 0 || b->which == i ? b->layout : OP_AS_BUILT;
}

// Elements of a row are `step` elements apart. After each row there are `more` unused elements. If more > 0, an unused row
// follows each plane.
static struct ggml_tensor *tensor_with_gaps(
    struct op_build *b, enum ggml_type type, const int64_t *ne, int64_t step, int64_t more) {
    const bool planes = more > 0 && ne[2] * ne[3] > 1;
    struct ggml_tensor *whole = ggml_new_tensor(b->ctx, type, 4, NE(step * ne[0] + more, ne[1] + planes, ne[2], ne[3]));
    memset(whole->data, 0, ggml_nbytes(whole));
    struct ggml_tensor *t = ggml_view_tensor(b->ctx, whole);
    memcpy(t->ne, ne, sizeof t->ne);
    t->nb[0] *= (size_t) step;
    return t;
}

static struct ggml_tensor *swapped(struct op_build *b, enum ggml_type type, const int64_t *ne, int i, int j) {
    int64_t in_memory[4] = {ne[0], ne[1], ne[2], ne[3]};
    in_memory[i] = ne[j];
    in_memory[j] = ne[i];
    int axes[4] = {0, 1, 2, 3};
    axes[i] = j;
    axes[j] = i;
    return ggml_permute(b->ctx, ggml_new_tensor(b->ctx, type, 4, in_memory), axes[0], axes[1], axes[2], axes[3]);
}

static struct ggml_tensor *empty(struct op_build *b, enum ggml_type type, const int64_t *ne, int axis) {
    int64_t none[4] = {ne[0], ne[1], ne[2], ne[3]};
    none[axis] = 0;
    return ggml_new_tensor(b->ctx, type, 4, none);
}

// Creates the next input. A row of a quantised type cannot have gaps between elements, so layouts of axis 0 use other axes
// instead.
static struct ggml_tensor *tensor_in_layout(struct op_build *b, enum ggml_type type, const int64_t *ne) {
    const enum op_layout layout = layout_next(b);
    const int64_t blck = ggml_blck_size(type);
    switch (layout) {
        case OP_STRIDED: return blck > 1 ? tensor_with_gaps(b, type, ne, 1, blck) : tensor_with_gaps(b, type, ne, 2, 0);
        case OP_HOLES: return tensor_with_gaps(b, type, ne, 1, 3 * blck);
        case OP_SWAP_01: return blck > 1 ? swapped(b, type, ne, 1, 2) : swapped(b, type, ne, 0, 1);
        case OP_SWAP_02: return blck > 1 ? swapped(b, type, ne, 2, 3) : swapped(b, type, ne, 0, 2);
        case OP_SWAP_03: return blck > 1 ? swapped(b, type, ne, 1, 3) : swapped(b, type, ne, 0, 3);
        case OP_SWAP_12: return swapped(b, type, ne, 1, 2);
        case OP_SWAP_13: return swapped(b, type, ne, 1, 3);
        case OP_SWAP_23: return swapped(b, type, ne, 2, 3);
        case OP_EMPTY_0:
        case OP_EMPTY_1:
        case OP_EMPTY_2:
        case OP_EMPTY_3: return empty(b, type, ne, (int) (layout - OP_EMPTY_0));
        default: return ggml_new_tensor(b->ctx, type, 4, ne);
    }
}

struct ggml_tensor *op_input_range(struct op_build *b, enum ggml_type type, const int64_t *ne, float lo, float hi) {
    return filled(b, tensor_in_layout(b, type, ne), lo, hi);
}

struct ggml_tensor *op_input(struct op_build *b, enum ggml_type type, const int64_t *ne) {
    return op_input_range(b, type, ne, -1.0f, 1.0f);
}

struct ggml_tensor *op_input_holes(struct op_build *b, enum ggml_type type, const int64_t *ne) {
    const int64_t blck = ggml_blck_size(type);
    struct ggml_tensor *whole =
        ggml_new_tensor(b->ctx, type, 4, NE(ne[0] + 2 * blck, ne[1] + (ne[2] * ne[3] > 1), ne[2] + (ne[3] > 1), ne[3]));
    memset(whole->data, 0, ggml_nbytes(whole));
    struct ggml_tensor *t =
        ggml_view_4d(b->ctx, whole, ne[0], ne[1], ne[2], ne[3], whole->nb[1], whole->nb[2], whole->nb[3], whole->nb[0]);
    return filled(b, t, -1.0f, 1.0f);
}

struct ggml_tensor *op_input_swapped(struct op_build *b, enum ggml_type type, const int64_t *ne) {
    struct ggml_tensor *t = ggml_new_tensor(b->ctx, type, 4, NE(ne[1], ne[0], ne[2], ne[3]));
    return ggml_transpose(b->ctx, filled(b, t, -1.0f, 1.0f));
}

void *op_at(struct ggml_tensor *t, int64_t i) {
    if (i >= ggml_nelements(t)) {
        return NULL;
    }
    const int64_t row = i / t->ne[0];
    return (char *) t->data + (size_t) (i % t->ne[0]) * t->nb[0] + (size_t) (row % t->ne[1]) * t->nb[1] +
           (size_t) (row / t->ne[1] % t->ne[2]) * t->nb[2] + (size_t) (row / t->ne[1] / t->ne[2]) * t->nb[3];
}

struct ggml_tensor *op_indices(struct op_build *b, enum ggml_type type, const int64_t *ne, int64_t below, bool distinct) {
    struct ggml_tensor *t = tensor_in_layout(b, type, ne);
    const int64_t n = ggml_nelements(t);
    int64_t first = 0, step = 1;
    for (int64_t i = 0; i < n; i++) {
        if (i % ne[0] == 0) { // with a step that is coprime to `below`, no number repeats in a row
            first = (int64_t) (op_random(b) % (uint64_t) below);
            step = below > 2 ? below - 1 : 1;
        }
        const int64_t v = distinct ? (first + i % ne[0] * step) % below : (int64_t) (op_random(b) % (uint64_t) below);
        void *at = op_at(t, i);
        const int32_t v32 = (int32_t) v;
        memcpy(at, type == GGML_TYPE_I64 ? (const void *) &v : &v32, ggml_type_size(type));
    }
    return t;
}

struct ggml_tensor *op_with_specials(struct ggml_tensor *t) {
    static const float special[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-40f, 3e38f, -3e38f};
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        float *x = op_at(t, (int64_t) (3 * i));
        if (x != NULL) {
            *x = special[i];
        }
    }
    return t;
}
