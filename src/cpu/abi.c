// SPDX-License-Identifier: MIT
// abi.c: the layouts of the CPU backend that others compiled against, checked when Berth is built. No code.

#include "core/abi.h"
#include "ggml-cpu.h"

// clang-format off

ABI_SIZE(ggml_cplan, 56);
ABI_FIELD(ggml_cplan, work_size, 0, 8);
ABI_FIELD(ggml_cplan, work_data, 8, 8);
ABI_FIELD(ggml_cplan, n_threads, 16, 4);
ABI_FIELD(ggml_cplan, threadpool, 24, 8);
ABI_FIELD(ggml_cplan, abort_callback, 32, 8);
ABI_FIELD(ggml_cplan, abort_callback_data, 40, 8);
ABI_FIELD(ggml_cplan, use_ref, 48, 1);

ABI_SIZE(ggml_type_traits_cpu, 32);
ABI_FIELD(ggml_type_traits_cpu, from_float, 0, 8);
ABI_FIELD(ggml_type_traits_cpu, vec_dot, 8, 8);
ABI_FIELD(ggml_type_traits_cpu, vec_dot_type, 16, 4);
ABI_FIELD(ggml_type_traits_cpu, nrows, 24, 8);

_Static_assert(GGML_NUMA_STRATEGY_DISABLED == 0, "GGML_NUMA_STRATEGY_DISABLED");
_Static_assert(GGML_NUMA_STRATEGY_DISTRIBUTE == 1, "GGML_NUMA_STRATEGY_DISTRIBUTE");
_Static_assert(GGML_NUMA_STRATEGY_ISOLATE == 2, "GGML_NUMA_STRATEGY_ISOLATE");
_Static_assert(GGML_NUMA_STRATEGY_NUMACTL == 3, "GGML_NUMA_STRATEGY_NUMACTL");
_Static_assert(GGML_NUMA_STRATEGY_MIRROR == 4, "GGML_NUMA_STRATEGY_MIRROR");
_Static_assert(GGML_NUMA_STRATEGY_COUNT == 5, "GGML_NUMA_STRATEGY_COUNT");

// clang-format on
