# SPDX-License-Identifier: MIT
# server.sh: functions of the tests that start `berth serve` with the shipped model; a test sources it with the program as $1.

berth=$1
tmp=$(mktemp -d) || exit 3
trap 'kill "$server" 2> /dev/null; rm -rf "$tmp"' EXIT
server=
n_bad=0
n=0

# server_start OPTIONS...: starts a server on a free port; sets $server, $port and $url. The log goes to $log, or to $tmp/log. If
# $file_limit is set, no file of the server can be larger, in KiB.
server_start() {
    : > "$tmp/start"
    (
        [ -z "${file_limit:-}" ] || ulimit -f "$file_limit"
        exec "$berth" serve --port 0 "$@" > "$tmp/start" 2> "${log:-$tmp/log}" < /dev/null
    ) &
    server=$!
    for _ in $(seq 600); do
        url=$(sed -n 's/^listening on //p' "$tmp/start")
        [ -z "$url" ] || break
        kill -0 $server 2> /dev/null || break
        sleep 0.1
    done
    if [ -z "$url" ]; then
        echo "FAILED: berth serve $* does not start: $(cat "$tmp/log")"
        exit 1
    fi
    port=${url##*:}
}

# server_stop: sends SIGTERM; the exit code must be 0.
server_stop() {
    kill -TERM $server
    wait $server
    got=$?
    server=
    if [ $got -ne 0 ]; then
        echo "FAILED: exit code $got after SIGTERM: $(cat "$tmp/log")"
        n_bad=$((n_bad + 1))
    fi
}
