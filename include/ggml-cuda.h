// SPDX-License-Identifier: MIT
// ggml-cuda.h: the CUDA backend.
//
// General rules:
//   - Devices are numbered from 0. Devices with a compute capability below 8.0 are not used and have no number.
//   - Sizes are in bytes.
//   - Any thread may call the functions of this header. Use one backend from one thread at a time.
//   - Without a CUDA driver there are 0 devices.
#pragma once

#include "ggml-backend.h"
#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

// The name of the registry. Devices are named "CUDA0", "CUDA1" and so on.
#define GGML_CUDA_NAME "CUDA"
// The name of the BLAS library, for programs that print it.
#define GGML_CUBLAS_NAME "cuBLAS"
// The largest number of devices.
#define GGML_CUDA_MAX_DEVICES 16

// ---- backends and devices ----

// Creates a backend on the device. Free it with ggml_backend_free. Returns NULL, with an error, if there is no such device.
GGML_BACKEND_API ggml_backend_t ggml_backend_cuda_init(int device);

// Returns whether the backend is a CUDA backend of this library.
GGML_BACKEND_API bool ggml_backend_is_cuda(ggml_backend_t backend);

// Returns the buffer type of the device's memory. It belongs to the library. Returns NULL if there is no such device.
GGML_BACKEND_API ggml_backend_buffer_type_t ggml_backend_cuda_buffer_type(int device);

// Adds up tensors[i] of backends[i] over all n_backends backends and waits; each tensor then holds the sum. The tensors must be
// contiguous, of one shape, and all f32, f16 or bf16. A tensor without GGML_TENSOR_FLAG_COMPUTE counts as zeros. Returns false if
// a backend is not a CUDA backend, if devices cannot reach each other's memory, or on failure.
GGML_BACKEND_API bool ggml_backend_cuda_allreduce_tensor(
    ggml_backend_t *backends, struct ggml_tensor **tensors, size_t n_backends);

// Returns the buffer type of pinned host memory, which the GPU copies fast. A buffer that cannot be pinned is plain host memory.
// GGML_CUDA_NO_PINNED in the environment turns pinning off.
GGML_BACKEND_API ggml_backend_buffer_type_t ggml_backend_cuda_host_buffer_type(void);

// Returns the number of devices.
GGML_BACKEND_API int ggml_backend_cuda_get_device_count(void);

// Stores the device's name as text, cut to description_size bytes with the final 0. Stores "" if there is no such device.
GGML_BACKEND_API void ggml_backend_cuda_get_device_description(int device, char *description, size_t description_size);

// Stores the free and the total bytes of the device's memory. Either pointer may be NULL. Both are 0 if there is no such device.
GGML_BACKEND_API void ggml_backend_cuda_get_device_memory(int device, size_t *free, size_t *total);

// Pins size bytes of the caller's memory, for reading by GPUs, until ggml_backend_cuda_unregister_host_buffer. Returns false on
// failure, and if GGML_CUDA_REGISTER_HOST is not set in the environment.
GGML_BACKEND_API bool ggml_backend_cuda_register_host_buffer(void *buffer, size_t size);

// Ends the pinning of memory that ggml_backend_cuda_register_host_buffer pinned. Call it before freeing the memory.
GGML_BACKEND_API void ggml_backend_cuda_unregister_host_buffer(void *buffer);

// Returns the registry of the CUDA backend. It belongs to the library and is never NULL.
GGML_BACKEND_API ggml_backend_reg_t ggml_backend_cuda_reg(void);

#ifdef __cplusplus
}
#endif
