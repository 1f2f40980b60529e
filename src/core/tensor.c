// SPDX-License-Identifier: MIT
// tensor.c: functions that create tensors and query their shape and layout. Queries accept NULL and return 0 or false for it.

#include "core/graph.h"
#include "core/op.h"
#include "core/span.h"
#include "core/type.h"

#include <stdio.h>

// ---- creating tensors ----

struct layout {
    int64_t ne[GGML_MAX_DIMS];
    size_t nb[GGML_MAX_DIMS];
    size_t size; // total bytes
};

// Returns true if the product of all extents that are not 0 exceeds 63 bits. Extents of 0 are left out, because the number of
// rows must fit 63 bits even if the rows are empty.
static bool has_too_many(const int64_t ne[GGML_MAX_DIMS]) {
    int64_t n = 1;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (ne[i] != 0 && !berth_mul_i64_ok(n, ne[i], &n)) {
            return true;
        }
    }
    return false;
}

// Returns false if the bytes or the elements exceed 63 bits.
static bool layout_contiguous(struct layout *l, const struct berth_type_row *row, int n_dims, const int64_t *ne) {
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        l->ne[i] = i < n_dims ? ne[i] : 1;
    }
    const int64_t blck_size = row->traits.blck_size;
    const int64_t n_blocks = BERTH_LIKELY(blck_size == 1) ? l->ne[0] : l->ne[0] / blck_size; // avoids a slow division
    size_t step = row->traits.type_size;
    l->nb[0] = step;
    if (__builtin_mul_overflow(step, (size_t) n_blocks, &step)) {
        return false;
    }
    size_t size = step;
    // The rows of a view may end within a block. The size then includes the bytes of the partial block, rounded down.
    if (BERTH_UNLIKELY(n_blocks * blck_size != l->ne[0])) {
        if (__builtin_mul_overflow(row->traits.type_size, (size_t) l->ne[0], &size)) {
            return false;
        }
        size /= (size_t) blck_size;
    }
    for (int i = 1; i < GGML_MAX_DIMS; i++) {
        l->nb[i] = step;
        if (__builtin_mul_overflow(step, (size_t) l->ne[i], &step) || __builtin_mul_overflow(size, (size_t) l->ne[i], &size)) {
            return false;
        }
    }
    l->size = size;
    // No type stores 128 or more elements per byte, so fewer than 2^56 bytes are fewer than 2^63 elements.
    const bool is_small = size >> 56 == 0 && size != 0;
    return size <= (size_t) INT64_MAX && (BERTH_LIKELY(is_small) || !has_too_many(l->ne));
}

// Clears the struct in two pieces of less than 256 bytes. For a larger piece, glibc's memset uses an instruction that clears
// whole cache lines, and the next read of the struct stalls. The stall would take a third of a constructor's time
// (bench/graph.c). The barrier keeps the compiler from joining the pieces.
static void tensor_clear(struct ggml_tensor *t) {
    const size_t half = sizeof *t / 2;
    memset(t, 0, half);
    __asm__ volatile("" ::: "memory");
    memset((char *) t + half, 0, sizeof *t - half);
}

static struct ggml_tensor *shape_refuse(
    struct ggml_context *ctx, const char *func, enum ggml_type type, int n_dims, const int64_t *ne) {
    const struct berth_type_row *row = berth_type_row(type);
    if (row == NULL) {
        return berth_poison(ctx, func, "%d is not a tensor type", (int) type);
    }
    if (n_dims < 1 || n_dims > GGML_MAX_DIMS || ne == NULL) {
        return berth_poison(ctx, func, "%d dimensions, must be 1 to %d", n_dims, GGML_MAX_DIMS);
    }
    for (int i = 0; i < n_dims; i++) {
        if (ne[i] < 0) {
            return berth_poison(ctx, func, "ne[%d] is %" PRId64 ", must not be negative", i, ne[i]);
        }
    }
    return berth_poison(ctx, func, "rows have %" PRId64 " elements, but %s requires a multiple of %" PRId64, ne[0],
        row->traits.type_name, row->traits.blck_size);
}

