#!/bin/sh
# Installs a build into a scratch tree, builds an outside project against it with CMake and with pkg-config, and runs it.
# usage: run.sh SOURCE_DIR BUILD_DIR
set -eu
source=$1
build=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

DESTDIR=$scratch/root cmake --install "$build" --prefix /opt/berth >"$scratch/install.log" || { cat "$scratch/install.log"; exit 1; }
tree=$scratch/root/opt/berth
cp "$source/examples/hello.c" "$source/tests/outside/project/"* "$scratch/"
export LD_LIBRARY_PATH="$tree/lib:$(dirname "$(find "$tree" -name 'libggml-base.*' | head -n 1)")"

cmake -S "$scratch" -B "$scratch/b" -G Ninja -DCMAKE_PREFIX_PATH="$tree" >"$scratch/configure.log" || { cat "$scratch/configure.log"; exit 1; }
cmake --build "$scratch/b" >"$scratch/build.log" || { cat "$scratch/build.log"; exit 1; }
"$scratch/b/hello" 2>/dev/null
"$scratch/b/base_only" >/dev/null 2>&1
"$scratch/b/everything" >/dev/null 2>&1
"$scratch/b/wrappers"

PKG_CONFIG_PATH=$(dirname "$(find "$tree" -name ggml.pc)")
export PKG_CONFIG_PATH
static=""
[ -n "$(find "$tree" -name 'libggml-base.a')" ] && static=--static
# shellcheck disable=SC2046
cc -std=c11 "$scratch/hello.c" -o "$scratch/hello-pc" $(pkg-config $static --cflags --libs ggml)
"$scratch/hello-pc" >/dev/null 2>&1

# A program of 2023 finds the headers of its time.
# shellcheck disable=SC2046
cc -std=c11 -I"$tree/include/2023" "$source/tests/alloc2023/ops.c" -o "$scratch/ops" $(pkg-config $static --cflags --libs ggml) -lm
"$scratch/ops" "$scratch/ops.gguf" >/dev/null

"$tree/bin/berth" --version
# The installed program finds the installed model.
"$tree/bin/berth" run --json -n 1 | grep -q 'share/berth/models/tales-q8_0.gguf", "prompt": "Once upon a time", "text": " ' || {
    echo "the installed program does not run the installed model"
    exit 1
}
echo "outside project: built with CMake and with pkg-config, ran"
