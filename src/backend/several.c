// SPDX-License-Identifier: MIT
// several.c: what the interface asks of devices made of several, which lie above it (src/meta) and tell it when there is one.

#include "backend/backend.h"

#include <stdatomic.h>

static const struct berth_several *_Atomic told;

void berth_several_set(const struct berth_several *functions) {
    atomic_store_explicit(&told, functions, memory_order_release);
}

const struct berth_several *berth_several_get(void) {
    return atomic_load_explicit(&told, memory_order_acquire);
}
