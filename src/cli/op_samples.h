// SPDX-License-Identifier: MIT
// op_samples.h: a small tensor of each op, in types of the caller's choice, to ask a device about.
#pragma once

#include "ggml.h"

struct cli_op_sample {
    enum ggml_op op;
    const char *relation; // what stands between the two types that vary: "x" in "q4_0 x f32"; NULL: only the first varies
    // The result's sources are of types a and b, or b is the result's type ("to"). `sub`: which of GGML_OP_UNARY or GGML_OP_GLU.
    // Poison where the constructor says no.
    struct ggml_tensor *(*make)(struct ggml_context *ctx, enum ggml_type a, enum ggml_type b, int sub);
};

// The sample of an op; NULL for one that has none (GGML_OP_NONE).
const struct cli_op_sample *cli_op_sample(enum ggml_op op);
