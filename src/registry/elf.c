// SPDX-License-Identifier: MIT
// elf.c: reads ELF libraries: whether a file can be loaded, and the names and symbols that it exports and imports.

#include "registry/elf.h"
#include "base/min.h"
#include "registry/registry.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- before loading ----

// The dynamic loader handles three kinds of files badly, so they are refused here:
// - For a library that was built for another machine, the loader's message is "No such file or directory".
// - For a pipe, the loader waits.
// - If a file is truncated, the first access to the missing bytes ends the process.

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

// Returns the reason why the segments are invalid. Returns NULL if the file contains the bytes of every segment.
static const char *segments_flaw(int fd, uint64_t size, const ElfW(Ehdr) * header, char *text, size_t text_size) {
    bool has_load = false, has_dynamic = false;
    for (unsigned i = 0; i < header->e_phnum; i++) {
        ElfW(Phdr) segment;
        if (header->e_phentsize != sizeof segment || header->e_phoff > size ||
            !read_at(fd, &segment, sizeof segment, header->e_phoff + (uint64_t) i * sizeof segment)) {
            snprintf(text, text_size, "truncated: the table of %u segments is outside its %llu bytes", header->e_phnum,
                (unsigned long long) size);
            return text;
        }
        if (segment.p_type != PT_LOAD && segment.p_type != PT_DYNAMIC) {
            continue;
        }
        if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset) {
            snprintf(text, text_size, "truncated: a segment of %llu bytes at offset %llu is outside its %llu bytes",
                (unsigned long long) segment.p_filesz, (unsigned long long) segment.p_offset, (unsigned long long) size);
            return text;
        }
        has_load |= segment.p_type == PT_LOAD;
        has_dynamic = has_dynamic || (segment.p_type == PT_DYNAMIC && segment.p_filesz > 0);
    }
    return has_load && has_dynamic ? NULL : "not a shared library";
}

// Returns the reason why this process cannot load the library. Returns NULL if the library can be loaded.
static const char *header_flaw(int fd, uint64_t size, char *text, size_t text_size) {
    ElfW(Ehdr) own, header;
    if (!read_at(fd, &header, sizeof header, 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
        return "not a shared library";
    }
    if (!own_header(&own)) {
        return NULL;
    }
    if (header.e_ident[EI_CLASS] != own.e_ident[EI_CLASS] || header.e_ident[EI_DATA] != own.e_ident[EI_DATA] ||
        header.e_machine != own.e_machine) {
        snprintf(text, text_size, "built for %s (%d bits), but this process is %s (%d bits)", machine_name(header.e_machine),
            header.e_ident[EI_CLASS] == ELFCLASS64 ? 64 : 32, machine_name(own.e_machine), (int) (8 * sizeof(void *)));
        return text;
    }
    return header.e_type != ET_DYN ? "not a shared library" : segments_flaw(fd, size, &header, text, text_size);
}

const char *berth_library_flaw(const char *path, char *text, size_t text_size) {
    uint64_t size;
    const char *why;
    if (strchr(path, '/') == NULL) {
        return NULL; // the dynamic loader searches its own folders for a name without a slash
    }
    const int fd = berth_file_open_fd(path, &size, &why);
    const char *flaw = fd >= 0 ? header_flaw(fd, size, text, text_size) : why;
    if (fd >= 0) {
        close(fd);
    }
    return flaw;
}

// ---- dynamic section and symbols ----

// All reads use elf_copy (a few bytes) or elf_table (valid until berth_elf_fini). Both check addresses against the segments.
// A file is not mapped, because another program may truncate it at any time.

#define TABLE_MAX ((uint64_t) 256 << 20) // bytes; actual symbol tables have a few megabytes
#define PHDRS_MAX 256
#define DYNAMIC_MAX 4096
#define CHAIN_MAX 65536 // largest number of symbols in one hash bucket
#define N_ENTRIES(array) (sizeof(array) / sizeof(array)[0])

// Returns NULL if no segment contains the bytes.
static const Elf64_Phdr *segment_find(const struct berth_elf *elf, uint64_t addr, uint64_t size) {
    for (size_t i = 0; i < elf->n_phdr; i++) {
        const Elf64_Phdr *p = &elf->phdr[i];
        if (p->p_type == PT_LOAD && (elf->fd >= 0 || (p->p_flags & PF_R) != 0) && addr >= p->p_vaddr && size <= p->p_filesz &&
            addr - p->p_vaddr <= p->p_filesz - size) {
            return p;
        }
    }
    return NULL;
}

static bool file_read(int fd, void *out, uint64_t size, uint64_t at) {
    char *to = out;
    while (size > 0) {
        const ssize_t n = at <= INT64_MAX ? pread(fd, to, size, (off_t) at) : 0;
        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            return false;
        }
        if (n > 0) {
            to += n;
            size -= (uint64_t) n;
            at += (uint64_t) n;
        }
    }
    return true;
}

