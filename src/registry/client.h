// SPDX-License-Identifier: MIT
// client.h: what is known of libraries that call ggml's functions by name.
#pragma once

#include "base/base.h"

// Is this one of the functions that ggml's libraries export?
BERTH_API bool berth_client_imports(const char *symbol);
// The release in the name of a library that is asked for: libggml.b10361.so -> "b10361". False: it names none.
BERTH_API bool berth_client_release_of(const char *library, char *release, size_t size);

// Looks at all loaded libraries that ask for one of ggml's, unless nothing was loaded since the last look: their release is
// told to the base, and an error line names the functions that no library has, since each would end the process at its first
// call.
void berth_client_look(void);
