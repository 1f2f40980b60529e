// SPDX-License-Identifier: MIT
// allocr.c: the allocator of the first generation: a tensor allocator and a graph allocator in one.

#include "compat2023/compat2023.h"

struct ggml_allocr {
    gen_tallocr_t talloc;
    gen_gallocr_t galloc;
};

static ggml_allocr_t allocr_over(gen_tallocr_t talloc) {
    ggml_allocr_t alloc  = talloc != NULL ? berth_calloc(1, sizeof *alloc) : NULL;
    gen_gallocr_t galloc = alloc != NULL ? berth_2023_gallocr_new() : NULL;
    if (galloc == NULL) {
        berth_2023_tallocr_free(talloc);
        berth_free(alloc);
        return NULL;
    }
    *alloc = (struct ggml_allocr){.talloc = talloc, .galloc = galloc};
    return alloc;
}

ggml_allocr_t berth_2023_allocr_new(void *data, size_t size, size_t alignment) {
    return allocr_over(berth_2023_tallocr_new(data, size, alignment));
}

ggml_allocr_t berth_2023_allocr_new_measure(size_t alignment) {
    return allocr_over(berth_2023_tallocr_new_measure(alignment));
}

ggml_allocr_t berth_2023_allocr_new_from_buffer(gen_buffer_t buffer) {
    return allocr_over(berth_2023_tallocr_new_from_buffer(buffer));
}

ggml_allocr_t berth_2023_allocr_new_from_backend(gen_backend_t backend, size_t size) {
    return allocr_over(berth_2023_tallocr_new_from_backend(backend, size));
}

ggml_allocr_t berth_2023_allocr_new_measure_from_backend(gen_backend_t backend) {
    return allocr_over(berth_2023_tallocr_new_measure_from_backend(backend));
}

gen_buffer_t berth_2023_allocr_get_buffer(ggml_allocr_t alloc) {
    return alloc != NULL ? alloc->talloc->buffer : NULL;
}

void berth_2023_allocr_set_parse_seq(ggml_allocr_t alloc, const int *list, int n) {
    berth_2023_gallocr_set_parse_seq(alloc != NULL ? alloc->galloc : NULL, list, n);
}

void berth_2023_allocr_free(ggml_allocr_t alloc) {
    if (alloc != NULL) {
        berth_2023_tallocr_free(alloc->talloc);
        berth_2023_gallocr_free(alloc->galloc);
        berth_free(alloc);
    }
}

bool berth_2023_allocr_is_measure(ggml_allocr_t alloc) {
    return alloc != NULL && alloc->talloc->is_measure;
}

void berth_2023_allocr_reset(ggml_allocr_t alloc) {
    berth_2023_tallocr_reset(alloc != NULL ? alloc->talloc : NULL);
}

void berth_2023_allocr_alloc(ggml_allocr_t alloc, struct ggml_tensor *tensor) {
    berth_2023_tallocr_alloc(alloc != NULL ? alloc->talloc : NULL, tensor);
}

size_t berth_2023_allocr_max_size(ggml_allocr_t alloc) {
    return berth_2023_tallocr_max_size(alloc != NULL ? alloc->talloc : NULL);
}

size_t berth_2023_allocr_alloc_graph(ggml_allocr_t alloc, struct ggml_cgraph *graph) {
    return alloc != NULL ? berth_2023_gallocr_alloc_graph(alloc->galloc, alloc->talloc, graph) : 0;
}
