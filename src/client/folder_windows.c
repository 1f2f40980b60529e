// SPDX-License-Identifier: MIT
// folder_windows.c: takes the place of folder.c on Windows, where libraries have another format.

#include "client/folder.h"

bool client_folder_read(struct client_folder *folder, const char *path, const char *berth_path) {
    (void) berth_path;
    *folder = (struct client_folder){.path = path};
    snprintf(folder->why, sizeof folder->why,
        "%s: clients cannot be checked on Windows: load the client; Windows refuses it if Berth lacks a function", path);
    return false;
}

void client_folder_fini(struct client_folder *folder) {
    (void) folder;
}

bool client_folder_works(const struct client_folder *folder) {
    (void) folder;
    return false;
}

const char *client_release_ggml(const char *release) {
    (void) release;
    return NULL;
}
