#!/bin/bash
# cuda-machine.sh [BUILD] [LOGS]: runs all tests that require a GPU:
#   - builds the libraries with kernels for the GPU's architecture only;
#   - runs the cases of the op suite on the GPU and compares with the CPU. Each op has a process, so that a lost device fails one op only;
#   - checks that computing allocates no memory after a reserve, and that captured graphs give the same results (cuda-promise);
#   - measures copies from host memory (bench-copy);
#   - compiles and runs the benchmark in the C file GPUBENCH, if it is set;
#   - runs compute-sanitizer on a part of the cases.
# It continues after failures. The last lines and LOGS report them. Environment variables, with their defaults: ARCHS=90a,
# PART=1/1 (share of the cases), SANITIZE='memcheck racecheck' (empty: none), SANITIZE_PART=1/40, OPS (all ops), JOBS (all cores),
# LIMIT=500 (seconds after which no further step starts).
set -u
cd "$(dirname "$0")/.."
build=${1:-build/cuda}
logs=${2:-$build/logs}
archs=${ARCHS:-90a}
jobs=${JOBS:-$(nproc)}
limit=${LIMIT:-500}
mkdir -p "$build" "$logs"
step() {
    echo "==== $* (${SECONDS} s)"
}

step "build"
# shellcheck disable=SC2086
cmake -S . -B "$build" -G "${GENERATOR:-Ninja}" -DCMAKE_BUILD_TYPE=Release -DBERTH_TESTS=OFF -DBERTH_BENCH=OFF -DBERTH_CUDA=ON \
    "-DBERTH_CUDA_ARCHS=$archs" ${CMAKE_ARGS:-} > "$logs/build.log" 2>&1 &&
    cmake --build "$build" -j "$jobs" --target ggml ggml-cpu ggml-base ggml-cuda >> "$logs/build.log" 2>&1 ||
    { tail -30 "$logs/build.log"; exit 1; }
cases=$(ls tests/op/*.c | grep -Ev '/(main|meta_main|oracle_main|oracle_link|spread|custom)\.c$')
link="-L$build/lib -lggml -lggml-base -lggml-cpu -lm -Wl,-rpath,$(cd "$build/lib" && pwd)"
# shellcheck disable=SC2086
gcc -std=c11 -D_GNU_SOURCE -O1 -Iinclude -Isrc -Itests -Itests/op tests/cuda/ops_main.c tests/cuda/fused.c $cases -o "$build/cuda-ops" $link || exit 1
# shellcheck disable=SC2086
gcc -std=c11 -D_GNU_SOURCE -O1 -Iinclude tests/cuda/no_alloc_main.c -o "$build/cuda-promise" $link || exit 1

step "ops"
ops=${OPS:-$("$build/cuda-ops" "$build/lib" --list)}
part=${PART:-1/1}
# one_op OP I/N: runs the cases of PART whose number modulo N is I - 1.
one_op() {
    log=$logs/op-$1-${2%/*}.log
    timeout 120 "$build/cuda-ops" "$build/lib" -k "$1" --part "$((${part%/*} + (${2%/*} - 1) * ${part#*/}))/$((${part#*/} * ${2#*/}))" > "$log" 2>&1
    code=$?
    [ $code -le 1 ] || echo "$1 $2: exit $code: $(tail -1 "$log")" >> "$log"
}
# Ops with many cases are divided among processes, so that none of them reaches the time limit.
pieces() {
    for op in $ops; do
        n=1
        case $op in FUSED_MV | MUL_MAT | MUL_MAT_ID) n=8 ;; esac
        for i in $(seq $n); do
            echo "$op $i/$n"
        done
    done
}
export -f one_op
export build logs part
rm -f "$logs"/op-*.log
pieces | xargs -P "$jobs" -I{} bash -c 'one_op {}'
cat "$logs"/op-*.log > "$logs/ops.log"
rm -f "$logs"/op-*.log
grep -E ' passed, ' "$logs/ops.log" | sort > "$logs/ops.txt"
grep -E 'FAIL|LOST|exit ' "$logs/ops.log" | awk '{n[$2]++} n[$2] <= 3' | cut -c1-220 | head -120
awk '{p += $2; f += $4; u += $6} $4 > 0 {bad = bad " " $1 "(" $4 ")"} {none[$1] += $6}
    END {for (op in none) if (none[op] > 0) no = no " " op "(" none[op] ")"; print "ops: " p " passed, " f " failed:" bad; print "unsupported " u ":" no}' "$logs/ops.txt"

step "no allocation after reserve"
for what in steps fill full replay experts; do
    timeout 120 "$build/cuda-promise" "$build/lib" $what > "$logs/promise-$what.log" 2>&1 || echo "FAIL cuda-promise $what: exit $?"
    tail -2 "$logs/promise-$what.log"
done

step "copies from host memory"
# shellcheck disable=SC2086
gcc -std=c11 -D_GNU_SOURCE -O2 -Iinclude bench/copy.c -o "$build/bench-copy" $link && timeout 100 "$build/bench-copy" CUDA0 512 "$build/lib" 2>&1 | tee "$logs/copy.txt"

if [ -n "${GPUBENCH:-}" ] && [ "$SECONDS" -lt "$limit" ]; then
    step "gpubench"
    # shellcheck disable=SC2086
    gcc -O2 -Iinclude "$GPUBENCH" -o "$build/gpubench" $link && timeout 120 "$build/gpubench" "$build/lib" CUDA0 2>&1 | tee "$logs/gpubench.txt"
fi

for tool in ${SANITIZE-memcheck racecheck}; do
    [ "$SECONDS" -lt "$limit" ] || break
    step "compute-sanitizer $tool"
    one_check() {
        timeout 100 compute-sanitizer --tool "$2" --report-api-errors no --error-exitcode 9 "$build/cuda-ops" "$build/lib" -k "$1" --part "${SANITIZE_PART:-1/40}" \
            > "$logs/$2-$1.log" 2>&1
        echo "$2 $1 exit $?: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$logs/$2-$1.log" | tail -1)"
    }
    export -f one_check
    # shellcheck disable=SC2086
    printf '%s\n' $ops | xargs -P "$jobs" -I{} bash -c "one_check {} $tool" > "$logs/$tool.txt"
    cat "$logs/$tool"-*.log > "$logs/$tool.log"
    rm -f "$logs/$tool"-*.log
    grep -vE 'exit 0: .* 0 (errors|hazards)' "$logs/$tool.txt" | head -40
    grep -cE 'exit 0: .* 0 (errors|hazards)' "$logs/$tool.txt" | sed "s/$/ ops clean under $tool/"
done
step "done"
