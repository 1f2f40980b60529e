#!/bin/sh
# SPDX-License-Identifier: MIT
# gguf.sh BERTH: `berth gguf`: exit codes, texts, a full disk. Every case prints one line if it fails. Runs in the root of the
# sources.

. "$(dirname "$0")/expect.sh"
command=gguf

corpus=tests/fuzz/corpus/gguf
head -c 100 $corpus/tensors > "$tmp/cut"
head -c 3000 /dev/urandom > "$tmp/noise"
# one matrix of 32 x 2 ones as f32
{
    printf 'GGUF\003\000\000\000\001\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000'
    printf '\001\000\000\000\000\000\000\000m\002\000\000\000\040\000\000\000\000\000\000\000\002\000\000\000\000\000\000\000'
    printf '\000\000\000\000\000\000\000\000\000\000\000\000'
    head -c 31 /dev/zero
    i=0
    while [ $i -lt 64 ]; do
        printf '\000\000\200\077'
        i=$((i + 1))
    done
} > "$tmp/matrix"
head -c 350 "$tmp/matrix" > "$tmp/nan"
printf '\377\377' >> "$tmp/nan"

expect 0 "Usage: berth gguf SUBCOMMAND" --help
expect 2 "missing subcommand"
expect 2 "unknown subcommand 'infos'" infos
expect 2 "unknown option '--nonsense'" --nonsense

for part in info check diff quantize split merge set hash; do
    expect 0 "Usage: berth gguf $part" $part --help
    expect 2 "unknown option '--nonsense'" $part --nonsense
    expect 2 "" $part
done

# split, merge, set, hash
tales=tests/data/tales-3m-q8_0.gguf
expect 0 "4 files, 38 tensors" split --max-size 1M $tales "$tmp/piece"
expect 0 "4 files, 38 tensors" merge "$tmp/piece-00001-of-00004.gguf" -o "$tmp/joined"
expect 0 "equal" diff $tales "$tmp/joined"
expect 0 "19 files, 38 tensors" split --max-tensors 2 $tales "$tmp/two"
expect 3 "give the first one, whose name ends in -00001-of-00004.gguf" merge "$tmp/piece-00002-of-00004.gguf" -o "$tmp/none"
expect 3 "not part of a split model" merge $tales -o "$tmp/none"
# A split model generates the same text as one file.
command=run
expect 0 "" -m $tales -t 1 -n 20 --temp 0 -p "Once"
cp "$tmp/out" "$tmp/whole"
expect 0 "" -m "$tmp/piece-00001-of-00004.gguf" -t 1 -n 20 --temp 0 -p "Once"
cmp "$tmp/out" "$tmp/whole" || n_bad=$((n_bad + 1))
expect 0 "" -m "$tmp/piece-00001-of-00004.gguf" --no-mmap -t 1 -n 20 --temp 0 -p "Once"
cmp "$tmp/out" "$tmp/whole" || n_bad=$((n_bad + 1))
expect 3 "give the first one, whose name ends in -00001-of-00004.gguf" -m "$tmp/piece-00002-of-00004.gguf"
command=gguf
mv "$tmp/piece-00003-of-00004.gguf" "$tmp/third"
expect 3 "piece-00003-of-00004.gguf: cannot be opened" merge "$tmp/piece-00001-of-00004.gguf" -o "$tmp/none"
cp "$tmp/piece-00002-of-00004.gguf" "$tmp/piece-00003-of-00004.gguf"
command=run
expect 3 "is part 2 of 4, but part 3 of 4 was expected" -m "$tmp/piece-00001-of-00004.gguf"
command=gguf
expect 3 "is part 2 of 4, but part 3 of 4 was expected" merge "$tmp/piece-00001-of-00004.gguf" -o "$tmp/none"
expect 3 "this file is also an input" merge "$tmp/piece-00001-of-00004.gguf" -o "$tmp/piece-00001-of-00004.gguf"
expect 2 "--max-size 'x' is not a number of bytes" split --max-size x $tales "$tmp/piece"
expect 0 "3 set, 1 removed" set $tales general.name=Mine llama.context_length=77 new.key=-3 --remove general.file_type -o "$tmp/set"
expect 0 "llama.context_length" info "$tmp/set"
grep -q '"Mine"' "$tmp/out" && grep -q ' 77$' "$tmp/out" && grep -q ' -3$' "$tmp/out" || {
    echo "FAILED: set: $(cat "$tmp/out")"
    n_bad=$((n_bad + 1))
}
expect 1 "key     general.name                             the values differ" diff $tales "$tmp/set"
expect 2 "key 'llama.context_length' has type u32" set $tales llama.context_length=x -o "$tmp/none"
expect 2 "array, which cannot be set" set $tales tokenizer.ggml.tokens=x -o "$tmp/none"
expect 2 "'x' is not of the form KEY=VALUE" set $tales x -o "$tmp/none"
expect 3 "there is no key 'x'" set $tales --remove x -o "$tmp/none"
[ "$("$berth" gguf hash --no-layer $tales | cut -d' ' -f1)" = "$("$berth" gguf hash --no-layer "$tmp/set" | cut -d' ' -f1)" ] || {
    echo "FAILED: hash: other keys, another sum"
    n_bad=$((n_bad + 1))
}
# The hash of one tensor is that of its bytes in the file.
"$berth" gguf info --json $tales > "$tmp/info"
python3 - "$tmp/info" $tales "$("$berth" gguf hash --json $tales)" << 'END' || { echo "FAILED: hash: not the bytes' own"; n_bad=$((n_bad + 1)); }
import hashlib, json, sys
info, sums = json.load(open(sys.argv[1])), json.loads(sys.argv[3])
data, whole = open(sys.argv[2], 'rb').read(), hashlib.sha256()
for t in sorted(info['tensors'], key=lambda t: t['name']):
    at = info['data_offset'] + t['offset']
    part = data[at:at + t['bytes']]
    whole.update(part)
    assert hashlib.sha256(part).hexdigest() == sums['tensors'][t['name']], t['name']
