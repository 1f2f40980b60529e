#!/bin/sh
# setup.sh [--check]: installs the tools that building and testing require. It looks for the tools, not for packages, so it works on
# any distribution where they exist. If tools are missing, it installs Debian's packages as root or with sudo, or prints the command
# that does. --check never installs. BERTH_SETUP=build requires the tools of a build only, BERTH_SETUP=mpi these and MPI,
# BERTH_SETUP=ci the tools of the tests and of CI, BERTH_SETUP=prove the tools of `make prove` only. Without it, the tools of builds and tests are required.
set -eu
part=${BERTH_SETUP:-test}

missing="" packages=""
# need PACKAGE WHAT COMMAND...: WHAT, which Debian's PACKAGE contains, is missing if COMMAND fails
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
# Debian's interpreter is asked, because the packages are installed for it.
python_module() { if [ -x /usr/bin/python3 ]; then /usr/bin/python3 -c "import $1"; else python3 -c "import $1"; fi; }
# Whether clang has its libraries for sanitizers and fuzzing.
fuzzer() { echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d == 0 && n == 0; }' | clang -x c -fsanitize=fuzzer -o /dev/null -; }

look() {
    missing="" packages=""
    if [ "$part" = prove ]; then
        need gcc "a C compiler" tool "${CC:-cc}"
        need python3 python3 tool python3
        need frama-c-base Frama-C tool frama-c
        need why3 why3 tool why3
        need z3 z3 tool z3
        need cvc4 cvc4 tool cvc4
        return 0
    fi
    need gcc "a C compiler" tool "${CC:-cc}"
    need make make tool make
    need cmake "cmake 3.25" tool cmake
    need ninja-build ninja tool ninja
    case $part in test | ci)
        need g++ "a C++ compiler" tool "${CXX:-c++}"
        need pkg-config pkg-config tool pkg-config
        need libcmocka-dev "cmocka (header and library)" header cmocka.h -lcmocka
        need zlib1g-dev "zlib (header and library)" header zlib.h -lz
        need libmicrohttpd-dev "libmicrohttpd (header and library)" header microhttpd.h -lmicrohttpd
        need curl curl tool curl
        ;;
    esac
    if [ "$part" = ci ]; then
        need clang clang tool clang
        need clang-format clang-format tool clang-format
        need clang-tidy clang-tidy tool clang-tidy
        need libclang-rt-14-dev "clang's sanitizers" fuzzer
        need python3 python3 tool python3
        for module in cffi numpy pytest onnx setuptools wheel pip; do
            need "python3-$module" "Python's $module" python_module "$module"
        done
        need mypy mypy tool mypy
        need chromium chromium tool chromium
        need mandoc mandoc tool mandoc
    fi
    case $part in ci | mpi)
        need openmpi-bin mpirun tool mpirun
        need libopenmpi-dev "MPI's header" tool mpicc
        ;;
    esac
}

# A cmake that is too old is an error: the distribution has no newer one, or PATH has another one first.
cmake_check() {
    version=$(cmake --version 2>/dev/null | sed -n '1s/^[^0-9]*//p')
    case $version in
        "" | [4-9].* | [1-9][0-9]*.* | 3.2[5-9]* | 3.[3-9][0-9]*) return ;;
    esac
    echo "berth: $(command -v cmake) is version $version, and 3.25 or newer is required. Install the package of Debian 12, run 'pip install" \
        "cmake', or download it from cmake.org/download, and put its folder first in PATH" >&2
    exit 1
}

[ "$part" = prove ] || cmake_check
look
[ -n "$missing" ] || exit 0

if [ "${1:-}" = --check ]; then
    echo "berth: missing: $missing. On Debian, 'make setup' installs the packages:$packages" >&2
    exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "berth: missing: $missing. This system has no apt-get: install the packages that correspond to Debian's:$packages" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    as_root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo"
else
    echo "berth: missing: $missing. Install with: sudo apt-get install --no-install-recommends libc6-dev$packages" >&2
    exit 1
fi
echo "berth: installing$packages"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# shellcheck disable=SC2086
$as_root apt-get install -y -qq --no-install-recommends libc6-dev $packages >/dev/null
[ "$part" = prove ] || cmake_check
installed=$packages
look
if [ -n "$missing" ]; then
    echo "berth: still missing: $missing, although these packages are installed:$installed" >&2
    exit 1
fi
