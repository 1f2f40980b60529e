// SPDX-License-Identifier: MIT
// gpu.cuh: helpers of the kernel tests: a stream, launches, timing, random numbers.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#define OK(call) \
    do { \
        cudaError_t e = (call); \
        if (e != cudaSuccess) { \
            printf("FAILED %s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e)); \
            exit(1); \
        } \
    } while (0)

static uint64_t seed = 88172645463325252ull;
static uint32_t rnd() {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t) (seed >> 16);
}
// Returns a random number in [-1, 1).
static float unit() {
    return (float) (rnd() & 0xffffff) / 8388608.0f - 1.0f;
}

static int n_sm;
static cudaStream_t stream;

// overlap: the kernel may start before the previous one ends.
static void launch(const void *fn, dim3 grid, dim3 block, size_t shared, void *arg, bool overlap) {
    OK(cudaFuncSetAttribute(fn, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) shared));
    cudaLaunchConfig_t c = {};
    c.gridDim = grid, c.blockDim = block, c.dynamicSmemBytes = shared, c.stream = stream;
    cudaLaunchAttribute at[1];
    at[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at[0].val.programmaticStreamSerializationAllowed = 1;
    c.attrs = at, c.numAttrs = overlap ? 1 : 0;
    void *args[] = {arg};
    OK(cudaLaunchKernelExC(&c, fn, args));
}

static void gpu_open() {
    cudaDeviceProp prop;
    OK(cudaGetDeviceProperties(&prop, 0));
    n_sm = prop.multiProcessorCount;
    OK(cudaStreamCreate(&stream));
}

// Captures n calls of f in a CUDA graph and replays the graph nine times. Returns the median time per call, in microseconds.
template <class F> static double timed(F f, int n) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < n; i++) {
        f(i);
    }
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t a, b;
    cudaEventCreate(&a), cudaEventCreate(&b);
    std::vector<float> all;
    for (int i = 0; i < 9; i++) {
        cudaEventRecord(a, stream);
        OK(cudaGraphLaunch(exec, stream));
        cudaEventRecord(b, stream);
        OK(cudaStreamSynchronize(stream));
        float ms;
        cudaEventElapsedTime(&ms, a, b);
        all.push_back(ms * 1e3f / n);
    }
    std::sort(all.begin(), all.end());
    cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
    return all[4];
}
