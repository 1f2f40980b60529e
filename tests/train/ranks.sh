#!/bin/bash
# SPDX-License-Identifier: MIT
# ranks.sh BUILD: tests `mpirun berth train`. Ranks that share a batch learn the same as one rank, except for rounding. Only one
# rank writes the files and the output, a checkpoint resumes bit by bit, and a signal stops all ranks. Run it in the root of the
# sources.

build=$1
berth=$build/bin/berth
tmp=$(mktemp -d) || exit 3
trap 'rm -rf "$tmp"' EXIT
n_bad=0
failed() {
    echo "FAILED: $*"
    n_bad=$((n_bad + 1))
}
ranks() { # N ARGUMENTS...
    timeout 60 mpirun --allow-run-as-root --oversubscribe -q -n "$1" "$berth" train "${@:2}"
}

cat > "$tmp/tiny.conf" << 'END'
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
model=tests/data/tales-3m-q8_0.gguf
common="-c 16 -t 1 --split line --data $tmp/text --val $tmp/text --lr 1e-2 --json"

# losses FILE: prints the losses of the steps, then those on the validation text.
losses() {
    sed 's/.*"losses": \[\([^]]*\)\], "val": \[\(.*\)\]}/\1, \2/; s/{"step": [0-9]*, "loss": //g; s/}//g' "$1" | tr ',' '\n'
}

# near A B N [MOST]: both files have N losses that are equal except for rounding.
near() {
    paste <(losses "$1") <(losses "$2") | awk -v n="$3" -v most="${4:-1e-6}" '
        NF == 2 { n_seen++; d = $1 - $2; d = (d < 0 ? -d : d) / $1; worst = d > worst ? d : worst }
        END { printf "%d losses, largest relative difference %.1e\n", n_seen, worst; exit !(n_seen == n && worst < most) }'
}

$berth train $model --new "$tmp/tiny.conf" $common -b 8 --steps 12 -o "$tmp/one" > "$tmp/one.json" || failed "one rank fails"
for n in 2 4; do
    ranks $n $model --new "$tmp/tiny.conf" $common -b $((8 / n)) --steps 12 -o "$tmp/all$n" > "$tmp/all$n.json" || failed "$n ranks fail"
    [ "$(wc -l < "$tmp/all$n.json")" = 1 ] || failed "more than one of $n ranks prints: $(cat "$tmp/all$n.json")"
    near "$tmp/one.json" "$tmp/all$n.json" 14 || failed "$n ranks: the losses differ from those of one rank"
done

# Resumed runs, on the same number of ranks and on one rank.
steady="$common --schedule constant --warmup 0"
ranks 2 $model --lora 2 $steady -b 2 --steps 8 -o "$tmp/whole" > "$tmp/whole.json" || failed "two ranks do not train an adapter"
ranks 2 $model --lora 2 $steady -b 2 --steps 5 --save-every 3 -o "$tmp/part" > /dev/null || failed "two ranks do not write checkpoints"
ranks 2 $model $common --steps 8 --resume "$tmp/part.checkpoint" -o "$tmp/resumed" > /dev/null || failed "two ranks do not resume"
cmp -s "$tmp/whole" "$tmp/resumed" || failed "a resumed run of two ranks differs"
$berth train $model $common --steps 8 --resume "$tmp/part.checkpoint" -b 4 -o "$tmp/alone" > "$tmp/alone.json" || failed "one rank does not resume"
sed -i 's/"val": .*/"val": []}/' "$tmp/whole.json" "$tmp/alone.json" # the validation losses are of other steps
# Products with 8-bit weights quantise their input. A value that rounding moves to the next level changes the loss in its third
# digit.
near "$tmp/whole.json" "$tmp/alone.json" 8 1e-2 || failed "one rank resumes with other losses"
ranks 3 $model $common --resume "$tmp/part.checkpoint" -o "$tmp/odd" > /dev/null 2> "$tmp/log" && failed "three ranks accept four sequences"
grep -q "4 sequences per step cannot be divided evenly among 3 ranks" "$tmp/log" || failed "four sequences on three ranks: $(cat "$tmp/log")"

# Ranks with different options.
cat > "$tmp/other.sh" << 'END'
[ "$OMPI_COMM_WORLD_RANK" = 0 ] && exec "$@"
exec "$@" --seed 7
END
timeout 60 mpirun --allow-run-as-root --oversubscribe -q -n 2 sh "$tmp/other.sh" "$berth" train $model --lora 2 $common -b 2 --steps 2 \
    -o "$tmp/mixed" > /dev/null 2> "$tmp/log" && failed "two seeds in one run"
grep -q "1 rank has a different model, text or options than rank 0" "$tmp/log" || failed "two seeds: $(cat "$tmp/log")"
[ ! -e "$tmp/mixed" ] || failed "a refused run leaves a file"

# Values that are not finite.
ranks 2 $model --lora 2 $common -b 2 --steps 20 --optimizer sgd --clip 0 --lr 1e30 -o "$tmp/nan" > /dev/null 2> "$tmp/log" &&
    failed "a rate of 1e30"
grep -q "is not a finite number" "$tmp/log" || failed "a rate of 1e30: $(cat "$tmp/log")"

# Ctrl-C: mpirun sends a signal to the ranks, waits, and kills them.
mpirun --allow-run-as-root --oversubscribe -q --mca odls_base_sigkill_timeout 2 -n 2 "$berth" train $model --lora 2 $common -b 2 --steps 1000000 \
    --save-every 2 -o "$tmp/stopped" > "$tmp/out" 2> "$tmp/log" &
pid=$!
until [ -e "$tmp/stopped.checkpoint" ] || ! kill -0 $pid 2> /dev/null; do sleep 0.1; done
kill -INT $pid
wait $pid && failed "a stopped run reports success"
grep -q "continues from step" "$tmp/log" || failed "no end by Ctrl-C: $(cat "$tmp/log")"
$berth train $model $common --resume "$tmp/stopped.checkpoint" --steps 1 -o "$tmp/x" 2> "$tmp/log" > /dev/null
grep -q "steps, but the run ends after 1" "$tmp/log" || failed "no checkpoint of a stopped run: $(cat "$tmp/log")"

[ $n_bad = 0 ] && echo "ranks: all tests passed"
[ $n_bad = 0 ]
