// SPDX-License-Identifier: MIT
// budget.h: checks proofs that no schedule of ops keeps memory limits. docs/dev/proofs.md specifies the format and proves each rule.
#pragma once

#include "berth-budget.h"
#include "proof/proof.h"

// Checks the text of p: no schedule of the ops keeps the live bytes of every pool within its limit. On success sets p->n_steps to the
// number of states. Returns false if the proof is refused or memory is exhausted (p->mem.has_failed).
bool proof_budget(struct proof *p, const struct berth_budget_op *ops, int64_t n_ops, const struct berth_budget_params *params);
