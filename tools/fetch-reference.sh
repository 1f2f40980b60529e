#!/bin/sh
# SPDX-License-Identifier: MIT
# fetch-reference.sh [VERSION]: fetches the reference libraries of a version of node-llama-cpp for this machine, and prints their
# folder. The default is 3.22.1, which has ggml 0.25.1; 3.20.0 has ggml 0.19.0. The libraries are kept in $BERTH_REFERENCE, or in
# .cache/reference of the repository, and are fetched once. BERTH_REFERENCE may also name a folder that contains libggml-base.so; it
# is then printed. The exit code is 77 if the libraries are unavailable.
set -u

version=${1:-3.22.1}
case $(uname -m) in
    aarch64 | arm64) arch=linux-arm64 ;;
    x86_64 | amd64) arch=linux-x64 ;;
    *) echo "fetch-reference: there are no reference libraries for $(uname -m)" >&2; exit 77 ;;
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
        echo "fetch-reference: npm is not installed: the reference libraries cannot be fetched" >&2
        exit 77
    fi
    mkdir -p "$cache" && work=$(mktemp -d "$cache/fetch.XXXXXX") || exit 77
    trap 'rm -rf "$work"' EXIT
    if ! (cd "$work" && npm pack --silent "@node-llama-cpp/$arch@$version" >/dev/null 2>npm.log && tar xzf ./*.tgz); then
        echo "fetch-reference: npm cannot fetch @node-llama-cpp/$arch@$version" >&2
        exit 77
    fi
    if [ ! -f "$work/package/bins/$arch/libggml-base.so" ]; then
        echo "fetch-reference: @node-llama-cpp/$arch@$version has no file bins/$arch/libggml-base.so" >&2
        exit 77
    fi
    # If another process has fetched the same version, its folder stays, because it may be in use.
    mv -T "$work/package" "$folder" 2>/dev/null || [ -f "$libraries/libggml-base.so" ] || exit 77
fi
echo "$libraries"