static bool elf_copy(const struct berth_elf *elf, uint64_t addr, void *out, uint64_t size) {
    const Elf64_Phdr *p = segment_find(elf, addr, size);
    if (p == NULL) {
        return false;
    }
    if (elf->fd >= 0) {
        return file_read(elf->fd, out, size, p->p_offset + (addr - p->p_vaddr));
    }
    memcpy(out, (const void *) (elf->base + addr), size);
    return true;
}

// Returns NULL if the table is not in the library, is too large, or out of memory.
static const void *elf_table(struct berth_elf *elf, uint64_t addr, uint64_t size) {
    if (size == 0 || size > TABLE_MAX || segment_find(elf, addr, size) == NULL) {
        return NULL;
    }
    if (elf->fd < 0) {
        return (const void *) (elf->base + addr);
    }
    struct stat st; // the size of the file limits the allocation
    if (fstat(elf->fd, &st) != 0 || size > (uint64_t) st.st_size ||
        elf->n_owned == (int) (sizeof elf->owned / sizeof elf->owned[0])) {
        return NULL;
    }
    void *table = berth_malloc(size);
    if (table == NULL || !elf_copy(elf, addr, table, size)) {
        berth_free(table);
        return NULL;
    }
    elf->owned[elf->n_owned++] = table;
    return table;
}

// ---- the dynamic section ----

// Returns false if there is no entry with this tag.
static bool dynamic_value(const struct berth_elf *elf, int64_t tag, uint64_t *value) {
    for (size_t i = 0; i < elf->n_dynamic; i++) {
        if (elf->dynamic[i].d_tag == tag) {
            *value = elf->dynamic[i].d_un.d_val;
            return true;
        }
    }
    return false;
}

// Returns the address in the entry with this tag, relative to elf->base. The dynamic loader may have replaced the address in the
// entry by an absolute address.
static bool dynamic_address(const struct berth_elf *elf, int64_t tag, uint64_t *addr) {
    if (!dynamic_value(elf, tag, addr)) {
        return false;
    }
    if (elf->fd < 0 && *addr >= elf->base) {
        *addr -= elf->base;
    }
    return true;
}

static bool dynamic_find(struct berth_elf *elf) {
    for (size_t i = 0; i < elf->n_phdr && elf->dynamic == NULL; i++) {
        const Elf64_Phdr *p = &elf->phdr[i];
        if (p->p_type == PT_DYNAMIC && p->p_filesz / sizeof(Elf64_Dyn) <= DYNAMIC_MAX && p->p_vaddr % _Alignof(Elf64_Dyn) == 0) {
            elf->dynamic = elf_table(elf, p->p_vaddr, p->p_filesz);
            elf->n_dynamic = p->p_filesz / sizeof(Elf64_Dyn);
        }
    }
    for (size_t i = 0; elf->dynamic != NULL && i < elf->n_dynamic; i++) {
        if (elf->dynamic[i].d_tag == DT_NULL) {
            elf->n_dynamic = i;
        }
    }
    uint64_t addr, size;
    if (elf->dynamic == NULL || !dynamic_address(elf, DT_STRTAB, &addr) || !dynamic_value(elf, DT_STRSZ, &size)) {
        return false;
    }
    elf->strings = elf_table(elf, addr, size);
    elf->strings_size = size;
    return elf->strings != NULL && elf->strings[size - 1] == '\0';
}

