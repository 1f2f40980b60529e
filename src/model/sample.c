// SPDX-License-Identifier: MIT
// sample.c: chooses the next token. Only the k best of n tokens are sorted, with a heap: O(n + k log n).

#include "base/min.h"
#include "model/model.h"

#include <math.h>
#include <string.h>
#include <time.h>

struct sample_entry {
    float logit;
    int32_t token;
};

// ---- random numbers: xoshiro256**, seeded by splitmix64 ----

static uint64_t random_seed(uint64_t *x) {
    uint64_t z = *x += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t rotate_left(uint64_t x, int k) {
    return x << k | x >> (64 - k);
}

// Returns a number in [0, 1).
static double random_next(uint64_t s[4]) {
    const uint64_t result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return (double) (result >> 11) * 0x1p-53;
}

void sampler_seed(struct sampler *s, uint64_t seed) {
    for (int i = 0; i < 4; i++) {
        s->state[i] = random_seed(&seed);
    }
}

int64_t sampler_seed_new(void) {
    return (int64_t) (((uint64_t) time(NULL) * 1000003 + (uint64_t) ggml_time_us()) % 1000000000);
}

void sampler_init(struct sampler *s, float temperature, int64_t top_k, float top_p, uint64_t seed) {
    *s = (struct sampler){
        .temperature = temperature, .top_k = top_k, .top_p = top_p, .typical = 1, .repeat = 1, .last_n = 64, .eta = 0.1f};
    sampler_seed(s, seed);
}

void sampler_fini(struct sampler *s) {
    berth_free(s->heap);
    berth_free(s->logits);
    berth_free(s->past);
    *s = (struct sampler){0};
}

// ---- candidates ----

static bool is_before(struct sample_entry a, struct sample_entry b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

static void heap_sift(struct sample_entry *heap, int64_t n, int64_t i) {
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

// Stores the best entry directly after the remaining heap. Popped entries follow the heap in ascending order.
static void heap_pop(struct sample_entry *heap, int64_t *n) {
    const struct sample_entry best = heap[0];
    heap[0] = heap[--*n];
    heap[*n] = best;
    heap_sift(heap, *n, 0);
}

// Returns the largest value that is not NaN; -INFINITY: there is none. Each lane has its own maximum, so that the compiler uses
// vectors.
static float values_max(const float *values, int64_t n) {
    enum { N_LANES = 16 };
    float lanes[N_LANES], best = -INFINITY;
    int64_t i = 0;
    for (int k = 0; k < N_LANES; k++) {
        lanes[k] = -INFINITY;
    }
    for (; i + N_LANES <= n; i += N_LANES) {
        for (int k = 0; k < N_LANES; k++) {
            lanes[k] = max_f32(values[i + k], lanes[k]);
        }
    }
    for (; i < n; i++) {
        best = max_f32(values[i], best);
    }
    for (int k = 0; k < N_LANES; k++) {
        best = max_f32(lanes[k], best);
    }
    return best;
}

// Returns the first of the largest logits; -1: all are NaN. Only the block with the largest logit is searched for it.
static int32_t most_likely(const float *logits, int64_t n) {
    const int64_t n_block = 512;
    float best = -INFINITY;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i += n_block) {
        const float value = values_max(logits + i, min_i64(n_block, n - i));
        if (value > best) {
            best = value;
            at = i;
        }
    }
    while (at < n && logits[at] != best) {
        at++;
    }
    if (at == n) {
        return -1;
    }
    return (int32_t) at;
}

// The popped entries, best first.
struct candidate_list {
    struct sample_entry *best; // the other entries precede it in memory
    int64_t n;
};

static struct sample_entry *candidate_at(const struct candidate_list *t, int64_t i) {
    return t->best - i;
}

// Returns the probability of entry i divided by the probability of the best entry.
static double candidate_weight(const struct candidate_list *t, int64_t i) {
    return exp((double) candidate_at(t, i)->logit - (double) t->best->logit);
}

static double weight_sum(const struct candidate_list *t) {
    double sum = 0;
    for (int64_t i = 0; i < t->n; i++) {
        sum += candidate_weight(t, i);
    }
    return sum;
}

// Keeps the most probable entries that together have this share of the probability.
static void share_keep(struct candidate_list *t, double share) {
    const double all = weight_sum(t);
    double sum = 0;
    for (int64_t i = 0; i < t->n; i++) {
        sum += candidate_weight(t, i);
        if (sum >= all * share) {
            t->n = i + 1; // also ends the loop
        }
    }
}

// The surprise of an entry with probability p is -log(p). Keeps the entries whose surprise is nearest to the mean surprise, until
// they have this share of the probability. spare: temporary memory of t->n entries.
static void typical_keep(struct candidate_list *t, double share, struct sample_entry *spare) {
    const double all = weight_sum(t);
    double mean = 0, sum = 0;
    for (int64_t i = 0; i < t->n; i++) {
        const double p = candidate_weight(t, i) / all;
        mean -= p > 0 ? p * log(p) : 0;
    }
    for (int64_t i = 0; i < t->n; i++) {
        const double p = candidate_weight(t, i) / all;
        spare[i] = (struct sample_entry){p > 0 ? (float) -fabs(-log(p) - mean) : -INFINITY, (int32_t) i};
    }
    for (int64_t i = t->n / 2; i-- > 0;) {
        heap_sift(spare, t->n, i);
    }
    for (int64_t left = t->n; left > 0 && sum < all * share;) {
        heap_pop(spare, &left);
        sum += candidate_weight(t, spare[left].token);
        candidate_at(t, spare[left].token)->token = ~candidate_at(t, spare[left].token)->token; // marks the entry as kept
    }
    // The best entry may be dropped.
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++) {
        if (candidate_at(t, i)->token < 0) {
            *candidate_at(t, n) = *candidate_at(t, i);
            candidate_at(t, n)->token = ~candidate_at(t, n)->token;
            n++;
        }
    }
    t->n = n;
}

// Pops the entries that top_k, typical, top_p and min_p keep, and as few others as possible.
static struct candidate_list candidates_take(const struct sampler *s, struct sample_entry *heap, int64_t n) {
    struct candidate_list t = {.best = heap + n - 1};
    const int64_t top = s->top_k > 0 && s->top_k < n ? s->top_k : n;
    const float best = heap[0].logit;
    const bool has_only_top_p = top == n && s->typical >= 1;
    double all = 0, sum = 0;
    int64_t left = n;
    for (int64_t i = 0; has_only_top_p && i < n; i++) {
        all += exp((double) heap[i].logit - (double) best);
    }
    while (t.n < top && (!has_only_top_p || t.n == 0 || sum < all * (double) s->top_p)) {
        heap_pop(heap, &left);
        sum += candidate_weight(&t, t.n++);
    }
    if (s->typical < 1) {
        typical_keep(&t, (double) s->typical, s->heap + s->n_heap);
    }
    if (!has_only_top_p) {
        share_keep(&t, (double) s->top_p);
    }
    while (t.n > 1 && candidate_weight(&t, t.n - 1) < (double) s->min_p) {
        t.n--;
    }
    return t;
}

static int64_t candidate_draw(struct sampler *s, const struct candidate_list *t) {
    double sum = 0;
    for (int64_t i = 0; i < t->n; i++) {
        sum += pow(candidate_weight(t, i), 1 / (double) s->temperature);
    }
    double left = random_next(s->state) * sum;
    for (int64_t i = 0; i < t->n; i++) {
        left -= pow(candidate_weight(t, i), 1 / (double) s->temperature);
        if (left < 0) {
            return i;
        }
    }
    return 0; // reached only by rounding
}

// Mirostat 2: drops tokens with a surprise above mu, then adjusts mu by the surprise of the chosen token.
static int32_t mirostat_pick(struct sampler *s, struct sample_entry *heap, int64_t n) {
    struct candidate_list t = {.best = heap + n - 1};
    const double temperature = (double) s->temperature;
    const float best = heap[0].logit;
    double all = 0;
    int64_t left = n;
    for (int64_t i = 0; i < n; i++) {
        all += exp(((double) heap[i].logit - (double) best) / temperature);
    }
    double surprise = 0;
    if (!(s->mu > 0)) {
        s->mu = 2 * s->tau;
    }
    while (left > 0 && (t.n == 0 || surprise <= (double) s->mu)) {
        heap_pop(heap, &left);
        t.n++;
        surprise = left > 0 ? -log2(exp(((double) heap[0].logit - (double) best) / temperature) / all) : 0;
    }
    const int64_t i = candidate_draw(s, &t);
    double kept = 0; // the surprise of the chosen token is relative to the kept tokens
    for (int64_t j = 0; j < t.n; j++) {
        kept += exp(((double) candidate_at(&t, j)->logit - (double) best) / temperature);
    }
    surprise = -log2(exp(((double) candidate_at(&t, i)->logit - (double) best) / temperature) / kept);
    s->mu -= s->eta * ((float) surprise - s->tau);
    return candidate_at(&t, i)->token;
}

static bool heap_reserve(struct sampler *s, int64_t n) {
    if (s->n_heap < n) {
        berth_free(s->heap);
        s->heap = berth_malloc(2 * (size_t) n * sizeof *s->heap);
        s->n_heap = s->heap != NULL ? n : 0;
    }
    return s->heap != NULL;
}

// ---- logits before the choice: biases, then penalties as in llama.cpp. A positive logit is divided by `repeat`, a negative logit
// is multiplied. Then `frequency` times the number of occurrences is subtracted, and `presence` once ----

static bool has_penalties(const struct sampler *s) {
    return s->last_n > 0 && (s->repeat != 1 || s->frequency != 0 || s->presence != 0);
}

bool sampler_accept(struct sampler *s, int32_t token) {
    if (!has_penalties(s)) {
        return true;
    }
    if (s->past_room != s->last_n) { // last_n has changed: the history is cleared
        berth_free(s->past);
        s->past = berth_malloc((size_t) s->last_n * sizeof *s->past);
        s->past_room = s->past != NULL ? s->last_n : 0;
        s->n_past = 0;
    }
    if (s->past == NULL) {
        return false;
    }
    s->past[s->n_past++ % s->past_room] = token;
    return true;
}

// counts: [n] zeros on entry and on return.
static void logits_penalise(const struct sampler *s, float *logits, int32_t *counts, int64_t n) {
    const int64_t n_past = min_i64(s->n_past, s->past_room);
    for (int64_t i = 0; i < n_past; i++) {
        if (s->past[i] >= 0 && s->past[i] < n) {
            counts[s->past[i]]++;
        }
    }
    for (int64_t i = 0; i < n_past; i++) {
        const int32_t token = s->past[i];
        if (token < 0 || token >= n || counts[token] == 0) {
            continue;
        }
        logits[token] = logits[token] > 0 ? logits[token] / s->repeat : logits[token] * s->repeat;
        logits[token] -= (float) counts[token] * s->frequency + s->presence;
        counts[token] = 0;
    }
}

static bool logits_reserve(struct sampler *s, int64_t n) {
    if (s->n_logits < n) {
        berth_free(s->logits);
        s->logits = berth_malloc((size_t) n * (sizeof *s->logits + sizeof(int32_t)));
        s->n_logits = s->logits != NULL ? n : 0;
    }
    return s->logits != NULL;
}

bool sampler_reserve(struct sampler *s, int64_t n) {
    return heap_reserve(s, n) && logits_reserve(s, n);
}

const float *sampler_logits(struct sampler *s, const float *logits, int64_t n) {
    if (s->n_biases == 0 && (!has_penalties(s) || s->n_past == 0)) {
        return logits;
    }
    if (!logits_reserve(s, n)) {
        return NULL;
    }
    float *changed = s->logits;
    int32_t *counts = (int32_t *) (void *) (changed + n);
    memset(counts, 0, (size_t) n * sizeof *counts);
    memcpy(changed, logits, (size_t) n * sizeof *changed);
    for (int64_t i = 0; i < s->n_biases; i++) {
        if (s->biases[i].token >= 0 && s->biases[i].token < n) {
            changed[s->biases[i].token] += s->biases[i].bias;
        }
    }
    if (has_penalties(s)) {
        logits_penalise(s, changed, counts, n);
    }
    return changed;
}

// ---- the choice ----

int32_t sampler_pick(struct sampler *s, const float *logits, int64_t n) {
    logits = sampler_logits(s, logits, n);
    const int32_t likely = logits != NULL ? most_likely(logits, n) : -1;
    if (likely < 0 || !(s->temperature > 0) || isinf(logits[likely])) {
        return likely;
    }
    if (!heap_reserve(s, n)) {
        return -1;
    }
    int64_t n_all = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isnan(logits[i])) {
            s->heap[n_all++] = (struct sample_entry){logits[i], (int32_t) i};
        }
    }
    for (int64_t i = n_all / 2; i-- > 0;) {
        heap_sift(s->heap, n_all, i);
    }
    if (s->tau > 0) {
        return mirostat_pick(s, s->heap, n_all);
    }
    const struct candidate_list t = candidates_take(s, s->heap, n_all);
    return candidate_at(&t, candidate_draw(s, &t))->token;
}
