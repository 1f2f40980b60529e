// SPDX-License-Identifier: MIT
// oracle_main.c: the program op-oracle FD ADDRESS SIZE DIR FILTER, which op-suite starts. It maps op-suite's arena at the same
// address and loads the reference's newest CPU library that runs here and whose name contains FILTER. It links no library of
// Berth.

#include "custom_functions.h"
#include "oracle_link.h"

#include "support/oracle_cpus.h"

#include "ggml-backend-impl.h"
#include "ggml-cpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct reference {
    struct ggml_cplan (*plan)(const struct ggml_cgraph *, int, struct ggml_threadpool *);
    enum ggml_status (*compute)(struct ggml_cgraph *, struct ggml_cplan *);
    ggml_backend_dev_t dev;
    void *work;
    size_t work_size;
};

// Sets *function to the library's symbol; ISO C has no cast for it.
static bool symbol(void *lib, const char *name, void *function) {
    void *found = dlsym(lib, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static void *load(const char *dir, const char *name, int flags) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return dlopen(path, RTLD_NOW | flags);
}

// NULL: no library runs here.
static const char *open_reference(struct reference *r, const char *dir, const char *filter) {
    if (load(dir, "libggml-base.so", RTLD_GLOBAL) == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof oracle_cpus / sizeof oracle_cpus[0]; i++) {
        if (strstr(oracle_cpus[i], filter) == NULL) {
            continue;
        }
        int (*score)(void) = NULL;
        ggml_backend_reg_t (*init)(void) = NULL;
        void *lib = load(dir, oracle_cpus[i], RTLD_LOCAL);
        if (lib != NULL && symbol(lib, "ggml_backend_score", &score) && score() != 0 && symbol(lib, "ggml_backend_init", &init) &&
            symbol(lib, "ggml_graph_plan", &r->plan) && symbol(lib, "ggml_graph_compute", &r->compute)) {
            ggml_backend_reg_t reg = init();
            r->dev = reg->iface.get_device(reg, 0);
            return oracle_cpus[i];
        }
    }
    return NULL;
}

static enum op_outcome compute(struct reference *r, const struct op_request *request) {
    if (!r->dev->iface.supports_op(r->dev, request->node)) {
        return OP_UNSUPPORTED;
    }
    op_custom_bind(request->node);
    struct ggml_cplan plan = r->plan(request->graph, 1, NULL);
    if (plan.work_size > r->work_size) {
        free(r->work);
        r->work = malloc(plan.work_size);
        r->work_size = r->work != NULL ? plan.work_size : 0;
    }
    plan.work_data = r->work;
    return r->compute(request->graph, &plan) == GGML_STATUS_SUCCESS ? OP_DONE : OP_FAILED;
}

int main(int argc, char **argv) {
    if (argc != 6) {
        return 2;
    }
    setenv("GGML_NO_BACKTRACE", "1", 1);
    void *address = (void *) (uintptr_t) strtoull(argv[2], NULL, 10);
    const size_t size = strtoull(argv[3], NULL, 10);
    if (mmap(address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, atoi(argv[1]), 0) != address) {
        return OP_ORACLE_ADDRESS_TAKEN;
    }
    struct reference r = {0};
    char name[64] = "";
    const char *found = open_reference(&r, argv[4], argv[5]);
    if (found == NULL) {
        return 1;
    }
    snprintf(name, sizeof name, "%s", found);
    if (!pipe_write(STDOUT_FILENO, name, sizeof name)) {
        return 1;
    }
    for (struct op_request request; pipe_read(STDIN_FILENO, &request, sizeof request);) {
        const int32_t outcome = compute(&r, &request);
        if (!pipe_write(STDOUT_FILENO, &outcome, sizeof outcome)) {
            break;
        }
    }
    return 0;
}
