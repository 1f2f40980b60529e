// SPDX-License-Identifier: MIT
// comm.h: sums over several backends, by the names that a registry is asked for.
#pragma once

#include "cuda/backend.h"

// For backends that are all CUDA, on devices that reach each other's memory. NULL: not so, or no memory.
void *cuda_comm_init(ggml_backend_t *backends, size_t n);
void cuda_comm_free(void *comm);
// Every tensor becomes the sum of all, in order with each backend's work; one that is not computed counts as zeros. False: not
// done.
bool cuda_comm_allreduce(void *comm, struct ggml_tensor **tensors);
