#!/bin/sh
# SPDX-License-Identifier: MIT
# torch.sh BERTH STEPS: trains the model of tales.conf from random weights. The losses of the first steps must equal those of
# PyTorch (torch.txt) within 1%. Run it in the root of the sources. These commands made torch.txt:
#     python3 models/grammar.py 100 5 > text
#     berth train tests/data/tales-3m-q8_0.gguf --new tests/train/tales.conf --data text --split blank -c 64 -b 4 --steps 0 --val text -o new.gguf
#     train-windows new.gguf text 64 1 800 > windows
#     python3 tests/train/torch_losses.py new.gguf windows 4 200 2e-3 20 > tests/train/torch.txt
berth=$1
steps=$2
tmp=$(mktemp -d) || exit 3
trap 'rm -rf "$tmp"' EXIT
if ! python3 models/grammar.py 100 5 > "$tmp/text" 2> /dev/null; then
    echo "SKIPPED: python3, which generates the text, is missing"
    exit 77
fi
if [ "$(cksum < "$tmp/text")" != "90876008 59140" ]; then
    echo "SKIPPED: this python3 generates another text"
    exit 77
fi
# The learning rate of the first 20 steps does not depend on the number of steps.
"$berth" train tests/data/tales-3m-q8_0.gguf --new tests/train/tales.conf --data "$tmp/text" --split blank -c 64 -b 4 --lr 2e-3 --warmup 20 \
    --steps "$steps" -o "$tmp/new.gguf" --json > "$tmp/json" 2> "$tmp/err" || { cat "$tmp/err"; exit 1; }
sed 's/.*"losses": \[//; s/\].*//' "$tmp/json" | tr ',' '\n' > "$tmp/losses"
paste "$tmp/losses" tests/train/torch.txt | head -n "$steps" | awk -v want="$steps" '
    { d = $1 - $2; d = (d < 0 ? -d : d) / $2; if (d > most) { most = d; at = NR } n++ }
    END { printf "%d steps, largest relative difference of the loss to PyTorch %.2g at step %d\n", n, most, at; exit !(n == want && most < 0.01) }'
