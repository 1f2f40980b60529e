// SPDX-License-Identifier: MIT
// dirent.h: lists folders (files.c).
#pragma once

struct dirent {
    char d_name[1024]; // UTF-8
};

typedef struct posix_dir DIR;

#define opendir posix_opendir
#define readdir posix_readdir
#define closedir posix_closedir

DIR *posix_opendir(const char *path);
struct dirent *posix_readdir(DIR *dir);
int posix_closedir(DIR *dir);

#define scandir posix_scandir
#define alphasort posix_alphasort

// Lists the entries for which `is_wanted` is true. The caller frees each entry and the list. Returns the number of entries, or -1.
int posix_scandir(const char *path, struct dirent ***entries, int (*is_wanted)(const struct dirent *),
    int (*compare)(const struct dirent **, const struct dirent **));
int posix_alphasort(const struct dirent **a, const struct dirent **b);
