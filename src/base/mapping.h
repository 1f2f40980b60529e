// SPDX-License-Identifier: MIT
// mapping.h: pages of files that are mapped into memory: which file is at an address, reading pages ahead, dropping them
// (mapping.c). All functions accept any address. Only Linux has these functions; elsewhere berth_mapping_open returns false.
#pragma once

#include "base/base.h"

struct berth_mapping {
    uintptr_t begin, end; // the addresses given to berth_mapping_open
    uint64_t offset;      // of `begin` in the file
    int fd;               // the file
};

// Finds the file behind `size` bytes of memory at the address, and opens it. Returns false if the bytes are not a shared mapping
// of one regular file that can be opened. A private mapping may hold pages that the program has written, and dropping a page would
// lose its bytes.
bool berth_mapping_open(struct berth_mapping *m, const void *at, size_t size) BERTH_MUST_USE;
void berth_mapping_close(struct berth_mapping *m);

// is_random: an access reads only its own page; otherwise the system reads pages around it too, which this file's other functions
// may have dropped on purpose.
void berth_mapping_set_random(const struct berth_mapping *m, bool is_random);
// Starts to read the pages, and returns without waiting.
void berth_mapping_request(const struct berth_mapping *m, uintptr_t at, size_t size);
// Reads the pages into memory and waits for them. at: an address inside the mapping. Returns 0, or the errno of the read.
int berth_mapping_load(const struct berth_mapping *m, uintptr_t at, size_t size) BERTH_MUST_USE;
// Drops the pages that are completely inside. The next access reads them from the file.
void berth_mapping_drop(const struct berth_mapping *m, uintptr_t at, size_t size);
