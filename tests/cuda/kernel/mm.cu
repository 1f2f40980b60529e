// SPDX-License-Identifier: MIT
// mm.cu: tests the product kernels on a GPU, without the backend: compares the results of every type with sums in double. Built by
// tests/cuda/kernel/build.sh.
//     mm [quick | time [few]]        quick: fewer shapes; time: also measure times; few: only products of 1, 2 and 8 columns
#include "gpu.cuh"
#include "mm_types.h"
#include "mma_args.h"
#include "mmv_args.h"
#include "mv_args.h"

struct weights {
    std::vector<char> rows;    // N_DISTINCT rows
    std::vector<float> values; // the same rows as floats
    size_t row_size;
};
enum { N_DISTINCT = 61 };

static weights make(const mm_type &t, int k) {
    weights w;
    w.row_size = (size_t) (k / t.qk) * t.bytes;
    w.rows.resize(w.row_size * N_DISTINCT + 64);
    w.values.resize((size_t) k * N_DISTINCT);
    if (t.qk == 1) {
        for (int i = 0; i < k * N_DISTINCT; i++) {
            const float v = unit();
            uint32_t bits;
            memcpy(&bits, &v, 4);
            if (t.bytes == 4) {
                ((float *) w.rows.data())[i] = v;
                w.values[i] = v;
            } else if (!strcmp(t.name, "f16")) {
                const __half h = __float2half_rn(v);
                memcpy(w.rows.data() + 2 * i, &h, 2);
                w.values[i] = __half2float(h);
            } else {
                ((uint16_t *) w.rows.data())[i] = (uint16_t) (bits >> 16);
                bits &= 0xffff0000u;
                memcpy(&w.values[i], &bits, 4);
            }
        }
        return w;
    }
    for (size_t i = 0; i < w.rows.size(); i++) {
        w.rows[i] = (char) rnd();
    }
    for (int b = 0; b < k / t.qk * N_DISTINCT; b++) {
        // tame (mm_types.h) sets the scales of a block of random bytes, so that the block is valid.
        t.tame(w.rows.data() + (size_t) b * t.bytes, rnd());
    }
    t.to_float(w.rows.data(), w.values.data(), (int64_t) k * N_DISTINCT);
    return w;
}

// ---- launch parameters of the kernel mmv ----

static int mmv_warps(const mm_type &t) {
    return t.bytes == 4 && t.qk == 1 || t.bytes == 34 ? MMV_WARPS_LARGE : MMV_WARPS;
}
static void mmv_shape(const mm_type &t, int k, int n, int parts, mmv_args *a, size_t *shared) {
    const int ch = t.qk == 1 ? 128 : 256, bytes = ch / t.qk * t.bytes, warps = mmv_warps(t);
    const size_t stage = (size_t) (((bytes + 14) / 16 + 1) | 1) * 16 * 16 * warps, fixed = MMV_FIXED(warps);
    const int n_chunks = (k + ch - 1) / ch;
    const size_t cols = (size_t) parts * n * (n_chunks * ch + 8) * 2;
    a->k_part = n_chunks;
    a->w_fours = (size_t) k / t.qk * t.bytes % 4 == 0;
    a->w_sixteens = (size_t) k / t.qk * t.bytes % 16 == 0;
    if (fixed + cols + 2 * stage <= 227 * 1024) {
        a->n_stages = (int) std::min<size_t>(7, (227 * 1024 - fixed - cols) / stage);
        *shared = fixed + cols + a->n_stages * stage;
        return;
    }
    a->n_stages = 2;
    while (fixed + (size_t) parts * n * (a->k_part * ch + 8) * 2 + 2 * stage > 227 * 1024) {
        a->k_part = (a->k_part + 1) / 2;
    }
    *shared = fixed + (size_t) parts * n * (a->k_part * ch + 8) * 2 + 2 * stage;
}

// Memory of the GPU.
static char *d_w;                  // weights
static float *d_x, *d_y, *d_scale; // columns, results, scales of the columns
static uint16_t *d_tiles;          // columns converted by act_tiles
// Memory of the host.
static std::vector<float> x, y; // columns, results
static std::vector<char> full;  // weights

// Returns the normalised squared error of y compared with sums in double, for about n_check of the n columns and a part of the m
// rows.
static double error_of(const weights &w, int m, int k, int n, int n_check) {
    double num = 0, den = 0;
    for (int c = 0; c<n; c += n> n_check ? n / n_check : 1) {
        for (int r = 0; r < m; r += r < 300 ? 1 : 97) {
            const float *row = w.values.data() + (size_t) (r % N_DISTINCT) * k;
            double sum = 0;
            for (int i = 0; i < k; i++) {
                sum += (double) row[i] * x[(size_t) c * k + i];
            }
            const double d = y[(size_t) c * m + r] - sum;
            num += d * d, den += sum * sum;
            if (!(y[(size_t) c * m + r] == y[(size_t) c * m + r])) {
                return NAN;
            }
        }
    }
    return num / den;
}

