// SPDX-License-Identifier: MIT
// eva.h: what the drivers of the analysis with Eva share: arbitrary values, and models of GCC's builtins. A model does all that the
// function may do. Each driver includes this file first.
#pragma once

#include <__fc_builtin.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVA_ANY_U64() Frama_C_unsigned_long_interval(0, UINT64_MAX)
#define EVA_ANY_I64() Frama_C_long_interval(INT64_MIN, INT64_MAX)
#define EVA_ANY_I32() Frama_C_int_interval(INT32_MIN, INT32_MAX)
#define EVA_ANY_BOOL() Frama_C_int_interval(0, 1)

// GCC's builtins, as code. Only these types occur.
static __attribute__((unused)) _Bool eva_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    *out = a + b;
    return a > UINT64_MAX - b;
}

static __attribute__((unused)) _Bool eva_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    *out = a * b;
    return a != 0 && b > UINT64_MAX / a;
}

static __attribute__((unused)) _Bool eva_add_i64(int64_t a, int64_t b, int64_t *out) {
    const bool fits = b >= 0 ? a <= INT64_MAX - b : a >= INT64_MIN - b;
    *out = fits ? a + b : EVA_ANY_I64();
    return !fits;
}

static __attribute__((unused)) _Bool eva_mul_i64(int64_t a, int64_t b, int64_t *out) {
    *out = EVA_ANY_I64();
    return EVA_ANY_BOOL();
}

#define EVA_IS_SIGNED(out) __builtin_types_compatible_p(__typeof__(*(out)), int64_t)
#define __builtin_add_overflow(a, b, out) \
    (EVA_IS_SIGNED(out) ? eva_add_i64(a, b, (int64_t *) (out)) : eva_add_u64(a, b, (uint64_t *) (out)))
#define __builtin_mul_overflow(a, b, out) \
    (EVA_IS_SIGNED(out) ? eva_mul_i64(a, b, (int64_t *) (out)) : eva_mul_u64(a, b, (uint64_t *) (out)))

// Words of C11 that Frama-C's parser does not know.
#define _Noreturn
#define _Alignas(x)
#define _Thread_local
#define _Static_assert(...)
// A flag of getrandom, which Frama-C's libc does not have.
#define GRND_NONBLOCK 1

// An item of a plan with any values.
#define EVA_ANY_ITEM(item) \
    do { \
        (item).first = EVA_ANY_I64(); \
        (item).last = EVA_ANY_I64(); \
        (item).size = EVA_ANY_U64(); \
        (item).align = EVA_ANY_U64(); \
        (item).pool = EVA_ANY_I32(); \
        (item).alias = EVA_ANY_I32(); \
        (item).is_fixed = EVA_ANY_BOOL(); \
        (item).fixed = EVA_ANY_U64(); \
    } while (0)
