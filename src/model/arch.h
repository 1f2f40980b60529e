// SPDX-License-Identifier: MIT
// arch.h: describes the differences between architectures. graph.c, attention.c and ffn.c build every architecture from its
// description.
#pragma once

#include <stddef.h>

// Differences from the llama architecture.
enum arch_has {
    ARCH_LAYER_NORM = 1 << 0,    // layer norms, possibly with a bias, instead of RMS norms
    ARCH_PARALLEL = 1 << 1,      // attention and the feed-forward part read the same norm
    ARCH_POST_NORMS = 1 << 2,    // outputs of attention and feed-forward are normalised before addition
    ARCH_POSITIONS = 1 << 3,     // the model has learned embeddings of positions; no RoPE
    ARCH_EMBD_ROOT = 1 << 4,     // the embedding is multiplied with the square root of its width
    ARCH_FUSED_QKV = 1 << 5,     // one matrix may compute queries, keys and values
    ARCH_FUSED_FFN = 1 << 6,     // ffn_up holds the rows of the gate, then those of up
    ARCH_NO_GATE = 1 << 7,       // the feed-forward part is up, activation, down
    ARCH_QK_WIDE = 1 << 8,       // the norms of queries and keys are computed over all heads together, not per head
    ARCH_QK_EACH = 1 << 9,       // the norms of queries and keys have separate weights for each head
    ARCH_SINKS = 1 << 10,        // attention sinks
    ARCH_SCALES = 1 << 11,       // keys of the file scale the embedding, the attention and the residuals, and divide the logits
    ARCH_LOGIT_SCALE = 1 << 12,  // a key of the file multiplies the logits
    ARCH_SOFT_CAPS = 1 << 13,    // attention scores and logits are soft-capped; defaults 50 and 30
    ARCH_LOGIT_CAP = 1 << 14,    // a key of the file may soft-cap the logits
    ARCH_LOCAL_ROPE = 1 << 15,   // layers with a window have their own RoPE base
    ARCH_NORM_IS_POST = 1 << 16, // the feed-forward norm is named post_attention_norm
    ARCH_WIDE_QUERIES = 1 << 17, // attn_scale is 1 / sqrt(n_embd / n_head) if the model has n_layer_wide layers
    ARCH_MLA = 1 << 18,          // multi-head latent attention: one cached latent row for all heads
    ARCH_STATE = 1 << 20,        // state-space layers instead of attention; no feed-forward part
    ARCH_SOME_DENSE = 1 << 19,   // the first layers are dense; later layers have shared experts
};

enum arch_act { ACT_SILU, ACT_GELU, ACT_OAI };

// How the selected experts are weighted.
enum arch_share {
    SHARE_SUM,    // softmax over all experts, divided by the sum over the selected experts
    SHARE_PLAIN,  // softmax over all experts
    SHARE_CHOSEN, // softmax over the selected experts
    SHARE_KEYS,   // by keys of the file: softmax or sigmoid, optional division by the sum, a scale, groups of experts
};

struct model_arch {
    const char *name;
    int rope_type;         // GGML_ROPE_TYPE_*
    unsigned has;          // bits of enum arch_has
    enum arch_act act;     // activation of the feed-forward part
    enum arch_share share; // weights of the selected experts
    int window_every;      // 0: no layer has a window; 1: all layers do; n > 1: all layers except every n-th do
    int no_rope_every;     // every no_rope_every-th layer has no RoPE; 0: all layers have it
    int n_layer_wide;      // ARCH_WIDE_QUERIES: number of layers of the one model size that has this attn_scale
};

// NULL: the architecture is unknown.
const struct model_arch *arch_find(const char *name);
// Writes the names of all architectures, separated by commas.
void arch_names(char *out, size_t cap);
