// SPDX-License-Identifier: MIT
// host.c: buffers in host memory: allocated ("CPU"), memory of the caller ("CPU_Mapped"), and mapped files ("File").
// Host buffers are in the base library, because every backend copies through host memory.
// The context of a host buffer is the address of its first byte.

#include "backend/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HOST_ALIGN 32       // guaranteed alignment of tensors, in bytes
#define HOST_ALLOC_ALIGN 64 // alignment of allocated memory, in bytes: a cache line, which suits vector loads

static void host_free(ggml_backend_buffer_t buffer) {
    berth_aligned_free(buffer->context);
}

static void *host_base(ggml_backend_buffer_t buffer) {
    return buffer->context;
}

static void host_memset(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, uint8_t value, size_t offset, size_t size) {
    (void) buffer;
    memset((char *) tensor->data + offset, value, size);
}

static void host_set(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    (void) buffer;
    memmove((char *) tensor->data + offset, data, size);
}

static void host_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    (void) buffer;
    memmove(data, (const char *) tensor->data + offset, size);
}

static bool host_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    (void) buffer;
    if (!ggml_backend_buffer_is_host(berth_tensor_buffer(src))) {
        return false;
    }
    memmove(dst->data, src->data, ggml_nbytes(src));
    return true;
}

static void host_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    memset(buffer->context, value, buffer->size);
}

const struct ggml_backend_buffer_i berth_host_iface = {
    .get_base = host_base,
    .memset_tensor = host_memset,
    .set_tensor = host_set,
    .get_tensor = host_get,
    .cpy_tensor = host_copy,
    .clear = host_clear,
};

// ---- types ----

static const char *owned_name(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return "CPU";
}

static const char *mapped_name(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return "CPU_Mapped";
}

static size_t host_alignment(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return HOST_ALIGN;
}

static bool host_is_host(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return true;
}

static ggml_backend_buffer_t host_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    void *memory = berth_aligned_alloc(HOST_ALLOC_ALIGN, size);
    if (memory == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_ALLOC_FAILED, "out of memory: cannot allocate a host buffer of %zu bytes", size);
    }
#if BERTH_DEBUG >= 3
    memset(memory, 0xFF, size);
#endif
    struct ggml_backend_buffer_i iface = berth_host_iface;
    iface.free_buffer = host_free;
    ggml_backend_buffer_t buffer = ggml_backend_buffer_init(buft, iface, memory, size);
    if (buffer == NULL) {
        berth_aligned_free(memory);
    }
    return buffer;
}

#define HOST_TYPE(name) \
    { \
        .iface = {.get_name = name, .alloc_buffer = host_alloc, .get_alignment = host_alignment, .is_host = host_is_host } \
    }

ggml_backend_buffer_type_t ggml_backend_cpu_buffer_type(void) {
    static struct ggml_backend_buffer_type type = HOST_TYPE(owned_name);
    return &type;
}

static void mapped_free(ggml_backend_buffer_t buffer) {
    berth_weights_remove(buffer->context, buffer->size);
}

// The caller owns the memory, which must outlive the buffer.
ggml_backend_buffer_t ggml_backend_cpu_buffer_from_ptr(void *ptr, size_t size) {
    static struct ggml_backend_buffer_type type = HOST_TYPE(mapped_name);
    if (ptr == NULL || (uintptr_t) ptr % HOST_ALIGN != 0) {
        return BERTH_FAIL_NULL(
            GGML_STATUS_FAILED, "ggml_backend_cpu_buffer_from_ptr: address %p is not aligned to %d bytes", ptr, HOST_ALIGN);
    }
    struct ggml_backend_buffer_i iface = berth_host_iface;
    iface.free_buffer = mapped_free;
    ggml_backend_buffer_t buffer = ggml_backend_buffer_init(&type, iface, ptr, size);
    if (buffer != NULL) {
        berth_weights_add(ptr, size);
    }
    return buffer;
}

// ---- files ----

// A "File" buffer maps a nameless file. The system may write the file's pages to disk, so values that are spilled to the buffer
// need no main memory. Disk space is allocated when the buffer is created. So if the disk is full, the allocation fails, instead
// of a later access (SIGBUS). The context of the buffer type is the path of its folder.

static void file_free(ggml_backend_buffer_t buffer) {
    munmap(buffer->context, buffer->size > 0 ? buffer->size : 1);
}

// Returns the descriptor of a nameless file of `size` bytes. On failure returns -1 and sets errno.
static int file_open(const char *folder, size_t size) {
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) { // the file system does not support nameless files: the name is removed after creation
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

static const char *file_name(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return "File";
}

ggml_backend_buffer_type_t berth_file_buffer_type_new(const char *folder) {
    const size_t n = folder == NULL ? 0 : strlen(folder);
    if (n == 0) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "berth_file_buffer_type_new: the folder is NULL or empty");
    }
    ggml_backend_buffer_type_t buft = berth_calloc(1, sizeof *buft + n + 1);
    if (buft == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_ALLOC_FAILED, "out of memory for a buffer type of files in %s", folder);
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
