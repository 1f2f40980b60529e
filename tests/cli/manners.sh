#!/bin/bash
# SPDX-License-Identifier: MIT
# manners.sh BERTH: rules for every command: --help, a wrong option, an option without its value, a missing file, a file of another
# kind, a full disk, valid JSON, colour only on a terminal. One row per command; every case prints one line if it fails. Runs in the
# root of the sources.

. "$(dirname "$0")/expect.sh"

small=tests/data/plan/small.csv
keys=tests/fuzz/corpus/gguf/keys
model=tests/data/tales-3m-q8_0.gguf
"$berth" plan $small -o "$tmp/plan.csv" > /dev/null
head -c 3000 /dev/urandom | tr -d '\0' > "$tmp/noise"
: > "$tmp/empty"
mkdir "$tmp/folder"
ln -s /dev/full "$tmp/full.svg"
ln -s /dev/full "$tmp/full.html"

# A process that uses Berth and waits for its prompt.
mkfifo "$tmp/never"
"$berth" run -f "$tmp/never" > /dev/null 2>&1 &
on_berth=$!
trap 'kill $on_berth; rm -rf "$tmp"' EXIT

# An adapter for commands that take one.
"$berth" train --lora 1 --steps 0 --val README.md -c 8 -b 1 -o "$tmp/lora.gguf" $model > /dev/null

# A model in two files.
"$berth" gguf split --max-tensors 20 $model "$tmp/part" > /dev/null

# Columns: command ; arguments that work and print ; the same with @ for a file ("": takes none) ; exit code for a file of another
# kind
table="
bench; -p 8 -n 2 -r 1 $model; -p 8 -n 2 -r 1 @; 3
chat; --template chatml -p Hello -n 2 $model; --template chatml -p Hello -n 2 @; 3
client; $(dirname "$berth")/../lib; @; 3
devices; ; ; 3
embed; $model text; @ text; 3
explain; $model; @; 3
fit; --memory 1G $model; --memory 1G @; 3
gguf check; $model; @; 1
gguf diff; $keys $keys; $keys @; 3
gguf hash; $model; @; 3
gguf info; $keys; @; 3
gguf merge; $tmp/part-00001-of-00002.gguf -o $tmp/joined.gguf; @ -o $tmp/joined.gguf; 3
gguf merge-lora; $model $tmp/lora.gguf -o $tmp/merged.gguf; @ $tmp/lora.gguf -o $tmp/merged.gguf; 3
gguf set; $model general.name=x -o $tmp/set.gguf; @ general.name=x -o $tmp/set.gguf; 3
gguf split; $model $tmp/split; @ $tmp/split; 3
gguf quantize; $model $tmp/small.gguf q4_0; @ $tmp/none.gguf q8_0; 3
imatrix; -c 8 --chunks 2 -o $tmp/imatrix.gguf $model README.md; -c 8 --chunks 2 -o $tmp/imatrix.gguf @ README.md; 3
map; $small -o $tmp/small.svg; @ -o $tmp/none.svg; 3
ops; ; ; 3
perplexity; -c 16 --chunks 2 $model README.md; -c 16 --chunks 2 @ README.md; 3
plan; $small; @; 3
run; -n 2 $model; -n 2 @; 3
serve; --plan $model; --plan @; 3
train; -c 8 -b 1 --lora 1 --steps 1 --data README.md -o $tmp/out.gguf $model; -c 8 -b 1 --lora 1 --steps 1 --data README.md -o $tmp/out.gguf @; 3
verify; $tmp/plan.csv; @; 3
version; ; ; 3
which; $on_berth; ; 3
"

failed() {
    echo "FAILED: berth $1"
    n_bad=$((n_bad + 1))
}

# Returns the last line of the command's own message, which a hint may follow.
check_message() {
    grep -qF -- "$1" "$tmp/err" || failed "$2: no '$1' in: $(cat "$tmp/err")"
}

help_case() { # WORDS...
    expect 0 "Usage: berth $*" "$@" --help
    [ ! -s "$tmp/err" ] || failed "$* --help: on standard error: $(cat "$tmp/err")"
    expect 0 "Usage: berth $*" "$@" -h
    cp "$tmp/out" "$tmp/help"
    grep -q -- '-h, --help ' "$tmp/help" || failed "$* --help: does not list itself"
}

