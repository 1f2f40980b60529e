// SPDX-License-Identifier: MIT
// wgmma.cuh: matrix products of a warp group (4 warps, 64 rows) on sm_90a, and barriers in shared memory.
// Thread (g, t) = (lane / 4, lane % 4). c[4 j + i] is at row g + 8 * (i / 2) of the warp's 16 rows, and column 8 j + 2t + i % 2.
// B is in shared memory in rows of 128 bytes (64 f16 of a column). Swizzle: 16-byte piece p of row r is at position p ^ (r % 8).
#pragma once

#include "lane.cuh"

LANE uint64_t wgmma_desc(uint32_t addr) {
    return (uint64_t) (addr >> 4 & 0x3fff) | (uint64_t) 1 << 16 | (uint64_t) 64 << 32 | (uint64_t) 1 << 62;
}
LANE void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
LANE void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
template <int N> LANE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}
// Prevents the compiler from moving accesses of c across the preceding wait.
template <int N> LANE void wgmma_pin(float *c) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+f"(c[i])::"memory");
    }
}

// Orders one decoded sub of rows g (o0) and g + 8 (o1) as the A operands of two products (decode.cuh).
LANE void operands_put(const uint32_t *o0, const uint32_t *o1, uint32_t *a) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        a[4 * r] = o0[2 * r];
        a[4 * r + 1] = o1[2 * r];
        a[4 * r + 2] = o0[2 * r + 1];
        a[4 * r + 3] = o1[2 * r + 1];
    }
}

// ---- barriers in shared memory ----

LANE void bar_init(uint32_t bar, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;\n" ::"r"(bar), "r"(count) : "memory");
}
LANE void bar_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];\n" ::"r"(bar) : "memory");
}
// Arrives, and makes the barrier also wait for n_bytes of bulk copies.
LANE void bar_expect(uint32_t bar, uint32_t n_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n" ::"r"(bar), "r"(n_bytes) : "memory");
}
LANE void bar_wait(uint32_t bar, uint32_t parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
                 "@done bra through;\n"
                 "bra again;\n"
                 "through:\n"
                 "}\n" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}
// Starts an asynchronous copy and counts it at bar when complete. Addresses and size are multiples of 16.
LANE void bulk_copy(uint32_t to, const void *from, uint32_t n_bytes, uint32_t bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(to), "l"(from),
                 "r"(n_bytes), "r"(bar)
                 : "memory");
}

template <int N> LANE void setmaxnreg_less() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(N));
}
template <int N> LANE void setmaxnreg_more() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(N));
}

// ---- c += a * b: a in registers (rs) or in shared memory (ss) ----

template <int N, bool BF> struct wgmma;

#define C4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define C8(i) C4(i), C4(i + 4)
#define C16(i) C8(i), C8(i + 8)
#define C32(i) C16(i), C16(i + 16)
#define C64(i) C32(i), C32(i + 32)
#define C128(i) C64(i), C64(i + 64)
#define T8(a, b, c, d, e, f, g, h) "%" #a ",%" #b ",%" #c ",%" #d ",%" #e ",%" #f ",%" #g ",%" #h
#define TEXT_4 "%0,%1,%2,%3"
#define TEXT_8 T8(0, 1, 2, 3, 4, 5, 6, 7)
#define TEXT_16 T8(0, 1, 2, 3, 4, 5, 6, 7) "," T8(8, 9, 10, 11, 12, 13, 14, 15)
#define TEXT_32 \
    T8(0, 1, 2, 3, 4, 5, 6, 7) \
    "," T8(8, 9, 10, 11, 12, 13, 14, 15) "," T8(16, 17, 18, 19, 20, 21, 22, 23) "," T8(24, 25, 26, 27, 28, 29, 30, 31)
