#!/bin/sh
# SPDX-License-Identifier: MIT
# new_name.sh BERTH: trains an adapter of rank 8 that teaches a q8_0 model a name. At least 18 of 20 tales from unseen
# beginnings must use the name, and the loss on tales without it must rise by less than 5%. Run it in the root of the sources.
berth=$1
tmp=$(mktemp -d) || exit 3
trap 'rm -rf "$tmp"' EXIT
model=tests/data/tales-3m-q8_0.gguf
python3 tests/train/new_name.py "$tmp" || { echo "SKIPPED: python3, which generates the tales, is missing"; exit 77; }
"$berth" train $model --lora 8 --data "$tmp/new.txt" --val "$tmp/old.txt" --split line -b 4 -c 128 --steps 100 --lr 3e-3 \
    -o "$tmp/lora.gguf" --json > "$tmp/json" || exit 1
n=0
while read -r prompt; do
    case $("$berth" run $model --lora "$tmp/lora.gguf" --temp 0 -n 40 -p "$prompt" < /dev/null 2> "$tmp/err") in
        *Bettina*) n=$((n + 1)) ;;
    esac
done < "$tmp/prompts.txt"
sed 's/.*"val": //' "$tmp/json" | grep -o '"loss": [0-9.]*' | cut -d' ' -f2 | paste -sd' ' | awk -v n="$n" '
    { printf "%d of 20 tales use the name; the loss on other tales changes from %.4f to %.4f, %+.1f%%\n", n, $1, $2, 100 * ($2 / $1 - 1)
      exit !(n >= 18 && $1 > 0 && $2 < 1.05 * $1) }'
