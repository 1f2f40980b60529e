// SPDX-License-Identifier: MIT
// order.c: the random order of data. The order equals the reference's (ggml), so that training gives the same losses. The method
// is that of libstdc++: Mersenne twister, Lemire's multiplication (arXiv 1805.10941), Fisher-Yates shuffle. If n * n fits 32
// bits, one random number gives two exchanges.

#include "opt/opt.h"

#define N ((int) (sizeof((struct opt_rng *) 0)->state / sizeof(uint32_t)))
#define M 397

void opt_rng_init(struct opt_rng *rng) {
    rng->state[0] = 5489;
    for (uint32_t i = 1; i < (uint32_t) N; i++) {
        const uint32_t last = rng->state[i - 1];
        rng->state[i] = 1812433253u * (last ^ (last >> 30)) + i;
    }
    rng->n_used = N;
}

static void rng_refill(struct opt_rng *rng) {
    uint32_t *s = rng->state;
    for (int i = 0; i < N; i++) {
        const uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % N] & 0x7FFFFFFFu);
        s[i] = s[(i + M) % N] ^ (y >> 1) ^ ((y & 1) != 0 ? 0x9908B0DFu : 0);
    }
    rng->n_used = 0;
}

uint32_t opt_rng_next(struct opt_rng *rng) {
    if (rng->n_used == N) {
        rng_refill(rng);
    }
    uint32_t y = rng->state[rng->n_used++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9D2C5680u;
    y ^= (y << 15) & 0xEFC60000u;
    return y ^ (y >> 18);
}

// Returns a number in 0 .. n - 1, for 1 <= n < 2^32.
static uint64_t rng_below(struct opt_rng *rng, uint64_t n) {
    uint64_t product = opt_rng_next(rng) * n;
    if ((uint32_t) product < n) {
        const uint32_t uneven = (uint32_t) - (uint32_t) n % (uint32_t) n;
        while ((uint32_t) product < uneven) {
            product = opt_rng_next(rng) * n;
        }
    }
    return product >> 32;
}

static void order_swap(int64_t *order, int64_t i, uint64_t j) {
    const int64_t x = order[i];
    order[i] = order[j];
    order[j] = x;
}

void opt_shuffle(struct opt_rng *rng, int64_t *order, int64_t n) {
    if (n <= 1 || n > UINT32_MAX) { // an order of 2^32 or more entries is not shuffled
        return;
    }
    int64_t i = 1;
    if (UINT32_MAX / (uint64_t) n < (uint64_t) n) {
        for (; i < n; i++) {
            order_swap(order, i, rng_below(rng, (uint64_t) i + 1));
        }
        return;
    }
    if (n % 2 == 0) {
        order_swap(order, i++, rng_below(rng, 2));
    }
    while (i < n) {
        const uint64_t bound = (uint64_t) i + 1, both = rng_below(rng, bound * (bound + 1));
        order_swap(order, i++, both / (bound + 1));
        order_swap(order, i++, both % (bound + 1));
    }
}
