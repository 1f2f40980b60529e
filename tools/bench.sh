#!/bin/sh
# bench.sh [BUILD]: runs all benchmarks whose inputs are available, and prints the names of the others.
set -eu
cd "$(dirname "$0")/.."
dir=${1:-build}
data=${BERTH_DATA:-../shared}

BERTH_REFERENCE=$(tools/fetch-reference.sh) || echo "bench: the reference libraries are unavailable; benchmarks that compare with them are left out"
export BERTH_REFERENCE
echo "== building graphs"
"$dir/bin/bench-graph"
if [ -n "$BERTH_REFERENCE" ]; then
    echo "== allocating and scheduling graphs"
    "$dir/bin/bench-alloc"
    "$dir/bin/bench-sched"
    echo "== quantising rows"
    "$dir/bin/bench-quant"
    echo "== computing ops"
    "$dir/bin/bench-kernels" -t 1
    "$dir/bin/bench-kernels" -t 2
    echo "== training"
    "$dir/bin/bench-train"
fi
echo "== admitting requests (a simulation)"
"$dir/bin/bench-admit" 2000 1
echo "== serving requests"
"$dir/bin/bench-serve" models/tales-q8_0.gguf
echo "== ordering ops"
"$dir/bin/bench-order"
echo "== planning: scale"
"$dir/bin/bench-plan" scale
echo "== planning: generated problems"
"$dir/bin/bench-plan" hard 20
"$dir/bin/bench-plan" training 10
if [ -d "$data/planner" ]; then
    echo "== planning: public instances"
    "$dir/bin/bench-plan" instances "$data/planner"
    echo "== planning: captured graphs"
    "$dir/bin/bench-plan" graphs "$data/graphs"
    "$dir/bin/bench-plan" graphs "$data/graphs" 20000
else
    echo "bench: SKIPPED instances and captured graphs: $data/planner does not exist; set BERTH_DATA"
fi
