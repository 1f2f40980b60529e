#!/bin/sh
# check-skips.sh BUILD: checks that tests/skips.txt lists every test that the last `ctest` in BUILD skipped, with the reason. So no
# test stops running unnoticed. `make test` calls it with BERTH_STRICT=1, as CI does.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
preset=${build#build/}
[ "$preset" != build ] || preset=release
[ "$(uname -m)" = aarch64 ] && machine=arm64 || machine=amd64

awk -v preset="$preset" -v machine="$machine" '
FNR == NR {
    if ($0 ~ /^#/ || NF < 3) next
    n_rules++
    where[n_rules] = "^(" $1 ")$"; test[n_rules] = "^(" $2 ")$"
    text = $0; sub(/^[^ ]+ +[^ ]+ +/, "", text); words[n_rules] = text
    next
}
/^[0-9]+\/[0-9]+ Testing: / { name = $3 }
/\[  SKIPPED \] [a-z_]/ || /^[ \t]*(skipped|SKIPPED): / || /^all +.* [1-9][0-9]* skipped/ || /^Test Skipped/ {
    n_seen++
    for (i = 1; i <= n_rules; i++) {
        if ((preset ~ where[i] || machine ~ where[i]) && name ~ test[i] && index($0, words[i]) > 0) { n_listed++; next }
    }
    printf "%s: %s\n", name, $0
    bad = 1
}
END {
    if (bad) { print "skips: the tests above are not listed in tests/skips.txt (preset " preset ", " machine ")"; exit 1 }
    printf "skips: %d, all listed\n", n_seen
}' tests/skips.txt "$build/Testing/Temporary/LastTest.log"
