// SPDX-License-Identifier: MIT
// gguf.h: what the parts of `berth gguf` share.
#pragma once

#include "cli/cli.h"

// Maps a file; NULL after a message. *code is CLI_FAILURE if it cannot be read, CLI_NO if it is no sound GGUF file.
struct berth_gguf_map *cli_gguf_open(const char *path, bool with_progress, int *code);
// Tries one block: some types need an importance matrix, some are made of other things than floats.
bool cli_gguf_can_make(enum ggml_type type, bool has_imatrix);
