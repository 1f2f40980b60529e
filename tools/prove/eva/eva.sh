#!/bin/sh
# eva.sh [--only NAME] [--overlay DIR]: analyses the files of tools/prove/eva/parts.txt with Frama-C's Eva. Prints per file the points
# where C allows undefined behaviour, the alarms, and the statements that were analysed. The exit code is 1 if an alarm is not in
# alarms.txt, a function with unreached statements is not in unreached.txt, or a line of these files is out of date.
# A file that exists below DIR replaces the file of the same path here. JOBS is the number of analyses that run at the same time.
#
# The contracts for the WP plugin are removed from a copy of the sources, so that Eva assumes none of them.
set -eu
cd "$(dirname "$0")/../../.."
only="" overlay=""
while [ $# -gt 0 ]; do
    case $1 in
        --only) only=$2; shift 2 ;;
        --overlay) overlay=$2; shift 2 ;;
        *) echo "eva.sh: unknown argument '$1'" >&2; exit 2 ;;
    esac
done
here=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r src "$work/src"
[ -z "$overlay" ] || cp -r "$overlay/." "$work/"
grep -rlE '/\*@|//@' "$work/src" | xargs sed -i 's|/\*@|/* @|; s|//@|// @|'
mkdir "$work/results"
ln -s "$here/include" "$work/include"
ln -s "$here/tools" "$work/tools"
cd "$work"

# Two runs per driver: Eva, and the list of all points where C allows undefined behaviour.
grep -v '^ *#' tools/prove/eva/parts.txt | grep . | while read -r name options; do
    [ -z "$only" ] || [ "$only" = "$name" ] || continue
    base="frama-c -machdep gcc_x86_64 -cpp-extra-args='-I. -Isrc -Iinclude' tools/prove/eva/$name.c"
    printf '%s\0' "{ $base -eva -eva-alloc-builtin fresh $options -then -report-csv results/$name.csv -then -metrics -metrics-eva-cover &&
        $base -rte -rte-initialized @all -then -report-untried -report-csv results/$name.rte.csv; } >results/$name.log 2>&1 ||
        { cat results/$name.log; exit 1; }"
done >commands
xargs -0 -P "${JOBS:-2}" -n 1 sh -c <commands
python3 tools/prove/eva/report.py results ${only:+"$only"}
