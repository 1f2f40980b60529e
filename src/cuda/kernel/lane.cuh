// SPDX-License-Identifier: MIT
// lane.cuh: basic operations of one thread: reading bytes at any offset of shared memory, pairs of f16, asynchronous copies,
// tensor core products. LANE marks inlined functions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#define LANE __device__ __forceinline__

// Bytes in shared memory, from byte `off` of base on. base is the shared array itself, so that the compiler emits loads from
// shared memory.
struct bytes {
    const uint32_t *base;
    uint32_t off;

    LANE bytes at(uint32_t more) const {
        return {base, off + more};
    }
    LANE uint32_t u8(uint32_t i) const {
        return reinterpret_cast<const uint8_t *>(base)[off + i];
    }
    LANE uint32_t u16(uint32_t i) const {
        return reinterpret_cast<const uint16_t *>(base)[(off + i) >> 1];
    }
    // Four bytes; off + i is a multiple of 4.
    LANE uint32_t w32(uint32_t i) const {
        return base[(off + i) >> 2];
    }
    // Four bytes at any offset; reads up to the end of the next word.
    LANE uint32_t u32(uint32_t i) const {
        const uint32_t o = off + i;
        return __funnelshift_r(base[o >> 2], base[(o >> 2) + 1], 8 * (o & 3));
    }
};

// Like `bytes`, for a base at a multiple of 4 and offsets of a compile-time constant plus a multiple of 4. Shifts of unaligned
// reads are then constants.
struct words {
    const char *base;
    uint32_t off;

    LANE words at(uint32_t more) const {
        return {base, off + more};
    }
    LANE uint32_t u8(uint32_t i) const {
        return *reinterpret_cast<const uint8_t *>(base + off + i);
    }
    LANE uint32_t u16(uint32_t i) const {
        return *reinterpret_cast<const uint16_t *>(base + off + i);
    }
    LANE uint32_t w32(uint32_t i) const {
        return *reinterpret_cast<const uint32_t *>(base + off + i);
    }
    LANE uint32_t u32(uint32_t i) const {
        const uint32_t o = off + i, odd = o & 3;
        const uint32_t *w = reinterpret_cast<const uint32_t *>(base + (o - odd));
        return odd == 0 ? w[0] : __funnelshift_r(w[0], w[1], 8 * odd);
    }
};

// ---- pairs of f16 in a word ----

LANE __half2 as_h2(uint32_t v) {
    return *reinterpret_cast<__half2 *>(&v);
}
LANE uint32_t as_u32(__half2 v) {
    return *reinterpret_cast<uint32_t *>(&v);
}
LANE uint32_t h2_add(uint32_t a, uint32_t b) {
    return as_u32(__hadd2(as_h2(a), as_h2(b)));
}
LANE uint32_t h2_mul(uint32_t a, uint32_t b) {
    return as_u32(__hmul2(as_h2(a), as_h2(b)));
}
LANE uint32_t h2_fma(uint32_t a, uint32_t b, uint32_t c) {
    return as_u32(__hfma2(as_h2(a), as_h2(b), as_h2(c)));
}
LANE uint32_t h2_low(uint32_t v) { // the lower f16 in both places
    return __byte_perm(v, 0, 0x1010);
}
LANE uint32_t h2_high(uint32_t v) {
    return __byte_perm(v, 0, 0x3232);
}
LANE uint32_t h2_all(float v) {
    return as_u32(__float2half2_rn(v));
}
LANE uint32_t h2_pack(float lo, float hi) {
    return as_u32(__floats2half2_rn(lo, hi));
}
LANE float half_value(uint32_t bits) {
    return __half2float(__ushort_as_half((unsigned short) bits));
}
LANE uint32_t bf2_pack(float lo, float hi) {
    __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    return *reinterpret_cast<uint32_t *>(&v);
}

// ---- copies ----

LANE uint32_t smem_addr(const void *p) {
    return (uint32_t) __cvta_generic_to_shared(p);
}

// Starts an asynchronous copy of 16 bytes to shared memory. Reads only the first n bytes. The other bytes become zeros.
LANE void copy16(uint32_t to, const void *from, uint32_t n) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(n) : "memory");
}
LANE void copy_commit() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}
// Waits until all copy groups except the n newest are complete.
LANE void copy_wait(int n) {
    switch (n) {
        case 0: asm volatile("cp.async.wait_group 0;\n" ::: "memory"); break;
        case 1: asm volatile("cp.async.wait_group 1;\n" ::: "memory"); break;
        case 2: asm volatile("cp.async.wait_group 2;\n" ::: "memory"); break;
        case 3: asm volatile("cp.async.wait_group 3;\n" ::: "memory"); break;
        case 4: asm volatile("cp.async.wait_group 4;\n" ::: "memory"); break;
        case 5: asm volatile("cp.async.wait_group 5;\n" ::: "memory"); break;
        default: asm volatile("cp.async.wait_group 6;\n" ::: "memory"); break;
    }
}

// ---- tensor cores ----

template <bool BF> LANE void mma16816(float *c, const uint32_t *a, uint32_t b0, uint32_t b1) {
    if (BF) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

LANE void ldmatrix4(uint32_t addr, uint32_t *r) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}
LANE void ldmatrix4t(uint32_t addr, uint32_t *r) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(addr)
                 : "memory");
}

// Waits for the previous kernel of the stream and makes its results visible.
LANE void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}
LANE void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}
