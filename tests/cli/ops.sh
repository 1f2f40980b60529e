#!/bin/sh
# SPDX-License-Identifier: MIT
# ops.sh BERTH: `berth ops` and `berth devices`. Every case prints one line if it fails.

. "$(dirname "$0")/expect.sh"

expect 0 "Usage: berth ops" ops --help
expect 0 "MUL_MAT" ops
expect 0 "FLASH_ATTN_BACK          not supported" ops
expect 0 "ops, 1 of them not supported" ops # every other op has a sample, and the CPU supports it
expect 0 "q4_0" ops mul_mat
expect 0 "any type to itself" ops CPY
expect 0 "x f32 f16" ops MUL_MAT --device CPU
expect 0 "portable" ops ABS
expect 0 "RESHAPE                  -" ops RESHAPE
expect 1 "not supported" ops FLASH_ATTN_BACK
expect 2 "unknown op 'NONSENSE'" ops NONSENSE
expect 2 "unknown option '--nonsense'" ops --nonsense
expect 2 "requires a value" ops --device
expect 3 "unknown device 'Abacus'" ops -d Abacus
expect 0 '"supported": false' ops --json
expect 0 '"device": "CPU"' ops --json GELU

expect 0 "Usage: berth devices" devices --help
expect 0 "buffer-from-host-pointer" devices
expect 0 "aligned to" devices
expect 0 '"memory_total": ' devices --json
expect 2 "unknown option '-x'" devices -x
expect 2 "unexpected argument 'CPU': devices takes none" devices CPU

# A forced tier computes every op.
n=$((n + 1))
if ! BERTH_CPU_ISA=portable "$berth" ops > "$tmp/ops"; then
    echo "FAILED: berth ops with portable kernels"
    n_bad=$((n_bad + 1))
elif grep -qE '^(MUL_MAT|ADD) +[a-z0-9]*\+' "$tmp/ops" || ! grep -qE '^MUL_MAT +portable ' "$tmp/ops"; then
    echo "FAILED: with portable kernels, the tier of MUL_MAT is: $(grep '^MUL_MAT' "$tmp/ops")"
    n_bad=$((n_bad + 1))
fi

# The output of --json is valid JSON.
if command -v python3 > /dev/null; then
    for args in ops devices "ops MUL_MAT CPY"; do
        n=$((n + 1))
        # shellcheck disable=SC2086
        if ! "$berth" $args --json | python3 -c 'import json, sys; json.load(sys.stdin)'; then
            echo "FAILED: berth $args --json is not valid JSON"
            n_bad=$((n_bad + 1))
        fi
    done
fi

# A full disk causes a failure.
if [ -w /dev/full ]; then
    for args in ops devices; do
        n=$((n + 1))
        "$berth" $args > /dev/full 2> "$tmp/err"
        got=$?
        if [ $got -ne 3 ]; then
            echo "FAILED: berth $args > /dev/full: exit code $got: $(cat "$tmp/err")"
            n_bad=$((n_bad + 1))
        fi
    done
fi

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
