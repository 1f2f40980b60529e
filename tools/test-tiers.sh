#!/bin/bash
# test-tiers.sh [BUILD]: tests kernels and ops on every tier of both architectures. Tiers that this machine does not have, and those
# of the other architecture (tools/cross.sh), run under qemu-user. Under qemu the op suite runs a part of its cases; the reference
# runs in a separate program without qemu. The script takes half an hour on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
case $(uname -m) in
    aarch64 | arm64) folder=arm qemu=qemu-aarch64 ;;
    *) folder=x86 qemu=qemu-x86_64 ;;
esac
tiers="portable $(sed -n 's/^    {"\([a-z0-9]*\)", has_.*/\1/p' src/cpu/$folder/tiers.c | tr '\n' ' ')"
has=$("$build/bin/berth" devices | sed -n 's/.*BERTH=//p' | head -1 | tr + ' ')

for tier in $tiers; do
    run=() part=1/1 random=(random_products)
    if [ "$tier" != portable ] && ! [[ " $has " == *" $tier "* ]]; then
        command -v $qemu > /dev/null || { echo "skipped: tier $tier: $qemu is not installed"; continue; }
        run=($qemu -cpu max) part=1/24
        [ "$qemu" = qemu-aarch64 ] || { echo "skipped: tier $tier: $qemu does not support it"; continue; }
    fi
    echo "==== $tier ${run[*]:+(${run[*]})}"
    BERTH_CPU_ISA=$tier "${run[@]}" "$build/tests/test_cpu_kernels" 2>&1 | tail -2
    BERTH_CPU_ISA=$tier "${run[@]}" "$build/tests/prop_matmul" "${random[@]}" 2>&1 | tail -1
    BERTH_CPU_ISA=$tier "${run[@]}" "$build/tests/op-suite" --part $part 2>&1 | tail -1
done
tools/cross.sh || [ $? = 77 ]
