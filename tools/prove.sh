#!/bin/sh
# prove.sh [--changed]: proves the contracts of tools/prove/parts.txt with Frama-C's WP plugin, and prints the number of goals per
# file. The exit code is 1 if a goal is not proved. Nothing is cached. --changed does nothing if the files are those of the last
# complete proof, whose hash is in tools/prove/proved.sha256.
# Then Frama-C's Eva analyses the files of tools/prove/eva/parts.txt (tools/prove/eva/eva.sh).
# prove.sh --part FILE [--function NAME] [--overlay DIR]: proves one row, or one function of it. A file that exists below DIR replaces
# the file of the same path here (tools/mutants.py).
# JOBS is the number of provers that run at the same time, SECONDS_PER_GOAL the time limit of one prover for one goal.
#
# A goal is proved if Frama-C's simplifier, cvc4 or z3 proves it. The contracts of GCC's builtins are assumed (prove.h).
# bit_vectors.py proves the contracts of functions that work on bits, for 64-bit words, with z3.
set -eu
cd "$(dirname "$0")/.."
only="" function="" overlay="" changed=""
while [ $# -gt 0 ]; do
    case $1 in
        --changed) changed=1; shift ;;
        --part) only=$2; shift 2 ;;
        --function) function=$2; shift 2 ;;
        --overlay) overlay=$2; shift 2 ;;
        *) echo "prove.sh: unknown argument '$1'" >&2; exit 2 ;;
    esac
done

# The hash of all files that the proofs depend on: the proven sources, the headers that they include, and the tools.
inputs_hash() {
    {
        sed 's/ .*//; s/^#$//' tools/prove/parts.txt
        sed -n 's/^#include "\(src.*\.c\)"$/\1/p' tools/prove/eva/*.c
    } | grep . | while read -r file; do
        ${CC:-cc} -MM -Isrc -Iinclude "$file" | tr -d '\\' | tr ' ' '\n' | grep -E '^(src|include)/'
    done | LC_ALL=C sort -u | xargs cat tools/prove.sh tools/prove/*.h tools/prove/*.py tools/prove/*.txt tools/prove/eva/* | sha256sum | cut -d ' ' -f 1
}
hash=$(inputs_hash)
if [ -n "$changed" ] && [ "$hash" = "$(cat tools/prove/proved.sha256 2>/dev/null)" ]; then
    echo "prove: unchanged since the last proof"
    exit 0
fi
BERTH_SETUP=prove tools/setup.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOME="$work" # why3 keeps its list of provers there
why3 config detect >"$work/detect" 2>&1 || { cat "$work/detect"; exit 1; }

# prove FILE FUNCTIONS INLINED: proves the functions (separated by commas) of the file. Calls of INLINED are inlined first.
prove() {
    log="$work/log"
    code=$1
    [ -z "$overlay" ] || [ ! -e "$overlay/$1" ] || code=$overlay/$1
    # shellcheck disable=SC2086
    frama-c -machdep gcc_x86_64 -cpp-extra-args="${overlay:+-I$overlay/src} -Isrc -Iinclude -include tools/prove/prove.h" \
        ${3:+-inline-calls $3} -wp -wp-rte -wp-prover cvc4,z3 -wp-timeout "${SECONDS_PER_GOAL:-60}" \
        -wp-par "${JOBS:-2}" -wp-cache none -wp-fct "$2" "$code" >"$log" 2>&1 || { cat "$log"; return 1; }
    counts=$(sed -n 's/.*Proved goals: *\([0-9]*\) *\/ *\([0-9]*\).*/\1 \2/p' "$log")
    proved=${counts% *} total=${counts#* }
    printf '%-32s %5s of %5s goals, %s functions\n' "$1" "${proved:-0}" "${total:-0}" "$(echo "$2" | tr ',' '\n' | wc -l)"
    [ -n "$counts" ] && [ "$proved" = "$total" ] && [ "$total" -gt 0 ] && return 0
    grep -A2 -E 'Goal .*(Timeout|Unknown|Failed)|\[(Failed|Timeout|Unknown)\]' "$log" >&2 || true
    return 1
}

failed=0
while read -r file functions inlined; do
    case $file in "" | "#"*) continue ;; esac
    [ -z "$only" ] || [ "$only" = "$file" ] || continue
    prove "$file" "${function:-$functions}" "$inlined" || failed=1
done <tools/prove/parts.txt
if [ -z "$only" ]; then
    python3 tools/prove/bit_vectors.py || failed=1
    tools/prove/eva/eva.sh || failed=1
fi
# The commit that changes a proven file also contains this hash, so that CI need not repeat the proof.
if [ -z "$only" ] && [ "$failed" = 0 ]; then
    echo "$hash" >tools/prove/proved.sha256
fi
exit $failed