#define TEXT_64 \
    T8(0, 1, 2, 3, 4, 5, 6, 7) \
    "," T8(8, 9, 10, 11, 12, 13, 14, 15) "," T8(16, 17, 18, 19, 20, 21, 22, 23) "," T8(24, 25, 26, 27, 28, 29, 30, 31) "," T8( \
        32, 33, 34, 35, 36, 37, 38, 39) "," T8(40, 41, 42, 43, 44, 45, 46, 47) "," T8(48, 49, 50, 51, 52, 53, 54, 55) "," T8(56, \
        57, 58, 59, 60, 61, 62, 63)
#define TEXT_128 \
    T8(0, 1, 2, 3, 4, 5, 6, 7) \
    "," T8(8, 9, 10, 11, 12, 13, 14, 15) "," T8(16, 17, 18, 19, 20, 21, 22, 23) "," T8(24, 25, 26, 27, 28, 29, 30, 31) "," T8( \
        32, 33, 34, 35, 36, 37, 38, 39) "," T8(40, 41, 42, 43, 44, 45, 46, 47) "," T8(48, 49, 50, 51, 52, 53, 54, 55) "," T8(56, \
        57, 58, 59, 60, 61, 62, 63) "," T8(64, 65, 66, 67, 68, 69, 70, 71) "," T8(72, 73, 74, 75, 76, 77, 78, 79) "," T8(80, 81, \
        82, 83, 84, 85, 86, 87) "," T8(88, 89, 90, 91, 92, 93, 94, 95) "," T8(96, 97, 98, 99, 100, 101, 102, 103) "," T8(104, \
        105, 106, 107, 108, 109, 110, \
        111) "," T8(112, 113, 114, 115, 116, 117, 118, 119) "," T8(120, 121, 122, 123, 124, 125, 126, 127)

// Defines wgmma<N, IS_BF>. A0 to A6 are the numbers of the asm operands after c.
//   rs: A0 to A3 registers of a, A4 descriptor of b, A5 add, A6 TRANSPOSED
//   ss: A0 descriptor of a, A1 descriptor of b, A2 add
// If add is 0, c is overwritten.
#define WGMMA(N, REGS, TYPE, IS_BF, LIST, A0, A1, A2, A3, A4, A5, A6) \
    template <> struct wgmma<N, IS_BF> { \
        template <int TRANSPOSED> LANE static void rs(float *c, const uint32_t *a, uint64_t b, int add) { \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #A5 ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" TEXT_##REGS \
                         "}, " \
                         "{%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "}, %" #A4 ", p, 1, 1, %" #A6 ";\n}\n" \
                         : LIST(0) \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TRANSPOSED)); \
        } \
        LANE static void ss(float *c, uint64_t a, uint64_t b, int add) { \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #A2 ", 0;\n" \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" TEXT_##REGS \
                         "}, " \
                         "%" #A0 ", %" #A1 ", p, 1, 1, 0, 0;\n}\n" \
                         : LIST(0) \
                         : "l"(a), "l"(b), "r"(add)); \
        } \
    };

WGMMA(8, 4, "f16", false, C4, 4, 5, 6, 7, 8, 9, 10)
WGMMA(8, 4, "bf16", true, C4, 4, 5, 6, 7, 8, 9, 10)
WGMMA(16, 8, "f16", false, C8, 8, 9, 10, 11, 12, 13, 14)
WGMMA(16, 8, "bf16", true, C8, 8, 9, 10, 11, 12, 13, 14)
WGMMA(32, 16, "f16", false, C16, 16, 17, 18, 19, 20, 21, 22)
WGMMA(32, 16, "bf16", true, C16, 16, 17, 18, 19, 20, 21, 22)
WGMMA(64, 32, "f16", false, C32, 32, 33, 34, 35, 36, 37, 38)
WGMMA(64, 32, "bf16", true, C32, 32, 33, 34, 35, 36, 37, 38)
WGMMA(128, 64, "f16", false, C64, 64, 65, 66, 67, 68, 69, 70)
WGMMA(128, 64, "bf16", true, C64, 64, 65, 66, 67, 68, 69, 70)
WGMMA(256, 128, "f16", false, C128, 128, 129, 130, 131, 132, 133, 134)
WGMMA(256, 128, "bf16", true, C128, 128, 129, 130, 131, 132, 133, 134)
