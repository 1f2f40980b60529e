// SPDX-License-Identifier: MIT
// staging.h: copies from pageable host memory to the device through pinned memory (staging.c).
#pragma once

#include "cuda/device.h"

#define CUDA_STAGING_MIN ((size_t) 1 << 20) // bytes; smaller copies are made directly
#define CUDA_STAGING_MAX_THREADS 16

struct cuda_staging;

// Returns the number of threads that fill pinned memory, with the caller: BERTH_CUDA_STAGING_THREADS, or the number of processors,
// but at most 8. 0: copies are made directly.
int cuda_staging_n_threads(const struct cuda_device *dev);
// The device's context must be current. If the pinned memory cannot be allocated, returns NULL and logs the reason.
struct cuda_staging *cuda_staging_new(struct cuda_device *dev, int n_threads) BERTH_MUST_USE;
// can_free: the device's context is current. No copy may be in flight. s may be NULL.
void cuda_staging_free(struct cuda_staging *s, bool can_free);
// Returns whether the driver knows the memory at p, so that the device can read it without staging.
bool cuda_is_pinned(const struct cuda_device *dev, const void *p, size_t size);
// Copies on the stream, which must be the same in all calls. On return, all bytes at `from` have been read and the copies are
// queued. If the result is an error, a part of the bytes may be missing at `to`.
CUresult cuda_staging_copy(struct cuda_staging *s, CUstream stream, CUdeviceptr to, const void *from, size_t size);