const char *berth_elf_name(const struct berth_elf *elf, int64_t tag, size_t i) {
    for (size_t k = 0; k < elf->n_dynamic; k++) {
        if (elf->dynamic[k].d_tag == tag && i-- == 0) {
            return elf->dynamic[k].d_un.d_val < elf->strings_size ? elf->strings + elf->dynamic[k].d_un.d_val : NULL;
        }
    }
    return NULL;
}

// ---- opening ----

bool berth_elf_loaded(struct berth_elf *elf, const struct dl_phdr_info *info) {
    *elf = (struct berth_elf){.phdr = info->dlpi_phdr, .n_phdr = info->dlpi_phnum, .base = info->dlpi_addr, .fd = -1};
    return dynamic_find(elf);
}

static bool phdrs_read(struct berth_elf *elf, char *why, size_t why_size) {
    Elf64_Ehdr header;
    if (!file_read(elf->fd, &header, sizeof header, 0) || header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 ||
        header.e_phnum > PHDRS_MAX) {
        snprintf(why, why_size, "its table of segments cannot be read");
        return false;
    }
    Elf64_Phdr *phdr = berth_malloc(header.e_phnum * sizeof *phdr);
    if (phdr == NULL) {
        snprintf(why, why_size, "out of memory for %d segments", header.e_phnum);
        return false;
    }
    elf->owned[elf->n_owned++] = phdr;
    if (!file_read(elf->fd, phdr, header.e_phnum * sizeof *phdr, header.e_phoff)) {
        snprintf(why, why_size, "truncated: it ends before its %d segments", header.e_phnum);
        return false;
    }
    elf->phdr = phdr;
    elf->n_phdr = header.e_phnum;
    return true;
}

