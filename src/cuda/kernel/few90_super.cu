// SPDX-License-Identifier: MIT
// few90_super.cu: products with 2 to 16 columns on sm_90a, for types with superblocks.
#include "few90.cuh"

FEW90_FORMAT(q2_K)
FEW90_FORMAT(q3_K)
FEW90_FORMAT(q4_K)
FEW90_FORMAT(q5_K)
FEW90_FORMAT(q6_K)
FEW90_FORMAT(iq4_xs)
