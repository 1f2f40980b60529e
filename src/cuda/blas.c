// SPDX-License-Identifier: MIT
// blas.c: loads cuBLAS 13 or 12 when the first dense product is planned. Each device has one handle. A lock protects the handles,
// because each product sets the stream and the work memory of its handle. BERTH_CUDA_BLAS=0 disables cuBLAS. BERTH_CUDA_DRIVER
// disables cuBLAS too, because cuBLAS would not use that driver.

#include "cuda/blas.h"

#include "cuda/device.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

// Function types and enum values of cuBLAS.
typedef int (*create_fn)(void **handle);
typedef int (*set_stream_fn)(void *handle, CUstream stream);
typedef int (*set_workspace_fn)(void *handle, void *work, size_t size);
typedef int (*gemm_fn)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int a_type,
    int lda, const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc, int compute, int algo);
enum { OP_N = 0, OP_T = 1, R_32F = 0, R_16F = 2, R_16BF = 14, COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77, ALGO_DEFAULT = -1 };

static struct {
    create_fn create;
    set_stream_fn set_stream;
    set_workspace_fn set_workspace;
    gemm_fn gemm;
} blas;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *handles[CUDA_MAX_DEVICES]; // NULL: not created yet, or cublasCreate failed
static bool is_tried[CUDA_MAX_DEVICES];

static bool symbol_take(void *lib, const char *name, void *to) {
    void *address = dlsym(lib, name);
    memcpy(to, &address, sizeof address);
    return address != NULL;
}

static void blas_load(void) {
    static const char *const names[] = {
        "libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so.13", "/usr/local/cuda/lib64/libcublas.so.12"};
    const char *off = getenv("BERTH_CUDA_BLAS");
    if (secure_getenv("BERTH_CUDA_DRIVER") != NULL || (off != NULL && strcmp(off, "0") == 0)) {
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (lib != NULL && symbol_take(lib, "cublasCreate_v2", &blas.create) &&
            symbol_take(lib, "cublasSetStream_v2", &blas.set_stream) &&
            symbol_take(lib, "cublasSetWorkspace_v2", &blas.set_workspace) && symbol_take(lib, "cublasGemmEx", &blas.gemm)) {
            return;
        }
        blas.gemm = NULL;
    }
}

bool cuda_blas_is_ready(const struct gpu_device *dev) {
    const int i = cuda_traits(dev)->index;
    pthread_once(&once, blas_load);
    if (blas.gemm == NULL || i < 0 || i >= CUDA_MAX_DEVICES) {
        return false;
    }
    pthread_mutex_lock(&lock);
    if (!is_tried[i] && cuda_device_enter((struct cuda_device *) (uintptr_t) dev) == GGML_STATUS_SUCCESS) {
        is_tried[i] = true;
        if (blas.create(&handles[i]) != 0) {
            handles[i] = NULL;
        }
    }
    const bool ready = handles[i] != NULL;
    pthread_mutex_unlock(&lock);
    return ready;
}

enum ggml_status cuda_blas_gemm(struct gpu_run *run, const struct cuda_gemm *g) {
    struct cuda_run *r = (struct cuda_run *) run;
    static const float one = 1.0f, zero = 0.0f;
    int type = R_16BF, compute = COMPUTE_32F;
    if (g->type == GGML_TYPE_F32) {
        type = R_32F;
        compute = COMPUTE_32F_FAST_TF32;
    } else if (g->type == GGML_TYPE_F16) {
        type = R_16F;
    }
    void *handle = handles[cuda_traits(run->dev)->index];
    pthread_mutex_lock(&lock);
    int rc = blas.set_stream(handle, r->stream);
    if (rc == 0) {
        rc = blas.set_workspace(handle, g->work, CUDA_BLAS_WORK);
    }
    if (rc == 0) {
        rc = blas.gemm(handle, OP_T, OP_N, (int) g->m, (int) g->n, (int) g->k, &one, g->w, type, (int) g->w_row, g->x, type,
            (int) g->x_col, &zero, g->y, R_32F, (int) g->y_col, compute, ALGO_DEFAULT);
    }
    pthread_mutex_unlock(&lock);
    r->has_gap = true;
    r->n_launches++;
    if (rc != 0) {
        return shim_error(GGML_STATUS_FAILED, "%s: cuBLAS returned error %d for a product of %lld x %lld x %lld", run->dev->name,
            rc, (long long) g->m, (long long) g->n, (long long) g->k);
    }
    return GGML_STATUS_SUCCESS;
}