// Rows of a view may end within a block. Rows of a tensor with its own memory consist of complete blocks.
static bool shape_is_sound(const struct berth_type_row *row, int n_dims, const int64_t *ne, bool is_view) {
    if (row == NULL || n_dims < 1 || n_dims > GGML_MAX_DIMS || ne == NULL || ne[0] < 0 ||
        (row->traits.blck_size != 1 && !is_view && ne[0] % row->traits.blck_size != 0)) {
        return false;
    }
    for (int i = 1; i < n_dims; i++) {
        if (ne[i] < 0) {
            return false;
        }
    }
    return true;
}

// Where the data of a new tensor is.
struct view_target {
    struct ggml_tensor *src; // the tensor to view; NULL: the new tensor gets its own memory
    size_t offs;             // bytes from the start of src
};

// Inlined, because an additional call costs 2% of the time to build a graph.
__attribute__((always_inline)) static inline struct ggml_tensor *tensor_make(struct ggml_context *ctx, const char *func,
    enum ggml_type type, int n_dims, const int64_t *ne, struct view_target view_target) {
    struct ggml_tensor *view_src = view_target.src;
    size_t view_offs = view_target.offs;
    if (BERTH_UNLIKELY(ctx == NULL)) {
        return berth_poison(ctx, func, "the context is NULL");
    }
    const struct berth_type_row *row = berth_type_row(type);
    if (BERTH_UNLIKELY(!shape_is_sound(row, n_dims, ne, view_src != NULL))) {
        return shape_refuse(ctx, func, type, n_dims, ne);
    }
    struct layout l;
    if (BERTH_UNLIKELY(!layout_contiguous(&l, row, n_dims, ne))) {
        return berth_poison(ctx, func, BERTH_SHAPE " of %s has more elements or bytes than 63 bits can count", BERTH_NE(&l),
            row->traits.type_name);
    }
    if (view_src != NULL) {
        // A view of a view refers to the tensor that owns the data.
        if (view_src->view_src != NULL) {
            if (BERTH_UNLIKELY(!berth_add_ok(view_offs, view_src->view_offs, &view_offs))) {
                return berth_poison(ctx, func, "the offset %zu of a view plus the offset %zu of its source overflows", view_offs,
                    view_src->view_offs);
            }
            view_src = view_src->view_src;
        }
        const size_t have = ggml_nbytes(view_src);
        if (BERTH_UNLIKELY(l.size > 0 && (view_offs > have || l.size > have - view_offs))) {
            return berth_poison(ctx, func, "a view of %zu bytes at %zu does not fit into %zu bytes", l.size, view_offs, have);
        }
    }
    const size_t own_size = view_src == NULL && !ctx->no_alloc ? l.size : 0;
    struct ggml_object *obj = berth_object_new(ctx, GGML_OBJECT_TYPE_TENSOR, sizeof(struct ggml_tensor) + own_size);
    if (BERTH_UNLIKELY(obj == NULL)) {
        return &ctx->poison;
    }
    struct ggml_tensor *t = berth_object_data(ctx, obj);
    tensor_clear(t);
    t->type = type;
    memcpy(t->ne, l.ne, sizeof t->ne);
    memcpy(t->nb, l.nb, sizeof t->nb);
    if (view_src != NULL) {
        t->view_src = view_src;
        t->view_offs = view_offs;
        t->data = view_src->data != NULL ? (void *) ((uintptr_t) view_src->data + view_offs) : NULL; // the sum may wrap
    } else if (own_size > 0) {
        t->data = t + 1;
#if BERTH_DEBUG >= 3
        memset(t->data, 0xFF, own_size); // NaN makes reads of uninitialised elements visible
#endif
    }
    return t;
}

struct ggml_tensor *berth_tensor_new(
    struct ggml_context *ctx, const char *func, enum ggml_type type, int n_dims, const int64_t *ne) {
    return tensor_make(ctx, func, type, n_dims, ne, (struct view_target){0});
}

struct ggml_tensor *berth_view_new(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, int n_dims, const int64_t *ne, size_t offset) {
    return tensor_make(ctx, func, a->type, n_dims, ne, (struct view_target){a, offset});
}

struct ggml_tensor *ggml_new_tensor(struct ggml_context *ctx, enum ggml_type type, int n_dims, const int64_t *ne) {
    return berth_tensor_new(ctx, __func__, type, n_dims, ne);
}

struct ggml_tensor *ggml_new_tensor_1d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0) {
    return berth_tensor_new(ctx, __func__, type, 1, &ne0);
}

