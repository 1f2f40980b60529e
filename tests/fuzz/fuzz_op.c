// SPDX-License-Identifier: MIT
// fuzz_op.c: kernels through ops: the input chooses an op, types, extents, strides, parameters and numbers (prop/op_cases.h), on
// memory between walls.

#include "fuzz/fuzz.h"
#include "prop/op_cases.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct op_cases cases;
    if (cases.cpu == NULL) {
        op_cases_open(&cases, 1);
        cases.max_elements = 2048; // more of them say nothing new, and a thread is dear
        cases.threads_chance = 256;
        signal(SIGSEGV, SIG_DFL); // the fuzzer keeps the input of a crash only if the process dies of it
        signal(SIGBUS, SIG_DFL);
        signal(SIGFPE, SIG_DFL);
    }
    cases.bytes = data;
    cases.n_bytes = size;
    op_case_run(&cases, size);
    return 0;
}
