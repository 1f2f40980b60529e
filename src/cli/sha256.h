// SPDX-License-Identifier: MIT
// sha256.h: SHA-256 (FIPS 180-4).
#pragma once

#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t state[8];
    uint64_t n; // bytes so far
    uint8_t block[64];
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t size);
void sha256_end(struct sha256 *s, char hex[65]);
