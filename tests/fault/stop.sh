#!/bin/bash
# SPDX-License-Identifier: MIT
# stop.sh BERTH PRELOAD: stops a command that writes a file (SIGTERM) right after each of its calls that open, write, rename or
# remove. It must end by that signal and leave the old file or the complete new one, and no other file. Runs in the root of the
# sources.

berth=$1
preload=$2
tmp=$(mktemp -d) || exit 3
trap 'rm -rf "$tmp"' EXIT
n=0
n_bad=0

stopped() { # FILE COMMAND...
    local file=$1 call calls i code
    shift
    for call in open write remove; do
        rm -rf "$tmp/to" && mkdir "$tmp/to" && echo old > "$tmp/to/$file"
        env LD_PRELOAD="$preload" FAULT_CALL=$call FAULT_COUNT="$tmp/count" "$berth" "$@" > /dev/null 2>&1
        code=$?
        [ $code -ne 77 ] || { echo "skipped: the kernel traps no system calls here"; exit 77; }
        [ $code -eq 0 ] || { echo "FAILED: berth $*: exit code $code"; n_bad=$((n_bad + 1)); return; }
        mv "$tmp/to/$file" "$tmp/new"
        calls=$(cat "$tmp/count")
        [ "$calls" -gt 0 ] || { echo "FAILED: berth $*: no $call is seen"; n_bad=$((n_bad + 1)); }
        for ((i = 1; i <= calls; i++)); do
            n=$((n + 1))
            echo old > "$tmp/to/$file"
            { env LD_PRELOAD="$preload" FAULT_CALL=$call FAULT_AT=$i FAULT_SIGNAL=15 "$berth" "$@" > /dev/null; code=$?; } 2> /dev/null
            if [ $code -ne 143 ] || [ "$(ls "$tmp/to")" != "$file" ] ||
                { [ "$(head -c 4 "$tmp/to/$file")" != "old" ] && ! cmp -s "$tmp/to/$file" "$tmp/new"; }; then
                echo "FAILED: berth $* stopped after its $call $i of $calls: exit code $code, $(ls -l "$tmp/to")"
                n_bad=$((n_bad + 1))
                rm -f "$tmp"/to/*
            fi
        done
    done
}

stopped small.gguf gguf quantize tests/data/tales-3m-q8_0.gguf "$tmp/to/small.gguf" q4_0
stopped map.html map tests/data/plan/small.csv -o "$tmp/to/map.html"
stopped plan.csv plan tests/data/plan/small.csv -o "$tmp/to/plan.csv"
# opening a pipe blocks until there is a reader: the signal must end the command
mkfifo "$tmp/pipe.html"
n=$((n + 1))
"$berth" map tests/data/plan/small.csv -o "$tmp/pipe.html" > /dev/null 2>&1 &
sleep 0.5 # now it waits; if it has ended earlier, the test passes, too
kill $!
{ timeout 10 tail --pid=$! -f /dev/null; kill -KILL $!; wait $!; } 2> /dev/null
[ $? -eq 143 ] || { echo "FAILED: berth map into a pipe does not end by SIGTERM"; n_bad=$((n_bad + 1)); }

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
