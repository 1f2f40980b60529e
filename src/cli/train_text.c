// SPDX-License-Identifier: MIT
// train_text.c: texts to train on: a file, standard input, or all files of a folder by name.

#include "cli/train.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct reading {
    enum train_split split;
    const struct vocab *vocab;
    struct train_data *data;
    size_t n_odd;   // files that are not text
    char odd[4096]; // the first of them
};

// Text in an old encoding has some bytes that are not UTF-8, but neither NUL nor a tenth of all.
static bool is_text(const char *text, size_t size) {
    size_t n_bad = 0;
    uint32_t c;
    for (size_t i = 0, n; i < size; i += n) {
        n = utf8_next(text + i, size - i, &c);
        n_bad += n == 1 && c == 0xFFFD;
    }
    return memchr(text, '\0', size) == NULL && n_bad <= size / 10;
}

static int file_read(struct reading *r, const char *path) {
    struct model_error error = {""};
    size_t size = 0;
    char *text = cli_read_text(path, &size);
    if (text == NULL) {
        return CLI_FAILURE;
    }
    if (!is_text(text, size) && r->n_odd++ == 0) {
        snprintf(r->odd, sizeof r->odd, "%s", path);
    }
    const bool ok = train_data_add(r->data, r->vocab, text, size, r->split, &error);
    berth_free(text);
    return ok ? CLI_OK : cli_fail(CLI_FAILURE, "%s: %s", path, error.text);
}

static int is_shown(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static int folder_read(struct reading *r, const char *path) {
    struct dirent **entries;
    const int n = scandir(path, &entries, is_shown, alphasort);
    int code = n < 0 ? cli_fail(CLI_FAILURE, "%s: cannot be read: %s", path, strerror(errno)) : CLI_OK;
    for (int i = 0; i < n; i++) {
        char name[4096];
        struct stat st;
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        if (stat(name, &st) == 0 && S_ISREG(st.st_mode) && code == CLI_OK) { // folders within are not looked into
            code = file_read(r, name);
        }
        free(entries[i]);
    }
    if (n >= 0) {
        free(entries);
    }
    return code;
}

int cli_train_read(const struct cli_train *o, const char *path, const struct vocab *vocab, struct train_data *data) {
    struct reading r = {.split = o->split, .vocab = vocab, .data = data};
    struct stat st;
    const bool is_folder = strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    const int code = is_folder ? folder_read(&r, path) : file_read(&r, path);
    if (code != CLI_OK || !cli_train_is_first(o)) {
        return code;
    }
    if (r.n_odd == 1) {
        cli_warn("%s: is not UTF-8 text but looks like binary data; the model learns its bytes", r.odd);
    } else if (r.n_odd > 1) {
        cli_warn("%s and %zu other files are not UTF-8 text but look like binary data; the model learns their bytes", r.odd,
            r.n_odd - 1);
    }
    return code;
}
