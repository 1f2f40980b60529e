// SPDX-License-Identifier: MIT
// input.c: reads text, and registers the files that a command reads, so that no output replaces them (output.c). options.c
// registers the files of options and operands.

#include "cli/cli.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_SIZE ((size_t) 1 << 30)
#define PIECE ((size_t) 1 << 16) // smallest number of bytes per read

// Returns the content of the file, followed by a NUL. On failure returns NULL and sets errno.
static char *file_read(FILE *file, size_t *size) {
    char *text = NULL;
    size_t cap = 0;
    *size = 0;
    for (size_t n = 1; n > 0; *size += n) {
        if (*size > MAX_SIZE || !berth_grow((void **) &text, &cap, *size + PIECE, 1)) {
            berth_free(text);
            errno = *size > MAX_SIZE ? EFBIG : ENOMEM;
            return NULL;
        }
        n = fread(text + *size, 1, cap - *size - 1, file);
    }
    if (ferror(file)) {
        const int why = errno;
        berth_free(text);
        errno = why;
        return NULL;
    }
    text[*size] = '\0';
    return text;
}

char *cli_read_text(const char *path, size_t *size) {
    const bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    char *text = file != NULL ? file_read(file, size) : NULL;
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

// ---- files that are read ----

struct input {
    dev_t dev;
    ino_t ino;
    enum cli_use use;
};

static struct {
    struct input *list;
    size_t n, cap;
    bool is_incomplete; // out of memory: any file may be an input
} inputs;

static void input_register(const struct stat *st, enum cli_use use) {
    if (!S_ISREG(st->st_mode)) {
        return;
    }
    if (!berth_grow((void **) &inputs.list, &inputs.cap, inputs.n + 1, sizeof *inputs.list)) {
        inputs.is_incomplete = true;
        return;
    }
    inputs.list[inputs.n++] = (struct input){st->st_dev, st->st_ino, use};
}

static void folder_register(const char *path, enum cli_use use) {
    DIR *folder = opendir(path);
    struct stat st;
    for (const struct dirent *e; folder != NULL && (e = readdir(folder)) != NULL;) {
        char name[8192];
        const int n = snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (n > 0 && (size_t) n < sizeof name && stat(name, &st) == 0) {
            input_register(&st, use);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

// If the file is one part of a split model, registers all parts. They are named NAME-00001-of-00003.gguf and so on.
static void parts_register(const char *path, enum cli_use use) {
    static const char like[] = "-00001-of-00001.gguf";
    const size_t size = strlen(path), tail = sizeof like - 1;
    const char *end = size > tail ? path + size - tail : "";
    int64_t no, n;
    if (sscanf(end, "-%5" SCNd64 "-of-%5" SCNd64 ".gguf", &no, &n) != 2 || size >= 4096) {
        return;
    }
    struct stat st;
    for (int64_t i = 1; i <= n; i++) {
        char part[4096 + 32];
        snprintf(part, sizeof part, "%.*s-%05" PRId64 "-of-%05" PRId64 ".gguf", (int) (size - tail), path, i, n);
        if (stat(part, &st) == 0) {
            input_register(&st, use);
        }
    }
}

void cli_input_add(const char *path, enum cli_use use) {
    struct stat st;
    if (strcmp(path, "-") == 0) {
        return; // cli_input_refuses always checks standard input
    }
    if (stat(path, &st) == 0) {
        S_ISDIR(st.st_mode) ? folder_register(path, use) : input_register(&st, use);
        parts_register(path, use);
        return;
    }
    // No such file exists. The text may be an adapter with a scale, FILE:SCALE.
    const char *colon = strrchr(path, ':');
    char *file = colon != NULL ? strndup(path, (size_t) (colon - path)) : NULL;
    if (file != NULL && stat(file, &st) == 0) {
        input_register(&st, use);
    }
    inputs.is_incomplete = inputs.is_incomplete || (colon != NULL && file == NULL);
    free(file);
}

const char *cli_input_refuses(const char *path, enum cli_use use) {
    static const char is_read[] = "this file is also an input: choose another name for the output";
    struct stat st, in;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) {
        return NULL;
    }
    if (inputs.is_incomplete) {
        return "out of memory to compare it with the input files";
    }
    if (fstat(STDIN_FILENO, &in) == 0 && in.st_dev == st.st_dev && in.st_ino == st.st_ino) {
        return is_read;
    }
    for (size_t i = 0; i < inputs.n; i++) {
        const struct input *x = &inputs.list[i];
        if (x->dev == st.st_dev && x->ino == st.st_ino && (x->use != CLI_UPDATE || use != CLI_UPDATE)) {
            return is_read;
        }
    }
    return NULL;
}
