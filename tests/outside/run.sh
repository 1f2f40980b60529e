#!/bin/sh
# run.sh SOURCE_DIR BUILD_DIR: installs a build into a scratch tree, builds an outside project against it with CMake and with
# pkg-config, and runs it. The installed files must not contain a folder of this machine, must include the documentation that the
# program cites, must work after they are moved, and can be uninstalled.
set -eu
source=$1
build=$2
scratch=$(mktemp -d)
fail() {
    echo "outside: $*"
    exit 1
}
# Saves and restores the list of installed files, which 'make uninstall' reads.
manifest=$build/install_manifest.txt
[ ! -e "$manifest" ] || cp "$manifest" "$scratch/manifest"
trap 'rm -f "$manifest"; [ ! -e "$scratch/manifest" ] || cp "$scratch/manifest" "$manifest"; rm -rf "$scratch"' EXIT

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

# A program of 2023 finds the headers of its release.
# shellcheck disable=SC2046
cc -std=c11 -I"$tree/include/2023" "$source/tests/alloc2023/ops.c" -o "$scratch/ops" $(pkg-config $static --cflags --libs ggml) -lm
"$scratch/ops" "$scratch/ops.gguf" >/dev/null

berth=$tree/bin/berth
"$berth" --version
# The installed program finds the installed model, also after both are moved.
runs_model() {
    "$1" run --json -n 1 | grep -q 'share/berth/models/tales-q8_0.gguf", "prompt": "Once upon a time", "text": " '
}
runs_model "$berth" || fail "the installed program does not run the installed model"
mv "$tree" "$scratch/moved"
runs_model "$scratch/moved/bin/berth" || fail "the program that was moved with its folder does not run its model"
mv "$scratch/moved" "$tree"

# A path with one component, such as /src, is not searched, because it may occur in any text.
for path in "$source" "$build"; do
    case $path in
        /*/*) found=$(grep -rlF "$path/" "$tree" || true) ;;
        *) found="" ;;
    esac
    [ -z "$found" ] || fail "these installed files contain the build path $path:" "$found"
done

docs=$tree/share/doc/berth
[ -s "$docs/LICENSE" ] || fail "LICENSE is not installed"
for command in $("$berth" help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    "$berth" "$command" --help
done >"$scratch/help"
cited=$(cat "$scratch/help" "$tree/share/man/man1/berth.1" | grep -o 'docs/[a-z0-9./-]*\.md' | sort -u)
[ -n "$cited" ] || fail "the program cites no documentation"
for file in $cited; do
    [ -s "$docs/$file" ] || fail "$file is cited and not installed"
done

if "$source/tools/uninstall.sh" "$build" /opt/other 2>"$scratch/refused" || ! grep -q "is not below /opt/other" "$scratch/refused"; then
    fail "another prefix is uninstalled: $(cat "$scratch/refused")"
fi
[ -x "$berth" ] || fail "a refused uninstall removes files"
touch "$tree/share/berth/of-another"
DESTDIR=$scratch/root "$source/tools/uninstall.sh" "$build" /opt/berth
left=$(find "$tree" ! -type d ! -name of-another; find "$tree" -path '*/doc/berth')
[ -z "$left" ] || fail "uninstall leaves" "$left"
[ -e "$tree/share/berth/of-another" ] || fail "uninstall removes a file that it did not install"
echo "outside project: built with CMake and with pkg-config, ran; the installation is complete, movable and removable"
