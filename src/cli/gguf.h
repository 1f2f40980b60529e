// SPDX-License-Identifier: MIT
// gguf.h: the parts of `berth gguf`.
#pragma once

#include "cli/cli.h"

// Each gets its own name as argv[0] and returns an exit code.
int cli_gguf_info(int argc, char **argv);
int cli_gguf_check(int argc, char **argv);
int cli_gguf_diff(int argc, char **argv);
int cli_gguf_quantize(int argc, char **argv);
int cli_gguf_merge(int argc, char **argv);

// Maps a file; NULL after a message. *code is CLI_FAILURE if it cannot be read, CLI_NO if it is no sound GGUF file.
struct berth_gguf_map *cli_gguf_open(const char *path, bool with_progress, int *code);
