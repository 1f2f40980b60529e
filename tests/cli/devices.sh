#!/bin/sh
# SPDX-License-Identifier: MIT
# devices.sh BERTH MODULE: commands on several devices: two simulated GPUs and the CPU (sim_device.c). Runs in the root of the
# sources.

. "$(dirname "$0")/expect.sh"
export GGML_BACKEND_PATH="$2"
export PAPER_MEMORY=1500000
tales=tests/data/tales-3m-q8_0.gguf

expect 0 "Paper1: its own, aligned to 128" devices
expect 0 "3 splits" explain $tales
PAPER_REAL=1 expect 0 "Paper1 fused in its last graph:" explain --fused $tales
PAPER_REAL=1 expect 0 "    ink with paper 3" explain --fused $tales
expect 0 "1 token at position 7" explain --fused --device CPU -c 8 $tales
expect 0 "  no device fused ops" explain --fused --device CPU -c 8 $tales
expect 2 "--fused cannot be combined with --json, --layer, --all or --split tensor" explain --fused --json $tales
expect 0 "buffer 0 Paper0: " plan --ctx 64 --batch 16 $tales

# Every device has its own limit; that of a GPU is its free memory if none is given.
expect 0 "  Paper0" fit --memory 5M $tales
expect 0 "  context  limited by memory, of Paper0" fit --memory 1G $tales
expect 0 "limited by memory, of Paper1" fit --memory Paper1=1300K --memory Paper0=1G $tales
expect 0 "limited by memory, of CPU" fit -t 2 --memory CPU=2900K,Paper0=1G --memory Paper1=1G $tales
expect 0 "context 256, batch 256" fit --memory CPU=1G --memory Paper0=1G --memory Paper1=1G $tales
expect 0 '"memory": null, "limits": {"Paper1": 2097152, "Paper0": 1500000}, "fits": true' fit --json --memory Paper1=2M $tales
expect 0 '"full": "Paper0"' fit --json --memory Paper1=2M $tales
expect 0 '"lower": [' fit --json --memory Paper1=2M $tales
expect 1 "of Paper1: does not fit: a context of 1 with a batch of 1 requires" fit --memory Paper1=900K $tales
expect 1 "    missing  " fit --memory Paper1=900K $tales
expect 3 "--memory 'Abacus=1G': the model does not use a device 'Abacus'" fit --memory Abacus=1G $tales
expect 3 "the model does not use a device 'Paper0'" fit --device CPU --memory Paper0=1G $tales
expect 2 "--memory '=1G' is neither a number of bytes" fit --memory =1G $tales
expect 2 "--memory 'Paper0=' is neither a number of bytes" fit --memory Paper0= $tales
expect 2 "--memory 'Paper0=1G' and --memory 'Paper0=2G' limit the same device" fit --memory Paper0=1G --memory Paper0=2G $tales
# Layers that do not fit leave a GPU, as many as necessary.
expect 0 "context 256, batch" fit --memory Paper0=700K,Paper1=1300K,CPU=1G --allow batch,spill $tales
expect 0 " on Paper0" fit --memory Paper0=700K,Paper1=1300K,CPU=1G --allow batch,spill $tales
expect 1 "does not fit: a context of 1 with a batch of 1 requires" fit --memory Paper0=700K,Paper1=300K,CPU=1G --allow batch $tales

# The bytes are exact: with the reported bytes as limits the result is the same, with one byte less on any device it differs.
if command -v python3 > /dev/null; then
    cat > "$tmp/exact.py" << 'END'
import json, subprocess, sys
def fit(*limits):
    out = subprocess.run([sys.argv[1], 'fit', '--json', *(x for l in limits for x in ('--memory', l)), sys.argv[2]],
        stdout=subprocess.PIPE, check=False)
    return json.loads(out.stdout)
first = fit('5M')
taken = {d['device']: d['weights'] + d['cache'] + d['compute'] + d['work'] for d in first['devices']}
assert len(taken) == 3 and sum(taken.values()) == first['total'] <= 5 << 20, first
exact = [f'{name}={n}' for name, n in taken.items()]
again = fit(*exact)
assert (again['ctx'], again['batch']) == (first['ctx'], first['batch']) and again['devices'] == first['devices'], again
for name in taken:
    less = fit(*(f'{k}={n - (k == name)}' for k, n in taken.items()))
    assert (less['ctx'], less['batch']) < (first['ctx'], first['batch']), (name, less)
END
    n=$((n + 1))
    python3 "$tmp/exact.py" "$berth" $tales || { echo "FAILED: the bytes of fit are not exact"; n_bad=$((n_bad + 1)); }
fi

mkdir "$tmp/own"
BERTH_CAPTURE="$tmp/own" expect 0 "buffer 1 Paper1" plan $tales
captured "$tmp/own"

# A library in the current folder is not loaded.
mkdir "$tmp/here"
cp "$2" "$tmp/here/libggml-paper.so"
n=$((n + 1))
case $berth in /*) program=$berth ;; *) program=$PWD/$berth ;; esac
(cd "$tmp/here" && env -u GGML_BACKEND_PATH "$program" devices) > "$tmp/out" 2>&1
if ! grep -q CPU "$tmp/out" || grep -q Paper "$tmp/out"; then
    echo "FAILED: berth devices: the current folder brings code: $(cat "$tmp/out")"
    n_bad=$((n_bad + 1))
fi

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
