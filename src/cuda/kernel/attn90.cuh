// SPDX-License-Identifier: MIT
// attn90.cuh: attention for many queries on sm_90a. A block computes 128 queries of one head, with KT keys at a time.
//
// The first warp group copies keys and values (TMA). The two other warp groups compute 64 queries each, without synchronisation:
// the softmax of one group overlaps with the products of the other group (Dao, arXiv 2205.14135; Shah et al., arXiv 2407.08608).
// Mask tiles of only -INFINITY are skipped. Mask tiles of only zeros are not read.
#pragma once

#include "attn.cuh"
#include "wgmma.cuh"

enum { ATTN90_ROWS = 128, ATTN90_STAGES = 2 };

// Layout of shared memory, in bytes: queries of both warp groups, keys, values, barriers, kinds of the mask tiles.
template <int D, int KT> struct attn90_plan {
    enum {
        Q_SIZE = 64 * D * 2,  // bytes of the queries of a warp group
        KV_SIZE = KT * D * 2, // bytes of the keys, or of the values, of a stage
        K_OFF = 2 * Q_SIZE,
        V_OFF = K_OFF + ATTN90_STAGES * KV_SIZE,
        BAR_OFF = V_OFF + ATTN90_STAGES * KV_SIZE,
        KIND_OFF = BAR_OFF + 128,
    };
};

LANE uint64_t attn90_desc_v(uint32_t addr, uint32_t block) { // `block`: bytes between blocks of 64 columns
    return (uint64_t) (addr >> 4 & 0x3fff) | (uint64_t) (block >> 4) << 16 | (uint64_t) 64 << 32 | (uint64_t) 1 << 62;
}
// Starts a copy of a box of the tensor map to shared memory, and counts it at bar when complete.
LANE void attn90_copy(uint32_t to, const cuda_tensor_map *map, int d, int key, int group, int batch, uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
                 "[%6];\n" ::"r"(to),
                 "l"(map), "r"(d), "r"(key), "r"(group), "r"(batch), "r"(bar)
                 : "memory");
}

// Converts the queries of a warp group to f16, scaled, in shared memory.
template <int D> LANE void attn90_queries(const attn_args &a, int query0, int head, int batch, float scale, char *to) {
    const int tid = threadIdx.x % 128;
    for (int i = tid; i < 64 * (D / 8); i += 128) {
        const int r = i / (D / 8), c = i % (D / 8), query = query0 + r;
        const float *p = reinterpret_cast<const float *>(a.q + query * a.q_1 + head * a.q_2 + batch * a.q_3) + 8 * c;
        float v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            v[j] = query < a.n_q && 8 * c + j < a.d_k ? p[j] * scale : 0.0f;
        }
        *reinterpret_cast<uint4 *>(to + c / 8 * 8192 + r * 128 + ((c % 8) ^ (r & 7)) * 16) =
            make_uint4(h2_pack(v[0], v[1]), h2_pack(v[2], v[3]), h2_pack(v[4], v[5]), h2_pack(v[6], v[7]));
    }
}

// Applies softcap and mask to the scores of a tile. The results are in log2 units. Scores of keys that do not exist become
// -INFINITY.
template <int KT>
LANE void attn90_mask(const attn_args &a, const uint16_t *const *mask, float slope, int key0, int kind, float *s) {
    const int t = threadIdx.x % 4;
    const bool is_even = (((uintptr_t) a.mask | a.mask_1 | a.mask_2 | a.mask_3) & 3) == 0;
#pragma unroll
    for (int j = 0; j < KT / 8; j++) {
        const int key = key0 + 8 * j + 2 * t;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t pair = 0; // of the mask
            if (kind == ATTN_MASK_SOME && mask[h] != NULL && key < a.n_kv) {
                if (is_even && key + 1 < a.n_kv) {
                    pair = *reinterpret_cast<const uint32_t *>(mask[h] + key);
                } else {
                    pair = mask[h][key] | (key + 1 < a.n_kv ? (uint32_t) mask[h][key + 1] << 16 : 0);
                }
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float *v = &s[4 * j + 2 * h + i];
                if (a.softcap != 0.0f) {
                    *v = a.softcap * tanhf(*v) * LOG2_E;
                }
                *v = key + i < a.n_kv ? *v + slope * half_value(pair >> (16 * i) & 0xffff) : -INFINITY;
            }
        }
    }
}

