// SPDX-License-Identifier: MIT
// elf.c: a look at a file before it is loaded. The loader's own message for a library of another machine is "No such file or
// directory"; it waits for a pipe; and what a file that was cut short has lost ends the process as it is touched.
// Looked at: the header, and that the file holds all that is mapped of it. What its code does is its own.

#include "registry/registry.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    unsigned machine;
    const char *name;
} machines[] = {
    {EM_386, "x86"},
    {EM_ARM, "arm"},
    {EM_X86_64, "x86-64"},
    {EM_AARCH64, "arm64"},
    {EM_RISCV, "risc-v"},
    {EM_PPC64, "ppc64"},
    {EM_S390, "s390x"},
    {258, "loongarch"},
};

static const char *machine_name(unsigned machine) {
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        if (machines[i].machine == machine) {
            return machines[i].name;
        }
    }
    return "an unknown machine";
}

static bool read_at(int fd, void *out, size_t size, uint64_t at) {
    return at <= INT64_MAX && pread(fd, out, size, (off_t) at) == (ssize_t) size;
}

// This process's own header: what a library has to match.
static bool own_header(ElfW(Ehdr) * header) {
    uint64_t size;
    const char *why;
    const int fd = berth_file_open_fd("/proc/self/exe", &size, &why);
    const bool ok = fd >= 0 && read_at(fd, header, sizeof *header, 0);
    if (fd >= 0) {
        close(fd);
    }
    return ok;
}

// NULL: every segment's bytes are in the file.
static const char *segments_flaw(int fd, uint64_t size, const ElfW(Ehdr) * header, char *text, size_t text_size) {
    bool has_load = false, has_dynamic = false;
    for (unsigned i = 0; i < header->e_phnum; i++) {
        ElfW(Phdr) segment;
        if (header->e_phentsize != sizeof segment || header->e_phoff > size ||
            !read_at(fd, &segment, sizeof segment, header->e_phoff + (uint64_t) i * sizeof segment)) {
            snprintf(text, text_size, "it is cut short: its table of %u segments is not in its %llu bytes", header->e_phnum,
                (unsigned long long) size);
            return text;
        }
        if (segment.p_type != PT_LOAD && segment.p_type != PT_DYNAMIC) {
            continue;
        }
        if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset) {
            snprintf(text, text_size, "it is cut short: %llu bytes from %llu on are missing in its %llu bytes",
                (unsigned long long) segment.p_filesz, (unsigned long long) segment.p_offset, (unsigned long long) size);
            return text;
        }
        has_load |= segment.p_type == PT_LOAD;
        has_dynamic = has_dynamic || (segment.p_type == PT_DYNAMIC && segment.p_filesz > 0);
    }
    return has_load && has_dynamic ? NULL : "it is no shared library";
}

// NULL: a library for this process, as far as its header tells.
static const char *header_flaw(int fd, uint64_t size, char *text, size_t text_size) {
    ElfW(Ehdr) own, header;
    if (!read_at(fd, &header, sizeof header, 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
        return "it is no shared library";
    }
    if (!own_header(&own)) {
        return NULL;
    }
    if (header.e_ident[EI_CLASS] != own.e_ident[EI_CLASS] || header.e_ident[EI_DATA] != own.e_ident[EI_DATA] ||
        header.e_machine != own.e_machine) {
        snprintf(text, text_size, "it is for %s (%d bits), this process is for %s (%d bits)", machine_name(header.e_machine),
            header.e_ident[EI_CLASS] == ELFCLASS64 ? 64 : 32, machine_name(own.e_machine), (int) (8 * sizeof(void *)));
        return text;
    }
    return header.e_type != ET_DYN ? "it is no shared library" : segments_flaw(fd, size, &header, text, text_size);
}

const char *berth_library_flaw(const char *path, char *text, size_t text_size) {
    uint64_t size;
    const char *why;
    if (strchr(path, '/') == NULL) {
        return NULL; // the loader searches for a bare name in folders of its own
    }
    const int fd = berth_file_open_fd(path, &size, &why);
    const char *flaw = fd >= 0 ? header_flaw(fd, size, text, text_size) : why;
    if (fd >= 0) {
        close(fd);
    }
    return flaw;
}
