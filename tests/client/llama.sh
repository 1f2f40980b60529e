#!/bin/bash
# llama.sh BUILD_DIR made|published: runs models with llama.cpp itself on Berth, with libllama of each release:
#   made       one model of each architecture of the model maker: `run` uses as much memory for cache and compute as `plan`
#              predicts; `serve` can plan it unless it is an encoder; libllama's own program generates the same text; without
#              libllama, a message says how to get it
#   published  plan, fit, map and explain of every header of BERTH_DATA/models/sparse: cache and compute equal the sizes that
#              libllama logs on Berth (with two digits of MiB)
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(cd "$1" && pwd) || exit 1
step=$2
berth=$build/bin/berth
probe=$build/tests/client-probe
maker=$build/tests/client-model
data=${BERTH_DATA:-../shared}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
export GGML_NO_BACKTRACE=1

fail() {
    echo "FAILED: $*"
    failed=1
}

# memory FILE: prints "compute cache" of the CPU from the --json output of a command.
memory() {
    sed -n 's/.*"memory": \[{"device": "CPU", \(.*\)/\1/p' "$1" | sed 's/.*"cache": \([0-9]*\), "compute": \([0-9]*\).*/\2 \1/'
}

# Creates a folder of libllama with Berth's libraries, for the probe.
berth_folder() {
    rm -rf "$work/berth"
    mkdir -p "$work/berth" && cp "$reference"/libllama.*.so "$build"/lib/libggml-base.so "$build"/lib/libggml-cpu.so "$work/berth" &&
        cp "$build/lib/libggml.so" "$work/berth/libggml.$llama.so" || fail "copy"
}

made() {
    local a m text stock n=0
    for a in $("$maker" list); do
        m=$work/$a.gguf
        [ -f "$m" ] || "$maker" "$a" tiny f16 "$m" || fail "make $a"
        "$berth" plan --llama "$m" -c 512 -b 64 --json >"$work/plan" 2>"$work/log" || fail "plan $a: $(cat "$work/log")"
        if [ "$a" = bert ]; then
            "$berth" run --llama "$m" -n 4 -p x >"$work/log" 2>&1 && fail "bert generates text"
            grep -q "cannot generate text" "$work/log" || fail "bert: $(cat "$work/log")"
            continue
        fi
        "$berth" serve --llama "$m" --plan -c 256 --parallel 3 >"$work/log" 2>&1 || [ "$a" = t5 ] || fail "serve $a: $(cat "$work/log")"
        "$berth" run --llama "$m" -c 512 -b 64 -n 8 -p "once the time" --temp 0 -t 1 --json >"$work/run" 2>"$work/log" ||
            fail "run $a: $(cat "$work/log")"
        [ -n "$(memory "$work/plan")" ] && [ "$(memory "$work/plan")" = "$(memory "$work/run")" ] ||
            fail "$a: planned $(memory "$work/plan"), used $(memory "$work/run")"
        n=$((n + 1))
    done
    text=$("$berth" run --llama -m models/tales-q8_0.gguf -p "Once upon a time" -n 40 --temp 0 -t 1 2>"$work/log") || fail "$(cat "$work/log")"
    berth_folder
    stock=$("$probe" "$work/berth" text models/tales-q8_0.gguf "Once upon a time" 40 2>"$work/log") || fail "$(cat "$work/log")"
    [ "$text" = "${stock%%[[:space:]]}" ] || fail "berth: $text; libllama: $stock"
    # The message must contain libllama's reason for the failure, not only that of the calling function.
    "$berth" gguf set models/tales-q8_0.gguf general.architecture=nonsuch -o "$work/nonsuch.gguf" >/dev/null
    "$berth" run -n 1 "$work/nonsuch.gguf" >"$work/log" 2>&1 && fail "it ran 'nonsuch'"
    grep -q "unknown model architecture: 'nonsuch'" "$work/log" || fail "libllama's reason is missing: $(cat "$work/log")"
    "$berth" run --llama -m models/tales-q8_0.gguf --split tensor --device CPU,CPU >"$work/log" 2>&1 && fail "--split tensor was accepted"
    "$berth" bench --llama -m models/tales-q8_0.gguf -p 16 -n 4 -r 1 -t 1 --json >"$work/log" 2>&1 || fail "bench: $(cat "$work/log")"
    "$berth" embed --llama -m models/tales-q8_0.gguf "a tale" >"$work/log" 2>&1 || fail "embed: $(cat "$work/log")"
    # Perplexity with libllama equals Berth's own except for rounding. Options that libllama does not support are reported.
    "$berth" run -m models/tales-q8_0.gguf -p "Once upon a time" -n 400 --temp 0.8 -s 5 --echo >"$work/tale" 2>/dev/null
    for how in "" --llama; do
        "$berth" perplexity $how models/tales-q8_0.gguf "$work/tale" -c 64 --json 2>"$work/log" || fail "perplexity: $(cat "$work/log")"
    done | sed 's/.*"perplexity": \([0-9.]*\).*/\1/' | paste -s -d' ' |
        awk '{ ok = NF == 2 && $1 > 1 && $1 < 20 && ($1 - $2) ^ 2 < (0.01 * $1) ^ 2 } END { exit !ok }' || fail "perplexity differs"
    "$berth" run --llama -m models/tales-q8_0.gguf -n 1 --prompt-cache "$work/kept" >"$work/log" 2>&1 && fail "--prompt-cache was accepted"
    grep -q "prompt-cache is not supported for a model that libllama runs" "$work/log" || fail "prompt cache: $(cat "$work/log")"
    "$berth" run --llama -m models/tales-q8_0.gguf -n 1 --lora "$work/tale" >"$work/log" 2>&1 && fail "--lora was accepted"
    grep -q "adapters require a model that Berth runs itself" "$work/log" || fail "adapter: $(cat "$work/log")"
    echo "$release: $n generated models use the planned memory"
}

