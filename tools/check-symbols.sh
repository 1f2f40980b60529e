#!/bin/sh
# check-symbols.sh [BUILD]: the libraries, shared or archives, export only ggml_*, gguf_*, berth_*, the quantize_*/dequantize_* names
# of the ABI, and the one C++ name in it.
set -eu
dir=${1:-build}
bad=0
for name in libggml-base libggml-cpu libggml $([ ! -e "$dir/lib/libggml-cuda.so" ] || echo libggml-cuda) \
    $([ ! -e "$dir/lib/libggml-mpi.so" ] || echo libggml-mpi libberth-mpi); do
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
        printf '%s exports what it should not:\n%s\n' "$lib" "$others" >&2
        bad=1
    fi
    echo "symbols: $(basename "$lib") exports $(printf '%s\n' "$names" | grep -c .)"
done
exit $bad
