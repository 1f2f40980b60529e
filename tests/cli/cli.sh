#!/bin/sh
# SPDX-License-Identifier: MIT
# cli.sh BERTH: runs the program and checks exit codes and texts. Every case prints one line if it fails.
# Runs in the root of the sources.

. "$(dirname "$0")/expect.sh"

small=tests/data/plan/small.csv
printf 'id,lower,upper,size,offset\na,0,2,4,0\n"b,x",1,3,4,2\n' > "$tmp/collide.csv"
printf 'id,lower,upper,size,alignment,offset\na,0,2,4,8,4\n' > "$tmp/crooked.csv"
printf 'id,lower,upper,size\na,0,2,4\nb,0,two,4\n' > "$tmp/broken.csv"
printf '{"items": [\n  {"first": 0,\n   "last": "x", "size": 1}]}' > "$tmp/broken.json"
printf 'id,lower,upper,size\n' > "$tmp/none.csv"
head -c 3000 /dev/urandom > "$tmp/noise"

# the program without a command
expect 2 "Usage: berth COMMAND"
expect 0 "Usage: berth COMMAND" --help
expect 0 "berth 1." --version
expect 2 "unknown command 'plam'" plam
expect 2 "Did you mean 'berth plan'?" plam
expect 2 "Did you mean 'berth verify'?" verfiy
expect 2 "Did you mean 'berth gguf quantize'?" quantize
expect 2 "Did you mean 'berth gguf info'?" info
expect 2 "unknown command 'frobnicate'" frobnicate
! grep -q "Did you mean" "$tmp/err" || { echo "FAILED: frobnicate is near nothing: $(cat "$tmp/err")"; n_bad=$((n_bad + 1)); }
expect 0 "Usage: berth COMMAND" help
expect 0 "Usage: berth run" help run
expect 0 "Usage: berth gguf check" help gguf check
expect 2 "unknown command 'rum'" help rum
expect 2 "unknown option '--nonsense'" --nonsense
expect 0 "ggml API" version
expect 0 '"compiler": ' version --json
expect 0 "Usage: berth version" version --help
expect 2 "unexpected argument 'now': version takes none" version now
expect 2 "unknown option '--nonsense'" version --nonsense

# plan
expect 0 "Usage: berth plan" plan --help
expect 0 "proven optimal" plan $small
expect 0 '{"items": 16, "peak": 40960, "bound": 40960, "gap": 0.000000, "proven": true, "fits": null, "method": "' plan --json $small
expect 0 "yes, into 40,960 bytes (40.00 KiB)" plan --capacity 40KiB $small
expect 0 '"fits": true' plan --json --capacity 40960 $small
expect 1 "no: proven that no plan fits into 40,959 bytes" plan --capacity 40959 $small
expect 1 '"fits": false' plan --json --capacity 0.039M --time 5 $small
expect 0 "" plan --time 2.5 -t 2 -s 7 $small
expect 0 "items    0" plan "$tmp/none.csv"
expect 0 "proven" plan tests/data/plan/small.json
expect 0 "" plan "$tmp/collide.csv"
expect 2 "missing argument: FILE" plan
expect 2 "unexpected argument '$small': plan takes FILE" plan $small $small
expect 2 "unknown option '--nonsense'" plan --nonsense $small
expect 2 "requires a value" plan $small --capacity
expect 2 "--capacity '12x'" plan --capacity 12x $small
expect 2 "--capacity '0x10'" plan --capacity 0x10 $small
expect 2 "--capacity '0'" plan --capacity 0 $small
expect 2 "--capacity '-1'" plan --capacity -1 $small
expect 2 "--capacity '99999999999T'" plan --capacity 99999999999T $small
expect 2 "--time 'soon'" plan --time soon $small
expect 2 "--threads '0'" plan -t 0 $small
expect 2 "--seed 'x'" plan -s x $small
expect 3 "No such file" plan "$tmp/missing.csv"
expect 3 "Is a directory" plan "$tmp"
expect 3 "broken.csv:3: upper 'two'" plan "$tmp/broken.csv"
expect 3 "broken.json:3:12: a number is expected" plan "$tmp/broken.json"
expect 3 "noise:" plan "$tmp/noise"
expect 3 "standard input:1: the file is empty" plan -
expect 3 "cannot be written" plan $small -o "$tmp/no/such/folder.csv"
expect 3 "cannot be written: Is a directory" plan $small -o "$tmp"
expect 3 "cannot be written: No such file" plan $small -o ""

