// SPDX-License-Identifier: MIT
// base.h: what every layer stands on: the allocator door, errors, the log, checked arithmetic. Nothing here knows a tensor.
#pragma once

#include "berth.h"
#include "ggml.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define BERTH_LIKELY(x) __builtin_expect(!!(x), 1)
#define BERTH_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define BERTH_MUST_USE __attribute__((warn_unused_result))
// A variable of each thread, in libraries that programs may load at any time: its place is there from then on. Else a thread's
// first use takes memory, and libc ends the process where there is none. For a few bytes: libc sets aside little room for these.
#ifdef __ELF__
#    define BERTH_LATE_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))
#else
#    define BERTH_LATE_LOCAL _Thread_local
#endif
#define BERTH_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

// Asserts in three prices: 1 cheap, 2 internal, 3 whole structures. BERTH_DEBUG is 0 in release builds.
#ifndef BERTH_DEBUG
#    define BERTH_DEBUG 0
#endif
#if BERTH_DEBUG >= 1
#    undef NDEBUG // builds with sanitizers define it for other headers
#    include <assert.h>
#    define BERTH_ASSERT(x) assert(x)
#else
#    define BERTH_ASSERT(x) ((void) 0)
#endif
#if BERTH_DEBUG >= 2
#    define BERTH_ASSERT_INTERNAL(x) assert(x)
#else
#    define BERTH_ASSERT_INTERNAL(x) ((void) 0)
#endif
#if BERTH_DEBUG >= 3
#    define BERTH_ASSERT_WHOLE(x) assert(x)
#else
#    define BERTH_ASSERT_WHOLE(x) ((void) 0)
#endif

// ---- memory: every allocation of the libraries goes through these (alloc.c) ----

BERTH_API void *berth_malloc(size_t size) BERTH_MUST_USE;           // NULL for size 0 too
BERTH_API void *berth_calloc(size_t n, size_t size) BERTH_MUST_USE; // checks n * size
BERTH_API void *berth_realloc(void *p, size_t size) BERTH_MUST_USE; // on failure p stays valid
BERTH_API void berth_free(void *p);
// align: a power of two. Pair with berth_aligned_free.
BERTH_API void *berth_aligned_alloc(size_t align, size_t size) BERTH_MUST_USE;
BERTH_API void berth_aligned_free(void *p);

// Grows *p to hold at least n_want elements of elem_size bytes; *n_cap is its capacity in elements. False: out of memory, *p
// untouched.
BERTH_API bool berth_grow(void **p, size_t *n_cap, size_t n_want, size_t elem_size) BERTH_MUST_USE;

// p: the address of a pointer to the elements.
#define BERTH_GROW(p, n_cap, n_want) berth_grow((void **) (p), n_cap, n_want, sizeof **(p))

// ---- scratch (alloc.c): memory for the length of one call, the first of it on the caller's stack ----

struct berth_scratch_mark {
    struct berth_scratch_block *last; // the newest block that is not in few
    size_t used;                      // bytes of few
};

// In debug builds hardly anything is few: each piece is the allocator's, whose bounds sanitizers watch and which tests let fail.
struct berth_scratch {
    struct berth_scratch_mark at;
    _Alignas(16) char few[BERTH_DEBUG >= 3 ? 64 : 8192];
};

static inline void berth_scratch_init(struct berth_scratch *s) {
    s->at = (struct berth_scratch_mark){0};
}
// Not cleared, aligned to 16; NULL: out of memory.
BERTH_API void *berth_scratch_take(struct berth_scratch *s, size_t size) BERTH_MUST_USE;
// What was taken since s->at was the mark goes.
BERTH_API void berth_scratch_back(struct berth_scratch *s, struct berth_scratch_mark mark);
static inline void berth_scratch_fini(struct berth_scratch *s) {
    berth_scratch_back(s, (struct berth_scratch_mark){0});
}

// ---- arrays that are freed together (alloc.c) ----

struct berth_arrays {
    struct berth_scratch_block *last;
    bool has_failed; // one of them got no memory
};
// Zeroed, n may be 0. NULL: out of memory.
BERTH_API void *berth_arrays_new(struct berth_arrays *a, size_t n, size_t size) BERTH_MUST_USE;
BERTH_API void berth_arrays_free(struct berth_arrays *a);

// ---- errors (error.c) ----