struct ggml_tensor *ggml_new_tensor_2d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1) {
    return berth_tensor_new(ctx, __func__, type, 2, (int64_t[]){ne0, ne1});
}

struct ggml_tensor *ggml_new_tensor_3d(struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2) {
    return berth_tensor_new(ctx, __func__, type, 3, (int64_t[]){ne0, ne1, ne2});
}

struct ggml_tensor *ggml_new_tensor_4d(
    struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    return berth_tensor_new(ctx, __func__, type, 4, (int64_t[]){ne0, ne1, ne2, ne3});
}

struct ggml_tensor *ggml_dup_tensor(struct ggml_context *ctx, const struct ggml_tensor *src) {
    BERTH_SOURCES(ctx, src);
    return berth_tensor_new(ctx, __func__, src->type, GGML_MAX_DIMS, src->ne);
}

struct ggml_tensor *ggml_view_tensor(struct ggml_context *ctx, struct ggml_tensor *src) {
    BERTH_SOURCES(ctx, src);
    struct ggml_tensor *t = berth_view_new(ctx, __func__, src, GGML_MAX_DIMS, src->ne, 0);
    if (!berth_poisoned(t)) {
        memcpy(t->nb, src->nb, sizeof t->nb);
        berth_name_suffix(t, src, " (view)");
    }
    return t;
}

// ---- names and flags ----

static void name_append(struct ggml_tensor *t, size_t at, const char *text) {
    size_t i = at;
    while (i + 1 < sizeof t->name && *text != '\0') {
        t->name[i++] = *text++;
    }
    t->name[i] = '\0';
}

const char *ggml_get_name(const struct ggml_tensor *tensor) {
    return tensor != NULL ? tensor->name : "";
}

struct ggml_tensor *ggml_set_name(struct ggml_tensor *tensor, const char *name) {
    if (tensor != NULL && name != NULL && !berth_poisoned(tensor)) {
        name_append(tensor, 0, name);
    }
    return tensor;
}

void berth_name_suffix(struct ggml_tensor *t, const struct ggml_tensor *src, const char *suffix) {
    if (t == NULL || berth_poisoned(t)) {
        return;
    }
    // Another thread may be naming src. That thread writes the first byte of the name last (expand.c).
    const bool has_name = __atomic_load_n(&src->name[0], __ATOMIC_ACQUIRE) != '\0';
    const size_t n = has_name ? strnlen(src->name, sizeof src->name - 1) : 0;
    memmove(t->name, src->name, n);
    name_append(t, n, suffix);
}

