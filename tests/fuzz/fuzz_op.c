// SPDX-License-Identifier: MIT
// fuzz_op.c: computes an op. The input chooses the op, types, extents, strides and parameters (prop/op_cases.h). The tensors are
// between guard pages, so that an access outside of them causes a crash.

#include "fuzz/fuzz.h"
#include "prop/op_cases.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct op_cases cases;
    if (cases.cpu == NULL) {
        op_cases_open(&cases, 1);
        cases.max_elements = 2048;  // larger tensors test nothing new, and starting a thread is slow
        cases.threads_chance = 256; // one case in 256 runs with two threads
        signal(SIGSEGV, SIG_DFL);   // libFuzzer stores the input of a crash only if the signal kills the process
        signal(SIGBUS, SIG_DFL);
        signal(SIGFPE, SIG_DFL);
    }
    cases.bytes = data;
    cases.n_bytes = size;
    op_case_run(&cases, size);
    return 0;
}
