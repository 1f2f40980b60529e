#!/bin/sh
# SPDX-License-Identifier: MIT
# plan_graph.sh BERTH: captured graphs with `berth plan`: the output per buffer and in sum, compressed and uncompressed files, and
# messages for files that are not graphs. Runs in the root of the sources; with the data directory also on its graphs.

. "$(dirname "$0")/expect.sh"
command=plan
graphs=tests/data/graph

# The expected peaks are the smallest that the libraries which ran these graphs required.
expect 0 '{"items": 24, "peak": 39407744, "bound": 39407744, "gap": 0.000000, "proven": true, "fits": null, "method": "' \
    --json $graphs/train-mlp.adamw.ggraph
expect 0 '"buffers": [{"buffer": 0, "name": "CPU", "items": 24, "peak": 39407744, "bound": 39407744, ' --json $graphs/train-mlp.adamw.ggraph
expect 0 '{"items": 36, "peak": 67108864, "bound": 67108864, ' --json $graphs/unet-2d.ggraph
expect 0 '{"items": 107, "peak": 84096, "bound": 84096, ' --json $graphs/modern-bert.tg1.ggraph
expect 0 "proven optimal" $graphs/modern-bert.tg1.ggraph
expect 0 "live bytes are highest at step 24" $graphs/modern-bert.tg1.ggraph

# Several buffers, one of them in chunks: each has a line and a JSON object, and the totals are their sums.
expect 0 '{"items": 5, "peak": 640, "bound": 640, ' --json $graphs/two-buffers.ggraph
expect 0 '"buffers": [{"buffer": 0, "name": "ONE", "items": 3, "peak": 448, ' --json $graphs/two-buffers.ggraph
expect 0 '{"buffer": 1, "name": "TWO", "items": 2, "peak": 192, ' --json $graphs/two-buffers.ggraph
expect 0 "buffer 0 ONE: 3 items, peak 448 bytes" $graphs/two-buffers.ggraph
expect 0 "buffer 1 TWO: 2 items, peak 192 bytes" $graphs/two-buffers.ggraph
expect 0 "yes, each buffer into 448 bytes" --capacity 448 $graphs/two-buffers.ggraph
expect 1 '"proven": true, "fits": false' --json --capacity 447 $graphs/two-buffers.ggraph

# compressed
gzip -c $graphs/two-buffers.ggraph > "$tmp/two.ggraph.gz"
expect 0 '{"items": 5, "peak": 640, "bound": 640, ' --json "$tmp/two.ggraph.gz"
# recognised by their first bytes, whatever their names
cp "$tmp/two.ggraph.gz" "$tmp/packed"
cp $graphs/two-buffers.ggraph "$tmp/plain"
expect 0 '{"items": 5, "peak": 640, "bound": 640, ' --json "$tmp/packed"
expect 0 '{"items": 5, "peak": 640, "bound": 640, ' --json "$tmp/plain"
gzip -c tests/data/plan/small.csv > "$tmp/small.csv.gz"
expect 3 "small.csv.gz:1: not a captured graph: the first line is not \"ggraph 1\" after decompression" "$tmp/small.csv.gz"
head -c 200 "$tmp/two.ggraph.gz" > "$tmp/short.ggraph.gz"
expect 3 "the compressed text is truncated" "$tmp/short.ggraph.gz"
# Small files with much text, or with counts that exceed it: reading stops at the first wrong line.
{ cat $graphs/two-buffers.ggraph; head -c 100000000 /dev/zero; } | gzip -1 > "$tmp/zeros.ggraph.gz"
expect 3 "zeros.ggraph.gz:19: the line has more than 67108864 bytes" "$tmp/zeros.ggraph.gz"
{ cat $graphs/two-buffers.ggraph; yes | head -c 1000000; } | gzip -1 > "$tmp/yes.ggraph.gz"
expect 3 "yes.ggraph.gz:19: unexpected line after the 9 tensors" "$tmp/yes.ggraph.gz"
sed 's/^counts nodes=6/counts nodes=268435456/' $graphs/two-buffers.ggraph > "$tmp/counts.ggraph"
expect 3 "counts.ggraph:18: ends before all tensors" "$tmp/counts.ggraph"
{ head -c 500 "$tmp/two.ggraph.gz"; printf 'wrong'; } > "$tmp/wrong.ggraph.gz"
expect 3 "wrong.ggraph.gz" "$tmp/wrong.ggraph.gz"

