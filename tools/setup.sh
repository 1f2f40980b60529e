#!/bin/sh
# setup.sh [--check]: are the tools here that building and testing need? Asks for the tools themselves, so that any distribution will do.
# Does nothing when all are there; else installs what is missing from Debian's packages, as root or with sudo, or says what to install.
# --check never installs. BERTH_SETUP=ci asks for what CI needs as well, BERTH_SETUP=mpi for MPI.
set -eu

missing="" packages=""
# need PACKAGE WHAT COMMAND...: the command succeeds where WHAT is there, which is of Debian's PACKAGE
need() {
    package=$1 what=$2
    shift 2
    "$@" >/dev/null 2>&1 || { missing="$missing${missing:+, }$what" packages="$packages $package"; }
}
tool() { command -v "$1"; }
header() { echo "#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <$1>
int main(void) { return 0; }" | ${CC:-cc} -x c -o /dev/null - "$2"; }
# A compiler's own library of sanitizers and fuzzing.
fuzzer() { echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d == 0 && n == 0; }' | clang -x c -fsanitize=fuzzer -o /dev/null -; }

need gcc "a C compiler" tool "${CC:-cc}"
need g++ "a C++ compiler" tool "${CXX:-c++}"
need make make tool make
need cmake "cmake 3.25" sh -c 'cmake -E capabilities | grep -Eq "\"major\":([4-9]|3,\"minor\":(2[5-9]|[3-9][0-9]))"'
need ninja-build ninja tool ninja
need pkg-config pkg-config tool pkg-config
need libcmocka-dev "cmocka (header and library)" header cmocka.h -lcmocka
need zlib1g-dev "zlib (header and library)" header zlib.h -lz
if [ "${BERTH_SETUP:-}" = ci ]; then
    need clang clang tool clang
    need clang-format clang-format tool clang-format
    need libclang-rt-14-dev "clang's sanitizers" fuzzer
    need python3 python3 tool python3
    need chromium chromium tool chromium
    need mandoc mandoc tool mandoc
fi
case "${BERTH_SETUP:-}" in ci | mpi)
    need openmpi-bin mpirun tool mpirun
    need libopenmpi-dev "MPI's header" tool mpicc
    ;;
esac
[ -n "$missing" ] || exit 0

if [ "${1:-}" = --check ]; then
    echo "berth: missing here: $missing. On Debian 'make setup' installs them:$packages" >&2
    exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "berth: missing here: $missing. This is no Debian system; install what it has in place of:$packages" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    as_root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo"
else
    echo "berth: missing here: $missing. Install with: sudo apt-get install --no-install-recommends libc6-dev$packages" >&2
    exit 1
fi
echo "berth: installing$packages"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# shellcheck disable=SC2086
$as_root apt-get install -y -qq --no-install-recommends libc6-dev $packages >/dev/null
