// SPDX-License-Identifier: MIT
// gpt2.c: the programs of each date generate the tokens of today's program, in one process.

#include "gpt2.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SEQUENCES = 2 };

static uint32_t state = 12345;

static float uniform(float spread) {
    state = state * 1664525u + 1013904223u;
    return spread * ((float) (state >> 8) / (float) (1 << 23) - 1.0f);
}

static void fill(float *data, int n, float spread, float middle) {
    for (int i = 0; i < n; i++) {
        data[i] = middle + uniform(spread);
    }
}

static struct weights *weights_new(void) {
    struct weights *w = malloc(sizeof *w);
    fill(w->wte, N_VOCAB * N_EMBD, 0.5f, 0);
    fill(w->wpe, N_CTX * N_EMBD, 0.5f, 0);
    fill(w->ln_f_g, N_EMBD, 0.2f, 1);
    fill(w->ln_f_b, N_EMBD, 0.2f, 0);
    for (int il = 0; il < N_LAYER; il++) {
        for (int k = 0; k < N_PER_LAYER; k++) {
            const int n      = layer_shapes[k][0] * layer_shapes[k][1];
            w->layers[il][k] = malloc((size_t) n * sizeof(float));
            fill(w->layers[il][k], n, 0.25f, k == LN1_G || k == LN2_G ? 1.0f : 0.0f);
        }
    }
    return w;
}

static void weights_free(struct weights *w) {
    for (int il = 0; il < N_LAYER; il++) {
        for (int k = 0; k < N_PER_LAYER; k++) {
            free(w->layers[il][k]);
        }
    }
    free(w);
}

static int compare(const char *name, const struct answer *got, const struct answer *want, int n_tokens) {
    float most = 0;
    for (int i = 0; i < N_VOCAB && n_tokens == N_PREDICT; i++) {
        most = fmaxf(most, fabsf(got->logits[i] - want->logits[i]));
    }
    const int is_same = memcmp(got->tokens, want->tokens, (size_t) n_tokens * sizeof(int)) == 0;
    printf("%s: %d tokens %s, logits within %g\n", name, n_tokens, is_same ? "equal" : "DIFFER", (double) most);
    return is_same && most <= 1e-4f;
}

int main(void) {
    static const int prompts[N_SEQUENCES][N_PROMPT] = {{3, 14, 15, 9, 26, 5, 35}, {27, 18, 28, 1, 8, 60, 0}};
    struct weights *w                               = weights_new();
    struct answer want[N_SEQUENCES], got[N_SEQUENCES];
    int ok = 1, n_distinct = 0;
    for (int q = 0; q < N_SEQUENCES; q++) {
        ok = gpt2_today(w, prompts[q], &want[q]) && ok;
    }
    for (int i = 1; i < N_PREDICT; i++) {
        n_distinct += want[0].tokens[i] != want[0].tokens[i - 1];
    }
    if (n_distinct < 3) { // a model that repeats one token shows nothing
        printf("only %d of %d tokens differ from the one before\n", n_distinct, N_PREDICT);
        ok = 0;
    }
    static const struct {
        const char *name;
        int (*run)(const struct weights *w, const int *prompt, struct answer *answer);
    } programs[] = {
        {"2024-02, allocators of a backend", gpt2_2024_02},
        {"2023-10, ggml_allocr", gpt2_2023_10},
#ifdef HAVE_CXX
        {"2023-11, ggml_gallocr", gpt2_2023_11},
        {"2023-08, contexts", gpt2_2023_08},
#endif
    };
    for (size_t p = 0; p < sizeof programs / sizeof programs[0]; p++) {
        for (int q = 0; q < N_SEQUENCES; q++) {
            ok = programs[p].run(w, prompts[q], &got[q]) && compare(programs[p].name, &got[q], &want[q], N_PREDICT) && ok;
        }
    }
#ifdef HAVE_CXX
    ok = gpt2_2023_11_batched(w, prompts[0], got, N_SEQUENCES) && ok;
    for (int q = 0; q < N_SEQUENCES; q++) {
        ok = compare("2023-11, batched", &got[q], &want[q], N_CTX / N_SEQUENCES - N_PROMPT) && ok;
    }
#endif
    weights_free(w);
    return ok ? 0 : 1;
}
