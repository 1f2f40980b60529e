// SPDX-License-Identifier: MIT
// replay.c: runs a fuzz target without libFuzzer on files and on the files of folders. Each file runs complete and also truncated
// to 0, 8, 16, ... bytes.

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int n_runs;

static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    uint8_t *data = malloc(1 << 20);
    const size_t size = data == NULL ? 0 : fread(data, 1, 1 << 20, file);
    for (size_t n = 0; n <= size; n += n + 8 <= size ? 8 : n < size ? size - n : 1) {
        uint8_t *copy = malloc(n == 0 ? 1 : n); // exact size, so that sanitizers detect a read past the end
        if (copy == NULL) {
            break;
        }
        memcpy(copy, data, n);
        LLVMFuzzerTestOneInput(copy, n);
        n_runs++;
        free(copy);
    }
    free(data);
    fclose(file);
    return 0;
}

int main(int argc, char **argv) {
    int n_bad = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (folder == NULL) {
            n_bad += replay_file(argv[i]);
            continue;
        }
        for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            char path[4096];
            if (entry->d_name[0] != '.') {
                snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
                n_bad += replay_file(path);
            }
        }
        closedir(folder);
    }
    printf("%d runs\n", n_runs);
    return n_bad > 0 || n_runs == 0;
}
