// SPDX-License-Identifier: MIT
// comm.c: sums tensors over devices that can access each other's memory. A part is the tensor of one device. Each device adds all
// parts into separate memory. It copies the sum over its part only after all devices have added. Each stream runs these steps:
//
//     compute the part, record `ready` | wait for all `ready`, add, record `added` | wait for all `added`, copy over the part
//
// The memory for sums grows to the size of the largest tensor and is kept.

#include "cuda/backend.h"

#include "cuda/kernel/comm.h"

#include "ggml-cuda.h"

struct member {
    struct cuda_backend *b;
    CUevent ready; // the part is computed
    CUevent added; // the sum is computed
    void *sum;     // device memory for the sum; NULL until first needed
    size_t sum_size;
};

struct comm {
    int n;
    struct member members[CUDA_COMM_MAX];
};

static void member_fini(struct member *m) {
    if (m->b == NULL || !cuda_device_enter_to_free(m->b->dev)) {
        return;
    }
    const struct cuda_driver *cu = m->b->dev->cu;
    cu->StreamSynchronize(m->b->stream);
    if (m->ready != NULL) {
        cu->EventDestroy(m->ready);
    }
    if (m->added != NULL) {
        cu->EventDestroy(m->added);
    }
    cuda_memory_give_back(m->b->dev, m->sum);
}

void cuda_comm_free(void *comm) {
    struct comm *c = comm;
    for (int i = 0; c != NULL && i < c->n; i++) {
        member_fini(&c->members[i]);
    }
    shim_free(c);
}

static bool member_init(struct member *m, ggml_backend_t backend) {
    m->b = backend->context;
    if (cuda_device_enter(m->b->dev) != GGML_STATUS_SUCCESS) {
        return false;
    }
    const struct cuda_driver *cu = m->b->dev->cu;
    CUresult rc = cu->EventCreate(&m->ready, CU_EVENT_DISABLE_TIMING);
    if (rc == CUDA_SUCCESS) {
        rc = cu->EventCreate(&m->added, CU_EVENT_DISABLE_TIMING);
    }
    if (rc != CUDA_SUCCESS) {
        cuda_fail(m->b->dev, rc, "creating an event");
    }
    return rc == CUDA_SUCCESS;
}

void *cuda_comm_init(ggml_backend_t *backends, size_t n) {
    bool ok = backends != NULL && n > 0 && n <= CUDA_COMM_MAX;
    for (size_t i = 0; ok && i < n; i++) {
        ok = ggml_backend_is_cuda(backends[i]);
    }
    for (size_t i = 0; ok && i < n * n; i++) {
        const struct cuda_backend *to = backends[i / n]->context, *from = backends[i % n]->context;
        ok = cuda_peer_reach(to->dev, from->dev);
    }
    struct comm *c = ok ? shim_calloc(1, sizeof *c) : NULL;
    if (c == NULL) {
        return NULL;
    }
    c->n = (int) n;
    for (size_t i = 0; ok && i < n; i++) {
        ok = member_init(&c->members[i], backends[i]);
    }
    if (!ok) {
        cuda_comm_free(c);
        return NULL;
    }
    return c;
}

static bool member_grow(struct member *m, size_t size) {
    if (size <= m->sum_size) {
        return true;
    }
    const CUresult rc = m->b->dev->cu->StreamSynchronize(m->b->stream);
    if (rc != CUDA_SUCCESS) {
        cuda_fail(m->b->dev, rc, "waiting before enlarging the memory for sums");
        return false;
    }
    cuda_memory_give_back(m->b->dev, m->sum);
    m->sum = cuda_memory_take(m->b->dev, size, "a sum over devices");
    m->sum_size = m->sum != NULL ? size : 0;
    return m->sum != NULL;
}

// Makes the stream of m wait for the events of all other members: `added` if added is true, otherwise `ready`.
static CUresult wait_for_all(const struct comm *c, const struct member *m, bool added) {
    CUresult rc = CUDA_SUCCESS;
    for (int j = 0; j < c->n && rc == CUDA_SUCCESS; j++) {
        const struct member *other = &c->members[j];
        if (other != m) {
            rc = m->b->dev->cu->StreamWaitEvent(m->b->stream, added ? other->added : other->ready, 0);
        }
    }
    return rc;
}

