// SPDX-License-Identifier: MIT
// arch.h: an architecture as a description: which norms, how positions are told, who sees how far, how experts are chosen. All of
// them are built by the same functions (graph.c, attention.c, ffn.c), which ask the description and never the name.
#pragma once

#include <stddef.h>

// What an architecture has that llama has not.
enum arch_has {
    ARCH_LAYER_NORM = 1 << 0,    // norms take the mean away and may have a bias; else they are RMS norms
    ARCH_PARALLEL = 1 << 1,      // attention and the feed-forward part read the same norm
    ARCH_POST_NORMS = 1 << 2,    // what both say is normalised before it is added
    ARCH_POSITIONS = 1 << 3,     // positions are embedded, and nothing is turned
    ARCH_EMBD_ROOT = 1 << 4,     // the embedding is multiplied with the root of its width
    ARCH_FUSED_QKV = 1 << 5,     // one matrix may make queries, keys and values
    ARCH_FUSED_FFN = 1 << 6,     // ffn_up holds the gate's rows, then its own
    ARCH_NO_GATE = 1 << 7,       // up, activation, down
    ARCH_QK_WIDE = 1 << 8,       // queries and keys are normalised over all heads together
    ARCH_QK_EACH = 1 << 9,       // each head has weights of its own for that
    ARCH_SINKS = 1 << 10,        // a head may look at nothing: sinks
    ARCH_SCALES = 1 << 11,       // keys scale the embedding, attention, what is added, and divide the logits
    ARCH_LOGIT_SCALE = 1 << 12,  // a key multiplies the logits
    ARCH_SOFT_CAPS = 1 << 13,    // attention's and the output's logits are capped: 50 and 30 unless keys say so
    ARCH_LOGIT_CAP = 1 << 14,    // a key may cap the output's logits
    ARCH_LOCAL_ROPE = 1 << 15,   // layers with a window turn by a base of their own
    ARCH_NORM_IS_POST = 1 << 16, // the feed-forward part's norm is called post_attention_norm
    ARCH_WIDE_QUERIES = 1 << 17, // the largest of them scales queries by the width of the stream, not of a head
    ARCH_MLA = 1 << 18,          // keys and values of all heads are made of one short row, which is what is kept
    ARCH_STATE = 1 << 20,        // layers carry a state in place of attention and have no feed-forward part
    ARCH_SOME_DENSE = 1 << 19,   // the first layers have no experts, and the others some for every token
};

enum arch_act { ACT_SILU, ACT_GELU, ACT_OAI };

// How much the chosen experts count.
enum arch_share {
    SHARE_SUM,    // by the softmax of all, together 1
    SHARE_PLAIN,  // by the softmax of all, as it is
    SHARE_CHOSEN, // by the softmax of those that were chosen
    SHARE_KEYS,   // as keys say: softmax or sigmoid, together 1 or as it is, scaled, chosen within the best groups
};

struct model_arch {
    const char *name;
    int rope_type;         // GGML_ROPE_TYPE_*
    unsigned has;          // of arch_has
    enum arch_act act;     // of the feed-forward part
    enum arch_share share; // of experts
    int window_every;      // every so-manyth layer sees all, the others a window; 1: all see a window; 0: none
    int no_rope_every;     // every so-manyth layer turns nothing; 0: none is so
    int n_layer_wide;      // ARCH_WIDE_QUERIES: of so many layers
};

// NULL: there is none of that name.
const struct model_arch *arch_find(const char *name);
// The names of all, with commas.
void arch_names(char *out, size_t cap);