// Run by the warp groups that compute. Each group computes 64 queries.
template <int D, int KT>
LANE void attn90_eat(const attn_args &a, uint32_t base, const char *smem, int query0, int head, int batch, int n_tiles) {
    typedef attn90_plan<D, KT> P;
    const int wg = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint32_t full_k = base + P::BAR_OFF, full_v = full_k + 16, empty_k = full_k + 32, empty_v = full_k + 48;
    const uint32_t q_addr = base + wg * P::Q_SIZE;
    const int q0 = query0 + 64 * wg;
    // With a softcap, attn90_mask multiplies by log2(e) after the cap.
    attn90_queries<D>(
        a, q0, head, batch, a.softcap != 0.0f ? a.scale : a.scale * LOG2_E, const_cast<char *>(smem) + wg * P::Q_SIZE);
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
    asm volatile("bar.sync %0, 128;\n" ::"r"(wg + 1) : "memory");

    const float slope = attn_slope(a, head) * LOG2_E;
    const uint16_t *mask[2] = {NULL, NULL};
    for (int h = 0; h < 2; h++) {
        const int query = q0 + 16 * warp + g + 8 * h;
        if (a.mask != NULL && query < a.n_q) {
            mask[h] = reinterpret_cast<const uint16_t *>(
                a.mask + query * a.mask_1 + head % a.mask_ne2 * a.mask_2 + batch % a.mask_ne3 * a.mask_3);
        }
    }
    float o[D / 2], s[KT / 2], m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < D / 2; i++) {
        o[i] = 0.0f;
    }
    int n = 0;
    for (int j = 0; j < n_tiles; j++) {
        const int kind = a.kinds != NULL ? smem[P::KIND_OFF + j] : ATTN_MASK_ALL;
        if (kind == ATTN_MASK_NOTHING) {
            continue;
        }
        const int st = n % ATTN90_STAGES, parity = n / ATTN90_STAGES & 1;
        const uint32_t k_addr = base + P::K_OFF + st * P::KV_SIZE, v_addr = base + P::V_OFF + st * P::KV_SIZE;
        bar_wait(full_k + 8 * st, parity);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            wgmma<KT, false>::ss(
                s, wgmma_desc(q_addr + i / 4 * 8192 + i % 4 * 32), wgmma_desc(k_addr + i / 4 * KT * 128 + i % 4 * 32), i > 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_pin<KT / 2>(s);
        if (lane == 0) {
            bar_arrive(empty_k + 8 * st);
        }
        if (kind == ATTN_MASK_SOME || (j + 1) * KT > a.n_kv || a.softcap != 0.0f) {
            attn90_mask<KT>(a, mask, slope, j * KT, kind, s);
        }
        float scale[2], minus[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float most = s[2 * h];
#pragma unroll
            for (int i = 0; i < KT / 8; i++) {
                most = fmaxf(most, fmaxf(s[4 * i + 2 * h], s[4 * i + 2 * h + 1]));
            }
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
            most = fmaxf(most, m[h]);
            minus[h] = most == -INFINITY ? 0.0f : most;
            scale[h] = exp2f(m[h] - minus[h]);
            m[h] = most;
            l[h] *= scale[h];
        }
        uint32_t p[KT / 4];
#pragma unroll
        for (int i = 0; i < KT / 8; i++) {
            const float e0 = exp2f(s[4 * i] - minus[0]), e1 = exp2f(s[4 * i + 1] - minus[0]);
            const float e2 = exp2f(s[4 * i + 2] - minus[1]), e3 = exp2f(s[4 * i + 3] - minus[1]);
            l[0] += e0 + e1, l[1] += e2 + e3;
            p[2 * i] = h2_pack(e0, e1);
            p[2 * i + 1] = h2_pack(e2, e3);
        }
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            o[4 * i] *= scale[0], o[4 * i + 1] *= scale[0], o[4 * i + 2] *= scale[1], o[4 * i + 3] *= scale[1];
        }
        bar_wait(full_v + 8 * st, parity);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < KT / 16; i++) {
            wgmma<D, false>::template rs<1>(o, p + 4 * i, attn90_desc_v(v_addr + i * 2048, KT * 128), 1);
        }
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_pin<D / 2>(o);
        if (lane == 0) {
            bar_arrive(empty_v + 8 * st);
        }
        n++;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        l[h] += __shfl_xor_sync(~0u, l[h], 1);
        l[h] += __shfl_xor_sync(~0u, l[h], 2);
        float f = 1.0f;
        if (a.sinks != NULL) {
            const float sink = a.sinks[head] * LOG2_E, top = fmaxf(m[h], sink);
            f = exp2f(m[h] - top);
            l[h] = l[h] * f + exp2f(sink - top);
        }
        f = l[h] > 0.0f ? f / l[h] : 0.0f;
        const int query = q0 + 16 * warp + g + 8 * h;
        if (query < a.n_q) {
            float *y = a.y + (((int64_t) batch * a.n_q + query) * a.n_head + head) * a.d_v;
#pragma unroll
            for (int i = 0; i < D / 8; i++) {
                if (8 * i + 2 * t + 1 < a.d_v) {
                    *reinterpret_cast<float2 *>(y + 8 * i + 2 * t) = make_float2(o[4 * i + 2 * h] * f, o[4 * i + 2 * h + 1] * f);
                }
            }
        }
    }
}

