// SPDX-License-Identifier: MIT
// ggml-cpu.h: the CPU backend, its thread pool and its direct interface.
//
// General rules:
//   - Sizes are in bytes. Tensors must be in host memory.
//   - A function that fails returns a status or NULL, logs one line and, with Berth's libggml-base, sets berth_last_error()
//     (berth.h).
//   - A setter that cannot do its work changes nothing.
//   - Use one backend and one ggml_cplan from one thread at a time. Several threads can compute on one thread pool: the pool runs
//     one graph at a time and the others wait.
#pragma once

#ifndef BERTH_2023 // programs of 2023 have other backends under the same names, and their CPU backend is in 2023/ggml-backend.h
#    include "ggml-backend.h"
#endif
#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

// How ggml_graph_compute runs a graph. ggml_graph_plan fills it; the caller then provides work_data and may set the members after
// threadpool.
struct ggml_cplan {
    size_t work_size;                   // bytes of work memory that the graph needs
    uint8_t *work_data;                 // work memory of that size, which the caller provides and frees; any alignment
    int n_threads;                      // threads that the graph uses
    struct ggml_threadpool *threadpool; // the pool to compute on; NULL: one that the library lends
    ggml_abort_callback abort_callback; // called after each node; true ends the compute. May be NULL
    void *abort_callback_data;          // argument of the callback
    bool use_ref;                       // use the portable kernels only
};

// How the threads of pools are placed on the nodes of a NUMA machine.
enum ggml_numa_strategy {
    GGML_NUMA_STRATEGY_DISABLED = 0,   // threads are not placed
    GGML_NUMA_STRATEGY_DISTRIBUTE = 1, // threads are distributed over all nodes
    GGML_NUMA_STRATEGY_ISOLATE = 2,    // threads stay on the node that calls ggml_numa_init
    GGML_NUMA_STRATEGY_NUMACTL = 3,    // threads stay on the processors that numactl gave the process
    GGML_NUMA_STRATEGY_MIRROR = 4,     // as DISTRIBUTE; memory is not mirrored
    GGML_NUMA_STRATEGY_COUNT = 5,      // number of strategies
};

// Computes a dot product of n elements. The arguments are n, the result and its stride, a row x and its stride, a row y of type
// vec_dot_type and its stride, and the number of rows. Strides are in bytes. Berth's kernels compute one row.
typedef void (*ggml_vec_dot_t)(
    int, float *GGML_RESTRICT, size_t, const void *GGML_RESTRICT, size_t, const void *GGML_RESTRICT, size_t, int);

// The CPU kernels of a type.
struct ggml_type_traits_cpu {
    ggml_from_float_t from_float; // converts a row of floats to this type; NULL: unavailable
    ggml_vec_dot_t vec_dot;       // dot product of a row of this type and a row of vec_dot_type; NULL: unavailable
    enum ggml_type vec_dot_type;  // type of the other row
    int64_t nrows;                // rows that one call of vec_dot computes; 1 for Berth's kernels
};

// ---- NUMA ----

// Places the threads of all pools by this strategy, for the rest of the process. Only the first successful call counts. It has no
// effect on a pool with its own processor mask.
GGML_BACKEND_API void ggml_numa_init(enum ggml_numa_strategy numa);

// Returns whether ggml_numa_init has set a strategy.
GGML_BACKEND_API bool ggml_is_numa(void);

// ---- scalars ----

// These functions work on tensors of types I8, I16, I32, F16, BF16 and F32 in host memory. A wrong index, another type or a
// tensor without memory is an error: a getter then returns 0, a setter writes nothing.

// Creates an I32 tensor with one element in the context and sets its value. The context owns it. Returns the poison tensor if the
// context is full.
GGML_BACKEND_API struct ggml_tensor *ggml_new_i32(struct ggml_context *ctx, int32_t value);