// Copies m rows to the GPU, `copies` times, so that a timed loop reads weights that are not in the L2 cache.
static void upload(const weights &w, int m, int copies) {
    full.resize(w.row_size * m);
    for (int r = 0; r < m; r++) {
        memcpy(full.data() + w.row_size * r, w.rows.data() + w.row_size * (r % N_DISTINCT), w.row_size);
    }
    for (int i = 0; i < copies; i++) {
        OK(cudaMemcpyAsync(
            d_w + (w.row_size * m + 255) / 256 * 256 * i, full.data(), w.row_size * m, cudaMemcpyHostToDevice, stream));
    }
    OK(cudaStreamSynchronize(stream));
}

static int failures;
// Compares the result on the GPU with sums in double, and prints a line. us: time of the kernel, 0: not measured.
static void fetch_and_judge(const char *what, const mm_type &t, const weights &w, int m, int k, int n, double us, double limit) {
    y.resize((size_t) m * n);
    OK(cudaMemcpy(y.data(), d_y, y.size() * 4, cudaMemcpyDeviceToHost));
    const double e = error_of(w, m, k, n, 6);
    const bool bad = !(e < limit);
    failures += bad;
    printf("%s %-8s m=%d k=%d n=%d nmse %.2e %s", what, t.name, m, k, n, e, bad ? "WRONG" : "ok");
    if (us > 0) {
        printf("  %8.2f us %7.0f GB/s %7.1f TFLOP/s", us, (double) w.row_size * m / us * 1e-3, 2.0 * m * k * n / us * 1e-6);
    }
    printf("\n");
    fflush(stdout);
}

// Fills x with n columns of k random elements, and copies them to the GPU.
static void columns_fill(int k, int n) {
    x.resize((size_t) k * n);
    for (auto &v : x) {
        v = unit();
    }
    OK(cudaMemcpy(d_x, x.data(), x.size() * 4, cudaMemcpyHostToDevice));
}

static void test_mmv(const mm_type &t, int m, int k, int n, bool time) {
    const weights w = make(t, k);
    const int copies = time ? 16 : 1;
    upload(w, m, copies);
    columns_fill(k, n);
    OK(cudaMemset(d_y, 0xff, (size_t) m * n * 4));
    mmv_args a = {};
    const bool wide = n > 4 && t.mmv_wide != NULL;
    const void *fn = wide ? t.mmv_wide : t.mmv;
    size_t shared;
    mmv_shape(t, k, n, t.qk == 1 && !wide ? 2 : 1, &a, &shared);
    a.w = d_w, a.y = d_y, a.w_row = (int64_t) w.row_size, a.y_col = m, a.m = m, a.k = k, a.n = n;
    a.ne2 = a.r2 = a.r3 = 1, a.w_const = 1;
    OK(cudaFuncSetAttribute(fn, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) shared));
    int occ = 1;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&occ, fn, mmv_warps(t) * 32, shared));
    const int grid = std::min((m + 15) / 16, n_sm * std::max(occ, 1));
    double us = 0, us2 = 0;
    const int kpad = (k + 255) / 256 * 256, parts = t.qk == 1 && !wide ? 2 : 1;
    act_args c = {};
    c.x = (const char *) d_x, c.tiles = d_tiles, c.scale = d_scale, c.x_col = 4 * k, c.k = k, c.n = n, c.nt = 1, c.ne2 = 1,
    c.flat = 1;
    c.rest = parts == 2, c.bf = !strcmp(t.name, "bf16") || !strcmp(t.name, "f32");
    a.xh = d_tiles, a.scale = d_scale, a.xh_col = kpad, a.xh_rest = n;
    auto go = [&](int i) {
        if (i == 0) {
            launch((const void *) act_tiles, dim3(n, 1), dim3(256), 0, &c, false);
        }
        a.w = d_w + (w.row_size * m + 255) / 256 * 256 * (i % copies);
        launch(fn, dim3(grid), dim3(mmv_warps(t) * 32), shared, &a, a.wait);
    };
    go(0);
    OK(cudaStreamSynchronize(stream));
    if (time) {
        us = timed(go, 32);
        a.wait = 1;
        us2 = timed(go, 32);
    }
    fetch_and_judge("mmv", t, w, m, k, n, us, wide && t.mma_256 ? 1e-5 : 1e-6);
    if (time) {
        printf("      stages %d, %d blocks per multiprocessor, overlapped %.2f us\n", a.n_stages, occ, us2);
    }
}

