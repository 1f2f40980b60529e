#!/bin/bash
# SPDX-License-Identifier: MIT
# openai.sh BERTH: calls `berth serve` with npm's openai, OpenAI's own client. The exit code is 77 if the client is unavailable.

. "$(dirname "$0")/server.sh"

folder=$("$(dirname "$0")/../../tools/fetch-openai.sh" 2> "$tmp/err") || {
    echo "SKIPPED: $(cat "$tmp/err")"
    exit 77
}
echo "a key of the test" | tr ' ' - > "$tmp/keys"
server_start --api-key-file "$tmp/keys" --parallel 4
node "$(dirname "$0")/openai.mjs" "$folder" "$url" "$(cat "$tmp/keys")" || n_bad=1
server_stop
# The shipped model is too small to call tools by itself, but a grammar makes it call one. The text of the tools is long.
server_start --template chatml-tools --api-key-file "$tmp/keys" --parallel 4 --ctx 2048
node "$(dirname "$0")/openai.mjs" "$folder" "$url" "$(cat "$tmp/keys")" tools || n_bad=1
server_stop
exit $n_bad
