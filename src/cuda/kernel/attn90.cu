// SPDX-License-Identifier: MIT
// attn90.cu: attention for many queries on sm_90a (attn90.cuh).
#include "attn90.cuh"

extern "C" __global__ void __launch_bounds__(384, 1) attn90_64(const __grid_constant__ attn90_args a) {
    attn90<64, 128>(a);
}
extern "C" __global__ void __launch_bounds__(384, 1) attn90_128(const __grid_constant__ attn90_args a) {
    attn90<128, 128>(a);
}
extern "C" __global__ void __launch_bounds__(384, 1) attn90_256(const __grid_constant__ attn90_args a) {
    attn90<256, 64>(a);
}

// One block per tile of q_rows queries by k_rows keys.
extern "C" __global__ void __launch_bounds__(256) attn_mask(const __grid_constant__ attn_mask_args a) {
    let_next_start();
    if (a.wait) {
        wait_for_previous();
    }
    const int key0 = blockIdx.x * a.k_rows, query0 = blockIdx.y * a.q_rows;
    const char *mask = a.mask + blockIdx.z % a.ne2 * a.mask_2 + blockIdx.z / a.ne2 * a.mask_3;
    bool shut = true, open = true;
    const bool whole = key0 + a.k_rows <= a.n_kv && query0 + a.q_rows <= a.n_q && ((uintptr_t) mask | a.mask_1) % 16 == 0;
#pragma unroll 8
    for (int i = threadIdx.x; whole && i < a.q_rows * a.k_rows / 8; i += blockDim.x) {
        const int n = a.k_rows / 8;
        const uint4 w = *reinterpret_cast<const uint4 *>(mask + (query0 + i / n) * a.mask_1 + (key0 + i % n * 8) * 2);
        shut &= w.x == 0xfc00fc00u && w.y == 0xfc00fc00u && w.z == 0xfc00fc00u && w.w == 0xfc00fc00u;
        open &= ((w.x | w.y | w.z | w.w) & 0x7fff7fffu) == 0;
    }
    for (int i = threadIdx.x; !whole && i < a.q_rows * a.k_rows / 2; i += blockDim.x) {
        const int query = query0 + i / (a.k_rows / 2), key = key0 + i % (a.k_rows / 2) * 2;
        if (query < a.n_q && key < a.n_kv) {
            const uint16_t *p = reinterpret_cast<const uint16_t *>(mask + query * a.mask_1) + key;
            const uint32_t lo = p[0], hi = key + 1 < a.n_kv ? p[1] : lo;
            shut &= lo == 0xfc00u && hi == 0xfc00u;
            open &= (lo & 0x7fff) == 0 && (hi & 0x7fff) == 0;
        }
    }
    const int all_shut = __syncthreads_and(shut), all_open = __syncthreads_and(open);
    if (threadIdx.x == 0) {
        a.kinds[((int64_t) blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = all_shut   ? ATTN_MASK_NOTHING
                                                                                            : all_open ? ATTN_MASK_ALL
                                                                                                       : ATTN_MASK_SOME;
    }
}
