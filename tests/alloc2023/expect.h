// SPDX-License-Identifier: MIT
// expect.h: a check that ends the test program if it fails, and a log function that drops all lines. Include it after the headers
// of include/2023. For C and C++.
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
