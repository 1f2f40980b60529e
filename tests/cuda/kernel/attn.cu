// SPDX-License-Identifier: MIT
// attn.cu: tests the attention kernels on a GPU, without the backend: compares their results with sums in double.
//     attn [time|quick]        time: also measure times; quick: only the small shapes
#include "attn_args.h"
#include "gpu.cuh"

#include <cudaTypedefs.h>
#include <cuda_fp16.h>

extern "C" __global__ void attn_64(const attn_args);
extern "C" __global__ void attn_128(const attn_args);
extern "C" __global__ void attn_256(const attn_args);
extern "C" __global__ void attn_any_64(const attn_args);
extern "C" __global__ void attn_any_128(const attn_args);
extern "C" __global__ void attn_any_256(const attn_args);
extern "C" __global__ void attn_few_f16_64x4(const attn_args);
extern "C" __global__ void attn_few_f16_128x4(const attn_args);
extern "C" __global__ void attn_wide_f16(const attn_args);
extern "C" __global__ void attn_wide_bf16(const attn_args);
extern "C" __global__ void attn_few_f16_64x16(const attn_args);
extern "C" __global__ void attn_few_f16_128x12(const attn_args);
extern "C" __global__ void attn_few_blocks_64x16(const attn_args);
extern "C" __global__ void attn_few_blocks_128x12(const attn_args);
extern "C" __global__ void attn_join(const attn_args);
extern "C" __global__ void attn90_64(const attn90_args);
extern "C" __global__ void attn90_128(const attn90_args);
extern "C" __global__ void attn90_256(const attn90_args);
extern "C" __global__ void attn_mask(const attn_mask_args);
extern "C" void dequantize_row_q8_0(const void *, float *, int64_t);
extern "C" void dequantize_row_q4_0(const void *, float *, int64_t);
extern "C" void dequantize_row_q4_1(const void *, float *, int64_t);
extern "C" void dequantize_row_q5_0(const void *, float *, int64_t);
extern "C" void dequantize_row_q5_1(const void *, float *, int64_t);
extern "C" void dequantize_row_iq4_nl(const void *, float *, int64_t);

struct block_type {
    int type, size; // enum ggml_type, bytes per block of 32
    float scale;    // largest scale, so that elements are about 1
    bool has_min;   // an f16 follows the scale
    void (*dequantize)(const void *, float *, int64_t);
};
static const block_type block_types[] = {{8, 34, 1 / 127.0f, false, dequantize_row_q8_0},
    {2, 18, 1 / 8.0f, false, dequantize_row_q4_0}, {3, 20, 1 / 15.0f, true, dequantize_row_q4_1},
    {6, 22, 1 / 16.0f, false, dequantize_row_q5_0}, {7, 24, 1 / 31.0f, true, dequantize_row_q5_1},
    {20, 18, 1 / 127.0f, false, dequantize_row_iq4_nl}};
static const block_type *block_type_of(int type) {
    for (const block_type &b : block_types) {
        if (b.type == type)
            return &b;
    }
    return NULL;
}

struct shape {
    // d: elements per head. type of keys and values: 0 f32, 1 f16, or a type of block_types. mask: 0 none, 1 zeros, 2 causal.
    int d, n_head, n_head_kv, n_q, n_kv, type;
    int mask;
    float softcap, max_bias;
    bool sinks, wg; // wg: test the kernels attn90_*, which use warp groups
    bool apart;     // true: the heads of one position are adjacent, as in a cache; false: the keys of one head are adjacent
};

static size_t row_size(int type, int d) {
    return type == 1 ? 2 * d : type == 0 ? 4 * d : d / 32 * block_type_of(type)->size;
}

static void fill(int type, int d, size_t rows, std::vector<char> *bytes, std::vector<float> *value) {
    bytes->resize(row_size(type, d) * rows);
    value->resize((size_t) d * rows);
    if (type == 1 || type == 0) {
        for (size_t i = 0; i < value->size(); i++) {
            const __half h = __float2half(unit());
            (*value)[i] = __half2float(h);
            if (type == 1) {
                memcpy(bytes->data() + 2 * i, &h, 2);
            } else {
                memcpy(bytes->data() + 4 * i, &(*value)[i], 4);
            }
        }
        return;
    }
    const block_type *t = block_type_of(type);
    for (size_t i = 0; i < bytes->size(); i++) {
        (*bytes)[i] = (char) (unit() * 127);
    }
    for (size_t b = 0; b < bytes->size() / t->size; b++) {
        const __half d = __float2half(t->scale * (1.0f + 0.5f * unit())), m = __float2half(-0.5f + 0.5f * unit());
        memcpy(bytes->data() + b * t->size, &d, 2);
        if (t->has_min) {
            memcpy(bytes->data() + b * t->size + 2, &m, 2);
        }
    }
    t->dequantize(bytes->data(), value->data(), (int64_t) value->size());
}

