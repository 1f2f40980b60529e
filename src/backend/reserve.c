// SPDX-License-Identifier: MIT
// reserve.c: backends take memory of their own for what they compute. ggml's interface has no word for that, so a backend that
// can say how much, and take it before, has procedures for it in its registry; of any other nothing is known, and nothing
// promised.

#include "backend/backend.h"
#include "berth-backend.h"

#include <string.h>

typedef size_t (*reserve_size_t)(ggml_backend_t backend, const struct ggml_cgraph *graph);
typedef enum ggml_status (*reserve_t)(ggml_backend_t backend, const struct ggml_cgraph *graph);

static bool proc_find(ggml_backend_t backend, const char *name, void *to) {
    ggml_backend_dev_t dev = ggml_backend_get_device(backend);
    void *proc = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), name);
    memcpy(to, &proc, sizeof proc); // ISO C has no cast from object to function pointers; POSIX systems have the same bits
    return proc != NULL;
}

// A device made of several has no registry.
static const struct berth_several *several_of(ggml_backend_t backend) {
    const struct berth_several *several = berth_several_get();
    return several != NULL && several->is_backend(backend) ? several : NULL;
}

size_t berth_backend_reserve_size(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    reserve_size_t size;
    const struct berth_several *several = several_of(backend);
    if (several != NULL && graph != NULL) {
        return several->reserve_size(backend, graph);
    }
    return backend != NULL && graph != NULL && proc_find(backend, "berth_backend_reserve_size", &size) ? size(backend, graph) : 0;
}

enum ggml_status berth_backend_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    reserve_t reserve;
    if (backend == NULL || graph == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "berth_backend_reserve: the %s is NULL", backend == NULL ? "backend" : "graph");
    }
    const struct berth_several *several = several_of(backend);
    if (several != NULL) {
        return several->reserve(backend, graph);
    }
    return proc_find(backend, "berth_backend_reserve", &reserve) ? reserve(backend, graph) : GGML_STATUS_SUCCESS;
}
