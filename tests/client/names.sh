#!/bin/bash
# SPDX-License-Identifier: MIT
# names.sh BUILD_DIR LOADER: checks the library names of an installed Berth. Clients may require any of these names, in any order.
# Even so, the process must contain libggml-base and libggml only once. Berth must detect the release of the client, and must list
# missing functions when the client is loaded.
set -u
build=$1
loader=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0
n_bad=0

failed() {
    echo "FAILED: $*"
    n_bad=$((n_bad + 1))
}

# client FILE SOURCE LIBRARY...: compiles a library that requires these libraries, in this order.
client() {
    local file=$1 source=$2
    shift 2
    printf '%s\n' "$source" | cc -x c -shared -fPIC -o "$tmp/$file" - -Wl,-z,lazy,--no-as-needed,--unresolved-symbols=ignore-all \
        -L"$tmp/link" -L"$lib" "-Wl,-rpath,$tmp:$lib/berth" "${@/#/-l:}" || failed "cc $file"
}

# The installed name of such a library is a link. The linker takes the required name from the SONAME of the linked file, so that a
# stub has it.
mkdir "$tmp/link"
for release in b10361 v0.4.0 v0.5.0; do
    echo 'int nothing;' | cc -x c -shared -o "$tmp/link/libggml.$release.so" - "-Wl,-soname,libggml.$release.so"
done

# one_of_each LIBRARY...: loads the libraries one after the other and checks that the process has one base and one registry.
one_of_each() {
    n=$((n + 1))
    "$loader" "$@" >"$tmp/out" 2>"$tmp/err" || failed "loading $*: $(cat "$tmp/out")"
    [ ! -s "$tmp/err" ] || failed "loading $*: $(cat "$tmp/err")"
    [ "$(grep -v 'nil' "$tmp/out" | cut -d' ' -f2 | sort -u | wc -l)" = 1 ] || failed "two bases after $*: $(cat "$tmp/out")"
    # A library that requires only the base sees no registry.
    [ "$(grep -o 'registry 0x[^ ]*' "$tmp/out" | sort -u | wc -l)" -le 1 ] || failed "two registries after $*: $(cat "$tmp/out")"
}

cmake --install "$build" --prefix "$tmp/berth" >"$tmp/log" || { cat "$tmp/log"; exit 1; }
lib=$(dirname "$(find "$tmp/berth" -name libggml-base.so -type f)")

# Every name is a file with its own SONAME or a link to such a file.
for name in libggml-base.so libggml-cpu.so libggml.so; do
    for soname in $name $name.0; do
        n=$((n + 1))
        readelf -d "$lib/$soname" | grep -qF "soname: [$soname]" || failed "$soname: no such SONAME"
    done
    n=$((n + 1))
    [ "$(readlink -f "$lib/berth/$name")" = "$(readlink -f "$lib/$name")" ] || failed "berth/$name is another file"
done
for release in b10361 v0.4.0 v0.5.0; do
    n=$((n + 1))
    [ "$(readlink -f "$lib/berth/libggml.$release.so")" = "$(readlink -f "$lib/libggml.so")" ] || failed "libggml.$release.so"
done

# Loads files by their paths, in both orders.
for a in "$lib"/libggml*.so* "$lib"/berth/libggml*.so*; do
    for b in "$lib/libggml.so" "$lib/libggml.so.0" "$lib/berth/libggml.v0.5.0.so"; do
        one_of_each "$a" "$b"
        one_of_each "$b" "$a"
    done
done

# Loads pairs of clients. Some require the library names of node-llama-cpp's packages (libggml.v0.5.0.so), others those of an
# ordinary build (libggml.so.0).
call='int ggml_init(void); int call(void) { return ggml_init(); }'
client plain.so "$call" libggml.so libggml-base.so
client ordinary.so "$call" libggml.so.0 libggml-base.so.0 libggml-cpu.so.0
client b10361.so "$call" libggml.b10361.so libggml-base.so
client v0.4.0.so "$call" libggml.v0.4.0.so libggml-base.so
client v0.5.0.so "$call" libggml.v0.5.0.so libggml-base.so
client plugin.so "$call" libggml-base.so
client plugin.so.0 "$call" libggml-base.so.0
for a in plain ordinary b10361 v0.5.0; do
    for b in plugin.so plugin.so.0 plain.so ordinary.so b10361.so v0.5.0.so; do
        one_of_each "$tmp/$a.so" "$tmp/$b"
    done
done

# release LIBRARY MINOR: checks that Berth detects ggml 0.MINOR for this client; 0: unknown.
release() {
    n=$((n + 1))
    "$loader" "$tmp/$1" 2>&1 | grep -q "client 0.$2\$" || failed "$1: not 0.$2: $("$loader" "$tmp/$1" 2>&1)"
}
release plain.so 0
release ordinary.so 0
release b10361.so 19
release v0.4.0.so 25
release v0.5.0.so 25

# Functions that a client requires and no library has are listed when the client is loaded, before any of its code runs. Weak
# references are not listed.
client lacking.so 'void ggml_no_such(void); void gguf_nor_such(void); void ggml_init(void); void ggml_perhaps(void) __attribute__((weak));
    void call(void) { ggml_no_such(); gguf_nor_such(); ggml_init(); if (ggml_perhaps) { ggml_perhaps(); } }' libggml.v0.5.0.so
message='lacking.so needs 2 functions that Berth .* does not have.*: ggml_no_such, gguf_nor_such\.'
for before in "" "$lib/libggml.so"; do # also if libggml is loaded already
    n=$((n + 1))
    "$loader" $before "$tmp/lacking.so" >"$tmp/out" 2>&1
    [ "$(grep -c "$message" "$tmp/out")" = 1 ] || failed "missing functions are not named once: $(cat "$tmp/out")"
done

echo "$n cases, $n_bad failed"
[ $n_bad -eq 0 ]
