#!/bin/sh
# SPDX-License-Identifier: MIT
# train.sh BERTH: `berth train`, adapters and merging, on a tiny model that the script creates. Runs in the root of the sources.

. "$(dirname "$0")/expect.sh"
tokenizer=tests/data/tales-3m-q8_0.gguf

failed() {
    echo "FAILED: $*"
    n_bad=$((n_bad + 1))
}

cat > "$tmp/tiny.conf" << 'END'
# a minimal model
block_count = 1
embedding_length = 32
feed_forward_length = 64
attention.head_count = 4
attention.head_count_kv = 2
context_length = 32
END
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    echo "Once upon a time there was a small boat number $i. It lay in the harbour and waited for the tide."
done > "$tmp/text"
cp "$tmp/text" "$tmp/val"
small="-b 2 -c 16 -t 2 --split line --data $tmp/text"

command=train
expect 0 "Usage: berth train" --help
expect 2 "missing option: --data TEXT" "$tokenizer" -o "$tmp/x"
expect 2 "missing option: -o OUT" "$tokenizer" --data "$tmp/text"
expect 2 "--schedule 'up' is not one of: cosine linear constant" --schedule up
expect 2 "--optimizer 'adam' is not one of: adamw sgd" --optimizer adam
expect 2 "--lr '-1' is not a number from 0" --lr -1
expect 2 "--lora '0' is not an integer from 1" --lora 0
expect 2 "--epochs and --steps cannot be combined" --data a -o b --epochs 1 --steps 1
expect 2 "cannot be combined with --lora or --resume" --new a --lora 1 --data a -o b
expect 3 "has type q8_0, but only f32, f16 and bf16 weights can be trained" "$tokenizer" $small --steps 1 -o "$tmp/x"
expect 3 "this file is also an input" "$tokenizer" $small --lora 2 --steps 1 -o "$tokenizer"
expect 3 "No such file" "$tokenizer" --lora 2 --data "$tmp/none" -o "$tmp/x"
expect 3 "give more text or a smaller --ctx" "$tokenizer" --lora 2 --data "$tmp/tiny.conf" -c 4096 -o "$tmp/x"
expect 3 "not a training checkpoint" "$tokenizer" $small --lora 2 -o "$tmp/x" --resume "$tokenizer"
[ ! -e "$tmp/x" ] || failed "a run that fails leaves a file"

# wrong descriptions of a new model
echo "block_count 3" > "$tmp/wrong.conf"
expect 3 "line 1: 'block_count 3' contains no '='" "$tokenizer" --new "$tmp/wrong.conf" $small -o "$tmp/x"
echo "block_count = three" > "$tmp/wrong.conf"
expect 3 "line 1: 'three' is not a number" "$tokenizer" --new "$tmp/wrong.conf" $small -o "$tmp/x"
echo "block_count = 3" > "$tmp/wrong.conf"
expect 3 "key 'llama.embedding_length' is missing" "$tokenizer" --new "$tmp/wrong.conf" $small -o "$tmp/x"

# A new model is trained, is valid, and is the same each time.
expect 0 "" "$tokenizer" --new "$tmp/tiny.conf" $small --steps 30 --val "$tmp/val" -o "$tmp/new" --plot "$tmp/new.svg" --json
cp "$tmp/out" "$tmp/full.json"
awk 'NR == 1 { n = split(substr($0, index($0, "\"losses\": [") + 11), x, /[],]/); exit !(x[30] < 0.9 * x[1]) }' "$tmp/out" ||
    failed "no lower loss: $(cat "$tmp/out")"
grep -q '^<svg .*' "$tmp/new.svg" && grep -q '^</svg>' "$tmp/new.svg" || failed "no picture"
grep -q 'circle class="v"' "$tmp/new.svg" || failed "no point for --val"
expect 0 "" "$tokenizer" --new "$tmp/tiny.conf" $small --steps 30 --val "$tmp/val" -o "$tmp/again"
cmp -s "$tmp/new" "$tmp/again" || failed "two runs differ"

