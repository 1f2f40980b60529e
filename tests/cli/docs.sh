#!/bin/bash
# SPDX-License-Identifier: MIT
# docs.sh BERTH: what is said about the program is true: man page and completion have the commands and options that --help lists,
# no more and no fewer, help fits a terminal of 80 columns and has examples, letters mean one thing, and completion works. Every case prints one line if it fails. Runs in the root of the sources.

. "$(dirname "$0")/expect.sh"
page=$(dirname "$berth")/../berth.1
. tools/completion/berth.bash

# same WHAT EXPECTED FOUND: two lists of words
same() {
    local expected found
    n=$((n + 1))
    expected=$(tr -s ' ' '\n' <<< "$2" | sed '/^$/d' | sort -u | tr '\n' ' ')
    found=$(tr -s ' ' '\n' <<< "$3" | sed '/^$/d' | sort -u | tr '\n' ' ')
    if [ "$expected" != "$found" ]; then
        echo "FAILED: $1: '$found', not '$expected'"
        n_bad=$((n_bad + 1))
    fi
}

# complete_words WORD...: what completion offers for the last word, which may be ""
complete_words() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    _berth 2> /dev/null
    echo "${COMPREPLY[*]}"
}

help_commands() {
    "$berth" "$@" --help | sed -n 's/^  \([a-z][a-z-]*\)  *[a-z].*/\1/p'
}

help_options() {
    "$berth" "$@" --help | grep -oE '^ {2,6}(-[A-Za-z], )?--[a-z-]+' | tr -d ','
}

# Options of a subsection of the man page: "Fl c , Fl Fl ctx Ar N"
page_options() {
    awk -v want="$1" '$1 == ".Ss" { on = substr($0, 5) == want } $1 == ".Sh" { on = 0 } on && $1 == ".It" && $2 == "Fl" { print }' $page |
        sed 's/ Ar .*//; s/Fl Fl /--/; s/Fl /-/; s/^.It//; s/ ,//'
}

letters=
commands=
for each in $(help_commands); do
    if [ "$each" = gguf ]; then
        parts=$(help_commands gguf)
        same "completion of gguf" "$parts --help" "$(complete_words "$berth" gguf "")"
        for part in $parts; do
            commands="$commands gguf_$part"
        done
    else
        commands="$commands $each"
    fi
done
same "commands of the man page" "$commands" "$(sed -n 's/^\.Ss //p' $page | tr ' ' '_')"
same "completion of commands" "$(help_commands) help --help --version" "$(complete_words "$berth" "")"
same "completion of help" "$(help_commands) --help" "$(complete_words "$berth" help "")"
same "completion of help gguf" "$(help_commands gguf) --help" "$(complete_words "$berth" help gguf "")"
same "completion of help run" "" "$(complete_words "$berth" help run "")"

for each in $commands; do
    words=${each/_/ }
    # shellcheck disable=SC2086
    options=$(help_options $words)
    same "options of '$words' in the man page" "$options" "$(page_options "$words")"
    # shellcheck disable=SC2086
    same "completion of '$words -'" "$options" "$(complete_words "$berth" $words -)"
    n=$((n + 2))
    # shellcheck disable=SC2086
    "$berth" help $words > "$tmp/help"
    if [ "$(wc -L < "$tmp/help")" -ge 80 ]; then
        echo "FAILED: berth help $words: more than 80 columns: $(awk 'length > 79' "$tmp/help" | head -n 1)"
        n_bad=$((n_bad + 1))
    fi
    if [ "$(grep -c "^    berth $words" "$tmp/help")" -lt 2 ]; then
        echo "FAILED: berth help $words: fewer than two examples"
        n_bad=$((n_bad + 1))
    fi
    # shellcheck disable=SC2086
    letters="$letters $(help_options $words | paste -sd ' ' | grep -oE -- '-[a-z] --[a-z-]+' | tr ' ' '=')"
