// SPDX-License-Identifier: MIT
// traits.c: what the kernel table has for a type, as ggml shows it.

#include "cpu/cpu.h"

const struct ggml_type_traits_cpu *ggml_get_type_traits_cpu(enum ggml_type type) {
    cpu_init();
    return (unsigned) type < GGML_TYPE_COUNT ? &cpu_kernels_best.traits[type] : NULL;
}
