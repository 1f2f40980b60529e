// SPDX-License-Identifier: MIT
// elf_windows.c: takes the place of elf.c on Windows, whose loader checks libraries itself.

#include "registry/registry.h"

const char *berth_library_flaw(const char *path, char *text, size_t text_size) {
    (void) path;
    (void) text;
    (void) text_size;
    return NULL;
}