template <int D, int KT> LANE void attn90(const attn90_args &args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    typedef attn90_plan<D, KT> P;
    const attn_args &a = args.a;
    extern __shared__ __align__(1024) char smem90[];
    const uint32_t pad = (1024 - smem_addr(smem90) % 1024) % 1024, base = smem_addr(smem90) + pad;
    char *smem = smem90 + pad;
    const int query0 = blockIdx.x * ATTN90_ROWS, head = blockIdx.y, batch = blockIdx.z, group = head / a.n_group;
    const int n_tiles = (a.n_kv + KT - 1) / KT;
    if (threadIdx.x == 0) {
        for (int i = 0; i < ATTN90_STAGES; i++) {
            bar_init(base + P::BAR_OFF + 8 * i, 1);
            bar_init(base + P::BAR_OFF + 16 + 8 * i, 1);
            bar_init(base + P::BAR_OFF + 32 + 8 * i, 8);
            bar_init(base + P::BAR_OFF + 48 + 8 * i, 8);
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
    }
    if (a.wait) {
        wait_for_previous();
    }
    if (a.kinds != NULL) {
        const uint8_t *kinds =
            a.kinds + (((int64_t) (batch % a.mask_ne3) * a.mask_ne2 + head % a.mask_ne2) * gridDim.x + blockIdx.x) * n_tiles;
        for (int i = threadIdx.x; i < n_tiles; i += blockDim.x) {
            smem[P::KIND_OFF + i] = (char) kinds[i];
        }
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        setmaxnreg_less<24>();
        if (threadIdx.x == 0) {
            int n = 0;
            for (int j = 0; j < n_tiles; j++) {
                if (a.kinds != NULL && smem[P::KIND_OFF + j] == ATTN_MASK_NOTHING) {
                    continue;
                }
                const int st = n % ATTN90_STAGES, parity = n / ATTN90_STAGES & 1;
                const uint32_t full_k = base + P::BAR_OFF + 8 * st, full_v = full_k + 16;
                bar_wait(full_k + 32, parity ^ 1);
                bar_expect(full_k, P::KV_SIZE);
                for (int h = 0; h < D / 64; h++) {
                    attn90_copy(base + P::K_OFF + st * P::KV_SIZE + h * KT * 128, &args.k_map, 64 * h, j * KT, group,
                        batch / a.k_r3, full_k);
                }
                bar_wait(full_v + 32, parity ^ 1);
                bar_expect(full_v, P::KV_SIZE);
                for (int h = 0; h < D / 64; h++) {
                    attn90_copy(base + P::V_OFF + st * P::KV_SIZE + h * KT * 128, &args.v_map, 64 * h, j * KT, group,
                        batch / a.v_r3, full_v);
                }
                n++;
            }
        }
    } else {
        setmaxnreg_more<240>();
        attn90_eat<D, KT>(a, base, smem, query0, head, batch, n_tiles);
    }
#endif
}
