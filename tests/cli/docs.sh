#!/bin/bash
# SPDX-License-Identifier: MIT
# docs.sh BERTH: the documentation of the program is correct: man page and completion have exactly the commands and options of
# --help, help fits into 80 columns and has examples, each letter has one meaning, and completion works. Every case prints one line
# if it fails. Runs in the root of the sources.

. "$(dirname "$0")/expect.sh"
page=$(dirname "$berth")/../berth.1
. tools/completion/berth.bash

# same WHAT EXPECTED FOUND: compares two lists of words
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

# complete_words WORD...: prints the completions of the last word, which may be ""
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

# Prints the options of a subsection of the man page: "Fl c , Fl Fl ctx Ar N"
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
# In bench, -p and -n are numbers of tokens, as in llama-bench.
same "what letters mean" "-a=--all -b=--batch -c=--ctx -d=--device -e=--echo -f=--file -h=--help -m=--model -n=--gen -n=--predict -o=--out
    -p=--prompt -q=--quiet -r=--reps -s=--seed -t=--threads" "$letters"

# ---- completion of values and files ----

touch "$tmp/a.csv" "$tmp/b.gguf" "$tmp/c.txt" "$tmp/d.ggraph.gz" "$tmp/e.json" "$tmp/f.svg"
mkdir "$tmp/folder"
files() {
    local what=$1
    shift
    same "$what" "$1" "$(complete_words "$berth" "${@:2}" "$tmp/" | sed "s|$tmp/||g")"
}
rm -f "$tmp/out" "$tmp/err"
files "files of plan" "folder a.csv b.gguf d.ggraph.gz e.json" plan
files "files of verify" "folder a.csv d.ggraph.gz e.json" verify
files "folders of client" "folder" client
files "files of gguf info" "folder b.gguf" gguf info
files "files of map --out" "folder f.svg" map --out
files "no files for --capacity" "" plan --capacity
files "no files for -t" "" plan -t
files "files after a flag" "folder a.csv b.gguf d.ggraph.gz e.json" plan --json
same "beginning of an option" "--capacity" "$(complete_words "$berth" plan --cap)"
n=$((n + 1))
if [ "$(complete_words "$berth" ops --device CP)" != CPU ]; then # only once, although its buffer type has the same name
    echo "FAILED: devices: $(complete_words "$berth" ops --device CP)"
    n_bad=$((n_bad + 1))
fi
same "templates" "llama3 llama4" "$(complete_words "$berth" chat --template llama | tr ' ' '\n' | grep '^llama[34]')"
same "ops" "MUL_MAT MUL_MAT_ID" "$(complete_words "$berth" ops MUL_MAT)"

# every type that completion offers is accepted
for type in $(complete_words "$berth" run --cache-type ""); do
    expect 0 "" run -n 1 --cache-type "$type" tests/data/tales-3m-q8_0.gguf
done
printf 'no model' > "$tmp/noise"
for type in $(complete_words "$berth" gguf quantize a b ""); do
    expect 3 "" gguf quantize "$tmp/noise" "$tmp/out.gguf" "$type"
done

# The man page has every environment variable that the sources read: by its name, by a function that takes the name, or from a list.
# A new function of that kind fails here until it is listed.
asked=$(find src -name '*.[ch]' -exec cat {} + | tr '\n' ' ' |
    grep -oE '(getenv|setenv|env_number|seconds_of|is_set|number_in)\( *"[A-Za-z_]+"' | sed 's/.*"\(.*\)"/\1/'
    grep -A1 'names\[\] = ' src/base/launcher.h | grep -oE '"[A-Z_]+"' | tr -d '"'
    grep -rhoE '"BERTH_[A-Z_]+"' src | tr -d '"')
same "environment variables of the man page" "$asked" \
    "$(sed -n '/^\.Sh ENVIRONMENT/,/^\.Sh EXIT/p' $page | sed -n 's/^\.It Ev //p' | sed 's/, Ev//g')"
same "functions that are given a variable's name" "src/base/launcher.h src/base/windows/memory.c src/gpu/device.c src/mpi/message_queue.c src/mpi/process.c src/sched/sched.c" \
    "$(grep -rlE 'getenv\([a-z]' src)"

if command -v mandoc > /dev/null; then
    n=$((n + 1))
    if ! mandoc -Tlint -W style $page > "$tmp/lint"; then
        echo "FAILED: the man page: $(head -n 3 "$tmp/lint")"
        n_bad=$((n_bad + 1))
    fi
fi

# ---- links ----

failed() {
    echo "FAILED: $*"
    n_bad=$((n_bad + 1))
}