static CUresult parts_add(const struct comm *c, const struct member *m, struct ggml_tensor **tensors) {
    struct cuda_run r = {.gpu = {.dev = &m->b->dev->gpu}, .stream = m->b->stream, .has_gap = true};
    struct cuda_comm_args args = {.to = m->sum,
        .n = ggml_nelements(tensors[0]),
        .n_from = c->n,
        .type = (int32_t) tensors[0]->type,
        .size = (int32_t) ggml_type_size(tensors[0]->type)};
    for (int j = 0; j < c->n; j++) {
        args.from[j] = (tensors[j]->flags & GGML_TENSOR_FLAG_COMPUTE) != 0 ? tensors[j]->data : NULL;
    }
    const int64_t n_blocks = min_i64((args.n + 255) / 256, (int64_t) m->b->dev->traits.n_sm * 8);
    const struct gpu_dims dims = {.grid = {(unsigned) n_blocks}, .block = {256}};
    const CUresult rc = wait_for_all(c, m, false);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    return gpu_launch(&r.gpu, "comm_sum", dims, &args) == GGML_STATUS_SUCCESS ? m->b->dev->cu->EventRecord(m->added, m->b->stream)
                                                                              : CUDA_ERROR_INVALID_VALUE;
}

// Returns whether the tensors are contiguous floats of the same type and shape, each in the memory of its member's device.
static bool can_sum(const struct comm *c, struct ggml_tensor **tensors) {
    const enum ggml_type type = tensors[0]->type;
    bool ok = type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
    for (int i = 0; ok && i < c->n; i++) {
        const struct ggml_tensor *t = tensors[i];
        ok = t != NULL && t->type == type && ggml_is_contiguous(t) && ggml_are_same_shape(t, tensors[0]) &&
             cuda_buffer_device(t->view_src != NULL ? t->view_src->buffer : t->buffer) == c->members[i].b->dev;
    }
    return ok;
}

bool cuda_comm_allreduce(void *comm, struct ggml_tensor **tensors) {
    struct comm *c = comm;
    if (c == NULL || tensors == NULL || tensors[0] == NULL || !can_sum(c, tensors)) {
        return false;
    }
    const size_t size = ggml_nbytes(tensors[0]);
    for (int i = 0; i < c->n; i++) {
        if (cuda_device_enter(c->members[i].b->dev) != GGML_STATUS_SUCCESS || !member_grow(&c->members[i], size)) {
            return false;
        }
    }
    for (int step = 0; step < 3 && size > 0; step++) {
        for (int i = 0; i < c->n; i++) {
            struct member *m = &c->members[i];
            const struct cuda_driver *cu = m->b->dev->cu;
            CUresult rc = cuda_device_enter(m->b->dev) == GGML_STATUS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
            if (rc == CUDA_SUCCESS && step == 0) {
                rc = cu->EventRecord(m->ready, m->b->stream);
            } else if (rc == CUDA_SUCCESS && step == 1) {
                rc = parts_add(c, m, tensors);
            } else if (rc == CUDA_SUCCESS) {
                rc = wait_for_all(c, m, true);
                if (rc == CUDA_SUCCESS) {
                    rc = cu->MemcpyDtoDAsync(cuda_ptr(tensors[i]->data), cuda_ptr(m->sum), size, m->b->stream);
                }
            }
            if (rc != CUDA_SUCCESS) {
                cuda_fail(m->b->dev, rc, "summing over %d devices", c->n);
                return false;
            }
        }
    }
    return true;
}

bool ggml_backend_cuda_allreduce_tensor(ggml_backend_t *backends, struct ggml_tensor **tensors, size_t n_backends) {
    void *comm = cuda_comm_init(backends, n_backends);
    const bool ok = comm != NULL && cuda_comm_allreduce(comm, tensors);
    cuda_comm_free(comm);
    return ok;
}
