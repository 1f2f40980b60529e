/* SPDX-License-Identifier: MIT
 * rope.h: arguments of kernel/rope.cu. */
#pragma once

#include "cuda/kernel/args.h"

struct cuda_rope_args {
    struct cuda_view dst, a;
    const char *pos, *factors; /* factors may be absent */
    int64_t pos_nb, factors_nb;
    int64_t n_rows;                   /* dimensions 1 to 3 of dst */
    int32_t n_pairs, n_apart, n_offs; /* pairs that are turned, elements between the two of one, where the first begins */
    int32_t is_halves, is_multi, is_vision, is_interleaved;
    int32_t sections[4];
    float step, freq_scale, ext_factor, ramp[2], length, sin_sign;
    /* Where rows go by number, into a cache: rows of dst's dimension 2. Absent: NULL. */
    const char *numbers;
    int64_t numbers_nb;
    int32_t numbers_are_64;
    int32_t is_early; /* no kernel of the graph writes pos, factors or numbers: they may be read before the kernel ahead ends */
    int64_t to_nb1, to_ne1; /* bytes from row to row of the cache, and its rows */
};

/* Up to three in one launch, a job a blockIdx.y: of one without pairs, rows are copied. */
enum { CUDA_ROPE_JOBS = 3 };
struct cuda_rope_jobs {
    struct cuda_rope_args job[CUDA_ROPE_JOBS];
};