# headings PAGE: the anchors of a page's headings, as web sites make them
headings() {
    awk '/^ *```/ { code = !code } !code && /^#+ / { sub(/^#+ /, ""); print tolower($0) }' "$1" | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

pages=$(find README.md CONTRIBUTING.md SECURITY.md docs -name '*.md')
for each in $pages; do
    for link in $(grep -oE '\]\([^) ]+\)' "$each" | sed 's/^](//; s/)$//' | grep -v '^http' | sort -u); do
        n=$((n + 1))
        to=${link%%#*}
        to=$([ -n "$to" ] && echo "$(dirname "$each")/$to" || echo "$each")
        if [ ! -e "$to" ]; then
            failed "$each: a link to '$link', which does not exist"
        elif [ "$link" != "${link#*#}" ] && ! headings "$to" | grep -qxF -- "${link#*#}"; then
            failed "$each: a link to '$link': $to has no such heading"
        fi
    done
done

# ---- examples ----
# Every fenced block of a page names its language. Blocks of these languages are tested, in the order of the page and in a folder of the
# page's own, which has links to the sources, to the build and to two small inputs, model.gguf and text.txt:
#   sh       is run and must end with exit code 0
#   console  each command after "$ " is run; the other lines must occur in the output, where numbers may differ and "..." is any text
#   c        is compiled; a complete program also runs
# A comment in the line before a block changes that:
#   <!-- not run: REASON -->    the block is not tested
#   <!-- file: NAME -->         the block becomes a file of the folder, before the first block of the page runs
#   <!-- body of: FUNCTION -->  the block is the body of a C function, which is compiled

root=$PWD
build=$(cd "$(dirname "$berth")/.." && pwd)

# blocks PAGE FOLDER: writes each tested block of a page to FOLDER/NUMBER.LANGUAGE and each file to FOLDER/run/NAME, and prints a line for
# each fault of the page
blocks() {
    awk -v folder="$2" -v page="$1" '
        /^ *```/ && !on {
            on = 1; indent = match($0, /`/) - 1; language = substr($0, indent + 4); out = ""; end = ""
            if (language == "") print page ":" FNR ": a block without a language"
            if (note ~ /^<!-- file: /) { out = folder "/run/" substr(note, 12); sub(/ -->$/, "", out) }
            else if (note ~ /^<!-- not run: ..* -->$/) { }
            else if (language == "sh" || language == "console" || language == "c") out = sprintf("%s/%03d.%s", folder, FNR, language)
            if (note ~ /^<!-- body of: /) {
                sub(/^<!-- body of: /, "", note); sub(/ -->$/, "", note); end = "}"
                print "#include \"berth.h\"\n#include \"berth-model.h\"\n#include \"ggml-opt.h\"\n#include <stdio.h>\n" note ";\n" note " {" > out
            }
            next
        }
        /^ *```/ { on = 0; if (out != "") { printf "%s", end > out; close(out) } next }
        on && out != "" { print substr($0, indent + 1) > out }
        !on { note = $0; sub(/^ */, "", note) }
        !on && /^ *(berth|mpirun|make|build\/bin\/[a-z-]+) [a-zA-Z-]+ .*  +#/ { print page ":" FNR ": a command outside of a fenced block" }
    ' "$1"
}

# console_run FILE: runs the commands of a block of the language console
console_run() {
    awk '/^\$ / || more { sub(/^\$ /, ""); print; more = /\\$/ }' "$1" > "$1.sh"
    bash "$1.sh" > "$1.out" 2>&1 < /dev/null
    mask='s/[0-9][0-9,.]*/N/g; s/  */ /g; s/ $//'
    sed "$mask" "$1.out" > "$1.masked"
    awk '/^\$ / || more { more = /\\$/; next } /\.\.\./ { next } { print }' "$1" | sed "$mask" | grep -vxFf "$1.masked" > "$1.missing"
    [ ! -s "$1.missing" ] || { echo "the output has no line '$(head -n 1 "$1.missing")' (N is any number)"; return 1; }
}

# c_run FILE: compiles a block of the language c, and runs it if it is a program
c_run() {
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror -Wno-unused -Wno-unused-parameter -I"$root/include" -c "$1" -o "$1.o" || return
    if grep -q '^int main' "$1" && [ -z "${BERTH_SANITIZE:-}" ] && [ -e "$build/lib/libggml.so" ]; then
        ${CC:-cc} "$1.o" -L"$build/lib" -Wl,-rpath,"$build/lib" -lggml -lggml-cpu -lggml-base -lm -o "$1.exe" && "$1.exe"
    fi
}

for each in $pages; do
    folder=$tmp/page
    rm -rf "$folder"
    mkdir -p "$folder/run"
    ln -s "$root"/* "$folder/run/"
    rm -f "$folder/run/build"
    ln -s "$build" "$folder/run/build"
    ln -s "$root/tests/data/tales-3m-q8_0.gguf" "$folder/run/model.gguf"
    head -c 4000 README.md > "$folder/run/text.txt"
    faults=$(blocks "$each" "$folder")
    [ -z "$faults" ] || failed "$faults"
    for block in "$folder"/*.*; do
        [ -e "$block" ] || continue
        n=$((n + 1))
        line=$(basename "$block")
        at=$each:$((10#${line%%.*}))
        case $block in
            *.sh) (cd "$folder/run" && PATH=$build/bin:$PATH bash -e -o pipefail "$block") > "$block.out" 2>&1 < /dev/null ;;
            *.console) (cd "$folder/run" && PATH=$build/bin:$PATH && console_run "$block") > "$block.log" 2>&1 ;;
            *.c) c_run "$block" > "$block.log" 2>&1 ;;
            *) continue ;;
        esac || failed "$at: the example fails: $(tail -n 3 "$block.out" "$block.log" 2> /dev/null | grep -v '^==>' | paste -sd ' ')"
    done
done

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
