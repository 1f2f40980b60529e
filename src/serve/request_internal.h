// SPDX-License-Identifier: MIT
// request_internal.h: functions that only the files request*.c use.
#pragma once

#include "model/vocab.h"
#include "serve/request.h"

// request_prompt.c: request_prompts_make fills r->prompts. *n_max: the largest number of new tokens of an answer. False: *error
// holds status and cause.
bool request_prompts_make(struct request *r, int64_t *n_max, struct api_error *error);
// request_item_max returns the largest number of new tokens after this prompt.
int64_t request_item_max(const struct request *r, size_t i_prompt);

// request_submit.c: submits items until the window is full. False: *error is set. If the engine is full although items of this
// request have begun, the others are submitted later.
bool request_items_submit(struct request *r, struct api_error *error);
