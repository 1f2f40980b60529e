#!/bin/sh
# Installs the Debian packages that building and testing need, if any is missing. Does nothing when all are there.
# Without root or sudo: says which command is needed, and fails before anything is done.
set -eu

packages="gcc g++ libc6-dev make cmake ninja-build pkg-config libcmocka-dev zlib1g-dev"
if [ "${BERTH_SETUP:-}" = ci ]; then
    packages="$packages clang clang-format libclang-rt-14-dev python3 chromium mandoc"
fi

missing=""
for p in $packages; do
    # A package may be there for two architectures: a line each.
    dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "berth: this is no Debian system; install the equivalents of:$missing" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    as_root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo"
else
    echo "berth: packages are missing; install them with: sudo apt-get install --no-install-recommends$missing" >&2
    exit 1
fi
echo "berth: installing$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# shellcheck disable=SC2086
$as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
