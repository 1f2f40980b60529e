#!/bin/sh
# twice.sh SOURCE_DIR: Berth built by its Makefile in two folders and installed below /usr gives the same bytes, whether the prefix
# was known before the build or not. Libraries are in the system's library folder. `make uninstall` leaves no file.
set -eu
source=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export CMAKE_ARGS="-D BERTH_TESTS=OFF -D BERTH_BENCH=OFF -D 'CMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG'"

for folder in a another/place/of/it; do
    mkdir -p "$scratch/$folder"
    (cd "$source" && tar -cf - --exclude=./build --exclude=./.git --exclude=./.cache .) | tar -C "$scratch/$folder" -xf -
done
make -s -C "$scratch/a" build >"$scratch/log" || { cat "$scratch/log"; exit 1; }
for folder in a another/place/of/it; do
    make -s -C "$scratch/$folder" install PREFIX=/usr DESTDIR="$scratch/root/${folder%%/*}" >"$scratch/log" || { cat "$scratch/log"; exit 1; }
done
diff -r --no-dereference "$scratch/root/a" "$scratch/root/another" || { echo "the builds in two folders differ"; exit 1; }

want=lib
[ ! -e /etc/debian_version ] || want=lib/$(${CC:-cc} -print-multiarch)
[ -e "$scratch/root/a/usr/$want/libggml.so" ] || { echo "no libggml.so in /usr/$want"; exit 1; }
"$scratch/root/a/usr/bin/berth" run -n 1 </dev/null >/dev/null 2>&1 || { echo "the installed program does not run"; exit 1; }

make -s -C "$scratch/a" uninstall PREFIX=/usr DESTDIR="$scratch/root/a"
left=$(find "$scratch/root/a" ! -type d)
[ -z "$left" ] || { echo "uninstall leaves $left"; exit 1; }
echo "twice: the same bytes from two folders"