option_cases() { # WORDS...
    local option
    for option in --nonsense -Q; do
        expect 2 "unknown option '$option'" "$@" $option
        [ ! -s "$tmp/out" ] || failed "$* $option: on standard output: $(cat "$tmp/out")"
        check_message "Try 'berth $* --help'" "$* $option"
    done
    expect 2 "unknown option '-Q'" "$@" -Qh # in a group of letters
    expect 2 "option '--help=x' takes no value" "$@" --help=x
    for option in $(grep -oE -- '--[a-z-]+ [A-Z]' "$tmp/help" | grep -oE -- '--[a-z-]+' | sort -u); do
        if grep -qE -- "^ +(-[A-Za-z], )?$option [A-Z]" "$tmp/help"; then
            expect 2 "requires a value" "$@" $option
        fi
    done
}

file_cases() { # CODE ARGS WORDS...
    local wrong=$1 args=$2
    shift 2
    # shellcheck disable=SC2086
    expect 3 "$tmp/missing: " "$@" ${args/@/$tmp/missing}
    check_message "No such file or directory" "$* $args"
    for other in noise empty; do
        # shellcheck disable=SC2086
        expect "$wrong" "$tmp/$other" "$@" ${args/@/$tmp/$other}
        [ "$(wc -l < "$tmp/err")" -le 2 ] || failed "$* $args: more than a message: $(cat "$tmp/err")"
    done
    # shellcheck disable=SC2086
    expect 3 "$tmp/folder" "$@" ${args/@/$tmp/folder}
    if ! grep -qF '[MODEL' "$tmp/help"; then # the command has a default model
        # shellcheck disable=SC2086
        expect 2 "" "$@" ${args/@/}
    fi
}

full_disk_case() { # ARGS WORDS...
    local args=$1 got
    shift
    n=$((n + 1))
    # shellcheck disable=SC2086
    "$berth" "$@" $args > /dev/full 2> "$tmp/err" < /dev/null
    got=$?
    [ $got -eq 3 ] || failed "$* $args > /dev/full: exit code $got, not 3: $(cat "$tmp/err")"
    check_message "standard output: writing failed" "$* $args > /dev/full"
    [ "$(wc -l < "$tmp/err")" -eq 1 ] || failed "$* $args > /dev/full: more than a message: $(cat "$tmp/err")"
}

json_case() { # ARGS WORDS...
    local args=$1
    shift
    n=$((n + 1))
    # shellcheck disable=SC2086
    "$berth" "$@" --json $args > "$tmp/out" 2> "$tmp/err" < /dev/null || failed "$* --json $args: exit code $?: $(cat "$tmp/err")"
    if command -v python3 > /dev/null; then
        python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$tmp/out" 2> "$tmp/err" ||
            failed "$* --json $args: no JSON: $(tail -n 1 "$tmp/err"): $(head -c 300 "$tmp/out")"
    fi
}

quiet_case() { # ARGS WORDS...
    local args=$1
    shift
    # shellcheck disable=SC2086
    expect 0 "" "$@" --quiet $args
    [ ! -s "$tmp/err" ] || failed "$* --quiet $args: on standard error: $(cat "$tmp/err")"
}

seen=
while IFS=';' read -r words works with_file wrong; do
    [ -n "$words" ] || continue
    seen="$seen ${words%% *}"
    # shellcheck disable=SC2086
    set -- $words
    help_case "$@"
    option_cases "$@"
    # shellcheck disable=SC2086
    expect 0 "" "$@" $works
    [ "$words" = map ] || full_disk_case "$works" "$@"
    [ -z "${with_file// /}" ] || file_cases "$((wrong))" "$with_file" "$@"
    ! grep -Eq -- '--json( |$)' "$tmp/help" || json_case "$works" "$@"
    quiet_case "$works" "$@"
done <<< "$table"

# The worker needs a program that mpirun started.
seen="$seen worker"
help_case worker
option_cases worker
expect 3 "MPI" worker
expect 3 "$tmp/missing: not a folder" worker --cache "$tmp/missing"
expect 2 "--threads '0' is not an integer from 1 to 4096" worker -t 0
expect 2 "--memory 'much' is not a number of bytes" worker --memory much

