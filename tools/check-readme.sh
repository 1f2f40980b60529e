#!/bin/sh
# The C example in the README is examples/hello.c, line by line.
set -eu
cd "$(dirname "$0")/.."
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md | diff - examples/hello.c
echo "readme: the example is examples/hello.c"
