// SPDX-License-Identifier: MIT
// map.c: maps a GGUF file into memory. Tensors point into the mapping, so loading copies nothing and processes share the pages.

#include "base/min.h"
#include "berth-gguf.h"
#include "gguf/read.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STEP_SIZE ((size_t) 8 << 20) // bytes per read, and between two calls of the progress callback

struct berth_gguf_map {
    unsigned char *bytes; // all bytes of the file
    bool is_copy;         // bytes is allocated memory, not a mapping
    size_t size;
    struct gguf_context *meta;
    struct ggml_context *tensors;
    size_t data_size; // bytes from data_offset to the end of the last tensor
};

// NULL, with *why set: reading failed, or the file became shorter.
static unsigned char *copy_make(int fd, size_t size, const char **why) {
    unsigned char *bytes = berth_aligned_alloc((size_t) sysconf(_SC_PAGESIZE), size);
    *why = bytes == NULL ? "out of memory for a copy" : NULL;
    for (size_t at = 0; *why == NULL && at < size;) {
        const ssize_t n = pread(fd, bytes + at, min_size(size - at, STEP_SIZE), (off_t) at);
        if (n > 0) {
            at += (size_t) n;
        } else if (n == 0) {
            *why = "it became shorter while it was read";
        } else if (errno != EINTR) {
            *why = strerror(errno);
        }
    }
    if (*why != NULL) {
        berth_aligned_free(bytes);
        bytes = NULL;
    }
    return bytes;
}

// Maps the file or, with `read`, reads it into memory.
static bool file_map(struct berth_gguf_map *map, const char *path, bool read) {
    uint64_t size;
    const char *why = "the name is NULL";
    const int fd = path == NULL ? -1 : berth_file_open_fd(path, &size, &why);
    if (fd < 0) {
        return BERTH_FAIL_FALSE(GGML_STATUS_FAILED, "gguf: %s: cannot be opened: %s", path == NULL ? "(NULL)" : path, why);
    }
    void *p = NULL;
    if (size == 0 || size > SIZE_MAX) {
        why = size == 0 ? "it is empty" : "it is too large";
    } else if (read) {
        p = copy_make(fd, (size_t) size, &why);
    } else {
        p = mmap(NULL, (size_t) size, PROT_READ, MAP_SHARED, fd, 0); // shared: no page can be changed, so pages can be dropped
        why = p == MAP_FAILED ? strerror(errno) : NULL;
    }
    close(fd);
    if (why != NULL) {
        return BERTH_FAIL_FALSE(GGML_STATUS_FAILED, "gguf: %s: cannot be %s: %s", path, read ? "read" : "mapped", why);
    }
    map->bytes = p;
    map->is_copy = read;
    map->size = (size_t) size;
    return true;
}

// The bytes of every tensor must be in the file. The padding after the last tensor may be missing.
static bool tensors_place(struct berth_gguf_map *map, const char *path) {
    const size_t data_offset = gguf_get_data_offset(map->meta);
    struct ggml_tensor *t = ggml_get_first_tensor(map->tensors);
    for (int64_t i = 0; i < gguf_get_n_tensors(map->meta); i++, t = ggml_get_next_tensor(map->tensors, t)) {
        const size_t end =
            gguf_get_tensor_offset(map->meta, i) + gguf_get_tensor_size(map->meta, i); // cannot overflow: checked by the reader
        if (end > 0 && (data_offset > map->size || end > map->size - data_offset)) {
            return BERTH_FAIL_FALSE(GGML_STATUS_FAILED, "gguf: %s: tensor '%s' ends at offset %zu, but the file has %zu bytes",
                path, t->name, data_offset + end, map->size);
        }
        map->data_size = end;
        t->data = map->bytes + data_offset + gguf_get_tensor_offset(map->meta, i);
    }
    return true;
}

static bool progress_report(const struct berth_gguf_map_params *params, size_t done, size_t all, const char *path) {
    if (params->progress == NULL || params->progress(done, all, params->user_data)) {
        return true;
    }
    return BERTH_FAIL_FALSE(
        GGML_STATUS_ABORTED, "gguf: %s: loading was stopped by the caller at %zu of %zu bytes", path, done, all);
}

