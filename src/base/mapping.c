// SPDX-License-Identifier: MIT
// mapping.c: finds the file behind an address in /proc/self/maps, reads its pages ahead, and drops them.
//
// A page of a mapped file is in main memory until the system needs the memory, and counts towards the limit of the control group
// that first used the page. To drop a page, it must first be removed from the address space (MADV_DONTNEED), and then from the
// system's cache of the file (POSIX_FADV_DONTNEED, which leaves pages alone that another process has mapped).

#include "base/mapping.h"

#include "base/min.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#    define MADV_POPULATE_READ 22 // since Linux 5.14
#endif
#define REQUEST_SIZE ((size_t) 128 << 10) // bytes per request: the usual read-ahead of Linux
#define READ_SIZE 65536                   // bytes per read where MADV_POPULATE_READ is missing; on the stack

// ---- the file behind an address ----

struct maps_line {
    uintptr_t begin, end;
    uint64_t offset;
    unsigned long inode;
    bool is_shared;
    char path[PATH_MAX];
};

static bool line_parse(const char *text, struct maps_line *line) {
    unsigned long begin, end, offset;
    char access[5];
    int at = 0;
    if (sscanf(text, "%lx-%lx %4s %lx %*s %lu %n", &begin, &end, access, &offset, &line->inode, &at) != 5 || at == 0) {
        return false;
    }
    line->begin = begin;
    line->end = end;
    line->offset = offset;
    line->is_shared = access[3] == 's';
    snprintf(line->path, sizeof line->path, "%.*s", (int) strcspn(text + at, "\n"), text + at);
    return true;
}

// Returns whether [begin, end) is a mapping of one file, or several that continue each other. *first: the first of them.
static bool maps_find(uintptr_t begin, uintptr_t end, struct maps_line *first) {
    char text[PATH_MAX + 128];
    struct maps_line line;
    uintptr_t at = begin; // all bytes before are found
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && at < end && fgets(text, sizeof text, maps) != NULL) {
        if (!line_parse(text, &line) || line.end <= at) {
            continue;
        }
        if (line.begin > at || !line.is_shared || line.inode == 0) {
            break;
        }
        if (at == begin) {
            *first = line;
        } else if (line.inode != first->inode || line.offset - first->offset != line.begin - first->begin) {
            break;
        }
        at = line.end;
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return at >= end;
}

bool berth_mapping_open(struct berth_mapping *m, const void *at, size_t size) {
    struct maps_line line;
    struct stat st;
    uint64_t file_size;
    const char *why;
    *m = (struct berth_mapping){.begin = (uintptr_t) at, .end = (uintptr_t) at + size, .fd = -1};
    if (size == 0 || m->end < m->begin || !maps_find(m->begin, m->end, &line)) {
        return false;
    }
    m->offset = line.offset + (m->begin - line.begin);
    m->fd = berth_file_open_fd(line.path, &file_size, &why);
    // Another file may have the path by now. Device numbers are not compared, because some file systems report several.
    if (m->fd < 0 || fstat(m->fd, &st) != 0 || (unsigned long) st.st_ino != line.inode) {
        berth_mapping_close(m);
        return false;
    }
    (void) posix_fadvise(m->fd, 0, 0, POSIX_FADV_RANDOM); // a read must not read pages after its end
    return true;
}

void berth_mapping_close(struct berth_mapping *m) {
    if (m->fd >= 0) {
        close(m->fd);
    }
    m->fd = -1;
}

// ---- pages ----

static bool is_in_memory(uintptr_t begin, size_t size, size_t page_size) {
    unsigned char pages[READ_SIZE / 4096];
    const size_t n = (size + page_size - 1) / page_size;
    if (page_size < 4096 || mincore((void *) begin, size, pages) != 0) {
        return false;
    }
    size_t i = 0;
    while (i < n && (pages[i] & 1) != 0) {
        i++;
    }
    return i == n;
}

// Reads through the file instead of the mapping. The pages are then in the system's cache. A read error is an errno here, while
// an access through the mapping would raise SIGBUS.
static int piece_read(const struct berth_mapping *m, uintptr_t begin, uintptr_t end) {
    char bytes[READ_SIZE];
    for (uintptr_t at = begin; at < end;) {
        const ssize_t n = pread(m->fd, bytes, min_size(end - at, sizeof bytes), (off_t) (m->offset + (at - m->begin)));
        if (n > 0) {
            at += (size_t) n;
        } else if (n == 0) {
            return EIO; // the file became shorter
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

// Restricts [*at, *at + size) to the mapping. Returns its end.
static uintptr_t range_clip(const struct berth_mapping *m, uintptr_t *at, size_t size) {
    const uintptr_t end = *at > UINTPTR_MAX - size ? m->end : *at + size;
    if (*at < m->begin) {
        *at = m->begin;
    }
    return min_size(end, m->end);
}

void berth_mapping_set_random(const struct berth_mapping *m, bool is_random) {
    const uintptr_t begin = berth_round_down(m->begin, (size_t) sysconf(_SC_PAGESIZE));
    (void) madvise((void *) begin, m->end - begin, is_random ? MADV_RANDOM : MADV_NORMAL); // only advice
}

// The system limits each request to its read-ahead.
void berth_mapping_request(const struct berth_mapping *m, uintptr_t at, size_t size) {
    const uintptr_t end = range_clip(m, &at, size);
    while (m->fd >= 0 && at < end) {
        const size_t n = min_size(end - at, REQUEST_SIZE);
        (void) posix_fadvise(m->fd, (off_t) (m->offset + (at - m->begin)), (off_t) n, POSIX_FADV_WILLNEED); // only advice
        at += n;
    }
}

// Waits for the request that reads the byte. Usually, all pages before have then been read too.
static void piece_await(const struct berth_mapping *m, uintptr_t at) {
    char byte;
    const ssize_t n = pread(m->fd, &byte, 1, (off_t) (m->offset + (at - m->begin)));
    (void) n; // piece_read reports errors
}

int berth_mapping_load(const struct berth_mapping *m, uintptr_t at, size_t size) {
    const uintptr_t end = range_clip(m, &at, size);
    if (m->fd < 0 || at >= end) {
        return 0;
    }
    const size_t page_size = (size_t) sysconf(_SC_PAGESIZE);
    for (uintptr_t piece = berth_round_down(at, page_size); piece < end; piece += READ_SIZE) {
        const size_t n = min_size(end - piece, READ_SIZE);
        if (!is_in_memory(piece, n, page_size)) {
            piece_await(m, piece + n - 1);
        }
        const int error = is_in_memory(piece, n, page_size) ? 0 : piece_read(m, max_size(piece, at), piece + n);
        if (error != 0) {
            return error;
        }
    }
    const uintptr_t begin = berth_round_down(at, page_size);
    (void) madvise((void *) begin, end - begin, MADV_POPULATE_READ); // only saves page faults
    return 0;
}

void berth_mapping_drop(const struct berth_mapping *m, uintptr_t at, size_t size) {
    const uintptr_t end = range_clip(m, &at, size);
    if (m->fd < 0 || at >= end) {
        return;
    }
    const size_t page_size = (size_t) sysconf(_SC_PAGESIZE);
    const uintptr_t last = berth_round_down(end, page_size);
    uintptr_t first;
    if (!berth_pad_ok(at, page_size, &first) || first >= last) {
        return;
    }
    (void) madvise((void *) first, last - first, MADV_DONTNEED); // only advice: the system drops the pages later
    (void) posix_fadvise(m->fd, (off_t) (m->offset + (first - m->begin)), (off_t) (last - first), POSIX_FADV_DONTNEED);
}