// Creates an F32 tensor with one element in the context and sets its value. The context owns it. Returns the poison tensor if the
// context is full.
GGML_BACKEND_API struct ggml_tensor *ggml_new_f32(struct ggml_context *ctx, float value);

// Sets every element to value, converted to the tensor's type. Returns the tensor.
GGML_BACKEND_API struct ggml_tensor *ggml_set_i32(struct ggml_tensor *tensor, int32_t value);

// Sets every element to value, converted to the tensor's type. Returns the tensor.
GGML_BACKEND_API struct ggml_tensor *ggml_set_f32(struct ggml_tensor *tensor, float value);

// Returns element i as int32_t. i counts elements in order of dimensions, whatever the strides are.
GGML_BACKEND_API int32_t ggml_get_i32_1d(const struct ggml_tensor *tensor, int i);

// Sets element i, converted to the tensor's type. i counts elements in order of dimensions, whatever the strides are.
GGML_BACKEND_API void ggml_set_i32_1d(const struct ggml_tensor *tensor, int i, int32_t value);

// Returns the element at (i0, i1, i2, i3) as int32_t.
GGML_BACKEND_API int32_t ggml_get_i32_nd(const struct ggml_tensor *tensor, int i0, int i1, int i2, int i3);

// Sets the element at (i0, i1, i2, i3), converted to the tensor's type.
GGML_BACKEND_API void ggml_set_i32_nd(const struct ggml_tensor *tensor, int i0, int i1, int i2, int i3, int32_t value);

// Returns element i as float. i counts elements in order of dimensions, whatever the strides are.
GGML_BACKEND_API float ggml_get_f32_1d(const struct ggml_tensor *tensor, int i);

// Sets element i, converted to the tensor's type. i counts elements in order of dimensions, whatever the strides are.
GGML_BACKEND_API void ggml_set_f32_1d(const struct ggml_tensor *tensor, int i, float value);

// Returns the element at (i0, i1, i2, i3) as float.
GGML_BACKEND_API float ggml_get_f32_nd(const struct ggml_tensor *tensor, int i0, int i1, int i2, int i3);

// Sets the element at (i0, i1, i2, i3), converted to the tensor's type.
GGML_BACKEND_API void ggml_set_f32_nd(const struct ggml_tensor *tensor, int i0, int i1, int i2, int i3, float value);

// ---- thread pool and compute ----

// Creates a pool of params->n_threads threads, the calling thread included. Free it with ggml_threadpool_free. Returns NULL if
// the number is not 1 to GGML_MAX_N_THREADS or the threads are unavailable.
GGML_BACKEND_API struct ggml_threadpool *ggml_threadpool_new(struct ggml_threadpool_params *params);

// Ends the threads and frees the pool. No graph may be running on it, and no backend may use it any more.
GGML_BACKEND_API void ggml_threadpool_free(struct ggml_threadpool *threadpool);

// Returns the number of threads, the calling thread included.
GGML_BACKEND_API int ggml_threadpool_get_n_threads(struct ggml_threadpool *threadpool);

// Makes idle threads sleep at once instead of spinning first. The next compute on the pool ends the pause.
GGML_BACKEND_API void ggml_threadpool_pause(struct ggml_threadpool *threadpool);

// Ends the pause.
GGML_BACKEND_API void ggml_threadpool_resume(struct ggml_threadpool *threadpool);

// Computes the work memory and the number of threads for a graph. n_threads 0 or less means the pool's number, or
// GGML_DEFAULT_N_THREADS without a pool. The result has no work memory: if work_size is above 0, the caller sets work_data.
GGML_BACKEND_API struct ggml_cplan ggml_graph_plan(
    const struct ggml_cgraph *cgraph, int n_threads, struct ggml_threadpool *threadpool);

