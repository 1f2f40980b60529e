// SPDX-License-Identifier: MIT
// fuzz.h: helpers of all fuzz targets: a silent log, and an abort if a condition does not hold.
#pragma once

#include "berth.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void quiet(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level;
    (void) text;
    (void) user_data;
}

static inline void expect(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "fuzz: %s: %s\n", what, berth_last_error());
        abort();
    }
}
