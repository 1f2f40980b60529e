// SPDX-License-Identifier: MIT
// ssm.h: arguments of kernel/ssm.cu.
#pragma once

#include "gpu/kernel/args.h"

struct gpu_scan_args {
    struct gpu_view s, x, dt, a, b, c; // sources 0 to 5 of SSM_SCAN
    const int32_t *ids;                // source 6: for each sequence, the index of its old state in s
    float *y, *states;                 // result; new states, after y in the same tensor
    float *copy;                       // NULL, or a second place for states[0]; requires one sequence
    int64_t n_kept; // number of states to store; states[i] is the state before the last i tokens; states[0] is always stored
};

// scan_channels: channels per block, tokens that a block loads at a time, states per channel.
enum { SCAN_CHANNELS = 32, SCAN_CHUNK = 32, SCAN_STATES = 16 };
// scan_heads: rows of a head per block, tokens that a block loads at a time. Dynamic shared memory: B and C of two chunks.
enum { SCAN_ROWS = 16, SCAN_TOKENS = 16 };

// y[channel] of token t = act(bias[channel] + sum over j of w[j][channel] * input t + j), j = 0 ... d_conv - 1.
struct gpu_ssm_conv_args {
    struct gpu_view before; // [d_conv - 1, n_channels, n_seq]: the first inputs; p NULL: x has them too
    struct gpu_view x;      // [n_tokens, n_channels, n_seq]: the other inputs
    struct gpu_view w, dst; // [d_conv, n_channels]; [n_channels, n_tokens, n_seq]
    const float *bias;      // NULL: 0
    float *kept;  // NULL, or [n_seq][n_channels][d_conv - 1]: a copy of the last inputs. It may be the same memory as before.
    int32_t silu; // act is SILU; otherwise the identity
};
enum { CONV_THREADS = 128, CONV_TOKENS = 8 }; // channels per block, tokens per thread

// dst = silu(z) * (y + x * d); d repeats to the shape of dst.
struct gpu_ssm_gate_args {
    struct gpu_view dst, y, x, d, z;
    struct gpu_index index; // of dst
    int64_t n;              // elements of dst
};
