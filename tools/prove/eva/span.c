// SPDX-License-Identifier: MIT
// span.c: src/core/span.h with any tensor: any extents, strides, type, view and buffer.

#include "tools/prove/eva/eva.h"

#include "src/core/span.h"

size_t ggml_type_size(enum ggml_type type) {
    return Frama_C_unsigned_long_interval(0, 1024);
}

int64_t ggml_blck_size(enum ggml_type type) {
    return Frama_C_long_interval(0, 1024);
}

// The functions compute with addresses, so tensors and buffers have fixed addresses here (-absolute-valid-range in parts.txt).
#define EVA_TENSOR(i) ((struct ggml_tensor *) (0x10000 + (i) *0x1040))
#define EVA_BUFFER(i) ((struct ggml_backend_buffer *) (0x18000 + (i) *0x1040))

static void *eva_base(ggml_backend_buffer_t buffer) {
    return (void *) EVA_ANY_U64();
}

static void eva_tensor(struct ggml_tensor *t, struct ggml_tensor *view_src) {
    t->type = (enum ggml_type) EVA_ANY_I32();
    //@ loop unroll 4;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        t->ne[i] = EVA_ANY_I64();
        t->nb[i] = EVA_ANY_U64();
    }
    t->view_src = view_src;
    t->view_offs = EVA_ANY_U64();
    t->data = (void *) EVA_ANY_U64();
    t->buffer = EVA_ANY_BOOL() ? NULL : EVA_BUFFER(Frama_C_interval(0, 1));
}

int main(void) {
    struct berth_span_walk walk = {0};
    struct berth_span_base base = {0};
    //@ loop unroll 2;
    for (int i = 0; i < 2; i++) {
        EVA_BUFFER(i)->size = EVA_ANY_U64();
        EVA_BUFFER(i)->iface.get_base = EVA_ANY_BOOL() ? eva_base : NULL;
        eva_tensor(EVA_TENSOR(i), i == 0 || EVA_ANY_BOOL() ? NULL : EVA_TENSOR(0));
    }
    while (EVA_ANY_BOOL()) {
        const struct ggml_tensor *t = EVA_TENSOR(Frama_C_interval(0, 1));
        (void) berth_span(t);
        (void) berth_span_check(&base, t);
        (void) berth_span_walk(&walk, t);
        (void) berth_span_walk_node(&walk, t);
        (void) berth_span_n_src(t);
    }
    // The tables have an entry for any address.
    EVA_TENSOR(0)->buffer = (struct ggml_backend_buffer *) EVA_ANY_U64();
    base.base = berth_span_base_for(&walk, EVA_TENSOR(0))->base;
    return *berth_span_slot(&walk, (const struct ggml_tensor *) EVA_ANY_U64()) == NULL;
}