// Computes the graph as the plan says and waits for the result. Without a pool in the plan it borrows threads that the library
// keeps. Returns GGML_STATUS_FAILED if a node cannot be computed or the work memory is too small, GGML_STATUS_ABORTED after an
// abort.
GGML_BACKEND_API enum ggml_status ggml_graph_compute(struct ggml_cgraph *cgraph, struct ggml_cplan *cplan);

// Plans and computes the graph. Work memory comes from the context and stays allocated there. Returns GGML_STATUS_ALLOC_FAILED if
// the context is too small.
GGML_BACKEND_API enum ggml_status ggml_graph_compute_with_ctx(
    struct ggml_context *ctx, struct ggml_cgraph *cgraph, int n_threads);

// ---- instruction sets of the machine ----

// These functions report the machine that runs the program, not the machine that built it. They return 0 if the feature is
// missing.

// Returns 1 if the machine has SSE3.
GGML_BACKEND_API int ggml_cpu_has_sse3(void);

// Returns 1 if the machine has SSSE3.
GGML_BACKEND_API int ggml_cpu_has_ssse3(void);

// Returns 1 if the machine has AVX.
GGML_BACKEND_API int ggml_cpu_has_avx(void);

// Returns 1 if the machine has AVX-VNNI.
GGML_BACKEND_API int ggml_cpu_has_avx_vnni(void);

// Returns 1 if the machine has AVX2.
GGML_BACKEND_API int ggml_cpu_has_avx2(void);

// Returns 1 if the machine has BMI2.
GGML_BACKEND_API int ggml_cpu_has_bmi2(void);

// Returns 1 if the machine has F16C.
GGML_BACKEND_API int ggml_cpu_has_f16c(void);

// Returns 1 if the machine has FMA on x86.
GGML_BACKEND_API int ggml_cpu_has_fma(void);

// Returns 1 if the machine has AVX-512 F, DQ, BW and VL.
GGML_BACKEND_API int ggml_cpu_has_avx512(void);

// Returns 1 if the machine has AVX-512 VBMI.
GGML_BACKEND_API int ggml_cpu_has_avx512_vbmi(void);

// Returns 1 if the machine has AVX-512 VNNI.
GGML_BACKEND_API int ggml_cpu_has_avx512_vnni(void);

// Returns 1 if the machine has AVX-512 BF16.
GGML_BACKEND_API int ggml_cpu_has_avx512_bf16(void);

// Returns 1 if the machine has AMX for int8.
GGML_BACKEND_API int ggml_cpu_has_amx_int8(void);

// Returns 1 if the machine has NEON.
GGML_BACKEND_API int ggml_cpu_has_neon(void);

// Returns 1 if the machine has FMA on Arm.
GGML_BACKEND_API int ggml_cpu_has_arm_fma(void);

// Returns 1 if the machine has f16 vector arithmetic on Arm.
GGML_BACKEND_API int ggml_cpu_has_fp16_va(void);

// Returns 1 if the machine has the dot product instructions of Arm.
GGML_BACKEND_API int ggml_cpu_has_dotprod(void);

// Returns 1 if the machine has the int8 matrix product instructions of Arm (i8mm).
GGML_BACKEND_API int ggml_cpu_has_matmul_int8(void);

// Returns 1 if the machine has SVE.
GGML_BACKEND_API int ggml_cpu_has_sve(void);

// Returns the length of an SVE vector in bytes. Returns 0 without SVE.
GGML_BACKEND_API int ggml_cpu_get_sve_cnt(void);

// Returns 1 if the machine has SME.
GGML_BACKEND_API int ggml_cpu_has_sme(void);

// Returns 1 if the machine has SME2.
GGML_BACKEND_API int ggml_cpu_has_sme2(void);

// Returns 0: Berth has no kernels for RISC-V vectors.
GGML_BACKEND_API int ggml_cpu_has_riscv_v(void);

// Returns 0: Berth has no kernels for RISC-V vectors.
GGML_BACKEND_API int ggml_cpu_get_rvv_vlen(void);

