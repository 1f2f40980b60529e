#!/bin/bash
# faults.sh BERTH PRELOAD SYSCALLS [JOBS]: runs the tests fault_memory_all, fault_system_all and fault_kill_all of `make test-long`,
# divided among JOBS processes (default: one per core). PRELOAD and SYSCALLS are the libraries of tests/fault. Prints the failures
# and the totals. The exit code is 1 if there are failures. A signal, for example of timeout, ends the running processes; the
# results so far are printed.
set -u
cd "$(dirname "$0")/.."
export berth=$1 preload=$2 syscalls=$3
export jobs=${4:-$(nproc)}
export kills=$(((200 + jobs - 1) / jobs)) # kills of each command per process
logs=$(mktemp -d) || exit 3
export logs
trap 'rm -rf "$logs"' EXIT
trap : TERM INT

part() { # CAMPAIGN I
    case $1 in
        memory) FAULT_PART=$2/$jobs tests/fault/calls.sh "$berth" "$preload" memory all ;;
        system) FAULT_PART=$2/$jobs tests/fault/calls.sh "$berth" "$syscalls" "open read write map stat remove" all ;;
        kill) BERTH_SEED=$2 tests/fault/kill.sh "$berth" "$kills" ;;
    esac > "$logs/$1-$2" 2>&1
    echo "exit code $?" >> "$logs/$1-$2"
}
export -f part
for campaign in memory system kill; do
    for ((i = 1; i <= jobs; i++)); do
        echo "$campaign $i"
    done
done | xargs -P "$jobs" -L 1 bash -c 'part $0 $1'

bad=0
for campaign in memory system kill; do
    cat "$logs/$campaign"-* > "$logs/$campaign.all"
    grep -h FAILED "$logs/$campaign.all" | head -20
    complete=$(grep -c '^exit code 0$' "$logs/$campaign.all")
    awk -v name=$campaign -v complete="$complete" -v jobs="$jobs" '
        / cases, | kills \(/ {n += $1; for (i = 1; i <= NF; i++) { if ($i == "failed") bad += $(i - 1) } }
        / kills \(/ {gsub(/[^0-9 ]/, ""); old += $2; resumed += $3}
        END {
            printf "%s: %d runs, %d failed", name, n, bad
            if (name == "kill") printf ", %d before the new file, %d resumed", old, resumed
            printf ", %d of %d processes passed\n", complete, jobs
        }' "$logs/$campaign.all"
    [ "$complete" -eq "$jobs" ] || bad=1
done
exit $bad
