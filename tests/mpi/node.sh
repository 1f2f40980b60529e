#!/bin/sh
# node.sh BUILD: a Node program with node-llama-cpp, where that was fetched, over workers on this machine: as it is, with Berth's
# libraries in the package's folder. The package for machines without a GPU gives nothing to devices unless it is told to.
set -eu
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
berth=$build/bin/berth
model=$root/models/tales-q8_0.gguf
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
say() { echo "mpi: $*"; }
tale() { timeout 60 mpirun --allow-run-as-root --oversubscribe "$@" < /dev/null > "$dir/said" 2>&1 || { cat "$dir/said"; return 1; }; }

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
for n in 1 3; do
    tale -n 1 -x CLIENT_LAYERS=max node client.mjs run "$model" "$dir/node.$n" : -n $n "$berth" worker -t 1 ||
        { say "node over $n workers"; exit 1; }
    node client.mjs compare "$dir/node.0" "$dir/node.$n" || { say "node over $n workers says something else"; exit 1; }
    [ "$(node client.mjs layers "$dir/node.$n")" -gt 0 ] || { say "node gave the workers nothing"; exit 1; }
done
say "a Node program over 2 and 4 ranks tells the tale it tells alone"
