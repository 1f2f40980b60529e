#!/bin/sh
# SPDX-License-Identifier: MIT
# fetch-client.sh [VERSION]: installs a version of node-llama-cpp (default: 3.22.1), a client with prebuilt binaries of llama.cpp,
# and prints the folder that holds its node_modules. The folder is $BERTH_CLIENT/VERSION, or .cache/client/VERSION in the
# repository. A version that is already there is not installed a second time. The exit code is 77 if the version is unavailable.
set -u

version=${1:-3.22.1}
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${BERTH_CLIENT:-$root/.cache/client}/$version
if [ ! -f "$folder/node_modules/node-llama-cpp/package.json" ]; then
    if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
        echo "fetch-client: node or npm is not installed: node-llama-cpp cannot be fetched" >&2
        exit 77
    fi
    mkdir -p "$folder" && work=$(mktemp -d "$folder/fetch.XXXXXX") || exit 77
    trap 'rm -rf "$work"' EXIT
    echo '{"name": "client", "private": true}' >"$work/package.json"
    if ! (cd "$work" && npm install --silent --ignore-scripts --no-audit --no-fund "node-llama-cpp@$version" >npm.log 2>&1); then
        echo "fetch-client: npm cannot install node-llama-cpp@$version" >&2
        exit 77
    fi
    # Only the binaries are used: the source code is removed.
    rm -f "$work/node_modules/node-llama-cpp/llama/gitRelease.bundle"
    # If another process has fetched the same version, its folder stays, because it may be in use.
    mv -T "$work/node_modules" "$folder/node_modules" 2>/dev/null || [ -f "$folder/node_modules/node-llama-cpp/package.json" ] || exit 77
    mv "$work/package.json" "$folder/" || exit 77
fi
echo "$folder"
