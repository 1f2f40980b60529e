// SPDX-License-Identifier: MIT
// web.c: the functions that the page of `make web` calls. They are compiled to WebAssembly and run in a worker of the browser
// (page/worker.js), one file at a time.

#include "base/base.h"
#include "gguf.h"
#include "model/workbench.h"
#include "view/map.h"

#include <emscripten.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct berth_stream page; // the last page
static int64_t plan_us;          // time of the last search

// ---- files ----

// A model file may be larger than the memory of WebAssembly, and only its header is read. The page gives the file system the first
// bytes of the file and a size that exceeds every tensor's end. A map then consists of the header. The linker replaces mmap and
// munmap by these functions (--wrap). Addresses after the header are computed, but never read.
static size_t header_size;

void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *address, size_t size);

void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
    (void) address, (void) size, (void) protection, (void) flags;
    void *bytes = berth_aligned_alloc(4096, header_size + 1);
    if (bytes != NULL && pread(fd, bytes, header_size, offset) != (ssize_t) header_size) {
        berth_aligned_free(bytes);
        bytes = NULL;
    }
    return bytes != NULL ? bytes : MAP_FAILED;
}

int __wrap_munmap(void *address, size_t size) {
    (void) size;
    berth_aligned_free(address);
    return 0;
}

// n_bytes: bytes of the file that the file system has.
static enum ggml_status header_find(const char *path, size_t n_bytes) {
    struct gguf_context *meta = gguf_init_from_file(path, (struct gguf_init_params){.no_alloc = true});
    header_size = meta != NULL ? gguf_get_data_offset(meta) : 0;
    gguf_free(meta);
    if (meta == NULL) {
        return GGML_STATUS_FAILED;
    }
    return header_size <= n_bytes ? GGML_STATUS_SUCCESS
                                  : berth_fail(GGML_STATUS_FAILED, "%s: the header has %zu bytes, but the file only %zu", path,
                                        header_size, n_bytes);
}

// ---- comparisons of long doubles ----

// emscripten 3.1.6 compiles these functions of the compiler's library with a result of 64 bits, but their callers, such as strtod,
// expect an int. WebAssembly ends a program at such a call. The result is below 0, 0 or above 0.
int __letf2(long double a, long double b);
int __getf2(long double a, long double b);
int __eqtf2(long double a, long double b);
int __netf2(long double a, long double b);

#define BITS_SIGN (1ull << 63)
#define BITS_INFINITY 0x7fff000000000000ull

struct bits {
    uint64_t low, high;
};

static bool is_nan(struct bits v) {
    const uint64_t high = v.high & ~BITS_SIGN;
    return high > BITS_INFINITY || (high == BITS_INFINITY && v.low != 0);
}

static int long_double_compare(long double a, long double b, int if_nan) {
    struct bits x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    if (is_nan(x) || is_nan(y)) {
        return if_nan;
    }
    const bool are_zero = ((x.high | y.high) & ~BITS_SIGN) == 0 && (x.low | y.low) == 0;
    if (are_zero || (x.high == y.high && x.low == y.low)) {
        return 0;
    }
    if ((x.high ^ y.high) & BITS_SIGN) {
        return x.high & BITS_SIGN ? -1 : 1;
    }
    const bool is_less = x.high != y.high ? x.high < y.high : x.low < y.low;
    return is_less != ((x.high & BITS_SIGN) != 0) ? -1 : 1;
}

int __letf2(long double a, long double b) {
    return long_double_compare(a, b, 1);
}
int __getf2(long double a, long double b) {
    return long_double_compare(a, b, -1);
}
int __eqtf2(long double a, long double b) {
    return long_double_compare(a, b, 1);
}
int __netf2(long double a, long double b) {
    return long_double_compare(a, b, 1);
}

// ---- pages ----

static enum ggml_status page_write(const struct view_plan *plan, const uint64_t *offsets, const char *title) {
    struct map_view view;
    berth_stream_fini(&page);
    if (!map_view_init(&view, &(const struct map_plan){title, plan, offsets})) {
        return GGML_STATUS_FAILED;
    }
    const bool is_open = berth_stream_open(&page);
    const bool ok = is_open && map_html_write(&view, 1, page.file);
    map_view_fini(&view);
    return berth_stream_close(&page) && ok ? GGML_STATUS_SUCCESS
                                           : berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for the page", title);
}

static enum ggml_status plan_solve(struct view_plan *plan, int64_t limit_us, uint64_t *offsets) {
    const struct berth_plan_params params = {.time_limit_us = limit_us, .n_threads = 1};
    const size_t n = (size_t) plan->set->n_items;
    struct berth_plan_report report = {0};
    bool is_stopped;
    enum ggml_status status;
    if (plan->set->has_offsets) {
        memcpy(offsets, plan->set->offsets, n * sizeof *offsets);
        status = berth_plan_check(plan->set->items, plan->set->n_items, NULL, offsets, NULL);
    } else {
        status = view_plan_solve(plan, &params, offsets, &report, &is_stopped);
    }
    plan_us = report.time_us;
    return status;
}

// Plans a file and returns the page of its map. The page is valid until the next call. n_bytes: see header_find. limit_us: time
// limit of the search; 0: the fast planner only. NULL: failed; berth_last_error() is the reason.
EMSCRIPTEN_KEEPALIVE const char *web_page(const char *path, size_t n_bytes, int64_t limit_us) {
    static const struct model_options options = {.n_threads = 1};
    struct view_plan plan = {0};
    uint64_t *offsets = NULL;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (berth_file_starts_with(path, "GGUF")) {
        status = header_find(path, n_bytes);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = view_plan_read(path, &options, &(const struct view_budget){0}, &plan);
    }
    if (status == GGML_STATUS_SUCCESS) {
        offsets = berth_malloc(((size_t) plan.set->n_items + 1) * sizeof *offsets);
        status = offsets != NULL ? plan_solve(&plan, limit_us, offsets) : berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory");
    }
    if (status == GGML_STATUS_SUCCESS) {
        const char *slash = strrchr(path, '/');
        status = page_write(&plan, offsets, slash != NULL ? slash + 1 : path);
    }
    berth_free(offsets);
    view_plan_free(&plan);
    return status == GGML_STATUS_SUCCESS ? page.text : NULL;
}

EMSCRIPTEN_KEEPALIVE const char *web_error(void) {
    return berth_last_error();
}

// Returns the time of the last search in microseconds; 0: the file had offsets.
EMSCRIPTEN_KEEPALIVE double web_plan_us(void) {
    return (double) plan_us;
}
