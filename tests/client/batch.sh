#!/bin/bash
# SPDX-License-Identifier: MIT
# batch.sh BUILD_DIR: generates several sequences at once with libllama, on Berth and on the reference (probe.c: batch).
#   tokens   a sequence has the same tokens alone and together with two others, with a cache per sequence and with one cache for
#            all, and the same tokens on Berth as on the reference
#   bits     with batch invariance, a sequence has the same logits, bit for bit, in batches of 1 to 33 sequences
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(cd "$1" && pwd) || exit 1
probe=$build/tests/client-probe
maker=$build/tests/client-model
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# batch FOLDER MODEL N WORD...: prints a line per sequence, after prompts of 20 tokens and 6 steps on two threads.
batch() {
    local folder=$1 model=$2 n=$3
    shift 3
    "$probe" "$folder" batch "$work/$model.gguf" "$n" 20 6 2 "$@" 2>"$work/log" || fail "$folder $model $n $*: $(cat "$work/log")"
}

tokens() {
    local model=$1 words=$2 folder i
    for folder in "$reference" "$work/berth"; do
        # shellcheck disable=SC2086
        {
            batch "$folder" "$model" 3 tokens exact $words >"$work/together"
            for i in 0 1 2; do
                batch "$folder" "$model" 1 tokens exact $words first=$i
            done >"$work/alone"
        }
        cmp -s "$work/together" "$work/alone" || fail "$model $words: sequences have other tokens together than alone: $folder"
        [ "$folder" = "$reference" ] && cp "$work/together" "$work/expected"
    done
    cmp -s "$work/expected" "$work/together" || fail "$model $words: Berth has other tokens than the reference"
}

bits() {
    local model=$1 words=$2 n first
    export BERTH_CPU_BATCH_INVARIANT=1
    # shellcheck disable=SC2086
    batch "$work/berth" "$model" 33 bits $words >"$work/whole"
    for n in 1 2 4 7 9 16 17 32; do
        first=$((n * 7 % (34 - n)))
        # shellcheck disable=SC2086
        batch "$work/berth" "$model" $n bits $words first=$first >"$work/part"
        tail -n +$((first + 1)) "$work/whole" | head -n $n | cmp -s - "$work/part" || fail "$model $words: $n sequences have other bits than 33"
    done
    unset BERTH_CPU_BATCH_INVARIANT
}

for model in llama-f16 llama-q4_K qwen3moe-q8_0; do
    "$maker" "${model%-*}" tiny "${model#*-}" "$work/$model.gguf" || fail "make $model"
done
for release in ${RELEASES:-3.22.1 3.20.0}; do
    reference=$(tools/fetch-reference.sh "$release") || { echo "SKIPPED: release $release is unavailable"; exit 77; }
    llama=$(basename "$reference"/libllama.*.so .so)
    rm -rf "$work/berth"
    mkdir "$work/berth" && cp "$reference"/libllama.*.so "$build"/lib/libggml-base.so "$build"/lib/libggml-cpu.so "$work/berth" &&
        cp "$build/lib/libggml.so" "$work/berth/libggml.${llama#libllama.}.so" || fail "copy"
    for model in llama-f16 llama-q4_K qwen3moe-q8_0; do
        tokens $model ""
        tokens $model unified
    done
    # The releases differ in libllama only, so one release suffices for the kernels.
    [ "$release" = 3.22.1 ] || continue
    for model in llama-f16 llama-q4_K qwen3moe-q8_0; do
        bits $model exact
        bits $model ""
    done
done
exit $failed
