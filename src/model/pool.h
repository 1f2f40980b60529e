// SPDX-License-Identifier: MIT
// pool.h: several sequences in one cache. A step computes a batch of tokens of any sequences. The cache is divided into pages (pages.h).
//
// Each engine of model.h has its functions for a pool (struct pool_ops):
//     pool_native  The pages are rows of the cache. The mask of a token shows it the rows of its own sequence only.
//     pool_llama   The pages only count the cells that libllama has for its sequences. libllama chooses the cells itself.
//
// pool_new allocates and plans everything. The other functions do not allocate; libllama makes small allocations of its own.
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
    bool is_deterministic;           // the pages of a sequence stay in order on every device. Without it, they do so only if the
                                     // cache is in host memory, because a device would have to wait for each move
};

struct pool {
    struct pool_params params;
    const struct pool_ops *ops;
    struct session *session; // the cache, the scheduler and the graph of the last step
    struct pages *pages;
    struct graph_shape shape; // of the graph; pool_native
    bool can_share;           // sequences that begin with the same tokens can share their pages

    // The batch of the next step. n_out: number of tokens whose logits are computed.
    int64_t n_tokens, n_out;
    bool is_embedding;           // the batch computes the final hidden state of every token, not logits
    int32_t *tokens, *pos, *seq; // [n_batch]
    int64_t *rows;               // [n_batch] rows of the cache; pool_native
    int32_t *out;                // [n_seq] index of the token of each result
    // Results of the last step in host memory, pinned if possible, so that one copy reads all of them. NULL: the graph has its results
    // in host memory; pool_llama.
    ggml_backend_buffer_t results;
};

// The functions of an engine for a pool.
struct pool_ops {
    bool keeps_pages;      // the cache keeps the pages of sequences that have ended
    bool is_deterministic; // with batch invariance of the devices, a sequence has the same bits alone and together with others
    // Sets can_share and session->memory. Plans the largest batches and, unless plan_only, allocates their memory.
    bool (*reserve)(struct pool *pool, struct model_error *error);
    void (*page_move)(const struct pool *pool, const struct page_move *move);     // NULL: pages have no places
    bool (*prefix_check)(const struct pool *pool, int sharer);                    // NULL: every prefix can be shared
    void (*start)(struct pool *pool, int seq, const struct pages_prefix *prefix); // NULL: nothing to do
    void (*end)(struct pool *pool, int seq);                                      // NULL: nothing to do
    bool (*decode)(struct pool *pool, struct model_error *error);
    float *(*result)(const struct pool *pool, int64_t i);
};

extern const struct pool_ops pool_native; // pool.c
extern const struct pool_ops pool_llama;  // llama_pool.c
const struct pool_ops *pool_ops_of(const struct model *model);

// NULL: *error holds the cause.
struct pool *pool_new(
    const struct model *model, const struct model_devices *devices, const struct pool_params *params, struct model_error *error);
void pool_free(struct pool *pool);

// Finds the first of n tokens that the cache has already. At least one token remains.
struct pages_prefix pool_find(const struct pool *pool, const int32_t *tokens, int64_t n);
// Starts a sequence with the tokens of a prefix that pool_find returned for them.
void pool_start(struct pool *pool, int seq, const int32_t *tokens, const struct pages_prefix *prefix);
// The first n positions of the sequence are computed, for these tokens. Other sequences may share them.
void pool_learn(struct pool *pool, int seq, const int32_t *tokens, int64_t n);
// Ends a sequence at any time. Its pages are free.
void pool_end(struct pool *pool, int seq);

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
// Returns result i of the last step: n_vocab logits or n_embd values. The caller may change them. The next step overwrites them.
float *pool_result(const struct pool *pool, int64_t i);