// Reports progress. With params->prefetch, also reads one byte per page, so that the disk is read in order.
static bool pages_touch(const struct berth_gguf_map *map, const struct berth_gguf_map_params *params, const char *path) {
    const size_t all = map->data_size;
    const size_t page_size = (size_t) sysconf(_SC_PAGESIZE);
    const unsigned char *p = berth_gguf_map_base(map);
    if (!progress_report(params, 0, all, path)) {
        return false;
    }
    for (size_t at = 0; params->prefetch && !map->is_copy && at < all;) {
        const size_t step = min_size(all - at, STEP_SIZE);
        const size_t begin = (size_t) (p + at - map->bytes) / page_size * page_size;
        (void) madvise(map->bytes + begin, (size_t) (p + at + step - map->bytes) - begin, MADV_WILLNEED); // only advice
        for (size_t i = 0; i < step; i += page_size) {
            (void) *(const volatile unsigned char *) (p + at + i);
        }
        at += step;
        if (at < all && !progress_report(params, at, all, path)) {
            return false;
        }
    }
    return progress_report(params, all, all, path);
}

struct berth_gguf_map *berth_gguf_map_open(const char *path, const struct berth_gguf_map_params *params) {
    static const struct berth_gguf_map_params none;
    struct berth_gguf_map *map = berth_calloc(1, sizeof *map);
    if (map == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_ALLOC_FAILED, "gguf: out of memory: %zu bytes for a map", sizeof *map);
    }
    if (!file_map(map, path, params != NULL && params->read)) {
        goto fail;
    }
    struct gguf_source source;
    berth_gguf_source_buffer(&source, map->bytes, map->size);
    source.name = path;
    map->meta = berth_gguf_read(&source, (struct gguf_init_params){.no_alloc = true, .ctx = &map->tensors});
    if (map->meta == NULL || !tensors_place(map, path) || !pages_touch(map, params == NULL ? &none : params, path)) {
        goto fail;
    }
    return map;
fail:
    berth_gguf_map_close(map);
    return NULL;
}

void berth_gguf_map_close(struct berth_gguf_map *map) {
    if (map == NULL) {
        return;
    }
    ggml_free(map->tensors);
    gguf_free(map->meta);
    if (map->is_copy) {
        berth_aligned_free(map->bytes);
    } else if (map->bytes != NULL) {
        munmap(map->bytes, map->size);
    }
    berth_free(map);
}

const struct gguf_context *berth_gguf_map_meta(const struct berth_gguf_map *map) {
    return map == NULL ? NULL : map->meta;
}

struct ggml_context *berth_gguf_map_tensors(const struct berth_gguf_map *map) {
    return map == NULL ? NULL : map->tensors;
}

const void *berth_gguf_map_data(const struct berth_gguf_map *map, int64_t tensor_id) {
    const struct gguf_info *info = map == NULL ? NULL : berth_gguf_info_at(map->meta, tensor_id, __func__);
    return info == NULL ? NULL : map->bytes + gguf_get_data_offset(map->meta) + info->offset;
}

const void *berth_gguf_map_base(const struct berth_gguf_map *map) {
    return map == NULL || map->data_size == 0 ? NULL : map->bytes + gguf_get_data_offset(map->meta);
}

size_t berth_gguf_map_size(const struct berth_gguf_map *map) {
    return map == NULL ? 0 : map->data_size;
}

void berth_gguf_map_drop(const struct berth_gguf_map *map, const void *data, size_t size) {
    const size_t page_size = (size_t) sysconf(_SC_PAGESIZE);
    const uintptr_t from = (uintptr_t) data, at = map != NULL ? from - (uintptr_t) map->bytes : 0;
    if (map == NULL || map->is_copy || from < (uintptr_t) map->bytes || at > map->size || size > map->size - at) {
        return;
    }
    const size_t begin = (at + page_size - 1) / page_size * page_size, end = (at + size) / page_size * page_size;
    if (begin < end) {
        (void) madvise(map->bytes + begin, end - begin, MADV_DONTNEED); // only advice
    }
}
