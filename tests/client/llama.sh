#!/bin/bash
# Models by llama.cpp itself on Berth: llama.sh BUILD_DIR made|published. With libllama of each release:
#   made       a model of each architecture that the maker knows: what `plan` says of cache and compute is what `run` then has; the
#              same text as libllama's own program gets; the line that says how to get libllama, where there is none
#   published  every header of BERTH_DATA/models/sparse through plan, fit, map and explain: cache and compute are what libllama
#              says it reserves on Berth (it says two digits of MiB)
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

# memory FILE: "compute cache" of the CPU in what a command printed with --json.
memory() {
    sed -n 's/.*"memory": \[{"device": "CPU", \(.*\)/\1/p' "$1" | sed 's/.*"cache": \([0-9]*\), "compute": \([0-9]*\).*/\2 \1/'
}

# libllama with Berth's libraries, as the probe takes them.
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
            "$berth" run --llama "$m" -n 4 -p x >"$work/log" 2>&1 && fail "bert writes"
            grep -q "cannot generate text" "$work/log" || fail "bert: $(cat "$work/log")"
            continue
        fi
        "$berth" run --llama "$m" -c 512 -b 64 -n 8 -p "once the time" --temp 0 -t 1 --json >"$work/run" 2>"$work/log" ||
            fail "run $a: $(cat "$work/log")"
        [ -n "$(memory "$work/plan")" ] && [ "$(memory "$work/plan")" = "$(memory "$work/run")" ] ||
            fail "$a: planned $(memory "$work/plan"), taken $(memory "$work/run")"
        n=$((n + 1))
    done
    text=$("$berth" run --llama -m models/tales-q8_0.gguf -p "Once upon a time" -n 40 --temp 0 -t 1 2>"$work/log") || fail "$(cat "$work/log")"
    berth_folder
    stock=$("$probe" "$work/berth" text models/tales-q8_0.gguf "Once upon a time" 40 2>"$work/log") || fail "$(cat "$work/log")"
    [ "$text" = "${stock%%[[:space:]]}" ] || fail "berth: $text; libllama: $stock"
    # its own reason, not that of the function above the one that failed
    "$berth" gguf set models/tales-q8_0.gguf general.architecture=nonsuch -o "$work/nonsuch.gguf" >/dev/null
    "$berth" run -n 1 "$work/nonsuch.gguf" >"$work/log" 2>&1 && fail "it ran 'nonsuch'"
    grep -q "unknown model architecture: 'nonsuch'" "$work/log" || fail "no reason of libllama's: $(cat "$work/log")"
    "$berth" run --llama -m models/tales-q8_0.gguf --split tensor --device CPU,CPU >"$work/log" 2>&1 && fail "it shares tensors out"
    "$berth" bench --llama -m models/tales-q8_0.gguf -p 16 -n 4 -r 1 -t 1 --json >"$work/log" 2>&1 || fail "bench: $(cat "$work/log")"
    "$berth" embed --llama -m models/tales-q8_0.gguf "a tale" >"$work/log" 2>&1 || fail "embed: $(cat "$work/log")"
    # Its perplexity is Berth's own, but for rounding; what libllama is not asked for is said.
    "$berth" run -m models/tales-q8_0.gguf -p "Once upon a time" -n 400 --temp 0.8 -s 5 --echo >"$work/tale" 2>/dev/null
    for how in "" --llama; do
        "$berth" perplexity $how models/tales-q8_0.gguf "$work/tale" -c 64 --json 2>"$work/log" || fail "perplexity: $(cat "$work/log")"
    done | sed 's/.*"perplexity": \([0-9.]*\).*/\1/' | paste -s -d' ' |
        awk '{ ok = NF == 2 && $1 > 1 && $1 < 20 && ($1 - $2) ^ 2 < (0.01 * $1) ^ 2 } END { exit !ok }' || fail "perplexity differs"
    "$berth" run --llama -m models/tales-q8_0.gguf -n 1 --prompt-cache "$work/kept" >"$work/log" 2>&1 && fail "it keeps a prompt"
    grep -q "prompt-cache is not supported for a model that libllama runs" "$work/log" || fail "prompt cache: $(cat "$work/log")"
    "$berth" run --llama -m models/tales-q8_0.gguf -n 1 --lora "$work/tale" >"$work/log" 2>&1 && fail "it takes an adapter"
    grep -q "adapters require a model that Berth runs itself" "$work/log" || fail "adapter: $(cat "$work/log")"
    echo "$release: $n made models take what was planned"
}

