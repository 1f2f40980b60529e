#!/bin/bash
# SPDX-License-Identifier: MIT
# kill.sh BERTH N: kills a command that writes a file (SIGKILL) at N random moments. The old file or the complete new one must exist
# afterwards, never an incomplete one, and the command must succeed when it runs again. Other files that it leaves are overwritten
# or ignored. A training run also leaves a checkpoint, and resuming from it must give the same result as an uninterrupted run.
# BERTH_SEED repeats a run. Runs in the root of the sources.

berth=$1
kills=$2
seed=${BERTH_SEED:-$RANDOM}
RANDOM=$seed
tmp=$(mktemp -d) || exit 3
trap 'rm -rf "$tmp"' EXIT
model=tests/data/tales-3m-q8_0.gguf
text=docs/user/training.md
n=0
n_bad=0
n_old=0
n_resumed=0
echo "BERTH_SEED=$seed"

failed() { # TEXT
    echo "FAILED: berth $command, killed after $delay us: $1"
    n_bad=$((n_bad + 1))
}

# FILE COMMAND...: FILE is the output of the command; with ^ it is a pattern of files that are complete or missing
killed() {
    local file=$1 begin us i pid
    shift
    command=$*
    rm -rf "$tmp/written" && mkdir "$tmp/written"
    begin=$(date +%s%N)
    "$berth" "$@" > /dev/null 2>&1 || { echo "FAILED: berth $* fails"; n_bad=$((n_bad + 1)); return; }
    us=$((($(date +%s%N) - begin) / 1000))
    cp -r "$tmp/written" "$tmp/new"
    for ((i = 0; i < kills; i++)); do
        n=$((n + 1))
        rm -rf "$tmp/written" && mkdir "$tmp/written"
        [ -z "$file" ] || echo old > "$tmp/written/$file"
        delay=$(((RANDOM * 32768 + RANDOM) % (us + us / 10)))
        "$berth" "$@" > /dev/null 2>&1 &
        pid=$!
        sleep "$(printf '%d.%06d' $((delay / 1000000)) $((delay % 1000000)))"
        kill -KILL $pid 2> /dev/null
        wait $pid 2> /dev/null
        judge "$file"
    done
    rm -rf "$tmp/new"
}

judge() {
    local file=$1 name
    if [ -n "$file" ] && [ "$(head -c 4 "$tmp/written/$file")" = "old" ]; then
        n_old=$((n_old + 1))
    elif [ -n "$file" ] && ! cmp -s "$tmp/written/$file" "$tmp/new/$file"; then
        failed "$file is neither the old one nor the new one: $(ls -l "$tmp/written")"
    fi
    for name in "$tmp"/written/*.ggraph; do
        [ ! -e "$name" ] || "$berth" plan "$name" > /dev/null 2>&1 || failed "${name##*/} is not whole"
    done
    for name in "$tmp"/written/*.checkpoint; do # at any step: the resumed run must give the same result
        [ -e "$name" ] || continue
        n_resumed=$((n_resumed + 1))
        if ! "$berth" train $model --data "$text" -o "$tmp/resumed.gguf" --resume "$name" > "$tmp/log" 2>&1; then
            failed "${name##*/} is not whole: $(tail -n 1 "$tmp/log")"
        elif ! cmp -s "$tmp/resumed.gguf" "$tmp/new/$file"; then
            failed "the run that ${name##*/} resumes ends in another $file"
        fi
    done
}

killed q.gguf gguf quantize $model "$tmp/written/q.gguf" q4_K
killed plan.csv plan tests/data/plan/small.csv -o "$tmp/written/plan.csv"
killed map.html map $model -o "$tmp/written/map.html"
killed lora.gguf train $model --lora 2 --data "$text" -c 16 -b 1 --steps 5 --save-every 1 -o "$tmp/written/lora.gguf"
export BERTH_CAPTURE=$tmp/written
killed "" run -s 1 -n 2 $model

echo "$n kills ($n_old before the new file, $n_resumed left a checkpoint that was resumed), $n_bad failed"
[ $n_bad -eq 0 ]
