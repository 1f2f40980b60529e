// SPDX-License-Identifier: MIT
// few90_super.cu: products with 2 to 16 columns on sm_90a, for types with superblocks.
#include "few90.cuh"

template <int NB> using type_q2_K = few_8<few_q2_K, NB>;
template <int NB> using type_q3_K = few_8<few_q3_K, NB>;
template <int NB> using type_q4_K = few_8<few_q4_K, NB>;
template <int NB> using type_q5_K = few_8<few_q5_K, NB>;
template <int NB> using type_q6_K = few_8<few_q6_K, NB>;
template <int NB> using type_iq4_xs = few_8<few_iq4_xs, NB>;

FEW90_KERNELS(q2_K, type_q2_K)
FEW90_KERNELS(q3_K, type_q3_K)
FEW90_KERNELS(q4_K, type_q4_K)
FEW90_KERNELS(q5_K, type_q5_K)
FEW90_KERNELS(q6_K, type_q6_K)
FEW90_KERNELS(iq4_xs, type_iq4_xs)