# every command has a row
n=$((n + 1))
for each in $("$berth" --help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p'); do
    grep -qw "$each" <<< "$seen" || failed "$each: not in the table of this test"
done

# output files on a full disk
expect 3 "/dev/full: writing failed: No space left on device" plan $small -o /dev/full
expect 3 "full.svg: writing failed: No space left on device" map $small -o "$tmp/full.svg"
expect 3 "full.html: writing failed: No space left on device" map $small -o "$tmp/full.html"
expect 3 "full.html: writing failed: No space left on device" run -n 1 --map "$tmp/full.html" $model
expect 3 "/dev/full: writing failed: No space left on device" run -n 1 --trace /dev/full $model
expect 3 "/dev/full: writing failed: No space left on device" gguf quantize $model /dev/full q4_0

# an output that is also an input is refused, and the input is unchanged
cp $model "$tmp/in.gguf"
ln "$tmp/in.gguf" "$tmp/in.svg"
cp $small "$tmp/in.csv"
expect 3 "in.gguf: this file is also an input: choose another name" plan "$tmp/in.gguf" -o "$tmp/in.gguf"
expect 3 "in.svg: this file is also an input" map "$tmp/in.gguf" -o "$tmp/in.svg"
expect 3 "in.svg: this file is also an input" map $small "$tmp/in.gguf" -o "$tmp/in.svg"
expect 3 "in.csv: this file is also an input" plan "$tmp/in.csv" -o "$tmp/in.csv"
cmp $model "$tmp/in.gguf" && cmp $small "$tmp/in.csv" || failed "plan, map: the input has changed"

# A file that replaces another one keeps its permissions, and follows a link.
: > "$tmp/old.csv"
chmod 640 "$tmp/old.csv"
ln -s old.csv "$tmp/new.csv"
expect 0 "" plan $small -o "$tmp/new.csv"
[ -L "$tmp/new.csv" ] && [ "$(stat -c %a "$tmp/old.csv")" = 640 ] && [ -s "$tmp/old.csv" ] || failed "plan -o: link or mode lost"

# Targets that a new file cannot replace are written in place: a pipe, and standard output under another name, with the rest of the
# output.
n=$((n + 3))
mkfifo "$tmp/pipe"
cat "$tmp/pipe" > "$tmp/piped.csv" &
"$berth" plan $small -o "$tmp/pipe" > /dev/null
wait $!
cmp -s "$tmp/piped.csv" "$tmp/plan.csv" || failed "plan -o PIPE: something else came through"
echo before > "$tmp/appended"
"$berth" plan $small -o /dev/stdout >> "$tmp/appended" 2> "$tmp/err"
{ echo before; cat "$tmp/plan.csv"; } | cmp -s - "$tmp/appended" || failed "plan -o /dev/stdout >> FILE: $(cat "$tmp/appended")"
grep -q 'peak' "$tmp/err" || failed "plan -o /dev/stdout: the report is not on standard error"
mkdir "$tmp/shut"
cp $small "$tmp/shut/old.csv"
chmod 500 "$tmp/shut"
expect 0 "" plan $small -o "$tmp/shut/old.csv" # a writable file in a folder that is not writable
chmod 700 "$tmp/shut"
cmp -s "$tmp/shut/old.csv" "$tmp/plan.csv" || failed "plan -o: not written in a folder of others"
! ls -R "$tmp" | grep -q '[.]part' || failed "plan -o: parts are left: $(ls -R "$tmp" | grep '[.]part')"

# An unwritable target is reported before the work, and nothing is created.
expect 3 "no/such.csv: cannot be written: No such file or directory" plan --time 600000 $small -o "$tmp/no/such.csv"
expect 3 "folder: cannot be written: Is a directory" plan --time 600000 $small -o "$tmp/folder"
expect 3 "empty/x: cannot be written: Not a directory" plan --time 600000 $small -o "$tmp/empty/x"
expect 3 ": cannot be written: No such file or directory" plan --time 600000 $small -o ""
expect 3 "no/x.gguf: cannot be written" imatrix -o "$tmp/no/x.gguf" $model README.md
expect 3 "no/x.json: cannot be written" run -n 1 --trace "$tmp/no/x.json" $model
expect 3 "no/x.json: cannot be written" run -n 1 --map "$tmp/no/x.json" $model
cp README.md "$tmp/text"
expect 3 "text: this file is also an input" imatrix -o "$tmp/text" $model "$tmp/text"

# A failure, also by a system limit, leaves the old file and no partial file.
n=$((n + 2))
cp $small "$tmp/kept"
expect 3 "" run -c 2 -p "a prompt that is longer than that context" --trace "$tmp/kept" $model
cmp -s $small "$tmp/kept" || failed "run --trace: a run that failed has replaced the file"
if can_limit_files; then
    n=$((n + 1))
    { (ulimit -f 8 && "$berth" gguf quantize $model "$tmp/kept" q4_0 > /dev/null 2> "$tmp/err"); } 2> /dev/null
    [ $? -gt 128 ] && cmp -s $small "$tmp/kept" ||
        failed "gguf quantize with ulimit -f: the file is not as it was: $(cat "$tmp/err")"
fi
! ls "$tmp" | grep -q '[.]part' || failed "a part is left: $(ls "$tmp")"

# Closed streams cause failures, and their output goes to no file.
n=$((n + 3))
"$berth" plan $small -o "$tmp/closed.csv" >&- 2> "$tmp/err"
[ $? -eq 3 ] && cmp -s "$tmp/closed.csv" "$tmp/plan.csv" || failed "plan >&-: $(cat "$tmp/err")"
check_message "standard output: writing failed: Bad file descriptor" "plan >&-"
"$berth" run -n 2 --trace "$tmp/closed.json" $model >&- 2> "$tmp/err"
[ $? -eq 3 ] || failed "run >&-: exit code not 3"
"$berth" plan - <&- 2> "$tmp/err"
check_message "standard input: cannot be read: Bad file descriptor" "plan - <&-"

# map
expect 0 "" map $small $small -o "$tmp/two.html"
expect 0 "" map "$tmp/plan.csv" -o "$tmp/one.html"
expect 2 "missing option: --out OUT" map $small
expect 2 "must end in .svg or .html" map $small -o "$tmp/x.png"
expect 2 "unexpected argument '$small': map takes" map $small $small $small -o "$tmp/x.svg"
expect 0 "" map $small --curve -o "$tmp/curve.svg"
expect 3 "the file has offsets, so there was no search" map "$tmp/plan.csv" --curve -o "$tmp/curve.svg"
expect 2 "--curve requires a single FILE" map $small $small --curve -o "$tmp/x.svg"
expect 2 "--curve requires a single FILE" map $small --curve -o "$tmp/x.html"
expect 2 "--time 'soon'" map $small --time soon -o "$tmp/x.svg"
expect 0 "" map $model --ctx 64 --batch 8 -o "$tmp/model.svg"
expect 2 "--ctx '0'" map $model --ctx 0 -o "$tmp/x.svg"
cp tests/fuzz/corpus/ggraph/plain "$tmp/plain.ggraph"
expect 0 "" map --captured "$tmp/plain.ggraph" -o "$tmp/captured.svg"
grep -q 'before: as captured' "$tmp/captured.svg" || failed "map --captured: nothing to compare with"
expect 3 "--captured requires a captured graph" map --captured $small -o "$tmp/x.svg"
expect 2 "--captured takes one file" map --captured "$tmp/plain.ggraph" $small -o "$tmp/x.svg"
expect 3 "cannot be written: No such file" map $small -o "$tmp/no/such.svg"
printf 'id,lower,upper,size,offset\na,0,2,4,0\nb,1,3,4,2\n' > "$tmp/collide.csv"
expect 3 "the offsets are not a valid plan" map "$tmp/collide.csv" -o "$tmp/x.svg"

# A letter has the same meaning in every command.
expect 2 "--ctx '1MiB' is not an integer from 1 to 2147483647" plan -c 1MiB $small
expect 3 "--ctx requires a model" plan -c 40960 $small
expect 2 "--threads '2.5' is not an integer from 1 to 256" map -t 2.5 $small -o "$tmp/x.svg"
# Long option names, including those of llama.cpp, are accepted.
expect 0 "generated: 2 tokens" run -m $model --n-predict 2 --ctx-size 64 --batch-size 8 --temperature 0 -ngl 0 -t 1
expect 0 "generated: 2 tokens" run --predict 2 --ctx 64 --batch 8 --temp 0 --gpu-layers 99 $model
expect 2 "use 0 for the CPU only, or 99" run -ngl 7 $model
expect 2 "unexpected argument '$model': run takes one model and one prompt" run -m $model $model
expect 0 '"test": "tg"' bench --output json -p 0 -n 2 -r 1 -m $model
expect 0 "" bench --format csv -p 0 -n 2 -r 1 -o "$tmp/bench.csv" $model
grep -q ',tg,2,' "$tmp/bench.csv" || failed "bench -o: $(cat "$tmp/bench.csv")"
expect 0 "context 256" fit --memory 1G -m $model
expect 0 "live bytes are highest at step" plan -m $model -c 64 -b 8
expect 0 "" imatrix --chunks 1 -c 8 -m $model -f README.md -o "$tmp/other.gguf"
expect 0 "tensors as q4_0" gguf quantize $model q4_0 -o "$tmp/other.gguf"

# colour: on a terminal, unless it is disabled
if command -v script > /dev/null; then
    n=$((n + 2))
    script -qec "'$berth' plan $small" /dev/null < /dev/null > "$tmp/out" 2>&1
    grep -q "$(printf '\033\[1m')" "$tmp/out" || failed "plan on a terminal: no colour"
    NO_COLOR=1 script -qec "'$berth' plan $small" /dev/null < /dev/null > "$tmp/out" 2>&1
    ! grep -q "$(printf '\033')" "$tmp/out" || failed "plan with NO_COLOR: colour"
fi

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
