#!/bin/sh
# models.sh MAKER BERTH: checks that the model maker writes every architecture in each type, and that each file is valid.
set -u
maker=$1
berth=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
for arch in $("$maker" list); do
    for type in f16 q8_0 q4_K; do
        file=$work/$arch.gguf
        if ! "$maker" "$arch" tiny $type "$file" || ! "$berth" gguf check "$file" >"$work/log" 2>&1; then
            echo "FAILED: $arch $type"
            cat "$work/log"
            status=1
        fi
        # The file contains the requested type.
        "$berth" gguf info "$file" | grep -q "^  $type " || { echo "FAILED: $arch contains no $type"; status=1; }
    done
done
# The same seed gives the same model, another seed gives another model.
"$maker" llama tiny f16 "$work/1" && "$maker" llama tiny f16 "$work/2" && "$maker" llama tiny f16 "$work/3" 7 || status=1
cmp -s "$work/1" "$work/2" || { echo "FAILED: two runs with the same seed differ"; status=1; }
cmp -s "$work/1" "$work/3" && { echo "FAILED: another seed gives the same model"; status=1; }
for wrong in "nothing tiny f16" "llama nothing f16" "llama tiny nothing"; do
    # shellcheck disable=SC2086
    "$maker" $wrong "$work/4" 2>/dev/null && { echo "FAILED: accepted $wrong"; status=1; }
done
exit $status
