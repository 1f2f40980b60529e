// SPDX-License-Identifier: MIT
// train_text.c: texts to train on: a file, standard input, or all files of a folder by name.

#include "cli/train.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int file_read(struct train_data *data, const struct vocab *vocab, const char *path, enum train_split split) {
    struct model_error error = {""};
    size_t size              = 0;
    char *text               = cli_read_text(path, &size);
    if (text == NULL) {
        return CLI_FAILURE;
    }
    const bool ok = train_data_add(data, vocab, text, size, split, &error);
    free(text);
    return ok ? CLI_OK : cli_fail(CLI_FAILURE, "%s: %s", path, error.text);
}

static int is_shown(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static int folder_read(struct train_data *data, const struct vocab *vocab, const char *path, enum train_split split) {
    struct dirent **entries;
    const int n = scandir(path, &entries, is_shown, alphasort);
    int code    = n < 0 ? cli_fail(CLI_FAILURE, "%s: cannot be read: %s", path, strerror(errno)) : CLI_OK;
    for (int i = 0; i < n; i++) {
        char name[4096];
        struct stat st;
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        if (code == CLI_OK && stat(name, &st) == 0 && S_ISREG(st.st_mode)) { // folders within are not looked into
            code = file_read(data, vocab, name, split);
        }
        free(entries[i]);
    }
    if (n >= 0) {
        free(entries);
    }
    return code;
}

int cli_train_read(struct train_data *data, const struct vocab *vocab, const char *path, enum train_split split) {
    struct stat st;
    const bool is_folder = strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    return is_folder ? folder_read(data, vocab, path, split) : file_read(data, vocab, path, split);
}
