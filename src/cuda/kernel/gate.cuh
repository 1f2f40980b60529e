// SPDX-License-Identifier: MIT
// gate.cuh: the activation of a gate that a product computes (mv_args.glu).
#pragma once

#include "lane.cuh"
#include "mv_args.h"

LANE float glu_gate(int glu, float x) {
    if (glu == MV_GLU_SWIGLU) {
        return x / (1.0f + __expf(-x));
    }
    return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * x * (1.0f + 0.044715f * x * x)));
}