# CSV files in different styles
table() { # TEXT for printf; writes $tmp/table.csv
    # shellcheck disable=SC2059
    printf "$1" > "$tmp/table.csv"
}
two='"items": 2, "peak": 8, "bound": 8,'
table '\357\273\277id,lower,upper,size\r\na,0,2,4\r\n\r\nb,1,3,4\r\n' # a byte order mark, CR LF, a blank line
expect 0 "$two" plan --json "$tmp/table.csv"
# leading blank lines, columns in any order, no newline at the end
table '\n\nsize,id,upper,extra,lower\n4,"a ""q"",x",2,foo,0\n4,b,3,,1'
expect 0 "$two" plan --json "$tmp/table.csv"
expect 0 '"a ""q"",x",0,2,4,' plan "$tmp/table.csv" -o -
table 'id,lower,upper,size\nb,0,2,4\na,0,2,4\na,0,2,4\n' # a duplicate id would make messages ambiguous
expect 3 "table.csv:4: id 'a' is already used in line 3; ids must be unique" plan "$tmp/table.csv"
table 'id,lower,upper,size\n,0,2,4\n,0,2,4\n' # an empty id is not a name
expect 0 "$two" plan --json "$tmp/table.csv"
printf '{"items": [{"id": "t", "first": 0, "last": 1, "size": 4}, {"id": "t", "first": 0, "last": 1, "size": 4}]}' > "$tmp/twins.json"
expect 0 't (2),0,2,4,' plan "$tmp/twins.json" -o - # tensors may have equal names; the CSV distinguishes them
"$berth" plan "$tmp/twins.json" -o "$tmp/twins.csv" > /dev/null
expect 0 "valid: 2 items" verify "$tmp/twins.csv"
for row in 'a,0,2,-4' 'a,0,2,9223372036854775808' 'a,0,2,1e3' 'a,0,2,' 'a,0,99999999999999999999,4'; do
    table "id,lower,upper,size\nx,0,1,1\n$row\n"
    expect 3 "table.csv:3: " plan "$tmp/table.csv"
    grep -q "is not an integer from" "$tmp/err" || { echo "FAILED: $row: $(cat "$tmp/err")"; n_bad=$((n_bad + 1)); }
done
for row in 'a,2,2,4' 'a,3,2,4'; do
    table "id,lower,upper,size\n$row\n"
    expect 3 "table.csv:2: 'a' ends before it begins" plan "$tmp/table.csv"
done
table 'id,lower,upper\na,0,2\n'
expect 3 "table.csv:1: no column 'size'" plan "$tmp/table.csv"
printf '\357\273\277' | cat - tests/data/plan/small.json > "$tmp/mark.json"
expect 0 '"items": 16, ' plan --json "$tmp/mark.json"

# An endless file that is not a plan is refused at its first line; a pipe is read once.
expect 3 "NUL byte found; this is not a CSV file" plan /dev/zero
ln -s /dev/zero "$tmp/zero.ggraph"
expect 3 "zero.ggraph:1: not a captured graph" plan "$tmp/zero.ggraph"
n=$((n + 2))
yes | "$berth" plan - 2>&1 | grep -q "standard input:1: no column 'id'" || { echo "FAILED: endless lines"; n_bad=$((n_bad + 1)); }
mkfifo "$tmp/pipe"
cat $small > "$tmp/pipe" &
"$berth" plan --json "$tmp/pipe" | grep -q '"items": 16, ' || { echo "FAILED: a named pipe"; n_bad=$((n_bad + 1)); }
wait

