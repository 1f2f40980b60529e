// SPDX-License-Identifier: MIT
// shape.c: queries about a tensor's extents and strides. For NULL they return 0 or false.

#include "base/min.h"
#include "core/optable.h"
#include "core/span.h"
#include "core/type.h"

// If a program has edited the extents, the product may overflow and wraps, as in ggml.
int64_t ggml_nrows(const struct ggml_tensor *tensor) {
    return tensor == NULL ? 0 : (int64_t) ((uint64_t) tensor->ne[1] * (uint64_t) tensor->ne[2] * (uint64_t) tensor->ne[3]);
}

int64_t ggml_nelements(const struct ggml_tensor *tensor) {
    return tensor == NULL ? 0 : (int64_t) ((uint64_t) tensor->ne[0] * (uint64_t) ggml_nrows(tensor));
}

// If the offset of the last byte does not fit 63 bits, returns 2^63, which exceeds any memory.
size_t ggml_nbytes(const struct ggml_tensor *tensor) {
    const struct berth_type_row *row = tensor != NULL ? berth_type_row(tensor->type) : NULL;
    return row != NULL ? berth_span_of(tensor, row->traits.type_size, row->traits.blck_size) : 0;
}

size_t ggml_nbytes_pad(const struct ggml_tensor *tensor) {
    return GGML_PAD(ggml_nbytes(tensor), (size_t) GGML_MEM_ALIGN);
}

size_t ggml_element_size(const struct ggml_tensor *tensor) {
    return tensor == NULL ? 0 : ggml_type_size(tensor->type);
}

size_t ggml_tensor_overhead(void) {
    return 32 + sizeof(struct ggml_tensor);
}

bool ggml_is_empty(const struct ggml_tensor *tensor) {
    if (tensor == NULL) {
        return false;
    }
    return tensor->ne[0] == 0 || tensor->ne[1] == 0 || tensor->ne[2] == 0 || tensor->ne[3] == 0;
}

bool ggml_is_view(const struct ggml_tensor *tensor) {
    return tensor != NULL && tensor->view_src != NULL;
}

bool ggml_is_scalar(const struct ggml_tensor *tensor) {
    return ggml_is_vector(tensor) && tensor->ne[0] == 1;
}

bool ggml_is_vector(const struct ggml_tensor *tensor) {
    return ggml_is_matrix(tensor) && tensor->ne[1] == 1;
}

bool ggml_is_matrix(const struct ggml_tensor *tensor) {
    return ggml_is_3d(tensor) && tensor->ne[2] == 1;
}

bool ggml_is_3d(const struct ggml_tensor *tensor) {
    return tensor != NULL && tensor->ne[3] == 1;
}

int ggml_n_dims(const struct ggml_tensor *tensor) {
    if (tensor == NULL) {
        return 0;
    }
    int n = GGML_MAX_DIMS;
    while (n > 1 && tensor->ne[n - 1] <= 1) {
        n--;
    }
    return n;
}

bool ggml_is_transposed(const struct ggml_tensor *tensor) {
    return tensor != NULL && tensor->nb[0] > tensor->nb[1];
}

bool ggml_is_permuted(const struct ggml_tensor *tensor) {
    return tensor != NULL && (tensor->nb[0] > tensor->nb[1] || tensor->nb[1] > tensor->nb[2] || tensor->nb[2] > tensor->nb[3]);
}

// Returns true if the elements of a row are adjacent, and dimensions n_free + 1 to n_last have no holes between them.
// The strides of dimensions 1 to n_free and of dimensions after n_last may have any value.
// Inlined for speed: constructors call the functions below for each source.
static inline __attribute__((always_inline)) bool is_contiguous_between(const struct ggml_tensor *t, int n_free, int n_last) {
    const struct berth_type_row *row = t != NULL ? berth_type_row(t->type) : NULL;
    if (row == NULL) {
        return false;
    }
    const int64_t blck_size = row->traits.blck_size;
    size_t next = row->traits.type_size;
    if (t->ne[0] != blck_size && t->nb[0] != next) {
        return false;
    }
    next *= (size_t) (blck_size == 1 ? t->ne[0] : t->ne[0] / blck_size);
    for (int i = 1; i <= n_last; i++) {
        if (i <= n_free) {
            next = (size_t) t->ne[i] * t->nb[i];
        } else {
            if (t->ne[i] != 1 && t->nb[i] != next) {
                return false;
            }
            next *= (size_t) t->ne[i];
        }
    }
    return true;
}

