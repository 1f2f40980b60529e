#!/bin/sh
# check-readme.sh: checks that the C example of README.md equals examples/hello.c.
set -eu
cd "$(dirname "$0")/.."
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md | diff - examples/hello.c
echo "readme: the example equals examples/hello.c"
