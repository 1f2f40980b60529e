// SPDX-License-Identifier: MIT
// base.h: shared by all layers: the allocator, errors, the log, files, checked arithmetic. Nothing in this header uses a tensor.
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
// A thread-local variable for libraries that a program may load at any time (TLS model initial-exec).
// With the default TLS model, the first use in a thread allocates memory. If that allocation fails, libc ends the process.
// Use BERTH_LATE_LOCAL for a few bytes only, because libc reserves little space for such variables.
#ifdef __ELF__
#    define BERTH_LATE_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))
#else
#    define BERTH_LATE_LOCAL _Thread_local
#endif
#define BERTH_PRINTF(fmt, args) GGML_ATTRIBUTE_FORMAT(fmt, args)

// Asserts of three levels: 1 cheap, 2 more expensive internal checks, 3 checks that walk a whole data structure. BERTH_DEBUG is 0
// in release builds.
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
// align: a power of two. Free with berth_aligned_free.
BERTH_API void *berth_aligned_alloc(size_t align, size_t size) BERTH_MUST_USE;
BERTH_API void berth_aligned_free(void *p);

// Enlarges the array *p to at least n_want elements. *n_cap: capacity in elements. If out of memory, returns false and leaves *p
// unchanged.
BERTH_API bool berth_grow(void **p, size_t *n_cap, size_t n_want, size_t elem_size) BERTH_MUST_USE;

// p: the address of a pointer to the elements.
#define BERTH_GROW(p, n_cap, n_want) berth_grow((void **) (p), n_cap, n_want, sizeof **(p))

// ---- scratch (alloc.c): memory for the duration of one call; the first bytes are on the caller's stack ----

struct berth_scratch_mark {
    struct berth_scratch_block *last; // the newest block outside `stack_bytes`; NULL: none
    size_t used;                      // bytes of `stack_bytes` in use
};

// In debug builds `stack_bytes` is tiny, so that sanitizers and allocation tests see nearly all memory.
struct berth_scratch {
    struct berth_scratch_mark at;
    _Alignas(16) char stack_bytes[BERTH_DEBUG >= 3 ? 64 : 8192];
};

static inline void berth_scratch_init(struct berth_scratch *s) {
    s->at = (struct berth_scratch_mark){0};
}
// The memory is uninitialised and aligned to 16. Returns NULL if out of memory.
BERTH_API void *berth_scratch_take(struct berth_scratch *s, size_t size) BERTH_MUST_USE;
// Frees all memory taken since the caller copied s->at to `mark`.
BERTH_API void berth_scratch_back(struct berth_scratch *s, struct berth_scratch_mark mark);
static inline void berth_scratch_fini(struct berth_scratch *s) {
    berth_scratch_back(s, (struct berth_scratch_mark){0});
}

// ---- arrays that are freed together (alloc.c) ----

struct berth_arrays {
    struct berth_scratch_block *last;
    bool has_failed; // an allocation failed
};
// Returns zeroed memory; n may be 0. NULL: out of memory.
BERTH_API void *berth_arrays_new(struct berth_arrays *a, size_t n, size_t size) BERTH_MUST_USE;
BERTH_API void berth_arrays_free(struct berth_arrays *a);

// ---- errors (error.c) ----

// Stores the last error of this thread, logs one line, and returns status.
BERTH_API enum ggml_status berth_fail(enum ggml_status status, const char *fmt, ...) BERTH_PRINTF(2, 3);
// For functions that return a pointer or a bool.
#define BERTH_FAIL_NULL(...) (berth_fail(__VA_ARGS__), NULL)
#define BERTH_FAIL_FALSE(...) (berth_fail(__VA_ARGS__), false)
// Stores the text without a log line.
BERTH_API void berth_set_error(const char *fmt, ...) BERTH_PRINTF(1, 2);
BERTH_API void berth_set_error_v(const char *fmt, va_list args) BERTH_PRINTF(1, 0);

// ---- log (log.c) ----

BERTH_API void berth_log(enum ggml_log_level level, const char *fmt, ...) BERTH_PRINTF(2, 3);
BERTH_API void berth_log_v(enum ggml_log_level level, const char *fmt, va_list args) BERTH_PRINTF(2, 0);
// After berth_log_hold, log lines of this thread are stored. berth_log_let_go prints them. The pairs of calls nest.
// Call berth_log_hold before taking a lock that is held while other code runs, because the program's log callback may wait for a
// thread that needs the lock.
BERTH_API void berth_log_hold(void);
BERTH_API void berth_log_let_go(void);
// Prints all held lines of this thread and ends all holds. For a thread that is about to end the process.
void berth_log_flush(void);

// ---- the client's release (client.c) ----

