// SPDX-License-Identifier: MIT
// penalties.c: logits changed before the choice: biases of the caller's, and penalties of what was chosen lately, as llama.cpp
// has them: a logit above 0 is divided by `repeat`, one below is multiplied; then `frequency` for each time and `presence` once
// are taken off.

#include "model/model.h"

#include <string.h>

static bool has_penalties(const struct sampler *s) {
    return s->last_n > 0 && (s->repeat != 1 || s->frequency != 0 || s->presence != 0);
}

bool sampler_accept(struct sampler *s, int32_t token) {
    if (!has_penalties(s)) {
        return true;
    }
    if (s->past_room != s->last_n) { // set anew: what was is forgotten
        model_alloc_free(s->past);
        s->past = model_alloc_malloc((size_t) s->last_n * sizeof *s->past);
        s->past_room = s->past != NULL ? s->last_n : 0;
        s->n_past = 0;
    }
    if (s->past == NULL) {
        return false;
    }
    s->past[s->n_past++ % s->past_room] = token;
    return true;
}

// counts: [n] zeros, and zeros again afterwards.
static void penalise(const struct sampler *s, float *logits, int32_t *counts, int64_t n) {
    const int64_t n_past = s->n_past < s->past_room ? s->n_past : s->past_room;
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

const float *sampler_logits(struct sampler *s, const float *logits, int64_t n) {
    if (s->n_biases == 0 && (!has_penalties(s) || s->n_past == 0)) {
        return logits;
    }
    float *changed = model_alloc_realloc(s->logits, (size_t) n * (sizeof *changed + sizeof(int32_t)));
    if (changed == NULL) {
        return NULL;
    }
    int32_t *counts = (int32_t *) (void *) (changed + n);
    s->logits = changed;
    memset(counts, 0, (size_t) n * sizeof *counts);
    memcpy(changed, logits, (size_t) n * sizeof *changed);
    for (int64_t i = 0; i < s->n_biases; i++) {
        if (s->biases[i].token >= 0 && s->biases[i].token < n) {
            changed[s->biases[i].token] += s->biases[i].bias;
        }
    }
    if (has_penalties(s)) {
        penalise(s, changed, counts, n);
    }
    return changed;
}
