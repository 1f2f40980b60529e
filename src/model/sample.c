// SPDX-License-Identifier: MIT
// sample.c: chooses the next token: the most likely, or by chance among the likely ones. The candidates are popped off a heap, so
// that only as many are put in order as are looked at: O(n + k log n).

#include "model/model.h"

#include <math.h>

struct sample_entry {
    float logit;
    int32_t token;
};

// ---- chance: xoshiro256**, seeded by splitmix64 ----

static uint64_t mix(uint64_t *x) {
    uint64_t z = *x += 0x9e3779b97f4a7c15u;
    z          = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z          = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t rotate(uint64_t x, int k) {
    return x << k | x >> (64 - k);
}

// From 0 to below 1.
static double chance(uint64_t s[4]) {
    const uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return (double) (result >> 11) * 0x1p-53;
}

void sampler_init(struct sampler *s, float temperature, int64_t top_k, float top_p, uint64_t seed) {
    *s = (struct sampler){.temperature = temperature, .top_k = top_k, .top_p = top_p};
    for (int i = 0; i < 4; i++) {
        s->state[i] = mix(&seed);
    }
}

void sampler_fini(struct sampler *s) {
    model_alloc_free(s->heap);
    s->heap   = NULL;
    s->n_heap = 0;
}

// ---- candidates ----

static bool is_before(struct sample_entry a, struct sample_entry b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

static void sift(struct sample_entry *heap, int64_t n, int64_t i) {
    const struct sample_entry moved = heap[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && is_before(heap[child + 1], heap[child])) {
            child++;
        }
        if (!is_before(heap[child], moved)) {
            break;
        }
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

// The best of a heap goes behind its end: what was popped lies there, the best last.
static void pop(struct sample_entry *heap, int64_t *n) {
    const struct sample_entry best = heap[0];
    heap[0]                        = heap[--*n];
    heap[*n]                       = best;
    sift(heap, *n, 0);
}

static int32_t most_likely(const float *logits, int64_t n) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        if (!isnan(logits[i]) && (best < 0 || logits[i] > logits[best])) {
            best = i;
        }
    }
    return (int32_t) best;
}

// Pops the candidates: at most top_k, and as many of those as have top_p together. Their number is returned.
static int64_t candidates(const struct sampler *s, struct sample_entry *heap, int64_t n) {
    const int64_t n_most = s->top_k > 0 && s->top_k < n ? s->top_k : n;
    const float best     = heap[0].logit;
    double all           = 0;
    int64_t left = n, n_taken = 0;
    if (n_most == n) {
        for (int64_t i = 0; i < n; i++) {
            all += exp((double) heap[i].logit - (double) best);
        }
    } else {
        for (; n_taken < n_most; n_taken++) {
            pop(heap, &left);
            all += exp((double) heap[left].logit - (double) best);
        }
    }
    double sum = 0;
    for (int64_t i = 0; i < n_most; i++) {
        if (n_taken <= i) {
            pop(heap, &left);
            n_taken++;
        }
        sum += exp((double) heap[n - 1 - i].logit - (double) best);
        if (sum >= all * (double) s->top_p) {
            return i + 1;
        }
    }
    return n_most;
}

int32_t sampler_pick(struct sampler *s, const float *logits, int64_t n) {
    const int32_t likely = most_likely(logits, n);
    if (likely < 0 || !(s->temperature > 0) || isinf(logits[likely])) {
        return likely;
    }
    if (s->n_heap < n) {
        model_alloc_free(s->heap);
        s->heap   = model_alloc_malloc((size_t) n * sizeof *s->heap);
        s->n_heap = s->heap != NULL ? n : 0;
    }
    if (s->heap == NULL) {
        return -1;
    }
    int64_t n_all = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isnan(logits[i])) {
            s->heap[n_all++] = (struct sample_entry){logits[i], (int32_t) i};
        }
    }
    for (int64_t i = n_all / 2; i-- > 0;) {
        sift(s->heap, n_all, i);
    }
    const int64_t n_taken = candidates(s, s->heap, n_all);
    double sum            = 0;
    for (int64_t i = 0; i < n_taken; i++) {
        sum += exp(((double) s->heap[n_all - 1 - i].logit - (double) logits[likely]) / (double) s->temperature);
    }
    double at = chance(s->state) * sum;
    for (int64_t i = 0; i < n_taken; i++) {
        at -= exp(((double) s->heap[n_all - 1 - i].logit - (double) logits[likely]) / (double) s->temperature);
        if (at < 0) {
            return s->heap[n_all - 1 - i].token;
        }
    }
    return likely; // rounding
}