done
if [ "$("$berth" --help | wc -L)" -ge 80 ]; then
    echo "FAILED: berth --help: more than 80 columns"
    n_bad=$((n_bad + 1))
fi
# Numbers of tokens are bench's -p and -n, as llama-bench has them.
same "what letters mean" "-a=--all -b=--batch -c=--ctx -d=--device -e=--echo -f=--file -h=--help -m=--model -n=--gen -n=--predict -o=--out
    -p=--prompt -q=--quiet -r=--reps -s=--seed -t=--threads" "$letters"

# values and files
touch "$tmp/a.csv" "$tmp/b.gguf" "$tmp/c.txt" "$tmp/d.ggraph.gz" "$tmp/e.json" "$tmp/f.svg"
mkdir "$tmp/folder"
files() {
    local what=$1
    shift
    same "$what" "$1" "$(complete_words "$berth" "${@:2}" "$tmp/" | sed "s|$tmp/||g")"
}
rm -f "$tmp/out" "$tmp/err"
files "files of plan" "folder a.csv b.gguf d.ggraph.gz e.json" plan
files "files of verify" "folder a.csv e.json" verify
files "folders of client" "folder" client
files "files of gguf info" "folder b.gguf" gguf info
files "files of map --out" "folder f.svg" map --out
files "no files for --capacity" "" plan --capacity
files "no files for -t" "" plan -t
files "files behind a flag" "folder a.csv b.gguf d.ggraph.gz e.json" plan --json
same "beginning of an option" "--capacity" "$(complete_words "$berth" plan --cap)"
n=$((n + 1))
if [ "$(complete_words "$berth" ops --device CP)" != CPU ]; then # once, although its buffer type has the name too
    echo "FAILED: devices: $(complete_words "$berth" ops --device CP)"
    n_bad=$((n_bad + 1))
fi
same "templates" "llama3 llama4" "$(complete_words "$berth" chat --template llama | tr ' ' '\n' | grep '^llama[34]')"
same "ops" "MUL_MAT MUL_MAT_ID" "$(complete_words "$berth" ops MUL_MAT)"

# every type that completion offers is one
for type in $(complete_words "$berth" run --cache-type ""); do
    expect 0 "" run -n 1 --cache-type "$type" models/tales-q8_0.gguf
done
printf 'no model' > "$tmp/noise"
for type in $(complete_words "$berth" gguf quantize a b ""); do
    expect 3 "" gguf quantize "$tmp/noise" "$tmp/out.gguf" "$type"
done

# The man page has every environment variable that the sources ask for: by its name, by a function that takes the name, or from a
# list. A new function of that kind fails here until it is listed.
asked=$(find src -name '*.[ch]' -exec cat {} + | tr '\n' ' ' |
    grep -oE '(getenv|setenv|env_number|seconds_of|is_set|number_in)\( *"[A-Za-z_]+"' | sed 's/.*"\(.*\)"/\1/'
    grep -A1 'names\[\] = ' src/base/launcher.h | grep -oE '"[A-Z_]+"' | tr -d '"'
    grep -rhoE '"BERTH_[A-Z_]+"' src | tr -d '"')
same "environment variables of the man page" "$asked" \
    "$(sed -n '/^\.Sh ENVIRONMENT/,/^\.Sh EXIT/p' $page | sed -n 's/^\.It Ev //p' | sed 's/, Ev//g')"
same "functions that are given a variable's name" "src/base/launcher.h src/cuda/backend.c src/mpi/message_queue.c src/mpi/process.c src/sched/sched.c" \
    "$(grep -rlE 'getenv\([a-z]' src)"

if command -v mandoc > /dev/null; then
    n=$((n + 1))
    if ! mandoc -Tlint -W style $page > "$tmp/lint"; then
        echo "FAILED: the man page: $(head -n 3 "$tmp/lint")"
        n_bad=$((n_bad + 1))
    fi
fi

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
