// SPDX-License-Identifier: MIT
// admit.h: decides which requests may run, so that the pages of the cache suffice until the last token of every running
// sequence. docs/dev/admission.md has the rule and its proof.
//
// Time is counted in steps. The present step is the next one to be computed. In each step, every running sequence computes its
// tokens of that step (admit_tokens): a chunk of its prompt, or one new token. The chunks are fixed at admission. So the number
// of pages that a sequence holds in each later step is known at admission, and so is the total of all sequences. A request is
// admitted if the total is at most n_pages in every step. A sequence that ends early only lowers the totals.
//
// The caller repeats:
//     1. admit_request for the first waiting request, until the answer is not ADMIT_YES (admission.md: why only the first)
//     2. compute admit_tokens(a, id) tokens of every running sequence
//     3. admit_end for each sequence that stopped or was cancelled (also allowed between 1 and 2)
//     4. admit_advance
//
// Nothing here allocates after admit_new, uses a tensor, or is thread-safe: one thread at a time.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct admit;

struct admit_params {
    int64_t n_page;  // tokens per page, at least 1
    int64_t n_pages; // pages of the pool, at least 1
    int64_t n_ctx;   // largest number of tokens of one sequence: prompt and new tokens
    // The most tokens per step, of all sequences together; at least n_running. Each of the n_running sequences has one token
    // per step of its own. The other n_batch - n_running tokens are shared by the prompts.
    int64_t n_batch;
    int64_t n_chunk; // most tokens of one prompt per step; 0: no limit but n_batch
    int n_running;   // most sequences at once, at least 1
};

struct admit_request {
    int64_t n_prompt; // at least 1
    int64_t n_new;    // largest number of new tokens; 0: only the prompt is computed (embeddings)
    // The first n_cached prompt tokens are in the cache already, in whole pages: a multiple of n_page, less than n_prompt. They
    // are not computed again. The first n_shared of them are in pages that the running sequence `sharer` holds: a multiple of
    // n_page, at most n_cached. The other pages are held by no running sequence, so they count as free until now.
    int64_t n_cached;
    int64_t n_shared;
    int sharer; // used if n_shared > 0. It has computed these tokens before the present step (admit_computed)
};

enum admit_status {
    ADMIT_YES,     // runs from the present step on
    ADMIT_WAIT,    // does not fit next to the running sequences. If nothing else is admitted, it fits when they have ended
    ADMIT_NEVER,   // does not fit alone
    ADMIT_INVALID, // the request breaks a rule of struct admit_request; reason->why says which
};

enum admit_why {
    ADMIT_WHY_NONE,    // ADMIT_YES
    ADMIT_WHY_PAGES,   // WAIT, NEVER: n_need pages of n_have are needed in a step
    ADMIT_WHY_RUNNING, // WAIT: n_need - 1 sequences run, n_have is the limit
    ADMIT_WHY_CONTEXT, // NEVER: n_need tokens (prompt and new) are above n_have, the context
    ADMIT_WHY_TOKENS,  // INVALID: n_prompt is below 1 or n_new below 0
    ADMIT_WHY_CACHED,  // INVALID: n_cached or n_shared is not a multiple of n_page, or too large
    ADMIT_WHY_SHARER,  // INVALID: the sharer does not run, or has computed fewer than n_shared tokens
};

struct admit_reason {
    enum admit_why why;
    int64_t n_need, n_have; // see enum admit_why
    int64_t i_step;         // WHY_PAGES: first step, from the present one, in which the pages do not suffice
    int64_t n_wait;         // WAIT: the request fits after at most so many steps, if nothing else is admitted before
};

// Bytes that admit_new allocates. 0: the parameters are invalid.
size_t admit_size(const struct admit_params *params);
// Returns NULL if the parameters are invalid or memory ran out (berth_last_error has the numbers).
struct admit *admit_new(const struct admit_params *params);
void admit_free(struct admit *a);

// ADMIT_YES: *id is in 0..n_running-1 and no other running sequence has it; ids of ended sequences are used again. Otherwise
// *id is -1 and nothing changes. reason may be NULL.
enum admit_status admit_request(struct admit *a, const struct admit_request *r, int *id, struct admit_reason *reason);
// Writes why the request is not admitted as one sentence with the numbers, without a full stop. Returns text.
const char *admit_explain(const struct admit_reason *reason, char *text, size_t size);

// Tokens that the sequence computes in the present step, at least 1; 0: it does not run.
int64_t admit_tokens(const struct admit *a, int id);
// The same for the step that is t steps after the present one; 0 after the sequence's last step.
int64_t admit_tokens_at(const struct admit *a, int id, int64_t t);
// Tokens of the sequence in the cache before the present step, cached ones included.
int64_t admit_computed(const struct admit *a, int id);
// Steps that the sequence still computes if it does not end early, the present one included; 0: it does not run.
int64_t admit_steps_left(const struct admit *a, int id);
bool admit_is_running(const struct admit *a, int id);

// The present step has been computed. Ends the sequences whose last step it was: their ids do not run any more.
void admit_advance(struct admit *a);
// Ends a sequence at once, before its last step. Does nothing if the id does not run.
void admit_end(struct admit *a, int id);

// Pages that the running sequences hold in the step that is t steps after the present one, if none ends early.
int64_t admit_total(const struct admit *a, int64_t t);
// The largest total of the present and all later steps. Takes time in proportion to n_ctx.
int64_t admit_peak(const struct admit *a);
int admit_n_running(const struct admit *a);