static void test_mv(const mm_type &t, int m, int k, bool time) {
    if (t.mv == NULL) {
        return;
    }
    const weights w = make(t, k);
    const int copies = time ? 16 : 1;
    upload(w, m, copies);
    columns_fill(k, 1);
    const int step = t.qk > 1 ? 2048 : t.bytes == 4 ? 512 : 1024, bytes = step / t.qk * t.bytes;
    const size_t stage = (size_t) ((bytes + 30) / 16 * 16 + 16) * 2 * MV_WARPS;
    const size_t col = t.qk > 1 ? (size_t) k / 32 * 48 : ((size_t) k + 7) / 8 * 32;
    for (int per_sm = time ? 2 : 1; per_sm > 0; per_sm--) {
        OK(cudaMemset(d_y, 0xff, (size_t) m * 4));
        mv_args a = {};
        const int grid = std::min(((m + 1) / 2 + MV_WARPS - 1) / MV_WARPS, n_sm);
        const size_t fixed = col + MV_WARPS * 64 + 64, room = (per_sm == 2 ? 112 : 227) * 1024;
        a.n_stages = (int) std::min<size_t>(7, (room - fixed) / stage);
        if (a.n_stages < 1) {
            continue;
        }
        const size_t shared = fixed + a.n_stages * stage;
        a.w[0] = d_w, a.x = d_x, a.y[0] = d_y, a.w_row = (int64_t) w.row_size, a.m[0] = m, a.k = k, a.n_parts = 1;
        a.ne2 = a.r2 = a.r3 = 1, a.w_const = 1;
        double us = 0, us2 = 0;
        auto go = [&](int i) {
            a.w[0] = d_w + (w.row_size * m + 255) / 256 * 256 * (i % copies);
            launch(t.mv, dim3(grid), dim3(MV_WARPS * 32), shared, &a, a.wait);
        };
        go(0);
        OK(cudaStreamSynchronize(stream));
        if (time) {
            us = timed(go, 32);
            a.wait = 1;
            us2 = timed(go, 32);
        }
        fetch_and_judge("mv", t, w, m, k, 1, us, t.qk > 1 ? 2e-4 : 1e-10);
        if (time) {
            printf("      stages %d, %d blocks per multiprocessor, overlapped %.2f us\n", a.n_stages, per_sm, us2);
        }
    }
}

static void test_mvb(const mm_type &t, int m, int k, bool time) {
    if (t.mvb == NULL) {
        return;
    }
    const weights w = make(t, k);
    const int copies = time ? 16 : 1;
    upload(w, m, copies);
    columns_fill(k, 1);
    OK(cudaMemset(d_y, 0xff, (size_t) m * 4));
    mv_args a = {};
    const size_t shared = ((size_t) k + 7) / 8 * 32 + MV_WARPS * 64 + 64;
    OK(cudaFuncSetAttribute(t.mvb, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) shared));
    int occ;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&occ, t.mvb, MV_WARPS * 32, shared));
    a.w[0] = d_w, a.x = d_x, a.y[0] = d_y, a.w_row = (int64_t) w.row_size, a.m[0] = m, a.k = k, a.n_parts = 1;
    a.ne2 = a.r2 = a.r3 = 1, a.w_const = 1;
    const int grid = std::min((m + 3) / 4, n_sm * occ);
    auto go = [&](int i) {
        a.w[0] = d_w + (w.row_size * m + 255) / 256 * 256 * (i % copies);
        launch(t.mvb, dim3(grid), dim3(MV_WARPS * 32), shared, &a, a.wait);
    };
    go(0);
    OK(cudaStreamSynchronize(stream));
    double us = 0, us2 = 0;
    if (time) {
        us = timed(go, 32);
        a.wait = 1;
        us2 = timed(go, 32);
    }
    fetch_and_judge("mvb", t, w, m, k, 1, us, 1e-10);
    if (time) {
        printf("      %d blocks per multiprocessor, overlapped %.2f us\n", occ, us2);
    }
}

