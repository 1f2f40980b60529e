#!/bin/bash
# SPDX-License-Identifier: MIT
# cut.sh BERTH: another program truncates a model while it is used. The error must name the file, and output files must be
# unchanged; with --no-mmap the truncation has no effect. Runs in the root of the sources.

. "$(dirname "$0")/expect.sh"

# CODE WORDS...: starts berth, truncates the model once the first output or a partial file exists, and waits. Truncating at the
# first mapping would be too early, because berth opens the file more than once while it loads the model.
cut_case() {
    local code=$1 got
    shift
    n=$((n + 1))
    cp tests/data/tales-3m-q8_0.gguf "$tmp/model.gguf"
    rm -f "$tmp/out"
    "$berth" "$@" > "$tmp/out" 2> "$tmp/err" < /dev/null &
    local pid=$! i
    for ((i = 0; i < 1000; i++)); do
        kill -0 $pid 2> /dev/null || break
        [ ! -s "$tmp/out" ] && ! ls "$tmp"/*.part > /dev/null 2>&1 || break
        sleep 0.02
    done
    : > "$tmp/model.gguf"
    wait $pid
    got=$?
    if [ $got -ne "$code" ] || { [ "$code" -ne 0 ] && ! grep -q "model.gguf: another program truncated the file" "$tmp/err"; }; then
        echo "FAILED: berth $*: exit code $got, not $code: $(cat "$tmp/err")"
        n_bad=$((n_bad + 1))
    fi
    if ls "$tmp"/*.part > /dev/null 2>&1; then
        echo "FAILED: berth $*: left $(ls "$tmp"/*.part)"
        n_bad=$((n_bad + 1))
    fi
}

# the first row appears immediately; the second one would take half a minute
cut_case 3 bench -t 2 -p 0 -n 1,200 -r 400 "$tmp/model.gguf"
cut_case 0 run -t 2 -n 200 --temp 0 --no-mmap "$tmp/model.gguf"
echo old > "$tmp/small.gguf"
cut_case 3 gguf quantize -t 1 "$tmp/model.gguf" "$tmp/small.gguf" iq3_s
[ "$(cat "$tmp/small.gguf")" = old ] || { echo "FAILED: the old file is gone"; n_bad=$((n_bad + 1)); }
expect 0 "tokens" run -n 2 --no-mmap tests/data/tales-3m-q8_0.gguf

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