// Returns 0: Berth has no kernels for VSX.
GGML_BACKEND_API int ggml_cpu_has_vsx(void);

// Returns 0: Berth has no kernels for VXE.
GGML_BACKEND_API int ggml_cpu_has_vxe(void);

// Returns 0: Berth has no kernels for WebAssembly SIMD.
GGML_BACKEND_API int ggml_cpu_has_wasm_simd(void);

// Returns 0: Berth does not contain llamafile's kernels.
GGML_BACKEND_API int ggml_cpu_has_llamafile(void);

// ---- types ----

// Returns the kernels of a type, for the best instruction set of this machine. The table belongs to the library. Returns NULL for
// a value that is not a type.
GGML_BACKEND_API const struct ggml_type_traits_cpu *ggml_get_type_traits_cpu(enum ggml_type type);

// Detects the instruction sets and selects the kernels. The other functions call it as needed. Any thread may call it.
GGML_BACKEND_API void ggml_cpu_init(void);

// ---- the CPU as a backend ----

// The setters below do nothing, with an error, if the backend is not a CPU backend. Call them while the backend does not compute.

#ifndef BERTH_2023
// Creates a CPU backend with GGML_DEFAULT_N_THREADS threads. Free it with ggml_backend_free. Returns NULL if memory runs out. The
// backend computes synchronously.
GGML_BACKEND_API ggml_backend_t ggml_backend_cpu_init(void);

// Returns whether the backend is a CPU backend of this library.
GGML_BACKEND_API bool ggml_backend_is_cpu(ggml_backend_t backend);

// Sets the number of threads for the next compute. Values are limited to 1 to GGML_MAX_N_THREADS.
GGML_BACKEND_API void ggml_backend_cpu_set_n_threads(ggml_backend_t backend_cpu, int n_threads);

// Makes the backend compute on this pool, which stays the caller's and must outlive its use. NULL: the backend uses a pool of its
// own. The previous pool is paused.
GGML_BACKEND_API void ggml_backend_cpu_set_threadpool(ggml_backend_t backend_cpu, ggml_threadpool_t threadpool);

// Sets a function that is called after each node. If it returns true, the compute ends with GGML_STATUS_ABORTED. NULL removes it.
GGML_BACKEND_API void ggml_backend_cpu_set_abort_callback(
    ggml_backend_t backend_cpu, ggml_abort_callback abort_callback, void *abort_callback_data);

// Makes the backend use the portable kernels only, which serve as the reference for all others.
GGML_BACKEND_API void ggml_backend_cpu_set_use_ref(ggml_backend_t backend_cpu, bool use_ref);

// Returns the registry of the CPU backend. It belongs to the library.
GGML_BACKEND_API ggml_backend_reg_t ggml_backend_cpu_reg(void);
#endif

// ---- conversion of rows ----

// The arguments are the source, the destination and the number of elements.

// Copies n floats.
GGML_BACKEND_API void ggml_cpu_fp32_to_fp32(const float *, float *, int64_t);

// Converts n floats toward zero. Values out of range become the nearest end of the range; NaN becomes 0.
GGML_BACKEND_API void ggml_cpu_fp32_to_i32(const float *, int32_t *, int64_t);

// Converts n floats to f16.
GGML_BACKEND_API void ggml_cpu_fp32_to_fp16(const float *, ggml_fp16_t *, int64_t);

// Converts n f16 values to floats.
GGML_BACKEND_API void ggml_cpu_fp16_to_fp32(const ggml_fp16_t *, float *, int64_t);

// Converts n floats to bf16.
GGML_BACKEND_API void ggml_cpu_fp32_to_bf16(const float *, ggml_bf16_t *, int64_t);

// Converts n bf16 values to floats.
GGML_BACKEND_API void ggml_cpu_bf16_to_fp32(const ggml_bf16_t *, float *, int64_t);

#ifdef __cplusplus
}
#endif
