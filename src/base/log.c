// SPDX-License-Identifier: MIT
// log.c: log lines go to the callback the program set, and to stderr only while none is set.

#include "base/base.h"
#include "base/lock.h"

#include <stdio.h>

GGML_API void ggml_log_internal(enum ggml_log_level level, const char *format, ...) BERTH_PRINTF(2, 3);
GGML_API void ggml_log_callback_default(enum ggml_log_level level, const char *text, void *user_data);

// Both change together, so that a callback never sees another's user data.
static struct berth_lock log_lock = BERTH_LOCK_INIT;
static ggml_log_callback log_callback;
static void *log_user_data;

void ggml_log_callback_default(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level;
    (void) user_data;
    fputs(text, stderr);
    fflush(stderr);
}

void ggml_log_get(ggml_log_callback *callback, void **user_data) {
    berth_lock_take(&log_lock);
    if (callback != NULL) {
        *callback = log_callback != NULL ? log_callback : ggml_log_callback_default;
    }
    if (user_data != NULL) {
        *user_data = log_user_data;
    }
    berth_lock_drop(&log_lock);
}

void ggml_log_set(ggml_log_callback callback, void *user_data) {
    berth_lock_take(&log_lock);
    log_callback  = callback;
    log_user_data = user_data;
    berth_lock_drop(&log_lock);
}

void berth_log_v(enum ggml_log_level level, const char *fmt, va_list args) {
    ggml_log_callback callback;
    void *user_data;
    ggml_log_get(&callback, &user_data);

    char text[256];
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(text, sizeof text, fmt, args);
    if (n < (int) sizeof text) {
        callback(level, n < 0 ? fmt : text, user_data);
    } else {
        char *longer = berth_malloc((size_t) n + 1);
        if (longer != NULL) {
            vsnprintf(longer, (size_t) n + 1, fmt, again);
        }
        callback(level, longer != NULL ? longer : text, user_data);
        berth_free(longer);
    }
    va_end(again);
}

void berth_log(enum ggml_log_level level, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    berth_log_v(level, fmt, args);
    va_end(args);
}

void ggml_log_internal(enum ggml_log_level level, const char *format, ...) {
    va_list args;
    va_start(args, format);
    berth_log_v(level, format, args);
    va_end(args);
}
