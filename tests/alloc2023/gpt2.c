// SPDX-License-Identifier: MIT
// gpt2.c: runs the programs of gpt2.h in one process. The programs of each date must generate the same tokens as the program that
// uses the current API.

#include "gpt2_weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_SEQUENCES = 2 };

static int compare(const char *name, const struct answer *got, const struct answer *expected, int n_tokens) {
    float max_diff = 0;
    for (int i = 0; i < N_VOCAB && n_tokens == N_PREDICT; i++) {
        max_diff = fmaxf(max_diff, fabsf(got->logits[i] - expected->logits[i]));
    }
    const int is_same = memcmp(got->tokens, expected->tokens, (size_t) n_tokens * sizeof(int)) == 0;
    printf("%s: %d tokens %s, logits within %g\n", name, n_tokens, is_same ? "equal" : "DIFFER", (double) max_diff);
    return is_same && max_diff <= 1e-4f;
}

int main(void) {
    static const int prompts[N_SEQUENCES][N_PROMPT] = {{3, 14, 15, 9, 26, 5, 35}, {27, 18, 28, 1, 8, 60, 0}};
    struct weights *w = weights_new();
    struct answer expected[N_SEQUENCES], got[N_SEQUENCES];
    int ok = 1, n_distinct = 0;
    for (int q = 0; q < N_SEQUENCES; q++) {
        ok = gpt2_today(w, prompts[q], &expected[q]) && ok;
    }
    for (int i = 1; i < N_PREDICT; i++) {
        n_distinct += expected[0].tokens[i] != expected[0].tokens[i - 1];
    }
    if (n_distinct < 3) { // a model that repeats one token would prove nothing
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
            ok = programs[p].run(w, prompts[q], &got[q]) && compare(programs[p].name, &got[q], &expected[q], N_PREDICT) && ok;
        }
    }
#ifdef HAVE_CXX
    ok = gpt2_2023_11_batched(w, prompts[0], got, N_SEQUENCES) && ok;
    for (int q = 0; q < N_SEQUENCES; q++) {
        ok = compare("2023-11, batched", &got[q], &expected[q], N_CTX / N_SEQUENCES - N_PROMPT) && ok;
    }
#endif
    weights_free(w);
    return ok ? 0 : 1;
}