static void test_mma(const mm_type &t, int nt, int m, int k, int n, bool time) {
    const void *fn = nt == 64 ? t.mma_64 : nt == 128 ? t.mma_128 : t.mma_256;
    if (fn == NULL) {
        return;
    }
    const weights w = make(t, k);
    const int copies = time ? 2 : 1;
    upload(w, m, copies);
    columns_fill(k, n);
    OK(cudaMemset(d_y, 0xff, (size_t) m * n * 4));
    const int n_tiles = (n + nt - 1) / nt;
    act_args c = {};
    c.x = (const char *) d_x, c.tiles = d_tiles, c.scale = d_scale, c.x_col = 4 * k, c.k = k, c.n = n, c.nt = nt, c.ne2 = 1;
    c.bf = !strcmp(t.name, "bf16");
    mma_args a = {};
    a.tiles = d_tiles, a.scale = d_scale, a.y = d_y, a.w_row = (int64_t) w.row_size, a.y_col = m, a.m = m, a.k = k, a.n = n;
    a.ne2 = a.r2 = a.r3 = 1, a.n_tiles = n_tiles;
    const int ch = t.qk == 1 ? 64 : 256, bytes = ch / t.qk * t.bytes, pitch = (((bytes + 14) / 16 + 1) | 1) * 16;
    const size_t shared = (size_t) (nt == 256 ? 4 : 6) * nt * 128 + (ch < 256 ? 4 : 2) * pitch * 128 + 256 + 1024 + 64;
    auto go = [&](int i) {
        launch((const void *) act_tiles, dim3(n_tiles * nt, 1), dim3(256), 0, &c, false);
        a.w = d_w + (w.row_size * m + 255) / 256 * 256 * (i % copies);
        launch(fn, dim3(n_tiles, (m + 127) / 128), dim3(384), shared, &a, false);
    };
    go(0);
    OK(cudaStreamSynchronize(stream));
    const double us = time ? timed(go, n > 1024 ? 4 : 8) : 0;
    char what[16];
    snprintf(what, sizeof what, "mma%d", nt);
    fetch_and_judge(what, t, w, m, k, n, us, c.bf ? 1e-5 : 1e-6);
}

int main(int argc, char **argv) {
    const bool time = argc > 1 && !strcmp(argv[1], "time");
    const bool few = argc > 2 && !strcmp(argv[2], "few"); // "time few": only the kernels mvb and mmv, of hot types
    const bool quick = argc > 1 && !strcmp(argv[1], "quick");
    gpu_open();
    OK(cudaMalloc(&d_w, time ? (size_t) 16 * 14336 * 4096 * 4 : (size_t) 1 << 28));
    OK(cudaMalloc(&d_x, (size_t) 14336 * 4096 * 4));
    OK(cudaMalloc(&d_y, (size_t) 14336 * 4096 * 4));
    OK(cudaMalloc(&d_tiles, (size_t) 14336 * 4096 * 4));
    OK(cudaMalloc(&d_scale, (size_t) 65536 * 4));
    for (const mm_type &t : mm_types) {
        if (few && t.hot) {
            test_mvb(t, 37, 200, false);
            test_mvb(t, 1001, 14336, false);
            test_mvb(t, 14336, 4096, true);
            test_mvb(t, 4096, 14336, true);
            test_mmv(t, 14336, 4096, 2, true);
            test_mmv(t, 14336, 4096, 8, true);
        }
    }
    for (const mm_type &t : mm_types) {
        if (few) {
            break;
        }
        const int k = t.qk == 1 ? 200 : t.qk * 3 + 256;
        if (quick) {
            test_mv(t, 37, k, false);
            test_mmv(t, 37, k, 3, false);
            test_mma(t, t.mma_128 ? 128 : 64, 150, k, 20, false);
            continue;
        }
        test_mv(t, 37, k, false);
        test_mv(t, 5000, t.qk == 1 ? 777 : 14336, false);
        test_mvb(t, 37, 200, false);
        test_mvb(t, 1001, 14336, false);
        test_mmv(t, 37, k, 1, false);
        test_mmv(t, 70, k, 8, false);
        test_mmv(t, 500, t.qk == 1 ? 777 : 14336, 5, false);
        for (int nt = 64; nt <= 256; nt *= 2) {
            test_mma(t, nt, 300, k, 77, false);
            test_mma(t, nt, 128, 2048, 300, false);
        }
    }
    for (const mm_type &t : mm_types) {
        if (time && !few) {
            test_mv(t, 14336, 4096, true);
            test_mvb(t, 14336, 4096, true);
            test_mvb(t, 4096, 14336, true);
            test_mmv(t, 14336, 4096, t.mv != NULL ? 2 : 1, true);
            if (t.hot) {
                test_mmv(t, 14336, 4096, 8, true);
                test_mv(t, 4096, 14336, true);
                test_mma(t, 64, 14336, 4096, 64, true);
                test_mma(t, 256, 14336, 4096, 512, true);
                test_mma(t, 256, 14336, 4096, 4096, true);
            }
        }
    }
    printf("%d wrong\n", failures);
    return failures != 0;
}