# said FILE: "compute cache" in MiB, as libllama says.
said() {
    awk '/compute buffer size =/ { c += $(NF - 1) } / size = +[0-9.]+ MiB \(/ { sub(/.* size = +/, ""); k += $1 } END { printf "%.2f %.2f\n", c, k }' "$1"
}

# close_to "COMPUTE CACHE" of bytes and of MiB: each model's cache may be of several parts, and each is rounded.
close_to() {
    echo "$1 $2" | awk 'function far(x, y) { return x / 1048576 - y > 0.02 || y - x / 1048576 > 0.02 } NF == 4 && !far($1, $3) && !far($2, $4) { ok = 1 } END { exit !ok }'
}

published() {
    local m n=0 ours theirs
    berth_folder
    sh "$data/models/sparse/make.sh" "$work/sparse"
    for m in "$work"/sparse/*.gguf; do
        "$berth" plan --llama "$m" -c 512 -b 512 --json >"$work/plan" 2>"$work/log" || fail "plan $m: $(cat "$work/log")"
        PROBE_LOUD=1 PROBE_EMPTY=1 "$probe" "$work/berth" memory "$m" 512 512 >"$work/said" 2>&1
        ours=$(memory "$work/plan") theirs=$(said "$work/said")
        close_to "$ours" "$theirs" || fail "$(basename "$m"): planned $ours bytes, libllama says $theirs MiB"
        "$berth" fit --llama --memory 1T "$m" >"$work/log" 2>&1 || fail "fit $m: $(cat "$work/log")"
        "$berth" map --llama "$m" -c 512 -o "$work/map.html" >"$work/log" 2>&1 || fail "map $m: $(cat "$work/log")"
        "$berth" explain --llama "$m" -c 512 >"$work/log" 2>&1 || fail "explain $m: $(cat "$work/log")"
        "$berth" plan "$m" -c 512 >"$work/log" 2>&1 || fail "plan without --llama, $m: $(cat "$work/log")"
        n=$((n + 1))
    done
    rm -rf "$work/sparse"
    echo "$release: $n published models through plan, fit, map and explain"
}

if [ "$step" = published ] && [ ! -d "$data/models/sparse" ]; then
    echo "SKIPPED: there is no $data/models/sparse (set BERTH_DATA)"
    exit 77
fi
for release in ${RELEASES:-3.22.1 3.20.0}; do
    reference=$(tools/fetch-reference.sh "$release") || { echo "SKIPPED: release $release cannot be had here"; exit 77; }
    llama=$(basename "$reference"/libllama.*.so .so)
    llama=${llama#libllama.}
    export BERTH_LLAMA=$reference
    "$step"
done
if [ "$step" = made ]; then
    BERTH_LLAMA=$work "$berth" run --llama -m models/tales-q8_0.gguf >"$work/log" 2>&1 && fail "it ran without libllama"
    grep -q "npm install node-llama-cpp" "$work/log" || fail "no word of how to get it: $(cat "$work/log")"
    # what lies in the current folder is not loaded unless asked for
    bins=$work/here/node_modules/@node-llama-cpp/any/bins/any
    mkdir -p "$bins" && cp "$reference"/libllama.*.so "$bins/"
    (cd "$work/here" && env -u BERTH_LLAMA -u LD_LIBRARY_PATH HOME=/ "$berth" plan "$work/phi2.gguf" >"$work/log" 2>&1) &&
        fail "it loaded what lies here"
    grep -q "BERTH_LLAMA=. uses the one in ./node_modules" "$work/log" || fail "no word of what is here: $(cat "$work/log")"
    (cd "$work/here" && BERTH_LLAMA=. "$berth" plan "$work/phi2.gguf" >"$work/log" 2>&1) || fail "BERTH_LLAMA=.: $(cat "$work/log")"
    BERTH_LLAMA=$work "$berth" plan "$work/phi2.gguf" >"$work/log" 2>&1 && fail "it planned without libllama"
    [ "$(wc -l <"$work/log")" = 1 ] && grep -q "'phi2' is not supported.*npm install" "$work/log" || fail "$(cat "$work/log")"
fi
exit $failed
