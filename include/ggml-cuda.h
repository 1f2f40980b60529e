// SPDX-License-Identifier: MIT
// ggml-cuda.h: the CUDA backend.
#pragma once

#include "ggml-backend.h"
#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GGML_CUDA_NAME "CUDA"
#define GGML_CUBLAS_NAME "cuBLAS"
#define GGML_CUDA_MAX_DEVICES 16

GGML_BACKEND_API ggml_backend_t ggml_backend_cuda_init(int device);
GGML_BACKEND_API bool ggml_backend_is_cuda(ggml_backend_t backend);
GGML_BACKEND_API ggml_backend_buffer_type_t ggml_backend_cuda_buffer_type(int device);
GGML_BACKEND_API bool ggml_backend_cuda_allreduce_tensor(
    ggml_backend_t *backends, struct ggml_tensor **tensors, size_t n_backends);
GGML_BACKEND_API ggml_backend_buffer_type_t ggml_backend_cuda_host_buffer_type(void);
GGML_BACKEND_API int ggml_backend_cuda_get_device_count(void);
GGML_BACKEND_API void ggml_backend_cuda_get_device_description(int device, char *description, size_t description_size);
GGML_BACKEND_API void ggml_backend_cuda_get_device_memory(int device, size_t *free, size_t *total);
GGML_BACKEND_API bool ggml_backend_cuda_register_host_buffer(void *buffer, size_t size);
GGML_BACKEND_API void ggml_backend_cuda_unregister_host_buffer(void *buffer);
GGML_BACKEND_API ggml_backend_reg_t ggml_backend_cuda_reg(void);

#ifdef __cplusplus
}
#endif
