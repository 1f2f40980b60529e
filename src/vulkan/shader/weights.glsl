// SPDX-License-Identifier: MIT
// weights.glsl: element i of a row of weights, for the type that the macro TYPE names (TYPE_<name> is defined too).
#define CONCAT2(a, b) a##b
#define CONCAT(a, b) CONCAT2(a, b)

#if defined(TYPE_f32)
#    define weight_at(row, i, nb0) load_f32((row) + uint64_t(i) * uint64_t(nb0))
#elif defined(TYPE_f16)
#    define weight_at(row, i, nb0) half_to_float(load_u16((row) + uint64_t(i) * uint64_t(nb0)))
#elif defined(TYPE_bf16)
#    define weight_at(row, i, nb0) bf16_to_float(load_u16((row) + uint64_t(i) * uint64_t(nb0)))
#elif defined(ALL_TYPES)
#    include "formats.glsl"
#else
#    include "formats.glsl"
#    define weight_at(row, i, nb0) CONCAT(element_, TYPE)((row) + uint64_t((i) / QK * QB), uint(i) % QK)
#endif
