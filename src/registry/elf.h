// SPDX-License-Identifier: MIT
// elf.h: what the dynamic linker reads of a library, from its file or from memory where it is loaded: the names that it has and
// asks for, and its symbols. The bytes are nobody's promise: every address and count is checked against the library's
// segments, and tables are bounded.
#pragma once

#include "base/base.h"

#include <elf.h>
#include <link.h>

struct berth_elf {
    const Elf64_Phdr *phdr;
    size_t n_phdr;
    uintptr_t base; // loaded: where address 0 of the library is
    int fd;         // -1: loaded
    void *owned[4]; // what was read from the file
    int n_owned;

    const Elf64_Dyn *dynamic;
    size_t n_dynamic;
    const char *strings; // ends with NUL
    size_t strings_size;
};

// Opens a file; false: why says what is wrong with it. Closed by berth_elf_fini in any case.
BERTH_API bool berth_elf_open(struct berth_elf *elf, const char *path, char *why, size_t why_size) BERTH_MUST_USE;
// A library as dl_iterate_phdr shows it. False: it has nothing for the dynamic linker, or nothing sound.
BERTH_API bool berth_elf_loaded(struct berth_elf *elf, const struct dl_phdr_info *info) BERTH_MUST_USE;
BERTH_API void berth_elf_fini(struct berth_elf *elf);

// The i-th name with that tag (DT_NEEDED, DT_SONAME, DT_RPATH); NULL: there are no more.
BERTH_API const char *berth_elf_name(const struct berth_elf *elf, int64_t tag, size_t i);

// Calls visit for every symbol with a name. False: the tables are not sound, or there is no memory for them.
typedef void (*berth_elf_visit)(void *user, const char *name, bool is_defined, bool is_weak);
BERTH_API bool berth_elf_symbols(struct berth_elf *elf, berth_elf_visit visit, void *user) BERTH_MUST_USE;
