#!/bin/sh
# graphs.sh [DIR]: unpacks 501 graphs that were captured from released programs (tests/data/graphs.tar.xz) into DIR/graphs, with a
# folder per group and index.csv. DIR is build/data by default. Graphs that are already unpacked are not unpacked a second time.
# Uses:
#     BERTH_DATA=build/data build/tests/test_corpus            the memory figures of the README, per group
#     build/bin/bench-alloc build/data/graphs/*/*.ggraph.gz    the times of the allocators (docs/user/allocators.md)
#     build/bin/berth map build/data/graphs/sd/NAME.ggraph.gz -o map.html
# The groups are llama/ (models: MODEL.pp512 is a prompt of 512 tokens, .tg1 is one token, .nofa is without flash attention), arch/
# (a small model of every architecture of llama.cpp), multi/ (several devices), sd/ (stable-diffusion.cpp), whisper/, and api/
# (training and vision).
set -eu
cd "$(dirname "$0")/.."
dir=${1:-build/data}
[ ! -f "$dir/graphs/done" ] || exit 0
mkdir -p "$dir"
tar -xmJf tests/data/graphs.tar.xz -C "$dir"
find "$dir/graphs" -name '*.ggraph' -exec gzip -1nf {} +
touch "$dir/graphs/done"
echo "graphs: $(find "$dir/graphs" -name '*.ggraph.gz' | wc -l) in $dir/graphs"
