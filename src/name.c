// SPDX-License-Identifier: MIT
// name.c: the empty libraries libggml.so.0, libggml-base.so.0 and libggml-cpu.so.0. Some builds of llama.cpp load libggml.so.0,
// others load libggml.so. If both files had the code, one process could load both. Then it would have two registries and two
// allocators. So libggml.so.0 is empty and depends on libggml.so. The same holds for the other two libraries.

typedef int berth_name; // ISO C requires at least one declaration in a file
