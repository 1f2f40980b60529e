// SPDX-License-Identifier: MIT
// guest.h: the guest, a backend as a program of 2023 defines it. Its plans store a copy of struct ggml_cgraph. Outside its own
// calls its memory is inaccessible, so a program that forgets a copy crashes. For C and C++.
#pragma once

#include "check.h"

#include "ggml-backend-impl.h"

#include <sys/mman.h>

enum { GUEST_BUFFERS = 32 };

struct guest_pages {
    char *base;
    size_t size;
};

// There is one guest per process at a time.
struct guest {
    struct ggml_backend backend;
    struct guest_pages *buffers[GUEST_BUFFERS];
    int n_buffers, n_computed, n_plans, n_set, n_get, n_copied, n_tensors;
    size_t pad, max_size;
    bool is_full; // allocation fails
};

static struct guest guest;

struct guest_plan {
    struct ggml_cplan cplan;
    struct ggml_cgraph cgraph;
};

// ---- memory ----

static void guest_set_access(bool is_accessible) {
    for (int i = 0; i < guest.n_buffers; i++) {
        CHECK(mprotect(guest.buffers[i]->base, guest.buffers[i]->size, is_accessible ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
    }
}

static void guest_buffer_free(ggml_backend_buffer_t buffer) {
    struct guest_pages *pages = (struct guest_pages *) buffer->context;
    int i = 0;
    while (guest.buffers[i] != pages) {
        i++;
    }
    guest.buffers[i] = guest.buffers[--guest.n_buffers];
    munmap(pages->base, pages->size);
    free(pages);
}

static void *guest_base(ggml_backend_buffer_t buffer) {
    return ((struct guest_pages *) buffer->context)->base;
}

static void guest_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor) {
    CHECK(tensor->buffer == buffer && tensor->data != NULL);
    guest.n_tensors++;
}

static void guest_write(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    guest.n_set++;
    guest_set_access(true);
    memcpy((char *) tensor->data + offset, data, size);
    guest_set_access(false);
}

static void guest_read(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    guest.n_get++;
    guest_set_access(true);
    memcpy(data, (const char *) tensor->data + offset, size);
    guest_set_access(false);
}

static void guest_move(const struct ggml_tensor *src, struct ggml_tensor *dst) {
    guest.n_copied++;
    guest_set_access(true);
    memcpy(dst->data, src->data, ggml_nbytes(src));
    guest_set_access(false);
}

static struct guest_pages *guest_pages_new(size_t size) {
    if (guest.is_full || guest.n_buffers == GUEST_BUFFERS || size > guest.max_size) {
        return NULL;
    }
    struct guest_pages *pages = (struct guest_pages *) malloc(sizeof *pages);
    pages->size = (size + 65535) / 65536 * 65536 + 65536;
    pages->base = (char *) mmap(NULL, pages->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages->base != MAP_FAILED);
    return pages;
}

static ggml_backend_buffer_t guest_pages_take(ggml_backend_buffer_t buffer, struct guest_pages *pages) {
    if (buffer == NULL) {
        munmap(pages->base, pages->size);
        free(pages);
        return NULL;
    }
    guest.buffers[guest.n_buffers++] = pages;
    return buffer;
}

#if BERTH_2023 >= 202312
static void guest_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    CHECK(tensor->buffer == buffer);
    guest_write(tensor, data, offset, size);
}

static void guest_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    CHECK(tensor->buffer == buffer);
    guest_read(tensor, data, offset, size);
}

static ggml_backend_buffer_type_t guest_buffer_type(void);

#    if BERTH_2023 >= 202402
static const char *guest_buffer_name(ggml_backend_buffer_t buffer) {
    (void) buffer;
    return "guest's";
}

// Copies between two buffers of the guest.
static bool guest_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    CHECK(dst->buffer == buffer);
    if (src->buffer->buft != buffer->buft) {
        return false;
    }
    guest_move(src, dst);
    return true;
}

static void guest_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    guest_set_access(true);
    memset(guest_base(buffer), value, buffer->size);
    guest_set_access(false);
}

