// SPDX-License-Identifier: MIT
// log.c: passes log lines to the program's callback, or to stderr. A thread may hold its lines.
// If held lines cannot be stored, a warning reports their number.

#include "base/base.h"
#include "base/lock.h"

#include <stdio.h>
#include <string.h>

GGML_API void ggml_log_internal(enum ggml_log_level level, const char *format, ...) BERTH_PRINTF(2, 3);
GGML_API void ggml_log_callback_default(enum ggml_log_level level, const char *text, void *user_data);

// Guards the callback together with its user data.
static struct berth_lock log_lock = BERTH_LOCK_INIT;
static ggml_log_callback log_callback;
static void *log_user_data;
BERTH_LOCK_ACROSS_FORK(log_lock, 101)

static _Thread_local struct {
    int depth;        // nesting depth of berth_log_hold
    char *lines;      // per line: one byte with the level, the text, NUL
    size_t size, cap; // bytes
    int n_lost;
} held;

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
    log_callback = callback;
    log_user_data = user_data;
    berth_lock_drop(&log_lock);
}

static void line_print(enum ggml_log_level level, const char *text) {
    ggml_log_callback callback;
    void *user_data;
    ggml_log_get(&callback, &user_data);
    callback(level, text, user_data);
}

static void line_keep(enum ggml_log_level level, const char *text) {
    const size_t size = strlen(text) + 1;
    if (!BERTH_GROW(&held.lines, &held.cap, held.size + 1 + size)) {
        held.n_lost++;
        return;
    }
    held.lines[held.size] = (char) level;
    memcpy(held.lines + held.size + 1, text, size);
    held.size += 1 + size;
}

void berth_log_hold(void) {
    held.depth++;
}

// The callback may itself log, hold and let go.
void berth_log_let_go(void) {
    if (held.depth > 0 && --held.depth == 0) {
        berth_log_flush();
    }
}

void berth_log_flush(void) {
    char *lines = held.lines;
    const size_t size = held.size;
    const int n_lost = held.n_lost;
    memset(&held, 0, sizeof held);
    for (size_t at = 0; at < size; at += strlen(lines + at) + 1) {
        const enum ggml_log_level level = (enum ggml_log_level) lines[at++];
        line_print(level, lines + at);
    }
    berth_free(lines);
    if (n_lost > 0) {
        berth_log(GGML_LOG_LEVEL_WARN, "berth: out of memory for %d log line%s\n", n_lost, n_lost == 1 ? "" : "s");
    }
}

void berth_log_v(enum ggml_log_level level, const char *fmt, va_list args) {
    void (*line_handle)(enum ggml_log_level, const char *) = held.depth > 0 ? line_keep : line_print;

    char text[256];
    va_list args_copy;
    va_copy(args_copy, args);
    int n = vsnprintf(text, sizeof text, fmt, args);
    if (n < (int) sizeof text) {
        line_handle(level, n < 0 ? fmt : text);
    } else {
        char *longer = berth_malloc((size_t) n + 1);
        if (longer != NULL) {
            vsnprintf(longer, (size_t) n + 1, fmt, args_copy);
        }
        line_handle(level, longer != NULL ? longer : text);
        berth_free(longer);
    }
    va_end(args_copy);
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