# Written plans are valid, and the next search starts from them.
expect 0 "" plan $small -o "$tmp/plan.csv"
expect 0 "valid: 16 items, the highest ends at 40,960 bytes" verify "$tmp/plan.csv"
expect 0 "" plan $small -o "$tmp/plan.json"
expect 0 "valid" verify "$tmp/plan.json"
expect 0 "" plan "$tmp/plan.csv"
if [ "$(head -n 1 "$tmp/plan.csv")" != "id,lower,upper,size,offset" ]; then
    echo "FAILED: header of the plan written: $(head -n 1 "$tmp/plan.csv")"
    n_bad=$((n_bad + 1))
fi
expect 0 "id,lower,upper,size,offset" plan $small --out -
expect 2 "both write to standard output" plan $small --json --out -

# a search: its duration, its result, and Ctrl-C
hard_items > "$tmp/hard.csv"
bound=$("$berth" plan --json "$tmp/hard.csv" | sed 's/.*"bound": \([0-9]*\), "gap".*"buffers.*/\1/')
expect 4 "unknown: no plan found that fits into" plan --capacity "$bound" "$tmp/hard.csv"
expect 4 '"proven": false, "fits": false' plan --json --capacity "$bound" "$tmp/hard.csv"
expect 1 "no: proven that no plan fits into" plan --capacity $((bound - 1)) "$tmp/hard.csv"
expect 0 '"ms": ' plan --json $small
grep '"ms": [0-9]*\.[0-9]' "$tmp/out" | grep -qv '"ms": 0.000' || { echo "FAILED: a plan in no time: $(cat "$tmp/out")"; n_bad=$((n_bad + 1)); }
start=$(date +%s)
expect 0 "KiB)" plan --time 2000 --threads 8 "$tmp/hard.csv"
seconds=$(($(date +%s) - start))
# Threads may wait for a processor, so a search may take ten times its limit on a busy machine or with a race detector.
if [ $seconds -ge 20 ] && ! grep -q __tsan_init "$berth"; then
    echo "FAILED: plan --time 2000 --threads 8 takes $seconds seconds"
    n_bad=$((n_bad + 1))
fi
[ ! -s "$tmp/err" ] || { echo "FAILED: progress without a terminal: $(cat "$tmp/err")"; n_bad=$((n_bad + 1)); }
if command -v script > /dev/null; then
    n=$((n + 1))
    script -qec "'$berth' plan --time 1500 $tmp/hard.csv" /dev/null < /dev/null > "$tmp/out" 2>&1
    grep -q "searching \[#* *\]  *[0-9]*%  peak .* MiB, bound .* MiB, gap " "$tmp/out" || { echo "FAILED: no progress on a terminal"; n_bad=$((n_bad + 1)); }
fi
# A search is suggested only if no search of that length was made.
expect 0 "lower    --time 1000 may save up to " plan "$tmp/hard.csv"
expect 0 "lower    --time 1000 may save up to " plan --time 10 "$tmp/hard.csv"
expect 0 "" plan --time 1000 "$tmp/hard.csv"
if grep -q "may save up to" "$tmp/out"; then
    echo "FAILED: plan --time 1000: $(grep lower "$tmp/out")"
    n_bad=$((n_bad + 1))
fi
n=$((n + 1))
interrupted plan --time 60000 "$tmp/hard.csv" -o "$tmp/stopped.csv"
if [ $got -ne 130 ] || ! grep -q "stopped: the best plan so far" "$tmp/out"; then
    echo "FAILED: plan, Ctrl-C: exit code $got: $(cat "$tmp/out" "$tmp/err")"
    n_bad=$((n_bad + 1))
fi
expect 0 "valid: 4000 items" verify "$tmp/stopped.csv"

