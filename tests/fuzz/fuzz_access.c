// SPDX-License-Identifier: MIT
// fuzz_access.c: runs a sequence of sets, gets, fills, copies and views on the tensors of one buffer; 6 bytes of the input
// describe each operation. The target does the same in ordinary memory (the shadow). Accesses inside a tensor must succeed and
// give the same bytes as the shadow. Accesses outside must be refused and change nothing.

#include "fuzz/fuzz.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"

#include <string.h>

#define N_TENSORS 4
#define N_BYTES 256 // per tensor

struct fixture {
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *t[N_TENSORS + 1]; // the last one is a view of one of the others; NULL: not created yet
    uint8_t shadow[N_TENSORS][N_BYTES];   // copy of each tensor in plain memory
    int view_of;
    size_t view_at;
};

static void fixture_open(struct fixture *f) {
    f->ctx = ggml_init((struct ggml_init_params){.mem_size = 16 * ggml_tensor_overhead(), .no_alloc = true});
    for (int i = 0; i < N_TENSORS; i++) {
        f->t[i] = ggml_new_tensor_1d(f->ctx, GGML_TYPE_I8, N_BYTES);
    }
    f->buffer = ggml_backend_alloc_ctx_tensors_from_buft(f->ctx, ggml_backend_cpu_buffer_type());
    expect(f->buffer != NULL, "cannot allocate a buffer");
    ggml_backend_buffer_clear(f->buffer, 0);
}

// Returns the bytes of tensor i in plain memory; NULL: there is no view yet.
static uint8_t *shadow_of(struct fixture *f, int i, size_t *size) {
    if (i < N_TENSORS) {
        *size = N_BYTES;
        return f->shadow[i];
    }
    *size = f->t[i] != NULL ? ggml_nbytes(f->t[i]) : 0;
    return f->t[i] != NULL ? f->shadow[f->view_of] + f->view_at : NULL;
}

static void view_make(struct fixture *f, int of, size_t at, size_t size) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 4 * ggml_tensor_overhead(), .no_alloc = true});
    struct ggml_tensor *view = ggml_view_1d(ctx, f->t[of], (int64_t) size, at);
    const bool is_inside = at + size <= N_BYTES;
    if (is_inside && size > 0) {
        expect(ggml_backend_view_init(view) == GGML_STATUS_SUCCESS, "a view inside its tensor is refused");
        if (f->t[N_TENSORS] == NULL) {
            f->t[N_TENSORS] = ggml_view_1d(f->ctx, f->t[of], (int64_t) size, at);
            f->view_of = of, f->view_at = at;
            expect(ggml_backend_view_init(f->t[N_TENSORS]) == GGML_STATUS_SUCCESS, "a view inside its tensor is refused");
        }
    } else {
        uint8_t bytes[2 * N_BYTES] = {1};
        view->nb[1] = view->nb[2] = view->nb[3] = size;
        // If ggml_view_1d has refused the range, view is poison, which has no data.
        if (ggml_backend_view_init(view) == GGML_STATUS_SUCCESS && view->data != NULL) {
            ggml_backend_tensor_get(view, bytes, 0, ggml_nbytes(view) <= sizeof bytes ? ggml_nbytes(view) : sizeof bytes);
        }
    }
    ggml_free(ctx);
}

static void step(struct fixture *f, const uint8_t *d) {
    uint8_t bytes[512], *shadow;
    const int i = d[1] % (N_TENSORS + 1);
    const size_t at = (size_t) d[2] + (d[5] % 8 == 0 ? SIZE_MAX - 128 : 0), size = (size_t) d[3] * (d[5] % 4 == 1 ? 2 : 1);
    size_t whole = 0;
    shadow = shadow_of(f, i, &whole);
    if (shadow == NULL) {
        return;
    }
    const bool is_inside = at <= whole && size <= whole - at;
    memset(bytes, d[4], sizeof bytes);
    switch (d[0] % 5) {
        case 0:
            ggml_backend_tensor_set(f->t[i], bytes, at, size);
            if (is_inside) {
                memset(shadow + at, d[4], size);
            }
            break;
        case 1:
            ggml_backend_tensor_get(f->t[i], bytes, at, size);
            expect(!is_inside || memcmp(bytes, shadow + at, size) == 0, "a get returns other bytes than were set");
            break;
        case 2:
            ggml_backend_tensor_memset(f->t[i], d[4], at, size);
            if (is_inside) {
                memset(shadow + at, d[4], size);
            }
            break;
        case 3: {
            const int j = d[4] % N_TENSORS;
            if (i < N_TENSORS && i != j) {
                ggml_backend_tensor_copy(f->t[i], f->t[j]);
                memcpy(f->shadow[j], f->shadow[i], N_BYTES);
            }
            break;
        }
        case 4: view_make(f, i % N_TENSORS, d[2] + (size_t) d[4] % 2 * 200, d[3]); break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ggml_log_set(quiet, NULL);
    struct fixture f = {0};
    fixture_open(&f);
    for (size_t i = 0; i + 6 <= size && i < 6 * 64; i += 6) {
        step(&f, data + i);
    }
    for (int i = 0; i < N_TENSORS; i++) {
        uint8_t bytes[N_BYTES];
        ggml_backend_tensor_get(f.t[i], bytes, 0, N_BYTES);
        expect(memcmp(bytes, f.shadow[i], N_BYTES) == 0, "a tensor differs from its copy in plain memory");
    }
    ggml_backend_buffer_free(f.buffer);
    ggml_free(f.ctx);
    return 0;
}
