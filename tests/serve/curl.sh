#!/bin/bash
# SPDX-License-Identifier: MIT
# curl.sh BERTH: tests `berth serve` with the shipped model and curl: its options, the plan, answers, streams, errors, keys, limits,
# many clients, clients that leave, SIGTERM, a full disk, SIGKILL. The exit code is 77 if curl is not installed.

. "$(dirname "$0")/server.sh"

command -v curl > /dev/null || {
    echo "SKIPPED: curl is not installed"
    exit 77
}
json='Content-Type: application/json'

fail() {
    echo "FAILED: $*"
    n_bad=$((n_bad + 1))
}

# has TEXT WHAT: $tmp/out must contain TEXT.
has() {
    n=$((n + 1))
    grep -qF -- "$1" "$tmp/out" || fail "$2: no '$1' in: $(head -c 600 "$tmp/out")"
}

# call STATUS PATH [CURL-OPTION...]: the body goes to $tmp/out, the headers to $tmp/headers.
call() {
    local want=$1 path=$2
    shift 2
    n=$((n + 1))
    got=$(curl -sS -m 60 -o "$tmp/out" -D "$tmp/headers" -w '%{http_code}' "$url$path" "$@" 2> "$tmp/err")
    [ "$got" = "$want" ] || fail "$path $*: status $got, not $want: $(head -c 600 "$tmp/out") $(cat "$tmp/err")"
}

post() { # STATUS PATH BODY [CURL-OPTION...]
    local want=$1 path=$2 body=$3
    shift 3
    call "$want" "$path" -H "$json" -d "$body" "$@"
}

# refused CODE TEXT ARGS...: `berth serve ARGS` ends with this exit code and text.
refused() {
    local want=$1 text=$2
    shift 2
    n=$((n + 1))
    timeout 60 "$berth" serve "$@" > "$tmp/out" 2>&1 < /dev/null
    got=$?
    [ $got -eq "$want" ] || fail "serve $*: exit code $got, not $want: $(cat "$tmp/out")"
    has "$text" "serve $*"
}

chat='{"messages": [{"role": "user", "content": "Tell me about a ship."}], "max_tokens": 8, "seed": 1'

# ---- the command ----

refused 0 "users with a full context of 1024 tokens" --plan --quiet
refused 0 "cache 8.00 MiB for 2048 tokens" --plan --quiet --parallel 2
refused 1 "--memory is 1048576" --plan --memory 1M
refused 2 "--port '70000' is not an integer from 0 to 65535" --port 70000
refused 2 "unknown --template 'nonsense'" --plan --template nonsense
refused 3 "No such file" --api-key-file "$tmp/missing"
: > "$tmp/empty"
refused 3 "contains no key" --port 0 --api-key-file "$tmp/empty"
# The more memory, the more tokens.
tokens() { "$berth" serve --plan --quiet --parallel 64 --memory "$1" | sed -n 's/.* for \([0-9]*\) tokens.*/\1/p'; }
[ "$(tokens 160M)" -lt "$(tokens 180M)" ] || fail "--memory 160M: $(tokens 160M) tokens, 180M: $(tokens 180M)"

# ---- answers ----

server_start --parallel 4 --drain 300 --deterministic
refused 3 "Address already in use" --port "$port"
call 200 /health
has '"status": "ok", "model": "tales-q8_0"' health
call 200 /v1/models
has '"id": "tales-q8_0"' models
call 200 /
has '<html' page
post 200 /v1/chat/completions "$chat}"
has '"role": "assistant", "content": "' chat
post 200 /v1/embeddings '{"input": ["a cat", "a dog"]}'
has '"index": 1, "embedding": [' embeddings
# The same text as `berth run`.
"$berth" run -q --temp 0 -n 12 -c 256 -p "Once upon a time" > "$tmp/run" 2> /dev/null
post 200 /v1/completions '{"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}'
if command -v python3 > /dev/null; then
    python3 - "$tmp/out" "$tmp/run" << 'PY' || n_bad=$((n_bad + 1))
import json, sys
text = json.load(open(sys.argv[1]))["choices"][0]["text"]
run = open(sys.argv[2]).read()
if run.strip() != text.strip():
    print(f"FAILED: berth run and the server differ: {run!r}, {text!r}")
    sys.exit(1)
PY
fi
cp "$tmp/out" "$tmp/first"
post 200 /v1/chat/completions "$chat, \"stream\": true}"
has 'data: {"id": "chatcmpl-' stream
has 'data: [DONE]' stream
post 200 /v1/chat/completions "$chat, \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"x\", \"schema\": {\"enum\": [\"yes\", \"no\"]}}}}"
grep -qE '"content": "\\"(yes|no)\\""' "$tmp/out" || fail "schema: $(cat "$tmp/out")"

# ---- errors ----

post 400 /v1/chat/completions '{'
has '"type": "invalid_request_error"' 'no JSON'
post 400 /v1/chat/completions '{"messages": []}'
post 400 /v1/chat/completions "$chat, \"colour\": 1}"
has '"code": "unknown_parameter"' 'unknown parameter'
post 400 /v1/completions '{"prompt": "a", "max_tokens": 100000}'
has '"code": "context_length_exceeded"' 'too long'
post 404 /v1/chat/completions "$chat, \"model\": \"gpt\"}"
call 404 /v1/files
call 405 /v1/chat/completions
call 415 /v1/completions -d '{"prompt": "a"}'
call 403 /health -H 'Origin: http://evil.example'
call 403 /health -H 'Host: evil.example'
head -c 4000000 /dev/zero | tr '\0' a > "$tmp/large"
call 413 /v1/completions -H "$json" --data-binary "@$tmp/large"

