// SPDX-License-Identifier: MIT
// read.h: the two halves of reading: the header (read.c), and tensors for the caller (make.c).
#pragma once

#include "gguf/source.h"

// NULL after an error.
struct gguf_context *berth_gguf_read(struct gguf_source *s, struct gguf_init_params params) BERTH_MUST_USE;

// Makes *params.ctx with a tensor for each of the file's, and reads their data unless params.no_alloc. False after an error;
// then *params.ctx is NULL.
bool berth_gguf_tensors_make(struct gguf_context *ctx, struct gguf_source *s, struct gguf_init_params params) BERTH_MUST_USE;
// The tensors without data; NULL after an error.
struct ggml_context *berth_gguf_tensors_plain(const struct gguf_context *ctx) BERTH_MUST_USE;
