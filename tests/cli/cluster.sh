#!/bin/sh
# SPDX-License-Identifier: MIT
# cluster.sh BERTH: `berth fit --cluster` on simulated clusters. In each cluster only one cost is not negligible, so that arithmetic
# gives the expected speed. Runs in the root of the sources.

. "$(dirname "$0")/expect.sh"
tales=tests/data/tales-3m-q8_0.gguf # 4 layers

# machines COUNT MEMORY BANDWIDTH LATENCY: the program's host and COUNT equal ones
machines() {
    device="\"memory\": $2, \"bandwidth\": $3, \"flops\": 1e18"
    others=", {\"name\": \"there\", \"count\": $1, \"devices\": [{\"name\": \"MPI1:CPU\", $device}]}"
    [ "$1" -gt 0 ] || others=
    echo "{\"hosts\": [{\"name\": \"here\", \"devices\": [{$device}]}$others], \"links\": [{\"latency\": $4, \"bandwidth\": 1e18}]}" > "$tmp/m.json"
}
cut_part() { sed "s/.*\"$1\": {/{/; s/, \"tensor\": .*//; s/, \"faster\": .*//" "$tmp/out" > "$tmp/cut"; }
speed() { cut_part "$1"; sed 's/.*"per_second": \([0-9.]*\), "prompt.*/\1/' "$tmp/cut"; }
check() { # WHAT CONDITION
    n=$((n + 1))
    awk "BEGIN { exit !($2) }" || { echo "FAILED: $1: $2"; n_bad=$((n_bad + 1)); }
}

# One host: a token reads every weight except the embedding once, and nothing else takes time.
machines 0 1000000000 3.5e7 0
expect 0 '"faster": "layer"' fit --json --cluster "$tmp/m.json" -c 64 $tales
check "reading 3.4 MB at 35 MB a second" "$(speed layer) > 8 && $(speed layer) < 10.2"
expect 0 "--split tensor: no: a split by tensors requires at least two devices" fit --cluster "$tmp/m.json" $tales

# Two hosts, by tensors: half of the time. By layers only one host works at a time.
machines 1 1000000000 3.5e7 0
expect 0 '"faster": "tensor"' fit --json --cluster "$tmp/m.json" -c 64 $tales
check "two that read at the same time" "$(speed tensor) > 1.8 * $(speed layer) && $(speed tensor) < 2.05 * $(speed layer)"

# Messages take one second each: two sums per layer by tensors, and a few messages per token by layers.
machines 1 1000000000 1e18 1
expect 0 '"faster": "layer"' fit --json --cluster "$tmp/m.json" -c 64 $tales
check "eight sums and what comes before and after" "$(speed tensor) < 1 / 8 && $(speed tensor) > 1 / 14"
check "there and back" "$(speed layer) <= 1 / 2 && $(speed layer) >= 1 / 5"

# A model that does not fit is a valid result; layers are placed where there is memory.
machines 3 1750000 1e10 1e-5
expect 0 '--split layer: fits' fit --cluster "$tmp/m.json" -c 16 -b 16 $tales
machines 1 1000000 1e10 1e-5
expect 1 "too much" fit --cluster "$tmp/m.json" -c 64 $tales
machines 31 1000000000 1e10 1e-5
expect 0 "--split tensor: no: a split by tensors supports at most 16 devices" fit --cluster "$tmp/m.json" $tales
expect 0 "there31 MPI1:CPU: " fit --cluster "$tmp/m.json" $tales

# A wrong file is reported with its position.
bad() { # TEXT JSON
    echo "$2" > "$tmp/bad.json"
    expect 3 "$1" fit --cluster "$tmp/bad.json" $tales
}
one='{"memory": 1, "bandwidth": 1, "flops": 1}'
bad "the first device of the first host must be the program" '{}'
bad "the first device of the first host must be the program" '{"hosts": [{"devices": [{"name": "CUDA0", "memory": 1, "bandwidth": 1, "flops": 1}]}]}'
bad 'a device requires "memory", "bandwidth" and "flops"' '{"hosts": [{"devices": [{"memory": 1}]}]}'
bad 'a host requires "devices"' '{"hosts": [{"name": "a"}]}'
bad "missing link between hosts 'a' and 'host2'" "{\"hosts\": [{\"name\": \"a\", \"devices\": [$one]}, {\"devices\": [$one]}]}"
bad "unknown host" '{"links": [{"between": ["a", "b"]}]}'
bad '"between" requires the names' "{\"hosts\": [{\"name\": \"a\", \"devices\": [$one]}], \"links\": [{\"between\": [\"a\"]}]}"
bad 'a link requires "latency" and "bandwidth"' '{"links": [{"latency": 1}]}'
bad "unknown tensor type" '{"hosts": [{"devices": [{"read": {"q9_Z": 1}}]}]}'
bad '"alignment" must be a power of two' '{"hosts": [{"devices": [{"alignment": 3}]}]}'
bad "a number from 1 to 1e+18 is expected" '{"hosts": [{"devices": [{"bandwidth": -1}]}]}'
bad "too many hosts" "{\"hosts\": [{\"devices\": [$one], \"count\": 1024}, {\"devices\": [$one]}]}"
bad "bad.json" '{"hosts": ['
expect 3 "cannot be read" fit --cluster "$tmp/none.json" $tales
expect 2 "--memory and --cluster cannot be combined" fit --cluster "$tmp/m.json" --memory 1G $tales

# The measured cluster of this machine can be used for a prediction.
expect 0 "" bench --cluster "$tmp/here.json" -t 1 $tales
expect 0 '"fits": true' fit --json --cluster "$tmp/here.json" $tales
check "a speed is predicted" "$(speed layer) > 1"
expect 3 "cannot be" bench --cluster "$tmp/none/here.json" $tales
expect 0 "" run --split auto -n 1 $tales
expect 2 "--split auto is not supported; only 'berth run' has it" explain --split auto $tales

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
