// SPDX-License-Identifier: MIT
// check.h: what all test programs of 2023 share: the headers of then, and a check that ends the program.
#pragma once

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

#include "berth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
