// SPDX-License-Identifier: MIT
// few90_block.cu: products with 2 to 16 columns on sm_90a, for types with blocks of 32 or 64 elements, and for dense weights.
#include "few90.cuh"

FEW90_FORMAT(q4_0)
FEW90_FORMAT(q4_1)
FEW90_FORMAT(q5_0)
FEW90_FORMAT(q5_1)
FEW90_FORMAT(q8_0)
FEW90_FORMAT(iq4_nl)
FEW90_FORMAT(mxfp4)
FEW90_FORMAT(nvfp4)

template <int NB> using type_f16 = few_16<false, NB>;
template <int NB> using type_bf16 = few_16<true, NB>;
FEW90_KERNELS(f16, type_f16)
FEW90_KERNELS(bf16, type_bf16)
