// SPDX-License-Identifier: MIT
// oracle_main.c: conformance-oracle LIBRARY: runs recipes from stdin on the reference and writes their outcomes to stdout.
#include "link.h"

#include "support/pipe.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    setenv("GGML_NO_BACKTRACE", "1", 1);
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        fprintf(stderr, "conformance-oracle: %s\n", argc == 2 ? dlerror() : "usage: conformance-oracle LIBRARY");
        return 1;
    }
    struct api api;
    struct machine m; // runs recipes (machine.h)
    struct recipe r = {0};
    struct outcome o = {0};
    struct call *calls = NULL;
    int32_t n_alloc = 0;
    api_load(&api, library);
    if (!machine_init(&m, &api)) {
        fprintf(stderr, "conformance-oracle: %s is not ggml\n", argv[1]);
        return 1;
    }
    while (pipe_read(STDIN_FILENO, &r, sizeof(r))) {
        if (r.n_calls > n_alloc) {
            n_alloc = 2 * r.n_calls;
            calls = realloc(calls, (size_t) n_alloc * sizeof(*calls));
            if (calls == NULL) {
                return 1;
            }
        }
        r.calls = calls;
        if (!pipe_read(STDIN_FILENO, calls, (size_t) r.n_calls * sizeof(*calls))) {
            break;
        }
        machine_run(&m, &r, &o);
        if (!pipe_write(STDOUT_FILENO, &o, sizeof(o)) || !pipe_write(STDOUT_FILENO, o.text, (size_t) o.n_text)) {
            break;
        }
    }
    return 0;
}
