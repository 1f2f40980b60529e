// SPDX-License-Identifier: MIT
// input.c: texts that a command takes as they are: a file, or standard input.

#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_SIZE ((size_t) 1 << 30)

// All of an open file; NULL with errno.
static char *read_all(FILE *file, size_t *size) {
    char *text = NULL;
    size_t cap = 0;
    *size      = 0;
    for (size_t n = 1; n > 0; *size += n) {
        if (*size == cap) {
            cap        = cap > 0 ? 2 * cap : 1 << 16;
            char *more = cap <= MAX_SIZE ? realloc(text, cap + 1) : NULL;
            if (more == NULL) {
                free(text);
                errno = cap > MAX_SIZE ? EFBIG : ENOMEM;
                return NULL;
            }
            text = more;
        }
        n = fread(text + *size, 1, cap - *size, file);
    }
    if (ferror(file)) {
        const int why = errno;
        free(text);
        errno = why;
        return NULL;
    }
    text[*size] = '\0';
    return text;
}

char *cli_read_text(const char *path, size_t *size) {
    const bool is_stdin = strcmp(path, "-") == 0;
    FILE *file          = is_stdin ? stdin : fopen(path, "rb");
    char *text          = file != NULL ? read_all(file, size) : NULL;
    if (text == NULL) {
        cli_fail(CLI_FAILURE, "%s: cannot be read: %s", is_stdin ? "standard input" : path, strerror(errno));
    }
    if (file != NULL && !is_stdin) {
        fclose(file);
    }
    return text;
}

bool cli_has_stdin(void) {
    struct stat st;
    return fstat(STDIN_FILENO, &st) == 0 &&
           (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || (S_ISREG(st.st_mode) && st.st_size > 0));
}
