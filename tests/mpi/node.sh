#!/bin/sh
# node.sh BUILD: an unmodified Node program with node-llama-cpp, if it was fetched, over workers on this machine, with Berth's
# libraries in the package's folder: split by layers and, with BERTH_SPLIT=tensor, by tensors. The package for machines without a
# GPU uses devices only if an option requests it.
set -eu
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
berth=$build/bin/berth
model=$root/tests/data/tales-3m-q8_0.gguf
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
say() { echo "mpi: $*"; }
tale() {
    timeout 60 mpirun --allow-run-as-root --oversubscribe "$@" < /dev/null > "$dir/said" 2>&1 || { cat "$dir/said"; return 1; }
}

client=$root/.cache/client/3.22.1
version=$(node --version 2> /dev/null | sed 's/^v\([0-9]*\).*/\1/')
if [ ! -d "$client" ] || [ "${version:-0}" -lt 20 ]; then
    say "SKIPPED: node-llama-cpp is not here (tools/fetch-client.sh), or no node 20"
    exit 77
fi
mkdir "$dir/node"
cp -al "$client/node_modules" "$dir/node/" 2> /dev/null || cp -a "$client/node_modules" "$dir/node/"
for bins in "$dir"/node/node_modules/@node-llama-cpp/*/bins/*/; do
    rm -f "$bins"/libggml*
    cp "$build"/lib/libggml-base.so "$build"/lib/libggml-cpu.so "$build"/lib/libggml-mpi.so "$build"/lib/libberth-mpi.so "$bins"
    cp "$build/lib/libggml.so" "$bins/libggml.v0.5.0.so"
done
cp "$root/tests/client/client.mjs" "$dir/node/"
cd "$dir/node"
node client.mjs run "$model" "$dir/node.0" || { say "node alone"; exit 1; }
for split in layer tensor; do
    for net in vader,self tcp,self; do
        for n in 1 3; do
            what="node over $n workers by ${split}s, $net"
            tale --mca btl $net -n 1 -x CLIENT_LAYERS=max -x BERTH_SPLIT=$split node client.mjs run "$model" "$dir/node.$n" : \
                -n $n "$berth" worker -t 1 || { say "$what"; exit 1; }
            # With a split by tensors, sums have another order. Values may differ in the last bit, and the text may differ where two
            # words are almost equally likely. The text is the same over every network.
            how=$([ $split = layer ] && echo compare || echo near)
            node client.mjs $how "$dir/node.0" "$dir/node.$n" > "$dir/said" || { say "$what: another tale"; cat "$dir/said"; exit 1; }
            [ $split = layer ] || ! grep -q "differ by 0.0e+0" "$dir/said" || { say "$what: nothing was split"; exit 1; }
            [ -e "$dir/$split.$n" ] || cp "$dir/node.$n" "$dir/$split.$n"
            node client.mjs compare "$dir/$split.$n" "$dir/node.$n" > "$dir/said" || { say "$what: not as before"; cat "$dir/said"; exit 1; }
            [ "$(node client.mjs layers "$dir/node.$n")" -gt 0 ] || { say "$what: the workers have nothing"; exit 1; }
        done
    done
done
say "a Node program over 2 and 4 ranks generates the text of one process when split by layers, and one that begins like it when split by tensors"
