// SPDX-License-Identifier: MIT
// arch.c: one row per architecture. tests/unit/model/test_model_arch_oracle.c compares each with llama.cpp.

#include "model/arch.h"

#include "ggml.h"

#include <stdio.h>
#include <string.h>

#define NORMAL GGML_ROPE_TYPE_NORMAL
#define NEOX GGML_ROPE_TYPE_NEOX

// Like llama.cpp, Berth ignores an attention window in a file of llama, qwen2, qwen3 or phi3.
static const struct model_arch archs[] = {
    {"llama", NORMAL, 0, ACT_SILU, SHARE_SUM, 0, 0, 0},
    {"mistral", NORMAL, 0, ACT_SILU, SHARE_SUM, 1, 0, 0},
    {"qwen2", NEOX, 0, ACT_SILU, SHARE_SUM, 0, 0, 0},
    {"qwen3", NEOX, 0, ACT_SILU, SHARE_SUM, 0, 0, 0},
    {"qwen3moe", NEOX, 0, ACT_SILU, SHARE_SUM, 0, 0, 0},
    {"olmoe", NEOX, ARCH_QK_WIDE, ACT_SILU, SHARE_PLAIN, 0, 0, 0},
    {"gpt-oss", NEOX, ARCH_SINKS | ARCH_NORM_IS_POST, ACT_OAI, SHARE_CHOSEN, 2, 0, 0},
    {"gemma2", NEOX, ARCH_POST_NORMS | ARCH_EMBD_ROOT | ARCH_SOFT_CAPS | ARCH_WIDE_QUERIES, ACT_GELU, SHARE_SUM, 2, 0, 46},
    {"gemma3", NEOX, ARCH_POST_NORMS | ARCH_EMBD_ROOT | ARCH_LOGIT_CAP | ARCH_LOCAL_ROPE | ARCH_WIDE_QUERIES, ACT_GELU, SHARE_SUM,
        6, 0, 62},
    {"phi3", NEOX, ARCH_FUSED_QKV | ARCH_FUSED_FFN, ACT_SILU, SHARE_SUM, 0, 0, 0},
    {"smollm3", NORMAL, 0, ACT_SILU, SHARE_SUM, 0, 4, 0},
    {"command-r", NORMAL, ARCH_LAYER_NORM | ARCH_PARALLEL | ARCH_QK_EACH | ARCH_LOGIT_SCALE, ACT_SILU, SHARE_SUM, 0, 0, 0},
    {"granite", NORMAL, ARCH_SCALES, ACT_SILU, SHARE_SUM, 0, 0, 0},
    {"glm4", NORMAL, ARCH_POST_NORMS | ARCH_FUSED_QKV | ARCH_FUSED_FFN, ACT_SILU, SHARE_SUM, 0, 0, 0},
    {"deepseek2", NORMAL, ARCH_MLA | ARCH_SOME_DENSE, ACT_SILU, SHARE_KEYS, 0, 0, 0},
    {"glm4moe", NEOX, ARCH_NORM_IS_POST | ARCH_SOME_DENSE, ACT_SILU, SHARE_KEYS, 0, 0, 0},
    {"mamba2", NORMAL, ARCH_STATE, ACT_SILU, SHARE_SUM, 0, 0, 0},
    {"gpt2", NORMAL, ARCH_LAYER_NORM | ARCH_POSITIONS | ARCH_FUSED_QKV | ARCH_NO_GATE, ACT_GELU, SHARE_SUM, 0, 0, 0},
};
#define N_ARCHS (sizeof archs / sizeof *archs)

const struct model_arch *arch_find(const char *name) {
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (strcmp(name, archs[i].name) == 0) {
            return &archs[i];
        }
    }
    return NULL;
}

void arch_names(char *out, size_t cap) {
    out[0] = '\0';
    for (size_t i = 0, n = 0; i < N_ARCHS && n < cap; i++) {
        n += (size_t) snprintf(out + n, cap - n, "%s%s", i > 0 ? ", " : "", archs[i].name);
    }
}
