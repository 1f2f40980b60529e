// SPDX-License-Identifier: MIT
// mapping_windows.c: Windows does not tell which pages of a mapping are in memory, so no mapping is found.

#include "base/mapping.h"

bool berth_mapping_open(struct berth_mapping *m, const void *at, size_t size) {
    (void) at;
    (void) size;
    *m = (struct berth_mapping){.fd = -1};
    return false;
}

void berth_mapping_close(struct berth_mapping *m) {
    (void) m;
}

void berth_mapping_set_random(const struct berth_mapping *m, bool is_random) {
    (void) m;
    (void) is_random;
}

void berth_mapping_request(const struct berth_mapping *m, uintptr_t at, size_t size) {
    (void) m;
    (void) at;
    (void) size;
}

int berth_mapping_load(const struct berth_mapping *m, uintptr_t at, size_t size) {
    (void) m;
    (void) at;
    (void) size;
    return 0;
}

void berth_mapping_drop(const struct berth_mapping *m, uintptr_t at, size_t size) {
    (void) m;
    (void) at;
    (void) size;
}
