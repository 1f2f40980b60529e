// SPDX-License-Identifier: MIT
// stdio.h: see posix.h.
#pragma once

#include_next <stdio.h>

#include "posix.h"

#define fopen posix_fopen
#define rename posix_rename
#define getline posix_getline
#define fclose posix_fclose

// Streams whose bytes a function receives. It receives them when the stream is closed.
typedef ssize_t cookie_write_function_t(void *cookie, const char *bytes, size_t size);
typedef struct {
    cookie_write_function_t *write;
} cookie_io_functions_t;
FILE *fopencookie(void *cookie, const char *mode, cookie_io_functions_t functions);
int posix_fclose(FILE *file);
