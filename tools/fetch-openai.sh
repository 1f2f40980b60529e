#!/bin/sh
# SPDX-License-Identifier: MIT
# fetch-openai.sh [VERSION]: installs a version of npm's openai (default: 6.30.1), OpenAI's own client, and prints the folder that
# holds its node_modules. The folder is $BERTH_OPENAI/VERSION, or .cache/openai/VERSION in the repository. A version that is already
# there is not installed a second time. The exit code is 77 if the version is unavailable.
set -u

version=${1:-6.30.1}
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${BERTH_OPENAI:-$root/.cache/openai}/$version
if [ ! -f "$folder/node_modules/openai/package.json" ]; then
    if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
        echo "fetch-openai: node or npm is not installed: openai cannot be fetched" >&2
        exit 77
    fi
    mkdir -p "$folder" && work=$(mktemp -d "$folder/fetch.XXXXXX") || exit 77
    trap 'rm -rf "$work"' EXIT
    echo '{"name": "client", "private": true}' >"$work/package.json"
    if ! (cd "$work" && npm install --silent --ignore-scripts --no-audit --no-fund "openai@$version" >npm.log 2>&1); then
        echo "fetch-openai: npm cannot install openai@$version" >&2
        exit 77
    fi
    # If another process has fetched the same version, its folder stays, because it may be in use.
    mv -T "$work/node_modules" "$folder/node_modules" 2>/dev/null || [ -f "$folder/node_modules/openai/package.json" ] || exit 77
    mv "$work/package.json" "$folder/" || exit 77
fi
echo "$folder"
