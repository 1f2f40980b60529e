// SPDX-License-Identifier: MIT
// pool.h: several sequences in one cache. A step computes a batch of tokens of any sequences in one graph. The cache is divided into
// pages (pages.h); the mask of a token shows it the rows of its own sequence only.
//
// pool_new allocates and plans everything. The other functions do not allocate.
#pragma once

#include "model/model.h"
#include "model/pages.h"

struct pool_params {
    int64_t n_ctx;                   // largest number of positions of a sequence
    int64_t n_rows;                  // positions of all sequences: a multiple of n_page
    int64_t n_page;                  // positions per page
    int64_t n_batch;                 // largest number of tokens per step
    int n_seq;                       // largest number of sequences
    enum ggml_type cache_k, cache_v; // types of keys and values
    bool plan_only;                  // nothing is allocated on devices; pool_decode is not allowed
};

struct pool {
    struct pool_params params;
    struct session *session; // the cache, the scheduler and the graph of the last step
    struct pages *pages;
    struct graph_shape shape; // of the graph

    // The batch of the next step. n_out: number of tokens whose logits are computed.
    int64_t n_tokens, n_out;
    bool is_embedding;           // the batch computes the final hidden state of every token, not logits
    int32_t *tokens, *pos, *seq; // [n_batch]
    int64_t *rows;               // [n_batch] rows of the cache
    int32_t *out;                // [n_seq] index of the token of each result
};

// NULL: *error holds the cause.
struct pool *pool_new(
    const struct model *model, const struct model_devices *devices, const struct pool_params *params, struct model_error *error);
void pool_free(struct pool *pool);

// Starts a batch of tokens. is_embedding: its results are hidden states instead of logits.
void pool_batch(struct pool *pool, bool is_embedding);
// Adds n tokens of a sequence, which follow its `pos` computed positions. has_logits: the logits of the last of them are computed.
// Returns the index of the result: of these logits or, with is_embedding, of the first of the n tokens. -1: *error holds the cause.
struct pool_run {
    const int32_t *tokens;
    int64_t n, pos;
    int seq;
    bool has_logits;
};
int64_t pool_add(struct pool *pool, const struct pool_run *run, struct model_error *error);
// Computes the batch.
bool pool_decode(struct pool *pool, struct model_error *error);
// Copies result i of the last step: n_vocab logits or n_embd values.
void pool_result(const struct pool *pool, int64_t i, float *out);
