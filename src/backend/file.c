// SPDX-License-Identifier: MIT
// file.c: buffers that are mapped files without a name, in a folder of the caller's: host memory that the system may write out
// and take back, so that a value that moves there leaves the memory that counts. The space is taken before it is mapped: a full
// disk fails the allocation of the buffer instead of raising a signal later. context of a buffer = first byte, of a type = its folder.

#include "backend/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void file_free(ggml_backend_buffer_t buffer) {
    munmap(buffer->context, buffer->size > 0 ? buffer->size : 1);
}

// A file of so many bytes that has no name, or -1 and errno.
static int file_open(const char *folder, size_t size) {
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) { // a file system without such files: one that loses its name
        char path[4096];
        const int n = snprintf(path, sizeof path, "%s/berth-XXXXXX", folder);
        fd = n > 0 && (size_t) n < sizeof path ? mkostemp(path, O_CLOEXEC) : -1;
        if (fd >= 0) {
            unlink(path);
        }
    }
    const int rc = fd < 0 ? 0 : posix_fallocate(fd, 0, (off_t) size);
    if (rc != 0) {
        close(fd);
        errno = rc;
        return -1;
    }
    return fd;
}

static ggml_backend_buffer_t file_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    const size_t n = size > 0 ? size : 1;
    const int fd = file_open(buft->context, n);
    void *memory = fd < 0 ? MAP_FAILED : mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "cannot create a file of %zu bytes in %s: %s", n, (const char *) buft->context,
            strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    struct ggml_backend_buffer_i iface = berth_host_iface;
    iface.free_buffer = file_free;
    ggml_backend_buffer_t buffer = memory == MAP_FAILED ? NULL : ggml_backend_buffer_init(buft, iface, memory, size);
    if (buffer == NULL && memory != MAP_FAILED) {
        munmap(memory, n);
    }
    return buffer;
}

// ---- types ----

static const char *file_name(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return "File";
}

ggml_backend_buffer_type_t berth_file_buffer_type_new(const char *folder) {
    const size_t n = folder == NULL ? 0 : strlen(folder);
    ggml_backend_buffer_type_t buft = n == 0 ? NULL : berth_calloc(1, sizeof *buft + n + 1);
    if (buft == NULL) {
        n == 0 ? berth_fail(GGML_STATUS_FAILED, "berth_file_buffer_type_new: no folder")
               : berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory: a buffer type in %s", folder);
        return NULL;
    }
    buft->iface = ggml_backend_cpu_buffer_type()->iface;
    buft->iface.get_name = file_name;
    buft->iface.alloc_buffer = file_alloc;
    buft->context = memcpy(buft + 1, folder, n + 1);
    return buft;
}

void berth_file_buffer_type_free(ggml_backend_buffer_type_t buft) {
    berth_free(buft);
}