# A memory limit: some ops are recomputed, and the result has the same bits.
whole=$(sed 's/.*"bytes_trained": \([0-9]*\), "bytes_compute": \([0-9]*\).*/\1 \2/' "$tmp/full.json" | awk '{ print int($1 + 0.5 * $2) }')
expect 0 "" "$tokenizer" --new "$tmp/tiny.conf" $small --steps 30 --memory $whole -o "$tmp/again" --json
cmp -s "$tmp/new" "$tmp/again" || failed "another model comes out within $whole bytes"
grep -q '"again": [1-9]' "$tmp/out" || failed "nothing ran again: $(cat "$tmp/out")"
expect 3 "1000 bytes are too few: trained tensors and optimiser need " "$tokenizer" --new "$tmp/tiny.conf" $small --steps 1 --memory 1000 -o "$tmp/x"
expect 2 "--memory 'x' is not a number of bytes" --memory x
command="gguf check"
expect 0 "valid" "$tmp/new"
command=train

# f16 stays f16; resumed runs give the same bits as uninterrupted ones.
"$berth" gguf quantize "$tmp/new" "$tmp/half" f16 > /dev/null
for kind in "$tmp/half" "$tokenizer --lora 2" "$tmp/half --optimizer sgd"; do
    # shellcheck disable=SC2086
    expect 0 "6 of 6 steps" $kind $small --steps 6 -o "$tmp/whole"
    # shellcheck disable=SC2086
    expect 0 "4 of 4 steps" $kind $small --steps 4 --save-every 2 -o "$tmp/part" --schedule constant --warmup 2
    # shellcheck disable=SC2086
    expect 0 "6 of 6 steps" $kind $small --steps 6 --save-every 4 --schedule constant --warmup 2 -o "$tmp/part"
    cp "$tmp/part" "$tmp/unbroken"
    # shellcheck disable=SC2086
    expect 0 "4 of 4 steps" $kind $small --steps 4 --save-every 4 --schedule constant --warmup 2 -o "$tmp/part"
    # shellcheck disable=SC2086
    expect 0 "6 of 6 steps" ${kind%% *} --split line --data "$tmp/text" -t 2 --steps 6 --resume "$tmp/part.checkpoint" -o "$tmp/part"
    cmp -s "$tmp/part" "$tmp/unbroken" || failed "$kind: a resumed run is another"
    expect 3 "which cannot change" ${kind%% *} --data "$tmp/text" --resume "$tmp/part.checkpoint" -o "$tmp/part" -b 3
done
# A resumed run reports only its own validation losses: none without --val, and those of the given text.
rm -f "$tmp"/part*
expect 0 "on $tmp/val " "$tmp/new" $small --steps 2 --save-every 2 --val "$tmp/val" -o "$tmp/part"
expect 0 "3 of 3 steps" "$tmp/new" $small --steps 3 --resume "$tmp/part.checkpoint" -o "$tmp/part"
! grep -q ", on " "$tmp/out" || failed "resumed without --val: $(cat "$tmp/out")"
head -c 2000 README.md > "$tmp/other"
expect 0 "" "$tmp/new" $small --steps 2 --val "$tmp/other" --resume "$tmp/part.checkpoint" -o "$tmp/part"
now=$(sed 's/.*, on [^ ]* \([0-9.]*\) to .*/\1/' "$tmp/out")
expect 0 "" "$tmp/part" --steps 0 --val "$tmp/other" -c 16 -t 2 --split line
then=$(sed 's/.*, on [^ ]* \([0-9.]*\) to .*/\1/' "$tmp/out")
[ -n "$now" ] && [ "$now" = "$then" ] || failed "resumed with another --val: $now, not $then"
expect 0 "" "$tmp/half" $small --steps 2 --save-every 2 -o "$tmp/part"

# Binary data is used with a warning.
head -c 20000 /dev/urandom > "$tmp/noise"
expect 0 "warning: $tmp/noise: looks like binary data, not UTF-8 text" "$tmp/half" -b 2 -c 16 --steps 1 --data "$tmp/noise" -o "$tmp/x"
mkdir "$tmp/mixed"
cp "$tmp/noise" "$tmp/mixed/a"
cp "$tmp/noise" "$tmp/mixed/b"
cp "$tmp/text" "$tmp/mixed/c"
expect 0 "mixed/a and 1 other files look like binary data" "$tmp/half" -b 2 -c 16 --steps 1 --data "$tmp/mixed" -o "$tmp/x"
printf 'caf\351 au lait, s\351same, %s' "$(cat README.md)" > "$tmp/latin" # an older encoding counts as text
expect 0 "" "$tmp/half" -b 2 -c 16 --steps 1 --data "$tmp/latin" -o "$tmp/x"
! grep -q warning "$tmp/err" || failed "text in Latin-1: $(cat "$tmp/err")"

