// SPDX-License-Identifier: MIT
// prove.h: what the proofs assume about the compiler (tools/prove.sh includes this file before every source). GCC's builtins for
// checked arithmetic have no definition that Frama-C knows, so their contracts state what GCC's manual says about them.
#pragma once

#include <stdint.h>

/*@ requires \valid(out);
    assigns *out;
    ensures \result == 0 || \result == 1;
    ensures \result == 1 <==> a + b > 18446744073709551615;
    ensures \result == 0 ==> *out == a + b; */
_Bool prove_add_u64(uint64_t a, uint64_t b, uint64_t *out);
/*@ requires \valid(out);
    assigns *out;
    ensures \result == 0 || \result == 1;
    ensures \result == 1 <==> a * b > 18446744073709551615;
    ensures \result == 0 ==> *out == a * b; */
_Bool prove_mul_u64(uint64_t a, uint64_t b, uint64_t *out);
/*@ requires \valid(out);
    assigns *out;
    ensures \result == 0 || \result == 1;
    ensures \result == 0 <==> -9223372036854775808 <= a + b <= 9223372036854775807;
    ensures \result == 0 ==> *out == a + b; */
_Bool prove_add_i64(int64_t a, int64_t b, int64_t *out);
/*@ requires \valid(out);
    assigns *out;
    ensures \result == 0 || \result == 1;
    ensures \result == 0 <==> -9223372036854775808 <= a * b <= 9223372036854775807;
    ensures \result == 0 ==> *out == a * b; */
_Bool prove_mul_i64(int64_t a, int64_t b, int64_t *out);

#define PROVE_IS_SIGNED(out) __builtin_types_compatible_p(__typeof__(*(out)), int64_t)
#define __builtin_add_overflow(a, b, out) \
    (PROVE_IS_SIGNED(out) ? prove_add_i64(a, b, (int64_t *) (out)) : prove_add_u64(a, b, (uint64_t *) (out)))
#define __builtin_mul_overflow(a, b, out) \
    (PROVE_IS_SIGNED(out) ? prove_mul_i64(a, b, (int64_t *) (out)) : prove_mul_u64(a, b, (uint64_t *) (out)))

// Frama-C's parser does not know these words of C11. They change nothing that the proofs are about.
#define _Noreturn
#define _Alignas(x)
#define _Thread_local
#define _Static_assert(...)
// A flag of getrandom, which Frama-C's libc does not have.
#define GRND_NONBLOCK 1
