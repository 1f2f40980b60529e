#!/bin/sh
# check-format.sh [--fix]: checks that all C and CUDA sources are formatted by .clang-format. --fix formats them.
set -eu
cd "$(dirname "$0")/.."
files=$(git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cu' '*.cuh')
if [ "${1:-}" = --fix ]; then
    # shellcheck disable=SC2086
    clang-format -i $files
else
    # shellcheck disable=SC2086
    clang-format --dry-run -Werror $files
    echo "format: $(printf '%s\n' "$files" | wc -l) files are formatted"
fi
