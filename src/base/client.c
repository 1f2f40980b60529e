// SPDX-License-Identifier: MIT
// client.c: stores the ggml version for which the clients of this process were built. A client is a program or library that calls
// ggml's API. Berth needs the version because some functions have other arguments in newer releases. libggml calls
// berth_client_release when llama.cpp is loaded (registry/client.c).

#include "base/base.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN 0
#define MIXED (-1)

static atomic_int minor = UNKNOWN;

// Returns UNKNOWN if the version is uncertain. Releases before v0.1.0 are build numbers, such as b10361.
static int release_minor(const char *release) {
    if (release[0] == 'b') {
        char *end;
        const long build = strtol(release + 1, &end, 10);
        return end != release + 1 && *end == '\0' && build > 0 && build <= 10361 ? 19 : UNKNOWN;
    }
    if (strncmp(release, "v0.", 3) == 0) {
        return strtol(release + 3, NULL, 10) >= 4 ? 25 : UNKNOWN; // v0.4.0 has ggml 0.23, whose functions take the same arguments
    }
    return UNKNOWN;
}

void berth_client_release(const char *release) {
    const int found = release != NULL ? release_minor(release) : UNKNOWN;
    int before = UNKNOWN;
    if (found != UNKNOWN && !atomic_compare_exchange_strong(&minor, &before, found) && before != found) {
        atomic_store(&minor, MIXED);
    }
}

int berth_client_minor(void) {
    const int m = atomic_load_explicit(&minor, memory_order_relaxed);
    return m == MIXED ? 0 : m;
}