# logged_sizes FILE: prints "compute cache" in MiB from libllama's log.
logged_sizes() {
    awk '/compute buffer size =/ { c += $(NF - 1) } / size = +[0-9.]+ MiB \(/ { sub(/.* size = +/, ""); k += $1 } END { printf "%.2f %.2f\n", c, k }' "$1"
}

# close_to "COMPUTE CACHE" "COMPUTE CACHE": compares sizes in bytes with sizes in MiB, within 0.02 MiB: libllama logs a cache in
# several parts, each rounded.
close_to() {
    echo "$1 $2" | awk 'function far(x, y) { return x / 1048576 - y > 0.02 || y - x / 1048576 > 0.02 } NF == 4 && !far($1, $3) && !far($2, $4) { ok = 1 } END { exit !ok }'
}

published() {
    local m n=0 ours theirs
    berth_folder
    sh "$data/models/sparse/make.sh" "$work/sparse"
    for m in "$work"/sparse/*.gguf; do
        "$berth" plan --llama "$m" -c 512 -b 512 --json >"$work/plan" 2>"$work/log" || fail "plan $m: $(cat "$work/log")"
        PROBE_LOUD=1 PROBE_EMPTY=1 "$probe" "$work/berth" memory "$m" 512 512 >"$work/logged_sizes" 2>&1
        ours=$(memory "$work/plan") theirs=$(logged_sizes "$work/logged_sizes")
        close_to "$ours" "$theirs" || fail "$(basename "$m"): planned $ours bytes, libllama reserves $theirs MiB"
        "$berth" fit --llama --memory 1T "$m" >"$work/log" 2>&1 || fail "fit $m: $(cat "$work/log")"
        "$berth" map --llama "$m" -c 512 -o "$work/map.html" >"$work/log" 2>&1 || fail "map $m: $(cat "$work/log")"
        "$berth" explain --llama "$m" -c 512 >"$work/log" 2>&1 || fail "explain $m: $(cat "$work/log")"
        "$berth" plan "$m" -c 512 >"$work/log" 2>&1 || fail "plan without --llama, $m: $(cat "$work/log")"
        n=$((n + 1))
    done
    rm -rf "$work/sparse"
    echo "$release: plan, fit, map and explain of $n published models"
}

if [ "$step" = published ] && [ ! -d "$data/models/sparse" ]; then
    echo "SKIPPED: $data/models/sparse does not exist (set BERTH_DATA)"
    exit 77
fi
for release in ${RELEASES:-3.22.1 3.20.0}; do
    reference=$(tools/fetch-reference.sh "$release") || { echo "SKIPPED: release $release is unavailable"; exit 77; }
    llama=$(basename "$reference"/libllama.*.so .so)
    llama=${llama#libllama.}
    export BERTH_LLAMA=$reference
    "$step"
done
if [ "$step" = made ]; then
    BERTH_LLAMA=$work "$berth" run --llama -m models/tales-q8_0.gguf >"$work/log" 2>&1 && fail "it ran without libllama"
    grep -q "npm install node-llama-cpp" "$work/log" || fail "the message does not say how to get libllama: $(cat "$work/log")"
    # A libllama in the current folder is not loaded unless requested.
    bins=$work/here/node_modules/@node-llama-cpp/any/bins/any
    mkdir -p "$bins" && cp "$reference"/libllama.*.so "$bins/"
    (cd "$work/here" && env -u BERTH_LLAMA -u LD_LIBRARY_PATH HOME=/ "$berth" plan "$work/phi2.gguf" >"$work/log" 2>&1) &&
        fail "it loaded libllama from the current folder"
    grep -q "BERTH_LLAMA=. uses the one in ./node_modules" "$work/log" || fail "the message does not mention the libllama in the current folder: $(cat "$work/log")"
    (cd "$work/here" && BERTH_LLAMA=. "$berth" plan "$work/phi2.gguf" >"$work/log" 2>&1) || fail "BERTH_LLAMA=.: $(cat "$work/log")"
    BERTH_LLAMA=$work "$berth" plan "$work/phi2.gguf" >"$work/log" 2>&1 && fail "it planned without libllama"
    [ "$(wc -l <"$work/log")" = 1 ] && grep -q "'phi2' is not supported.*npm install" "$work/log" || fail "$(cat "$work/log")"
    # Berth's own server has no states. libllama has.
    BERTH_LLAMA=$work "$berth" serve "$work/mamba2.gguf" --plan >"$work/log" 2>&1 && fail "it served a state without libllama"
    grep -q "several sequences of architecture 'mamba2' require libllama; .*npm install" "$work/log" || fail "$(cat "$work/log")"
    "$berth" serve "$work/mamba2.gguf" --plan >"$work/log" 2>&1 || fail "serve mamba2: $(cat "$work/log")"
fi
exit $failed