bool berth_elf_open(struct berth_elf *elf, const char *path, char *why, size_t why_size) {
    *elf = (struct berth_elf){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (elf->fd < 0) {
        snprintf(why, why_size, "cannot be read: %s", strerror(errno));
        return false;
    }
    struct stat st;
    if (fstat(elf->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        snprintf(why, why_size, "not a regular file");
        return false;
    }
    const char *flaw = berth_library_flaw(path, why, why_size);
    if (flaw != NULL) {
        if (flaw != why) { // flaw is a constant text, so it must be copied to `why`
            snprintf(why, why_size, "%s", flaw);
        }
        return false;
    }
    if (!phdrs_read(elf, why, why_size)) {
        return false;
    }
    if (!dynamic_find(elf)) {
        snprintf(why, why_size, "its dynamic section cannot be read");
        return false;
    }
    return true;
}

void berth_elf_fini(struct berth_elf *elf) {
    for (int i = 0; i < elf->n_owned; i++) {
        berth_free(elf->owned[i]);
    }
    if (elf->fd >= 0) {
        close(elf->fd);
    }
    *elf = (struct berth_elf){.fd = -1};
}

// ---- symbols ----

// Counts the symbols of a library with a GNU hash table, which does not store their number. The chains are ordered by symbol
// index, so the last symbol is at the end of the chain that begins with the highest symbol index.
static bool gnu_count(const struct berth_elf *elf, uint64_t addr, uint64_t *n) {
    // head: number of buckets, first hashed symbol, words of the filter, shift. part: up to 1024 consecutive buckets.
    uint32_t head[4], last = 0, part[1024];
    if (!elf_copy(elf, addr, head, sizeof head) || head[0] > TABLE_MAX / sizeof part[0]) {
        return false;
    }
    const uint64_t buckets = addr + sizeof head + 8 * (uint64_t) head[2], chains = buckets + 4 * (uint64_t) head[0];
    for (uint64_t i = 0; i < head[0]; i += N_ENTRIES(part)) {
        const uint64_t n_part = min_u64(head[0] - i, N_ENTRIES(part));
        if (!elf_copy(elf, buckets + i * sizeof part[0], part, n_part * sizeof part[0])) {
            return false;
        }
        for (uint64_t k = 0; k < n_part; k++) {
            last = max_u32(last, part[k]);
        }
    }
    if (last < head[1]) { // the library exports nothing; imported symbols are not in the hash table
        *n = 0;
        return true;
    }
    for (uint32_t i = 0, hash = 0; i < CHAIN_MAX; i++) {
        if (!elf_copy(elf, chains + 4 * ((uint64_t) last - head[1] + i), &hash, sizeof hash)) {
            return false;
        }
        if ((hash & 1) != 0) {
            *n = (uint64_t) last + i + 1;
            return true;
        }
    }
    return false;
}

// Raises *n to one more than the highest symbol index in a relocation table.
static bool reloc_count(const struct berth_elf *elf, int64_t tag, int64_t size_tag, uint64_t *n) {
    uint64_t addr, size;
    Elf64_Rela part[256]; // up to 256 consecutive relocations
    if (!dynamic_address(elf, tag, &addr) || !dynamic_value(elf, size_tag, &size)) {
        return true;
    }
    if (size > TABLE_MAX) {
        return false;
    }
    for (uint64_t i = 0, n_all = size / sizeof part[0]; i < n_all; i += N_ENTRIES(part)) {
        const uint64_t n_part = min_u64(n_all - i, N_ENTRIES(part));
        if (!elf_copy(elf, addr + i * sizeof part[0], part, n_part * sizeof part[0])) {
            return false;
        }
        for (uint64_t k = 0; k < n_part; k++) {
            *n = max_u64(*n, ELF64_R_SYM(part[k].r_info) + 1);
        }
    }
    return true;
}

static bool symbol_count(const struct berth_elf *elf, uint64_t *n) {
    uint64_t addr;
    uint32_t head[2]; // number of buckets, number of symbols
    *n = 0;
    if (dynamic_address(elf, DT_HASH, &addr) && elf_copy(elf, addr, head, sizeof head)) {
        *n = head[1];
    }
    if (*n == 0 && dynamic_address(elf, DT_GNU_HASH, &addr) && !gnu_count(elf, addr, n)) {
        return false;
    }
    return *n != 0 || (reloc_count(elf, DT_RELA, DT_RELASZ, n) && reloc_count(elf, DT_JMPREL, DT_PLTRELSZ, n));
}

bool berth_elf_symbols(struct berth_elf *elf, berth_elf_visit visit, void *user) {
    uint64_t addr, n;
    if (!symbol_count(elf, &n)) {
        return false;
    }
    if (n == 0) {
        return true;
    }
    if (!dynamic_address(elf, DT_SYMTAB, &addr) || n > TABLE_MAX / sizeof(Elf64_Sym) || addr % _Alignof(Elf64_Sym) != 0) {
        return false;
    }
    const Elf64_Sym *symbols = elf_table(elf, addr, n * sizeof *symbols);
    for (uint64_t i = 1; symbols != NULL && i < n; i++) {
        if (symbols[i].st_name != 0 && symbols[i].st_name < elf->strings_size) {
            visit(user, elf->strings + symbols[i].st_name, symbols[i].st_shndx != SHN_UNDEF,
                ELF64_ST_BIND(symbols[i].st_info) == STB_WEAK);
        }
    }
    return symbols != NULL;
}
