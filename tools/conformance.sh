#!/bin/sh
# conformance.sh [BUILD]: fetches the reference libraries and compares Berth with them. If they cannot be fetched, it prints SKIPPED
# and succeeds.
set -eu
cd "$(dirname "$0")/.."
dir=${1:-build}
status=0
reference=$(tools/fetch-reference.sh) || status=$?
if [ "$status" = 77 ]; then
    echo "conformance: SKIPPED, the reference libraries cannot be fetched"
    exit 0
fi
[ "$status" = 0 ] || exit "$status"
BERTH_REFERENCE=$reference ctest --test-dir "$dir" --output-on-failure --label-regex conformance --verbose
