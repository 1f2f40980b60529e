#!/bin/bash
# fuzz.sh MINUTES [TARGET...]: runs each fuzz target (default: all) for MINUTES, two at a time, from its corpus in tests/fuzz, and
# prints the number of runs. Inputs that crash, hang or are slow are written to build/fuzz/artefacts as TARGET-crash-*,
# TARGET-slow-unit-* and so on. Inputs that reach new code are written to build/fuzz/found/TARGET.
#   BERTH_FUZZ_FAST=1   runs without sanitizers (build/fuzz-fast), several times as fast; later runs with sanitizers start from its inputs
#   BERTH_FUZZ_MERGE=1  adds a minimal set of inputs that reach new code to the corpus
#   BERTH_FUZZ_JOBS=N   runs N targets at a time
set -u
cd "$(dirname "$0")/.."
minutes=${1:?usage: fuzz.sh MINUTES [TARGET...]}
shift
preset=fuzz
[ "${BERTH_FUZZ_FAST:-0}" != 1 ] || preset=fuzz-fast
dir=build/$preset
kept=build/fuzz
targets=${*:-$(cd tests/fuzz && ls fuzz_*.c | sed 's/^fuzz_//; s/\.c$//')}
[ -f $dir/build.ninja ] || cmake --preset $preset > /dev/null || exit 3
# shellcheck disable=SC2086
cmake --build $dir --target $(printf 'fuzz_%s ' $targets) > $dir/build.log 2>&1 || { tail -20 $dir/build.log; exit 3; }

# length_of TARGET: the largest input in bytes that a target can use. For model, an input is a list of changes to a file, of which a
# few are enough to have it refused.
length_of() {
    case $1 in
        model) echo 48 ;;
        budget | op | access | admit) echo 192 ;;
        plan | vocab | imatrix | map | plan_csv | grammar | schema) echo 512 ;;
        mpi) echo 2048 ;;
        *) echo 1024 ;;
    esac
}

one() { # TARGET
    local target=$1 found=$kept/found/$1 log=$dir/fuzz-$1.log code
    mkdir -p "$found" "$kept/artefacts"
    # The output of the target is not kept, because it prints a message for each refused input. Leaks are detected at the end only,
    # because a check after each input would take most of the time.
    ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1:quarantine_size_mb=16 "$dir/tests/fuzz_$target" -entropic=0 -detect_leaks=0 \
        -max_total_time=$((minutes * 60)) -max_len="$(length_of "$target")" -rss_limit_mb=4096 -timeout=20 -close_fd_mask=3 \
        -print_final_stats=1 -artifact_prefix="$kept/artefacts/$target-" \
        "$found" "tests/fuzz/corpus/$target" > "$log" 2>&1
    code=$?
    printf '%-10s %12d runs  %s\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)" \
        "$([ $code = 0 ] && echo clean || echo "FAILED: $(grep -E 'ERROR|SUMMARY|fuzz:' "$log" | head -1)")"
    [ $code = 0 ]
}

export -f one length_of
export dir kept minutes
# shellcheck disable=SC2086
printf '%s\n' $targets | xargs -P "${BERTH_FUZZ_JOBS:-2}" -I{} bash -c 'one {} || touch "$dir/failed"'
if [ "${BERTH_FUZZ_MERGE:-0}" = 1 ]; then
    for target in $targets; do
        "$dir/tests/fuzz_$target" -merge=1 -max_len=4096 -close_fd_mask=3 -artifact_prefix="$kept/artefacts/$target-" \
            "tests/fuzz/corpus/$target" "$kept/found/$target" > /dev/null 2>&1
    done
fi
if [ -e $dir/failed ]; then
    rm $dir/failed
    exit 1
fi
