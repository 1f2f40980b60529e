// SPDX-License-Identifier: MIT
// elf.c: a look at a file's header before it is loaded, because the loader's own message for a library of another machine is
// "No such file or directory".

#include "registry/registry.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

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

// This process's own header: what a library has to match.
static bool own_header(Elf64_Ehdr *header) {
    FILE *file    = fopen("/proc/self/exe", "rb");
    const bool ok = file != NULL && fread(header, sizeof *header, 1, file) == 1;
    if (file != NULL) {
        fclose(file);
    }
    return ok;
}

const char *berth_library_flaw(const char *path, char *text, size_t size) {
    Elf64_Ehdr own, header;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return NULL; // a bare name is searched for by the loader, and a missing file is reported by it
    }
    const size_t n = fread(&header, 1, sizeof header, file);
    fclose(file);
    if (n < sizeof header || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
        snprintf(text, size, "it is no shared library");
        return text;
    }
    if (!own_header(&own)) {
        return NULL;
    }
    if (header.e_ident[EI_CLASS] != own.e_ident[EI_CLASS] || header.e_ident[EI_DATA] != own.e_ident[EI_DATA] ||
        header.e_machine != own.e_machine) {
        snprintf(text, size, "it is for %s (%d bits), this process is for %s (%d bits)", machine_name(header.e_machine),
            header.e_ident[EI_CLASS] == ELFCLASS64 ? 64 : 32, machine_name(own.e_machine),
            own.e_ident[EI_CLASS] == ELFCLASS64 ? 64 : 32);
        return text;
    }
    return NULL;
}
