// SPDX-License-Identifier: MIT
// oracle_cpus.h: the file names of the reference's CPU libraries, for the newest processors first. ggml_backend_score of a library
// returns 0 if it does not run on this machine.
#pragma once

static const char *const oracle_cpus[] = {
#if defined(__aarch64__)
    "libggml-cpu-armv9.2_2.so",
    "libggml-cpu-armv9.2_1.so",
    "libggml-cpu-armv8.6_2.so",
    "libggml-cpu-armv8.6_1.so",
    "libggml-cpu-armv8.2_3.so",
    "libggml-cpu-armv8.2_2.so",
    "libggml-cpu-armv8.2_1.so",
    "libggml-cpu-armv8.0_1.so",
#else
    "libggml-cpu-sapphirerapids.so",
    "libggml-cpu-zen4.so",
    "libggml-cpu-icelake.so",
    "libggml-cpu-cooperlake.so",
    "libggml-cpu-cascadelake.so",
    "libggml-cpu-cannonlake.so",
    "libggml-cpu-skylakex.so",
    "libggml-cpu-alderlake.so",
    "libggml-cpu-haswell.so",
    "libggml-cpu-sandybridge.so",
    "libggml-cpu-sse42.so",
    "libggml-cpu-x64.so",
#endif
};
