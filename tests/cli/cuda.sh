#!/bin/sh
# SPDX-License-Identifier: MIT
# cuda.sh BERTH MODULE STANDIN: commands with a GPU: the CUDA library without kernels, on the test driver, whose devices have 1 GiB
# and compute nothing. Runs in the root of the sources.

. "$(dirname "$0")/expect.sh"
export GGML_BACKEND_PATH="$2"
export BERTH_CUDA_DRIVER="$3"
tales=tests/data/tales-3m-q8_0.gguf

expect 0 "CUDA0" devices
expect 0 "1.00 GiB" devices
expect 0 "CUDA0" ops --device CUDA0
expect 0 "buffer 0 CUDA0: " plan --ctx 64 --batch 16 $tales
expect 0 "  CUDA0" fit --memory 5M $tales
expect 0 " tokens/s predicted, for a prompt of " fit --memory CUDA0=2M --allow spill $tales
expect 0 "5,242,880 bytes (5.00 MiB) of CUDA0: context " fit --memory CUDA0=5M $tales
expect 1 "of CUDA0: does not fit: a context of 1 with a batch of 1 requires" fit --memory CUDA0=900K --device CUDA0 $tales
expect 0 "CUDA0" explain $tales
expect 0 "CUDA0 fused in its last graph:" explain --fused $tales
expect 0 "CUDA0" bench -p 16 -n 4 -r 1 --device CUDA0 $tales
expect 0 "" run --device CUDA0 -n 4 --temp 0 -p "Once upon a time" $tales
expect 3 "unknown device 'CUDA1'" run --device CUDA1 -n 4 -p "Once upon a time" $tales
BERTH_CUDA_DRIVER=/nonexistent.so expect 3 "unknown device 'CUDA0'" run --device CUDA0 -n 4 -p "Once upon a time" $tales
BERTH_CUDA_DRIVER=/nonexistent.so expect 0 "CPU" devices

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
