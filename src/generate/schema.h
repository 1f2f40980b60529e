// SPDX-License-Identifier: MIT
// schema.h: a JSON schema as a grammar in GBNF, so that a model can only write what is valid by it.
#pragma once

#include "ggml.h"

#include <stddef.h>

// NULL after a message; to be freed. name stands before messages. While stop returns true the work ends with a message; it may be
// NULL. Takes time and memory proportional to the file's size.
char *cli_schema_grammar(const char *text, size_t size, const char *name, ggml_abort_callback stop, void *stop_data);