# a memory limit: kept at a cost, or impossible, with the numbers
expect 0 "bytes (64.00 MiB): kept, 0 ops recomputed, cost 1.0000 times that without limit, proven minimal" --budget 67108864 $graphs/unet-2d.ggraph
expect 1 "cannot fit: at least " --budget 1000 $graphs/unet-2d.ggraph
expect 1 '"budget": {"bytes": 1000, "fits": false, "proven": true, "least": ' --json --budget 1000 $graphs/unet-2d.ggraph
expect 3 "uses 3 buffers; --budget requires a graph that uses one" --budget 1000 $graphs/two-buffers.ggraph
expect 3 "requires a captured graph, or a CSV with the columns 'cost' and 'reads'" --budget 1000 tests/data/plan/small.csv
# rows with costs: cheap values are recomputed
costs=tests/data/plan/costs.csv
expect 0 "bytes (84.06 KiB)" $costs
expect 0 "(100.00 KiB): kept, 0 ops recomputed, cost 1.0000 times that without limit, proven minimal" --budget 100K $costs
expect 0 "(70.00 KiB): kept, 1 op recomputed, cost 1.0667 times that without limit, proven minimal" --budget 70K $costs
expect 0 "(60.00 KiB): kept, 3 ops recomputed, cost 1.5111 times that without limit, proven minimal" --budget 60K $costs
# With --proof, the file shows that no schedule keeps the limit. That a schedule is the cheapest has no proof.
expect 1 "cannot fit: at least " --budget 10 $costs
expect 1 "cannot fit: at least " --budget 10 --proof "$tmp/budget.proof" $costs
expect 0 '"proven": false, "least": ' --json --budget 70K --proof "$tmp/budget.proof" $costs
expect 0 "b (again),7,9,16384," --budget 70K --out - $costs
expect 0 "loss,4,10,64,20480,1,d" --out - $costs
# 48 equal layers, each of which reaches the peak: lowering it in one layer is not enough
awk 'BEGIN {
    n = 48
    print "id,lower,upper,size,cost,reads\nx,0,6,1,,"
    printf "V0,1,%d,700,5,x\nV1,2,%d,500,2,x\nV2,3,%d,300,5,x\nV3,4,%d,300,5,x\nc0,5,7,50,1,x\n", 3 * n + 5, 3 * n + 6, 3 * n + 6, 3 * n + 4
    for (i = 1; i <= n; i++) {
        printf "a%d,%d,%d,1000,3,c%d V3\nb%d,%d,%d,100,3,a%d V0\n", i, 3 * i + 3, 3 * i + 5, i - 1, i, 3 * i + 4, 3 * i + 6, i
        printf "c%d,%d,%d,50,3,b%d V1 V2\n", i, 3 * i + 5, 3 * i + (i < n ? 7 : 6), i
    }
}' > "$tmp/alike.csv"
expect 0 "(2.41 KiB): kept, 47 ops recomputed, cost 1.2" --budget 2465 "$tmp/alike.csv"
expect 1 "cannot fit: at least 53,312 bytes (52.06 KiB) are required, 12,352 bytes (12.06 KiB) more than given" --budget 40K $costs
expect 1 "alive together: c 16.00 KiB, gd 16.00 KiB, gc 16.00 KiB, x 4.00 KiB, loss 64 B" --budget 40K $costs
expect 1 '"alive": [{"name": "c", "bytes": 16384}, {"name": "gd", ' --json --budget 40K $costs
# ... with a second pool
expect 0 "1 op recomputed, 3 values spilled to 20,480 bytes (20.00 KiB) and 4 read back, cost 1.3778 times that without limit" --budget 52K --spill 1M $costs
expect 0 "costs    4096 bytes moved one way cost 1, in the unit of the column 'cost'" --budget 52K --spill 1M $costs
expect 2 "--spill requires --budget" --spill 1M $costs
expect 2 "--spill 'x' is not a number of bytes" --budget 1M --spill x $costs
expect 2 "--budget 'x' is not a number of bytes" --budget x $graphs/unet-2d.ggraph

# Written plans are valid. A plan file does not contain the size of chunks.
expect 0 "" $graphs/modern-bert.tg1.ggraph -o "$tmp/plan.json"
command=verify
expect 0 "valid: 107 items" "$tmp/plan.json"
command=plan

# files that are not graphs
expect 3 "cannot be opened: No such file" "$tmp/missing.ggraph"
cp tests/data/plan/small.csv "$tmp/other.ggraph"
expect 3 ":1: not a captured graph" "$tmp/other.ggraph"
sed 's/ 6,7 a$/ 6,9 a/' $graphs/two-buffers.ggraph > "$tmp/edge.ggraph"
expect 3 ":10: srcs contains an unknown id" "$tmp/edge.ggraph"
sed 's/ FUTURE f32/ FUTURE f33/' $graphs/two-buffers.ggraph > "$tmp/type.ggraph"
expect 3 ":12: unknown tensor type" "$tmp/type.ggraph"
sed '$d' $graphs/two-buffers.ggraph > "$tmp/end.ggraph"
expect 3 "ends before all tensors" "$tmp/end.ggraph"

