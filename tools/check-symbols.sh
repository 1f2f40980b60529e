#!/bin/sh
# check-symbols.sh [BUILD]: checks that the libraries, shared or static, export only ggml_*, gguf_*, berth_*, and the quantize_*,
# dequantize_* and C++ names that are part of ggml's ABI. Also checks that a GPU backend runs with ggml's own libggml-base: its references
# to berth_* are weak.
set -eu
dir=${1:-build}
bad=0
for name in libggml-base libggml-cpu libggml $([ ! -e "$dir/lib/libggml-cuda.so" ] || echo libggml-cuda) $([ ! -e "$dir/lib/libggml-vulkan.so" ] || echo libggml-vulkan) \
    $([ ! -e "$dir/lib/libggml-mpi.so" ] || echo libggml-mpi libberth-mpi) $([ ! -e "$dir/lib/libberth.so" ] || echo libberth); do
    if [ -e "$dir/lib/$name.so" ]; then
        lib=$dir/lib/$name.so
        names=$(nm -D --defined-only "$lib" | awk '{print $3}')
    elif [ -e "$dir/lib/$name.a" ]; then
        lib=$dir/lib/$name.a
        names=$(nm -g --defined-only "$lib" | awk 'NF == 3 {print $3}')
    else
        echo "symbols: $dir/lib/$name.so and .a are missing" >&2
        exit 1
    fi
    others=$(printf '%s\n' "$names" | grep -Ev '^((ggml|gguf|berth)_[a-z0-9_A-Z]+|(quantize|dequantize)_[a-z0-9_A-Z]+|iq[23]xs_(init|free)_impl|_Z14gguf_type_size9gguf_type|)$' || true)
    if [ -n "$others" ]; then
        printf '%s exports names that are not part of an API:\n%s\n' "$lib" "$others" >&2
        bad=1
    fi
    echo "symbols: $(basename "$lib") exports $(printf '%s\n' "$names" | grep -c .)"
done
for lib in "$dir"/lib/libggml-cuda.so "$dir"/lib/libggml-vulkan.so "$dir"/tests/modules/libggml-*-bare.so; do
    strong=$([ ! -e "$lib" ] || nm -D --undefined-only "$lib" | awk '$1 == "U" && $2 ~ /^berth_/ {print $2}')
    if [ -n "$strong" ]; then
        printf '%s requires names that ggml does not have:\n%s\n' "$lib" "$strong" >&2
        bad=1
    fi
done
exit $bad