static void map_of(cuda_tensor_map *map, const void *p, int d, int n_kv, int heads, const int64_t *nb, int kt) {
    static PFN_cuTensorMapEncodeTiled_v12000 encode;
    if (encode == NULL) {
        void *fn;
        cudaDriverEntryPointQueryResult r;
        OK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000, cudaEnableDefault, &r));
        encode = (PFN_cuTensorMapEncodeTiled_v12000) fn;
    }
    const cuuint64_t dims[4] = {(cuuint64_t) d, (cuuint64_t) n_kv, (cuuint64_t) heads, 1};
    const cuuint64_t strides[3] = {(cuuint64_t) nb[0], (cuuint64_t) nb[1], (cuuint64_t) nb[2]};
    const cuuint32_t box[4] = {64, (cuuint32_t) kt, 1, 1}, one[4] = {1, 1, 1, 1};
    const CUresult r = encode((CUtensorMap *) map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, (void *) p, dims, strides, box, one,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r != CUDA_SUCCESS) {
        printf("FAILED map %d\n", (int) r);
        exit(1);
    }
}

static int failures;
static void test(const shape &s, bool time) {
    std::vector<char> kb, vb;
    std::vector<float> kf, vf, q((size_t) s.d * s.n_q * s.n_head), y(q.size()), sinks(s.n_head);
    fill(s.type, s.d, (size_t) s.n_kv * s.n_head_kv, &kb, &kf);
    fill(s.type, s.d, (size_t) s.n_kv * s.n_head_kv, &vb, &vf);
    for (auto &v : q)
        v = unit();
    for (auto &v : sinks)
        v = unit() * 3;
    const int mq = (s.n_q + 63) / 64 * 64;
    std::vector<__half> mask((size_t) mq * s.n_kv, __float2half(0.0f));
    for (int i = 0; i < s.n_q && s.mask == 2; i++) {
        for (int j = 0; j < s.n_kv; j++) {
            const int p = i + s.n_kv - s.n_q;
            mask[(size_t) i * s.n_kv + j] = __float2half(j > p ? -INFINITY : s.max_bias > 0 ? (float) (j - p) : 0.0f);
        }
    }
    char *dk, *dv, *dm;
    float *dq, *dy, *ds, *part, *limit;
    uint8_t *kinds;
    OK(cudaMalloc(&dk, kb.size()));
    OK(cudaMalloc(&dv, vb.size()));
    OK(cudaMalloc(&dm, mask.size() * 2));
    OK(cudaMalloc(&dq, q.size() * 4));
    OK(cudaMalloc(&dy, q.size() * 4));
    OK(cudaMalloc(&ds, sinks.size() * 4));
    OK(cudaMemcpy(dk, kb.data(), kb.size(), cudaMemcpyHostToDevice));
    OK(cudaMemcpy(dv, vb.data(), vb.size(), cudaMemcpyHostToDevice));
    OK(cudaMemcpy(dm, mask.data(), mask.size() * 2, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(dq, q.data(), q.size() * 4, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(ds, sinks.data(), sinks.size() * 4, cudaMemcpyHostToDevice));
    OK(cudaMemset(dy, 0xff, q.size() * 4));
    attn90_args w = {};
    attn_args &a = w.a;
    const int64_t rs = (int64_t) row_size(s.type, s.d);
    a.q = (char *) dq, a.k = dk, a.v = dv, a.y = dy;
    a.q_0 = 4, a.q_1 = 4 * s.d, a.q_2 = 4ll * s.d * s.n_q, a.k_1 = a.v_1 = s.apart ? rs * s.n_head_kv : rs,
    a.k_2 = a.v_2 = s.apart ? rs : rs * s.n_kv, a.k_3 = a.v_3 = rs * s.n_kv * s.n_head_kv;
    a.scale = 0.1f;
    if (s.softcap != 0)
        a.softcap = s.softcap, a.scale /= s.softcap;
    if (s.max_bias > 0) {
        a.n_slope = 1;
        while (a.n_slope * 2 <= s.n_head)
            a.n_slope *= 2;
        a.slope_base[0] = -s.max_bias / a.n_slope, a.slope_base[1] = -s.max_bias / 2 / a.n_slope;
    }
    if (s.mask)
        a.mask = dm, a.mask_1 = 2 * s.n_kv;
    a.mask_ne2 = a.mask_ne3 = 1;
    if (s.sinks)
        a.sinks = ds;
    a.d_k = a.d_v = s.d, a.n_kv = s.n_kv, a.n_q = s.n_q, a.n_head = s.n_head, a.n_group = s.n_head / s.n_head_kv, a.n_batch = 1;
    a.n_stages = 2, a.k_type = a.v_type = s.type, a.k_row_size = a.v_row_size = (int) rs, a.k_r3 = a.v_r3 = 1;
    a.n_rows = s.n_q * s.n_head;
    const int D = s.d <= 64 ? 64 : s.d <= 128 ? 128 : s.d <= 256 ? 256 : 576;
    size_t shared;
    int threads = 128;
    dim3 grid;
    const void *fn;
    attn_mask_args ma = {};
    const int kt = D == 256 ? 64 : 128, n_tiles = (s.n_kv + kt - 1) / kt;
    if (s.wg) {
        fn = D == 64 ? (const void *) attn90_64 : D == 128 ? (const void *) attn90_128 : (const void *) attn90_256;
        grid = dim3((s.n_q + 127) / 128, s.n_head, 1);
        OK(cudaMalloc(&kinds, (size_t) grid.x * n_tiles));
        const int64_t nb[3] = {rs, rs * s.n_kv, rs * s.n_kv * s.n_head_kv};
        map_of(&w.k_map, dk, s.d, s.n_kv, s.n_head_kv, nb, kt);
        map_of(&w.v_map, dv, s.d, s.n_kv, s.n_head_kv, nb, kt);
        shared = 2 * 64 * D * 2 + 4 * (size_t) kt * D * 2 + 128 + n_tiles + 1024;
        if (s.mask) {
            a.kinds = kinds;
            ma.mask = dm, ma.kinds = kinds, ma.mask_1 = a.mask_1, ma.ne2 = 1, ma.n_q = s.n_q, ma.n_kv = s.n_kv, ma.q_rows = 128,
            ma.k_rows = kt;
        }
    } else {
        const bool direct = s.type == 1 && s.d == D;
        fn = direct ? (D == 64       ? (const void *) attn_64
                          : D == 128 ? (const void *) attn_128
                                     : (const void *) attn_256)
                    : (D == 64       ? (const void *) attn_any_64
                          : D == 128 ? (const void *) attn_any_128
                                     : (const void *) attn_any_256);
        const bool few = s.type != 0 && s.d == D && D <= 128 && s.n_q * a.n_group <= 8;
        int warps = 4;
        bool is_long = false;
        if (few) {
            is_long = s.type != 1 || (int64_t) s.n_kv * s.n_head_kv >= 768ll * n_sm;
            warps = !is_long ? 4 : D == 64 ? 16 : 12;
            fn = !is_long      ? (D == 64 ? (const void *) attn_few_f16_64x4 : (const void *) attn_few_f16_128x4)
                 : s.type == 1 ? (D == 64 ? (const void *) attn_few_f16_64x16 : (const void *) attn_few_f16_128x12)
                               : (D == 64 ? (const void *) attn_few_blocks_64x16 : (const void *) attn_few_blocks_128x12);
            a.warp_shared = s.type == 1 ? 0 : 3 * 2 * 16 * (((int) rs + 30) / 16 | 1) * 16;
        }
        const bool wide = s.d > 256;
        if (wide) {
            fn = s.type == 0 ? (const void *) attn_wide_bf16 : (const void *) attn_wide_f16;
            warps = 8;
        }
        a.n_stages = direct ? 3 : 2;
        const int pitch = (((int) rs + 30) / 16 | 1) * 16,
                  tiles = wide ? (s.n_q * a.n_group + 31) / 32 : (s.n_q * a.n_group + 15) / 16;
        threads = 32 * warps;
        shared = wide  ? 2 * 32 * (576 + 8) * 2 + 8 * 16 * 32 * 4
                 : few ? std::max<size_t>(warps * a.warp_shared, warps * 8 * (D + 2) * 4)
                       : std::max<size_t>(4 * (a.n_stages * 16 * 2 * pitch) + 4 * 16 * (D + 8) * 2 * (s.type != 1 || s.d != D),
                             4 * 16 * D * 4 + 512);
        OK(cudaFuncSetAttribute(fn, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) shared));
        int occ;
        OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&occ, fn, threads, shared));
        const int want = std::max(1, n_sm * occ / (tiles * s.n_head_kv));
        const int step = wide ? 32 : 16 * warps;
        a.n_split = std::min(want, (s.n_kv + step - 1) / step);
        a.skips = s.mask && s.n_kv % 8 == 0;
        a.early = s.n_q == 1;
        grid = dim3(a.n_split, tiles * s.n_head_kv, 1);
        OK(cudaMalloc(&part, (size_t) a.n_split * a.n_rows * s.d * 4));
        OK(cudaMalloc(&limit, (size_t) a.n_split * a.n_rows * 8));
        a.part = part, a.limit = limit;
        if (time)
            printf("  %d blocks per multiprocessor, %d splits\n", occ, a.n_split);
    }
    bool overlap = false;
    auto go = [&](int) {
        if (s.wg) {
            if (s.mask)
                launch((const void *) attn_mask, dim3(n_tiles, grid.x, 1), dim3(256), 0, &ma, overlap);
            launch(fn, grid, dim3(384), shared, &w, overlap);
        } else {
            launch(fn, grid, dim3(threads), shared, &a, overlap);
            if (a.n_split > 1)
                launch((const void *) attn_join, dim3(a.n_rows), dim3(128), 0, &a, overlap);
        }
    };
    go(0);
    OK(cudaStreamSynchronize(stream));
    double us = 0, us2 = 0;
    if (time) {
        us = timed(go, 16);
        a.wait = ma.wait = 1, overlap = true;
        us2 = timed(go, 16);
    }
    OK(cudaMemcpy(y.data(), dy, y.size() * 4, cudaMemcpyDeviceToHost));
    auto at = [&](int g, int j) { return s.apart ? (size_t) j * s.n_head_kv + g : (size_t) g * s.n_kv + j; };
    double num = 0, den = 0;
    std::vector<double> score(s.n_kv), out(s.d);
    for (int c = 0; c < 24; c++) {
        const int qi = (int) ((unit() + 1) / 2 * s.n_q) % s.n_q, h = (int) ((unit() + 1) / 2 * s.n_head) % s.n_head,
                  g = h / a.n_group;
        double most = s.sinks ? sinks[h] : -INFINITY, sum = 0;
        const double slope = s.max_bias <= 0 ? 1
                             : h < a.n_slope ? pow(2, a.slope_base[0] * (h + 1))
                                             : pow(2, a.slope_base[1] * (2 * (h - a.n_slope) + 1));
        for (int j = 0; j < s.n_kv; j++) {
            double v = 0;
            for (int e = 0; e < s.d; e++)
                v += (double) q[((size_t) h * s.n_q + qi) * s.d + e] * kf[at(g, j) * s.d + e];
            v *= a.scale;
            if (s.softcap != 0)
                v = s.softcap * tanh(v);
            if (s.mask)
                v += slope * __half2float(mask[(size_t) qi * s.n_kv + j]);
            score[j] = v, most = std::max(most, v);
        }
        std::fill(out.begin(), out.end(), 0.0);
        if (s.sinks)
            sum = exp(sinks[h] - most);
        for (int j = 0; j < s.n_kv; j++) {
            const double p = exp(score[j] - most);
            sum += p;
            for (int e = 0; e < s.d; e++)
                out[e] += p * vf[at(g, j) * s.d + e];
        }
        for (int e = 0; e < s.d; e++) {
            const double d = y[((size_t) qi * s.n_head + h) * s.d + e] - out[e] / sum;
            num += d * d, den += out[e] / sum * out[e] / sum;
        }
    }
    const double e = num / den;
    failures += !(e < 1e-5);
    printf("attn%s d=%d heads %d/%d nq=%d nkv=%d type %d mask %d cap %g bias %g sinks %d: nmse %.2e %s", s.wg ? "90" : "", s.d,
        s.n_head, s.n_head_kv, s.n_q, s.n_kv, s.type, s.mask, s.softcap, s.max_bias, s.sinks, e, e < 1e-5 ? "ok" : "WRONG");
    if (time) {
        printf("  %.2f us, overlapped %.2f, %.1f TFLOP/s %.0f GB/s", us, us2, 4.0 * s.d * s.n_head * s.n_q * s.n_kv / us2 * 1e-6,
            2.0 * kb.size() / us2 * 1e-3);
    }
    printf("\n");
    fflush(stdout);
    cudaFree(dk), cudaFree(dv), cudaFree(dm), cudaFree(dq), cudaFree(dy), cudaFree(ds);
}