# Proofs. The bound of above-live.csv is above the live bytes, so its proof is a search.
above=tests/data/plan/above-live.csv
expect 0 "the bound rose by 1 B, which is 50% of the closed gap" plan --time 5000 $above
expect 0 "none: proven optimal" plan --time 5000 --proof "$tmp/above.proof" --out "$tmp/above-plan.csv" $above
expect 0 "optimal: the proof shows that no plan has a lower peak" verify --proof "$tmp/above.proof" "$tmp/above-plan.csv"
expect 0 '"optimal": true' verify --json --proof "$tmp/above.proof" "$tmp/above-plan.csv"
expect 0 "proof valid: no plan requires less than" verify --proof "$tmp/above.proof" $above
expect 0 "none: proven optimal" plan --proof "$tmp/small.proof.gz" --out "$tmp/small-plan.csv" $small
expect 0 "optimal" verify --proof "$tmp/small.proof.gz" "$tmp/small-plan.csv"
expect 1 "proof refused: line 4: the items have no common step" verify --proof "$tmp/small.proof.gz" "$tmp/above-plan.csv"
sed 's/^bound ./&1/' "$tmp/above.proof" > "$tmp/false.proof"
expect 1 "proof refused" verify --proof "$tmp/false.proof" "$tmp/above-plan.csv"
expect 4 "a lower peak is not excluded" verify --proof /dev/null "$tmp/above-plan.csv"
# The fast path raises the bound of these items.
{
    printf 'id,lower,upper,size\na,3,6,2\nb,4,6,3\nc,2,5,3\nd,0,1,5\ne,3,5,3\nf,6,7,4\ng,1,2,2\nh,5,9,6\ni,0,3,5\nj,1,4,2\n'
    for step in $(seq 10 29); do
        echo "s$step,$step,$((step + 1)),1"
    done
} > "$tmp/core.csv"
expect 0 "bound    12 bytes" plan --proof "$tmp/core.proof" --out "$tmp/core-plan.csv" "$tmp/core.csv"
expect 0 "optimal: the proof" verify --proof "$tmp/core.proof" "$tmp/core-plan.csv"
printf 'id,lower,upper,size,pool\na,0,3,10,-2\nb,1,5,6,7\nc,2,4,8,-2\n' > "$tmp/pools.csv"
expect 0 "buffer -2" plan --proof "$tmp/pools.proof" --out "$tmp/pools-plan.csv" "$tmp/pools.csv"
expect 0 "optimal: the proof" verify --proof "$tmp/pools.proof" "$tmp/pools-plan.csv"
# proofs that no schedule keeps a memory limit
costs=tests/data/plan/costs.csv
expect 1 "cannot fit: at least" plan --budget 10 --proof "$tmp/none.proof" $costs
expect 0 "proof valid: no schedule of 10 ops stays within 10 bytes (0 states)" verify --budget 10 --proof "$tmp/none.proof" $costs
expect 0 '"budget": 10, "spill": 0, "proof": {"valid": true, ' verify --json --budget 10 --proof "$tmp/none.proof" $costs
expect 0 "ops stays within 10 bytes, with at most 11 bytes spilled (0 states)" verify --budget 10 --spill 11 --proof "$tmp/none.proof" $costs
expect 0 '"budget": 10, "spill": 11, "proof": {"valid": true, ' verify --json --budget 10 --spill 11 --proof "$tmp/none.proof" $costs
expect 1 "bytes are within the limit of pool 0" verify --budget 100K --proof "$tmp/none.proof" $costs
expect 1 "the proof is about a plan, not about a memory limit" verify --budget 10 --proof "$tmp/above.proof" $costs
expect 1 "'berth-proof 1" verify --proof "$tmp/none.proof" "$tmp/above-plan.csv"
expect 1 "cannot fit: at least" plan --budget 1000 --proof "$tmp/none.proof.gz" tests/data/graph/unet-2d.ggraph
expect 0 "ops stays within 1,000 bytes (0 states)" verify --budget 1000 --proof "$tmp/none.proof.gz" tests/data/graph/unet-2d.ggraph
# A pyramid in which each op reads two ops of the row before. It has too many ops for the exact search.
awk 'BEGIN {
    print "id,lower,upper,size,cost,reads"
    for (row = 12; row > 0; row--) {
        for (k = 0; k < row; k++) {
            reads = row < 12 ? "v" (at - row - 1) " v" (at - row) : ""
            last = k < row - 1 ? at + row : at + row - 1
            printf "v%d,%d,%d,1,1,%s\n", at, at, last + 1, reads
            at++
        }
    }
}' > "$tmp/pyramid.csv"
expect 4 "open.proof: not written: it is not proven that no schedule keeps --budget" plan --budget 5 --proof "$tmp/open.proof" "$tmp/pyramid.csv"
n=$((n + 1))
if [ -e "$tmp/open.proof" ]; then
    echo "FAILED: a proof that proves nothing was written"
    n_bad=$((n_bad + 1))
