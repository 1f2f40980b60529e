// SPDX-License-Identifier: MIT
// oracle_link.c: starts op-oracle, which is in the folder of this program, and communicates with it.

#include "oracle_link.h"

#include "support/oracle.h"

#include <sys/mman.h>

static struct {
    int fd;
    void *data;
    size_t size;
} arena = {.fd = -1};

void *op_arena_new(size_t size) {
    const int fd = memfd_create("op-suite", 0); // the oracle inherits it
    if (fd < 0 || ftruncate(fd, (off_t) size) != 0) {
        return NULL;
    }
    void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        return NULL;
    }
    arena.fd = fd, arena.data = data, arena.size = size;
    return data;
}

// Returns 0 if the oracle runs, its exit code if it has ended, -1 if it could not be started.
static int start(struct op_oracle *o, const char *dir) {
    char path[PATH_MAX], fd[16], address[32], size[32];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 16);
    if (n < 0) {
        return -1;
    }
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    strcpy(slash != NULL ? slash + 1 : path, "op-oracle");
    snprintf(fd, sizeof fd, "%d", arena.fd);
    snprintf(address, sizeof address, "%zu", (size_t) (uintptr_t) arena.data);
    snprintf(size, sizeof size, "%zu", arena.size);
    char *argv[] = {path, fd, address, size, (char *) dir, (char *) (o->filter != NULL ? o->filter : ""), NULL};
    if (!child_start(&o->child, argv, true)) {
        return -1;
    }
    return pipe_read(o->child.from, o->name, sizeof o->name) ? 0 : child_close(&o->child);
}

// Up to 32 attempts: libraries are loaded at random addresses, so one may be at the arena's address.
static bool start_repeat(struct op_oracle *o, const char *dir) {
    int code = OP_ORACLE_ADDRESS_TAKEN;
    for (int i = 0; i < 32 && code == OP_ORACLE_ADDRESS_TAKEN; i++) {
        code = start(o, dir);
    }
    return code == 0;
}

bool op_oracle_open(struct op_oracle *o) {
    const char *dir = oracle_dir();
    if (dir == NULL) {
        printf("no reference: %s\n", oracle_why());
        return false;
    }
    if (!start_repeat(o, dir)) {
        printf("no reference: none of its CPU libraries%s%s runs on this machine\n", o->filter != NULL ? " like " : "",
            o->filter != NULL ? o->filter : "");
        return false;
    }
    return true;
}

int op_oracle_close(struct op_oracle *o) {
    return child_close(&o->child);
}

// The reference does not check types and ops, and would read beyond its tables.
static bool is_known(const struct ggml_tensor *t) {
    enum { REFERENCE_TYPES = 43, REFERENCE_OPS = 101 };
    return t == NULL || ((unsigned) t->type < REFERENCE_TYPES && (unsigned) t->op < REFERENCE_OPS);
}

static bool are_known(struct ggml_cgraph *graph) {
    bool all = true;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *t = ggml_graph_node(graph, i);
        all = all && is_known(t);
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            all = all && is_known(t->src[k]);
        }
    }
    return all;
}

enum op_outcome op_oracle_compute(struct op_oracle *o, struct ggml_cgraph *graph, struct ggml_tensor *node) {
    const struct op_request request = {graph, node};
    int32_t outcome;
    if (!are_known(graph)) {
        return OP_UNSUPPORTED;
    }
    if (o->child.pid == 0 && !start_repeat(o, oracle_dir())) {
        return OP_DIED;
    }
    if (!pipe_write(o->child.to, &request, sizeof request) || !pipe_read(o->child.from, &outcome, sizeof outcome)) {
        op_oracle_close(o);
        return OP_DIED;
    }
    return (enum op_outcome) outcome;
}
