// SPDX-License-Identifier: MIT
// mv.cu: products with one column: two rows per warp (mv.cuh), or four rows per block for dense weights (mv_block.cuh).
#include "mv_block.cuh"

MV_KERNEL(q4_0, mv_blocks<dot_q4_0>)
MV_KERNEL(q4_1, mv_blocks<dot_q4_1>)
MV_KERNEL(q5_0, mv_blocks<dot_q5_0>)
MV_KERNEL(q5_1, mv_blocks<dot_q5_1>)
MV_KERNEL(q8_0, mv_blocks<dot_q8_0>)
MV_KERNEL(q2_K, mv_blocks<dot_q2_K>)
MV_KERNEL(q3_K, mv_blocks<dot_q3_K>)
MV_KERNEL(q4_K, mv_blocks<dot_q4_K>)
MV_KERNEL(q5_K, mv_blocks<dot_q5_K>)
MV_KERNEL(q6_K, mv_blocks<dot_q6_K>)
MV_KERNEL(iq4_nl, mv_blocks<dot_iq4_nl>)
MV_KERNEL(iq4_xs, mv_blocks<dot_iq4_xs>)
MV_KERNEL(mxfp4, mv_blocks<dot_mxfp4>)
MV_KERNEL(nvfp4, mv_blocks<dot_nvfp4>)
MV_KERNEL(f32, mv_floats)
MV_KERNEL(f16, mv_dense<1>)
MV_KERNEL(bf16, mv_dense<2>)

MVB_KERNEL(f32, mvb_32)
MVB_KERNEL(f16, mvb_16<1>)
MVB_KERNEL(bf16, mvb_16<2>)
