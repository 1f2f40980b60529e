#!/bin/sh
# check-symbols.sh [BUILD]: checks that the libraries, shared or static, export only ggml_*, gguf_*, berth_*, and the quantize_*,
# dequantize_* and C++ names that are part of ggml's ABI.
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
exit $bad
