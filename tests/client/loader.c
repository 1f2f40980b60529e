// SPDX-License-Identifier: MIT
// loader.c: a program that is not linked with ggml and loads libraries one after the other, as Node does: with lazy binding and
// separate symbol scopes. For each library it prints the addresses of ggml_init and ggml_backend_load_all that the library sees,
// and the client release that the base library has detected. At the end it loads backends from a folder that does not exist, as
// some programs do before they try another folder.
//
//     loader LIBRARY...

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    void (*load_all)(const char *) = NULL;
    for (int i = 1; i < argc; i++) {
        void *handle = dlopen(argv[i], RTLD_LAZY | RTLD_LOCAL);
        if (handle == NULL) {
            printf("%s\n", dlerror());
            return 1;
        }
        int (*minor)(void);
        void *p = dlsym(handle, "berth_client_minor");
        memcpy(&minor, &p, sizeof minor);
        printf("base %p registry %p client 0.%d\n", dlsym(handle, "ggml_init"), dlsym(handle, "ggml_backend_load_all"),
            minor != NULL ? minor() : -1);
        fflush(stdout);
        p = dlsym(handle, "ggml_backend_load_all_from_path");
        if (p != NULL) {
            memcpy(&load_all, &p, sizeof load_all);
        }
    }
    if (load_all != NULL) {
        load_all("/no/such/folder");
    }
    return 0;
}