#define CONTIGUOUS(name, n_free, n_last) \
    bool name(const struct ggml_tensor *tensor) { \
        return is_contiguous_between(tensor, n_free, n_last); \
    }

CONTIGUOUS(ggml_is_contiguous, 0, 3)
CONTIGUOUS(ggml_is_contiguous_0, 0, 3)
CONTIGUOUS(ggml_is_contiguous_1, 1, 3)
CONTIGUOUS(ggml_is_contiguous_2, 2, 3)
CONTIGUOUS(ggml_is_contiguous_to_1, 0, 0)
CONTIGUOUS(ggml_is_contiguous_to_2, 0, 1)
CONTIGUOUS(ggml_is_contiguous_to_3, 0, 2)

// Returns true if the elements fill a range without holes, in any order of dimensions.
bool ggml_is_contiguously_allocated(const struct ggml_tensor *tensor) {
    if (tensor == NULL || ggml_blck_size(tensor->type) == 0) {
        return false;
    }
    const size_t blck_size = (size_t) ggml_blck_size(tensor->type);
    return ggml_nbytes(tensor) == (size_t) ggml_nelements(tensor) * ggml_type_size(tensor->type) / blck_size;
}

// Returns true if the channels of a pixel are contiguous (channels-last layout).
bool ggml_is_contiguous_channels(const struct ggml_tensor *tensor) {
    return tensor != NULL && tensor->nb[0] > tensor->nb[2] && tensor->nb[1] > tensor->nb[0] &&
           tensor->nb[2] == ggml_type_size(tensor->type);
}

bool ggml_is_contiguous_rows(const struct ggml_tensor *tensor) {
    return tensor != NULL && (tensor->ne[0] == ggml_blck_size(tensor->type) || tensor->nb[0] == ggml_type_size(tensor->type));
}

bool ggml_are_same_shape(const struct ggml_tensor *t0, const struct ggml_tensor *t1) {
    return t0 != NULL && t1 != NULL && t0->ne[0] == t1->ne[0] && t0->ne[1] == t1->ne[1] && t0->ne[2] == t1->ne[2] &&
           t0->ne[3] == t1->ne[3];
}

bool ggml_are_same_stride(const struct ggml_tensor *t0, const struct ggml_tensor *t1) {
    return t0 != NULL && t1 != NULL && t0->nb[0] == t1->nb[0] && t0->nb[1] == t1->nb[1] && t0->nb[2] == t1->nb[2] &&
           t0->nb[3] == t1->nb[3];
}

bool ggml_can_repeat(const struct ggml_tensor *t0, const struct ggml_tensor *t1) {
    if (t0 == NULL || t1 == NULL) {
        return false;
    }
    if (ggml_is_empty(t0)) {
        return ggml_is_empty(t1);
    }
    return t1->ne[0] % t0->ne[0] == 0 && t1->ne[1] % t0->ne[1] == 0 && t1->ne[2] % t0->ne[2] == 0 && t1->ne[3] % t0->ne[3] == 0;
}

// ---- helpers for the rows of the op table (optable.h) ----

double berth_elements_size(const struct ggml_tensor *t) {
    return min_f64((double) ggml_nbytes(t), (double) ggml_row_size(t->type, t->ne[0]) * (double) ggml_nrows(t));
}

bool berth_shape_as_source(const struct ggml_tensor *r) {
    return ggml_are_same_shape(r, r->src[0]);
}

// Returns the number of elements, or -1 if it exceeds 63 bits.
static int64_t elements_count(const struct ggml_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (__builtin_mul_overflow(n, t->ne[i], &n)) {
            return -1;
        }
    }
    return n;
}

bool berth_shape_as_many(const struct ggml_tensor *r) {
    const struct ggml_tensor *a = r->src[0], *b = r->src[1];
    const int64_t n = elements_count(r);
    return n >= 0 && n == elements_count(a) && (b == NULL || n == elements_count(b));
}
