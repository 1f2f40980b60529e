#!/bin/sh
# check-tidy.sh [BUILD]: runs clang-tidy with the checks of .clang-tidy over the C files of src that BUILD compiles. Without
# clang-tidy it prints a line and succeeds.
set -eu
cd "$(dirname "$0")/.."
dir=${1:-build}
command -v clang-tidy > /dev/null || { echo "tidy: skipped, clang-tidy is not installed"; exit 0; }
files=$(sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$dir/compile_commands.json" | grep "^$PWD/src/" | sort -u)
# shellcheck disable=SC2086
if ! printf '%s\n' $files | xargs -P "$(nproc)" -n 10 clang-tidy -p "$dir" --quiet > "$dir/tidy.log" 2>&1; then
    grep -A3 -E '(error|warning):' "$dir/tidy.log"
    exit 1
fi
echo "tidy: $(printf '%s\n' $files | wc -l) files are fine"
