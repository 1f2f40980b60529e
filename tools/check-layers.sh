#!/bin/sh
# Every #include "folder/file.h" in src/ names a folder of the same or a lower level. The levels are those of docs/code-tour.md.
set -eu
cd "$(dirname "$0")/.."

awk '
BEGIN {
    n = split("base=0 core=1 quant=1 plan=2 gguf=2 backend=3 capture=3 alloc=4 cpu=4 cuda=4 sched=5 opt=5 registry=5 model=6 cli=7", rows, " ")
    for (i = 1; i <= n; i++) { split(rows[i], kv, "="); level[kv[1]] = kv[2] }
}
/^[ \t]*#[ \t]*include[ \t]+"[a-z0-9]+\// {
    split(FILENAME, path, "/"); from = path[2]
    match($0, /"[a-z0-9]+\//); to = substr($0, RSTART + 1, RLENGTH - 2)
    n_seen++
    if (!(from in level) || !(to in level)) { printf "%s:%d: folder %s has no level\n", FILENAME, FNR, (from in level) ? to : from; bad++ }
    else if (level[to] > level[from] || (level[to] == level[from] && to != from && !(from == "core" && to == "quant") && !(from == "quant" && to == "core"))) {
        printf "%s:%d: %s (level %d) includes %s (level %d)\n", FILENAME, FNR, from, level[from], to, level[to]; bad++
    }
}
END { if (bad) exit 1; printf "layers: %d includes, all downwards\n", n_seen }
' $(find src -name '*.c' -o -name '*.h')
