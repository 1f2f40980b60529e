#!/bin/bash
# test-tiers.sh [BUILD]: kernels and ops on every tier of both architectures: those of this machine as it is, those that it lacks and
# the other architecture's (tools/cross.sh) under qemu-user. The op suite runs a part under qemu, against the reference in a program
# of its own that the machine runs as it is. Takes half an hour on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
case $(uname -m) in
    aarch64 | arm64) tiers="portable neon fp16 fhm dotprod i8mm bf16 sve" qemu=qemu-aarch64 ;;
    *) tiers="portable sse42 avx avx2 avxvnni avx512 vnni amx" qemu=qemu-x86_64 ;;
esac
has=$("$build/bin/berth" devices | sed -n 's/.*BERTH=//p' | head -1 | tr + ' ')

for tier in $tiers; do
    run=() part=1/1 random=(random_products)
    if [ "$tier" != portable ] && ! [[ " $has " == *" $tier "* ]]; then
        command -v $qemu > /dev/null || { echo "skipped: tier $tier: no $qemu"; continue; }
        run=($qemu -cpu max) part=1/24
        [ "$qemu" = qemu-aarch64 ] || { echo "skipped: tier $tier: $qemu does not know it"; continue; }
    fi
    echo "==== $tier ${run[*]:+(${run[*]})}"
    BERTH_CPU_ISA=$tier "${run[@]}" "$build/tests/test_cpu_kernels" 2>&1 | tail -2
    BERTH_CPU_ISA=$tier "${run[@]}" "$build/tests/prop_matmul" "${random[@]}" 2>&1 | tail -1
    BERTH_CPU_ISA=$tier "${run[@]}" "$build/tests/op-suite" --part $part 2>&1 | tail -1
done
tools/cross.sh || [ $? = 77 ]
