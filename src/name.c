// SPDX-License-Identifier: MIT
// name.c: a library that is only a name. Ordinary builds of llama.cpp ask for libggml.so.0, its packages for libggml.so; with a
// file for each there would be two libraries in one process, two registries and two allocators. libggml.so.0 holds nothing and
// needs libggml.so, so that there is one of each, whatever it was asked for as.

typedef int berth_name; // ISO C wants something in a file
