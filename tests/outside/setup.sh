#!/bin/sh
# setup.sh SOURCE_DIR: the requirements and the configuration of a build. A build does not require tools that only tests need. An
# old cmake is reported once. Warnings are not errors. The prefix decides the folder of libraries, also for an existing build. Tests
# without their tools are omitted.
set -eu
source=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
n_bad=0
bad() {
    echo "setup: $*"
    n_bad=$((n_bad + 1))
}

# ---- tools/setup.sh, with stubs in place of tools ----

tools=$scratch/tools
mkdir "$tools"
for name in sh sed grep cat id tr env; do
    ln -s "$(command -v $name)" "$tools/$name"
done
stub() { # NAME TEXT...
    printf '#!/bin/sh\n%s\n' "$2" >"$tools/$1"
    chmod +x "$tools/$1"
}
setup() { # PART ARGUMENTS...
    part=$1
    shift
    env -i PATH="$tools" BERTH_SETUP="$part" "$source/tools/setup.sh" "$@" >"$scratch/said" 2>&1
}

stub cc 'exit 1' # it finds no header
stub make ''
stub ninja ''
stub cmake 'echo "cmake version 3.25.1"'
setup build --check || bad "a build requires more than a C compiler, make, cmake and ninja: $(cat "$scratch/said")"
if setup test --check; then
    bad "tests require nothing else"
fi
for what in "a C++ compiler" pkg-config cmocka zlib; do
    grep -q "$what" "$scratch/said" || bad "tests require $what, but the output does not say it: $(cat "$scratch/said")"
done
for version in 3.30.2 4.0.1 10.1; do
    stub cmake "echo 'cmake version $version'"
    setup build --check || bad "cmake $version is refused: $(cat "$scratch/said")"
done

# The check and the installing command print the same message, also if no package is new enough.
stub apt-get 'exit 0'
stub id 'echo 0'
too_old() {
    if setup build "$@"; then
        bad "cmake 3.18.4 is accepted ($*)"
    fi
    grep -q "is version 3.18.4, and 3.25 or newer is required" "$scratch/said" || bad "an old cmake: $(cat "$scratch/said")"
    if grep -q "make setup" "$scratch/said"; then
        bad "no message that 'make setup' cannot replace an old cmake: $(cat "$scratch/said")"
    fi
}
stub cmake 'echo "cmake version 3.18.4"'
too_old --check
too_old
rm "$tools/cmake"
stub apt-get "printf '#!/bin/sh\necho cmake version 3.18.4\n' > '$tools/cmake' && chmod +x '$tools/cmake'"
ln -s "$(command -v chmod)" "$tools/chmod"
too_old

# ---- tools/configure.sh ----

build=$scratch/build
configure() {
    (cd "$source" && tools/configure.sh release "$build" -D BERTH_BENCH=OFF -D CMOCKA_LIBRARY=OFF -D CMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON "$@") ||
        bad "cannot be configured: $*"
}
value() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
configure -D CMAKE_INSTALL_PREFIX=/usr/local # without cmocka and zlib
[ ! -e "$build/CTestTestfile.cmake" ] || bad "there are tests without cmocka"
if grep -q -e -Werror "$build/compile_commands.json"; then
    bad "warnings are errors"
fi
[ "$(value CMAKE_INSTALL_LIBDIR)" = lib ] || bad "libraries go to $(value CMAKE_INSTALL_LIBDIR) below /usr/local"
touch -d "2 days ago" "$build/configure.log"
configure -D CMAKE_INSTALL_PREFIX=/usr/local
[ -n "$(find "$build/configure.log" -mtime +1)" ] || bad "configured again although no value changed"
configure -D CMAKE_INSTALL_PREFIX=/usr
want=lib
if [ -e /etc/debian_version ]; then
    want=lib/$(value CMAKE_LIBRARY_ARCHITECTURE)
    [ "$want" != lib/ ] || want=lib/$(${CC:-cc} -print-multiarch)
fi
[ "$(value CMAKE_INSTALL_LIBDIR)" = "$want" ] || bad "libraries go to $(value CMAKE_INSTALL_LIBDIR) below /usr, not to $want"
grep -q "usr\"" "$build/cmake_install.cmake" || bad "the prefix is not /usr"

# Tests without their tools are omitted, not skipped; BERTH_TESTS_ALL, which CI sets, makes this an error.
build=$scratch/tests
lacking="-D BERTH_BENCH=OFF -D BERTH_TESTS=ON -D CHROMIUM=OFF -D BERTH_MPI=OFF"
# shellcheck disable=SC2086
(cd "$source" && tools/configure.sh release "$build" $lacking) || bad "cannot be configured without a browser and MPI"
ctest --test-dir "$build" -N >"$scratch/said" || true
grep -q ": example-digits" "$scratch/said" || bad "there are no tests: $(cat "$scratch/said")"
if grep -E ": (cli_map_page|train-ranks|mpi)" "$scratch/said"; then
    bad "tests exist although their tools are missing"
fi
# shellcheck disable=SC2086
if (cd "$source" && tools/configure.sh release "$build" $lacking -D BERTH_TESTS_ALL=ON) >"$scratch/said"; then
    bad "BERTH_TESTS_ALL omits tests"
fi
grep -q "would be left out" "$scratch/said" || bad "BERTH_TESTS_ALL: $(cat "$scratch/said")"

[ $n_bad = 0 ] || exit 1
echo "setup: requirements and folders are correct"