# ---- many clients: each gets the text that it gets alone ----

pids=
for i in $(seq 16); do
    curl -sS -m 120 -o "$tmp/many.$i" -H "$json" "$url/v1/completions" \
        -d '{"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}' &
    pids="$pids $!"
done
# shellcheck disable=SC2086
wait $pids
n=$((n + 1))
text() { sed 's/.*"text": "\(.*\)", "logprobs".*/\1/' "$1"; }
for i in $(seq 16); do
    [ "$(text "$tmp/many.$i")" = "$(text "$tmp/first")" ] || fail "client $i of 16: $(cat "$tmp/many.$i")"
done

# ---- clients that leave ----

for i in 1 2 3; do
    curl -sS -m 0.3 -o /dev/null -H "$json" "$url/v1/completions" -d '{"prompt": "a", "max_tokens": 240, "stream": true}' 2> /dev/null
done
for _ in $(seq 50); do
    call 200 /metrics
    grep -q '^berth_requests_running 0$' "$tmp/out" && break
    sleep 0.1
done
has 'berth_requests_running 0' 'after clients have left'
has 'berth_requests_failed_total 0' 'no request failed'

# ---- SIGTERM ----

curl -sSN -m 300 -o "$tmp/last" -H "$json" "$url/v1/completions" -d '{"prompt": "The", "max_tokens": 240, "stream": true, "logit_bias": {"2": -100, "4": -100}}' &
last=$!
for _ in $(seq 600); do # until the first token
    [ ! -s "$tmp/last" ] || break
    sleep 0.05
done
kill -TERM $server
got=$(curl -sS -m 60 -o /dev/null -w '%{http_code}' -H "$json" "$url/v1/completions" -d '{"prompt": "a"}' 2> /dev/null)
case $got in
    503 | 000) ;; # 000: the server has ended already
    *) fail "after SIGTERM: status $got" ;;
esac
wait $last
grep -q '^data: .DONE.' "$tmp/last" || fail "SIGTERM: the running request did not finish: $(cat "$tmp/last")"
wait $server
got=$?
[ $got -eq 0 ] || fail "exit code $got after SIGTERM"
grep -qE '^[0-9TZ:-]+ POST /v1/chat/completions 200 [0-9]+\+[0-9]+ tokens [0-9.]+ ms$' "$tmp/log" || fail "no log line in: $(cat "$tmp/log")"
! grep -qE 'ship|Once' "$tmp/log" || fail "the log has contents: $(cat "$tmp/log")"

# ---- keys ----

echo secret-key > "$tmp/keys"
server_start --template chatml --api-key-file "$tmp/keys" --cors https://chat.example --alias ship --quiet
call 401 /v1/models
has '"code": "invalid_api_key"' 'no key'
call 401 /v1/models -H 'Authorization: Bearer secret-kez'
call 200 /v1/models -H 'Authorization: Bearer secret-key'
has '"id": "ship"' alias
call 204 /v1/models -X OPTIONS -H 'Origin: https://chat.example'
grep -qi '^access-control-allow-origin: https://chat.example' "$tmp/headers" || fail "no CORS header: $(cat "$tmp/headers")"
[ ! -s "$tmp/log" ] || fail "--quiet: $(cat "$tmp/log")"
server_stop

# ---- a full disk: the log is lost, and nothing else ----

log=/dev/full
server_start
for _ in 1 2 3; do
    post 200 /v1/completions '{"prompt": "a", "max_tokens": 2}'
done
server_stop
log=
file_limit=1 # the kernel sends SIGXFSZ
server_start
for _ in $(seq 40); do
    post 200 /v1/completions '{"prompt": "a", "max_tokens": 1}'
done
[ "$(wc -c < "$tmp/log")" -eq 1024 ] || fail "the limited log has $(wc -c < "$tmp/log") bytes"
server_stop
file_limit=

# ---- SIGKILL with a stream and an idle connection: the port can be used at once, and no file is left ----

mkdir "$tmp/home" && berth=$(realpath "$berth") && cd "$tmp/home" || exit 3
export TMPDIR=$tmp/home HOME=$tmp/home
server_start --template chatml
exec 3<> "/dev/tcp/127.0.0.1/$port"
curl -sSN -m 60 -o "$tmp/stream" -H "$json" "$url/v1/completions" \
    -d '{"prompt": "a", "max_tokens": 240, "stream": true, "logit_bias": {"2": -100}}' 2> /dev/null &
stream=$!
for _ in $(seq 100); do
    [ -s "$tmp/stream" ] && break
    sleep 0.05
done
{
    kill -KILL $server
    wait $server $stream
} 2> /dev/null
old=$port
"$berth" serve --port "$old" --quiet > "$tmp/start" 2> "$tmp/log" &
server=$!
for _ in $(seq 600); do
    grep -q "listening on .*:$old" "$tmp/start" && break
    kill -0 $server 2> /dev/null || break
    sleep 0.1
done
call 200 /health
has '"status": "ok"' 'after SIGKILL'
post 200 /v1/completions '{"prompt": "a", "max_tokens": 2}'
server_stop
exec 3>&-
[ -z "$(ls -A)" ] || fail "files are left: $(ls -A)"

echo "curl: $n checks, $n_bad failed"
exit $((n_bad > 0))
