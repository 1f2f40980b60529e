// SPDX-License-Identifier: MIT
// client.c: which release of llama.cpp the process was built for, where that is known. libggml finds it out when it is loaded
// (registry/client.c) and tells it here, for the few functions whose arguments changed from one release to the next.

#include "base/base.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define UNTOLD 0
#define MIXED (-1)

static atomic_int minor = UNTOLD;

// Releases before v0.1.0 count their builds: b10361. What is not known for sure is not told.
static int release_minor(const char *release) {
    if (release[0] == 'b') {
        char *end;
        const long build = strtol(release + 1, &end, 10);
        return end != release + 1 && *end == '\0' && build > 0 && build <= 10361 ? 19 : UNTOLD;
    }
    if (strncmp(release, "v0.", 3) == 0) {
        return strtol(release + 3, NULL, 10) >= 5 ? 25 : UNTOLD;
    }
    return UNTOLD;
}

void berth_client_release(const char *release) {
    const int told = release != NULL ? release_minor(release) : UNTOLD;
    int before = UNTOLD;
    if (told != UNTOLD && !atomic_compare_exchange_strong(&minor, &before, told) && before != told) {
        atomic_store(&minor, MIXED);
    }
}

int berth_client_minor(void) {
    const int m = atomic_load_explicit(&minor, memory_order_relaxed);
    return m == MIXED ? 0 : m;
}
