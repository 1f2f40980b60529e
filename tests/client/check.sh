#!/bin/bash
# SPDX-License-Identifier: MIT
# check.sh BERTH: tests berth client with clients that are compiled here. Runs in the root of the sources; requires cc.

. tests/cli/expect.sh
command=client
mkdir "$tmp/link" "$tmp/client"

# library FILE SOURCE [FLAG...]
library() {
    local file=$1 source=$2
    shift 2
    printf '%s\n' "$source" | cc -x c -shared -fPIC -o "$tmp/$file" - -Wl,--no-as-needed,--unresolved-symbols=ignore-all "$@" || n_bad=$((n_bad + 1))
}

# Stub libraries with these names, with which clients are linked.
for name in libggml-base.so libggml-base.so.0 libggml-cpu.so.0 libggml.so.0 libggml.v0.5.0.so libggml.b10361.so libggml.v99.0.0.so libggml-other.so; do
    library link/$name 'int nothing;' "-Wl,-soname,$name"
done
ask() {
    echo "-L$tmp/link ${*/#/-l:}"
}

known='void ggml_init(void); void gguf_free(void); void ggml_backend_load_all(void); void ggml_perhaps(void) __attribute__((weak));
    void call(void) { ggml_init(); gguf_free(); ggml_backend_load_all(); if (ggml_perhaps) { ggml_perhaps(); } }'
# shellcheck disable=SC2046
library client/libllama.v0.5.0.so "$known" $(ask libggml.v0.5.0.so libggml-base.so)
expect 0 "llama.cpp v0.5.0 for ggml 0.25.1: tested with Berth" "$tmp/client"
expect 0 "libllama.v0.5.0.so                   3        0  libggml-base.so libggml.v0.5.0.so" "$tmp/client"
expect 0 "/lib/berth replaces ggml by Berth" "$tmp/client"
expect 0 '"release": "v0.5.0", "release_ggml": "0.25.1", "tested": true' --json "$tmp/client"

# Another release: the output names it, and its functions decide.
rm "$tmp"/client/*
# shellcheck disable=SC2046
library client/libllama.so "$known" $(ask libggml.v99.0.0.so libggml-base.so)
expect 1 "llama.cpp v99.0.0: not tested with Berth" "$tmp/client"
expect 1 "Berth has no library with the name: libggml.v99.0.0.so" "$tmp/client"
expect 1 '"missing_libraries": ["libggml.v99.0.0.so"], "missing_functions": 0, "works": false' --json "$tmp/client"

# An ordinary build.
rm "$tmp"/client/*
# shellcheck disable=SC2046
library client/libllama.so.0 "$known" $(ask libggml.so.0 libggml-base.so.0)
expect 0 "unknown: no library name contains a release" "$tmp/client"
# The functions of the CPU library, required directly and through libggml.
cpu='void ggml_backend_cpu_reg(void); void call(void) { ggml_backend_cpu_reg(); }'
# shellcheck disable=SC2046
library client/libcpu.so "$cpu" $(ask libggml-base.so)
expect 0 "" "$tmp/client"
rm "$tmp/client/libllama.so.0"
expect 1 "libcpu.so calls functions that Berth lacks, and ends at the first such call: ggml_backend_cpu_reg" "$tmp/client"

# Missing functions are listed by name and library, except for those that another library of the folder exports.
rm "$tmp"/client/*
lacking='void ggml_no_such(void); void gguf_nor_such(void); void ggml_other_reg(void); void ggml_init(void);
    void call(void) { ggml_no_such(); gguf_nor_such(); ggml_other_reg(); ggml_init(); }'
# shellcheck disable=SC2046
library client/libllama.b10361.so "$lacking" $(ask libggml.b10361.so libggml-base.so libggml-other.so)
# shellcheck disable=SC2046
library client/libggml-other.so 'void ggml_init(void); void ggml_other_reg(void) { ggml_init(); }' $(ask libggml-base.so)
expect 1 "libllama.b10361.so calls functions that Berth lacks, and ends at the first such call: ggml_no_such gguf_nor_such" "$tmp/client"
expect 1 "would fail: 2 functions and 0 libraries are missing" "$tmp/client"
expect 1 '"missing": ["ggml_no_such", "gguf_nor_such"]' --json "$tmp/client"

# Folders that are searched first; libraries of ggml in the folder; Berth's libraries in the folder.
rm "$tmp"/client/*
# shellcheck disable=SC2046
library client/libllama.so "$known" $(ask libggml.v0.5.0.so) "-Wl,-rpath,$tmp,--disable-new-dtags"
expect 1 "sets RPATH, which takes precedence over LD_LIBRARY_PATH" "$tmp/client"
# shellcheck disable=SC2046
library client/libllama.so "$known" $(ask libggml.v0.5.0.so)
library client/libggml-base.so 'void ggml_init(void) { }'
expect 0 "libggml-base.so               replaced by Berth's" "$tmp/client"
cp "$(dirname "$berth")/../lib/libggml-base.so" "$tmp/client/"
expect 0 "Berth has already replaced ggml" "$tmp/client"

# Unreadable files are listed, and the other files count.
head -c 3000 "$tmp/client/libllama.so" > "$tmp/client/cut.so"
head -c 3000 /dev/urandom > "$tmp/client/noise.so"
: > "$tmp/client/empty.node"
mkfifo "$tmp/client/pipe.so"
mkdir "$tmp/client/folder.so"
ln -s nowhere "$tmp/client/lost.so"
expect 0 "noise.so: not a shared library" "$tmp/client"
expect 0 "empty.node: not a shared library" "$tmp/client"
expect 0 "cut.so: " "$tmp/client"
rm -r "$tmp"/client/*
echo x > "$tmp/client/text.txt"
expect 3 "no library in this folder uses ggml's functions" "$tmp/client"

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