# References that no program can have; each message has the line.
refuse() { # TEXT LINE FROM TO
    sed "$2s/$3/$4/" $graphs/two-buffers.ggraph > "$tmp/link.ggraph"
    expect 3 "link.ggraph:$2: $1" "$tmp/link.ggraph"
}
refuse "tensor 3 is a view of itself" 13 ' 64 64 2 64 ' ' 64 64 3 64 '
refuse "node 3 is a view of the later node 4" 13 ' 64 64 2 64 ' ' 64 64 4 64 '
sed "18s/ 3072 3072 -1 0/ 3072 3072 6 0/" $graphs/two-buffers.ggraph > "$tmp/circle.ggraph"
expect 3 ":16: tensor 6 is a view of tensor 8, and this chain of views leads back" "$tmp/circle.ggraph"
refuse "node 4 (UNARY) is its own source" 14 ' 3 e' ' 4 e'
refuse "node 4 (UNARY) has the later node 5 as source" 14 ' 3 e' ' 5 e'
refuse "tensor 8 is not a node but has a source: tensor 0" 18 ' - cache' ' 0 cache'
refuse "view_src '9' is not the id of a tensor" 13 ' 64 64 2 64 ' ' 64 64 9 64 '
refuse "view_offs '-64' is not an integer >= 0" 13 ' 64 64 2 64 ' ' 64 64 2 -64 '
refuse "id '7' is not 4" 14 '^4' '7'
refuse "extents '16,1,1' or strides" 14 '16,1,1,1' '16,1,1'
refuse "buf '3' is not an integer from -1 to 2" 14 ' - 0 1 ' ' - 0 3 '
refuse "chunk '0' or offset 'x' is not an integer" 14 ' 128 3 e' ' x 3 e'
refuse "a tensor line requires 16 or 17 fields, this line has 5" 14 ' 4,64,64,64.*' ''
# Exceptions that real programs have: a copy with its own result as source, and a node that only has to run before another.
sed -e '14s/UNARY:RELU/CPY/' -e '14s/ 3 e/ 3,4 e/' $graphs/two-buffers.ggraph > "$tmp/copy.ggraph"
expect 0 '{"items": 5, ' --json "$tmp/copy.ggraph"
sed -e '13s/VIEW/NONE/' -e '13s/ 2 d/ 5 d/' $graphs/two-buffers.ggraph > "$tmp/before.ggraph"
expect 0 '{"items": 6, ' --json "$tmp/before.ggraph"

# As many pools as items: the time grows linearly.
{
    echo id,lower,upper,size,pool
    awk 'BEGIN { for (i = 0; i < 60000; i++) printf "%d,%d,%d,64,%d\n", i, i, i + 3, (i * 7919) % 60000 - 30000 }'
} > "$tmp/pools.csv"
expect 0 '{"items": 60000, "peak": 3840000, "bound": 3840000, "gap": 0.000000, "proven": true, ' --json "$tmp/pools.csv"
expect 0 '"buffers": [{"buffer": -30000, "name": "", "items": 1, "peak": 64, ' --json "$tmp/pools.csv"

# published graphs with several buffers
data=${BERTH_DATA:-../shared}/graphs
if [ -r "$data/index.csv" ]; then
    expect 0 '{"items": 610, "peak": 24370816, "bound": 24370816, ' --json "$data/multi/t5-large.gpu2.tg1.ggraph.gz"
    expect 0 '"name": "FAKE_Host", "items": 10, "peak": 2131072, ' --json "$data/multi/t5-large.gpu2.tg1.ggraph.gz"
else
    echo "no captured graphs in $data: a few cases are left out"
fi

command=
mkdir "$tmp/own"
BERTH_CAPTURE="$tmp/own" expect 0 "" run -n 3 tests/data/tales-3m-q8_0.gguf
[ "$(ls "$tmp/own" | wc -l)" -gt 2 ] || { echo "FAILED: BERTH_CAPTURE: too few graphs: $(ls "$tmp/own")"; n_bad=$((n_bad + 1)); }
captured "$tmp/own"
contradiction() { # TEXT SED: a file with contradictory contents
    sed "$2" "$each" > "$tmp/wrong.ggraph"
    expect 3 "$1" plan "$tmp/wrong.ggraph"
}
contradiction "item 99999 has no lifetime" 's/ [0-9]* -$/ 99999 -/'
contradiction "has two lifetimes or is out of range" 's/ [0-9]* \([0-9]*,[0-9,]*\)$/ 1 \1/'
contradiction "is not FIRST,LAST,SIZE,BUFFER" 's/ [0-9]*,[0-9]*,\([0-9]*,[0-9]*\)$/ 5,4,\1/'
contradiction "is not FIRST,LAST,SIZE,BUFFER" 's/\( [0-9]*,[0-9]*,[0-9]*\),0$/\1,7/'
contradiction "a tensor line requires 19 fields" '$s/ [^ ]*$//'

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