// release: the release of llama.cpp for which a loaded library was built ("b10361", "v0.5.0"). Other texts and NULL are ignored.
BERTH_API void berth_client_release(const char *release);
// Returns 19 (ggml 0.19) if all known releases are b10361 or older. Returns 25 (ggml 0.25) if all known releases are v0.4.0 or
// newer. Otherwise returns 0.
BERTH_API int berth_client_minor(void);

// ---- streams into memory (file.c) ----

struct berth_stream {
    FILE *file; // to write to
    char *text; // valid after closing: the bytes written, with a NUL appended
    size_t size, cap;
    bool has_failed; // memory ran out
};
// Returns false if out of memory. The struct must not move until it is closed.
BERTH_API bool berth_stream_open(struct berth_stream *s) BERTH_MUST_USE;
// Returns false if memory ran out or berth_stream_open failed. Then s->text is NULL.
BERTH_API bool berth_stream_close(struct berth_stream *s) BERTH_MUST_USE;
BERTH_API void berth_stream_fini(struct berth_stream *s);

// ---- texts ----

static inline bool berth_ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && memcmp(text + n - n_end, end, n_end) == 0;
}

// ---- files ----

// Opens a regular file only, and never blocks (file.c). On failure *why is the reason.
BERTH_API FILE *berth_file_open(const char *path, uint64_t *size, const char **why) BERTH_MUST_USE;
BERTH_API int berth_file_open_fd(const char *path, uint64_t *size, const char **why) BERTH_MUST_USE; // -1: failed
// magic: at most 16 bytes.
BERTH_API bool berth_file_starts_with(const char *path, const char *magic);

// A new file that replaces `target` when it is complete (file.c).
struct berth_replace {
    FILE *file;
    char *target, *part; // final name, temporary name; NULL: the file is written in place
};
// On failure returns false and sets errno.
BERTH_API bool berth_replace_open(struct berth_replace *r, const char *path) BERTH_MUST_USE;
// The path must not exist yet. If another program creates a link with this name meanwhile, the link is replaced, not followed.
BERTH_API bool berth_replace_open_new(struct berth_replace *r, const char *path) BERTH_MUST_USE;
// If ok, syncs the new file and renames it to `target`; otherwise removes the new file. On failure returns false with errno.
// The old file is then unchanged, with one exception: if only the sync of the folder failed, the new file has replaced the old
// one.
BERTH_API bool berth_replace_close(struct berth_replace *r, bool ok) BERTH_MUST_USE;

// ---- checked arithmetic: returns false if the result does not fit; *out is undefined then ----
// `make prove` proves the contracts in the comments that begin with @ (docs/dev/verification.md).

/*@ requires \valid(out);
    assigns *out;
    ensures \result <==> a + b <= SIZE_MAX;
    ensures \result ==> *out == a + b; */
static inline bool berth_add_ok(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
/*@ requires \valid(out);
    assigns *out;
    ensures \result <==> a * b <= SIZE_MAX;
    ensures \result ==> *out == a * b; */
static inline bool berth_mul_ok(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
/*@ requires \valid(out);
    assigns *out;
    ensures \result <==> INT64_MIN <= a + b <= INT64_MAX;
    ensures \result ==> *out == a + b; */
static inline bool berth_add_i64_ok(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
/*@ requires \valid(out);
    assigns *out;
    ensures \result <==> INT64_MIN <= a * b <= INT64_MAX;
    ensures \result ==> *out == a * b; */
static inline bool berth_mul_i64_ok(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

//@ predicate is_power_of_two(integer x) = x > 0 && (x & (x - 1)) == 0;

// Returns the largest multiple of align that is at most x. align is a power of two.
/*@ requires is_power_of_two(align);
    assigns \nothing;
    ensures \result == x - x % align; */
static inline size_t berth_round_down(size_t x, size_t align) {
    return x & ~(align - 1);
}
// *out: the smallest multiple of align that is at least x. align is a power of two.
/*@ requires \valid(out) && is_power_of_two(align);
    assigns *out;
    ensures \result <==> x + align - 1 <= SIZE_MAX;
    ensures \result ==> x <= *out < x + align && *out % align == 0; */
static inline bool berth_pad_ok(size_t x, size_t align, size_t *out) {
    if (!berth_add_ok(x, align - 1, out)) {
        return false;
    }
    *out = berth_round_down(*out, align);
    return true;
}
// Returns whether `size` bytes at the offset off are inside the first n_bytes bytes.
/*@ assigns \nothing;
    ensures \result <==> off + size <= n_bytes; */
static inline bool berth_is_inside(size_t off, size_t size, size_t n_bytes) {
    return off <= n_bytes && size <= n_bytes - off;
}
