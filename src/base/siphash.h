// SPDX-License-Identifier: MIT
// siphash.h: SipHash-1-3. Each table has its own random key, so no file can choose names that make a table slow.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

struct berth_siphash_key {
    uint64_t k[2];
};

// Bytes may arrive in parts.
struct berth_siphash {
    uint64_t v[4];
    uint64_t word;        // bytes that do not fill a word yet, first byte lowest
    uint64_t size;        // bytes so far
    int n_rounds, n_last; // rounds per word; rounds at the end
};

static inline uint64_t berth_siphash_rotate(uint64_t x, int n) {
    return x << n | x >> (64 - n);
}

static inline void berth_siphash_rounds(uint64_t v[4], int n) {
    for (; n > 0; n--) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = berth_siphash_rotate(v[1], 13) ^ v[0];
        v[3] = berth_siphash_rotate(v[3], 16) ^ v[2];
        v[0] = berth_siphash_rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = berth_siphash_rotate(v[1], 17) ^ v[2];
        v[3] = berth_siphash_rotate(v[3], 21) ^ v[0];
        v[2] = berth_siphash_rotate(v[2], 32);
    }
}

// If the system's random source fails, the key comes from the time, `place` and a stack address.
static inline struct berth_siphash_key berth_siphash_key_new(const void *place) {
    struct berth_siphash_key key;
    if (getrandom(&key, sizeof key, GRND_NONBLOCK) != (ssize_t) sizeof key) {
        struct timespec now = {0};
        clock_gettime(CLOCK_MONOTONIC, &now);
        key.k[0] = (uint64_t) (uintptr_t) place ^ (uint64_t) now.tv_nsec << 32;
        key.k[1] = (uint64_t) (uintptr_t) &key * 0x9E3779B97F4A7C15u + (uint64_t) now.tv_nsec;
    }
    return key;
}

static inline struct berth_siphash berth_siphash_begin(const struct berth_siphash_key *key) {
    return (struct berth_siphash){.v = {key->k[0] ^ 0x736F6D6570736575u, key->k[1] ^ 0x646F72616E646F6Du,
                                      key->k[0] ^ 0x6C7967656E657261u, key->k[1] ^ 0x7465646279746573u},
        .n_rounds = 1,
        .n_last = 3};
}

static inline void berth_siphash_word(struct berth_siphash *s, uint64_t word) {
    s->v[3] ^= word;
    berth_siphash_rounds(s->v, s->n_rounds);
    s->v[0] ^= word;
}

static inline void berth_siphash_add(struct berth_siphash *s, const void *bytes, size_t size) {
    const unsigned char *p = bytes;
    size_t n = (size_t) (s->size % 8);
    s->size += size;
    for (; n != 0 && size > 0; p++, size--) { // completes the word that an earlier call began
        s->word |= (uint64_t) *p << 8 * n;
        n = (n + 1) % 8;
        if (n == 0) {
            berth_siphash_word(s, s->word);
            s->word = 0;
        }
    }
    for (uint64_t word; size >= sizeof word; p += sizeof word, size -= sizeof word) {
        memcpy(&word, p, sizeof word);
        berth_siphash_word(s, word);
    }
    for (size_t i = 0; i < size; i++) {
        s->word |= (uint64_t) p[i] << 8 * i;
    }
}

static inline uint64_t berth_siphash_end(struct berth_siphash *s) {
    berth_siphash_word(s, s->word | s->size << 56);
    s->v[2] ^= 0xFF;
    berth_siphash_rounds(s->v, s->n_last);
    return s->v[0] ^ s->v[1] ^ s->v[2] ^ s->v[3];
}

static inline uint64_t berth_siphash_of(const struct berth_siphash_key *key, const void *bytes, size_t size) {
    struct berth_siphash s = berth_siphash_begin(key);
    berth_siphash_add(&s, bytes, size);
    return berth_siphash_end(&s);
}
