// SPDX-License-Identifier: MIT
// access.c: bytes in and out: whole tensors, and any range of their bytes, are scattered and gathered; of a sum the first device
// gets all, others zeros.

#include "meta/meta.h"

#include "base/min.h"

static const struct ggml_tensor *root_of(const struct ggml_tensor *t) {
    return t->view_src != NULL ? t->view_src : t;
}

enum access_kind { ACCESS_SET, ACCESS_GET, ACCESS_FILL };

struct access {
    enum access_kind kind;
    char *data;          // the caller's, of the range
    size_t offset, size; // the range, in the root
    uint8_t value;       // to fill with
    struct ggml_tensor *parts;
};

// n times size bytes, from part_off on in the part and from whole_off on in the root.
static void piece_access(
    const struct access *a, int j, size_t part_off, size_t whole_off, size_t size, const struct meta_piece *p, size_t n) {
    struct ggml_tensor *part = &a->parts[j];
    char *data = a->data != NULL ? a->data + (whole_off - a->offset) : NULL;
    if (a->kind == ACCESS_SET) {
        ggml_backend_tensor_set_2d(part, data, part_off, size, n, p->part_step, p->whole_step);
    } else if (a->kind == ACCESS_GET) {
        ggml_backend_tensor_get_2d(part, data, part_off, size, n, p->part_step, p->whole_step);
    } else {
        for (size_t i = 0; i < n; i++) {
            ggml_backend_tensor_memset(part, a->value, part_off + i * p->part_step, size);
        }
    }
}

// What of piece i lies in the range.
static void piece_access_clipped(const struct access *a, const struct meta_piece *p, size_t i) {
    const size_t at = p->whole + i * p->whole_step, range_end = a->offset + a->size;
    const size_t from = max_size(at, a->offset), to = min_size(at + p->size, range_end);
    if (from < to) {
        piece_access(a, p->j, p->part + i * p->part_step + (from - at), from, to - from, p, 1);
    }
}

static bool touch_piece(const struct meta_piece *p, void *user) {
    const struct access *a = user;
    const size_t range_end = a->offset + a->size;
    size_t first = a->offset > p->whole ? (a->offset - p->whole + p->whole_step - 1) / p->whole_step : 0, end = p->n_outer;
    if (range_end < p->whole + p->size) {
        end = 0;
    } else if ((range_end - p->whole - p->size) / p->whole_step + 1 < end) {
        end = (range_end - p->whole - p->size) / p->whole_step + 1;
    }
    if (first < end) {
        piece_access(a, p->j, p->part + first * p->part_step, p->whole + first * p->whole_step, p->size, p, end - first);
    }
    if (first > 0 && first <= p->n_outer) {
        piece_access_clipped(a, p, first - 1);
    }
    if (end < p->n_outer && end >= first) {
        piece_access_clipped(a, p, end);
    }
    return true;
}

// Adds up the parts of a sum, which are of f32.
static void get_sum(const struct access *a, const struct ggml_tensor *root, int n) {
    float sum[1024], one[1024]; // a piece at a time: reading takes no memory
    if (a->offset % sizeof(float) != 0 || a->size % sizeof(float) != 0) {
        berth_backend_fail(NULL, "bytes %zu to %zu of %s, a sum over devices, cannot be read: they are no whole numbers of it",
            a->offset, a->offset + a->size, berth_name_of(root));
        return;
    }
    for (size_t at = 0; at < a->size; at += sizeof sum) {
        const size_t size = min_size(a->size - at, sizeof sum);
        for (int j = 0; j < n; j++) {
            ggml_backend_tensor_get(&a->parts[j], j == 0 ? sum : one, a->offset + at, size);
            for (size_t i = 0; i < size / sizeof(float) && j > 0; i++) {
                sum[i] += one[i];
            }
        }
        memcpy(a->data + at, sum, size);
    }
}

static void access_whole(const struct access *a, int j) {
    if (a->kind == ACCESS_SET) {
        ggml_backend_tensor_set(&a->parts[j], a->data, a->offset, a->size);
    } else if (a->kind == ACCESS_GET) {
        ggml_backend_tensor_get(&a->parts[j], a->data, a->offset, a->size);
    } else {
        ggml_backend_tensor_memset(&a->parts[j], a->value, a->offset, a->size);
    }
}

static void access_run(const struct ggml_tensor *tensor, struct access a) {
    const struct ggml_tensor *root = root_of(tensor);
    const meta_state *state = meta_root_state(root);
    const struct meta_buffer *mb = meta_buffer_of(root->buffer);
    struct ggml_tensor parts[META_MAX];
    a.offset += (size_t) ((uintptr_t) tensor->data - (uintptr_t) root->data);
    a.parts = parts;
    for (int j = 0; mb != NULL && j < mb->device->n; j++) {
        if (!meta_root_fits(root, state, j) || !meta_root_part(root, state, j, &parts[j])) {
            mb = NULL;
        }
    }
    if (mb == NULL) {
        char text[192];
        const char *fault = meta_root_fault(root, text, sizeof text);
        berth_backend_fail(
            NULL, "tensor %s %s", berth_name_of(tensor), fault != NULL ? fault : "is not where its buffer has memory");
    } else if (meta_is_split(state)) {
        meta_pieces(root, state, mb->device->n, -1, touch_piece, &a);
    } else if (a.kind == ACCESS_GET && meta_is_partial(state)) {
        get_sum(&a, root, mb->device->n);
    } else {
        access_whole(&a, 0);
        for (int j = 1; j < mb->device->n && a.kind != ACCESS_GET; j++) {
            if (meta_is_partial(state)) {
                a.kind = ACCESS_FILL;
                a.value = 0;
            }
            access_whole(&a, j);
        }
    }
}

void meta_buffer_set(ggml_backend_buffer_t buffer, struct ggml_tensor *t, const void *data, size_t offset, size_t size) {
    (void) buffer;
    access_run(t, (struct access){.kind = ACCESS_SET, .data = (char *) (uintptr_t) data, .offset = offset, .size = size});
}

void meta_buffer_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *t, void *data, size_t offset, size_t size) {
    (void) buffer;
    access_run(t, (struct access){.kind = ACCESS_GET, .data = data, .offset = offset, .size = size});
}

void meta_buffer_fill(ggml_backend_buffer_t buffer, struct ggml_tensor *t, uint8_t value, size_t offset, size_t size) {
    (void) buffer;
    access_run(t, (struct access){.kind = ACCESS_FILL, .value = value, .offset = offset, .size = size});
}
