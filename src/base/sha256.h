// SPDX-License-Identifier: MIT
// sha256.h: SHA-256 (FIPS 180-4) in plain C, about as fast as a disk.
#pragma once

#include "base/min.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct sha256 {
    uint32_t state[8];
    uint64_t n; // bytes so far
    uint8_t block[64];
};

static const uint32_t sha256_rounds[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1,
    0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8,
    0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354,
    0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585,
    0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee,
    0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static inline uint32_t sha256_rotate(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static inline void sha256_block_add(struct sha256 *s, const uint8_t *p) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) {
        w[i] = (uint32_t) p[4 * i] << 24 | (uint32_t) p[4 * i + 1] << 16 | (uint32_t) p[4 * i + 2] << 8 | p[4 * i + 3];
    }
    for (int i = 16; i < 64; i++) {
        const uint32_t a = sha256_rotate(w[i - 15], 7) ^ sha256_rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        const uint32_t b = sha256_rotate(w[i - 2], 17) ^ sha256_rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(v, s->state, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t e = sha256_rotate(v[4], 6) ^ sha256_rotate(v[4], 11) ^ sha256_rotate(v[4], 25),
                       choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        const uint32_t a = sha256_rotate(v[0], 2) ^ sha256_rotate(v[0], 13) ^ sha256_rotate(v[0], 22),
                       most = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        const uint32_t t = v[7] + e + choice + sha256_rounds[i] + w[i];
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t;
        v[0] = t + a + most;
    }
    for (int i = 0; i < 8; i++) {
        s->state[i] += v[i];
    }
}

static inline void sha256_init(struct sha256 *s) {
    *s = (struct sha256){
        .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

static inline void sha256_add(struct sha256 *s, const void *data, size_t size) {
    const uint8_t *p = data;
    while (size > 0) {
        const size_t at = s->n % 64, n = min_size(size, 64 - at);
        if (n == 64) {
            sha256_block_add(s, p);
        } else {
            memcpy(s->block + at, p, n);
            if (at + n == 64) {
                sha256_block_add(s, s->block);
            }
        }
        s->n += n;
        p += n;
        size -= n;
    }
}

static inline void sha256_end(struct sha256 *s, char hex[65]) {
    const uint64_t bits = 8 * s->n;
    const uint8_t one = 0x80, zeros[64] = {0};
    uint8_t length[8];
    sha256_add(s, &one, 1);
    sha256_add(s, zeros, (size_t) ((120 - s->n % 64) % 64));
    for (int i = 0; i < 8; i++) {
        length[i] = (uint8_t) (bits >> (56 - 8 * i));
    }
    sha256_add(s, length, 8);
    for (int i = 0; i < 8; i++) {
        snprintf(hex + 8 * i, 9, "%08x", (unsigned) s->state[i]);
    }
}
