// SPDX-License-Identifier: MIT
// experts.h: which expert a token wants.
#pragma once

#include "cpu/cpu.h"

#include <string.h>

// Number `use` of those that a token names.
static inline int32_t cpu_expert_of(const struct ggml_tensor *ids, int64_t use, int64_t token) {
    int32_t id;
    memcpy(&id, (const char *) ids->data + (size_t) use * ids->nb[0] + (size_t) token * ids->nb[1], sizeof id);
    return id;
}
