#!/bin/bash
# cuda-model.sh BUILD CLIENT...: tests libllama on Berth's CUDA backend, on a machine with a GPU. BUILD is the build folder of
# cuda-machine.sh. CLIENT is a folder with libllama's binaries of one release, from the npm package @node-llama-cpp/linux-x64;
# Berth's libraries replace ggml's. For each CLIENT the script compares the text of the tales model on the GPU and on the CPU,
# compares the logits of a generated model with those of f32, and measures the tokens per second of a generated llama model of 8B
# weights, with a prompt of 2,048 tokens and 128 generated tokens. Environment variables, with their defaults: TYPES='q4_K f16';
# TALES, a tales model (set it to one in f16, because rounding may change a word of the shipped q8_0 model); SCRATCH=/dev/shm/berth,
# a folder with 21 GB of space.
set -u
cd "$(dirname "$0")/.."
build=$(cd "$1" && pwd) || exit 1
shift
scratch=${SCRATCH:-/dev/shm/berth}
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
mkdir -p "$scratch"
link="-L$build/lib -lggml -lggml-base -lggml-cpu -lm -Wl,-rpath,$build/lib"
# shellcheck disable=SC2086
gcc -std=c11 -D_GNU_SOURCE -O2 -Iinclude -Isrc tests/client/make_model.c -o "$build/make-model" $link &&
    gcc -std=c11 -D_GNU_SOURCE -O2 -Iinclude -Isrc tests/client/probe.c -o "$build/probe" -ldl -lm || exit 1
for type in ${TYPES:-q4_K f16}; do
    [ -f "$scratch/8b-$type.gguf" ] || "$build/make-model" llama 8b "$type" "$scratch/8b-$type.gguf" &
done
"$build/make-model" llama small f32 "$scratch/small.gguf" || fail "the small model"
wait
for client in "$@"; do
    llama=$(basename "$client"/libllama.*.so .so)
    llama=${llama#libllama.}
    for kind in gpu cpu; do
        folder=$scratch/$llama-$kind
        rm -rf "$folder"
        mkdir "$folder" && cp "$client"/libllama*.so "$build"/lib/libggml-{base,cpu}.so "$folder/" && cp "$build/lib/libggml.so" "$folder/libggml.$llama.so"
        [ $kind = cpu ] || cp "$build/lib/libggml-cuda.so" "$folder/"
    done
    echo "== libllama $llama"
    for kind in gpu cpu; do
        "$build/probe" "$scratch/$llama-$kind" text "${TALES:-models/tales-q8_0.gguf}" "Once upon a time" 100 > "$scratch/$kind.txt" 2> "$scratch/log" || fail "text on the $kind: $(cat "$scratch/log")"
    done
    cmp "$scratch/gpu.txt" "$scratch/cpu.txt" && echo "the same text of 100 tokens on the GPU and on the CPU" || fail "the texts of the GPU and of the CPU differ"
    for type in f32 q4_K; do
        "$build/make-model" llama small $type "$scratch/logits.gguf" || fail "the small model of $type"
        for kind in gpu cpu; do
            BERTH_CPU_ISA=portable "$build/probe" "$scratch/$llama-$kind" logits "$scratch/logits.gguf" "$scratch/$kind.bin" 200 2> "$scratch/log" || fail "logits: $(cat "$scratch/log")"
        done
        [ $type != f32 ] || BERTH_CPU_ISA=portable "$build/probe" "$scratch/$llama-cpu" logits "$scratch/logits.gguf" "$scratch/exact.bin" 200 exact 2> "$scratch/log"
        echo "logits of a small model of $type, GPU against CPU: $("$build/probe" compare "$scratch/cpu.bin" "$scratch/gpu.bin")"
        [ $type != f32 ] || echo "  against f32 throughout: GPU $("$build/probe" compare "$scratch/exact.bin" "$scratch/gpu.bin"), CPU $("$build/probe" compare "$scratch/exact.bin" "$scratch/cpu.bin")"
    done
    for type in ${TYPES:-q4_K f16}; do
        row=$("$build/probe" "$scratch/$llama-gpu" speed "$scratch/8b-$type.gguf" 2048 128 8 2048 8192 2> "$scratch/log") || fail "8b $type: $(tail -3 "$scratch/log")"
        # shellcheck disable=SC2086
        printf '8B %s: prompt %.0f tokens/s, decode %.1f\n' "$type" ${row:-0 0} | head -1
    done
done
exit $failed
