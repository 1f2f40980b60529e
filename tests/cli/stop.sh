#!/bin/bash
# SPDX-License-Identifier: MIT
# stop.sh BERTH: Ctrl-C in every command that handles it: exit code 130, soon, and no incomplete files. Runs in the root of the
# sources.

. "$(dirname "$0")/expect.sh"

model=tests/data/tales-3m-q8_0.gguf
for _ in $(seq 100); do cat README.md; done > "$tmp/long"
head -c 100000 /dev/zero | tr '\0' x > "$tmp/prompt"
mkfifo "$tmp/talk"
exec 3<> "$tmp/talk" # kept open, so that a reader of the pipe waits

# stopped NAME ARGS...: the command must run long enough to be interrupted.
stopped() {
    local name=$1
    shift
    n=$((n + 1))
    interrupted "$@" < "$tmp/talk"
    if [ $got -ne 130 ]; then
        echo "FAILED: $name: exit code $got after Ctrl-C: $(tail -n 2 "$tmp/err")"
        n_bad=$((n_bad + 1))
    fi
}

stopped run run -c 120000 -b 64 -f "$tmp/prompt" $model
stopped "run --json" run --json -c 120000 -b 64 -f "$tmp/prompt" $model
stopped perplexity perplexity $model "$tmp/long"
stopped imatrix imatrix -o "$tmp/imatrix.gguf" $model "$tmp/long"
stopped bench bench -p 512 -n 128 -r 1000 $model
stopped embed embed -c 512 -f "$tmp/long" $model
stopped train train --lora 1 --data "$tmp/long" -c 32 -b 2 --steps 100000000 -o "$tmp/out.gguf" $model
stopped chat chat --template chatml -c 60000 -p "$(head -c 60000 "$tmp/long")" $model
stopped "chat that waits" chat --template chatml $model
hard_items > "$tmp/hard.csv"
stopped plan plan --time 60000 "$tmp/hard.csv"
stopped map map --time 60000 "$tmp/hard.csv" -o "$tmp/hard.svg"
if ls "$tmp" | grep -q '[.]part'; then
    echo "FAILED: partial files are left: $(ls "$tmp")"
    n_bad=$((n_bad + 1))
fi

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
