// SPDX-License-Identifier: MIT
// elf.h: reads names and symbols of an ELF library, from its file or from memory. The bytes are untrusted, so every address and
// count is checked against the segments, and the sizes of tables are limited.
#pragma once

#include "base/base.h"

#include <elf.h>
#include <link.h>

struct berth_elf {
    const Elf64_Phdr *phdr;
    size_t n_phdr;
    uintptr_t base; // of a loaded library: value to add to an address in the ELF tables
    int fd;         // file descriptor; -1: the library is loaded and read from memory
    void *owned[4]; // memory of tables that were read from the file; freed by berth_elf_fini
    int n_owned;

    const Elf64_Dyn *dynamic;
    size_t n_dynamic;
    const char *strings; // ends with NUL
    size_t strings_size;
};

// Opens a file. On failure returns false with the reason in why. The caller must call berth_elf_fini in both cases.
BERTH_API bool berth_elf_open(struct berth_elf *elf, const char *path, char *why, size_t why_size) BERTH_MUST_USE;
// Opens a library that is already loaded. Returns false if the library has no valid dynamic section.
BERTH_API bool berth_elf_loaded(struct berth_elf *elf, const struct dl_phdr_info *info) BERTH_MUST_USE;
BERTH_API void berth_elf_fini(struct berth_elf *elf);

// Returns the i-th name with this tag: DT_NEEDED, DT_SONAME or DT_RPATH. Returns NULL after the last name.
BERTH_API const char *berth_elf_name(const struct berth_elf *elf, int64_t tag, size_t i);

// Calls `visit` for every symbol with a name. Returns false if the tables are invalid or cannot be allocated.
typedef void (*berth_elf_visit)(void *user, const char *name, bool is_defined, bool is_weak);
BERTH_API bool berth_elf_symbols(struct berth_elf *elf, berth_elf_visit visit, void *user) BERTH_MUST_USE;
