// SPDX-License-Identifier: MIT
// gpt2_weights.h: makes the random weights of the model of gpt2.h, which are the same for every program.
#pragma once

#include "gpt2.h"

#include <stdint.h>
#include <stdlib.h>

static inline void weights_fill(uint32_t *state, float *data, int n, float spread, float middle) {
    for (int i = 0; i < n; i++) {
        *state = *state * 1664525u + 1013904223u;
        data[i] = middle + spread * ((float) (*state >> 8) / (float) (1 << 23) - 1.0f);
    }
}

static inline struct weights *weights_new(void) {
    struct weights *w = (struct weights *) malloc(sizeof *w);
    uint32_t state = 12345;
    weights_fill(&state, w->wte, N_VOCAB * N_EMBD, 0.5f, 0);
    weights_fill(&state, w->wpe, N_CTX * N_EMBD, 0.5f, 0);
    weights_fill(&state, w->ln_f_g, N_EMBD, 0.2f, 1);
    weights_fill(&state, w->ln_f_b, N_EMBD, 0.2f, 0);
    for (int il = 0; il < N_LAYER; il++) {
        for (int k = 0; k < N_PER_LAYER; k++) {
            const int n = layer_shapes[k][0] * layer_shapes[k][1];
            w->layers[il][k] = (float *) malloc((size_t) n * sizeof(float));
            weights_fill(&state, w->layers[il][k], n, 0.25f, k == LN1_G || k == LN2_G ? 1.0f : 0.0f);
        }
    }
    return w;
}

static inline void weights_free(struct weights *w) {
    for (int il = 0; il < N_LAYER; il++) {
        for (int k = 0; k < N_PER_LAYER; k++) {
            free(w->layers[il][k]);
        }
    }
    free(w);
}
