// SPDX-License-Identifier: MIT
// ggml-cpp.h: owning pointers for C++ programs.
//
// Each type NAME_ptr is a std::unique_ptr that frees its object with the object's free function: ggml_context_ptr with ggml_free,
// gguf_context_ptr with gguf_free, ggml_gallocr_ptr with ggml_gallocr_free, and so on. The rules of the other headers hold: for
// example, buffers and backends must be destroyed before ggml_backend_unload of their registry.
#pragma once

#ifndef __cplusplus
#    error "ggml-cpp.h is for C++"
#endif

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"
#include "gguf.h"

#include <memory>

// Defines name##_deleter, which calls free_fn, and name##_ptr, which owns an object of the type.
#define BERTH_DELETER(name, type, free_fn) \
    struct name##_deleter { \
        void operator()(type *p) const { \
            free_fn(p); \
        } \
    }; \
    typedef std::unique_ptr<type, name##_deleter> name##_ptr;

BERTH_DELETER(ggml_context, ggml_context, ggml_free)
BERTH_DELETER(gguf_context, gguf_context, gguf_free)
BERTH_DELETER(ggml_gallocr, ggml_gallocr, ggml_gallocr_free)
BERTH_DELETER(ggml_backend, ggml_backend, ggml_backend_free)
BERTH_DELETER(ggml_backend_buffer, ggml_backend_buffer, ggml_backend_buffer_free)
BERTH_DELETER(ggml_backend_event, ggml_backend_event, ggml_backend_event_free)
BERTH_DELETER(ggml_backend_sched, ggml_backend_sched, ggml_backend_sched_free)

#undef BERTH_DELETER
