#!/bin/sh
# SPDX-License-Identifier: MIT
# fetch-reference.sh [VERSION]: brings the reference libraries as built for that version of node-llama-cpp (3.22.1, which is ggml
# 0.25.1, if none is named; 3.20.0 is ggml 0.19.0) for this machine and prints their folder.
# They are kept in $BERTH_REFERENCE, or .cache/reference in the repository; a second call does nothing more. BERTH_REFERENCE
# may also name a folder that holds libggml-base.so itself. Exit code 77: they cannot be had here.
set -u

version=${1:-3.22.1}
case $(uname -m) in
    aarch64 | arm64) arch=linux-arm64 ;;
    x86_64 | amd64) arch=linux-x64 ;;
    *) echo "fetch-reference: no reference is built for $(uname -m)" >&2; exit 77 ;;
esac

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${BERTH_REFERENCE:-$root/.cache/reference}
if [ -f "$cache/libggml-base.so" ]; then
    echo "$cache"
    exit 0
fi

folder=$cache/$arch-$version
libraries=$folder/bins/$arch
if [ ! -f "$libraries/libggml-base.so" ]; then
    if ! command -v npm >/dev/null; then
        echo "fetch-reference: npm is not installed, the reference cannot be fetched" >&2
        exit 77
    fi
    mkdir -p "$cache" && work=$(mktemp -d "$cache/fetch.XXXXXX") || exit 77
    trap 'rm -rf "$work"' EXIT
    if ! (cd "$work" && npm pack --silent "@node-llama-cpp/$arch@$version" >/dev/null 2>npm.log && tar xzf ./*.tgz); then
        echo "fetch-reference: npm cannot bring @node-llama-cpp/$arch@$version" >&2
        exit 77
    fi
    if [ ! -f "$work/package/bins/$arch/libggml-base.so" ]; then
        echo "fetch-reference: @node-llama-cpp/$arch@$version holds no bins/$arch/libggml-base.so" >&2
        exit 77
    fi
    # Another fetch may have come first, and its folder may be in use: it stays.
    mv -T "$work/package" "$folder" 2>/dev/null || [ -f "$libraries/libggml-base.so" ] || exit 77
fi
echo "$libraries"