fi
expect 2 "--budget requires --proof" verify --budget 10 $costs
expect 2 "--spill requires --budget" verify --spill 10 --proof "$tmp/none.proof" $costs
expect 3 "requires a captured graph, or a CSV with the columns 'cost' and 'reads'" verify --budget 10 --proof "$tmp/none.proof" $small
expect 3 "cannot be opened" verify --budget 10 --proof "$tmp/missing.proof" $costs
# The exhaustive search of few items with alignments writes no log. With --proof, its bound is not called proven.
printf 'id,lower,upper,size,alignment\na,0,2,3,4\nb,1,3,5,1\nc,2,5,4,8\nd,0,1,2,2\ne,3,5,7,4\nf,4,6,5,8\n' > "$tmp/mixed.csv"
expect 1 "proven that no plan fits" plan --time 500 --capacity 18 "$tmp/mixed.csv"
expect 4 "no plan found that fits" plan --time 500 --capacity 18 --proof "$tmp/mixed.proof" "$tmp/mixed.csv"
expect 0 "bound    17 bytes" plan --time 500 --proof "$tmp/mixed.proof" --out "$tmp/mixed-plan.csv" "$tmp/mixed.csv"
expect 4 "a lower peak is not excluded" verify --proof "$tmp/mixed.proof" "$tmp/mixed-plan.csv"
expect 3 "cannot be opened" verify --proof "$tmp/missing.proof" "$tmp/above-plan.csv"
expect 3 "cannot be written" plan --proof "$tmp/missing/x.proof" $small
# verify
expect 0 "Usage: berth verify" verify --help
expect 1 "alive together in the same bytes: 'a' at [0, 4), steps 0 to 1" verify "$tmp/collide.csv"
expect 1 '"valid": false' verify --json "$tmp/collide.csv"
expect 1 '"what": "alive together in the same bytes", "i": 0, "j": 1}' verify --json "$tmp/collide.csv"
expect 0 '"fault": null' verify --json "$tmp/plan.csv"
expect 1 "not aligned" verify "$tmp/crooked.csv"
# a name with a control sequence for the terminal
printf 'id,lower,upper,size,offset\na\033[31m,0,2,8,0\nb,0,2,8,4\n' > "$tmp/red.csv"
expect 1 "'a?[31m' at [0, 8)" verify "$tmp/red.csv"
expect 3 "some items have no offset" verify $small
expect 3 "No such file" verify "$tmp/missing.csv"
expect 2 "missing argument: PLAN" verify
expect 2 "unknown option '-x'" verify -x "$tmp/plan.csv"

# which: the program itself uses Berth, a shell does not
expect 1 "no library of ggml is loaded" which $$
"$berth" plan --time 60000 "$tmp/hard.csv" > /dev/null 2>&1 &
pid=$!
catches $pid 2
expect 0 "process $pid: on Berth" which $pid
expect 0 '"berth": true}' which --json $pid
kill $pid
wait $pid 2> /dev/null
expect 3 "/maps: cannot be read: No such file" which 999999999
expect 2 "'node' is not a process id" which node
expect 2 "missing argument: PID" which

# a full disk
if [ -w /dev/full ]; then
    expect 3 "/dev/full: writing failed" plan $small -o /dev/full
    for args in "plan $small" "plan --json $small" "plan --out - $small" "version" "--help" "--version" "verify $tmp/plan.csv"; do
        n=$((n + 1))
        # shellcheck disable=SC2086
        "$berth" $args > /dev/full 2> "$tmp/err"
        got=$?
        if [ $got -ne 3 ] || ! grep -q "writing failed" "$tmp/err"; then
            echo "FAILED: berth $args > /dev/full: exit code $got: $(cat "$tmp/err")"
            n_bad=$((n_bad + 1))
        fi
    done
fi

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
