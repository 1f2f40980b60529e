// SPDX-License-Identifier: MIT
// base_shim.h: memory, errors and log of this library. On Berth's libggml-base they are its allocator and its last error; on
// another ggml base, which has no berth_ symbols, libc and ggml's log take their place. Nothing else of src/base is linked to.
#pragma once

#include "base/base.h"

void *cpu_malloc(size_t size) BERTH_MUST_USE; // NULL for size 0 too
void *cpu_calloc(size_t n, size_t size) BERTH_MUST_USE;
void cpu_free(void *p);
void *cpu_aligned_alloc(size_t align, size_t size) BERTH_MUST_USE; // align: a power of two >= 8. Pair with cpu_aligned_free
void cpu_aligned_free(void *p);

// One line to ggml's log.
void cpu_log(enum ggml_log_level level, const char *fmt, ...) BERTH_PRINTF(2, 3);
// Keeps the text as the last error where there is one, logs it, returns status.
enum ggml_status cpu_error(enum ggml_status status, const char *fmt, ...) BERTH_PRINTF(2, 3);
// Whether the base has just found that the graph's tensors lie in memory, and no source is empty. Another base never has.
bool cpu_base_has_checked(const struct ggml_cgraph *graph);
// What a poison tensor carries.
const char *cpu_poison_text(const struct ggml_tensor *t);
