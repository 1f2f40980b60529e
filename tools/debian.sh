#!/bin/bash
# debian.sh [build] [lintian] [tests] [fresh] [again]: builds Debian's packages from the tarball of `make dist` and checks them. Without
# an argument it runs all steps. Requires root. The packages are in build/packages.
#
#   build    dpkg-buildpackage
#   lintian  no errors and no warnings
#   tests    the autopkgtests, in the chroot of the step fresh
#   fresh    the packages in a fresh Debian 12: `berth run` generates a text, llama.cpp's libllama runs on Berth and on ggml again
#   again    a second build in another folder gives the same bytes
#
# BERTH_CHROOTS is the folder of chroots, by default build/chroots. DEB_BUILD_OPTIONS=noopt compiles with -O1, which is faster.
set -eu
cd "$(dirname "$0")/.."
source=$PWD
packages=$PWD/build/packages
chroots=${BERTH_CHROOTS:-$PWD/build/chroots}
root=$chroots/berth-fresh
[ "$(id -u)" = 0 ] || { echo "debian: root is required, to install packages and to make a chroot" >&2; exit 77; }
export DEBIAN_FRONTEND=noninteractive

fail() { echo "debian: $*" >&2; exit 1; }

# packages_build FOLDER: builds the packages of the current commit in FOLDER.
packages_build() {
    local tarball
    tarball=$(tools/dist.sh)
    rm -rf "$1"
    mkdir -p "$1"
    tar -C "$1" -xf "$tarball"
    git archive --format=tar HEAD debian | tar -C "$1"/berth-*/ -xf -
    cp "$tarball" "$1/$(basename "$tarball" | sed 's/-\(.*\)\.tar/_\1.orig.tar/')"
    (cd "$1"/berth-*/ && dpkg-buildpackage -us -uc) >"$1/log" 2>&1 || { tail -n 40 "$1/log"; fail "dpkg-buildpackage: the log is $1/log"; }
}

step_build() {
    apt-get install -y -qq --no-install-recommends dpkg-dev debhelper dh-python cmake ninja-build libmicrohttpd-dev libopenmpi-dev zlib1g-dev \
        pkg-config >/dev/null
    packages_build "$packages"
    (cd "$packages" && ls -- *.deb)
}

step_lintian() {
    apt-get install -y -qq --no-install-recommends lintian >/dev/null
    lintian --allow-root --fail-on error,warning "$packages"/berth_*.changes
    echo "debian: lintian has no errors and no warnings"
}

# inside COMMAND...: runs the command in the fresh chroot, with /proc, which $ORIGIN in the RPATH of a program requires.
inside() {
    # shellcheck disable=SC2016
    unshare --mount sh -c 'root=$1; shift; mount -t proc proc "$root/proc" && exec chroot "$root" "$@"' sh "$root" "$@"
}

# fresh_make: makes a new chroot with the packages.
fresh_make() {
    apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
    rm -rf "$root"
    mkdir -p "$chroots"
    debootstrap --variant=minbase bookworm "$root" >"$packages/debootstrap.log" || fail "debootstrap: $packages/debootstrap.log"
    mkdir "$root/packages"
    cp "$packages"/*.deb "$root/packages/"
    inside sh -c 'apt-get install -y -qq --no-install-recommends /packages/berth_*.deb /packages/libberth_*.deb \
        /packages/libberth-dev_*.deb /packages/libberth-mpi_*.deb' >"$packages/install.log" || fail "apt-get: $packages/install.log"
}

step_fresh() {
    local folder reference
    fresh_make
    inside sh -c 'berth run -n 40 </dev/null' || fail "berth run"
    # llama.cpp's libllama: in /client with ggml's libraries beside it, in /llama alone, so that LD_LIBRARY_PATH names the libraries.
    reference=$(tools/fetch-reference.sh) || { echo "debian: SKIPPED: the reference libraries are unavailable"; return 0; }
    cmake --build build --target client-probe >/dev/null || fail "client-probe cannot be built: run make build first"
    mkdir -p "$root/client" "$root/llama"
    cp "$reference"/*.so "$root/client/"
    cp "$reference"/libllama.v*.so "$root/llama/"
    cp build/tests/client-probe tests/data/tales-3m-q8_0.gguf "$root/llama/"
    inside apt-get install -y -qq --no-install-recommends libstdc++6 libgomp1 >/dev/null
    folder=$(cd "$root" && echo usr/lib/*/berth)
    inside berth client /client || fail "berth client"
    probe="/llama/client-probe FOLDER text /llama/tales-3m-q8_0.gguf Once 20"
    # shellcheck disable=SC2086
    inside env "LD_LIBRARY_PATH=/$folder" ${probe/FOLDER//llama} >"$packages/on-berth" || fail "libllama does not run on /$folder"
    # shellcheck disable=SC2086
    inside ${probe/FOLDER//client} >"$packages/on-ggml" || fail "libllama does not run on ggml again"
    echo "debian: libllama on Berth: $(cat "$packages/on-berth")"
    echo "debian: libllama on ggml:  $(cat "$packages/on-ggml")"
    # shellcheck disable=SC2086
    ! inside ${probe/FOLDER//llama} >/dev/null 2>&1 || fail "without LD_LIBRARY_PATH, libllama finds libraries outside $folder"
}

step_tests() {
    apt-get install -y -qq --no-install-recommends autopkgtest >/dev/null
    [ -e "$root/packages" ] || fresh_make
    rm -rf "$packages/autopkgtest"
    # shellcheck disable=SC2016
    unshare --mount sh -c 'mount -t proc proc "$1/proc"; root=$1; shift; autopkgtest "$@" -- chroot "$root"' sh "$root" \
        --output-dir="$packages/autopkgtest" "$packages"/*.deb "$packages"/berth_*.dsc >"$packages/autopkgtest.log" 2>&1 ||
        { tail -n 30 "$packages/autopkgtest.log"; fail "autopkgtest: $packages/autopkgtest.log"; }
    cat "$packages/autopkgtest/summary"
}

step_again() {
    packages_build "$source/build/packages-again/in/another/folder"
    for file in "$packages"/*.deb; do
        cmp "$file" "$source/build/packages-again/in/another/folder/$(basename "$file")" || fail "two builds differ"
    done
    echo "debian: $(find "$packages" -maxdepth 1 -name '*.deb' | wc -l) packages have the same bytes in two folders"
}

[ $# != 0 ] || set -- build lintian fresh tests again
for step; do
    "step_$step"
done