# The progress bar leaves space for the remaining time on a terminal of 80 columns.
if command -v script > /dev/null; then
    n=$((n + 1))
    script -qec "timeout -s INT 3 '$berth' train '$tmp/half' $small --steps 100000000 -o '$tmp/long'" /dev/null < /dev/null > "$tmp/out" 2>&1
    tr '\r' '\n' < "$tmp/out" | sed -n 's/\o33\[K.*//; /^training /p' > "$tmp/lines"
    [ -s "$tmp/lines" ] && [ "$(wc -L < "$tmp/lines")" -lt 80 ] && ! grep -qv ":[0-9][0-9] left, loss [0-9.]*, step [0-9]* of 100000000, " "$tmp/lines" ||
        failed "progress on 80 columns: $(head -n 2 "$tmp/lines")"
fi

expect 3 "another text" "$tmp/half" --data "$tmp/tiny.conf" --resume "$tmp/part.checkpoint" -o "$tmp/x"
"$berth" gguf info "$tmp/part" | grep -q '^  f16 ' || failed "weights are no f16 any more"

# Ctrl-C saves a checkpoint.
"$berth" train "$tmp/half" $small --steps 100000000 --save-every 1 -o "$tmp/stopped" > "$tmp/out" 2> "$tmp/err" &
pid=$!
for i in $(seq 600); do # until a step is done
    [ ! -e "$tmp/stopped.checkpoint" ] || break
    sleep 0.1
done
kill -INT $pid
wait $pid
[ $? -eq 130 ] || failed "Ctrl-C: no exit code 130: $(cat "$tmp/err")"
grep -q "stopped; --resume $tmp/stopped.checkpoint" "$tmp/err" || failed "Ctrl-C: $(cat "$tmp/err")"
"$berth" gguf check "$tmp/stopped" "$tmp/stopped.checkpoint" > /dev/null || failed "Ctrl-C: the saved file is invalid"

# A learning rate that is far too high stops the run before the weights change.
expect 3 "is not a finite number; the first tensor with such a value is '" "$tmp/half" $small --optimizer sgd --clip 0 \
    --lr 1e30 --schedule constant --warmup 0 --steps 20 --save-every 1 -o "$tmp/lost"
grep -q "The last checkpoint is that of step" "$tmp/err" || failed "no word of the checkpoint: $(cat "$tmp/err")"
[ ! -e "$tmp/lost" ] || failed "a lost run leaves a model"

# an adapter, applied to a model and merged into it
expect 0 "" "$tmp/new" $small --lora 2 --steps 20 --lr 0.02 -o "$tmp/lora"
command=run
expect 0 "" "$tmp/new" --lora "$tmp/lora" --temp 0 -n 12 -p "Once upon"
cp "$tmp/out" "$tmp/separate"
expect 0 "" "$tmp/new" --lora "$tmp/lora:0" --temp 0 -n 12 -p "Once upon"
cp "$tmp/out" "$tmp/without"
expect 0 "" "$tmp/new" --temp 0 -n 12 -p "Once upon"
cmp -s "$tmp/out" "$tmp/without" || failed "an adapter of no strength says something else"
command="gguf merge-lora"
expect 2 "missing option: --out OUT" "$tmp/new" "$tmp/lora"
expect 3 "not an adapter" "$tmp/new" "$tmp/new" -o "$tmp/merged"
expect 0 "7 of 11 tensors changed" "$tmp/new" "$tmp/lora" -o "$tmp/merged"
command=run
expect 0 "" "$tmp/merged" --temp 0 -n 12 -p "Once upon"
cmp -s "$tmp/out" "$tmp/separate" || failed "the merged model generates another text: $(cat "$tmp/out"), not $(cat "$tmp/separate")"
expect 3 "No such file" "$tmp/new" --lora "$tmp/none"
expect 3 "not an adapter" "$tmp/new" --lora "$tmp/new"
expect 3 "$tmp/lora is an adapter, not a model; run its base model with 'berth run MODEL --lora $tmp/lora'" "$tmp/lora"

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