int main(int argc, char **argv) {
    const bool time = argc > 1 && !strcmp(argv[1], "time"), quick = argc > 1 && !strcmp(argv[1], "quick");
    gpu_open();
    const shape small[] = {
        {128, 8, 2, 1, 300, 1, 1, 0, 0, false, false},
        {128, 8, 2, 1, 1300, 1, 2, 0, 0, true, false, true},
        {128, 8, 1, 1, 1301, 1, 2, 0, 8, true, false, true},
        {128, 8, 8, 3, 333, 1, 2, 30, 0, false, false, true},
        {64, 8, 4, 4, 333, 1, 2, 0, 8, false, false, true},
        {128, 8, 2, 1, 1300, 8, 2, 0, 0, true, false, true},
        {64, 8, 2, 2, 1301, 8, 2, 0, 8, true, false, true},
        {96, 8, 2, 1, 1300, 8, 2, 0, 0, true, false, true},
        {96, 8, 2, 1, 1300, 2, 2, 0, 0, true, false, true},
        {64, 6, 3, 5, 1000, 1, 2, 0, 0, true, false},
        {80, 4, 4, 17, 517, 1, 2, 0, 8, false, false},
        {256, 4, 2, 3, 333, 1, 0, 30, 0, false, false},
        {128, 8, 2, 2, 700, 8, 2, 0, 0, false, false},
        {64, 8, 1, 2, 700, 2, 2, 0, 0, false, false},
        {128, 8, 2, 1, 1300, 3, 2, 0, 0, true, false, true},
        {64, 8, 2, 5, 333, 6, 2, 0, 0, false, false},
        {96, 8, 2, 3, 520, 7, 2, 0, 0, false, false, true},
        {256, 8, 2, 1, 700, 20, 2, 0, 0, false, false},
        {40, 4, 4, 9, 100, 0, 0, 0, 0, false, false},
        {576, 16, 1, 1, 1300, 1, 2, 0, 0, false, false, true},
        {320, 16, 2, 3, 333, 1, 2, 30, 8, true, false, true},
        {576, 40, 1, 2, 700, 8, 2, 0, 0, true, false, true},
        {512, 8, 2, 9, 700, 2, 2, 0, 0, false, false, true},
        {288, 4, 4, 50, 300, 0, 2, 0, 0, false, false},
        {128, 4, 2, 200, 300, 1, 2, 0, 0, false, true},
        {128, 4, 2, 128, 517, 1, 1, 0, 0, true, true},
        {64, 6, 3, 77, 1000, 1, 2, 20, 8, false, true},
        {256, 4, 2, 150, 400, 1, 2, 0, 0, false, true},
        {128, 4, 2, 200, 300, 1, 0, 0, 0, false, true},
        {80, 4, 4, 130, 517, 1, 2, 0, 0, false, true},
    };
    for (const shape &s : small) {
        test(s, false);
    }
    const shape big[] = {
        {128, 32, 8, 1, 2304, 1, 1, 0, 0, false, false, true},
        {128, 32, 8, 1, 4096, 1, 1, 0, 0, false, false, true},
        {128, 32, 8, 1, 4096, 8, 1, 0, 0, false, false, true},
        {128, 32, 8, 1, 4096, 1, 1, 0, 0, false, false},
        {128, 32, 8, 1, 32768, 1, 1, 0, 0, false, false},
        {128, 32, 8, 1, 32768, 8, 1, 0, 0, false, false},
        {128, 32, 8, 1, 32768, 1, 1, 0, 0, false, false, true},
        {128, 32, 8, 1, 32768, 8, 1, 0, 0, false, false, true},
        {128, 32, 8, 4, 4096, 1, 1, 0, 0, false, false, true},
        {576, 128, 1, 1, 4096, 1, 1, 0, 0, false, false, true},
        {576, 128, 1, 64, 4096, 1, 1, 0, 0, false, false, true},
        {128, 32, 8, 512, 4096, 1, 1, 0, 0, false, true},
        {128, 32, 8, 4096, 4096, 1, 1, 0, 0, false, true},
        {128, 32, 8, 4096, 4096, 1, 2, 0, 0, false, true},
        {64, 32, 8, 4096, 4096, 1, 1, 0, 0, false, true},
        {128, 32, 8, 512, 4096, 1, 1, 0, 0, false, false},
    };
    for (const shape &s : big) {
        if (!quick && (time || s.n_q < 600)) {
            test(s, time);
        }
    }
    printf("%d wrong\n", failures);
    return failures != 0;
}