static const struct ggml_backend_buffer_i guest_buffer_i = {
    guest_buffer_name, guest_buffer_free, guest_base, guest_init_tensor, guest_set, guest_get, guest_copy, guest_clear, NULL};
#    else
// Copy from and to host memory.
static void guest_copy_from(ggml_backend_buffer_t buffer, struct ggml_tensor *src, struct ggml_tensor *dst) {
    CHECK(dst->buffer == buffer);
    guest_move(src, dst);
}

static void guest_copy_to(ggml_backend_buffer_t buffer, struct ggml_tensor *src, struct ggml_tensor *dst) {
    CHECK(src->buffer == buffer);
    guest_move(src, dst);
}

static const struct ggml_backend_buffer_i guest_buffer_i = {
    guest_buffer_free, guest_base, guest_init_tensor, guest_set, guest_get, guest_copy_from, guest_copy_to};
#    endif

static ggml_backend_buffer_t guest_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    struct guest_pages *pages = guest_pages_new(size);
    return pages != NULL ? guest_pages_take(ggml_backend_buffer_init(buft, guest_buffer_i, pages, size), pages) : NULL;
}

static size_t guest_alignment(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return 128;
}

static bool guest_supports_backend(ggml_backend_buffer_type_t buft, ggml_backend_t backend) {
    (void) buft;
    return backend == &guest.backend;
}

#    if BERTH_2023 >= 202402
static const char *guest_type_name(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return "guest's type";
}

static size_t guest_max_size(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return guest.max_size;
}

static size_t guest_alloc_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor) {
    (void) buft;
    return ggml_nbytes(tensor) + guest.pad;
}

static bool guest_is_host(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return false;
}

static struct ggml_backend_buffer_type guest_type = {
    {guest_type_name, guest_alloc, guest_alignment, guest_max_size, guest_alloc_size, guest_supports_backend, guest_is_host},
    NULL};
#    else
static size_t guest_alloc_size(ggml_backend_buffer_type_t buft, struct ggml_tensor *tensor) {
    (void) buft;
    return ggml_nbytes(tensor) + guest.pad;
}

static struct ggml_backend_buffer_type guest_type = {
    {guest_alloc, guest_alignment, guest_alloc_size, guest_supports_backend}, NULL};
#    endif

static ggml_backend_buffer_type_t guest_buffer_type(void) {
    return &guest_type;
}

static ggml_backend_buffer_type_t guest_default_type(ggml_backend_t backend) {
    CHECK(backend == &guest.backend);
    return guest_buffer_type();
}

static bool guest_owns(const struct ggml_tensor *t) {
    return t->buffer != NULL && t->buffer->buft == &guest_type;
}
#else
static size_t guest_alloc_size(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor) {
    (void) buffer;
    return ggml_nbytes(tensor) + guest.pad;
}

static void guest_free_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor) {
    CHECK(tensor->buffer == buffer);
}

static const struct ggml_backend_buffer_i guest_buffer_i = {
    guest_buffer_free, guest_base, guest_alloc_size, guest_init_tensor, guest_free_tensor};

static ggml_backend_buffer_t guest_alloc(ggml_backend_t backend, size_t size) {
    struct guest_pages *pages = guest_pages_new(size);
    return pages != NULL ? guest_pages_take(ggml_backend_buffer_init(backend, guest_buffer_i, pages, size), pages) : NULL;
}

static size_t guest_alignment(ggml_backend_t backend) {
    (void) backend;
    return 128;
}

static void guest_set(ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    CHECK(backend == &guest.backend);
    guest_write(tensor, data, offset, size);
}

static void guest_get(ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    CHECK(backend == &guest.backend);
    guest_read(tensor, data, offset, size);
}

static void guest_copy_from(ggml_backend_t backend, struct ggml_tensor *src, struct ggml_tensor *dst) {
    CHECK(backend == &guest.backend && dst->buffer->backend == backend);
    guest_move(src, dst);
}

static void guest_copy_to(ggml_backend_t backend, struct ggml_tensor *src, struct ggml_tensor *dst) {
    CHECK(backend == &guest.backend && src->buffer->backend == backend);
    guest_move(src, dst);
}

static bool guest_owns(const struct ggml_tensor *t) {
    return t->buffer != NULL && t->buffer->backend == &guest.backend;
}
#endif

