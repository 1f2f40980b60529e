#!/bin/sh
# SPDX-License-Identifier: MIT
# quantize.sh BERTH: quantises a model to every type that its rows allow. Each file must be valid, load and generate text. Prints a
# table of sizes and errors. Runs in the root of the sources. The model is in the data directory (BERTH_DATA, default ../shared).

. "$(dirname "$0")/expect.sh"
f16=${BERTH_DATA:-../shared}/models/tales/tales-f16.gguf

fail() {
    echo "FAILED: $*"
    n_bad=$((n_bad + 1))
}

# le N: N as four bytes, little-endian
le() {
    printf "$(printf '\\%03o\\%03o\\%03o\\%03o' $(($1 % 256)) $(($1 / 256 % 256)) 0 0)"
}

# An importance matrix in the older format, with equal importance for all columns.
imatrix() {
    i=0
    while [ $i -lt 768 ]; do
        printf '\000\000\200\077'
        i=$((i + 1))
    done > "$tmp/ones"
    names="token_embd.weight"
    for layer in 0 1 2 3; do
        for part in attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down; do
            names="$names blk.$layer.$part.weight"
        done
    done
    le 29
    for name in $names; do
        case $name in *ffn_down*) size=768 ;; *) size=256 ;; esac
        le ${#name}
        printf '%s' "$name"
        le 1
        le $size
        head -c $((4 * size)) "$tmp/ones"
    done
}

if [ ! -r "$f16" ]; then
    echo "skipped: no $f16"
    exit 0
fi
imatrix > "$tmp/imatrix.dat"

types="f32 bf16 q8_0 q6_K q5_K q5_1 q5_0 q4_K q4_1 q4_0 iq4_nl iq4_xs mxfp4 nvfp4 q3_K iq3_s iq3_xxs q2_K iq2_s iq2_xs iq2_xxs tq2_0 tq1_0
    iq1_m iq1_s q1_0 q2_0"
printf '%-8s %10s %12s  %s\n' type bytes mse "what it writes"
for type in $types; do
    expect 0 '"converted": 29' gguf quantize --json --pure --imatrix "$tmp/imatrix.dat" "$f16" "$tmp/model.gguf" $type
    bytes=$(sed 's/.*"bytes_after": \([0-9]*\).*/\1/' "$tmp/out")
    mse=$(sed 's/.*"mse": \([^}]*\)}.*/\1/' "$tmp/out")
    expect 0 "valid" gguf check "$tmp/model.gguf"
    expect 0 '"tokens": 12' run --json --temp 0 -n 12 "$tmp/model.gguf"
    text=$(sed 's/.*"text": "\(.*\)", "prompt_tokens.*/\1/' "$tmp/out")
    printf '%-8s %10s %12s  %s\n' $type "$bytes" "$mse" "$text"
    # With a type of enough bits, the model must still generate tales.
    case $type in
        f32 | bf16 | q8_0 | q6_K | q5_K)
            case $text in
                " there was a "*) ;;
                *) fail "$type: '$text'" ;;
            esac
            ;;
    esac
done

# Without an importance matrix, or with another one.
expect 3 "importance matrix" gguf quantize "$f16" "$tmp/model.gguf" iq2_xxs
expect 3 "importance matrix" gguf quantize --pure "$f16" "$tmp/model.gguf" iq2_xxs
expect 0 "29 of 38 tensors as q4_K" gguf quantize "$f16" "$tmp/model.gguf" q4_k
expect 0 "29 of 38 tensors as q4_K" gguf quantize --imatrix "$tmp/imatrix.dat" "$f16" "$tmp/other.gguf" q4_k
# The number of threads does not change the file.
for threads in 1 3 64; do
    expect 0 "29 of 38 tensors as q4_K" gguf quantize -t $threads --imatrix "$tmp/imatrix.dat" "$f16" "$tmp/model.gguf" q4_k
    cmp "$tmp/model.gguf" "$tmp/other.gguf" || fail "q4_k with $threads threads"
done
expect 2 "'0' is not an integer from 1 to 1024" gguf quantize -t 0 "$f16" "$tmp/model.gguf" q4_k
head -c 5000 "$tmp/imatrix.dat" > "$tmp/cut.dat"
expect 3 "the file ends within" gguf quantize --imatrix "$tmp/cut.dat" "$f16" "$tmp/model.gguf" q4_k
: > "$tmp/empty.dat"
expect 3 "the file contains no importance matrix" gguf quantize --imatrix "$tmp/empty.dat" "$f16" "$tmp/model.gguf" q4_k
expect 3 "the file contains no importance matrix" gguf quantize --imatrix "$f16" "$f16" "$tmp/model.gguf" q4_k
expect 3 "No such file" gguf quantize --imatrix "$tmp/none" "$f16" "$tmp/model.gguf" q4_k
expect 2 "requires a value" gguf quantize --imatrix
{
    le 1
    le 19
    printf 'blk.0.attn_q.weight'
    le 1
    le 8
    head -c 32 "$tmp/ones"
} > "$tmp/small.dat"
expect 3 "the importance matrix belongs to another model: tensor 'blk.0.attn_q.weight' has rows of 256" gguf quantize --imatrix "$tmp/small.dat" "$f16" "$tmp/model.gguf" q4_k

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