// Keeps the text as this thread's last error, logs it as one line, and returns status: `return berth_fail(...)`.
BERTH_API enum ggml_status berth_fail(enum ggml_status status, const char *fmt, ...) BERTH_PRINTF(2, 3);
// The same in functions that return a pointer or whether they did it: `return BERTH_FAIL_NULL(...)`.
#define BERTH_FAIL_NULL(...) (berth_fail(__VA_ARGS__), NULL)
#define BERTH_FAIL_FALSE(...) (berth_fail(__VA_ARGS__), false)
// Keeps the text without a log line.
BERTH_API void berth_set_error(const char *fmt, ...) BERTH_PRINTF(1, 2);
BERTH_API void berth_set_error_v(const char *fmt, va_list args) BERTH_PRINTF(1, 0);

// ---- log (log.c) ----

BERTH_API void berth_log(enum ggml_log_level level, const char *fmt, ...) BERTH_PRINTF(2, 3);
BERTH_API void berth_log_v(enum ggml_log_level level, const char *fmt, va_list args) BERTH_PRINTF(2, 0);
// Between the two, lines of this thread wait: whoever calls others under a lock holds them back until the lock is dropped, since
// the program's callback may wait for another thread that wants it. They nest.
BERTH_API void berth_log_hold(void);
BERTH_API void berth_log_let_go(void);
// Hands out what waits, and holds nothing back from then on: for a thread that ends the process.
void berth_log_flush(void);

// ---- the client's release (client.c) ----

// "b10361", "v0.5.0": a release of llama.cpp that has been loaded. Others, and NULL, tell nothing.
BERTH_API void berth_client_release(const char *release);
// The ggml 0.MINOR that all clients of this process were built for, or the oldest that it may be: 19 or 25. 0: not known, or
// clients of several.
BERTH_API int berth_client_minor(void);

// ---- streams into memory (file.c) ----

struct berth_stream {
    FILE *file; // to write to
    char *text; // when it is closed: what was written, and a NUL
    size_t size, cap;
    bool has_failed; // memory ran out
};
// False: out of memory. The struct stays where it is until it is closed.
BERTH_API bool berth_stream_open(struct berth_stream *s) BERTH_MUST_USE;
// False: out of memory, now, on the way, or before it was open; then there is no text.
BERTH_API bool berth_stream_close(struct berth_stream *s) BERTH_MUST_USE;
BERTH_API void berth_stream_fini(struct berth_stream *s);

// ---- texts ----

static inline bool berth_ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && memcmp(text + n - n_end, end, n_end) == 0;
}

// ---- files ----

// A regular file, open to be read, and its bytes; *why is what is wrong otherwise. Never waits (file.c).
BERTH_API FILE *berth_file_open(const char *path, uint64_t *size, const char **why) BERTH_MUST_USE;
BERTH_API int berth_file_open_fd(const char *path, uint64_t *size, const char **why) BERTH_MUST_USE; // -1: none
// Is it a regular file with these first bytes, at most 16?
BERTH_API bool berth_file_starts_with(const char *path, const char *magic);

// A file that takes the place of `target` when it is whole (file.c).
struct berth_replace {
    FILE *file;
    char *target, *part; // where it goes, where it is; NULL: it is written as it is
};
// False with errno.
BERTH_API bool berth_replace_open(struct berth_replace *r, const char *path) BERTH_MUST_USE;
// The same where nothing is: a link that gets this name meanwhile is not followed, but replaced.
BERTH_API bool berth_replace_open_new(struct berth_replace *r, const char *path) BERTH_MUST_USE;
// Brings it to the disk and to its place, or drops it if it is not ok. False with errno: what was there before is there still,
// or the whole new file if nothing but the sync of its folder failed.
BERTH_API bool berth_replace_close(struct berth_replace *r, bool ok) BERTH_MUST_USE;

// ---- checked arithmetic: false if the result does not fit, *out undefined then ----

static inline bool berth_add_ok(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
static inline bool berth_mul_ok(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool berth_add_i64_ok(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
static inline bool berth_mul_i64_ok(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
// x rounded up to a multiple of align (a power of two)
static inline bool berth_pad_ok(size_t x, size_t align, size_t *out) {
    if (__builtin_add_overflow(x, align - 1, out)) {
        return false;
    }
    *out &= ~(align - 1);
    return true;
}
