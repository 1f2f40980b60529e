#!/bin/sh
# check-layers.sh [BUILD]: checks that a file of src/ includes only headers of its own folder or of lower levels, and that its
# object uses only symbols of these. docs/dev/code-tour.md explains the levels. A public header has the level of the folder that
# implements it. If BUILD (default: build) has no objects, only the includes are checked.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}

levels="base=0 quant=0.5 core=1 plan=2 gguf=2 backend=3 record=3 capture=3 alloc=4 gpu=3.5 cpu=4 cuda=4 vulkan=4 mpi=4 meta=4.5 sched=5 opt=5.5 registry=5 compat2023=5.5 registry2023=5.7 model=6 plot=6 train=6.5 generate=7 quantize=7 view=7 simulate=7 admit=7 proof=7 client=7 fit=7.5 library=8 serve=8 web=8 cli=9"
# ggml.h has level 0 because all folders use its statuses and log levels. ggml-backend-impl.h has level 1 because any folder may
# call functions through its tables.
headers="ggml.h=0 gguf.h=2 ggml-backend.h=3 ggml-backend-impl.h=1 ggml-alloc.h=4 ggml-cpu.h=4 ggml-opt.h=5.5
    berth-plan.h=2 berth-plan-io.h=2 berth-budget.h=2 berth-budget-graph.h=4 berth-gguf.h=2 berth-backend.h=3 berth-alloc.h=4 berth-meta.h=4.5 berth-cpu.h=4 berth-sched.h=5 berth-opt.h=5.5 berth-mpi.h=4 ggml-cuda.h=4 ggml-vulkan.h=4 berth-model.h=8"

# Folders of the same level must not use each other, so there are no cycles between folders.
rules='
function read_levels(list, into,   rows, kv, n, i) {
    n = split(list, rows, /[ \n]+/)
    for (i = 1; i <= n; i++) { split(rows[i], kv, "="); into[kv[1]] = kv[2] }
}
function is_upward(from, to) {
    return from != to && level[to] >= level[from]
}
BEGIN { read_levels(levels, level); read_levels(headers, header) }
'

awk -v levels="$levels" -v headers="$headers" "$rules"'
/^[ \t]*#[ \t]*include[ \t]+"/ {
    split(FILENAME, path, "/"); from = path[2]
    split($0, quoted, "\""); name = quoted[2]
    n_seen++
    if (!(from in level)) { if (path[3] != "") { printf "%s:%d: folder %s has no level\n", FILENAME, FNR, from; bad++ } next }
    if (name ~ /\//) {
        to = name; sub(/\/.*/, "", to)
        if (!(to in level)) { printf "%s:%d: folder %s has no level\n", FILENAME, FNR, to; bad++ }
        else if (is_upward(from, to)) { printf "%s:%d: %s (level %s) includes %s (level %s)\n", FILENAME, FNR, from, level[from], to, level[to]; bad++ }
    } else if (name in header && header[name] > level[from]) {
        printf "%s:%d: %s (level %s) includes %s (level %s)\n", FILENAME, FNR, from, level[from], name, header[name]; bad++
    }
}
END { if (bad) exit 1; printf "layers: %d includes, none of a higher level\n", n_seen }
' $(find src -name '*.c' -o -name '*.h')

# A build folder may still hold objects of sources that no longer exist.
objects=""
for object in $(find "$build"/src/CMakeFiles -name '*.c.o' 2>/dev/null); do
    file=src/${object#*.dir/}
    if [ -f "${file%.o}" ] || [ -f "$build/${file%.o}" ]; then # the second path: a generated source
        objects="$objects $object"
    fi
done
[ -n "$objects" ] || { echo "layers: no objects in $build yet"; exit 0; }
# nm prints "FILE:ADDRESS KIND NAME". The path of FILE is cut before the source folder.
# shellcheck disable=SC2086
nm -gA $objects | sed 's/^[^:]*\.dir\///' | awk -v levels="$levels" -v headers="$headers" "$rules"'
{
    at = index($0, ".o:"); file = substr($0, 1, at + 1); name = $NF; kind = $(NF - 1)
    folder = file; sub(/\/.*/, "", folder)
    if (!(folder in level)) next
    if (kind == "U" || kind == "w") { n_used++; used_file[n_used] = file; used_name[n_used] = name; used_folder[n_used] = folder }
    else { owner[name] = folder; source[name] = file }
}
END {
    for (i = 1; i <= n_used; i++) {
        to = owner[used_name[i]]
        if (to == "") continue
        n_seen++
        if (is_upward(used_folder[i], to)) {
            printf "%s (level %s) uses %s of %s (level %s)\n", used_file[i], level[used_folder[i]], used_name[i], source[used_name[i]], level[to]; bad++
        }
    }
    if (bad) exit 1
    printf "layers: %d symbols, none of a higher level\n", n_seen
}'
