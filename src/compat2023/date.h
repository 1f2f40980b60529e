// SPDX-License-Identifier: MIT
// date.h: implements the 2023 API for one date. This file is compiled once per date (date_*.c).
// A date is the month of the ggml API for which a program was written (BERTH_2023=YYYYMM). AT(name) adds the date to a function's
// name. A source is the object that allocates buffers: a backend at date 202311, a buffer type at the later dates.
//
//     date_buffer.h    sources, buffers, host memory, measuring
//     date_backend.h   backends, wrappers of current backends, computing
//     date_alloc.h     allocators, the scheduler, copies of graphs, multi-buffers

#define BERTH_2023_LAYOUT
#include "base/min.h"
#include "compat2023/compat2023.h"
#include "core/op.h"

#include <string.h>

#define AT(name) BERTH_2023_AT(name)
#define HAS_BUFT (BERTH_2023 >= 202312)
#define IS_2024 (BERTH_2023 >= 202402)

// The alignment of tensors in CPU memory, in bytes.
#if IS_2024
#    define CPU_ALIGN 32
#else
#    define CPU_ALIGN 64
#endif

// OWNER is the field of a buffer that stores its source.
#if HAS_BUFT
typedef gen_source_t owner_t;
#    define OWNER buft
#    define OWNER_NAME "buffer type"
#    define ALLOC_NAME "ggml_backend_buft_alloc_buffer"
#    define HOST_OWNER AT(cpu_buffer_type)()
#else
typedef gen_backend_t owner_t;
#    define OWNER backend
#    define OWNER_NAME "backend"
#    define ALLOC_NAME "ggml_backend_alloc_buffer"
#    define HOST_OWNER NULL
#endif

// Before 2024, functions that compute or compare graphs return no status. berth_last_error() has the error.
#if IS_2024
typedef bool done_t;
#    define RETURN_DONE(is_done) return is_done
#else
typedef void done_t;
#    define RETURN_DONE(is_done) (void) (is_done)
#endif

_Static_assert(sizeof(struct gen_head) <= sizeof((struct gen_buffer *) 0)->berth,
    "gen_head must fit into the bytes that the public struct reserves");

static const struct gen_date date;

#include "compat2023/date_buffer.h"

#include "compat2023/date_backend.h" // uses date_buffer.h

static const struct gen_date date = {
    .number = BERTH_2023,
    .base = buffer_base,
    .size = buffer_size,
    .alloc_size = buffer_alloc_size,
    .init_tensor = buffer_init_tensor,
    .free_tensor = buffer_free_tensor,
    .set = buffer_set,
    .get = buffer_get,
    .copy = buffer_copy,
    .clear = buffer_clear,
    .reset = buffer_reset,
    .release = buffer_release,
    .buffer_name = buffer_name,
    .pulls_ops = buffer_pulls_ops,
    .source_of = source_of,
    .source_name = source_name,
    .alloc = source_alloc,
    .measure = source_measure,
    .source_align = source_align,
    .source_alloc_size = source_alloc_size,
    .source_max_size = source_max_size,
    .is_host = source_is_host,
    .reads = source_reads,
    .name = AT(name),
    .is_cpu = AT(is_cpu),
    .supports_op = AT(supports_op),
    .compute = backend_compute,
    .synchronize = AT(synchronize),
};

#include "compat2023/date_alloc.h"
