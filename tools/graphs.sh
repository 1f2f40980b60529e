#!/bin/sh
# graphs.sh [DIR]: unpacks the graphs that were captured from released programs (tests/data/graphs.tar.xz, 501 of them) into DIR/graphs,
# build/data if no DIR is named: a folder a group, index.csv beside them. Does nothing where they are. Then
#     BERTH_DATA=build/data build/tests/test_corpus            the figures of memory in the README, by group
#     build/bin/bench-alloc build/data/graphs/*/*.ggraph.gz    the allocators' times (docs/user/allocators.md)
#     build/bin/berth map build/data/graphs/sd/NAME.ggraph.gz -o map.html
# Names say what they are: llama/MODEL.pp512 a prompt of 512 tokens, .tg1 one token, .nofa without flash attention; arch/ every
# architecture of llama.cpp, small; multi/ several devices; sd/ stable-diffusion.cpp; whisper/; api/ training and vision.
set -eu
cd "$(dirname "$0")/.."
dir=${1:-build/data}
[ ! -f "$dir/graphs/done" ] || exit 0
mkdir -p "$dir"
tar -xmJf tests/data/graphs.tar.xz -C "$dir"
find "$dir/graphs" -name '*.ggraph' -exec gzip -1nf {} +
touch "$dir/graphs/done"
echo "graphs: $(find "$dir/graphs" -name '*.ggraph.gz' | wc -l) in $dir/graphs"
