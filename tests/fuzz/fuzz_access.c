// SPDX-License-Identifier: MIT
// fuzz_access.c: a sequence of sets, gets, fills, copies and views on tensors of one buffer; each takes 6 bytes of the input.
// Accesses inside a tensor succeed and give the same bytes as a copy of the buffer in plain memory. Accesses outside are refused
// and change nothing.

#include "fuzz/fuzz.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"

#include <string.h>

#define N_TENSORS 4
#define N_BYTES 256 // per tensor

struct fixture {
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *t[N_TENSORS + 1]; // the last one is a view of another
    uint8_t shadow[N_TENSORS][N_BYTES];   // copy of each tensor in plain memory
    int view_of;
    size_t view_at;
};

static void fixture_open(struct fixture *y) {
    y->ctx = ggml_init((struct ggml_init_params){.mem_size = 16 * ggml_tensor_overhead(), .no_alloc = true});
    for (int i = 0; i < N_TENSORS; i++) {
        y->t[i] = ggml_new_tensor_1d(y->ctx, GGML_TYPE_I8, N_BYTES);
    }
    y->buffer = ggml_backend_alloc_ctx_tensors_from_buft(y->ctx, ggml_backend_cpu_buffer_type());
    expect(y->buffer != NULL, "cannot allocate a buffer");
    ggml_backend_buffer_clear(y->buffer, 0);
}

// Returns the bytes of tensor i in plain memory; NULL: there is no view yet.
static uint8_t *shadow_of(struct fixture *y, int i, size_t *size) {
    if (i < N_TENSORS) {
        *size = N_BYTES;
        return y->shadow[i];
    }
    *size = y->t[i] != NULL ? ggml_nbytes(y->t[i]) : 0;
    return y->t[i] != NULL ? y->shadow[y->view_of] + y->view_at : NULL;
}

static void view_make(struct fixture *y, int of, size_t at, size_t size) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 4 * ggml_tensor_overhead(), .no_alloc = true});
    struct ggml_tensor *view = ggml_view_1d(ctx, y->t[of], (int64_t) size, at);
    const bool is_inside = at + size <= N_BYTES;
    if (is_inside && size > 0) {
        expect(ggml_backend_view_init(view) == GGML_STATUS_SUCCESS, "a view inside its tensor is refused");
        if (y->t[N_TENSORS] == NULL) {
            y->t[N_TENSORS] = ggml_view_1d(y->ctx, y->t[of], (int64_t) size, at);
            y->view_of = of, y->view_at = at;
            expect(ggml_backend_view_init(y->t[N_TENSORS]) == GGML_STATUS_SUCCESS, "a view inside its tensor is refused");
        }
    } else {
        uint8_t bytes[2 * N_BYTES] = {1};
        view->nb[1] = view->nb[2] = view->nb[3] = size; // view may be poison, which has no data
        if (ggml_backend_view_init(view) == GGML_STATUS_SUCCESS && view->data != NULL) {
            ggml_backend_tensor_get(view, bytes, 0, ggml_nbytes(view) <= sizeof bytes ? ggml_nbytes(view) : sizeof bytes);
        }
    }
    ggml_free(ctx);
}

static void step(struct fixture *y, const uint8_t *d) {
    uint8_t bytes[512], *shadow;
    const int i = d[1] % (N_TENSORS + 1);
    const size_t at = (size_t) d[2] + (d[5] % 8 == 0 ? SIZE_MAX - 128 : 0), size = (size_t) d[3] * (d[5] % 4 == 1 ? 2 : 1);
    size_t whole = 0;
    shadow = shadow_of(y, i, &whole);
    if (shadow == NULL) {
        return;
    }
    const bool is_inside = at <= whole && size <= whole - at;
    memset(bytes, d[4], sizeof bytes);
    switch (d[0] % 5) {
        case 0:
            ggml_backend_tensor_set(y->t[i], bytes, at, size);
            if (is_inside) {
                memset(shadow + at, d[4], size);
            }
            break;
        case 1:
            ggml_backend_tensor_get(y->t[i], bytes, at, size);
            expect(!is_inside || memcmp(bytes, shadow + at, size) == 0, "a get returns other bytes than were set");
            break;
        case 2:
            ggml_backend_tensor_memset(y->t[i], d[4], at, size);
            if (is_inside) {
                memset(shadow + at, d[4], size);
            }
            break;
        case 3: {
            const int j = d[4] % N_TENSORS;
            if (i < N_TENSORS && i != j) {
                ggml_backend_tensor_copy(y->t[i], y->t[j]);
                memcpy(y->shadow[j], y->shadow[i], N_BYTES);
            }
            break;
        }
        case 4: view_make(y, i % N_TENSORS, d[2] + (size_t) d[4] % 2 * 200, d[3]); break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ggml_log_set(quiet, NULL);
    struct fixture y = {0};
    fixture_open(&y);
    for (size_t i = 0; i + 6 <= size && i < 6 * 64; i += 6) {
        step(&y, data + i);
    }
    for (int i = 0; i < N_TENSORS; i++) {
        uint8_t bytes[N_BYTES];
        ggml_backend_tensor_get(y.t[i], bytes, 0, N_BYTES);
        expect(memcmp(bytes, y.shadow[i], N_BYTES) == 0, "a tensor differs from its copy in plain memory");
    }
    ggml_backend_buffer_free(y.buffer);
    ggml_free(y.ctx);
    return 0;
}
