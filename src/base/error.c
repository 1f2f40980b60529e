// SPDX-License-Identifier: MIT
// error.c: the last error of each thread, status names, and ggml_abort, which is exported because programs call it.

#include "base/base.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define ERROR_TEXT_SIZE 512

static _Thread_local char last_error[ERROR_TEXT_SIZE];

const char *berth_last_error(void) {
    return last_error;
}

void berth_clear_error(void) {
    last_error[0] = '\0';
}

void berth_set_error_v(const char *fmt, va_list args) {
    char text[ERROR_TEXT_SIZE]; // args may point into last_error
    vsnprintf(text, sizeof text, fmt, args);
    snprintf(last_error, sizeof last_error, "%s", text);
}

void berth_set_error(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    berth_set_error_v(fmt, args);
    va_end(args);
}

enum ggml_status berth_fail(enum ggml_status status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    berth_set_error_v(fmt, args);
    va_end(args);
    berth_log(GGML_LOG_LEVEL_ERROR, "%s\n", last_error);
    return status;
}

const char *ggml_status_to_string(enum ggml_status status) {
    switch (status) {
        case GGML_STATUS_ALLOC_FAILED: return "GGML status: error (failed to allocate memory)";
        case GGML_STATUS_FAILED: return "GGML status: error (operation failed)";
        case GGML_STATUS_SUCCESS: return "GGML status: success";
        case GGML_STATUS_ABORTED: return "GGML status: warning (operation aborted)";
    }
    return "GGML status: unknown";
}

static _Atomic(ggml_abort_callback_t) abort_callback;

ggml_abort_callback_t ggml_set_abort_callback(ggml_abort_callback_t callback) {
    return atomic_exchange(&abort_callback, callback);
}

// Only programs call this function. No code of Berth does.
void ggml_abort(const char *file, int line, const char *fmt, ...) {
    char reason[ERROR_TEXT_SIZE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(reason, sizeof reason, fmt, args);
    va_end(args);
    char text[ERROR_TEXT_SIZE + 256];
    snprintf(text, sizeof text, "%s:%d: %s", file, line, reason);
    berth_log_flush(); // the held lines may contain the reason

    ggml_abort_callback_t callback = atomic_load(&abort_callback);
    if (callback != NULL) {
        callback(text);
    } else {
        fflush(stdout);
        fprintf(stderr, "%s\n", text);
    }
    abort();
}
