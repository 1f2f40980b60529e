# SPDX-License-Identifier: MIT
# expect.sh: functions that the tests of the program share; a test sources it with the program as $1.

berth=$1
command= # command of the program, placed before the arguments of each case
tmp=$(mktemp -d) || exit 3
trap 'rm -rf "$tmp"' EXIT
n_bad=0
n=0

# expect CODE TEXT ARGS...: the expected exit code, and a text that standard output or standard error must contain ("": any)
expect() {
    code=$1
    text=$2
    shift 2
    n=$((n + 1))
    "$berth" $command "$@" > "$tmp/out" 2> "$tmp/err" < /dev/null
    got=$?
    if [ $got -ne "$code" ]; then
        echo "FAILED: berth${command:+ $command} $*: exit code $got, not $code: $(cat "$tmp/err")"
        n_bad=$((n_bad + 1))
    elif [ -n "$text" ] && ! cat "$tmp/out" "$tmp/err" | grep -qF -- "$text"; then
        echo "FAILED: berth${command:+ $command} $*: no '$text' in: $(cat "$tmp/out" "$tmp/err")"
        n_bad=$((n_bad + 1))
    elif { [ "$code" -eq 2 ] || [ "$code" -eq 3 ]; } && [ ! -s "$tmp/err" ]; then
        echo "FAILED: berth${command:+ $command} $*: nothing on standard error"
        n_bad=$((n_bad + 1))
    elif grep -q "$(printf '\033')" "$tmp/out" "$tmp/err"; then
        echo "FAILED: berth${command:+ $command} $*: colour without a terminal"
        n_bad=$((n_bad + 1))
    fi
}

# catches PID SIGNAL: waits at most a minute until the process has a handler for the signal with that number, so that it has
# started.
catches() {
    for _ in $(seq 600); do
        mask=$(sed -n 's/^SigCgt:[[:space:]]*//p' /proc/$1/status 2> /dev/null)
        [ -n "$mask" ] || return 1
        [ $((0x$mask >> ($2 - 1) & 1)) -eq 0 ] || return 0
        sleep 0.1
    done
    return 1
}

# interrupted ARGS...: sends Ctrl-C half a second after the command has installed its handler; $got is its exit code.
interrupted() {
    "$berth" "$@" > "$tmp/out" 2> "$tmp/err" <&0 &
    pid=$!
    catches $pid 2
    sleep 0.5
    kill -INT $pid
    wait $pid
    got=$?
}

# Items whose optimal plan takes longer to find than a test may take.
hard_items() {
    awk 'BEGIN {
        x = 7
        print "id,lower,upper,size"
        for (i = 0; i < 4000; i++) {
            x = (x * 16807) % 2147483647; a = x % 1000
            x = (x * 16807) % 2147483647; l = 1 + x % 300
            x = (x * 16807) % 2147483647; print "b" i "," a "," a + l "," 1000 + x % 99991
        }
    }'
}

# Graphs that the program itself captures contain the memory of each tensor: it is a valid plan of that size, and can be drawn.
captured() { # FOLDER
    for each in "$1"/*.ggraph; do
        sizes=$(sed -n 's/^buf .* ggml_size=//p' "$each" | paste -sd+)
        expect 0 "\"peak\": $(($sizes)), " plan --json "$each"
        expect 0 "" map --captured "$each" -o "$tmp/captured.svg"
    done
}

# Returns whether the size of files can be limited: the thread sanitizer writes a large file when it starts.
can_limit_files() {
    (ulimit -f 8 && "$berth" version) > /dev/null 2>&1 && return
    echo "SKIPPED: tests with a file size limit; a sanitizer of this build writes large files itself"
    return 1
}