struct ggml_tensor *ggml_format_name(struct ggml_tensor *tensor, const char *fmt, ...) {
    if (tensor == NULL || fmt == NULL || berth_poisoned(tensor)) {
        return tensor;
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(tensor->name, sizeof tensor->name, fmt, args);
    va_end(args);
    return tensor;
}

static void flag_set(struct ggml_tensor *tensor, int32_t flag) {
    if (tensor != NULL && !berth_poisoned(tensor)) {
        tensor->flags |= flag;
    }
}

void ggml_set_input(struct ggml_tensor *tensor) {
    flag_set(tensor, GGML_TENSOR_FLAG_INPUT);
}

// An output view keeps the memory of its source, so the source becomes an output, too.
void ggml_set_output(struct ggml_tensor *tensor) {
    flag_set(tensor, GGML_TENSOR_FLAG_OUTPUT);
    if (tensor != NULL && tensor->view_src != NULL) {
        flag_set(tensor->view_src, GGML_TENSOR_FLAG_OUTPUT);
    }
}

void ggml_set_param(struct ggml_tensor *tensor) {
    if (tensor != NULL && tensor->op != GGML_OP_NONE) {
        berth_fail(GGML_STATUS_FAILED, "ggml_set_param: %s is the result of %s, only leaves can be parameters", tensor->name,
            ggml_op_name(tensor->op));
        return;
    }
    flag_set(tensor, GGML_TENSOR_FLAG_PARAM);
}

void ggml_set_loss(struct ggml_tensor *tensor) {
    if (tensor != NULL && (tensor->type != GGML_TYPE_F32 || !ggml_is_scalar(tensor))) {
        berth_fail(GGML_STATUS_FAILED, "ggml_set_loss: %s is %s " BERTH_SHAPE ", a loss must be one f32", tensor->name,
            ggml_type_name(tensor->type), BERTH_NE(tensor));
        return;
    }
    flag_set(tensor, GGML_TENSOR_FLAG_LOSS);
}

// ---- data ----

void *ggml_get_data(const struct ggml_tensor *tensor) {
    return tensor != NULL ? tensor->data : NULL;
}

float *ggml_get_data_f32(const struct ggml_tensor *tensor) {
    if (tensor == NULL) {
        return NULL;
    }
    if (tensor->type != GGML_TYPE_F32) {
        return BERTH_FAIL_NULL(
            GGML_STATUS_FAILED, "ggml_get_data_f32: %s is %s, must be f32", tensor->name, ggml_type_name(tensor->type));
    }
    return tensor->data;
}

struct ggml_tensor *ggml_set_zero(struct ggml_tensor *tensor) {
    if (tensor == NULL || ggml_is_empty(tensor) || berth_poisoned(tensor)) {
        return tensor;
    }
    const size_t size = ggml_nbytes(tensor);
    const enum berth_span_fault fault = berth_span_check(&(struct berth_span_base){0}, tensor);
    if (fault > BERTH_SPAN_EMPTY) {
        char text[256];
        berth_span_report(fault, tensor, text, sizeof text);
        berth_fail(GGML_STATUS_FAILED, "ggml_set_zero: %s", text);
        return tensor;
    }
    // A view's memory may be in a device buffer even if the view names no buffer.
    struct ggml_backend_buffer *buffer = berth_span_buffer(tensor);
    if (buffer == NULL) {
        memset(tensor->data, 0, size);
    } else if (buffer->iface.memset_tensor != NULL) {
        buffer->iface.memset_tensor(buffer, tensor, 0, 0, size);
    } else {
        berth_fail(GGML_STATUS_FAILED, "ggml_set_zero: the buffer of %s does not support memset", tensor->name);
    }
    return tensor;
}

void ggml_unravel_index(const struct ggml_tensor *tensor, int64_t i, int64_t *i0, int64_t *i1, int64_t *i2, int64_t *i3) {
    int64_t *const out[GGML_MAX_DIMS] = {i0, i1, i2, i3};
    for (int d = 0; d < GGML_MAX_DIMS; d++) {
        const int64_t n = tensor != NULL && tensor->ne[d] > 0 ? tensor->ne[d] : 1;
        if (out[d] != NULL) {
            *out[d] = d == GGML_MAX_DIMS - 1 ? i : i % n;
        }
        i /= n;
    }
}

enum ggml_unary_op ggml_get_unary_op(const struct ggml_tensor *tensor) {
    if (tensor == NULL || tensor->op != GGML_OP_UNARY) {
        berth_set_error("ggml_get_unary_op: the tensor is not a UNARY op");
        return GGML_UNARY_OP_COUNT;
    }
    return (enum ggml_unary_op) tensor->op_params[0];
}

enum ggml_glu_op ggml_get_glu_op(const struct ggml_tensor *tensor) {
    if (tensor == NULL || tensor->op != GGML_OP_GLU) {
        berth_set_error("ggml_get_glu_op: the tensor is not a GLU op");
        return GGML_GLU_OP_COUNT;
    }
    return (enum ggml_glu_op) tensor->op_params[0];
}

void berth_set_one(struct ggml_tensor *t) {
    const float one = 1.0f;
    struct ggml_backend_buffer *buffer = berth_span_buffer(t);
    if (t->type != GGML_TYPE_F32 || !ggml_is_scalar(t) || t->data == NULL) {
        berth_fail(GGML_STATUS_FAILED, "the gradient of a loss must be one f32 with data, but %s is %s " BERTH_SHAPE, t->name,
            ggml_type_name(t->type), BERTH_NE(t));
    } else if (buffer == NULL) {
        memcpy(t->data, &one, sizeof one);
    } else if (buffer->iface.set_tensor != NULL) {
        buffer->iface.set_tensor(buffer, t, &one, 0, sizeof one);
    } else {
        berth_fail(GGML_STATUS_FAILED, "the gradient %s of a loss is in a buffer that cannot be written", t->name);
    }
}
