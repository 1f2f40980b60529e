#!/bin/sh
# configure.sh PRESET DIR [-D NAME=VALUE...]: configures the build folder DIR with CMake, unless DIR is already configured with
# these values. The output of CMake is in DIR/configure.log.
set -eu
preset=$1 dir=$2
shift 2

# has NAME=VALUE: whether CMake's cache has this value, with any type
has() {
    awk -v want="$1" 'BEGIN { name = want; sub(/=.*/, "", name) }
        { line = $0; sub(/:[A-Z]*=/, "=", line) }
        index($0, name ":") == 1 && line == want { found = 1 }
        END { exit !found }' "$dir/CMakeCache.txt"
}

done=$([ -e "$dir/build.ninja" ] && echo yes || echo no)
for arg; do
    case $arg in
        -D | "") ;;
        *) [ "$done" = yes ] && has "${arg#-D}" || done=no ;;
    esac
done
[ "$done" = no ] || exit 0
mkdir -p "$dir"
cmake --preset "$preset" -B "$dir" "$@" >"$dir/configure.log" 2>&1 || { cat "$dir/configure.log"; exit 1; }
