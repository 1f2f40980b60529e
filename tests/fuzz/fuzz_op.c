// SPDX-License-Identifier: MIT
// fuzz_op.c: kernels through ops. The input chooses an op, types, extents, strides and parameters (prop/op_cases.h). Memory is
// between guard pages.

#include "fuzz/fuzz.h"
#include "prop/op_cases.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct op_cases cases;
    if (cases.cpu == NULL) {
        op_cases_open(&cases, 1);
        cases.max_elements = 2048; // larger tensors test nothing new, and starting a thread is slow
        cases.threads_chance = 256;
        signal(SIGSEGV, SIG_DFL); // libFuzzer stores the input of a crash only if the signal kills the process
        signal(SIGBUS, SIG_DFL);
        signal(SIGFPE, SIG_DFL);
    }
    cases.bytes = data;
    cases.n_bytes = size;
    op_case_run(&cases, size);
    return 0;
}
