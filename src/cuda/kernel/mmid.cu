// SPDX-License-Identifier: MIT
// mmid.cu: sorts (token, slot) pairs by expert into tiles of columns, so that each tile needs one expert (mma_args.h). One block
// suffices for the few pairs. It has at least one thread per expert.
#include "lane.cuh"
#include "mma_args.h"

extern "C" __global__ void __launch_bounds__(1024) mmid_sort(const __grid_constant__ mmid_args a) {
    __shared__ int count[MMID_EXPERTS], first[MMID_EXPERTS];
    let_next_start();
    if (a.wait) {
        wait_for_previous();
    }
    for (int i = threadIdx.x; i < a.n_experts; i += blockDim.x) {
        count[i] = 0;
    }
    for (int i = threadIdx.x; i < a.n_tiles; i += blockDim.x) {
        a.experts[i] = -1;
    }
    for (int i = threadIdx.x; i < a.n_tiles * a.nt; i += blockDim.x) {
        a.from[i] = a.to[0][i] = -1;
        if (a.to[1] != NULL) {
            a.to[1][i] = -1;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < a.n_pairs; i += blockDim.x) {
        const int expert = a.ids[i / a.n_used * a.ids_row + i % a.n_used];
        atomicAdd(&count[expert >= 0 && expert < a.n_experts ? expert : 0], 1);
    }
    __syncthreads();
    const int mine = threadIdx.x < a.n_experts ? (count[threadIdx.x] + a.nt - 1) / a.nt : 0;
    first[threadIdx.x] = mine;
    __syncthreads();
    for (int step = 1; step < a.n_experts; step *= 2) {
        const int before = (int) threadIdx.x >= step ? first[threadIdx.x - step] : 0;
        __syncthreads();
        first[threadIdx.x] += before;
        __syncthreads();
    }
    const int start = first[threadIdx.x] - mine;
    for (int i = 0; i < mine; i++) {
        a.experts[start + i] = threadIdx.x;
    }
    __syncthreads();
    first[threadIdx.x] = start * a.nt; // next column of the expert
    __syncthreads();
    for (int i = threadIdx.x; i < a.n_pairs; i += blockDim.x) {
        const int token = i / a.n_used, slot = i % a.n_used, expert = a.ids[token * a.ids_row + slot];
        const bool is_there = expert >= 0 && expert < a.n_experts;
        const int at = atomicAdd(&first[is_there ? expert : 0], 1);
        a.from[at] = is_there ? i : -1;
        a.to[0][at] = (int32_t) (slot * a.y_col[0] + token * a.y_z2[0]) + a.y_off;
        if (a.to[1] != NULL) {
            a.to[1][at] = (int32_t) (slot * a.y_col[1] + token * a.y_z2[1]);
        }
    }
    if (a.twin_expert == 0) {
        return;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < a.n_tiles; i += blockDim.x) {
        a.experts[a.n_tiles + i] = a.experts[i] >= 0 ? a.experts[i] + a.twin_expert : -1;
    }
    for (int i = threadIdx.x, n = a.n_tiles * a.nt; i < n; i += blockDim.x) {
        a.from[n + i] = a.from[i];
        a.to[0][n + i] = a.to[0][i] >= 0 ? a.to[0][i] + a.twin_y : -1;
    }
}
