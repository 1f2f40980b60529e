#!/bin/sh
# The shared libraries export only ggml_*, gguf_*, berth_*, the quantize_*/dequantize_* names of the ABI, and the one C++ name in it.
set -eu
dir=${1:-build}
bad=0
for lib in "$dir"/lib/libggml-base.so "$dir"/lib/libggml-cpu.so "$dir"/lib/libggml.so; do
    [ -e "$lib" ] || { echo "symbols: $lib is missing" >&2; exit 1; }
    names=$(nm -D --defined-only "$lib" | awk '{print $3}')
    others=$(printf '%s\n' "$names" | grep -Ev '^((ggml|gguf|berth)_[a-z0-9_A-Z]+|(quantize|dequantize)_[a-z0-9_A-Z]+|iq[23]xs_(init|free)_impl|_Z14gguf_type_size9gguf_type|)$' || true)
    if [ -n "$others" ]; then
        printf '%s exports what it should not:\n%s\n' "$lib" "$others" >&2
        bad=1
    fi
    echo "symbols: $(basename "$lib") exports $(printf '%s\n' "$names" | grep -c .)"
done
exit $bad
