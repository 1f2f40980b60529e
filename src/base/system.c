// SPDX-License-Identifier: MIT
// system.c: clock, files, versions, aligned memory and the process-wide critical section for backends.

#include "base/base.h"
#include "base/lock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

GGML_API void ggml_critical_section_start(void);
GGML_API void ggml_critical_section_end(void);
GGML_API void *ggml_aligned_malloc(size_t size);
GGML_API void ggml_aligned_free(void *ptr, size_t size);
GGML_API void ggml_print_backtrace(void);

static struct berth_lock critical_section = BERTH_LOCK_INIT;

void ggml_critical_section_start(void) {
    berth_lock_take(&critical_section);
}

void ggml_critical_section_end(void) {
    berth_lock_drop(&critical_section);
}

// Prints nothing, because a debugger shows stacks better. The function is exported because programs link to it.
void ggml_print_backtrace(void) {
}

void ggml_time_init(void) {
}

static int64_t clock_ns(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t ggml_time_ms(void) {
    return clock_ns(CLOCK_MONOTONIC) / 1000000;
}

int64_t ggml_time_us(void) {
    return clock_ns(CLOCK_MONOTONIC) / 1000;
}

int64_t ggml_cycles(void) {
    return clock();
}

int64_t ggml_cycles_per_ms(void) {
    return CLOCKS_PER_SEC / 1000;
}

FILE *ggml_fopen(const char *fname, const char *mode) {
    return fname != NULL && mode != NULL ? fopen(fname, mode) : NULL;
}

bool ggml_guid_matches(ggml_guid_t guid_a, ggml_guid_t guid_b) {
    return guid_a != NULL && guid_b != NULL && memcmp(guid_a, guid_b, sizeof(ggml_guid)) == 0;
}

const char *berth_version(void) {
    return BERTH_VERSION;
}

const char *ggml_version(void) {
    return "0.25.1";
}

const char *ggml_commit(void) {
    return "berth-" BERTH_VERSION;
}

// Allocates memory for backends.
void *ggml_aligned_malloc(size_t size) {
    if (size == 0) {
        return NULL;
    }
    void *p = berth_aligned_alloc(64, size);
    if (p == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory: cannot allocate %zu bytes aligned to 64", size);
    }
    return p;
}

void ggml_aligned_free(void *ptr, size_t size) {
    (void) size;
    berth_aligned_free(ptr);
}
