// SPDX-License-Identifier: MIT
// elf.h: reads an ELF library from its file, or from memory if it is loaded: names of libraries that it has and needs, and its
// symbols. The bytes are untrusted: every address and count is checked against the library's segments, and table sizes are bounded.
#pragma once

#include "base/base.h"

#include <elf.h>
#include <link.h>

struct berth_elf {
    const Elf64_Phdr *phdr;
    size_t n_phdr;
    uintptr_t base; // if loaded: address at which the library's address 0 is mapped
    int fd;         // -1: loaded
    void *owned[4]; // tables that were read from the file
    int n_owned;

    const Elf64_Dyn *dynamic;
    size_t n_dynamic;
    const char *strings; // ends with NUL
    size_t strings_size;
};

// Opens a file. On failure returns false and writes the reason to why. The caller calls berth_elf_fini in both cases.
BERTH_API bool berth_elf_open(struct berth_elf *elf, const char *path, char *why, size_t why_size) BERTH_MUST_USE;
// Opens a loaded library from dl_iterate_phdr. Returns false if it has no valid dynamic section.
BERTH_API bool berth_elf_loaded(struct berth_elf *elf, const struct dl_phdr_info *info) BERTH_MUST_USE;
BERTH_API void berth_elf_fini(struct berth_elf *elf);

// Returns the i-th name with that tag (DT_NEEDED, DT_SONAME, DT_RPATH); NULL: there are no more.
BERTH_API const char *berth_elf_name(const struct berth_elf *elf, int64_t tag, size_t i);

// Calls visit for every symbol that has a name. Returns false if the tables are invalid or cannot be allocated.
typedef void (*berth_elf_visit)(void *user, const char *name, bool is_defined, bool is_weak);
BERTH_API bool berth_elf_symbols(struct berth_elf *elf, berth_elf_visit visit, void *user) BERTH_MUST_USE;
