#!/bin/bash
# SPDX-License-Identifier: MIT
# output.sh BERTH PRELOAD: a written file is synced before it gets its name, and its folder is synced afterwards. If a sync or a
# rename fails (preload.c), the command fails and the old file stays. Runs in the root of the sources.

berth=$1
preload=$2
tmp=$(mktemp -d) || exit 3
trap 'rm -rf "$tmp"' EXIT
small=tests/data/plan/small.csv
model=tests/data/tales-3m-q8_0.gguf
n=0
n_bad=0

# FAULT CALLS FILE COMMAND...: the command must fail with each of its CALLS failing. Only if the last sync fails, which is that of
# the folder, the new file may be in place.
case_of() {
    local call=$1 calls=$2 file=$3 i code
    shift 3
    for ((i = 1; i <= calls; i++)); do
        n=$((n + 1))
        echo old > "$file"
        chmod 640 "$file"
        env LD_PRELOAD="$preload" FAULT_CALL="$call" FAULT_AT=$i FAULT_COUNT="$tmp/count" "$berth" "$@" > /dev/null 2> "$tmp/err"
        code=$?
        if [ $code -ne 3 ] || ! grep -q "Input/output error" "$tmp/err"; then
            echo "FAILED: berth $*: $call $i of $calls fails: exit code $code: $(cat "$tmp/err")"
            n_bad=$((n_bad + 1))
        elif [ "$call$i" != fsync2 ] && [ "$(cat "$file")" != old ]; then
            echo "FAILED: berth $*: $call $i of $calls fails: the old file is gone"
            n_bad=$((n_bad + 1))
        elif [ "$(stat -c %a "$file")" != 640 ] || ls "$tmp" | grep -q part; then
            echo "FAILED: berth $*: $call $i of $calls fails: $(ls -l "$tmp")"
            n_bad=$((n_bad + 1))
        fi
    done
}

case_of fsync 2 "$tmp/plan.csv" plan $small -o "$tmp/plan.csv"
case_of rename 1 "$tmp/plan.csv" plan $small -o "$tmp/plan.csv"
case_of fsync 2 "$tmp/map.html" map $small -o "$tmp/map.html"
case_of rename 1 "$tmp/map.html" map $small -o "$tmp/map.html"
case_of fsync 2 "$tmp/q.gguf" gguf quantize $model "$tmp/q.gguf" q4_0
case_of rename 1 "$tmp/q.gguf" gguf quantize $model "$tmp/q.gguf" q4_0

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
