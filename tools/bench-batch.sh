#!/bin/bash
# bench-batch.sh BUILD CLIENT [ARCH...]: tokens per second of 1 to 32 sequences at once, with libllama on Berth and on ggml
# (tests/client/probe.c: batch). BUILD is a build folder with lib/. CLIENT is a folder with libllama and ggml's libraries of one
# release (tools/fetch-reference.sh prints it). ARCH is an architecture of make_model.c (default: llama).
#
# Prints a row per architecture, type, cache and number of sequences: tokens per second of the steps on ggml and on Berth, their
# ratio, and the ratio for the prompts. The runs of both alternate. Before a type is measured, the tokens of three sequences on
# Berth are compared with those on ggml.
#
# Environment variables, with their defaults: SIZE=1b; TYPES='q4_K q8_0 q6_K q4_0 iq4_xs f16'; BATCHES='1 2 3 4 6 8 12 16 32';
# THREADS=2; CACHES='separate unified'; PROMPT=64 and STEPS=16, tokens per sequence; RUNS=2; SCRATCH=/dev/shm/berth, a folder for one
# model at a time; ONLY=berth leaves ggml out, e.g. on a GPU for which CLIENT has no library.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(cd "$1" && pwd) && client=$(cd "$2" && pwd) || exit 1
shift 2
scratch=${SCRATCH:-/dev/shm/berth}
mkdir -p "$scratch" || exit 1
work=$(mktemp -d "$scratch/batch.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
link="-L$build/lib -lggml -lggml-base -lggml-cpu -lm -Wl,-rpath,$build/lib"
# shellcheck disable=SC2086
gcc -std=c11 -D_GNU_SOURCE -O2 -Iinclude -Isrc tests/client/make_model.c -o "$work/make-model" $link &&
    gcc -std=c11 -D_GNU_SOURCE -O2 -Iinclude -Isrc tests/client/probe.c -o "$work/probe" -ldl -lm || exit 1
llama=$(basename "$client"/libllama.*.so .so)
mkdir "$work/berth" && cp "$client"/libllama*.so "$build"/lib/libggml-*.so "$work/berth/" &&
    cp "$build/lib/libggml.so" "$work/berth/libggml.${llama#libllama.}.so" || exit 1
failed=0

# tokens_compare MODEL CACHE: greedy tokens in f32 caches; a small model, because sums in another order may change a token of a large one.
tokens_compare() {
    local folder
    for folder in "$client" "$work/berth"; do
        "$work/probe" "$folder" batch "$1" 3 20 6 2 tokens exact "$2" > "$work/tokens.$(basename "$folder")" 2> "$work/log" || { tail -3 "$work/log"; failed=1; }
    done
    cmp -s "$work/tokens.$(basename "$client")" "$work/tokens.berth" || { echo "FAILED: $1 $2: other tokens than ggml"; failed=1; }
}

# speed FOLDER B CACHE: prints the tokens per second of the prompts and of the steps.
speed() {
    "$work/probe" "$1" batch "$work/model.gguf" "$2" "${PROMPT:-64}" "${STEPS:-16}" "${THREADS:-2}" "runs=${RUNS:-2}" "$3" 2> "$work/log" |
        awk 'NR == 1 {print $1, $2}'
}

printf '%-10s %-7s %-9s %5s %10s %10s %7s %8s\n' model type cache batch ggml berth ratio prompts
[ $# -gt 0 ] || set -- llama
for arch in "$@"; do
    for type in ${TYPES:-q4_K q8_0 q6_K q4_0 iq4_xs f16}; do
        "$work/make-model" "$arch" tiny "$type" "$work/tiny.gguf" && "$work/make-model" "$arch" "${SIZE:-1b}" "$type" "$work/model.gguf" || { failed=1; continue; }
        for cache in ${CACHES:-separate unified}; do
            [ "${ONLY:-}" = berth ] || tokens_compare "$work/tiny.gguf" "$cache"
            for b in ${BATCHES:-1 2 3 4 6 8 12 16 32}; do
                theirs=
                [ "${ONLY:-}" = berth ] || theirs=$(speed "$client" "$b" "$cache")
                ours=$(speed "$work/berth" "$b" "$cache")
                [ -n "$ours" ] || { echo "FAILED: $arch $type $cache $b: $(tail -2 "$work/log")"; failed=1; }
                echo "$arch-${SIZE:-1b} $type $cache $b ${theirs:-0 0} ${ours:-0 0}" |
                    awk '{printf "%-10s %-7s %-9s %5d %10.1f %10.1f %7.2f %8.2f\n", $1, $2, $3, $4, $6, $8, ($6 > 0 ? $8 / $6 : 0), ($5 > 0 ? $7 / $5 : 0)}'
            done
        done
        rm -f "$work/model.gguf"
    done
done
exit $failed
