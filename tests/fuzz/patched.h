// SPDX-License-Identifier: MIT
// patched.h: changes a few bytes of a valid file. Random bytes would rarely pass the first checks of a large format. The input is
// a list of changes of 6 bytes each: position (3), kind (1), value (2). An input whose size is not a multiple of 6 also truncates
// the file.
#pragma once

#include "fuzz/fuzz.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct patched {
    uint8_t *original; // the unchanged file
    size_t size;
    uint8_t *bytes; // the changed file
    int fd;
    char path[64];
};

// Reads the valid file (the sample). The changed file is a file in memory, whose name is p->path.
static inline void patched_open(struct patched *p, const char *path) {
    FILE *file = fopen(path, "rb");
    expect(file != NULL && fseek(file, 0, SEEK_END) == 0, "cannot open the sample");
    p->size = (size_t) ftell(file);
    p->original = malloc(p->size);
    p->bytes = malloc(p->size);
    expect(p->original != NULL && p->bytes != NULL && fseek(file, 0, SEEK_SET) == 0, "cannot load the sample");
    expect(fread(p->original, 1, p->size, file) == p->size, "cannot read the sample");
    fclose(file);
    p->fd = (int) memfd_create("patched", 0);
    expect(p->fd >= 0, "cannot create a file in memory");
    snprintf(p->path, sizeof p->path, "/proc/self/fd/%d", p->fd);
}

static inline void patch(uint8_t *at, size_t room, uint8_t kind, uint16_t number) {
    static const uint64_t edge_values[] = {
        0, 1, 2, 255, 256, 65535, 65536, UINT32_MAX, (uint64_t) 1 << 32, INT64_MAX, (uint64_t) 1 << 63, UINT64_MAX};
    const uint64_t value = kind < 128 ? number : edge_values[number % (sizeof edge_values / sizeof *edge_values)];
    const size_t n = (size_t) 1 << (kind % 4);
    memcpy(at, &value, n < room ? n : room); // little endian, as in the formats
}

static inline const char *patched_write(struct patched *p, const uint8_t *data, size_t size) {
    size_t n_bytes = p->size;
    memcpy(p->bytes, p->original, p->size);
    for (size_t i = 0; i + 6 <= size; i += 6) {
        const uint8_t *d = data + i;
        const size_t where = ((size_t) d[0] | (size_t) d[1] << 8 | (size_t) d[2] << 16) % p->size;
        patch(p->bytes + where, p->size - where, d[3], (uint16_t) (d[4] | d[5] << 8));
    }
    if (size % 6 != 0) {
        n_bytes = p->size / 6 * (size % 6);
    }
    expect(
        ftruncate(p->fd, 0) == 0 && pwrite(p->fd, p->bytes, n_bytes, 0) == (ssize_t) n_bytes, "cannot write the file in memory");
    return p->path;
}
