// SPDX-License-Identifier: MIT
// request_prompt.h: the prompts of a request as tokens. Only request.c uses it.
#pragma once

#include "model/vocab.h"
#include "serve/request.h"

// Fills r->prompts. *n_max: the largest number of new tokens of an answer. False: *error holds status and cause.
bool request_prompts_make(struct request *r, int64_t *n_max, struct api_error *error);
// Largest number of new tokens after this prompt.
int64_t request_item_max(const struct request *r, size_t i_prompt);
