#!/bin/bash
# SPDX-License-Identifier: MIT
# follow-reference.sh VERSION [BUILD_DIR]: reports the changes of another release of the reference. VERSION is a version of
# node-llama-cpp (npm view @node-llama-cpp/linux-arm64 versions). It is compared with the release that Berth follows, the default of
# fetch-reference.sh:
#
#   exports    functions of ggml's libraries that are new, removed, or of another size, which suggests another behaviour
#   imports    functions that the client's libraries start or stop calling, and those of them that Berth lacks
#   client     `berth client` on the new release
#   conformance, tests   both test suites with the new release; a failure does not end the script
#
# STEPS='exports imports' selects steps. Exit codes: 0 Berth lacks nothing and no test fails, 1 otherwise, 77 no such release.
set -u
cd "$(dirname "$0")/.." || exit 1
[ $# -ge 1 ] || { sed -n '3,13s/^# \{0,1\}//p' "tools/$(basename "$0")"; exit 2; }
version=$1
build=${2:-build}
steps=${STEPS:-exports imports client conformance tests}
new=$(tools/fetch-reference.sh "$version") || exit $?
old=$(tools/fetch-reference.sh) || exit $?
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n_bad=0

# libraries FOLDER: the libraries of a release. kind_of FILE: the name without the release: libllama.v0.5.0.so -> libllama.
libraries() {
    find "$1" -maxdepth 1 \( -name '*.so' -o -name '*.node' \) -printf '%f\n' | sort
}

kind_of() {
    sed -E 's/^(libggml|libllama)\.[a-z0-9.]+\.so$/\1/; s/\.(so|node)$//' <<<"$1"
}

# file_of FOLDER KIND: the library of that kind
file_of() {
    local file
    for file in $(libraries "$1"); do
        [ "$(kind_of "$file")" != "$2" ] || { echo "$1/$file"; return; }
    done
}

# The names of ggml's C functions.
is_ggml='^(ggml|gguf|quantize|dequantize)_'

exports() { # FILE: prints name and size of each function
    nm -DS -t d --defined-only "$1" 2>/dev/null | awk 'NF == 4 && $3 ~ /[TWDBR]/ { print $4, $2 }' | grep -E "$is_ggml" | sort
}

imports() { # FILE
    nm -D --undefined-only "$1" 2>/dev/null | awk '$1 == "U" { print $2 }' | grep -E "$is_ggml" | sort
}

# list WHAT FILE: prints the lines of FILE under a heading with their number
list() {
    [ ! -s "$2" ] || { echo "  $1 ($(wc -l <"$2")):"; sed 's/^/    /' "$2"; }
}

step_exports() {
    local kind a b
    echo "== functions of ggml's libraries"
    for kind in libggml-base libggml "$(kind_of "$(libraries "$new" | grep -m1 '^libggml-cpu-')")"; do
        a=$(file_of "$old" "$kind") b=$(file_of "$new" "$kind")
        [ -n "$a" ] && [ -n "$b" ] || { echo "  $kind: only in ${a:-$b}"; continue; }
        exports "$a" >"$work/a"
        exports "$b" >"$work/b"
        cut -d' ' -f1 "$work/a" >"$work/a.names"
        cut -d' ' -f1 "$work/b" >"$work/b.names"
        echo "$kind: $(wc -l <"$work/a.names") and $(wc -l <"$work/b.names") functions"
        comm -13 "$work/a.names" "$work/b.names" >"$work/new"
        comm -23 "$work/a.names" "$work/b.names" >"$work/gone"
        join "$work/a" "$work/b" | awk '$2 != $3 { printf "%s (%d bytes, was %d)\n", $1, $3, $2 }' >"$work/changed"
        list new "$work/new"
        list removed "$work/gone"
        list "of another size" "$work/changed"
        case $kind in libggml-cpu-*) continue ;; esac # other libraries do not call the kernels
        comm -23 "$work/new" "$work/berth" >"$work/lacking"
        list "new, and not in Berth" "$work/lacking"
        [ ! -s "$work/lacking" ] || n_bad=$((n_bad + 1))
    done
}

step_imports() {
    local file kind a
    echo "== functions that the client's libraries call"
    for file in $(libraries "$new"); do
        kind=$(kind_of "$file")
        a=$(file_of "$old" "$kind")
        case $kind in libggml-cpu-*) [ "$kind" = "$(kind_of "$(libraries "$new" | grep -m1 '^libggml-cpu-')")" ] || continue ;; esac
        imports "$new/$file" >"$work/b"
        : >"$work/a"
        [ -z "$a" ] || imports "$a" >"$work/a"
        echo "$file: $(wc -l <"$work/a") and $(wc -l <"$work/b")"
        comm -13 "$work/a" "$work/b" >"$work/new"
        comm -23 "$work/a" "$work/b" >"$work/gone"
        list "new" "$work/new"
        list "no longer called" "$work/gone"
        comm -23 "$work/b" "$work/berth" >"$work/lacking"
        list "called, and not in Berth" "$work/lacking"
        [ ! -s "$work/lacking" ] || n_bad=$((n_bad + 1))
    done
}

step_client() {
    echo "== berth client"
    "$build/bin/berth" client "$new" || n_bad=$((n_bad + 1))
}

step_conformance() {
    echo "== conformance"
    "$build/tests/conformance/conformance" --reference "$new" --sets 100 --graphs 40 || n_bad=$((n_bad + 1))
}

step_tests() {
    echo "== client tests"
    REPORT=1 RELEASES="$version" CYCLES=${CYCLES:-200} tests/client/client.sh "$build" || n_bad=$((n_bad + 1))
}

for file in libggml-base libggml libggml-cpu; do
    [ -f "$build/lib/$file.so" ] || { echo "follow-reference: $build/lib/$file.so does not exist: run make build-all first" >&2; exit 1; }
    nm -D --defined-only "$build/lib/$file.so" | awk '{ print $3 }'
done | sort -u >"$work/berth"
[ -s "$work/berth" ] || exit 1
echo "from $old"
echo "to   $new"
for step in $steps; do
    "step_$step"
done
echo "follow-reference: $([ $n_bad = 0 ] && echo "Berth lacks nothing of $version" || echo "$n_bad parts report differences")"
[ $n_bad = 0 ]