assert whole.hexdigest() == sums['sha256']
END

# A key with a control sequence that is not UTF-8: expect checks the output for escape sequences.
{
    printf 'GGUF\003\000\000\000\000\000\000\000\000\000\000\000\001\000\000\000\000\000\000\000'
    printf '\007\000\000\000\000\000\000\000a\033[31m\377\004\000\000\000\007\000\000\000'
} > "$tmp/red"
expect 0 "  a?[31m" info "$tmp/red"
expect 0 '"a\u001b[31m\ufffd": 7' info --json "$tmp/red"
expect 1 "key     a?[31m" diff "$tmp/red" $corpus/keys

expect 0 "11 keys, 0 tensors" info $corpus/keys
expect 0 "u16[2]" info $corpus/arrays
expect 0 "3 x 2" info --tensors $corpus/tensors
expect 0 '"ne": [3, 2], "offset": 0, "bytes": 24}' info --json $corpus/tensors
expect 0 '"a", "b"]' info --all $corpus/strings
expect 3 "No such file" info "$tmp/none"
expect 3 "not a GGUF file" info "$tmp/noise"
expect 3 "cannot be opened: not a regular file" info "$tmp"
expect 3 "big-endian" info $corpus/big
expect 3 "version 1 is no longer supported, supported are 2 and 3, at offset 4" info $corpus/v1

expect 0 "valid: 0 keys, 1 tensors, 256 bytes of data" check "$tmp/matrix"
expect 0 '"sound": true' check --json "$tmp/matrix"
expect 1 "'k' occurs twice, at offset" check $corpus/twice
expect 1 "it overlaps another, at offset" check $corpus/overlap
expect 1 "the file ends in the" check "$tmp/cut"
expect 1 "invalid: tensor 'm'" check "$tmp/nan"
expect 3 "cannot be read: No such file" check "$tmp/none"
expect 3 "cannot be read" check "$tmp/matrix" "$tmp/none"

expect 0 "equal" diff $corpus/keys $corpus/keys
expect 1 "only in the second" diff $corpus/keys $corpus/arrays
expect 1 "the bytes differ" diff "$tmp/matrix" "$tmp/nan"
expect 1 '"same": false' diff --json "$tmp/matrix" $corpus/tensors
expect 3 "No such file" diff "$tmp/none" $corpus/keys
expect 3 "not a GGUF file" diff $corpus/keys "$tmp/noise"

expect 0 "1 of 1 tensors as q8_0, 68 bytes, before 256 bytes" quantize "$tmp/matrix" "$tmp/q8" q8_0
expect 0 "valid" check "$tmp/q8"
expect 1 "type f32 in the first file, q8_0 in the second" diff "$tmp/matrix" "$tmp/q8"
expect 0 '"converted": 0' quantize --json "$tmp/matrix" "$tmp/q4" Q4_K
expect 2 "unknown type or mix 'q9'" quantize "$tmp/matrix" "$tmp/q9" q9
expect 0 "29 of 38 tensors as q4_K_M, 2,004,480 bytes" quantize --dry-run tests/data/tales-3m-q8_0.gguf q4_k_m
expect 0 "  q6_K          5 tensors  483,840 bytes" quantize tests/data/tales-3m-q8_0.gguf "$tmp/mix" Q4_K_M
expect 0 '"bytes_after": 2004480, "mse": null' quantize --dry-run --json tests/data/tales-3m-q8_0.gguf q4_k_m
expect 0 "  f16           4 tensors" quantize --dry-run --tensor-type '*.attn_v.*=f16' --tensor-type '*=q4_0' tests/data/tales-3m-q8_0.gguf q8_0
expect 2 "--tensor-type 'x' is not PATTERN=TYPE" quantize --tensor-type x "$tmp/matrix" "$tmp/q9" q8_0
expect 2 "--tensor-type 'x=q9' is not PATTERN=TYPE" quantize --tensor-type x=q9 "$tmp/matrix" "$tmp/q9" q8_0
# A file as its own output, under any name, is refused and stays unchanged.
cp "$tmp/q8" "$tmp/kept"
ln -s q8 "$tmp/link"
ln "$tmp/q8" "$tmp/hard"
for out in q8 link hard ./q8; do
    expect 3 "$out: this file is also an input: choose another name" quantize "$tmp/q8" "$tmp/$out" f16
