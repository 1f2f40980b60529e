// SPDX-License-Identifier: MIT
// gpt2.h: a small model with GPT-2's layers and random weights. One program per date of the 2023 API runs it, and one program
// uses the current API. Their outputs must be equal. Each program includes the headers of its date.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    N_VOCAB = 61,
    N_CTX = 40,
    N_EMBD = 48,
    N_HEAD = 4,
    N_LAYER = 3,
    N_PROMPT = 7,
    N_PREDICT = 20,
    N_TOKENS_MAX = N_PROMPT + N_PREDICT
};

// The tensors of a layer, in this order.
enum { LN1_G, LN1_B, ATTN_W, ATTN_B, PROJ_W, PROJ_B, LN2_G, LN2_B, FC_W, FC_B, DOWN_W, DOWN_B, N_PER_LAYER };
// ne[0] and ne[1] of each tensor; ne[1] is 1 for vectors.
static const int layer_shapes[N_PER_LAYER][2] = {{N_EMBD, 1}, {N_EMBD, 1}, {N_EMBD, 3 * N_EMBD}, {3 * N_EMBD, 1},
    {N_EMBD, N_EMBD}, {N_EMBD, 1}, {N_EMBD, 1}, {N_EMBD, 1}, {N_EMBD, 4 * N_EMBD}, {4 * N_EMBD, 1}, {4 * N_EMBD, N_EMBD},
    {N_EMBD, 1}};

struct weights {
    float wte[N_VOCAB * N_EMBD], wpe[N_CTX * N_EMBD], ln_f_g[N_EMBD], ln_f_b[N_EMBD];
    float *layers[N_LAYER][N_PER_LAYER];
};

// The output of a program: greedy tokens, and the logits of the last token.
struct answer {
    int tokens[N_PREDICT];
    float logits[N_VOCAB];
};

static inline int logits_best(const float *logits) {
    int best = 0;
    for (int i = 1; i < N_VOCAB; i++) {
        if (logits[i] > logits[best]) {
            best = i;
        }
    }
    return best;
}

// The programs. They return 0 after an error, which they have printed.
int gpt2_today(const struct weights *w, const int *prompt, struct answer *answer);
int gpt2_2023_08(const struct weights *w, const int *prompt, struct answer *answer);
int gpt2_2023_10(const struct weights *w, const int *prompt, struct answer *answer);
int gpt2_2023_11(const struct weights *w, const int *prompt, struct answer *answer);
int gpt2_2023_11_batched(const struct weights *w, const int *prompts, struct answer *answers, int n_sequences);
int gpt2_2024_02(const struct weights *w, const int *prompt, struct answer *answer);

#ifdef __cplusplus
}
#endif
