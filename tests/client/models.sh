#!/bin/sh
# The model maker writes every architecture in every type asked for, and each file is sound: models.sh MAKER BERTH
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
        # The type asked for is there.
        "$berth" gguf info "$file" | grep -q "^  $type " || { echo "FAILED: $arch holds no $type"; status=1; }
    done
done
# A made model is the same each time, another seed gives another.
"$maker" llama tiny f16 "$work/1" && "$maker" llama tiny f16 "$work/2" && "$maker" llama tiny f16 "$work/3" 7 || status=1
cmp -s "$work/1" "$work/2" || { echo "FAILED: not the same twice"; status=1; }
cmp -s "$work/1" "$work/3" && { echo "FAILED: the seed changes nothing"; status=1; }
for wrong in "nothing tiny f16" "llama nothing f16" "llama tiny nothing"; do
    # shellcheck disable=SC2086
    "$maker" $wrong "$work/4" 2>/dev/null && { echo "FAILED: made $wrong"; status=1; }
done
exit $status
