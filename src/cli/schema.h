// SPDX-License-Identifier: MIT
// schema.h: a JSON schema as a grammar in GBNF, so that a model can only write what is valid by it.
#pragma once

#include <stddef.h>

// NULL after a message; to be freed. name stands before messages.
char *cli_schema_grammar(const char *text, size_t size, const char *name);
