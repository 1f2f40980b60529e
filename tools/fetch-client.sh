#!/bin/sh
# SPDX-License-Identifier: MIT
# fetch-client.sh [VERSION]: installs that version of node-llama-cpp (3.22.1 if none is named), a client with prebuilt binaries of
# llama.cpp, and prints the folder that holds its node_modules. It is kept in $BERTH_CLIENT, or .cache/client in the repository, a
# folder a version; a second call does nothing more. Exit code 77: it cannot be had here.
set -u

version=${1:-3.22.1}
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${BERTH_CLIENT:-$root/.cache/client}/$version
if [ ! -f "$folder/node_modules/node-llama-cpp/package.json" ]; then
    if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
        echo "fetch-client: node and npm are not installed, node-llama-cpp cannot be fetched" >&2
        exit 77
    fi
    mkdir -p "$folder" && work=$(mktemp -d "$folder/fetch.XXXXXX") || exit 77
    trap 'rm -rf "$work"' EXIT
    echo '{"name": "client", "private": true}' >"$work/package.json"
    if ! (cd "$work" && npm install --silent --ignore-scripts --no-audit --no-fund "node-llama-cpp@$version" >npm.log 2>&1); then
        echo "fetch-client: npm cannot bring node-llama-cpp@$version" >&2
        exit 77
    fi
    # The binaries are all that is used: no source code is kept.
    rm -f "$work/node_modules/node-llama-cpp/llama/gitRelease.bundle"
    # Another fetch may have come first, and its folder may be in use: it stays.
    mv -T "$work/node_modules" "$folder/node_modules" 2>/dev/null || [ -f "$folder/node_modules/node-llama-cpp/package.json" ] || exit 77
    mv "$work/package.json" "$folder/" || exit 77
fi
echo "$folder"
