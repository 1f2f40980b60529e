// SPDX-License-Identifier: MIT
// proof.c: writes why no schedule keeps the limits (docs/dev/proofs.md, "Memory limits").

#include "plan/budget/budget.h"
#include "plan/solve/proof_text.h"

#include <inttypes.h>

static enum ggml_status text_begin(const struct budget_graph *g, const struct budget_proof *proof, struct plan_text *text) {
    if (!berth_plan_text_begin(text, proof->write, proof->user)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "budget: out of memory for the proof of %d ops", g->n);
    }
    berth_plan_text_print(text, "budget\n");
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status text_end(const struct budget_graph *g, struct plan_text *text) {
    if (!berth_plan_text_end(text)) {
        return berth_fail(GGML_STATUS_FAILED, "budget: cannot write the proof of %d ops: the output failed", g->n);
    }
    return GGML_STATUS_SUCCESS;
}

static int32_t callers_op(const struct budget_proof *proof, int32_t i) {
    return proof->order != NULL ? proof->order[i] : i;
}

enum ggml_status budget_proof_least(const struct budget_graph *g, const struct budget_proof *proof, int32_t p) {
    const uint32_t pool = (uint32_t) g->pools[p].id;
    const uint64_t limit = g->pools[p].limit;
    uint64_t inputs = 0, kept = 0;
    struct plan_text text;
    if (proof->write == NULL) {
        return GGML_STATUS_SUCCESS;
    }
    const enum ggml_status status = text_begin(g, proof, &text);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    for (int32_t i = 0; i < g->n; i++) {
        inputs += g->pool[i] == p && budget_is_input(g, i) ? g->size[i] : 0;
        kept += g->pool[i] == p && g->keep[i] && g->spill_pool[i] < 0 ? g->size[i] : 0;
    }
    if (inputs > limit) {
        berth_plan_text_print(&text, "inputs %" PRIu32 "\n", pool);
    } else if (kept > limit) {
        berth_plan_text_print(&text, "kept %" PRIu32 "\n", pool);
    } else {
        berth_plan_text_print(&text, "op %" PRIu32 " %" PRId32 "\n", pool, callers_op(proof, g->tight[p]));
    }
    return text_end(g, &text);
}

// Returns the set with the caller's numbers.
static uint64_t callers_set(const struct budget_proof *proof, uint64_t set) {
    uint64_t to = 0;
    for (uint64_t left = set; left != 0; left &= left - 1) {
        to |= (uint64_t) 1 << callers_op(proof, __builtin_ctzll(left));
    }
    return to;
}

enum ggml_status budget_proof_states(
    const struct budget_graph *g, const struct budget_proof *proof, const struct budget_state *states, size_t n) {
    struct plan_text text;
    const enum ggml_status status = text_begin(g, proof, &text);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    berth_plan_text_print(&text, "states %zu\n", n);
    for (size_t k = 0; k < n; k++) {
        berth_plan_text_print(&text, "%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", callers_set(proof, states[k].live),
            callers_set(proof, states[k].out), callers_set(proof, states[k].done));
    }
    return text_end(g, &text);
}
