// SPDX-License-Identifier: MIT
// few90_block.cu: products with 2 to 16 columns on sm_90a, for types with blocks of 32 or 64 elements, and for dense weights.
#include "few90.cuh"

template <int NB> using type_q4_0 = few_8<few_q4_0, NB>;
template <int NB> using type_q4_1 = few_8<few_q4_1, NB>;
template <int NB> using type_q5_0 = few_8<few_q5_0, NB>;
template <int NB> using type_q5_1 = few_8<few_q5_1, NB>;
template <int NB> using type_q8_0 = few_8<few_q8_0, NB>;
template <int NB> using type_iq4_nl = few_8<few_iq4_nl, NB>;
template <int NB> using type_mxfp4 = few_8<few_mxfp4, NB>;
template <int NB> using type_nvfp4 = few_8<few_nvfp4, NB>;
template <int NB> using type_f16 = few_16<false, NB>;
template <int NB> using type_bf16 = few_16<true, NB>;

FEW90_KERNELS(q4_0, type_q4_0)
FEW90_KERNELS(q4_1, type_q4_1)
FEW90_KERNELS(q5_0, type_q5_0)
FEW90_KERNELS(q5_1, type_q5_1)
FEW90_KERNELS(q8_0, type_q8_0)
FEW90_KERNELS(iq4_nl, type_iq4_nl)
FEW90_KERNELS(mxfp4, type_mxfp4)
FEW90_KERNELS(nvfp4, type_nvfp4)
FEW90_KERNELS(f16, type_f16)
FEW90_KERNELS(bf16, type_bf16)
