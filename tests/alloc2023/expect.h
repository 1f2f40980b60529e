// SPDX-License-Identifier: MIT
// expect.h: a check that ends the test program, and a log function that drops all lines. The program includes the 2023 headers of
// its date first. For C and C++.
#pragma once

#include "berth.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(x) \
    do { \
        if (!(x)) { \
            printf("%s:%d: %s\nlast error: %s\n", __FILE__, __LINE__, #x, berth_last_error()); \
            exit(1); \
        } \
    } while (0)

static inline void log_drop(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level;
    (void) text;
    (void) user_data;
}