done
cmp "$tmp/q8" "$tmp/kept" || n_bad=$((n_bad + 1))
expect 3 "nan: this file is also an input" quantize --imatrix "$tmp/nan" "$tmp/q8" "$tmp/nan" f16
# An output that cannot be written completely leaves the old file, and no other file.
if can_limit_files; then
    n=$((n + 1))
    (
        trap '' XFSZ
        ulimit -f 100
        "$berth" gguf quantize tests/data/tales-3m-q8_0.gguf "$tmp/kept" q4_0 > /dev/null 2> "$tmp/err"
    )
    if [ $? -ne 3 ] || ! grep -q "kept: writing failed: File too large" "$tmp/err" || ! cmp -s "$tmp/q8" "$tmp/kept" ||
        ls "$tmp" | grep -q part; then
        echo "FAILED: quantize beyond a limit: $(cat "$tmp/err") $(ls "$tmp")"
        n_bad=$((n_bad + 1))
    fi
fi
# The same after a signal: a sparse file of 4 GiB takes long enough to be stopped (tests/fault/stop.sh stops after every call)
{
    printf 'GGUF\003\000\000\000\001\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000'
    printf '\001\000\000\000\000\000\000\000m\002\000\000\000\000\020\000\000\000\000\000\000\000\000\004\000\000\000\000\000'
    printf '\000\000\000\000\000\000\000\000\000\000\000\000'
} > "$tmp/hole"
truncate -s 4294967392 "$tmp/hole"
for _ in 1 2 3 4 5; do
    "$berth" gguf quantize "$tmp/hole" "$tmp/stopped" q4_0 > /dev/null 2>&1 &
    i=0
    while ! (set -- "$tmp"/stopped.*.part && [ -e "$1" ]) && [ $i -lt 20000 ]; do
        i=$((i + 1))
    done
    n=$((n + 1))
    kill $!
    { wait $!; } 2> /dev/null # hides the shell's message about the signal
    if [ $? -ne 143 ] || ls "$tmp" | grep -qE 'part|stopped'; then
        echo "FAILED: quantize that is stopped: $(ls "$tmp")"
        n_bad=$((n_bad + 1))
    fi
done
rm "$tmp/hole"
# the model goes to standard output, messages to standard error
n=$((n + 1))
"$berth" gguf quantize "$tmp/matrix" - q8_0 > "$tmp/streamed" 2> "$tmp/err"
if ! cmp -s "$tmp/streamed" "$tmp/q8" || ! grep -q "1 of 1 tensors as q8_0" "$tmp/err"; then
    echo "FAILED: quantize to standard output: $(cat "$tmp/err")"
    n_bad=$((n_bad + 1))
fi
expect 3 "writing failed: No space left on device" quantize "$tmp/matrix" /dev/full q8_0
expect 3 "cannot be written" quantize "$tmp/matrix" "$tmp/none/q8" q8_0
expect 3 "No such file" quantize "$tmp/none" "$tmp/q8" q8_0
expect 3 "floats cannot be quantised" quantize "$tmp/matrix" "$tmp/q8_k" q8_k
expect 3 "importance matrix" quantize "$tmp/matrix" "$tmp/iq" iq2_xxs

"$berth" gguf info --json $corpus/arrays > /dev/full 2> "$tmp/err"
if [ $? -ne 3 ]; then
    echo "FAILED: a full standard output is not a failure"
    n_bad=$((n_bad + 1))
fi

# Many importance matrices: the time grows linearly.
if command -v python3 > /dev/null; then
    cat > "$tmp/many.py" << 'END'
import struct, sys
n = 20000
text = lambda s: struct.pack('<Q', len(s)) + s.encode()
with open(sys.argv[1], 'wb') as f:
    f.write(b'GGUF' + struct.pack('<IQQ', 3, 2 * n, 0))
    for i in range(2 * n):
        name = f'blk.{i // 2 % n}.x.weight' + ('.in_sum2' if i % 2 == 0 else '.counts')
        f.write(text(name) + struct.pack('<IQIQ', 1, 1, 0, 32 * i))
    f.write(b'\0' * (-f.tell() % 32) + b'\0' * (2 * n * 32))
END
    python3 "$tmp/many.py" "$tmp/many.gguf"
    n=$((n + 1))
    if ! (ulimit -t 3 && "$berth" gguf quantize --imatrix "$tmp/many.gguf" "$tmp/q8" "$tmp/many.q4" q4_0) > /dev/null 2> "$tmp/err"; then
        echo "FAILED: berth gguf quantize --imatrix: 20000 matrices take more than 3 s: $(cat "$tmp/err")"
        n_bad=$((n_bad + 1))
    fi
fi

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