// ---- computing ----

static const char *guest_name(ggml_backend_t backend) {
    (void) backend;
    return "guest";
}

static void guest_free(ggml_backend_t backend) {
    CHECK(backend == &guest.backend);
}

static void guest_synchronize(ggml_backend_t backend) {
    (void) backend;
}

// Checks that the guest owns the memory of every node and of its sources. Views are not checked: the guest computes nothing for
// them, so they may be views of another backend's memory.
static void guest_check(const struct ggml_cgraph *graph) {
    for (int i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i]->view_src != NULL) {
            continue;
        }
        CHECK(guest_owns(graph->nodes[i]));
        for (int k = 0; k < GGML_MAX_SRC && graph->nodes[i]->src[k] != NULL; k++) {
            CHECK(guest_owns(graph->nodes[i]->src[k]));
        }
    }
    guest.n_computed += graph->n_nodes;
}

#if BERTH_2023 >= 202402
static ggml_backend_graph_plan_t guest_plan_create(ggml_backend_t backend, const struct ggml_cgraph *cgraph) {
#else
static ggml_backend_graph_plan_t guest_plan_create(ggml_backend_t backend, struct ggml_cgraph *cgraph) {
#endif
    struct guest_plan *plan = (struct guest_plan *) malloc(sizeof *plan);
    (void) backend;
    plan->cplan = ggml_graph_plan(cgraph, 1);
    plan->cgraph = *cgraph;
    if (plan->cplan.work_size > 0) {
        plan->cplan.work_data = (uint8_t *) malloc(plan->cplan.work_size);
    }
    guest.n_plans++;
    return plan;
}

static void guest_plan_free(ggml_backend_t backend, ggml_backend_graph_plan_t plan) {
    struct guest_plan *own = (struct guest_plan *) plan;
    (void) backend;
    free(own->cplan.work_data);
    free(own);
    guest.n_plans--;
}

static void guest_plan_compute(ggml_backend_t backend, ggml_backend_graph_plan_t plan) {
    struct guest_plan *own = (struct guest_plan *) plan;
    (void) backend;
    guest_check(&own->cgraph);
    guest_set_access(true);
    ggml_graph_compute(&own->cgraph, &own->cplan);
    guest_set_access(false);
}

#if BERTH_2023 >= 202402
static bool guest_compute(ggml_backend_t backend, struct ggml_cgraph *cgraph) {
#else
static void guest_compute(ggml_backend_t backend, struct ggml_cgraph *cgraph) {
#endif
    ggml_backend_graph_plan_t plan = guest_plan_create(backend, cgraph);
    guest_plan_compute(backend, plan);
    guest_plan_free(backend, plan);
#if BERTH_2023 >= 202402
    return true;
#endif
}

static bool guest_supports_op(ggml_backend_t backend, const struct ggml_tensor *op) {
    (void) backend;
    return op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_ADD || op->op == GGML_OP_MUL || op->op == GGML_OP_NORM ||
           op->op == GGML_OP_UNARY || op->op == GGML_OP_RESHAPE || op->op == GGML_OP_VIEW || op->op == GGML_OP_PERMUTE ||
           op->op == GGML_OP_NONE;
}

static const struct ggml_backend_i guest_i = {
#if BERTH_2023 >= 202402
    guest_name,
    guest_free,
    guest_default_type,
    NULL,
    NULL,
    NULL,
    guest_synchronize,
#elif BERTH_2023 >= 202312
    guest_name,
    guest_free,
    guest_default_type,
    NULL,
    NULL,
    NULL,
    NULL,
    guest_synchronize,
#else
    guest_name,
    guest_free,
    guest_alloc,
    guest_alignment,
    guest_set,
    guest_get,
    guest_synchronize,
    guest_copy_from,
    guest_copy_to,
#endif
    guest_plan_create,
    guest_plan_free,
    guest_plan_compute,
    guest_compute,
    guest_supports_op
};

static ggml_backend_t guest_init(void) {
    memset(&guest, 0, sizeof guest);
    guest.backend.iface = guest_i;
    guest.pad = 64;
    guest.max_size = SIZE_MAX;
    return &guest.backend;
}
