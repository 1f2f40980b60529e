#!/bin/bash
# SPDX-License-Identifier: MIT
# calls.sh BERTH PRELOAD CALLS [all]: runs every command with its N-th call of a kind failing, alone or with all later calls,
# including calls of libc itself. CALLS is "memory" (preload.c) or "open read write map stat remove" (syscalls.c). A command must
# never end by a signal or hang, and its exit code may be 0 only with the complete output. With `all` every N is tested, else some.
# Runs in the root of the sources.
# FAULT_PART=I/K runs the I-th of every K attempts, so that K processes share the work (tools/faults.sh).

berth=$1
preload=$2
calls_of_all=$3
which=${4:-some}
tmp=$(mktemp -d) || exit 3
trap 'rm -rf "$tmp"' EXIT
model=tests/data/tales-3m-q8_0.gguf
small=tests/data/plan/small.csv
"$berth" plan $small -o "$tmp/plan.csv" > /dev/null || exit 3
"$berth" train --lora 1 --steps 0 -c 8 -b 1 --val LICENSE -o "$tmp/lora.gguf" $model > /dev/null || exit 3
part=${FAULT_PART:-1/1}
i_attempt=0
n=0
n_bad=0
tries=3 last=0 # attempts per kind; number of last calls that are tested
[ "$calls_of_all" != memory ] || { tries=6 last=3; }

# Prints everything that the program printed or wrote, without times and speeds, which differ between runs. The lines about live
# values and about lower settings may contain an error instead.
seen() { # FOLDER
    for file in "$1"/*; do
        printf '== %s\n' "${file##*/}"
        case $file in
            */err) ;;
            # the device's name is read from a file, and differs if that fails
            */out | *.trace) sed 's/^CPU: .*/CPU: a name/; s/[0-9][0-9.e+-]*/0/g; s/"\(less": 0\|error": "[^"]*"\)}/"less or error"}/g
                s/"alive": {\("less or error"}\|"step".*, "lower": \[[^]]*]\)/"alive or error"/' "$file" ;;
            *) cksum < "$file" ;;
        esac
    done
}

# COMMAND...: runs the program with the variables of the fault in its environment only; $folder is for all its files
attempt() {
    local folder=$tmp/got
    rm -rf "$folder"
    mkdir "$folder"
    timeout 60 env LD_PRELOAD="$preload" FAULT_CALL="$call" "${fault[@]}" "${settings[@]}" "$berth" "${@//@/$folder}" \
        > "$folder/out" 2> "$folder/err" < /dev/null
}

failed() { # TEXT
    echo "FAILED: berth $command with $call ${fault[0]}: $1: $(tail -c 300 "$tmp/got/err")"
    n_bad=$((n_bad + 1))
}

# A captured graph is optional: without memory for it there is no file, never an incomplete one.
captures_are_whole() {
    local file
    for file in "$tmp"/good/*.ggraph; do
        [ ! -e "$tmp/got/${file##*/}" ] || cmp -s "$file" "$tmp/got/${file##*/}" || return 1
    done
    for file in "$tmp"/got/*.ggraph; do
        # with less memory, the program may make another plan and capture its graph
        [ -e "$tmp/good/${file##*/}" ] || [ ! -e "$file" ] || "$berth" plan "$file" > /dev/null || return 1
    done
}

# The lines after the main result may be missing if one line gives the reason; everything before them must be as expected.
is_excused() {
    grep -Eq '^  (alive at the peak: unknown|lower .*cannot be planned): ' "$tmp/got/out" &&
        seen "$tmp/got" | sed '/^  alive at/,$d' | cmp -s - <(sed '/^  alive at/,$d' "$tmp/good.seen")
}

judge() {
    n=$((n + 1))
    if [ "$code" -eq 124 ]; then
        failed "it does not end"
    elif [ "$code" -gt 4 ]; then
        failed "exit code $code"
    elif [ "$code" -ne 0 ] && [ ! -s "$tmp/got/err" ] && [ "$call" != write ]; then # the error message itself is a write
        failed "exit code $code without a word"
    elif [ ${#settings[@]} -gt 0 ]; then
        captures_are_whole || failed "a captured graph is not whole"
    elif [ "$code" -eq 0 ] && ! seen "$tmp/got" | cmp -s - "$tmp/good.seen" && ! is_excused; then
        failed "exit code 0, but the output is not the expected one: $(seen "$tmp/got" | diff "$tmp/good.seen" - | head -4)"
    fi
    if [ "$code" -ne 0 ] && [ "$call" != remove ] && find "$tmp/got" -name '*.part' | grep -q .; then
        failed "half a file is left"
    fi
}

scenario() { # COMMAND...; @ is the folder to write to
    command=$*
    for call in $calls_of_all; do
        campaign "$@"
    done
}

is_ours() { # returns whether the next attempt belongs to FAULT_PART
    i_attempt=$((i_attempt + 1))
    [ $((i_attempt % ${part#*/})) -eq $((${part%/*} - 1)) ]
}

campaign() { # COMMAND...
    local calls i step mode
    fault=(FAULT_COUNT="$tmp/count")
    attempt "$@"
    code=$?
    [ $code -ne 77 ] || { echo "skipped: the kernel traps no system calls here"; exit 77; }
    [ $code -eq 0 ] || { failed "exit code $code without a fault"; return; }
    seen "$tmp/got" > "$tmp/good.seen"
    rm -rf "$tmp/good"
    mv "$tmp/got" "$tmp/good"
    calls=$(cat "$tmp/count")
    [ "$call" != memory ] || [ "$calls" -gt 4 ] || failed "only $calls allocations are seen"
    step=1
    if [ "$which" != all ]; then
        step=$((calls / tries + 1))
    fi
    for mode in FAULT_AT FAULT_FROM; do
        for ((i = 1; i <= calls; i += step)); do
            is_ours || continue
            fault=("$mode=$i")
            attempt "$@"
            code=$?
            judge
        done
        # the last calls write the output
        for ((i = calls - last; i <= calls; i++)); do
            [ "$which" != all ] && [ $i -gt 0 ] && is_ours || continue
            fault=("$mode=$i")
            attempt "$@"
            code=$?
            judge
        done
    done
}

settings=()
scenario run -s 1 -n 2 $model
scenario run --json -s 1 -n 2 $model
scenario run --trace @/run.trace -s 1 -n 2 $model
scenario map $small -o @/map.html
scenario map $small -o @/map.svg
scenario map $model -o @/model.html
scenario plan $small -o @/plan.csv
scenario plan --json $small
scenario plan --json $model
scenario verify "$tmp/plan.csv"
scenario gguf info $model
scenario gguf info --json $model
scenario gguf check $model
scenario gguf quantize $model @/small.gguf q4_0
scenario fit --memory 1G --json $model
scenario explain $model
scenario imatrix -c 8 --chunks 2 -o @/imatrix.gguf $model README.md
scenario train --lora 1 --steps 1 --save-every 1 -c 8 -b 1 -t 1 --data LICENSE -o @/lora.gguf --plot @/loss.svg $model
scenario gguf merge-lora $model "$tmp/lora.gguf" -o @/merged.gguf
scenario devices
scenario chat --template chatml --system x --temp 0 -p Hello -n 2 $model
settings=(BERTH_CAPTURE="$tmp/got")
scenario run -s 1 -n 2 $model

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
