#!/bin/bash
# SPDX-License-Identifier: MIT
# outputs.sh BERTH: no command overwrites a file that it reads, under any name: exit code 3, a message, and unchanged inputs. A
# prompt cache, a resumed checkpoint and a loaded conversation may be read and replaced. Runs in the root of the sources.

. "$(dirname "$0")/expect.sh"

model=tests/data/tales-3m-q8_0.gguf
in=$tmp/in
mkdir "$in"

failed() {
    echo "FAILED: berth $1"
    n_bad=$((n_bad + 1))
}

cp $model "$in/model.gguf"
cp README.md "$in/text"
head -n 40 README.md > "$in/val"
mkdir "$in/texts"
cp README.md "$in/texts/a"
echo 'root ::= "a" | "b"' > "$in/grammar"
echo '{"type": "boolean"}' > "$in/schema.json"
cp tests/data/plan/small.csv "$in/small.csv"
cp tests/fuzz/corpus/ggraph/plain "$in/plain.ggraph"
"$berth" gguf split --max-tensors 20 $model "$in/part" > /dev/null
"$berth" gguf quantize $model "$in/whole.gguf" f32 > /dev/null
"$berth" imatrix -c 8 --chunks 1 -o "$in/imatrix.gguf" $model README.md > /dev/null
"$berth" train --lora 1 --steps 1 --save-every 1 --data README.md -c 8 -b 1 -o "$in/lora.gguf" $model > /dev/null 2>&1
cat > "$in/config" <<END
general.architecture=llama
END
cp -r "$in" "$tmp/before"

# Other names of the same files.
ln "$in/model.gguf" "$tmp/hard.json"
ln -s in/text "$tmp/soft"
ln -s in/part-00002-of-00002.gguf "$tmp/part2.json"

# refused OUTPUT ARGS...: the output is one of the inputs
refused() {
    local name=$1
    shift
    expect 3 "$name: this file is also an input: choose another name" "$@"
    diff -r "$tmp/before" "$in" > "$tmp/diff" || {
        failed "$*: an input has changed: $(head -n 3 "$tmp/diff")"
        rm -rf "$in"
        cp -r "$tmp/before" "$in"
    }
}

tiny="-c 8 -b 1 --lora 1 --steps 1"
# shellcheck disable=SC2086
{
    refused text train $tiny --data "$in/text" -o "$in/text" $model
    refused text train $tiny --data "$in/text" --plot "$in/text" -o "$tmp/out.gguf" $model
    refused soft train $tiny --data "$in/text" -o "$tmp/soft" $model
    refused val train $tiny --data "$in/text" --val "$in/val" -o "$in/val" $model
    refused val train $tiny --data "$in/text" --val "$in/val" -o "$tmp/out.gguf" --plot "$in/val" $model
    refused texts/a train $tiny --data "$in/texts" -o "$in/texts/a" $model
    refused model.gguf train $tiny --data "$in/text" -o "$tmp/out.gguf" --plot "$in/model.gguf" "$in/model.gguf"
    refused lora.gguf.checkpoint train $tiny --data "$in/text" --resume "$in/lora.gguf.checkpoint" -o "$in/lora.gguf.checkpoint" $model
    ln -s "$in/text" "$tmp/linked.gguf.checkpoint"
    refused linked.gguf.checkpoint train $tiny --data "$in/text" -o "$tmp/linked.gguf" $model
    refused config train --new "$in/config" --data "$in/text" --steps 1 -o "$in/config" $model
    refused text train --new "$in/config" --data "$in/text" --steps 1 -o "$in/text" $model
}
refused text run -n 1 -f "$in/text" --trace "$in/text" -c 4096 $model
refused text run -n 1 -f "$in/text" --map "$in/text" -c 4096 $model
refused text run -n 1 -f "$in/text" --prompt-cache "$in/text" -c 4096 $model
refused grammar run -n 1 --grammar "$in/grammar" --trace "$in/grammar" $model
refused schema.json run -n 1 --json-schema "$in/schema.json" --map "$in/schema.json" $model
refused lora.gguf run -n 1 --lora "$in/lora.gguf" --trace "$in/lora.gguf" $model
refused lora.gguf run -n 1 --lora "$in/lora.gguf:0.5" --trace "$in/lora.gguf" $model
refused hard.json run -n 1 --map "$tmp/hard.json" "$in/model.gguf"
refused part2.json run -n 1 --map "$tmp/part2.json" "$in/part-00001-of-00002.gguf"
refused part2.json run -n 1 --trace "$tmp/part2.json" -m "$in/part-00001-of-00002.gguf"
refused part-00002-of-00002.gguf gguf merge "$in/part-00001-of-00002.gguf" -o "$in/part-00002-of-00002.gguf"
refused part-00001-of-00002.gguf gguf merge "$in/part-00001-of-00002.gguf" -o "$in/part-00001-of-00002.gguf"
refused lora.gguf gguf merge-lora "$in/whole.gguf" "$in/lora.gguf:0.5" -o "$in/lora.gguf"
refused whole.gguf gguf merge-lora "$in/whole.gguf" "$in/lora.gguf" -o "$in/whole.gguf"
refused part-00002-of-00002.gguf gguf merge-lora "$in/part-00001-of-00002.gguf" "$in/lora.gguf" -o "$in/part-00002-of-00002.gguf"
refused imatrix.gguf gguf quantize "$in/whole.gguf" "$in/imatrix.gguf" --imatrix "$in/imatrix.gguf" q4_0
refused whole.gguf gguf quantize "$in/whole.gguf" -o "$in/whole.gguf" q4_0
refused whole.gguf gguf set "$in/whole.gguf" general.name=x -o "$in/whole.gguf"
ln -s "$in/whole.gguf" "$tmp/cut-00002-of-00002.gguf"
refused cut-00002-of-00002.gguf gguf split --max-tensors 20 "$in/whole.gguf" "$tmp/cut"
[ ! -e "$tmp/cut-00001-of-00002.gguf" ] || failed "gguf split: a part was written before the refusal"
refused text imatrix -c 8 --chunks 1 -o "$in/text" $model "$in/text"
refused model.gguf imatrix -c 8 --chunks 1 -o "$in/model.gguf" -m "$in/model.gguf" -f "$in/text"
refused small.csv plan "$in/small.csv" -o "$in/small.csv"
refused part2.json plan "$in/part-00001-of-00002.gguf" -o "$tmp/part2.json"
ln "$in/plain.ggraph" "$tmp/plain.svg"
refused plain.svg map --captured "$in/plain.ggraph" -o "$tmp/plain.svg"
refused plain.svg map "$in/small.csv" "$in/plain.ggraph" -o "$tmp/plain.svg"
refused model.gguf bench -p 8 -n 2 -r 1 -o "$in/model.gguf" $model "$in/model.gguf"
refused model.gguf bench --cluster "$in/model.gguf" "$in/model.gguf"

