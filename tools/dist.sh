#!/bin/sh
# dist.sh: writes build/berth-VERSION.tar.gz, the sources of the current commit without Debian's packaging. The bytes depend on the
# commit only.
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/^project(berth VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
mkdir -p build
[ -z "$(git status --porcelain --untracked-files=no)" ] || echo "berth: the tarball has the last commit, without the changes after it" >&2
git archive --format=tar --prefix="berth-$version/" HEAD -- . ':!debian' | gzip -9n >"build/berth-$version.tar.gz"
echo "build/berth-$version.tar.gz"
