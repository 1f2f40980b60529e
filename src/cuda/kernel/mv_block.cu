// SPDX-License-Identifier: MIT
// mv_block.cu: products of one column with dense rows.
#include "mv_block.cuh"

MVB_KERNEL(f32, mvb_32)
MVB_KERNEL(f16, mvb_16<1>)
MVB_KERNEL(bf16, mvb_16<2>)