# standard input, if it is a file
n=$((n + 2))
"$berth" run -n 1 -c 4096 --trace "$in/text" $model < "$in/text" > "$tmp/out" 2> "$tmp/err"
[ $? -eq 3 ] && cmp -s README.md "$in/text" || failed "run --trace F < F: $(cat "$tmp/err")"
"$berth" plan - -o "$in/small.csv" < "$in/small.csv" > "$tmp/out" 2> "$tmp/err"
[ $? -eq 3 ] && cmp -s tests/data/plan/small.csv "$in/small.csv" || failed "plan - -o F < F: $(cat "$tmp/err")"
cp "$tmp/before/text" "$tmp/before/small.csv" "$in"

# chat's /save over the model, a grammar or a part of a split model is refused; the conversation continues.
for each in model.gguf grammar; do
    n=$((n + 1))
    printf '%s\n' "/save $in/$each" | "$berth" chat --template chatml --grammar "$in/grammar" -m "$in/model.gguf" > "$tmp/out" 2> "$tmp/err"
    grep -q "$each: this file is also an input" "$tmp/err" && cmp -s "$tmp/before/$each" "$in/$each" ||
        failed "chat: /save $each: $(cat "$tmp/out" "$tmp/err")"
    cp "$tmp/before/$each" "$in/$each"
done

# Files that are read and replaced on purpose.
expect 0 "" run -n 1 -p "Once upon a time" --prompt-cache "$tmp/cache" $model
expect 0 "" run -n 1 -p "Once upon a time there was a cat" --prompt-cache "$tmp/cache" $model
# shellcheck disable=SC2086
expect 0 "" train -c 8 -b 1 --lora 1 --steps 2 --save-every 1 --data "$in/text" --resume "$in/lora.gguf.checkpoint" -o "$in/lora.gguf" $model
n=$((n + 1))
printf '%s\n' "/save $tmp/talk.json" "/load $tmp/talk.json" "/save $tmp/talk.json" |
    "$berth" chat --template chatml $model > "$tmp/out" 2> "$tmp/err"
[ "$(grep -c 'messages saved' "$tmp/out")" -eq 2 ] || failed "chat: /load F, /save F: $(cat "$tmp/out" "$tmp/err")"

# A file with two hard links is replaced under one name: the other name keeps the old content, and a failure loses nothing.
cp "$in/small.csv" "$tmp/one.csv"
ln "$tmp/one.csv" "$tmp/two.csv"
expect 0 "" plan "$in/plain.ggraph" -o "$tmp/one.csv"
cmp -s "$in/small.csv" "$tmp/two.csv" || failed "plan -o: the other name of the file has changed"
! cmp -s "$in/small.csv" "$tmp/one.csv" || failed "plan -o: the file has not changed"
if can_limit_files; then
    n=$((n + 1))
    cp "$in/small.csv" "$tmp/kept"
    ln "$tmp/kept" "$tmp/kept2"
    { (ulimit -f 8 && "$berth" gguf quantize $model "$tmp/kept" q4_0 > /dev/null 2> "$tmp/err"); } 2> /dev/null
    cmp -s "$in/small.csv" "$tmp/kept" || failed "gguf quantize with ulimit -f over a hard link: the file is lost"
fi

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
